"""Where the private blocks of preempted requests lie: they are found again by nobody else, so no index needs to know them.

    preempted, first stay     [ 7 | 8 | 9 ]          its blocks behind the shared ones; in the pool they may be evicted
    second stay               [ 7 | 4 | 5 ]          8 was gone, so 4 and 5 were filled anew, 9 is still cached
    kept of both              [ 7 | 4 | 9 ]          for each place the blocks that still hold its content,
                              [ . | . | 5 ]          the one that was findable first on top (rule 6)

A block counts only while the pool says that it still has the hash in question.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.memory.block_pool import BlockPool
from sim.memory.prefix_index import BlockIds
from workloads.request import IntArray


class LeftBlocks:
    """For each preempted request the blocks of its stays, behind its shared ones: a matrix, places by age.

    Parameters
    ----------
    pool : BlockPool
        Is asked which blocks still have their hash; never changed.

    Examples
    --------
    >>> pool = BlockPool(10, caching=True)
    >>> left, hashes = LeftBlocks(pool), np.array([50, 51, 52])
    >>> table, again = pool.take(3), pool.take(3)
    >>> pool.mark(table, hashes); pool.mark(again, hashes)
    >>> left.note(0, table, 0, hashes); left.note(0, again, 0, hashes)
    >>> pool.mark(table[:1], np.array([77]))
    >>> left.lookup(0, hashes).tolist()                        # 1 has another content now
    [4, 2, 3]
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._blocks: dict[int, BlockIds] = {}

    def __contains__(self, request: int) -> bool:
        return request in self._blocks

    def note(self, request: int, blocks: BlockIds, kept: int, hashes: IntArray) -> None:
        """A stay is over and the request will come back.

        ``blocks`` are its private ones, ``hashes`` what they hold when full; the first ``kept`` were found, not filled anew.
        """
        older = self._blocks.get(request)
        if older is not None and len(older) == 1 and np.array_equal(older[0, : len(blocks)], blocks):
            return                                     # the same again: found as it was left, or held by several sequences
        rows = blocks[None, :] if older is None else self._beneath(older, blocks, kept)
        there = self._holding(rows, hashes)
        if len(rows) > 1:                              # what is gone leaves its place to the next
            order = (~there).argsort(axis=0, kind="stable")
            rows, there = np.take_along_axis(rows, order, axis=0), np.take_along_axis(there, order, axis=0)
        self._blocks[request] = np.where(there, rows, 0)[: max(int(there.sum(axis=0).max(initial=0)), 1)]

    @staticmethod
    def _beneath(older: BlockIds, blocks: BlockIds, kept: int) -> BlockIds:
        """A row for the blocks of this stay beneath those of the stays before it; what was found stands there already."""
        rows = np.zeros((len(older) + 1, max(older.shape[1], len(blocks))), np.int64)
        rows[:-1, : older.shape[1]] = older
        above = rows[:-1, kept:len(blocks)]
        above[above == blocks[kept:]] = 0              # a block filled anew is findable since then, not since the stay before
        rows[-1, kept:len(blocks)] = blocks[kept:]
        return rows

    def _holding(self, rows: BlockIds, hashes: IntArray) -> NDArray[np.bool_]:
        """Which of these blocks hold the content of their place, as far as that is known; shape of ``rows``."""
        n = min(rows.shape[1], len(hashes))
        there: NDArray[np.bool_] = rows != 0
        there[:, :n] = self._pool.written(rows[:, :n]) == hashes[:n]
        return there

    def lookup(self, request: int, hashes: IntArray) -> BlockIds:
        """The blocks that hold the longest run of these private hashes, the first of which is the request's first."""
        rows = self._blocks[request][:, : len(hashes)]
        there = self._holding(rows, hashes)
        missing = (~there.any(axis=0)).tobytes().find(1)
        n = rows.shape[1] if missing < 0 else missing
        found: BlockIds = rows[there[:, :n].argmax(axis=0), np.arange(n)]
        return found

    def forget(self, request: int) -> None:
        """The request has ended."""
        self._blocks.pop(request, None)
