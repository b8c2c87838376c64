"""A pool as what changed since the frame before it, in short keys: what a page keeps of each frame.

    l  the seven parts, in slots                 w, v  the first of the waiting queue; how many wait
    n  sequences that are new, x  that are gone  u  tokens each of the others computed, c  those that computed another number
    a  one more block at the end of a table      b  tables from a place on   q  the free queue
    d, e  blocks findable now, and no longer     h  holes of the arena

Lists that are used at both ends are written as ``[popped, dropped, front, back]``: the old list without its first ``popped`` and
without ``dropped``, between ``front`` and ``back``. Numbers in a row are ``[first, how many]``, negative where they fall
(`packed`); ``a`` is flat, sequence and block in turn. What has not changed is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments.html.page import MOST_EXACT
from experiments.viewer.snapshot import NO_BLOCKS, NO_MARKS, Key, Row, Snapshot
from workloads.request import IntArray

EMPTY = Snapshot({}, (), NO_BLOCKS, NO_MARKS, (), ())
MOST_WAITING = 40
Change = dict[str, Any]
Blocks = IntArray


def exact(n: int) -> int | str:
    """A number that JavaScript can hold; as text where it would round it.

    >>> exact(2**53), exact(2**53 + 1)
    (9007199254740992, '9007199254740993')
    """
    return n if abs(n) <= MOST_EXACT else str(n)


def packed(numbers: Sequence[int]) -> list[int | list[int]]:
    """Numbers in their order, stretches of three and more neighbours as ``[first, how many]``: what lies in a row is short.

    >>> packed([7, 3, 4, 5, 9, 8, 7, 6, 1, 2])
    [7, [3, 3], [9, -4], 1, 2]
    """
    made: list[int | list[int]] = []
    at = 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 0
        stop = at + 1
        while step in (1, -1) and stop < len(numbers) and numbers[stop] - numbers[stop - 1] == step:
            stop += 1
        long = stop - at > 2
        made.append([numbers[at], (stop - at) * step] if long else numbers[at])
        at = stop if long else at + 1
    return made


def list_change(old: Blocks, new: Blocks) -> list[Any]:
    """How one list of distinct numbers becomes another.

    >>> list_change(np.array([1, 2, 3, 4, 5]), np.array([9, 3, 5, 1]))
    [2, [4], [9], [1]]
    >>> list_change(np.array([1, 2]), np.array([3]))
    [2, [], [3], []]
    """
    place = np.full(int(max(old.max(initial=-1), new.max(initial=-1))) + 1, -1)
    place[old] = np.arange(len(old))
    at = place[new]
    start, stop = _longest_ascending(at)
    if start == stop:
        return [len(old), [], packed(new.tolist()), []]
    stays = np.zeros(len(old), bool)
    stays[at[start:stop]] = True
    popped = int(at[start])
    dropped = old[popped:][~stays[popped:]]
    return [popped, *(packed(part.tolist()) for part in (dropped, new[:start], new[stop:]))]


def _longest_ascending(at: IntArray) -> tuple[int, int]:
    """The longest stretch of ascending numbers of 0 and more, the first of equals.

    >>> _longest_ascending(np.array([-1, 2, 4, 0])), _longest_ascending(np.array([1, 2, 0]))
    ((1, 3), (0, 2))
    """
    begins = np.ones(len(at) + 1, bool)
    begins[1:-1] = (at[:-1] < 0) | (np.diff(at) <= 0)
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts) * (at[starts[:-1]] >= 0)
    if not lengths.any():
        return 0, 0
    best = int(lengths.argmax())
    return int(starts[best]), int(starts[best + 1])


def _head(pool: Snapshot) -> IntArray:
    return np.array(pool.waiting[:MOST_WAITING], np.int64)


class Changes:
    """Writes one pool after the other; sequences are numbered as they first appear.

    Attributes
    ----------
    keys : list of Key
        The sequence behind each number.
    """

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._number: dict[Key, int] = {}
        self._last = EMPTY

    def to(self, pool: Snapshot) -> Change:
        """What changed since the last call."""
        last, self._last = self._last, pool
        change: Change = {"l": [exact(slots) for slots in pool.parts]} if pool.parts != last.parts else {}
        lists: dict[str, tuple[Blocks, Blocks]] = {"w": (_head(last), _head(pool)), "q": (last.queue, pool.queue)}
        for key, (before, after) in lists.items():
            if not np.array_equal(before, after):
                change[key] = list_change(before, after)
        if len(last.waiting) != len(pool.waiting):
            change["v"] = len(pool.waiting)
        was = last.findable if len(last.findable) else np.zeros_like(pool.findable)
        for key, blocks in (("d", pool.findable & ~was), ("e", was & ~pool.findable)):
            if blocks.any():
                change[key] = packed(np.flatnonzero(blocks).tolist())
        if pool.holes != last.holes:
            change["h"] = [list(hole) for hole in pool.holes]
        return change | self._rows(last.rows, pool.rows)

    def _rows(self, old: dict[Key, Row], new: dict[Key, Row]) -> Change:
        stay = {key: None for key, row in new.items() if key in old and old[key].admitted_us == row.admitted_us}
        come = [self._whole(key, row) for key, row in new.items() if key not in stay]
        grown = {key: new[key].computed - old[key].computed for key in stay}
        usual = Counter(grown.values()).most_common(1)[0][0] if grown else 0
        change = {
            "n": come, "x": [self._number[key] for key in old if key not in stay], "u": usual,
            "c": [[self._number[key], new[key].computed] for key in stay if grown[key] != usual],
            **self._tables(stay, old, new),
        }
        return {key: value for key, value in change.items() if value}

    def _whole(self, key: Key, row: Row) -> list[Any]:
        if key not in self._number:
            self._number[key] = len(self.keys)
            self.keys.append(key)
        return [self._number[key], exact(row.admitted_us), row.computed, row.end,
                packed(row.blocks) if row.place is None else list(row.place)]

    def _tables(self, stay: Iterable[Key], old: dict[Key, Row], new: dict[Key, Row]) -> Change:
        """Block tables that are others now: most have one block more."""
        ends: list[int] = []
        others: list[list[Any]] = []
        for key in stay:
            was, now = old[key].blocks, new[key].blocks
            if now != was and now[:-1] == was:
                ends += [self._number[key], now[-1]]
            elif now != was:
                pairs = enumerate(zip(was, now, strict=False))
                same = next((i for i, (one, two) in pairs if one != two), min(len(was), len(now)))
                others.append([self._number[key], same, packed(now[same:])])
        return {"a": ends, "b": others}
