"""Prefix caching with a tier in host memory: evicted blocks move down, and come back when a request asks for them.

    prompt     | a0   a1   a2 | a3   a4 | a5 ...            lookup: the leading run on the GPU, then the tier from there on
                 on the GPU     on the    nowhere
                 touched        host      computed
    table      [  4    9    2   17   18   30 ]              17 and 18 are new blocks, loaded and findable at admission

The pool and its free queue are as without a tier: a block that is loaded is taken like one that is computed. So the tier
changes what has to be computed and how long a step takes, and neither who fits nor what is evicted. Moving down is free.
"""

from __future__ import annotations

import numpy as np

from sim.demand import Demand
from sim.memory.allocator import Ask, Prefix
from sim.memory.host_tier import HostTier
from sim.memory.paged import PagedAllocator
from sim.memory.prefix_index import BlockIds
from workloads.request import IntArray


class TieredAllocator(PagedAllocator):
    """`PagedAllocator` with caching and a `HostTier` behind its pool.

    Parameters
    ----------
    demand : Demand
    num_blocks, block_size : int
        As of `BlockTables`.
    tier_blocks : int
        Blocks of the tier, at least 1.
    split_freed : bool
        See `BlockPool`.

    Attributes
    ----------
    tier : HostTier
    """

    def __init__(self, demand: Demand, num_blocks: int, block_size: int, tier_blocks: int, split_freed: bool = True) -> None:
        super().__init__(demand, num_blocks, block_size, caching=True, split_freed=split_freed)
        assert self.hashes is not None
        self.tier = HostTier(tier_blocks, max(1, self.hashes.count))
        self._wrote: IntArray = np.full(max(1, self.hashes.count), -1, np.int64)    # by content, who wrote what moved down
        self.pool.watch(self._moves_down)

    def start_counting(self) -> None:
        super().start_counting()
        self.tier.start_counting()

    def find_prefix(self, request: int, tokens: int) -> Prefix:
        assert self.hashes is not None
        full = self._findable(request, tokens - 1)
        blocks = self._lookup(request, full)
        loads = self.tier.leading(self.hashes.span(request, len(blocks), full))
        return Prefix((len(blocks) + loads) * self.block_size, blocks, loads)

    def admit(self, ask: Ask) -> int | None:
        loads, first = ask.prefix.loads, len(ask.prefix.blocks)
        if not loads:
            return super().admit(ask)
        if not self.fits(ask):
            return None
        assert self.hashes is not None and self.stats is not None
        found = self.hashes.span(ask.request, first, first + loads)
        writers = self._wrote[found]
        self.tier.renew(found)                         # before the room made for them moves other contents down
        handle = super().admit(ask)
        assert handle is not None
        self.stats.loaded(ask, writers)
        shared = max(int(self.hashes.shared[ask.request]) - first, 0)
        self.stats.wrote(self.table(handle)[first:first + loads][:shared], writers[:shared])
        return handle

    def _moves_down(self, blocks: BlockIds) -> None:
        hashes = self.pool.written(blocks)
        self._wrote[hashes] = self.writers(blocks)
        self.tier.put(hashes)
