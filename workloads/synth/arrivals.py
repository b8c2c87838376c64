"""When requests come: small seeded functions from a number of arrivals to their times.

Each takes ``(rng, n)`` and its own keys, and gives int64 microseconds of shape (n,): the first is 0, none is before the
one before it, each is rounded once, half to even. Only `closed` gives no times: its users wait for their answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from workloads.request import IntArray
from workloads.synth.keys import Count, Number
from workloads.synth.times import Seconds

LATEST_US = 2.0**62
DAY_S = 86_400.0
HALVINGS = 60                                          # of a bracket of days: to less than a rounding error

LEAST_RATE = 1e-15                                     # a second; a gap of 1e15 s is past the end of all clocks
Rate = Annotated[float, Number(0.0, 1e9, above=True)]
Burstiness = Annotated[float, Number(0.001, 1000.0)]
Period = Annotated[float, Number(1e-6, 1e7)]            # seconds; times are whole microseconds
Pause = Annotated[float, Number(0.0, 1e7)]
Ramp = Annotated[float | None, Number(0.0, 1e7)]
Peak = Annotated[float, Number(1.0, 2.0)]


@dataclass(frozen=True, eq=False)
class Users:
    """A fixed population: when each user's first request comes, and how long they think before each other one."""

    start_us: IntArray
    think_us: IntArray


def poisson(rng: np.random.Generator, n: int, *, rate: Rate) -> IntArray:
    """A Poisson process that begins with an arrival: exponential gaps of ``1 / rate`` seconds on average.

    Parameters
    ----------
    rng : numpy Generator
        Gives n - 1 gaps.
    n : int
        Arrivals, 0 or more.
    rate : float
        Mean arrivals a second.

    Raises
    ------
    ValueError
        If `n` is negative, the rate is not above 0 and finite, or time would not fit 62 bits.

    >>> int(poisson(np.random.default_rng(0), 3, rate=2.0)[0])
    0
    """
    _check(n, rate)
    return _times_us(rng.exponential(size=max(n - 1, 0)) * (1e6 / rate), n, rate)


def gamma(rng: np.random.Generator, n: int, *, rate: Rate, burstiness: Burstiness = 1.0) -> IntArray:
    """Gamma gaps of shape ``burstiness`` and mean ``1 / rate``: 1 is Poisson, less is burstier.

    As ``vllm bench serve --burstiness``. The coefficient of variation of the gaps is ``1 / sqrt(burstiness)``.

    >>> gamma(np.random.default_rng(0), 3, rate=2.0, burstiness=0.5).tolist()[0]
    0
    """
    _check(n, rate)
    return _times_us(rng.gamma(burstiness, size=max(n - 1, 0)) * (1e6 / rate / burstiness), n, rate)


def constant(rng: np.random.Generator, n: int, *, rate: Rate) -> IntArray:
    """One arrival every ``1 / rate`` seconds.

    >>> constant(np.random.default_rng(0), 4, rate=3.0).tolist()
    [0, 333333, 666667, 1000000]
    """
    _check(n, rate)
    return _rounded(np.arange(n, dtype=np.float64) * 1e6 / rate, rate)


def on_off(rng: np.random.Generator, n: int, *, rate: Rate, on_s: Period, off_s: Pause) -> IntArray:
    """Poisson arrivals at ``rate`` for ``on_s`` seconds, then nothing for ``off_s`` seconds, and so on.

    The mean rate is ``rate * on_s / (on_s + off_s)``.

    >>> times = on_off(np.random.default_rng(0), 100, rate=10.0, on_s=2.0, off_s=3.0)
    >>> bool((times % 5_000_000 < 2_000_000).all())
    True
    """
    _check(n, rate)
    busy_us = _sums(rng.exponential(size=max(n - 1, 0)) * (1e6 / rate), n)
    return _rounded(busy_us + np.floor(busy_us / (on_s * 1e6)) * (off_s * 1e6), rate)


