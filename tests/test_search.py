"""Capacity searches end between two direct runs, or say why not."""

import json
from pathlib import Path

import pytest
from cli_run import run, timed
from sweep_run import WHOLE, direct, sweep, trace_of

from experiments.whatif.hunt import Bracket, Range, hunt
from experiments.whatif.judging import Verdict, nearest, same_run
from experiments.whatif.points import grid
from experiments.whatif.scenario import read_scenario
from experiments.whatif.search import looks, run_all
from experiments.whatif.search_spec import read_search
from experiments.whatif.simulate import METRICS


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ask(where, keeps):
    """Let a hunt run against a function."""
    search, said, asked = hunt(where), None, []
    try:
        while True:
            asked.append(search.send(said))
            said = keeps(asked[-1])
    except StopIteration as end:
        return end.value, asked


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 16, 37, 1000, 12345])
def test_hunts_end_beside_the_limit(limit):
    found, asked = ask(Range(True, True, 1e-9, 16), lambda n: n <= limit)
    assert found == Bracket(limit, limit + 1, len(asked)) and len(set(asked)) == len(asked) <= 2 + 2 * limit.bit_length() + 4
    found, asked = ask(Range(False, True, 1e-9, 16), lambda n: n >= limit)
    assert found == (Bracket(limit, limit - 1, len(asked)) if limit > 1 else Bracket(1, None, len(asked)))


@pytest.mark.parametrize("limit", [0.013, 0.5, 1, 7.3, 900.0])
def test_hunts_for_a_rate_end_within_the_resolution(limit):
    found, asked = ask(Range(True, False, 0.01, 1), lambda rate: rate <= limit)
    assert found.kept <= limit < found.broken and found.broken / found.kept <= 1.0101 and found.steps == len(asked)


def test_hunts_without_an_end():
    assert ask(Range(True, False, 0.01, 1), lambda rate: False)[0].kept is None
    assert ask(Range(True, False, 0.01, 1), lambda rate: True)[0].broken is None
    assert ask(Range(True, False, 0.01, 1, 2, 8), lambda rate: True) == (Bracket(8, None, 2), [2, 8])
    assert ask(Range(True, False, 0.01, 1, 2, 8), lambda rate: False) == (Bracket(None, 2, 1), [2])
    assert ask(Range(False, True, 0.01, 1, 2, 8), lambda n: n >= 5)[0] == Bracket(5, 4, 5)
    assert ask(Range(False, True, 0.01, 1, 2, 8), lambda n: True)[0] == Bracket(2, None, 2)


def test_a_hunt_is_ended_by_who_runs_it():
    assert ask(Range(False, True, 0.01, 16), lambda n: None if n > 60 else False)[0] == Bracket(None, 32, 3)
    assert ask(Range(True, True, 0.01, 16), lambda n: None if n > 60 else True)[0] == Bracket(32, None, 3)
    assert ask(Range(True, False, 0.01, 1, 2, 8), lambda n: None if n > 7 else True)[0] == Bracket(2, None, 2)
    assert ask(Range(True, True, 0.01, 16), lambda n: None if n == 24 else n < 30)[0] == Bracket(16, 32, 3)
    assert ask(Range(True, True, 0.01, 8, least=2), lambda n: False)[0] == Bracket(None, 2, 3)


def burst(folder):
    """20 at once, 120 tokens each with their output: 8 blocks of 16, 160 in all, and a step of 10 ms."""
    trace = timed(folder, [(0, 100, 20)] * 20 + [(60, 100, 20)])
    return f"trace = '{trace}'\nstep-time = 'constant:10ms'\nwarm-up = 'none'\n"


def test_a_pool_that_is_not_what_breaks_a_promise_ends_the_search(tmp_path, capsys):
    text = burst(tmp_path) + "max-num-seqs = 1\nallocators = ['paged']\n"
    said, rows = sweep(capsys, tmp_path, text + "[search]\nsmallest = 'pool'\nkeep = 'queue p99 <= 1 ms'\n")
    found, = json.loads(Path("out/results.json").read_text())["searches"]
    assert [one["settings"]["num-gpu-blocks-override"] for one in found["tried"]] == [1024, 2048] and len(rows) == 3
    assert found["answer"] is None and "queue p99 <= 0.001 s is broken" in found["beyond"]["why"]
    assert found["ended"] == "from num-gpu-blocks-override 1024 on nothing changes: more of it is not used" in said.out


