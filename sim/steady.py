"""Warm-up: how much of the beginning of a run is left out of its averages.

    mser5    where the rest is known best (MSER-5: White, Simulation 69, 1997; White, Cobb and Spratt, WSC 2000)
    300s     a time after the first arrival; also ms, min and h
    10%      a share of the time from the first arrival to the last
    none     nothing

MSER-5 on the means of batches of 5: the cut d that makes the squared standard error of what is left least,

    Y_0 ... Y_d-1 | Y_d ... Y_b-1       sum over i >= d of (Y_i - mean)^2 / (b - d)^2

looked for in the first half. A minimum at the edge of the half says that the series had not settled by then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from workloads.request import IntArray

BATCH = 5
UNITS_US = {"ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
RULES = "mser5, none, a time such as 300s or 5min, or a share such as 10%"
_NUMBER = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?) ?(%|ms|s|min|h)")


@dataclass(frozen=True)
class WarmUp:
    """A rule: ``mser``, or a fixed time, or a share of the arrivals' span; all of them 0 for none.

    Parameters
    ----------
    mser : bool
    time_us : int
        Microseconds after the first arrival.
    share : Fraction
        From 0 up to and without 1.
    """

    mser: bool = False
    time_us: int = 0
    share: Fraction = Fraction(0)


def parse_warmup(text: str) -> WarmUp:
    """The rule that a text names.

    Raises
    ------
    ValueError
        One line that names the value and what there is.

    >>> parse_warmup("5min").time_us, parse_warmup("12.5%").share, parse_warmup("mser5").mser
    (300000000, Fraction(1, 8), True)
    """
    if text in ("none", "mser5"):
        return WarmUp(mser=text == "mser5")
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise ValueError(f"the warm-up is {RULES}, not {text!r}")
    number, unit = Fraction(found[1]), found[2]
    if unit != "%":
        return WarmUp(time_us=round(number * UNITS_US[unit]))
    if number >= 100:
        raise ValueError(f"a warm-up of {text} leaves nothing to measure: below 100% is wanted")
    return WarmUp(share=number / 100)


def mser5(series: IntArray) -> int | None:
    """Where to cut a series by MSER-5: how many of its values to leave out, a multiple of 5.

    Exact: the errors are compared as fractions of whole numbers. Of equal ones the earliest cut is taken; up to four values at
    the end that fill no batch are not looked at.

    Parameters
    ----------
    series : int64, shape (n,)
        In order of time, whole numbers such as microseconds.

    Returns
    -------
    int or None
        None where no steady state is seen: the least error is at the edge of the first half (of b batches, b // 2), or
        there is no batch.

    Examples
    --------
    >>> import numpy as np
    >>> mser5(np.array([90] * 5 + [10, 11] * 20)), mser5(np.array([7] * 20)), mser5(np.arange(40))
    (5, 0, None)
    """
    batches = len(series) // BATCH
    sums: list[int] = series[: BATCH * batches].reshape(batches, BATCH).sum(axis=1).tolist()
    half, best, least, over = batches // 2, 0, -1, 1
    total = squares = 0
    for cut in range(batches - 1, -1, -1):
        total += sums[cut]
        squares += sums[cut] ** 2
        left = batches - cut
        error = left * squares - total**2              # over left cubed (and 25 everywhere): the squared standard error
        if cut <= half and (least < 0 or error * over <= least * left**3):
            best, least, over = cut, error, left**3
    return None if best == half else BATCH * best


def fixed_cut_us(rule: WarmUp, first_us: int, last_us: int) -> int:
    """The moment from which arrivals are measured by a rule that is a time, a share or none.

    Parameters
    ----------
    rule : WarmUp
        Not of MSER-5.
    first_us, last_us : int
        The first and the last arrival.

    >>> [fixed_cut_us(parse_warmup(text), 10, 50) for text in ("none", "0.02ms", "50%")]
    [10, 30, 30]
    """
    return first_us + rule.time_us + int(rule.share * (last_us - first_us))
