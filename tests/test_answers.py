"""Answers from rows written by hand: what changed, how sure it is, what brings it back, and when seeds draw nothing."""

import pytest

from experiments.whatif import pictures
from experiments.whatif.answers import answers
from experiments.whatif.judging import Verdict, judge
from experiments.whatif.outcome import Outcome
from experiments.whatif.pictures import heat_rows, line_rows, pareto_rows
from experiments.whatif.points import grid
from experiments.whatif.report import outcome_json, text_of
from experiments.whatif.scenario import read_scenario
from experiments.whatif.search import Found
from experiments.whatif.search_spec import read_promise, read_search
from experiments.whatif.simulate import columns

SCENARIO = """seeds = 3
[sweep]
rate = [1, 2]
kv-cache-dtype = ["auto", "fp8"]
"""
WORLD = {                                              # by hand: queue p99 and concurrency for three seeds
    (1, "auto"): ([0.4, 0.4, 0.4], [38.0, 39.0, 37.0]),
    (1, "fp8"): ([0.4, 0.4, 0.4], [38.0, 39.0, 37.0]),
    (2, "auto"): ([7.9, 8.1, 7.7], [61.0, 62.0, 60.0]),
    (2, "fp8"): ([0.41, 0.40, 0.39], [70.0, 72.0, 71.0]),
}


def outcome(folder, world=WORLD, text=SCENARIO, **more):
    path = folder / "what-if.toml"
    path.write_text(text)
    scenario = read_scenario(str(path))
    names = columns(tuple(knob.name for knob in scenario.knobs))
    points, rows = grid(scenario), []
    for number, point in enumerate(points):
        queue, running = (column[point.seed] for column in world[tuple(value for _, value in point.knobs)])
        worse = queue > 1
        rows.append({**dict.fromkeys(names), "number": number, "status": "done", "seed": point.seed, "allocator": point.allocator,
                     **dict(point.knobs), "queue_p99_s": queue, "concurrency_mean": running, "preemptions": 412 if worse else 0,
                     "rejected": 0, "unfinished": 0, "kv_gib": 4.0 if point.knobs[1][1] == "auto" else 8.0, "checks_ok": 1,
                     "result": '{"crosscheck": []}', "warnings": None, "whole_run": 0, **more})
    found = [] if scenario.search is None else [Found(*group, None, None, (), ()) for group in dict.fromkeys(
        point.group for point in points)]
    return Outcome(scenario, points, rows, len(points), found, {"run": len(points), "kept": 0}, names)


def test_twice_the_traffic_and_what_brings_it_back(tmp_path):
    lines = text_of(outcome(tmp_path))
    assert lines[:4] == [
        "baseline: rate 1, kv-cache-dtype auto, paged-prefix (3 seeds, ± at 95 % confidence)",
        "kv-cache-dtype auto -> fp8: no difference to speak of",
        "rate 1 -> 2: concurrency 38 -> 61 (+23 ± 0), queue p99 0.40 s -> 7.90 s (+7.5 ± 0.5), preemptions 0 -> 412 (+412 ± 0)",
        "    kv-cache-dtype auto -> fp8 brings it back: concurrency 61 -> 71 (+10 ± 2), queue p99 7.90 s -> 0.40 s "
        "(-7.5 ± 0.5), preemptions 412 -> 0 (-412 ± 0)"]


def test_differences_are_those_of_the_seeds_not_of_the_means(tmp_path):
    """Concurrency goes up by 23 with every seed, though it differs between the seeds: the interval is empty."""
    made = outcome(tmp_path)
    effect = next(effect for effect in answers(made)[1].effects if effect.headline.metric == "concurrency_mean")
    assert (effect.difference.mean, effect.difference.half) == (23.0, 0.0)
    assert effect.before.half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)


def test_what_helps_and_does_not_bring_it_back(tmp_path):
    world = {**WORLD, (2, "fp8"): ([3.0, 3.1, 2.9], [70.0, 72.0, 71.0])}
    line = text_of(outcome(tmp_path, world))[3]
    assert line.startswith("    kv-cache-dtype auto -> fp8 helps: ") and "queue p99 7.90 s -> 3.00 s" in line


def changed(made, rate, dtype, **values):
    """The same outcome with other values in one setting's rows."""
    for row in made.rows:
        if (row["rate"], row["kv-cache-dtype"]) == (rate, dtype):
            row.update(values)
    return made


def test_all_that_was_worse_must_be_back(tmp_path):
    """The queue is short again, and 200 preemptions are left of 412: a help, no more."""
    made = changed(outcome(tmp_path), 2, "fp8", preemptions=200)
    assert text_of(made)[3].startswith("    kv-cache-dtype auto -> fp8 helps: ")
    assert outcome_json(made)["answers"][1]["remedies"][0]["back"] is False


def test_what_makes_something_else_worse_brings_nothing_back(tmp_path):
    """Queue and preemptions are those of the baseline, and 5 requests are rejected that were not."""
    made = changed(outcome(tmp_path), 2, "fp8", rejected=5)
    assert text_of(made)[3].startswith("    kv-cache-dtype auto -> fp8 helps: ") and "rejected 0 -> 5" in text_of(made)[3]
    world = {**WORLD, (2, "fp8"): ([0.45, 0.45, 0.45], [70.0, 72.0, 71.0])}    # more than 0.4 and a tenth
    assert text_of(outcome(tmp_path, world))[3].startswith("    kv-cache-dtype auto -> fp8 helps: ")


