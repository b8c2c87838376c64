"""The fit: what a server of known efficiencies wrote down gives them back; what cannot be known is said."""

import json
import math
import re
from dataclasses import replace

import numpy as np
from cli_run import run
from served import SERVER, TRUTH, benchmark, requests, server, table, written

from experiments.calibrate import main
from experiments.calibration.cases import (
    Case,
    Target,
    group_means,
    groups_of,
    log_ratios,
    mean_errors,
    rows_of,
    weights_of,
    worst_of,
)
from experiments.calibration.descent import BOUNDS, jacobian
from experiments.calibration.fit import EFFICIENCIES, Steadied, fit

DEFAULT = {"bandwidth_efficiency": 0.8, "flops_efficiency": 0.5, "overhead_us": 1000.0}
POINTS = [(1024, 128, 1), (1024, 128, 16), (3000, 200, 4), (128, 256, 32)]
CLOSE = 0.002                                          # a step is a whole number of microseconds: 0.01 % of a short one


def calibrated(capsys, *arguments):
    assert main([str(a) for a in (*arguments, *SERVER, "--json", "-", "-q")]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


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


# ---------------------------------------------------------------------- what cannot be known
def test_without_ttft_and_with_one_length_only_the_bandwidth_is_fitted(tmp_path, capsys):
    path = tmp_path / "decode.csv"
    path.write_text("prompt_tokens,output_tokens,tpot_ms\n500,50,12\n600,60,12.1\n")
    numbers = calibrated(capsys, path)["fit"]["numbers"]
    assert numbers["flops_efficiency"]["fitted"] == 0.5 and numbers["overhead_us"]["fitted"] == 1000.0
    assert "nothing that was measured depends on it" in numbers["flops_efficiency"]["remark"]
    assert "cannot be told apart" in numbers["overhead_us"]["remark"]
    assert numbers["flops_efficiency"]["standard_error"] is None is numbers["bandwidth_efficiency"]["standard_error"]
    assert numbers["bandwidth_efficiency"]["remark"] == "if the fixed time of a step, us, is 1000"


def test_a_fit_that_describes_nothing_is_warned_about_everywhere(tmp_path, capsys):
    """The same server cannot take 10 ms and 100 ms for a token under the same load."""
    path, out = tmp_path / "contra.csv", tmp_path / "contra.toml"
    path.write_text("prompt_tokens,output_tokens,ttft_ms,tpot_ms\n500,50,50,10\n500,50,50,100\n")
    said = run(capsys, "calibrate", path, "--model", "Llama-3.1-8B", "--gpu", "H100", "--max-model-len", 4096, "--out", out)
    assert said.status == 0 and "warning: after the fit the mean error is TPOT" in said.out
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
    made = fit(linear({**TRUTH, "bandwidth_efficiency": 50.0}, (1, 0, 0), (0, 1, 0), (0, 0, 1)), DEFAULT)
    assert made.numbers["bandwidth_efficiency"] == BOUNDS["bandwidth_efficiency"][1]
    assert "at the bound" in made.remarks["bandwidth_efficiency"]


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
    assert mean_errors([rows]) == {"ttft": 0.5, "tpot": 1.0}
    worst = worst_of([case], [latency])
    assert (worst.metric, worst.error, worst.case) == ("tpot", -1.0, "x: by hand, group 2 of 2")


def test_half_is_as_far_off_as_twice():
    latency = {"ttft": np.array([1.0]), "tpot": np.array([1.0])}
    targets = Target("ttft", "mean", np.array([0.55])), Target("tpot", "mean", np.array([2.0]))
    case = Case("x", replace(requests(2), prompt_tokens=np.array([1, 1])), targets)
    assert worst_of([case], [latency]).metric == "tpot"                      # -50 % is further than +82 %
