"""Arrivals against theory: seeds are fixed, and every tolerance is five standard errors of the estimate."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.request import InputError
from workloads.synth import recipe
from workloads.synth.arrivals import ARRIVALS, closed, constant, diurnal, gamma, on_off, poisson
from workloads.synth.draws import Fixed
from workloads.synth.times import SECONDS, exponential
from workloads.synthetic import poisson_arrivals_us

N = 200_001
TIMED = {"poisson": {"rate": 3.0}, "gamma": {"rate": 3.0, "burstiness": 0.4}, "constant": {"rate": 3.0},
         "on-off": {"rate": 3.0, "on_s": 4.0, "off_s": 6.0}, "diurnal": {"rate": 3.0, "period_s": 60.0}, "all-at-once": {}}


def rng(seed=0):
    return np.random.default_rng(seed)


def gaps_s(times):
    return np.diff(times) / 1e6


@pytest.mark.parametrize("kind", TIMED)
def test_times_are_whole_microseconds_from_nought_on(kind):
    times = ARRIVALS[kind](rng(), 1000, **TIMED[kind])
    assert times.dtype == np.int64 and times[0] == 0 and len(times) == 1000
    assert (np.diff(times) >= 0).all()
    assert np.array_equal(times, ARRIVALS[kind](rng(), 1000, **TIMED[kind]))
    assert ARRIVALS[kind](rng(), 0, **TIMED[kind]).tolist() == []
    assert ARRIVALS[kind](rng(), 1, **TIMED[kind]).tolist() == [0]


def test_every_kind_is_tested():
    assert {*TIMED, "closed"} == set(ARRIVALS)


def test_poisson_is_the_one_there_was():
    assert np.array_equal(poisson(rng(3), 500, rate=7.0), poisson_arrivals_us(500, 7.0, rng(3)))


@pytest.mark.parametrize("burstiness", [0.25, 0.5, 1.0, 4.0])
def test_gamma_gaps_have_mean_and_variation(burstiness):
    gaps = gaps_s(gamma(rng(1), N, rate=2.0, burstiness=burstiness))
    cv = burstiness**-0.5
    assert abs(gaps.mean() - 0.5) < 5 * 0.5 * cv / np.sqrt(N)
    # the variance of a sample variance is (fourth moment - variance^2) / n; for a gamma the kurtosis is 3 + 6 / shape
    error_of_variance = 0.25 * cv**2 * np.sqrt((2 + 6 / burstiness) / N)
    assert abs(gaps.var() - 0.25 * cv**2) < 5 * error_of_variance


def test_gamma_is_what_vllm_draws():
    theta = 1 / (2.0 * 0.5)                            # of vllm bench serve: 1 / (request_rate * burstiness)
    gaps = rng(4).gamma(shape=0.5, scale=theta, size=99)
    assert np.abs(gamma(rng(4), 100, rate=2.0, burstiness=0.5)[1:] - np.cumsum(gaps) * 1e6).max() <= 1


def test_constant():
    assert constant(rng(), 5, rate=3.0).tolist() == [0, 333_333, 666_667, 1_000_000, 1_333_333]


def test_on_off_is_poisson_with_pauses_put_in():
    times = on_off(rng(5), 5000, rate=3.0, on_s=4.0, off_s=6.0)
    assert (times % 10_000_000 < 4_000_000 + 1).all()
    without = times - times // 10_000_000 * 6_000_000
    assert np.abs(without - poisson(rng(5), 5000, rate=3.0)).max() <= 1
    periods = np.bincount(times // 10_000_000)[:-1]
    assert abs(periods.mean() - 12) < 5 * np.sqrt(12 / len(periods))
    mean_rate = len(times) / (times[-1] / 1e6)
    assert mean_rate == pytest.approx(3.0 * 4 / 10, rel=0.08)


def test_on_off_without_pauses_is_poisson():
    assert np.array_equal(on_off(rng(5), 500, rate=3.0, on_s=4.0, off_s=0.0), poisson(rng(5), 500, rate=3.0))


def test_diurnal_puts_arrivals_where_they_are_expected():
    """The integral of the rate up to each arrival is the Poisson process of rate 1 it came from."""
    times = diurnal(rng(6), 3000, rate=2.0, peak_to_mean=1.8, period_s=300.0) / 1e6
    expected = 2.0 * (times - 0.8 * 300 / (2 * np.pi) * np.sin(2 * np.pi * times / 300))
    sums = np.concatenate(([0.0], np.cumsum(rng(6).exponential(size=2999))))
    assert np.abs(expected - sums).max() < 2.0 * 1.8 * 1e-6


def test_diurnal_peaks_in_the_middle():
    times = diurnal(rng(7), N, rate=2.0, peak_to_mean=1.8, period_s=100.0) / 1e6
    whole = times[times < np.floor(times[-1] / 100) * 100] % 100
    middle = np.mean((whole > 25) & (whole < 75))      # half and swing / pi, integrated by hand
    assert abs(middle - (0.5 + 0.8 / np.pi)) < 5 * np.sqrt(0.25 / len(whole))
    assert N / times[-1] == pytest.approx(2.0, rel=5 / np.sqrt(N))


def test_diurnal_without_swing_is_poisson():
    assert np.array_equal(diurnal(rng(5), 500, rate=3.0, peak_to_mean=1.0), poisson(rng(5), 500, rate=3.0))


@pytest.mark.parametrize("kind", ["poisson", "gamma", "constant", "on-off", "diurnal"])
def test_a_rate_so_low_that_time_ends(kind):
    with pytest.raises(ValueError, match="the rate 1e-300 is so low that 3 arrivals do not fit"):
        ARRIVALS[kind](rng(), 3, **{**TIMED[kind], "rate": 1e-300})


def test_users_begin_one_after_the_other():
    users = closed(rng(), 6, users=4, think_s=Fixed(2_000_000))
    assert users.start_us.tolist() == [0, 500_000, 1_000_000, 1_500_000]
    assert closed(rng(), 6, users=4, think_s=Fixed(5), ramp_s=8.0).start_us.tolist() == [0, 2_000_000, 4_000_000, 6_000_000]


def test_closed_loop_by_hand():
    """Two users, five requests, always three seconds of thought: a user's next comes three seconds after the last answer."""
    trace = recipe({"requests": 5, "arrivals": "closed:users=2,think_s=3,ramp_s=2", "prompt": 9, "output": 4})
    assert trace.session.tolist() == [0, 1, 0, 1, 0]
    assert trace.think_us.tolist() == [-1, -1, 3_000_000, 3_000_000, 3_000_000]
    assert trace.arrival_us.tolist() == [0, 1_000_000, 3_000_000, 4_000_000, 6_000_000]