def test_a_limit_that_nothing_reaches_ends_the_search(tmp_path, capsys):
    text = burst(tmp_path) + "max-model-len = 512\nnum-gpu-blocks-override = 900\n"
    said, rows = sweep(capsys, tmp_path, text + "[search]\nlargest = 'max-num-seqs'\nkeep = 'queue p99 <= 60 s'\n")
    found, = json.loads(Path("out/results.json").read_text())["searches"]
    assert [one["settings"]["max-num-seqs"] for one in found["tried"]] == [16, 32, 64] and len(rows) == 4
    assert found["answer"]["settings"] == {"max-num-seqs": 32} and found["beyond"] is None
    assert "nothing that was tried breaks it: from max-num-seqs 32 on nothing changes: more of it is not used" in said.out


def row_of(rejected=None, **other):
    result = json.dumps({"scenarios": [{"requests": {"rejected": rejected or {}}}]})
    return {**dict.fromkeys(METRICS, 1), "rejected": 0, "unfinished": 0, "status": "done", "result": result, **other}


def test_a_value_that_cannot_be_run_here_ends_the_search(tmp_path):
    (tmp_path / "s.toml").write_text("[search]\nsmallest = 'pool'\nkeep = 'queue p99 <= 1 s'\n")
    scenario = read_scenario(str(tmp_path / "s.toml"))

    def ran(points, round_):
        pool = dict(points[0].knobs)["num-gpu-blocks-override"]
        return [row_of(queue_p99_s=9e4 / pool) if pool <= 2048 else row_of(status="lost", error="no memory")]
    found, = run_all(looks(scenario, {grid(scenario)[0].group: [row_of()]}), ran)
    assert found.answer is None and found.beyond.settings == {"num-gpu-blocks-override": 2048}
    assert found.ended == "num-gpu-blocks-override 4096 cannot be run: no memory"


def ends_of(found):
    return [None if found[end] is None else next(iter(found[end]["settings"].values())) for end in ("answer", "beyond")]


def test_few_sequences_break_a_promise_too(tmp_path, capsys):
    # 20 at once, 200 ms each: with n places the last waits ceil(20 / n) - 1 times 200 ms: 100 ms are kept from 20 on only.
    sweep(capsys, tmp_path, burst(tmp_path) + "allocators = ['paged']\nnum-gpu-blocks-override = 900\nmax-model-len = 512\n"
          "[search]\nlargest = 'max-num-seqs'\nkeep = 'queue p99 <= 100 ms'\n")
    found, = json.loads(Path("out/results.json").read_text())["searches"]
    assert [one["settings"]["max-num-seqs"] for one in found["tried"]] == [16, 32, 64] and ends_of(found) == [32, None]


def test_short_lengths_break_a_promise_too(tmp_path, capsys):
    # Prompts of 3,000 want more than the 2,048 tokens where it begins; 300 blocks beside the null block hold 4,800.
    trace = timed(tmp_path, [(i, 3000, 2) for i in range(3)])
    text = f"trace = '{trace}'\nstep-time = 'constant:10ms'\nwarm-up = 'none'\nnum-gpu-blocks-override = 301\n"
    sweep(capsys, tmp_path, text + "[search]\nlargest = 'max-model-len'\nkeep = 'queue p99 <= 1 s'\nresolution = 0.0001\n")
    found, = json.loads(Path("out/results.json").read_text())["searches"]
    assert ends_of(found) == [4800, 4801] and "fewer than one request of max_model_len 4,801" in found["beyond"]["why"]


def test_a_promise_that_nothing_keeps_names_the_nearest_value(tmp_path, capsys):
    text = burst(tmp_path) + "allocators = ['paged']\nnum-gpu-blocks-override = 900\n"
    sweep(capsys, tmp_path, text + "[search]\nlargest = 'max-model-len'\nkeep = 'ttft p99 <= 1 ms'\n")
    found, = json.loads(Path("out/results.json").read_text())["searches"]
    # No request is longer than 120 tokens, and at 64 all prompts are too long.
    assert [one["settings"]["max-model-len"] for one in found["tried"]] == [2048, 4096, 1024, 512, 256, 128, 64]
    assert ends_of(found) == [None, 2048] and found["beyond"]["why"] == "ttft p99 <= 0.001 s is broken: 0.01"
    assert found["ended"] == ("from max-model-len 2048 on nothing changes: more of it is not used; at max-model-len 64 nobody is "
                              "served")


def test_an_idle_server_that_breaks_a_promise_ends_the_search(tmp_path, capsys):
    trace = timed(tmp_path, [(i, 100, 20) for i in range(10)])
    text = f"trace = '{trace}'\nstep-time = 'constant:10ms'\nwarm-up = 'none'\nmax-num-seqs = 1\n"
    said, _ = sweep(capsys, tmp_path, text + "[search]\nlargest = 'rate'\nkeep = 'e2e mean <= 150 ms'\n")
    found, = json.loads(Path("out/results.json").read_text())["searches"]
    assert [one["settings"]["rate"] for one in found["tried"]] == [1, 0.5] and ends_of(found) == [None, 1]
    assert "below rate 1 nothing changes: an idle server breaks it too" in said.out


