"""The fit: what a server of known efficiencies wrote down gives them back; what cannot be known is said."""

import gzip
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli_run import run
from served import SERVER, TRUTH, benchmark, requests, server, table, written

from experiments.calibrate import main
from experiments.calibration.cases import (
    Case,
    Target,
    group_means,
    groups_of,
    latencies,
    log_ratios,
    mean_errors,
    rows_of,
    weights_of,
    worst_of,
)
from experiments.calibration.descent import BOUNDS, jacobian
from experiments.calibration.fit import fit
from experiments.calibration.known import uncertain
from experiments.calibration.repeats import Contents, counted_once
from experiments.calibration.residuals import Steadied
from experiments.step_time_file import EFFICIENCIES
from sim.request_log import NEVER
from workloads.readers.source import open_source
from workloads.request import InputError

DEFAULT = {"bandwidth_efficiency": 0.8, "flops_efficiency": 0.5, "overhead_us": 1000.0}
POINTS = [(1024, 128, 1), (1024, 128, 16), (3000, 200, 4), (128, 256, 32)]
CLOSE = 0.002                                          # a step is a whole number of microseconds: 0.01 % of a short one


def calibrated(capsys, *arguments):
    assert main([str(a) for a in (*arguments, *SERVER, "--json", "-", "-q")]) == 0
    out, err = capsys.readouterr()
    made = json.loads(out)
    assert err.splitlines() == [note for note in made["notes"] if note.startswith("warning: ")]
    return made


def recovered(fitted, close=CLOSE):
    return all(abs(fitted["numbers"][name]["fitted"] / value - 1) < close for name, value in TRUTH.items())


# ---------------------------------------------------------------------- closed: known in, known out
def test_a_table_gives_the_efficiencies_back(tmp_path, capsys):
    path = tmp_path / "points.csv"
    path.write_text(table(POINTS, server()))
    made = calibrated(capsys, path)
    assert recovered(made["fit"])
    before, after = (made["fit"]["errors"][when] for when in ("before", "after"))
    assert 0.2 < before["ttft"] < 0.4 and 0.3 < before["tpot"] < 0.45 and max(after["ttft"], after["tpot"]) < 1e-4
    assert before["worst"]["metric"] == "tpot" and before["worst"]["error"] < -0.3
    assert made["kind"] == "fit" and len(made["fit"]["cases"]) == 4 and made["model"].endswith("Llama-3.1-8B")


def test_a_benchmark_with_a_limit_gives_them_back(tmp_path, capsys):
    """The client is simulated exactly, so the measured run is one of those tried."""
    path = written(tmp_path / "closed.json", benchmark(requests(60, 2), server(), at_once=12))
    made = calibrated(capsys, path)["fit"]
    assert recovered(made)
    assert max(row["error_after"] for row in made["cases"][0]["targets"]) < 1e-3             # the 99th percentiles too


def test_a_sweep_of_rates_predicts_what_was_measured(tmp_path, capsys):
    """Open loop: where in a step a request arrives moves its TTFT by up to a step, so the ground is rough. What one rate cannot
    tell apart, a run with a limit does, to a tenth here; the latencies are met all the same."""
    open_loop = written(tmp_path / "rate.json", benchmark(requests(30, 3, rate=6.0), server(), rate=6.0))
    closed = written(tmp_path / "closed.json", benchmark(requests(30, 2), server(), at_once=12))
    errors = calibrated(capsys, open_loop)["fit"]["errors"]["after"]
    assert errors["tpot"] < 0.02 and errors["ttft"] < 0.06
    assert recovered(calibrated(capsys, open_loop, closed)["fit"], 0.1)


def test_noise_gives_an_uncertainty_that_holds_the_truth(tmp_path, capsys):
    rng = np.random.default_rng(5)
    header, *rows = table(POINTS, server()).splitlines()
    noisy = [",".join([p, o, *(repr(float(v) * float(np.exp(0.04 * rng.standard_normal()))) for v in (a, b)), c])
             for p, o, a, b, c in (row.split(",") for row in rows)]
    path = tmp_path / "noisy.csv"
    path.write_text("\n".join([header, *noisy]) + "\n")
    for name, number in calibrated(capsys, path)["fit"]["numbers"].items():
        assert abs(number["fitted"] - TRUTH[name]) < 3 * number["standard_error"], name
        hardly = number["standard_error"] > number["fitted"]
        assert hardly == ("hardly known" in (number["remark"] or "")) and (name == "overhead_us" or not hardly)


