"""The pool at one moment: who holds which blocks or addresses, what is free and in what order, who waits, and the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.memory.contiguous import ContiguousAllocator
from sim.memory.paged import PagedAllocator
from sim.memory.prefix_index import NO_HASH
from sim.scheduler import Scheduler
from workloads.request import IntArray

Drawn = PagedAllocator | ContiguousAllocator
Key = tuple[int, int]
"""Row of the trace, and which of its sequences: 0 for the first."""
NO_BLOCKS, NO_MARKS = np.zeros(0, np.int64), np.zeros(0, bool)


class Place(NamedTuple):
    """A reservation: start address, slots asked for, and what they were rounded up to."""

    start: int
    size: int
    rounded: int


@dataclass(frozen=True)
class Row:
    """A sequence that holds memory.

    Parameters
    ----------
    admitted_us : int
        When the step began that admitted it, the last time if it was preempted.
    computed, end : int
        Token states now, and at its end.
    blocks : tuple of int
        Its block table; empty for a reservation.
    place : Place, optional
        Its reservation.
    """

    admitted_us: int
    computed: int
    end: int
    blocks: tuple[int, ...] = ()
    place: Place | None = None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of one allocator and its scheduler; ``rows`` in running order. What a large pool has much of is in arrays.

    Parameters
    ----------
    rows : dict of Key to Row
    waiting : tuple of int
        Requests, the head first.
    queue : int array
        The free queue: blocks in the order they will be handed out.
    findable : bool array, by block id
        Whether a prefix lookup can find a block's content.
    holes : tuple of (start, size)
        Of an arena.
    parts : tuple of int
        The seven parts of the ledger, in slots.
    """

    rows: dict[Key, Row]
    waiting: tuple[int, ...]
    queue: IntArray
    findable: NDArray[np.bool_]
    holes: tuple[tuple[int, int], ...]
    parts: tuple[int, ...]

    def holders(self, blocks: Iterable[int]) -> dict[int, list[Key]]:
        """For each of these blocks who holds it: as many as its ref count says."""
        held: dict[int, list[Key]] = {block: [] for block in blocks}
        wanted = set(held)
        for key, row in self.rows.items():
            for block in wanted.intersection(row.blocks):
                held[block].append(key)
        return held


def look(allocator: Drawn, scheduler: Scheduler, admitted_us: Mapping[int, int]) -> Snapshot:
    """The pool as it is now.

    Parameters
    ----------
    admitted_us : mapping of request to int
        When each running request was admitted.
    """
    parts = tuple(int(slots) for slots in allocator.counts(scheduler.computed, scheduler.refused))
    rows, waiting = _rows(allocator, scheduler, admitted_us), tuple(scheduler.waiting)
    if isinstance(allocator, ContiguousAllocator):
        return Snapshot(rows, waiting, NO_BLOCKS, NO_MARKS, tuple(allocator.arena.holes()), parts)
    pool = allocator.pool
    return Snapshot(rows, waiting, pool.free_queue(), pool.hash_of != NO_HASH, (), parts)


def _rows(allocator: Drawn, scheduler: Scheduler, admitted_us: Mapping[int, int]) -> dict[Key, Row]:
    batch = scheduler.running
    columns = (batch.request, batch.member, batch.handle, batch.computed, batch.end)
    rows: dict[Key, Row] = {}
    for request, member, handle, computed, end in zip(*(column.tolist() for column in columns), strict=True):
        rows[request, member] = _row(allocator, handle, admitted_us[request], computed, end)
        ahead = [] if scheduler.groups is None else scheduler.groups.ahead_of(request)
        for later, reserved in enumerate(ahead, 1):    # room that its other sequences have before they begin
            rows[request, later] = _row(allocator, reserved, admitted_us[request], 0, end)
    return rows


def _row(allocator: Drawn, handle: int, admitted_us: int, computed: int, end: int) -> Row:
    if isinstance(allocator, PagedAllocator):
        return Row(admitted_us, computed, end, tuple(allocator.table(handle).tolist()))
    start, size = allocator.placed(handle)
    return Row(admitted_us, computed, end, place=Place(start, size, allocator.arena.rounded(size)))
