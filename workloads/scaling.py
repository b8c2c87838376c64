"""The same requests at another pace, exactly: times are divided by a fraction and rounded once."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from workloads.readers.times import to_us
from workloads.request import IntArray, Trace

LATEST_US = 10**18                                     # as readers take times: 1e12 s


def scale_times(trace: Trace, speed: Fraction, think_too: bool = False) -> Trace:
    """The same requests arriving `speed` times as fast; people think as long as before unless `think_too`.

    Exact: each time is divided by the speed and rounded half to even to a microsecond.

    Raises
    ------
    ValueError
        If there are no times, the speed is not above 0, or a time would be over 1e12 seconds.

    >>> import numpy as np
    >>> trace = Trace("a", np.array([3, 5, 7]), np.ones(3, int), arrival_us=np.array([0, 5, 15]))
    >>> scale_times(trace, Fraction(2)).arrival_us.tolist()         # 2.5 and 7.5
    [0, 2, 8]
    """
    if trace.arrival_us is None:
        raise ValueError(f"{trace.source} has no arrival times")
    if speed <= 0:
        raise ValueError(f"the speed must be above 0, not {speed}")
    think_us = trace.think_us if trace.think_us is None or not think_too else _divided(trace.think_us, speed)
    return replace(trace, arrival_us=_divided(trace.arrival_us, speed), think_us=think_us)


def _divided(times_us: IntArray, speed: Fraction) -> IntArray:
    longest = int(times_us.max(initial=0))
    if longest / speed > LATEST_US:
        raise ValueError(f"{longest / 1e6:,g} s at {float(speed):g} times the speed is over 1e12 s")
    fits = max(longest, 1) * speed.denominator < 1 << 62 and speed.numerator < 1 << 61
    return to_us((times_us if fits else times_us.astype(object)) * speed.denominator, speed.numerator)


def speed_for(trace: Trace, rate_per_s: Fraction) -> Fraction:
    """How many times as fast requests have to arrive to come at a mean rate, requests over the time from the first to the last.

    Raises
    ------
    ValueError
        If there are no times, or all arrive at once.

    >>> import numpy as np
    >>> speed_for(Trace("a", np.array([3, 5]), np.ones(2, int), arrival_us=np.array([0, 4_000_000])), Fraction(2))
    Fraction(4, 1)
    """
    if trace.arrival_us is None:
        raise ValueError(f"{trace.source} has no arrival times")
    duration_us = int(trace.arrival_us[-1] - trace.arrival_us[0]) if len(trace) else 0
    if not duration_us:
        raise ValueError(f"all requests of {trace.source} arrive at once, at no rate that could be changed")
    return rate_per_s * Fraction(duration_us, len(trace) * 10**6)
