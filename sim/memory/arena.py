"""One address space with real holes: where a contiguous reservation is placed.

    address 0                                                             capacity
            [ a a a a ][ . . hole . . ][ b b ][ c c c c c c ][ . . . hole . . . ]

Two kinds of arena. A `FitArena` keeps its holes in address order and takes the first, or the tightest, that fits. A
`BuddyArena` deals in powers of two, as the Orca baselines of the PagedAttention paper do (section 6.1): sizes are
rounded up, a block is split in halves until it fits, and a freed half merges with its free buddy at once. A pool that is
no power of two is cut greedily into aligned blocks, largest first; buddies never merge across those cuts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Protocol


class Arena(Protocol):
    """Places and frees runs of addresses; all sizes in slots."""

    capacity: int
    free: int
    """Free addresses; what rounding adds to a reservation is not free."""

    def rounded(self, size: int) -> int:
        """What a reservation of ``size`` slots really takes; an empty arena has room for ``capacity // rounded(size)``."""
        ...

    def fits(self, size: int) -> bool:
        """Whether `place` would succeed now."""
        ...

    def place(self, size: int) -> int | None:
        """Reserve ``size`` slots; the start address, or None."""
        ...

    def release(self, start: int, size: int) -> None:
        """Free a reservation made by `place` with the same size."""
        ...

    def largest_hole(self) -> int:
        """The longest run of free addresses that a reservation could use (buddy: the largest free block)."""
        ...

    def holes(self) -> list[tuple[int, int]]:
        """Start address and size of every free run (buddy: free block) that a reservation could use, by address."""
        ...


class FitArena:
    """Holes in address order; first fit, or best fit (ties: lowest address).

    Examples
    --------
    >>> arena = FitArena(10, best=False)
    >>> [arena.place(n) for n in (4, 3, 3)]
    [0, 4, 7]
    >>> arena.release(4, 3)
    >>> arena.place(4) is None, arena.largest_hole(), arena.holes()
    (True, 3, [(4, 3)])
    """

    def __init__(self, capacity: int, best: bool) -> None:
        if capacity < 0:
            raise ValueError(f"capacity must be 0 or more slots, not {capacity}")
        self.capacity = self.free = capacity
        self._best = best
        self._starts: list[int] = [0] if capacity else []
        self._sizes: list[int] = [capacity] if capacity else []

    def rounded(self, size: int) -> int:
        return size

    def largest_hole(self) -> int:
        return max(self._sizes, default=0)

    def holes(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._sizes, strict=True))

    def fits(self, size: int) -> bool:
        return size <= self.largest_hole()

    def place(self, size: int) -> int | None:
        fitting = (i for i, hole in enumerate(self._sizes) if hole >= size)
        i = min(fitting, key=self._sizes.__getitem__, default=None) if self._best else next(fitting, None)
        if i is None:
            return None
        start = self._starts[i]
        self.free -= size
        if self._sizes[i] == size:
            del self._starts[i], self._sizes[i]
        else:
            self._starts[i] += size
            self._sizes[i] -= size
        return start

    def release(self, start: int, size: int) -> None:
        i = bisect_left(self._starts, start)
        stop = start + size
        if (i and self._starts[i - 1] + self._sizes[i - 1] > start) or (i < len(self._starts) and self._starts[i] < stop):
            raise ValueError(f"double free of slots {start} to {stop - 1}")
        self.free += size
        if i < len(self._starts) and self._starts[i] == stop:      # merge with the hole behind
            stop += self._sizes[i]
            del self._starts[i], self._sizes[i]
        if i and self._starts[i - 1] + self._sizes[i - 1] == start:  # and with the one before
            i -= 1
            start = self._starts[i]
            del self._starts[i], self._sizes[i]
        self._starts.insert(i, start)
        self._sizes.insert(i, stop - start)


class BuddyArena:
    """Powers of two: the smallest free block that fits, lowest address first; splits keep the lower half.

    Examples
    --------
    >>> arena = BuddyArena(20)               # cut as 16 + 4
    >>> [arena.place(n) for n in (7, 5, 3, 1)]
    [0, 8, 16, None]
    >>> arena.release(0, 7)
    >>> arena.largest_hole(), arena.free, arena.holes()
    (8, 8, [(0, 8)])
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"capacity must be 0 or more slots, not {capacity}")
        self.capacity = self.free = capacity
        self._free: list[list[int]] = [[] for _ in range(capacity.bit_length())]    # order -> addresses, ascending
        start = 0
        for order in reversed(range(capacity.bit_length())):
            if capacity >> order & 1:
                self._free[order].append(start)
                start += 1 << order

    @staticmethod
    def _order(size: int) -> int:
        return (size - 1).bit_length()

    def rounded(self, size: int) -> int:
        return 1 << self._order(size)

    def largest_hole(self) -> int:
        return next((1 << order for order in reversed(range(len(self._free))) if self._free[order]), 0)

    def holes(self) -> list[tuple[int, int]]:
        return sorted((start, 1 << order) for order, starts in enumerate(self._free) for start in starts)

    def fits(self, size: int) -> bool:
        return self.rounded(size) <= self.largest_hole()

    def place(self, size: int) -> int | None:
        want = self._order(size)
        order = next((o for o in range(want, len(self._free)) if self._free[o]), None)
        if order is None:
            return None
        start = self._free[order].pop(0)
        while order > want:                            # split: keep the lower half, free the upper
            order -= 1
            insort(self._free[order], start + (1 << order))
        self.free -= 1 << want
        return start

    def release(self, start: int, size: int) -> None:
        order = self._order(size)
        if self._is_free(start, order):
            raise ValueError(f"double free of slots {start} to {start + size - 1}")
        self.free += 1 << order
        while order + 1 < len(self._free):
            # The cuts are powers of two in falling order, so a buddy beyond a cut is never a free block of this order.
            buddy = start ^ (1 << order)
            place = bisect_left(self._free[order], buddy)
            if place == len(self._free[order]) or self._free[order][place] != buddy:
                break
            del self._free[order][place]
            start = min(start, buddy)
            order += 1
        insort(self._free[order], start)

    def _is_free(self, start: int, order: int) -> bool:
        """Whether a free block covers ``start``: it would be an aligned block of this order or a larger one."""
        for o in range(order, len(self._free)):
            block = start >> o << o
            place = bisect_left(self._free[o], block)
            if place < len(self._free[o]) and self._free[o][place] == block:
                return True
        return False


PLACEMENTS: dict[str, Callable[[int], Arena]] = {
    "buddy": BuddyArena,
    "first-fit": lambda capacity: FitArena(capacity, best=False),
    "best-fit": lambda capacity: FitArena(capacity, best=True),
}
"""Name -> arena over a number of slots."""