def test_nothing_that_was_run_helps(tmp_path):
    lines = text_of(outcome(tmp_path, {**WORLD, (2, "fp8"): ([9.0, 9.1, 8.9], [61.0, 62.0, 60.0])}))
    assert lines[3] == "    nothing else that was run helps"
    one_knob = text_of(outcome(tmp_path, text=SCENARIO.replace(', "fp8"', "")))     # nothing else was run
    assert not any("helps" in line or "brings it back" in line for line in one_knob)


PROMISED = SCENARIO + "[search]\nsmallest = 'pool'\nkeep = 'queue p99 <= {} s'\n"


def test_there_is_no_way_back_to_a_baseline_that_breaks_the_promise_itself(tmp_path):
    """0.4 s where 0.3 s is promised: as in the baseline is no good, and 0.2 s is better than the baseline."""
    why = "queue p99 <= 0.3 s is broken: 0.4, at most 0.4"
    made = outcome(tmp_path, text=PROMISED.format(0.3))
    assert text_of(made)[1] == f"    does not keep what is promised: {why}" and outcome_json(made)["baseline_breaks"] == why
    assert text_of(made)[4].startswith("    kv-cache-dtype auto -> fp8 helps: ")
    changed(made, 2, "fp8", queue_p99_s=0.2)
    assert text_of(made)[4].startswith("    kv-cache-dtype auto -> fp8 keeps what is promised, as the baseline does not: ")
    assert outcome_json(made)["answers"][1]["remedies"][0]["back"] is True


def test_where_the_promise_is_still_kept_there_is_nothing_to_bring_back(tmp_path):
    lines = text_of(outcome(tmp_path, text=PROMISED.format(10)))
    assert lines[2].startswith("rate 1 -> 2: ") and lines[3] == "    still keeps what is promised: nothing to bring back"
    assert not any("fp8 brings" in line for line in lines)
    lines = text_of(outcome(tmp_path, text=PROMISED.format(1)))            # the baseline keeps it, twice the rate does not
    assert lines[3].startswith("    kv-cache-dtype auto -> fp8 brings it back: ")
    assert outcome_json(outcome(tmp_path, text=PROMISED.format(1)))["baseline_breaks"] == ""
    assert outcome_json(outcome(tmp_path))["baseline_breaks"] is None


def test_a_large_change_that_the_seeds_do_not_agree_on_is_called_uncertain(tmp_path):
    world = {**WORLD, (2, "auto"): ([0.4, 20.0, 0.5], [61.0, 62.0, 60.0])}
    line = text_of(outcome(tmp_path, world))[2]
    assert "queue p99 0.40 s -> 6.97 s (uncertain: +7 ± 28)" in line
    assert "brings it back" not in text_of(outcome(tmp_path, world))[3].split("preemptions")[0]


def test_a_setting_that_does_not_run_is_named(tmp_path):
    made = outcome(tmp_path)
    for row in made.rows:
        if (row["rate"], row["kv-cache-dtype"]) == (2, "auto"):
            row.update(dict.fromkeys(("queue_p99_s", "concurrency_mean", "preemptions", "checks_ok")))
            row.update(status="failed", error="no room")
    lines = text_of(made)
    assert "rate 1 -> 2: could not be run: no room" in lines
    assert any("not run" in line for line in lines) and "warning: not run: no room (3 of 12 points)" in lines
    assert outcome_json(made)["settings"][2]["error"] == "no room"


def test_unlike_windows_are_not_compared(tmp_path):
    made = outcome(tmp_path)
    made.rows[6]["whole_run"] = 1                       # of three seeds at rate 2 one is averaged over the whole run
    assert (made.rows[6]["rate"], made.rows[6]["kv-cache-dtype"]) == (2, "auto")
    lines = text_of(made)
    assert lines[2] == ("rate 1 -> 2: preemptions 0 -> 412 (+412 ± 0), times and concurrency not compared (one is averaged over "
                        "the whole run, the other over the time of the traffic)")
    told, = (one for one in outcome_json(made)["answers"] if one["change"] == {"rate": [1, 2]})
    assert told["unlike_windows"] and list(told["effects"]) == ["preemptions", "rejected"]
    for row in made.rows:
        row["whole_run"] = 1
    assert text_of(made) == text_of(outcome(tmp_path))


def test_a_rule_that_cuts_each_run_by_itself_is_told(tmp_path):
    def notes(text):
        return [line for line in text_of(outcome(tmp_path, text=text)) if line.startswith("note: warm-up")]
    assert notes(SCENARIO) == notes("warm-up = '5min'\n" + SCENARIO) == []
    assert notes("warm-up = 'mser5'\n" + SCENARIO) == [
        "note: warm-up mser5 cuts every run by itself, so differences are between other requests; a share or a time cuts off the "
        "same in all"]