def test_the_same_bytes_again(tmp_path, capsys):
    path = tmp_path / "points.csv"
    path.write_text(table(POINTS[:2], server()))
    out = [tmp_path / f"{i}.toml" for i in range(2)]
    made = [calibrated(capsys, path, "--out", each) for each in out]
    assert made[0] == made[1] and out[0].read_bytes() == out[1].read_bytes()


# ---------------------------------------------------------------------- what is given twice
ONE = "prompt_tokens,output_tokens,ttft_ms,tpot_ms\n1000,50,60,11\n"


def refused(capsys, *paths):
    said = run(capsys, "calibrate", *paths, *SERVER)
    assert (said.status, said.out) == (2, "") and said.err.count("\n") == 1
    return said.err


def test_a_file_is_given_once(tmp_path, monkeypatch, capsys):
    """Under its own name, another one, a link, or packed; other files are told apart by one digit."""
    monkeypatch.chdir(tmp_path)
    one = written(Path("one.json"), benchmark(requests(9, 2), server(), at_once=3))
    Path("one.csv").write_text(ONE)
    Path("link.csv").symlink_to("one.csv")
    Path("copy.csv.gz").write_bytes(gzip.compress(ONE.encode()))
    Path("copy.json").write_text(one.read_text())
    assert "one.csv: the same file as one.csv: each is given once" in refused(capsys, "one.csv", one, "one.csv")
    assert "link.csv: the same file as one.csv: each is given once" in refused(capsys, "one.csv", "link.csv")
    assert "copy.csv.gz: the same content as one.csv: each is given once" in refused(capsys, "one.csv", one, "copy.csv.gz")
    assert "copy.json: the same content as one.json: each is given once" in refused(capsys, one, "copy.json")
    Path("other.csv").write_text(ONE.replace("60", "61"))
    made = calibrated(capsys, "one.csv", "other.csv")
    assert [case["label"] for case in made["fit"]["cases"]] == [
        f"{name}.csv: line 2: 1,000 + 50 tokens, 1 at once" for name in ("one", "other")]


def test_long_files_are_compared_to_their_ends(tmp_path, capsys):
    """Equal in their first MiB, and not in their last line."""
    long = ONE.rstrip("\n") + "\n" * (3 << 20)
    (tmp_path / "a.csv").write_text(long + "1000,50,61,11\n")
    (tmp_path / "b.csv").write_text(long + "1000,50,62,11\n")
    contents = Contents()
    for name, again in (("a", False), ("b", False), ("a", True)):
        source, check = contents.watched(open_source(str(tmp_path / f"{name}.csv")))
        assert len(list(source.blocks())) > 2
        if again:
            with pytest.raises(InputError, match="the same content"):
                check()
        else:
            check()


def test_equal_measurements_count_once(tmp_path, capsys):
    """Within a file and between two, whatever else the files hold: the numbers are those without them, and there is no +-."""
    header, row = ONE.splitlines()
    files = [tmp_path / name for name in ("one.csv", "three.csv", "spaces.csv")]
    texts = (ONE, f"{header}\n{row}\n{row}\n1000,50,60.00,11\n", f"{header}\n1000,50,60.0,11.0\n")
    for path, text in zip(files, texts, strict=True):
        path.write_text(text)
    alone = calibrated(capsys, files[0])
    assert not any("not counted again" in note for note in alone["notes"])
    for paths, again, of in ((files[1:2], 2, 3), (files, 4, 5)):
        made = calibrated(capsys, *paths)
        said, = (note for note in made["notes"] if "not counted again" in note)
        assert said.startswith(f"warning: not counted again: {again} of {of} measurements, equal to another in every number; ")
        assert made["fit"]["numbers"] == alone["fit"]["numbers"] and len(made["fit"]["cases"]) == 1
    assert [number["standard_error"] for number in alone["fit"]["numbers"].values()] == [None] * 3


