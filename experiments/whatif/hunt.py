"""Bisection: where a promise begins to be broken. Pure: a hunt asks for values and is told whether they keep it.

    largest     1 kept   2 kept   4 kept   8 broken   5.657 broken   4.757 kept   5.187 kept   ...      the answer is kept
    smallest    1024 broken   2048 kept   1536 broken   1792 kept   ...                                 and so is this

The answer is the last value that kept the promise beside one that broke it, so both ends of the bracket were run. That everything
below keeps it too is assumed, not known: queueing is monotone in most traffic and not in all. Where small values are known to
break promises as well (few sequences make a queue), larger ones are looked at first. Who runs the values can say that there is
nothing behind one (None instead of an answer): where larger ones change nothing, say.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator
from dataclasses import dataclass

MOST, LEAST = 2.0 ** 27, 2.0 ** -12
DIGITS = 4                                             # significant ones of a value tried
Hunt = Generator[float, bool | None, "Bracket"]


@dataclass(frozen=True)
class Bracket:
    """The ends of what was tried: ``kept`` is the answer, ``broken`` the nearest value beyond it; None where there is none."""

    kept: float | None
    broken: float | None
    steps: int


@dataclass(frozen=True)
class Range:
    """Where to look: from ``low`` to ``high`` where given, else by doubling and halving from ``start``, not below ``least``.

    ``both``: values may be too small as well as too large.
    """

    largest: bool
    whole: bool
    resolution: float
    start: float
    low: float | None = None
    high: float | None = None
    least: float = LEAST
    both: bool = False


def hunt(where: Range) -> Hunt:
    """Yields values to try, is sent whether the promise was kept (None: nothing behind it), returns the bracket.

    >>> def run(where, keeps):
    ...     search, said = hunt(where), None
    ...     try:
    ...         while True:
    ...             said = keeps(search.send(said))
    ...     except StopIteration as end:
    ...         return end.value
    >>> run(Range(True, True, 0.001, 1), lambda n: n <= 37)
    Bracket(kept=37, broken=38, steps=12)
    >>> run(Range(False, True, 0.001, 64), lambda n: n >= 37)
    Bracket(kept=37, broken=36, steps=7)
    """
    good, bad, steps = yield from _ends(where)
    while good is not None and bad is not None and not _close(where, good, bad):
        value = _between(where, good, bad)
        steps += 1
        kept = yield value
        if kept is None:
            break
        good, bad = (value, bad) if kept else (good, value)
    return Bracket(good, bad, steps)


def _ends(where: Range) -> Generator[float, bool | None, tuple[float | None, float | None, int]]:
    """One value that keeps the promise and one that breaks it, as near each other as doubling finds them."""
    easy, hard = (where.low, where.high) if where.largest else (where.high, where.low)
    first = _rounded(where, where.start if easy is None else easy)
    kept = yield first
    if kept and hard is not None:
        value = _rounded(where, hard)
        kept = yield value
        return (value, None, 2) if kept else (first, None if kept is None else value, 2)
    if kept:
        good, bad, steps = yield from _walk(where, first, where.largest, False)
        return good, bad, 1 + steps
    if kept is None:
        return None, None, 1
    steps = 1
    if where.both:
        _, good, more = yield from _walk(where, first, True, True)
        steps += more
        if good is not None:
            good, bad, more = yield from _walk(where, good, True, False)
            return good, bad, steps + more
    if easy is not None:
        return None, first, steps
    bad, good, more = yield from _walk(where, first, not where.largest, True)
    return good, bad, steps + more


def _walk(where: Range, value: float, up: bool, until: bool) -> Generator[float, bool | None, tuple[float, float | None, int]]:
    """Double or halve until the promise is kept, or broken; returns the last value before, that one (None: not found), steps."""
    for steps in itertools.count(1):
        following = _next(where, value, up)
        if following is None:
            return value, None, steps - 1
        kept = yield following
        if kept is None:
            return value, None, steps
        if kept is until:
            return value, following, steps
        value = following
    raise AssertionError("unreachable")


def _next(where: Range, value: float, up: bool) -> float | None:
    """The next value that way; None at the end of the range."""
    low, high = where.low or where.least, where.high or MOST
    following = _rounded(where, min(value * 2, high) if up else max(value / 2, low))
    return following if following != value and where.least <= following <= MOST else None


def _rounded(where: Range, value: float) -> float:
    return max(1, round(value)) if where.whole else float(f"{value:.{DIGITS}g}")


def _between(where: Range, good: float, bad: float) -> float:
    if where.whole:
        return (int(good) + int(bad)) // 2 if abs(good - bad) > 1 else good
    return _rounded(where, math.sqrt(good * bad))


def _close(where: Range, good: float, bad: float) -> bool:
    gap, least = abs(good - bad), min(good, bad)
    return gap <= where.resolution * least or (where.whole and gap <= 1) or _between(where, good, bad) in (good, bad)
