"""Preemption by swap: a host pool to which the blocks of a preempted request are copied, and from which it goes on.

    GPU pool   [ 7 | 8 | 21 ]  --- preempt --->   host pool, 3 of N blocks   --- head of the queue, room --->   [ 4 | 5 | 30 ]

Each of a request's sequences is copied for itself, so what they shared is not shared afterwards. Where the host pool has no
room, or the GPU pool none for the copies at their full lengths, the request is preempted by recompute. Coming back takes one
engine step and no watermark is kept; what a copy costs in time is not modelled.
"""

from __future__ import annotations

from sim.memory.allocator import NO_PREFIX, Allocator, Ask

Row = tuple[int, int]                                  # computed tokens, tokens to compute before the next is sampled


class HostPool:
    """Blocks on the host: ``size`` of them, ``used`` by requests that were swapped out, ``swaps`` in all.

    Parameters
    ----------
    size, block_size : int
        Blocks, and tokens a block.
    """

    def __init__(self, size: int, block_size: int) -> None:
        self.size = size
        self.used = self.swaps = 0
        self._block_size = block_size
        self._stays: dict[int, list[Row]] = {}

    def __contains__(self, request: int) -> bool:
        return request in self._stays

    def slots(self, request: int) -> int:
        """Slots that a request will need to come back."""
        return self._blocks(self._stays[request]) * self._block_size

    def take(self, request: int, rows: list[Row], end: int, allocator: Allocator) -> bool:
        """Note the sequences of a request that gives its blocks back; False where they cannot be kept, or never reach ``end``."""
        blocks, at_end = self._blocks(rows), self._blocks([(end, 0)] * len(rows))
        if self.used + blocks > self.size or at_end * self._block_size > allocator.capacity:
            return False
        self._stays[request] = rows
        self.used += blocks
        self.swaps += 1
        return True

    def give_back(self, request: int, allocator: Allocator) -> list[tuple[int, int, int]] | None:
        """The sequences again, as (handle, computed, target), in new blocks; None, nothing done, where they do not fit."""
        slots = self.slots(request)
        if not allocator.fits(Ask(request, slots, NO_PREFIX, slots, whole=False)):
            return None
        self.used -= slots // self._block_size
        made: list[tuple[int, int, int]] = []
        for computed, target in self._stays.pop(request):
            handle = allocator.restore(request, computed)
            assert handle is not None
            made.append((handle, computed, target))
        return made

    def _blocks(self, rows: list[Row]) -> int:
        return sum(-(-computed // self._block_size) for computed, _ in rows)
