"""When the last blocks of the running sequences are full: one page for each step of a block's length.

    decode clock   ... 30   31   32   33 ...          with blocks of 4
    page                2    3    0    1
                       s7   s3   s9                   s9 has filled its block when the clock shows 32, and again at 36, 40, ...
                       s2

A sequence that computes a token in each step stays on its page, so nobody is looked at who needs no block. On a page the
sequences stand in running order.
"""

from __future__ import annotations

from sim.memory.allocator import Due
from workloads.request import IntArray


class BlockCalendar:
    """Handles of sequences by the step that fills their block.

    Parameters
    ----------
    size : int
        Tokens a block.

    Examples
    --------
    >>> calendar = BlockCalendar(4)
    >>> calendar.add(9, 32); calendar.add(7, 30); calendar.add(2, 30)
    >>> calendar.due(30, 2)                            # full at 30, at 31 and at 32
    [[7, 2], [], [9]]
    >>> calendar.strike(7, 30); calendar.due(34, 0)
    [[2]]
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.members = 0
        self._pages: list[list[int]] = [[] for _ in range(size)]

    def add(self, handle: int, clock: int) -> None:
        """A sequence behind all others, whose block is full when the decode clock shows ``clock``, be that past."""
        self._pages[clock % self.size].append(handle)
        self.members += 1

    def strike(self, handle: int, clock: int) -> None:
        """One that was added with this clock, or one a block apart, is gone."""
        self._pages[clock % self.size].remove(handle)
        self.members -= 1

    def due(self, clock: int, steps: int) -> Due:
        """Whose block is full now, and after each of the next ``steps`` steps (not to be written into)."""
        pages, size = self._pages, self.size
        return [pages[at % size] for at in range(clock, clock + steps + 1)]


class Some:
    """Any sequences, in running order.

    >>> import numpy as np
    >>> Some(np.array([4, 7, 9]), np.array([16, 14, 15])).due(8, 2)
    [[4], [9], [7]]
    """

    def __init__(self, handle: IntArray, computed: IntArray) -> None:
        self.handle = handle
        self.computed = computed

    def __len__(self) -> int:
        return len(self.handle)

    def due(self, size: int, steps: int) -> Due:
        """See `Decoding`."""
        calendar = BlockCalendar(size)
        for handle, computed in zip(self.handle.tolist(), self.computed.tolist(), strict=True):
            calendar.add(handle, -computed)
        return calendar.due(0, steps)
