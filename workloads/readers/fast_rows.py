"""Columns of many JSON objects at once.

Every function here answers None when a value is not of the plain kind; the caller then takes the same objects row by row
(`json_format`, `values`), which also finds what to complain about. So this module knows no errors.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from decimal import Clamped, Context, Decimal, Inexact, InvalidOperation, Overflow, Rounded, Subnormal
from itertools import chain, compress
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from workloads.readers.times import FINE_DIGITS, LATEST_S
from workloads.readers.values import MOST_TOKENS
from workloads.request import IntArray

Objects: TypeAlias = Sequence[Mapping[str, Any]]
MOST_NS = 9 * 10**18
_EXACT = Context(prec=80, Emin=-100, Emax=100, traps=[Clamped, Inexact, InvalidOperation, Overflow, Rounded, Subnormal])
"""Raises ArithmeticError rather than lose a digit, and for numbers that are long to write."""


def lengths(rows: Objects, key: str, least: int = 0) -> list[int] | None:
    """Token counts from ``least`` to MOST_TOKENS.

    >>> lengths([{"n": 3}, {"n": 0}], "n"), lengths([{"n": 3}, {"n": True}], "n")
    ([3, 0], None)
    """
    return _whole(rows, key, least, MOST_TOKENS)


def stamps(rows: Objects, key: str, unit_exponent: int) -> NDArray[Any] | None:
    """Times in 10**unit_exponent seconds: as int64 nanoseconds where these hold them all, else in units of 1e-40 s.

    >>> stamps([{"t": 3}, {"t": 1180}], "t", -3)
    array([   3000000, 1180000000])
    >>> stamps([{"t": 3}, {"t": Decimal("2.5e-10")}], "t", 0).tolist() == [3 * 10**40, 25 * 10**29]
    True
    """
    found = _column(rows, key)
    kinds = set(map(type, found or ()))
    if found is None or not kinds <= {int, Decimal}:
        return None
    if kinds == {int}:
        ns = int(10 ** (9 + unit_exponent))
        return np.array(found, np.int64) * ns if min(found) >= 0 and max(found) <= min(LATEST_S, MOST_NS // ns) else None
    for digits, most, dtype in ((9, MOST_NS, np.int64), (FINE_DIGITS, LATEST_S * 10**FINE_DIGITS, object)):
        try:
            exact = [int(_EXACT.to_integral_exact(_EXACT.scaleb(one, digits + unit_exponent))) for one in found]
        except ArithmeticError:                        # digits beyond the unit, or more than there should be
            continue
        if min(exact) >= 0 and max(exact) <= most:
            return np.array(exact, dtype)
    return None


def names(rows: Objects, key: str, optional: bool = False) -> list[str | int | None] | None:
    """Texts and whole numbers; nulls among them where they are ``optional``."""
    found = _column(rows, key)
    known = {str, int, type(None)} if optional else {str, int}
    return found if found is not None and set(map(type, found)) <= known else None


def ids(rows: Objects, key: str, flags: bool, chained: bool) -> tuple[array[int], list[int]] | None:
    """Content ids of all objects, one behind the other, and how many each has; none twice in one object if ``chained``.

    Where there may be ``flags``, true and false, they are looked for: they would be taken for 1 and 0.

    >>> ids([{"ids": [7, 8]}, {"ids": [7]}], "ids", flags=False, chained=True)
    (array('q', [7, 8, 7]), [2, 1])
    """
    lists = _column(rows, key)
    if lists is None or set(map(type, lists)) != {list}:
        return None
    every = list(chain.from_iterable(lists))
    if flags and not set(map(type, every)) <= {int}:
        return None
    try:
        flat = array("q", every)                       # takes nothing but whole numbers of 64 bits
    except (TypeError, OverflowError):
        return None
    counts = list(map(len, lists))
    column = np.array(flat, np.int64)
    if len(flat) and int(column.min()) < 0:
        return None
    if chained and any(len(set(one)) < len(one) for one in compress(lists, _may_repeat(column, counts))):
        return None
    return flat, counts


def _may_repeat(column: IntArray, counts: list[int]) -> list[bool]:
    """Which lists do not rise all the way: those of a trace nearly all do, and then hold nothing twice."""
    falls = np.append(column[1:] <= column[:-1], False)
    ends = np.cumsum(counts)
    falls[ends[ends > 0] - 1] = False                  # from the end of a list to the beginning of the next
    fallen = np.append(0, np.cumsum(falls))[np.append(0, ends)]
    found: list[bool] = (fallen[1:] > fallen[:-1]).tolist()
    return found


def _whole(rows: Objects, key: str, least: int, most: int) -> list[int] | None:
    found = _column(rows, key)
    if found is None or set(map(type, found)) != {int} or min(found) < least or max(found) > most:
        return None
    return found


def _column(rows: Objects, key: str) -> list[Any] | None:
    try:
        return list(map(itemgetter(key), rows))
    except KeyError:
        return None