def test_which_measurements_are_equal():
    """Each of the numbers tells two apart: lengths, times, the limit, the metric, what was measured."""
    case = Case("x", requests(3), (Target("ttft", "mean", np.array([2.0])),), 4)
    others = [replace(case, label="y", most_in_flight=5), replace(case, most_in_flight=None),
              replace(case, targets=(Target("tpot", "mean", np.array([2.0])),)),
              replace(case, targets=(Target("ttft", "median", np.array([2.0])),)),
              replace(case, targets=(Target("ttft", "mean", np.array([2.5])),)),
              *(replace(case, trace=replace(case.trace, **{name: getattr(case.trace, name) + 1}))
                for name in ("prompt_tokens", "output_tokens", "arrival_us"))]
    assert counted_once([case, *others]) == ([case, *others], [])
    kept, said = counted_once([case, others[0], replace(case, label="again"), others[0]])
    assert kept == [case, others[0]] and said == [
        "warning: not counted again: 2 of 4 measurements, equal to another in every number; the first is 'again', equal to 'x'"]


# ---------------------------------------------------------------------- what cannot be known
def test_without_ttft_and_with_one_length_only_the_bandwidth_is_fitted(tmp_path, capsys):
    path = tmp_path / "decode.csv"
    path.write_text("prompt_tokens,output_tokens,tpot_ms\n500,50,12\n600,60,12.1\n")
    numbers = calibrated(capsys, path)["fit"]["numbers"]
    assert numbers["flops_efficiency"]["fitted"] == 0.5 and numbers["overhead_us"]["fitted"] == 1000.0
    assert "nothing that was measured depends on it" in numbers["flops_efficiency"]["remark"]
    assert "cannot be told apart" in numbers["overhead_us"]["remark"]
    assert numbers["flops_efficiency"]["standard_error"] is None is numbers["overhead_us"]["standard_error"]
    assert 0 < numbers["bandwidth_efficiency"]["standard_error"] < 0.05
    assert numbers["bandwidth_efficiency"]["remark"] == "if the fixed time of a step, us, is 1000"


def test_a_fit_that_describes_nothing_is_warned_about_everywhere(tmp_path, capsys):
    """The same server cannot take 10 ms and 100 ms for a token under the same load."""
    path, out = tmp_path / "contra.csv", tmp_path / "contra.toml"
    path.write_text("prompt_tokens,output_tokens,ttft_ms,tpot_ms\n500,50,50,10\n500,50,50,100\n")
    said = run(capsys, "calibrate", path, "--model", "Llama-3.1-8B", "--gpu", "H100", "--max-model-len", 4096, "--out", out)
    assert said.status == 0 and "warning: after the fit the mean error is TPOT" in said.err
    assert "# warning: after the fit the mean error is TPOT" in out.read_text()
    used = run(capsys, "compare", "--limit", 5, "--model", "Llama-3.1-8B", "--gpu", "H100", "--step-time", out)
    assert re.search(r"its\s+mean\s+error\s+is\s+TPOT", used.out)


def test_arrivals_that_are_not_in_the_file_are_said_to_be_drawn(tmp_path, capsys):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"request_rate": 4.0, "completed": 20, "total_input_tokens": 2000, "total_output_tokens": 400,
                                "mean_ttft_ms": 40.0, "mean_tpot_ms": 9.0}))
    said = run(capsys, "calibrate", path, "--model", "Llama-3.1-8B", "--gpu", "H100", "--max-model-len", 4096)
    assert said.status == 0 and "arrivals are not in the file: they are drawn at 4 a second" in said.out


def test_more_than_the_data_sheet_is_warned_about(tmp_path, capsys):
    path = tmp_path / "fast.csv"
    path.write_text(table(POINTS, server(numbers={**TRUTH, "bandwidth_efficiency": 1.6})))
    numbers = calibrated(capsys, path)["fit"]["numbers"]
    assert abs(numbers["bandwidth_efficiency"]["fitted"] - 1.6) < 0.01
    assert "above 1" in numbers["bandwidth_efficiency"]["remark"] and numbers["flops_efficiency"]["remark"] is None


def linear(truth, *mixes):
    """ln of products of powers: each mix is the powers of the three numbers."""
    def residuals(numbers):
        logs = np.array([math.log(numbers[name] / truth[name]) for name in EFFICIENCIES])
        return np.array(mixes, float) @ logs
    return residuals


def test_too_few_measurements_give_up_the_overhead_first():
    made = fit(linear(TRUTH, (1, 0, 0.3), (0, 1, 0.3)), DEFAULT)
    assert made.numbers["overhead_us"] == 1000.0 and "cannot be told apart" in made.remarks["overhead_us"]
    assert made.cost < 1e-9


