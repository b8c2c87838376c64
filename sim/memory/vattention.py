"""Virtual-contiguous allocation: physical pages behind one long run of addresses for each sequence, as in vAttention.

    request 4   addresses  [ K of token 0, 1, 2, ...                                        max_model_len ]   one layer
                pages      [    17    |    3    |  not mapped: no memory                                  ]

Each layer has such a run for K and one for V, and they are backed page by page as a sequence grows, so a page of ``block_size``
tokens is to the pool what a block is (`kv_formula.tokens_per_page`). The large pages of a GPU are hundreds of tokens: what is
lost is the end of the last one. Slots of the pool that make no whole page are never used; the ledger has them under external
fragmentation. Nothing is shared: every sequence of a request has pages of its own, those of the prompt from its admission on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.demand import Demand
from sim.memory.paged import PagedAllocator


class PageAllocator(PagedAllocator):
    """Block tables whose blocks are pages.

    Parameters
    ----------
    demand : Demand
    slots : int
        Slots of the pool; ``slots % page_slots`` of them are never used.
    page_slots : int
        Tokens a page.
    split_freed : bool
        See `BlockPool`.
    """

    reserves_ahead = True

    def __init__(self, demand: Demand, slots: int, page_slots: int, split_freed: bool = True) -> None:
        super().__init__(demand, slots // page_slots + 1, page_slots, caching=False, split_freed=split_freed)
        self.rest = slots % page_slots
        self.capacity = slots

    def impossible(self) -> NDArray[np.bool_]:
        sequences = 1 if self.demand.sequences is None else self.demand.sequences
        beyond: NDArray[np.bool_] = -(-self.demand.end // self.block_size) * self.block_size * sequences > self.capacity
        return beyond

    def fork(self, handle: int) -> int | None:
        """See `Allocator.fork`: a copy in pages of its own, with room for the prompt."""
        self._check(handle)
        request = int(self._request[handle])
        child = self.restore(request, max(int(self._filled[handle]), int(self.demand.prompt[request])))
        self.copies += child is not None
        return child
