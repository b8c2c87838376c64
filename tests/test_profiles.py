"""Profiles keep the deciles of the traces they were fitted to."""

from __future__ import annotations

import doctest
import os
from pathlib import Path

import numpy as np
import pytest
from profile_sources import LENGTHS, POINTS, lengths_of

from workloads import profiles
from workloads.profiles import LengthProfile, Origin, fit, fit_profile, profile, profile_names
from workloads.readers import read_trace
from workloads.request import Trace
from workloads.transform import drop_longer_than

SHARED = Path(os.environ.get("PAGEDSIM_SHARED", Path(__file__).resolve().parents[1] / ".." / "shared"))
TRACES = {
    "sharegpt": ("vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz", 2048),
    "azure-conv": ("azure-2023/AzureLLMInferenceTrace_conv.csv", None),
}
# 10 % ... 90 % of the traces, linear percentiles, typed from the traces
DECILES = {
    "sharegpt": ([9, 13, 18, 24, 35, 55, 94, 203, 507], [45, 101, 157, 216, 271, 330, 405, 525, 754]),
    "azure-conv": (
        [207, 387, 403, 703, 1020, 1071, 1130, 1315, 2734.5],
        [54, 77, 91, 103, 129, 177, 384, 400, 424],
    ),
}
MEANS = {"sharegpt": (79_731, 161.31, 337.99), "azure-conv": (19_366, 1154.7, 211.13)}
NAMES = sorted(TRACES)


def real_trace(name):
    file, most = TRACES[name]
    path = SHARED / "traces" / file
    if not path.exists():
        pytest.skip(f"no trace {file} (set PAGEDSIM_SHARED)")
    trace = read_trace(path)
    return trace if most is None else drop_longer_than(trace, most)


def assert_close(ours, right):
    """Within 2 %, or equal when rounded (small integers)."""
    for one, other in zip(ours, right, strict=True):
        assert abs(one - other) <= 0.02 * other or round(one) == round(other), (ours, right)


@pytest.mark.parametrize("name", NAMES)
def test_table_against_typed_deciles(name):
    one = profile(name)
    steps = (len(one.prompt_table) - 1) // 10
    assert_close(one.prompt_table[steps:-1:steps], DECILES[name][0])
    assert_close(one.output_table[steps:-1:steps], DECILES[name][1])


@pytest.mark.parametrize("name", NAMES)
def test_stored_check_deciles_are_the_typed_ones(name):
    stored = profile(name).about["check_deciles"]
    assert (stored["prompt"], stored["output"]) == DECILES[name]


