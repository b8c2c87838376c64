"""Student's t against the published table, intervals by hand, their coverage over many draws, and how numbers are written."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.whatif.rounding import alike, change, plain, rounded
from experiments.whatif.statistics import Estimate, estimate, paired, t_quantile, t_within

# Abramowitz and Stegun, table 26.10, and any textbook: two-sided 95 % and 99 %, one-sided 95 %.
TABLE = {
    0.975: {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 20: 2.086,
            30: 2.042, 60: 2.000, 100: 1.984, 120: 1.980},
    0.995: {1: 63.657, 2: 9.925, 3: 5.841, 4: 4.604, 5: 4.032, 10: 3.169, 20: 2.845, 120: 2.617},
    0.95: {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 10: 1.812, 20: 1.725, 100: 1.660},
    0.9: {1: 3.078, 2: 1.886, 4: 1.533, 9: 1.383},
}


@pytest.mark.parametrize(("probability", "degrees", "value"),
                         [(p, n, v) for p, column in TABLE.items() for n, v in column.items()])
def test_the_published_table(probability, degrees, value):
    assert f"{t_quantile(probability, degrees):.3f}" == f"{value:.3f}"
    assert f"{t_quantile(1 - probability, degrees):.3f}" == f"{-value:.3f}"


def test_closed_forms():
    # One degree is Cauchy's distribution; two have t = (2p - 1) sqrt(2 / (4 p (1 - p))).
    for p in (0.6, 0.75, 0.9, 0.99, 0.9999):
        assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-12)
        assert t_quantile(p, 2) == pytest.approx((2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p))), rel=1e-9)
    assert t_quantile(0.5, 7) == pytest.approx(0, abs=1e-12)


def test_many_degrees_are_the_normal_distribution():
    assert t_quantile(0.975, 100_000) == pytest.approx(1.959964, abs=5e-5)


@given(st.floats(0.5001, 0.9999), st.integers(1, 60))
def test_the_quantile_inverts_the_distribution(probability, degrees):
    assert t_within(t_quantile(probability, degrees), degrees) == pytest.approx(2 * probability - 1, abs=1e-12)


@pytest.mark.parametrize("wrong", [(0, 3), (1, 3), (-0.1, 3), (0.9, 0)])
def test_no_such_quantile(wrong):
    with pytest.raises(ValueError, match="a probability between 0 and 1 and at least 1 degree of freedom"):
        t_quantile(*wrong)


# ---------------------------------------------------------------------- estimates
def test_an_interval_by_hand():
    # 2 4 9: mean 5, squares 9 + 1 + 16 = 26, deviation sqrt(13), half 4.3027 x sqrt(13 / 3).
    made = estimate([2, 4, 9])
    assert (made.n, made.missing, made.mean, made.deviation) == (3, 0, 5.0, math.sqrt(13))
    assert made.half == pytest.approx(4.30265 * math.sqrt(13 / 3), rel=1e-6)
    assert (made.low, made.high) == (made.mean - made.half, made.mean + made.half)
    assert made.below() == pytest.approx(5 + 2.919986 * math.sqrt(13 / 3), rel=1e-6)
    assert made.above() == pytest.approx(5 - 2.919986 * math.sqrt(13 / 3), rel=1e-6)
    assert estimate([2, 4, 9], 0.9).high == pytest.approx(made.below(0.95)) and made.below(0.99) > made.below(0.95)


def test_one_seed_has_no_interval():
    made = estimate([7])
    assert made == Estimate(1, 0, 7.0, None, None, 0.95)
    assert (made.low, made.high, made.below(), made.above()) == (None, None, None, None)


def test_a_measure_missing_in_some_seeds():
    made = estimate([1, None, 3, float("nan")])
    assert (made.n, made.missing, made.mean, made.deviation, round(made.half, 3)) == (2, 2, 2.0, math.sqrt(2), 12.706)
    assert estimate([None, float("nan")]) == Estimate(0, 2, None, None, None, 0.95)
    assert paired([1, None, 3, 4], [2, 2, None, 7]).mean == 2.0 and paired([1, None, 3, 4], [2, 2, None, 7]).missing == 2
    assert paired([1, float("nan")], [2, 2]).missing == 1


def test_the_same_value_for_every_seed():
    made = estimate([3, 3, 3])
    assert (made.deviation, made.half, made.below()) == (0.0, 0.0, 3.0)
    assert estimate([0.1] * 3).mean == 0.1 and estimate([0.1] * 3).half == 0.0


def test_a_pair_takes_the_traffic_out():
    noise = [100, 200, 300, 50]
    made = paired([10 + n for n in noise], [12 + n for n in noise])
    assert (made.mean, made.half) == (2.0, 0.0)
    alone = estimate([10 + n for n in noise])
    assert alone.half > 100


def test_what_is_refused():
    with pytest.raises(ValueError, match="the confidence must be between 0 and 1, not 95"):
        estimate([1, 2], 95)
    with pytest.raises(ValueError, match="a value is infinite"):
        estimate([1, float("inf")])
    with pytest.raises(ValueError, match="zip"):
        paired([1], [1, 2])


@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_cover_the_truth_as_often_as_they_say(n):
    """Normal draws: 95 % of 4,000 intervals, give or take 1.2 % (3.5 standard errors); bounds on one side likewise."""
    draws = np.random.default_rng(n).normal(10, 3, (4000, n))
    made = [estimate(row) for row in draws.tolist()]
    assert abs(np.mean([m.low <= 10 <= m.high for m in made]) - 0.95) < 0.012
    assert abs(np.mean([m.below() >= 10 for m in made]) - 0.95) < 0.012
    assert abs(np.mean([m.above() <= 10 for m in made]) - 0.95) < 0.012
    eighty = [estimate(row, 0.8) for row in draws.tolist()]
    assert abs(np.mean([m.low <= 10 <= m.high for m in eighty]) - 0.8) < 0.022


# ---------------------------------------------------------------------- for people
def shown(mean, half):
    return rounded(Estimate(5, 0, mean, half, half, 0.95))


@pytest.mark.parametrize(("mean", "half", "text"), [
    (38.2417, 0.3712, "38.2 ± 0.4"), (38.2417, 3.712, "38 ± 4"), (38.2417, 0.96, "38 ± 1"),
    (38.2417, 0.0961, "38.2 ± 0.1"),
    (1234.6, 24.8, "1,235 ± 25"), (12345678, 2e5, "1.23e+07 ± 200,000"),
    (0.5, 0.0137, "0.500 ± 0.014"), (0.000123, 0.0000012, "0.000123 ± 0.000001"), (38.2417, 0.1449, "38.2 ± 0.1"),
    (-0.004, 0.3, "0.0 ± 0.3"), (-2.25, 0.3, "-2.2 ± 0.3"), (61, 0.0, "61 ± 0"), (1e-9, 0.3, "0.0 ± 0.3"),
    (0.0, 0.25, "0.0 ± 0.2"), (99.96, 0.4, "100 ± 0.4"),
    (0.068234, 0.000004, "0.0682 ± 0.000004"), (38.2417, 0.0012, "38.2 ± 0.001"),
])
def test_as_many_digits_as_the_interval_bears(mean, half, text):
    assert shown(mean, half) == text


def test_without_an_interval():
    assert rounded(estimate([])) == "-" and rounded(estimate([None])) == "-"
    assert [rounded(estimate([v])) for v in (0.4, 7.94321, 38, 61234.9, 0)] == ["0.4", "7.94", "38", "61,235", "0"]
    assert [plain(v) for v in (100, 1200.0, 0.1 + 0.2, 2e9, -0.00051, -1e-12, 9.999)] == \
        ["100", "1,200", "0.3", "2e+09", "-0.00051", "-1e-12", "10"]


def test_a_change_in_words():
    before, after = [37, 38, 39.5], [60.2, 61, 62.2]
    assert change("concurrency", estimate(before), estimate(after), paired(before, after)) == \
        "concurrency 38.2 -> 61.1 (+23.0 ± 0.6)"
    assert change("queue p99", estimate([0.4]), estimate([7.9]), paired([0.4], [7.9]), "s") == \
        "queue p99 0.40 s -> 7.90 s (+7.50)"
    assert change("x", estimate([3, 5]), estimate([3, 5]), paired([3, 5], [3, 5])) == "x 4 -> 4 (0 ± 0)"
    assert change("x", estimate([3]), estimate([1]), paired([3], [1])) == "x 3 -> 1 (-2)"
    assert change("x", estimate(after), estimate(before), paired(after, before)) == "x 61.1 -> 38.2 (-23.0 ± 0.6)"
    assert "(uncertain: " in change("x", estimate([1, 2, 3]), estimate([2, 1, 4]), paired([1, 2, 3], [2, 1, 4]))


@pytest.mark.parametrize(("before", "after", "text"), [
    (0.068234, 0.0904, "0.0682 -> 0.0904"), (9.28, 0.102, "9.28 -> 0.10"), (27.31, 61.849, "27.3 -> 61.8"),
    (0.1402, 32.04, "0.140 -> 32.0"), (7.9, 0.068234, "7.90 -> 0.0682"), (0, 412, "0 -> 412"), (0, 7.943, "0.00 -> 7.94"),
    (1234.6, 998.2, "1,235 -> 998"), (9.996, 0.5, "10.0 -> 0.500"), (38, 61, "38 -> 61"), (2e9, 3.0, "2e+09 -> 3"),
    (0.0001234, 0.0005, "0.000123 -> 0.000500"),
])
def test_both_ends_have_the_same_decimals_unless_the_smaller_one_would_be_lost(before, after, text):
    assert " -> ".join(alike(before, after)) == text


def test_ends_have_three_digits_however_sure_they_are():
    before, after = [0.068234, 0.068234, 0.068235], [0.0904, 0.0912, 0.0896]
    assert change("TPOT", estimate(before), estimate(after), paired(before, after), "s") == \
        "TPOT 0.0682 s -> 0.0904 s (+0.022 ± 0.002)"


def test_a_change_with_a_measure_that_is_missing():
    nothing = estimate([None])
    assert change("hit rate", nothing, estimate([0.5]), paired([None], [0.5])) == "hit rate - -> 0.5"
    assert change("TTFT", estimate([2.0]), nothing, paired([2.0], [None]), "s") == "TTFT 2 s -> -"
    one, other = [2.0, None], [None, 3.0]
    assert change("TTFT", estimate(one), estimate(other), paired(one, other), "s") == "TTFT 2 s -> 3 s"