def test_hunts_for_what_may_be_too_small():
    def both(keeps, low=None, high=None):
        return ask(Range(True, True, 1e-9, 16, low, high, least=2, both=True), keeps)
    for low, high in ((17, 40), (20, 1000), (16, 16), (5, 9), (2, 3), (300, 300)):
        found, asked = both(lambda n, low=low, high=high: low <= n <= high)
        reached = any(low <= 2**k <= high for k in range(1, 20))
        assert found == (Bracket(high, high + 1, len(asked)) if reached else Bracket(None, found.broken, len(asked)))
    assert both(lambda n: False)[1] == [16, *(2**k for k in range(5, 28)), 8, 4, 2]
    assert both(lambda n: None if n > 100 else n == 4)[1][:7] == [16, 32, 64, 128, 8, 4, 6]
    assert both(lambda n: n >= 100, low=16, high=256) == (Bracket(256, None, 5), [16, 32, 64, 128, 256])
    assert both(lambda n: False, low=16, high=200)[1] == [16, 32, 64, 128, 200]


def test_what_is_the_same_run():
    def row(rejected=None, **other):
        return [row_of(rejected, **other)]
    pool = "num-gpu-blocks-override"
    assert same_run(pool, row(), row(idle=0.9, kv_usage_mean=0.1, num_blocks=99))
    assert not same_run(pool, row(), row(ttft_p99_s=1.1)) and not same_run(pool, row(), row(evicted_blocks=2))
    assert not same_run(pool, row(), row(status="failed"))
    late = {"larger_than_pool": 1}                      # both reject it, and a larger pool may take it
    assert not same_run(pool, row(late), row(late)) and same_run("max-num-seqs", row(late), row(late))


def test_the_largest_rate_is_bracketed_by_two_direct_runs(tmp_path, capsys):
    text = WHOLE + "[search]\nlargest = 'rate'\nkeep = 'ttft p99 <= 1500 ms'\nresolution = 0.01\n"
    said, rows = sweep(capsys, tmp_path, f"trace = '{trace_of(tmp_path)}'\n{text}")
    document = json.loads(Path("out/results.json").read_text())
    found, = document["searches"]
    kept_at, broken_at = found["answer"]["settings"]["rate"], found["beyond"]["settings"]["rate"]
    assert kept_at < broken_at <= kept_at * 1.0101
    ends = {row["rate"]: direct(capsys, row) for row in rows if row["rate"] in (kept_at, broken_at)}
    assert ends[kept_at]["latency_s"]["ttft"]["p99"] <= 1.5 < ends[broken_at]["latency_s"]["ttft"]["p99"]
    assert all(end["requests"]["completed"] == 60 for end in ends.values())
    assert f"rate {kept_at:g} keeps it" in said.out and f"rate {broken_at:g} does not" in said.out


def test_the_smallest_pool_is_one_block_above_one_that_breaks_it(tmp_path, capsys):
    text = f"trace = '{trace_of(tmp_path)}'\nmodel = 'Llama-3.1-8B'\ngpu = 'L4'\nmax-model-len = 1024\nwarm-up = 'none'\n"
    text += "seeds = 1\n[search]\nsmallest = 'pool'\nkeep = ['queue p99 <= 500 ms', 'preemptions <= 0']\nresolution = 0.0001\n"
    _, rows = sweep(capsys, tmp_path, text)
    found, = json.loads(Path("out/results.json").read_text())["searches"]
    answer, beyond = (found[end]["settings"]["num-gpu-blocks-override"] for end in ("answer", "beyond"))
    assert beyond == answer - 1
    ends = [direct(capsys, next(row for row in rows if row["num-gpu-blocks-override"] == blocks)) for blocks in (answer, beyond)]
    kept_both = [end["latency_s"]["queue"]["p99"] <= 0.5 and end["requests"]["preemptions"] == 0 for end in ends]
    assert kept_both == [True, False]


def test_a_search_for_each_setting_and_seeds_with_confidence(tmp_path, capsys):
    text = WHOLE + "limit = 60\nseeds = 3\n[sweep]\nmax-num-seqs = [4, 16]\n"
    text += "[search]\nlargest = 'rate'\nkeep = 'queue p90 <= 1 s'\n"
    said, rows = sweep(capsys, tmp_path, text)
    few, many = json.loads(Path("out/results.json").read_text())["searches"]
    assert few["answer"]["settings"]["rate"] < many["answer"]["settings"]["rate"]
    for found in (few, many):
        sequences = found["settings"]["max-num-seqs"]
        for end, holds in (("answer", True), ("beyond", False)):
            values = [row["queue_p90_s"] for row in rows if row["max-num-seqs"] == sequences
                      and row["rate"] == found[end]["settings"]["rate"]]
            mean = sum(values) / 3
            deviation = (sum((x - mean) ** 2 for x in values) / 2) ** 0.5
            upper = mean + 2.919986 * deviation / 3**0.5                # one-sided t of 2 at 95 %
            assert found[end]["metrics"]["queue_p90_s"]["upper"] == pytest.approx(upper, rel=1e-6)
            assert (upper <= 1) is holds
    assert "at 95 % confidence over 3 seeds" in said.out


