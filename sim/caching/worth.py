"""Policies that weigh blocks: by what they were worth so far, and, as the bound, by when they are used next."""

from __future__ import annotations

import heapq

from sim.caching.policies import ByAccess
from sim.caching.stream import Accesses, next_query


class Gdsf(ByAccess):
    """GreedyDual-Size-Frequency: blocks of long prompts, used seldom, leave first.

    A block is worth its uses over the blocks of the request that brought it, plus the worth of the last one that left, so
    that what is not used any more grows old.
    """

    def __init__(self, size: int, stream: Accesses) -> None:
        super().__init__(size, stream)
        self._blocks = [int(end) - int(start) for start, end in zip(stream.starts[:-1], stream.starts[1:], strict=True)]
        self._cost = 1.0
        self._age = 0.0
        self._turn = 0
        self._now: dict[int, tuple[float, int, int, float]] = {}    # block -> worth, turn, uses, cost: its entry in the heap
        self._heap: list[tuple[float, int, int]] = []

    def begin(self, request: int) -> None:
        self._cost = 1 / max(self._blocks[request], 1)

    def access(self, block: int) -> bool:
        entry = self._now.get(block)
        if entry is None and len(self._now) == self.size:
            self._evict()
        uses, cost = (1, self._cost) if entry is None else (entry[2] + 1, entry[3])
        worth = self._age + uses * cost
        self._turn += 1
        self._now[block] = (worth, self._turn, uses, cost)
        heapq.heappush(self._heap, (worth, self._turn, block))
        return entry is not None

    def _evict(self) -> None:
        while True:
            worth, turn, block = heapq.heappop(self._heap)
            if block in self._now and self._now[block][1] == turn:  # an older entry of a block that was used since is stale
                del self._now[block]
                self._age = worth
                return


class Belady(ByAccess):
    """The bound: the block whose next lookup is farthest away leaves, or does not come in at all (Belady 1966)."""

    def __init__(self, size: int, stream: Accesses) -> None:
        super().__init__(size, stream)
        self._next = next_query(stream).tolist()
        self._at = -1
        self._due: dict[int, int] = {}                 # block -> its next use
        self._heap: list[tuple[int, int]] = []         # (-next use, block)

    def access(self, block: int) -> bool:
        self._at += 1
        hit = block in self._due
        due = self._next[self._at]
        if hit:
            del self._due[block]
        if due == len(self._next):                     # never again
            return hit
        while not hit and len(self._due) >= self.size:
            farthest, victim = self._heap[0]
            if self._due.get(victim) != -farthest:
                heapq.heappop(self._heap)
            elif -farthest <= due:
                return hit
            else:
                heapq.heappop(self._heap)
                del self._due[victim]
        self._due[block] = due
        heapq.heappush(self._heap, (-due, block))
        return hit
