"""A pool as what changed since the frame before it, in short keys: what a page keeps of each frame.

    l  the seven parts, in slots                 w, v  the first of the waiting queue; how many wait
    n  sequences that are new, x  that are gone  u  tokens each of the others computed, c  those that computed another number
    b  block tables from a place on              q  the free queue           d, e  blocks findable now, and no longer
    h  holes of the arena

Lists that are used at both ends are written as ``[popped, dropped, front, back]``: the old list without its first ``popped`` and
without ``dropped``, between ``front`` and ``back``. What has not changed is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.html.page import MOST_EXACT
from experiments.viewer.snapshot import Key, Row, Snapshot

EMPTY = Snapshot({}, (), (), frozenset(), (), ())
MOST_WAITING = 40
Change = dict[str, Any]


def exact(n: int) -> int | str:
    """A number that JavaScript can hold; as text where it would round it.

    >>> exact(2**53), exact(2**53 + 1)
    (9007199254740992, '9007199254740993')
    """
    return n if abs(n) <= MOST_EXACT else str(n)


def list_change(old: Sequence[int], new: Sequence[int]) -> list[Any]:
    """How one list of distinct numbers becomes another.

    >>> list_change([1, 2, 3, 4, 5], [9, 3, 5, 1])
    [2, [4], [9], [1]]
    >>> list_change([1, 2], [3])
    [2, [], [3], []]
    """
    start, stop = _longest_in_order(old, new)
    stay = new[start:stop]
    if not stay:
        return [len(old), [], list(new), []]
    popped, among = old.index(stay[0]), set(stay)
    return [popped, [one for one in old[popped:] if one not in among], list(new[:start]), list(new[stop:])]


def _longest_in_order(old: Sequence[int], new: Sequence[int]) -> tuple[int, int]:
    """The longest stretch of ``new`` whose numbers stand in ``old`` in the same order."""
    place = {one: i for i, one in enumerate(old)}
    best, start, last = (0, 0), 0, -1
    for i, one in enumerate(new):
        at = place.get(one, -1)
        if at < 0 or at <= last:
            start = i if at >= 0 else i + 1
        last = at
        if i + 1 - start > best[1] - best[0]:
            best = (start, i + 1)
    return best


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
        old, new = last.waiting[:MOST_WAITING], pool.waiting[:MOST_WAITING]
        for key, before, after in (("w", old, new), ("q", last.queue, pool.queue)):
            if before != after:
                change[key] = list_change(before, after)
        if len(last.waiting) != len(pool.waiting):
            change["v"] = len(pool.waiting)
        if pool.findable != last.findable:
            change |= {"d": sorted(pool.findable - last.findable), "e": sorted(last.findable - pool.findable)}
        if pool.holes != last.holes:
            change["h"] = [list(hole) for hole in pool.holes]
        return change | self._rows(last.rows, pool.rows)

    def _rows(self, old: dict[Key, Row], new: dict[Key, Row]) -> Change:
        stay = [key for key, row in new.items() if key in old and old[key].admitted_us == row.admitted_us]
        come = [self._whole(key, row) for key, row in new.items() if key not in stay]
        grown = {key: new[key].computed - old[key].computed for key in stay}
        usual = Counter(grown.values()).most_common(1)[0][0] if grown else 0
        change = {
            "n": come, "x": [self._number[key] for key in old if key not in stay], "u": usual,
            "c": [[self._number[key], new[key].computed] for key in stay if grown[key] != usual],
            "b": [self._table(key, old[key].blocks, new[key].blocks) for key in stay if old[key].blocks != new[key].blocks],
        }
        return {key: value for key, value in change.items() if value}

    def _whole(self, key: Key, row: Row) -> list[Any]:
        if key not in self._number:
            self._number[key] = len(self.keys)
            self.keys.append(key)
        return [self._number[key], exact(row.admitted_us), row.computed, row.end,
                list(row.blocks) if row.place is None else list(row.place)]

    def _table(self, key: Key, old: tuple[int, ...], new: tuple[int, ...]) -> list[Any]:
        same = next((i for i, (one, two) in enumerate(zip(old, new, strict=False)) if one != two), min(len(old), len(new)))
        return [self._number[key], same, list(new[same:])]