def test_seeds_that_draw_nothing_are_told(tmp_path):
    same = {key: ([queue[0]] * 3, [running[0]] * 3) for key, (queue, running) in WORLD.items()}
    assert any(line.startswith("warning: every seed gave the same run") for line in text_of(outcome(tmp_path, same)))
    assert not any("every seed" in line for line in text_of(outcome(tmp_path)))


def test_one_seed_has_no_intervals(tmp_path):
    world = {key: ([queue[0]], [running[0]]) for key, (queue, running) in WORLD.items()}
    lines = text_of(outcome(tmp_path, world, SCENARIO.replace("seeds = 3", "seeds = 1")))
    assert lines[0].endswith("(one seed: no intervals)") and "concurrency 38 -> 61 (+23)" in lines[2]


def test_rows_of_the_figures(tmp_path):
    made = outcome(tmp_path)
    line = line_rows(made, "rate", "queue_p99_s")
    assert [(row["x"], row["series"]) for row in line] == [(1, "auto"), (1, "fp8"), (2, "auto"), (2, "fp8")]
    assert line[2]["mean"] == pytest.approx(7.9) and line[2]["low"] < 7.9 < line[2]["high"]
    assert [row["mean"] for row in heat_rows(made, "rate", "kv-cache-dtype", "concurrency_mean")] == [38, 38, 61, 71]
    assert [(row["x"], row["panel"], row["label"]) for row in pareto_rows(made)] == [
        (4, "rate 1", "auto"), (8, "rate 1", "fp8"), (4, "rate 2", "auto"), (8, "rate 2", "fp8")]


def test_figures_say_what_they_hold(tmp_path, monkeypatch):
    """A heat map is one slice of the grid: allocator and every other knob, and where else it was run; others: single values."""
    heads = {}

    def note(rows, path, labels):
        heads[path.rsplit("/", 1)[1]] = labels
        return ["33 series"] if path.endswith("ttft.png") else []
    for plot in ("plot_lines", "plot_heat", "plot_pareto"):
        monkeypatch.setattr(pictures, plot, note)
    text = "model = 'Llama-3.1-8B'\n" + SCENARIO
    text += "max-num-seqs = [16, 32, 64, 128, 256]\nblock-size = [16]\nenforce-eager = [true, false]\n"
    world = {(*knobs, s, 16, e): values for knobs, values in WORLD.items() for s in (16, 32, 64, 128, 256) for e in (True, False)}
    drew = pictures.draw(outcome(tmp_path, world, text), str(tmp_path))
    assert list(map(str, drew)) == [
        "lines-concurrency.png", "lines-ttft.png: 33 series", "lines-throughput.png", "heat.png", "pareto.png"]
    assert {labels.title for labels in heads.values()} == {"what-if.toml, Llama-3.1-8B"}
    assert heads["heat.png"].held == ("at max-num-seqs 16 (also run: 4 other values), block-size 16, "
                                      "enforce-eager on (also run: off), paged-prefix; means over 3 seeds")
    assert (heads["heat.png"].x, heads["heat.png"].y, heads["heat.png"].value) == (
        "rate, requests a second", "kv-cache-dtype", "time to first token, p99, s")
    assert heads["lines-ttft.png"].held == "at block-size 16, paged-prefix; means over 3 seeds, 95 % intervals"
    assert heads["lines-ttft.png"].series == "kv-cache-dtype, max-num-seqs, enforce-eager"
    assert heads["pareto.png"].held == ("at block-size 16, paged-prefix; means over 3 seeds, 95 % intervals; labels are "
                                        "kv-cache-dtype, max-num-seqs, enforce-eager")


def test_verdicts():
    search = read_search({"smallest": "pool", "keep": ["queue p99 <= 1 s", "preemptions <= 0"]})
    spared = {"rejected": [1, 0], "unfinished": [0, 0]}

    def row(queue, preemptions=0, rejected=(0,), unfinished=0):
        return [{"status": "done", "queue_p99_s": q, "preemptions": preemptions, "rejected": r, "unfinished": unfinished}
                for q, r in zip(queue, rejected * 2, strict=False)]

    def said(rows):
        return judge(search, {"pool": 9}, rows, 0.95, spared)
    assert said(row([0.5, 0.5])) == Verdict({"pool": 9}, True, {"queue_p99_s": (0.5, 0.5), "preemptions": (0.0, 0.0)})
    assert said(row([0.9, 1.0])).why.startswith("queue p99 <= 1 s is broken: 0.95, at most 1.26")      # 0.95 + 6.314 x 0.05
    assert said(row([0.5, 0.5], preemptions=1)).why == "preemptions <= 0 is broken: 1, at most 1"
    assert said(row([0.5, 0.5], rejected=(1, 0))).kept     # the first seed rejects one whatever the pool
    assert said(row([0.5, 0.5], rejected=(1, 1))).why == "1 more rejected than without the search"
    assert said(row([0.5, 0.5], unfinished=2)).why == "2 more unfinished than without the search"
    assert said(row([0.5, None])).why == "queue p99 <= 1 s: nothing was measured"
    assert read_promise("queue p99 <= 1 s").metric == "queue_p99_s"