def test_closed_loop_orders_rows_by_thinking():
    trace = recipe({"requests": 400, "arrivals": "closed:users=7,think_s=(exponential:mean=5)", "prompt": 9, "output": 4})
    for user in range(7):
        rows = np.flatnonzero(trace.session == user)
        assert len(rows) == 400 // 7 + (user < 400 % 7)
        assert trace.think_us[rows[0]] == -1
        assert np.array_equal(np.diff(trace.arrival_us[rows]), trace.think_us[rows[1:]])
    thinks = trace.think_us[trace.think_us >= 0] / 1e6
    assert abs(thinks.mean() - 5) < 5 * 5 / np.sqrt(len(thinks))


def test_more_users_than_requests():
    trace = recipe({"requests": 2, "arrivals": "closed:users=5,think_s=1", "prompt": 9, "output": 4})
    assert trace.think_us.tolist() == [-1, -1] and trace.arrival_us.tolist() == [0, 200_000]


def test_seconds():
    assert SECONDS["constant"](rng(), 2, value=0.25).tolist() == [0.25, 0.25]
    drawn = SECONDS["uniform"](rng(), 100_000, least=2.0, most=5.0)
    assert drawn.min() >= 2 and drawn.max() < 5 and abs(drawn.mean() - 3.5) < 5 * 3 / np.sqrt(12 * 100_000)
    capped = exponential(rng(), 100_000, mean=2.0, most=3.0)
    assert abs(capped.mean() - 2 * (1 - np.exp(-1.5))) < 5 * 1.2 / np.sqrt(100_000)


def test_thinking_longer_than_time():
    with pytest.raises(InputError, match="arrivals: the think times do not fit in 62 bits"):
        recipe({"requests": 1_000_000, "arrivals": "closed:users=1,think_s=10000000", "prompt": 9, "output": 4})
