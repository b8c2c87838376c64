"""Copy-on-write: who must copy, and what the ledger must not count twice.

Sequences of one request that were forked hold the same blocks. Full blocks stay shared; a last block that is only partly
filled cannot: the first to write into it takes a copy, and so on until one holder is left, who writes in place.

    before   a [ 7 | 8 | 21 ]      21 holds 9 tokens of 16, ref count 3
             b [ 7 | 8 | 21 ]
             c [ 7 | 8 | 21 ]
    a step   a [ 7 | 8 | 40 ]      copy, ref count of 21 is 2
             b [ 7 | 8 | 41 ]      copy, ref count of 21 is 1
             c [ 7 | 8 | 21 ]      in place
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.request import IntArray


def writers_that_copy(blocks: IntArray, ref: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which of these writers, in this order, need a copy of the block each is about to write into.

    Examples
    --------
    Three holders of block 2 write, two of the three holders of block 1:

    >>> writers_that_copy(np.array([2, 1, 2, 2, 1]), np.array([0, 3, 3])).tolist()
    [True, True, True, False, True]
    """
    place = np.arange(len(blocks))
    order = np.argsort(blocks, kind="stable")
    ordered = blocks[order]
    starts = np.ones(len(blocks), bool)
    starts[1:] = ordered[1:] != ordered[:-1]
    left_before = place - np.maximum.accumulate(np.where(starts, place, 0))
    copies = np.zeros(len(blocks), bool)
    copies[order] = ref[ordered] - left_before > 1
    return copies


class SharedEnds:
    """Partly filled blocks held by more than one sequence; all holders of such a block have filled it equally far.

    Attributes
    ----------
    extra : int
        Holders beyond the first of each, summed over the blocks: while 0, nobody who writes need copy.
    empty, reserved : int
        Their slots without a computed token, and those of them that will be filled, once for each extra holder.
    """

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self.extra = self.empty = self.reserved = 0

    def join(self, filled: IntArray, end: IntArray) -> None:
        """One more holder each: sequences with ``filled`` computed tokens that will end with ``end``."""
        self._add(1, filled, end)

    def leave(self, filled: IntArray, end: IntArray) -> None:
        """One holder each goes, others stay."""
        self._add(-1, filled, end)

    def _add(self, sign: int, filled: IntArray, end: IntArray) -> None:
        inside = filled % self._size
        will_fill = np.minimum(end - filled + inside, self._size)
        self.extra += sign * len(filled)
        self.empty += sign * int(np.add.reduce(self._size - inside))
        self.reserved += sign * int(np.add.reduce(will_fill - inside))