def test_the_fewest_gpus_beside_one_less(tmp_path, capsys):
    trace = timed(tmp_path, [(i * 0.05, 400 + 37 * i % 400, 60) for i in range(120)])
    text = f"trace = '{trace}'\nmodel = 'Llama-3.1-8B'\ngpu = 'L4'\nmax-model-len = 1024\nwarm-up = 'none'\n"
    text += "[search]\nfewest = 'gpus'\nkeep = 'ttft p90 <= 700 ms'\n"
    text += "tensor-parallel-size = [1, 2, 4]\ndata-parallel-size = [1, 2, 3]\n"
    _, rows = sweep(capsys, tmp_path, text)
    found, = json.loads(Path("out/results.json").read_text())["searches"]
    gpus = {}
    for row in rows[1:]:
        gpus.setdefault(row["gpus"], []).append(row["ttft_p90_s"])
        assert row["gpus"] == row["tensor-parallel-size"] * row["data-parallel-size"]
    fewest = max(gpus)
    assert fewest > 1 and min(gpus[fewest]) <= 0.7 and all(min(times) > 0.7 for n, times in gpus.items() if n < fewest)
    answer = found["answer"]["settings"]
    assert answer["tensor-parallel-size"] * answer["data-parallel-size"] == fewest
    row = next(row for row in rows[1:] if row["ttft_p90_s"] == min(gpus[fewest]))
    assert direct(capsys, row)["latency_s"]["ttft"]["p90"] == row["ttft_p90_s"]
    assert found["answer"]["metrics"]["ttft_p90_s"]["mean"] == row["ttft_p90_s"] and found["answer"]["gpus"] == fewest
    assert len(json.loads(row["result"])["scenarios"][0].get("replicas", [0])) == row["data-parallel-size"]


def test_who_is_rejected_keeps_no_promise(tmp_path, capsys):
    trace = timed(tmp_path, [(i, 100, 20) for i in range(10)] + [(10, 900, 20)])
    text = f"trace = '{trace}'\nstep-time = 'constant:10ms'\nwarm-up = 'none'\n[search]\nsmallest = 'pool'\n"
    text += "keep = 'queue p99 <= 1 s'\nresolution = 0.001\n"
    said, _ = sweep(capsys, tmp_path, text)
    found, = json.loads(Path("out/results.json").read_text())["searches"]
    assert found["answer"]["settings"]["num-gpu-blocks-override"] == 59     # 919 tokens and the null block
    assert "1 more rejected than without the search" in found["beyond"]["why"] and found["beyond"]["why"] in said.out


def test_what_cannot_be_kept_is_said(tmp_path, capsys):
    text = WHOLE + "limit = 20\nstep-time = 'constant:100ms'\n[search]\nlargest = 'rate'\nkeep = 'ttft mean <= 10 ms'\n"
    said, _ = sweep(capsys, tmp_path, text)
    assert "paged-prefix: none: at rate " in said.out and "ttft mean <= 0.01 s is broken" in said.out


def test_searching_what_is_said_is_refused(tmp_path, capsys):
    text = WHOLE + "[search]\nsmallest = 'pool'\nkeep = 'ttft mean <= 10 ms'\n"
    (tmp_path / "s.toml").write_text(text)
    said = run(capsys, "sweep", "s.toml")
    assert said.status == 2 and "[search] chooses num-gpu-blocks-override, and the scenario says it as well" in said.err


def test_the_nearest_value_goes_by_each_promise_of_its_own():
    # Neither has a queue to measure: TTFT of the first is 0.2 over its 10 s, TPOT of the second half over its 100 ms.
    search = read_search({"largest": "rate", "keep": ["queue p99 <= 1 s", "ttft p99 <= 10 s", "tpot mean <= 100 ms"]})
    metrics = [{"ttft_p99_s": (12, 12.0), "tpot_mean_s": (0, 0.05)}, {"ttft_p99_s": (5, 5.0), "tpot_mean_s": (0, 0.15)}]
    tried = [Verdict({"rate": rate}, False, made) for rate, made in enumerate(metrics)]
    assert nearest(search, tried).settings == {"rate": 0}
    whole = Verdict({"rate": 9}, False, {"queue_p99_s": (9, 9.0), "ttft_p99_s": (5, 5.0), "tpot_mean_s": (0, 0.05)})
    assert nearest(search, [*tried, whole]) is whole   # all of it was measured
