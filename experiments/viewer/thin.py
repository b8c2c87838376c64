"""Which moments of a run a page keeps: all of a short run; of a long one those that tell something, and what is beside them.

    class 0   the first moment, the last, and the first of each kind
    class 1   refusals and preemptions          class 2   the moments right before and after these
    class 3   evictions, copies, forks          class 4   admissions, shared prefixes, ends
    class 5   arrivals and growth               class 6   all others

Classes are taken in this order while there is room; of the class that does not fit, moments spread evenly over it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.viewer.moments import MomentLog

CLASSES = (frozenset({"refuse", "preempt"}), frozenset({"evict", "copy", "fork"}), frozenset({"admit", "share", "finish"}),
           frozenset({"arrive", "grow"}))


def kept(kinds: Sequence[frozenset[str]], most: int, wanted: Sequence[int] = ()) -> list[int]:
    """Numbers of the moments that are kept, ascending.

    Parameters
    ----------
    kinds : sequence of frozenset of str
        Of each moment.
    most : int
        How many may be kept, at least 1; the last moment is always among them.
    wanted : sequence of int
        Moments that are kept before others as well.

    Examples
    --------
    >>> dull, refused = frozenset({"step"}), frozenset({"refuse"})
    >>> kept([dull] * 3, 3)
    [0, 1, 2]
    >>> kept([dull] * 50 + [refused] + [dull] * 49, 5)
    [0, 49, 50, 51, 99]
    """
    n = len(kinds)
    if n <= most:
        return list(range(n))
    chosen: dict[int, None] = {}
    for numbers in _classes(kinds, wanted):
        new = [number for number in dict.fromkeys(numbers) if number not in chosen]
        room = most - len(chosen)
        chosen.update(dict.fromkeys(new if len(new) <= room else evenly(new, room)))
    return sorted(chosen)


def kept_together(runs: Sequence[MomentLog], most: int) -> list[list[int]]:
    """Numbers of the moments of each run that are kept where the runs share one clock with ``most`` stops.

    Room that one run does not need is the others'. The last moment of each run and its first of each kind are kept before others.
    """
    stops = sorted({stop for run in runs for stop in run.stops})
    place = {stop: i for i, stop in enumerate(stops)}
    kinds: list[frozenset[str]] = [frozenset()] * len(stops)
    at = [[place[stop] for stop in run.stops] for run in runs]
    for run, places in zip(runs, at, strict=True):
        for i, happened in zip(places, run.kinds, strict=True):
            kinds[i] |= happened
    wanted = [places[number] for run, places in zip(runs, at, strict=True) if places for number in _first(run.kinds)]
    chosen = set(kept(kinds, most, wanted))
    return [[number for number, i in enumerate(places) if i in chosen] for places in at]


def _first(kinds: Sequence[frozenset[str]]) -> list[int]:
    """The last moment, the first, and the first of each kind."""
    first: dict[str, int] = {}
    for number, happened in enumerate(kinds):
        for kind in sorted(happened):
            first.setdefault(kind, number)
    return [len(kinds) - 1, 0, *sorted(first.values())]


def evenly(numbers: Sequence[int], room: int) -> list[int]:
    """``room`` of the numbers, spread evenly over them.

    >>> evenly([3, 4, 5, 6, 7, 8], 3)
    [3, 5, 7]
    """
    return [numbers[i * len(numbers) // room] for i in range(room)]


def _classes(kinds: Sequence[frozenset[str]], wanted: Sequence[int]) -> list[list[int]]:
    n = len(kinds)
    of_class = [[i for i, happened in enumerate(kinds) if happened & interesting] for interesting in CLASSES]
    beside = np.unique([i + side for i in of_class[0] for side in (-1, 1) if 0 <= i + side < n]).tolist()
    return [[*_first(kinds), *wanted], of_class[0], beside, *of_class[1:], list(range(n))]