def diurnal(rng: np.random.Generator, n: int, *, rate: Rate, peak_to_mean: Peak = 1.5, period_s: Period = DAY_S) -> IntArray:
    """A Poisson process whose rate goes up and down like the day, from its trough at time 0 to its peak half a period later.

    The rate at time t is ``rate * (1 - (peak_to_mean - 1) * cos(2 pi t / period_s))``, `rate` on average. Arrivals of a Poisson
    process of rate 1 are put where the expected number of arrivals reaches them: exact, nothing is thinned.

    >>> times = diurnal(np.random.default_rng(0), 1000, rate=1.0, peak_to_mean=2.0, period_s=100.0)
    >>> int(times[0]), bool((np.diff(times) >= 0).all())
    (0, True)
    """
    _check(n, rate)
    sums = _sums(rng.exponential(size=max(n - 1, 0)), n)
    return _rounded(_when_expected(sums / rate, peak_to_mean - 1, period_s) * 1e6, rate)


def at_once(rng: np.random.Generator, n: int) -> IntArray:
    """All at time 0.

    >>> at_once(np.random.default_rng(0), 2)
    array([0, 0])
    """
    return np.zeros(n, dtype=np.int64)


def closed(rng: np.random.Generator, n: int, *, users: Count, think_s: Seconds, ramp_s: Ramp = None) -> Users:
    """A fixed population of users, each with one request at a time: the next comes ``think_s`` after the last answer ended.

    First requests are spread evenly over ``ramp_s`` seconds, by default over one mean think time.

    >>> from workloads.synth.draws import Fixed
    >>> closed(np.random.default_rng(0), 4, users=2, think_s=Fixed(3_000_000)).start_us.tolist()
    [0, 1500000]
    """
    think_us = think_s(rng, n)
    ramp_us = (float(think_us.mean()) if n else 0.0) if ramp_s is None else ramp_s * 1e6
    return Users(np.rint(np.arange(users) * (ramp_us / users)).astype(np.int64), think_us)


def _check(n: int, rate: float) -> None:
    if n < 0:
        raise ValueError(f"the number of arrivals must be 0 or more, not {n}")
    if not 0 < rate < np.inf:
        raise ValueError(f"the rate must be above 0 requests a second and finite, not {rate}")
    if n > 1 and rate < LEAST_RATE:
        raise ValueError(f"the rate {rate} is so low that {n} arrivals do not fit in 62 bits of microseconds")


def _sums(gaps: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    return np.concatenate(([0.0], np.cumsum(gaps)))[:n]


def _times_us(gaps_us: NDArray[np.float64], n: int, rate: float) -> IntArray:
    return _rounded(_sums(gaps_us, n), rate)


def _rounded(times_us: NDArray[np.float64], rate: float) -> IntArray:
    if len(times_us) and not times_us[-1] < LATEST_US:
        raise ValueError(f"the rate {rate} is so low that {len(times_us)} arrivals do not fit in 62 bits of microseconds")
    return np.rint(times_us).astype(np.int64)


def _when_expected(means_s: NDArray[np.float64], swing: float, period_s: float) -> NDArray[np.float64]:
    """The times t with ``t - swing * period / 2 pi * sin(2 pi t / period) == means_s``, by bisection of all at once."""
    turn = 2 * np.pi / period_s
    low, high = np.maximum(means_s - swing / turn, 0.0), means_s + swing / turn
    for _ in range(HALVINGS if swing > 0 else 0):
        middle = (low + high) / 2
        early = middle - swing / turn * np.sin(turn * middle) < means_s
        low, high = np.where(early, middle, low), np.where(early, high, middle)
    return (low + high) / 2 if swing > 0 else means_s


ARRIVALS: dict[str, Callable[..., IntArray | Users]] = {
    "poisson": poisson,
    "gamma": gamma,
    "constant": constant,
    "on-off": on_off,
    "diurnal": diurnal,
    "all-at-once": at_once,
    "closed": closed,
}