def test_two_that_do_the_same_cannot_both_be_known():
    made = fit(linear(TRUTH, (1, 1, 0), (2, 2, 0), (0, 0, 1), (3, 3, 1)), DEFAULT)
    assert "cannot be told apart" in made.remarks["flops_efficiency"] or "cannot be told apart" in made.remarks["overhead_us"]
    assert made.numbers["flops_efficiency"] == 0.5 and made.cost < 1e-9


def test_a_bound_is_said():
    """The other two keep errors of their own, those of the problem with the first at its edge."""
    made = fit(linear({**TRUTH, "bandwidth_efficiency": 50.0}, (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 0.1)), DEFAULT)
    assert made.numbers["bandwidth_efficiency"] == BOUNDS["bandwidth_efficiency"][1]
    assert "at the largest value that is tried, 4" in made.remarks["bandwidth_efficiency"]
    assert made.edges == {"bandwidth_efficiency": "largest"} and made.errors["bandwidth_efficiency"] is None
    assert made.errors["flops_efficiency"] > 0.37 and "hardly known" in made.remarks["flops_efficiency"]     # a poor fit


def test_what_rests_on_a_number_at_its_edge_says_so():
    """The third measurement makes the share of the peak follow that of the bandwidth; the overhead has one of its own."""
    made = fit(linear({**TRUTH, "bandwidth_efficiency": 8.0}, (1, 0, 0), (1, 0, 0), (1, 1, 0), (0, 0, 1)), DEFAULT)
    assert made.edges == {"bandwidth_efficiency": "largest"} and made.errors["flops_efficiency"] > 0
    assert math.isclose(made.numbers["flops_efficiency"], 0.37 * 8 / 4, rel_tol=1e-3)
    assert "if the share of the bandwidth is 4" in made.remarks["flops_efficiency"]
    assert "if the share" not in made.remarks.get("overhead_us", "")


def test_the_smallest_value_is_an_edge_too():
    made = fit(linear({**TRUTH, "flops_efficiency": 1e-5}, (1, 0, 0), (0, 1, 0), (0, 0, 1)), DEFAULT)
    assert made.edges == {"flops_efficiency": "smallest"} and made.numbers["flops_efficiency"] == 0.002


def test_an_edge_is_named_in_a_warning(tmp_path, capsys):
    """A first token after 1 us: no share of the peak is large enough."""
    path = tmp_path / "far.csv"
    path.write_text("prompt_tokens,output_tokens,ttft_ms,tpot_ms\n3000,50,0.001,10\n2000,50,0.001,10\n500,50,0.001,10\n")
    made = calibrated(capsys, path)
    warned, = (note for note in made["notes"] if "edge of its search range" in note)
    assert "the share of the peak FLOP/s (flops_efficiency) at 4, the largest value that is tried" in warned
    assert made["fit"]["numbers"]["flops_efficiency"]["edge"] == "largest"
    assert made["fit"]["numbers"]["flops_efficiency"]["standard_error"] is None


# ---------------------------------------------------------------------- how far off, where something was given up
def off(residuals, *by):
    """The same with errors of measurement."""
    return lambda numbers: residuals(numbers) + np.array(by)


def test_the_error_of_one_number_by_hand():
    """Four measurements of one number, off by 1, -1, 2, -2 %: their mean is right; variance 0.001 / 3, of the mean a fourth."""
    steadied = Steadied(off(linear(TRUTH, *[(1, 0, 0)] * 4), 0.01, -0.01, 0.02, -0.02))
    wanted = 0.62 * math.sqrt(0.001 / 3 / 4)
    assert math.isclose(uncertain(steadied, TRUTH, ["bandwidth_efficiency"])["bandwidth_efficiency"], wanted, rel_tol=1e-9)


def test_numbers_tried_with_another_held_number_do_not_count():
    """Trade bandwidth for overhead and the cost stays; with the overhead held, nothing far away is as good."""
    steadied = Steadied(off(linear(TRUTH, *[(1, 0, 1)] * 4), 0.01, -0.01, 0.02, -0.02))
    steadied({**TRUTH, "bandwidth_efficiency": 1.24, "overhead_us": 1750.0})
    free = ["bandwidth_efficiency"]
    assert math.isclose(uncertain(steadied, TRUTH, free)["bandwidth_efficiency"], 0.62)
    held = uncertain(steadied, TRUTH, free, ["overhead_us"])["bandwidth_efficiency"]
    assert math.isclose(held, 0.62 * math.sqrt(0.001 / 3 / 4), rel_tol=1e-9)


