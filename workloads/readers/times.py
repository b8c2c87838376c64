"""Exact times: from decimal text to whole microseconds without a float on the way.

A *stamp* is an integer. Columns of stamps are int64 nanoseconds where that holds every digit, else Python integers in
units of 1e-40 s (FINE). The difference to the first stamp is taken before anything is rounded.

    text           stamp                 arrival_us
    46.6805900     46_680_590_000 ns     0
    46.6805905     46_680_590_500 ns     0        half a microsecond: to even
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.request import IntArray

NS_PER_US = 1_000
FINE_DIGITS = 40  # a float printed by Python has at most 17 significant digits: 1e-05 s and its like fit well
FINE_PER_US = 10 ** (FINE_DIGITS - 6)
FINE_PER_NS = 10 ** (FINE_DIGITS - 9)
AT_ONCE = 1 << 20
LATEST_S = 10**12  # 1e18 us still fits int64
YEARS = (1678, 2261)  # int64 nanoseconds around 1970

_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):?(\d\d))?", re.ASCII)
_DECIMAL = re.compile(r"([+-]?)(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?", re.ASCII)


def iso_ns(text: str) -> int:
    """Nanoseconds since 1970 of a calendar time; one without an offset counts as UTC.

    Raises
    ------
    ValueError
        With the reason, if it is no such time.

    >>> iso_ns("1970-01-01 00:00:01.0000005+00:00")
    1000000500
    """
    found = _ISO.fullmatch(text)
    if found is None:
        raise ValueError("is not a time such as 2023-11-16 18:15:46.6805900 (at most 9 digits after the point)")
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    fraction, sign, hours, minutes = found.groups()[6:]
    try:
        moment = datetime(year, month, day, hour, minute, second)
    except ValueError as error:
        raise ValueError(f"is not a time: {error}") from None
    if not YEARS[0] <= moment.year <= YEARS[1]:
        raise ValueError(f"is outside the years {YEARS[0]} to {YEARS[1]}")
    seconds = (moment - datetime(1970, 1, 1)) // timedelta(seconds=1)
    if sign:
        if int(hours) > 23 or int(minutes) > 59:
            raise ValueError("is not a time: the offset must be below 24:00")
        seconds -= int(sign + "1") * (int(hours) * 3600 + int(minutes) * 60)
    return seconds * 10**9 + int((fraction or "").ljust(9, "0"))


def fine_stamp(text: str, unit_exponent: int = 0) -> int:
    """A decimal number of 10**unit_exponent seconds in units of 1e-40 s, exactly.

    Raises
    ------
    ValueError
        With the reason, if it is no number, negative, over 1e12 s or finer than 1e-40 s.

    >>> fine_stamp("4.3", unit_exponent=-3) == 43 * 10**36
    True
    """
    found = _DECIMAL.fullmatch(text) if len(text) <= 100 else None
    if found is None:
        raise ValueError("is not a time in decimal digits")
    sign, whole, fraction, exponent = found.groups(default="")
    digits = int(whole + fraction)
    shift = FINE_DIGITS + unit_exponent + int(exponent or 0) - len(fraction)
    if sign == "-" and digits:
        raise ValueError("is a negative time")
    if digits and len(str(digits)) + shift > FINE_DIGITS + 13:
        raise ValueError("is a time over 1e12 seconds")
    if shift >= 0:
        stamp, rest = digits * 10**shift if digits else 0, 0
    else:
        stamp, rest = divmod(digits, 10**-shift)
    if rest:
        raise ValueError("is a time finer than 1e-40 seconds")
    if stamp > LATEST_S * 10**FINE_DIGITS:
        raise ValueError("is a time over 1e12 seconds")
    return stamp


def join_stamps(parts: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], int]:
    """One column from parts in either unit, and how many of its units make a microsecond."""
    if all(part.dtype == np.int64 for part in parts):
        return np.concatenate(parts), NS_PER_US
    fine = [part if part.dtype == object else part.astype(object) * FINE_PER_NS for part in parts]
    return np.concatenate(fine), FINE_PER_US


def since_first_us(stamps: NDArray[Any], units_per_us: int) -> IntArray:
    """Microseconds since the least stamp, rounded half to even.

    Parameters
    ----------
    stamps : int64 or Python integers, shape (rows,)
        Not empty.
    units_per_us : int
        Units of `stamps` in a microsecond.

    Returns
    -------
    int64, shape (rows,)

    >>> since_first_us(np.array([500, 1000, 2000, 2001]), 1000)
    array([0, 0, 2, 2])
    """
    first = stamps.min()
    made: IntArray = np.empty(len(stamps), np.int64)
    for start in range(0, len(stamps), AT_ONCE):       # in pieces: a column of ten million takes no more than itself
        made[start:start + AT_ONCE] = to_us(stamps[start:start + AT_ONCE] - first, units_per_us)
    return made


def to_us(times: NDArray[Any], units_per_us: int) -> IntArray:
    """Microseconds, rounded half to even; -1 stays for none."""
    whole, rest = times // units_per_us, times % units_per_us
    more, half = 2 * rest > units_per_us, 2 * rest == units_per_us
    up = more | (half & (whole % 2 == 1))
    rounded: IntArray = np.asarray(whole + up, dtype=np.int64)
    rounded[times < 0] = -1
    return rounded
