"""Paged allocation that never preempts: all blocks a request may come to need are taken when it is admitted.

    request 4   block table [ 7 | 8 | 21 | 22 | 23 | 24 ]      prompt and max_tokens, whatever will come of them

This is the guaranteed-no-evict policy of TensorRT-LLM's scheduler, without reuse of prefixes. Blocks need not lie in a row, so
nothing is lost between reservations, but all that the output does not fill is. A request of P prompt tokens that may generate M
reserves room for P + M - 1 token states, as the last token is never computed; where M is not known, or larger, for all that
``max_model_len`` leaves. Sequences of one request share nothing: each has a reservation of its own, as contiguous ones have.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.demand import Demand
from sim.memory.allocator import NO_PREFIX, Ask, RoomIsThere
from sim.memory.paged import PagedAllocator
from workloads.request import IntArray


class ReservingAllocator(RoomIsThere, PagedAllocator):
    """Block tables that have their full length from the start; made like `BlockTables`, without caching.

    Attributes
    ----------
    reservation : int64, shape (requests,)
        Slots that one sequence of each request takes, whole blocks.
    """

    reserves_ahead = True

    def __init__(self, demand: Demand, num_blocks: int, block_size: int, split_freed: bool = True) -> None:
        super().__init__(demand, num_blocks, block_size, caching=False, split_freed=split_freed)
        self.reservation: IntArray = -(-demand.most // block_size) * block_size

    def _longest(self, demand: Demand) -> IntArray:
        return demand.most

    def impossible(self) -> NDArray[np.bool_]:
        sequences = 1 if self.demand.sequences is None else self.demand.sequences
        beyond: NDArray[np.bool_] = self.reservation * sequences > self.capacity
        return beyond

    def need(self, ask: Ask) -> int:
        return int(self.reservation[ask.request])

    def admit(self, ask: Ask) -> int | None:
        return super().admit(ask._replace(tokens=self.need(ask)))

    def restore_need(self, tokens: int, request: int | None = None) -> int:
        return super().restore_need(tokens) if request is None else int(self.reservation[request])

    def restore(self, request: int, tokens: int) -> int | None:
        blocks = int(self.reservation[request]) // self.block_size
        return None if blocks > self.pool.free else self._seat(request, NO_PREFIX.blocks, blocks * self.block_size)

    def fork(self, handle: int) -> int | None:
        """See `Allocator.fork`: a copy in a reservation of its own."""
        self._check(handle)
        child = self.restore(int(self._request[handle]), 1)
        self.copies += child is not None
        return child