def test_whoever_does_not_follow_what_was_given_up_is_not_said_to():
    """FLOPs and overhead do the same; the bandwidth has measurements of its own."""
    truth = {**TRUTH, "overhead_us": 1000.0}
    made = fit(off(linear(truth, *[(0, 1, 1)] * 3, *[(1, 0, 0)] * 3), 0.1, -0.1, 0, 0.05, -0.05, 0), DEFAULT)
    assert made.numbers["overhead_us"] == 1000 and made.errors["overhead_us"] is None
    assert made.remarks["flops_efficiency"] == "if the fixed time of a step, us, is 1000" and made.errors["flops_efficiency"] > 0
    assert "bandwidth_efficiency" not in made.remarks and made.errors["bandwidth_efficiency"] > 0


def test_as_many_measurements_as_numbers_leave_no_error_and_say_so():
    made = fit(linear(TRUTH, (1, 0, 0.3), (0, 1, 0.3)), DEFAULT)
    assert set(made.errors.values()) == {None}
    assert all("no more measurements than numbers" in made.remarks[name] for name in ("bandwidth_efficiency", "flops_efficiency"))


def test_errors_of_the_reduced_problem_hold_the_truth():
    """Noise of 4 %, three numbers of which two cannot be told apart, and the default of the one that is given up is right. The
    others are within three errors each time. These are at least those of the formula, 0.04 / sqrt(8), whose own scatter is a
    fifth, and at most what doubles the cost of 16 measurements: sqrt(14) of them, by a noise of that sample."""
    truth, rng = {**TRUTH, "overhead_us": 1000.0}, np.random.default_rng(11)
    ratios = []
    for _ in range(30):
        noise = 0.04 * rng.standard_normal(16)
        made = fit(off(linear(truth, *[(1, 0, 0)] * 8, *[(0, 1, 1)] * 8), *noise), DEFAULT)
        assert made.numbers["overhead_us"] == 1000 and made.errors["overhead_us"] is None
        for name in ("bandwidth_efficiency", "flops_efficiency"):
            assert abs(made.numbers[name] - truth[name]) < 3 * made.errors[name]
            ratios.append(made.errors[name] / made.numbers[name] / (0.04 / math.sqrt(8)))
    assert min(ratios) > 0.5 and max(ratios) < 2 * math.sqrt(14)


def test_a_server_of_which_only_one_number_is_known_is_within_its_error(tmp_path, capsys):
    """Decode alone, at one length, with 3 % of noise, on a server whose overhead is the default."""
    truth = {**TRUTH, "overhead_us": 1000.0}
    header, row = table([(500, 60, 1)], server(numbers=truth)).splitlines()
    p, o, _, tpot, _ = row.split(",")
    noise = 0.03 * np.random.default_rng(3).standard_normal(8)
    path = tmp_path / "decode.csv"
    path.write_text("\n".join([f"{header.split(',')[0]},output_tokens,tpot_ms",
                               *(f"{p},{o},{float(tpot) * math.exp(by)!r}" for by in noise)]) + "\n")
    number = calibrated(capsys, path)["fit"]["numbers"]["bandwidth_efficiency"]
    assert number["remark"] == "if the fixed time of a step, us, is 1000"
    assert abs(number["fitted"] - 0.62) < 3 * number["standard_error"] and 0.003 < number["standard_error"] < 0.03


def test_what_only_has_an_upper_or_lower_bound():
    """Of the second number only that it is 0.7 or more can be known; the default 0.5 is not."""
    def residuals(numbers):
        return np.array([math.log(numbers["bandwidth_efficiency"] / 0.6), math.log(numbers["overhead_us"] / 2000),
                         min(0.0, math.log(numbers["flops_efficiency"] / 0.7))])
    made = fit(residuals, DEFAULT)
    assert made.numbers["flops_efficiency"] >= 0.7 and made.cost < 1e-6
    assert "larger value fits as well" in made.remarks.get("flops_efficiency", "") or made.numbers["flops_efficiency"] < 0.71