@pytest.mark.parametrize("name", NAMES)
def test_samples_have_the_deciles_and_means(name):
    prompt, output = profile(name).sample(400_000, np.random.default_rng(7))
    assert_close(np.percentile(prompt, range(10, 100, 10)), DECILES[name][0])
    assert_close(np.percentile(output, range(10, 100, 10)), DECILES[name][1])
    _, prompt_mean, output_mean = MEANS[name]
    assert (prompt.mean(), output.mean()) == pytest.approx((prompt_mean, output_mean), rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_real_trace(name):
    trace = real_trace(name)
    requests, prompt_mean, output_mean = MEANS[name]
    assert len(trace) == requests == profile(name).about["requests"]
    assert float(trace.prompt_tokens.mean()) == pytest.approx(prompt_mean, abs=0.0051)
    assert float(trace.output_tokens.mean()) == pytest.approx(output_mean, abs=0.0051)
    for column, deciles in zip((trace.prompt_tokens, trace.output_tokens), DECILES[name], strict=True):
        assert np.percentile(column, range(10, 100, 10)).tolist() == deciles


@pytest.mark.parametrize("name", NAMES)
def test_fitting_again_gives_the_stored_profile(name):
    stored = profile(name)
    about = dict(stored.about)
    anew = fit_profile(real_trace(name), Origin(about["source"], about["licence"], about["made_by"]))
    assert anew.pop("tables") == {"prompt": stored.prompt_table.tolist(), "output": stored.output_table.tolist()}
    assert anew == about


@pytest.mark.parametrize("name", sorted(LENGTHS))
def test_every_decile_of_a_fitted_profile_is_within_two_percent(name):
    """Of the table and of a large sample; below 25 tokens a half is over 2 %, so there the rounded ones must be equal."""
    one = profile(name)
    drawn = one.sample(1_000_000, np.random.default_rng(11))
    for which, table, sample in zip(("prompt", "output"), (one.prompt_table, one.output_table), drawn, strict=True):
        deciles = one.about["check_deciles"][which]
        steps = (len(table) - 1) // 10
        assert_close(table[steps:-1:steps], deciles)
        assert_close(np.percentile(sample, range(10, 100, 10)), deciles)
        assert float(sample.mean()) == pytest.approx(one.about["means"][which], rel=0.03)


@pytest.mark.parametrize("name", sorted(LENGTHS))
def test_fitting_the_handed_lengths_again(name):
    folder = SHARED / "traces"
    if not folder.exists():
        pytest.skip("no traces (set PAGEDSIM_SHARED)")
    prompt, output = lengths_of(name, folder)
    about, one = dict(profile(name).about), profile(name)
    origin = Origin(about["source"], about["licence"], about["made_by"])
    anew = fit_profile(Trace(name, prompt, output), origin, POINTS.get(name, 201), interpolate=True)
    assert anew.pop("tables") == {"prompt": one.prompt_table.tolist(), "output": one.output_table.tolist()}
    assert anew == about


def test_the_readme_of_the_traces_has_the_means():
    """Means typed from the notes that came with the traces; no row of these has a zero length."""
    typed = {"mooncake-conversation": (12_031, 12035.1, 342.62), "arxiv-summarization": (28_257, 2588.08, 291.43),
             "sharegpt-8k": (30_731, 2340.03, 438.71), "ragpulse": (7_106, 2943.58, 283.24),
             "apex-lmsys": (1_024, 61.67, 162.11), "vtc-arena": (1_500, 136.27, 256.2)}
    for name, (requests, prompt, output) in typed.items():
        about = profile(name).about
        assert about["requests"] == requests
        assert (about["means"]["prompt"], about["means"]["output"]) == pytest.approx((prompt, output), abs=0.051)


def test_fit_on_the_integers():
    assert fit(np.arange(1, 101), points=11).tolist() == [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


def test_fit_between_the_lengths():
    assert fit(np.array([10, 20, 40]), points=5, interpolate=True).tolist() == [10, 15, 20, 30, 40]
    assert fit(np.array([10, 20, 40]), points=5).tolist() == [10, 10, 20, 40, 40]


def test_sampling_is_the_inverse_transform():
    one = LengthProfile("a", np.array([1, 3, 10]), np.array([5, 5]), {})
    uniform = np.random.default_rng(3).random(50)
    prompt, output = one.sample(50, np.random.default_rng(3))
    by_hand = [1 + 2 * u / 0.5 if u < 0.5 else 3 + 7 * (u - 0.5) / 0.5 for u in uniform]
    assert prompt.tolist() == [round(length) for length in by_hand]
    assert set(output.tolist()) == {5}
    assert prompt.dtype == output.dtype == np.int64


def test_samples_depend_on_the_generator_only():
    once, again = (profile("sharegpt").sample(100, np.random.default_rng(1)) for _ in range(2))
    assert np.array_equal(once, again)
    assert not np.array_equal(once, profile("sharegpt").sample(100, np.random.default_rng(2)))


def test_every_profile_says_where_it_comes_from():
    assert profile_names() == tuple(sorted([*NAMES, *LENGTHS]))
    for name in profile_names():
        about = profile(name).about
        assert about["source"]
        assert about["licence"]
        assert about["made_by"].startswith("fit_profile(")


@pytest.mark.parametrize("table", [[3], [0, 3], [3, 2]])
def test_bad_tables(table):
    with pytest.raises(ValueError, match="the output table of profile 'a' must rise"):
        LengthProfile("a", np.array([1, 2]), np.array(table), {})


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"unknown length profile 'foo'; the profiles are agent-coding, .*, vtc-arena"):
        profile("foo")
    with pytest.raises(ValueError, match="cannot draw -1 requests"):
        profile("sharegpt").sample(-1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="cannot fit 1001 points to 0 lengths"):
        fit(np.zeros(0, dtype=np.int64))


def test_doctests():
    assert doctest.testmod(profiles).failed == 0
