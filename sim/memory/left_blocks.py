"""Where the private blocks of preempted requests lie: they are found again by nobody else, so no index needs to know them.

    preempted, first stay     [ 7 | 8 | 9 ]          its blocks behind the shared ones; in the pool they may be evicted
    second stay               [ 7 | 4 | 5 ]          8 was gone, so 4 and 5 were filled anew, 9 is still cached
    lookup                      7   4   9            of several blocks the one that was findable first (rule 6)

A block counts only while the pool says that it still has the hash in question.
"""

from __future__ import annotations

import numpy as np

from sim.memory.block_pool import NO_HASH, BlockIds, BlockPool
from workloads.request import IntArray


class LeftBlocks:
    """The block tables of the stays of each preempted request, behind its shared blocks, the oldest first.

    Parameters
    ----------
    pool : BlockPool
        Is asked which blocks still have their hash; never changed.

    Examples
    --------
    >>> pool = BlockPool(10, caching=True)
    >>> left = LeftBlocks(pool)
    >>> table, again = pool.take(3), pool.take(3)
    >>> pool.mark(table, np.array([50, 51, 52])); pool.mark(again, np.array([50, 51, 52]))
    >>> left.note(0, table, kept=0); left.note(0, again, kept=0)
    >>> pool.mark(table[:1], np.array([77]))
    >>> left.lookup(0, np.array([50, 51, 52])).tolist()        # 1 has another content now
    [4, 2, 3]
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._stays: dict[int, list[BlockIds]] = {}

    def __contains__(self, request: int) -> bool:
        return request in self._stays

    def note(self, request: int, blocks: BlockIds, kept: int) -> None:
        """A stay is over and the request will come back; the first ``kept`` of its private blocks were found, not filled anew."""
        stays = self._stays.setdefault(request, [])
        for earlier in stays:                          # a block filled anew is findable since then, not since the stay before
            n = min(len(earlier), len(blocks))
            same = earlier[kept:n] == blocks[kept:n]
            earlier[kept:n][same] = 0
        stays.append(blocks.copy())

    def lookup(self, request: int, hashes: IntArray) -> BlockIds:
        """The blocks that hold the longest run of these private hashes, the first of which is the request's first."""
        found: BlockIds = np.full(len(hashes), NO_HASH, np.int64)
        for blocks in self._stays[request]:
            n = min(len(blocks), len(hashes))
            here = (found[:n] == NO_HASH) & (self._pool.hash_of[blocks[:n]] == hashes[:n])
            found[:n][here] = blocks[:n][here]
        missing = found == NO_HASH
        return found[: missing.argmax()] if np.count_nonzero(missing) else found

    def forget(self, request: int) -> None:
        """The request has ended."""
        self._stays.pop(request, None)