def test_slopes_are_those_of_the_logarithm():
    mixes = [(1, 0.5, 0), (0, 1, 2)]
    assert np.allclose(jacobian(linear(TRUTH, *mixes), DEFAULT, EFFICIENCIES), mixes)


def test_what_jumps_counts_for_less():
    rng = np.random.default_rng(0)
    jumps = {}

    def residuals(numbers):
        key = tuple(numbers.values())
        jumps.setdefault(key, rng.standard_normal())
        return np.array([math.log(numbers["bandwidth_efficiency"] / 0.6), 0.5 + 0.05 * jumps[key]])

    steadied = Steadied(residuals)
    before = steadied(DEFAULT)
    steadied.steady_at(DEFAULT)
    smooth, rough = steadied(DEFAULT) / before
    assert smooth > 0.8 and rough < 0.15


# ---------------------------------------------------------------------- targets
def test_latencies_by_hand():
    """Seconds: r0 comes at 0, is admitted at 1, has 4 tokens from 2 to 5; r1 comes at 1, and has 2 at 2 and 4; r2 has one, at 3;
    r3 is not served. Gaps of 1, 1, 1 and 2 s: 5 s / 4 between tokens; per output token 1 and 2 s."""
    times = {"admitted_us": [1, 1, 2, -1], "first_token_us": [2, 2, 3, -1], "finished_us": [5, 4, 3, -1]}
    log = SimpleNamespace(**{name: np.array([s * 1_000_000 if s >= 0 else NEVER for s in row]) for name, row in times.items()})
    run = SimpleNamespace(log=log, demand=SimpleNamespace(output=np.array([4, 2, 1, 9])),
                          arrival_us=np.array([0, 1_000_000, 1_000_000, 0]))
    made = latencies(run)
    nan = math.nan
    wanted = {"ttft": [2, 1, 2, nan], "queue": [1, 0, 1, nan], "e2e": [5, 3, 2, nan], "tpot": [1, 2, nan, nan], "itl": [1.25]}
    assert set(made) == set(wanted)
    for name, values in wanted.items():
        assert np.array_equal(made[name], values, equal_nan=True), name
    run.demand.output = np.ones(4, int)
    assert math.isnan(latencies(run)["itl"][0])


def test_groups_and_weights_by_hand():
    group, groups = groups_of(np.array([5, 1, 4, 2, 3] * 8), np.array([True] * 39 + [False]))
    assert groups == 4 and group[-1] == -1 and np.bincount(group[:-1]).tolist() == [10, 10, 10, 9]
    assert group_means(np.array([1.0, 2.0, np.nan]), np.array([0, -1, 0]), 1).tolist() == [1.0]
    one = Target("ttft", "mean", np.array([2.0]))
    two = Target("tpot", "by hand", np.array([1.0, 4.0]), group=np.array([0, 0, 1]))
    three = Target("tpot", "p99", np.array([1.0]), False)
    case = Case("x", requests(3), (one, two, three))
    latency = {"ttft": np.array([1.0, 2.0, 6.0]), "tpot": np.array([1.0, 3.0, np.nan])}
    assert weights_of([case]).tolist() == [1.0, 0.5, 0.5]
    ratios = log_ratios(case.targets, latency)
    assert ratios[0] == math.log(1.5) and ratios[1] == math.log(2.0) and ratios[2] < -10      # nobody left in the second group
    rows = rows_of(case, latency)
    assert (rows[0].measured_s, rows[0].predicted_s, rows[0].error) == (2.0, 3.0, 0.5) and rows[1].error == 1.0
    assert mean_errors([rows]) == {"ttft": 0.5, "tpot": 1.0, "itl": None}
    worst = worst_of([case], [latency])
    assert (worst.metric, worst.error, worst.case) == ("tpot", -1.0, "x: by hand, group 2 of 2")


def test_half_is_as_far_off_as_twice():
    latency = {"ttft": np.array([1.0]), "tpot": np.array([1.0])}
    targets = Target("ttft", "mean", np.array([0.55])), Target("tpot", "mean", np.array([2.0]))
    case = Case("x", replace(requests(2), prompt_tokens=np.array([1, 1])), targets)
    assert worst_of([case], [latency]).metric == "tpot"                      # -50 % is further than +82 %
