"""Where every slot of a pool is: its address space as one array of part numbers, and the same in cells for a picture.

    contiguous-max   [ 0 0 0 0 1 1 2 2 2 2 | 0 0 1 1 1 2 2 2 2 2 | 4 4 4 ]       by address; numbers are places in PARTS
    paged            [ 0 0 0 0 | 0 0 1 2 | 6 6 6 6 | 0 0 0 0 | 3 3 3 3 ]         block after block, from block 1 on

Counted, the numbers are the seven parts of the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from sim.memory.allocator import PARTS, Allocator, Refusal
from sim.memory.contiguous import ContiguousAllocator
from sim.memory.paged import PagedAllocator
from sim.memory.prefix_index import NO_HASH
from sim.scheduler import Scheduler

TOKEN_STATES, RESERVED, INTERNAL, CACHED, EXTERNAL, REMAINDER, IDLE = range(len(PARTS))
Parts = NDArray[np.uint8]
Sequence = tuple[int, int, int]
"""Handle, computed tokens now, token states at the end."""


def slot_map(allocator: Allocator, scheduler: Scheduler) -> Parts:
    """The part that each slot belongs to now.

    Returns
    -------
    uint8, shape (capacity,)
        Places in `PARTS`, by address. Slot s of a block pool is slot ``s % block_size`` of block ``s // block_size + 1``.

    Raises
    ------
    ValueError
        If the allocator has neither addresses nor blocks.
    """
    held = _sequences(scheduler)
    if isinstance(allocator, ContiguousAllocator):
        return _addresses(allocator, held, scheduler.refused)
    if isinstance(allocator, PagedAllocator):
        return _blocks(allocator, held, REMAINDER if scheduler.refused else IDLE)
    raise ValueError(f"no map of a {type(allocator).__name__}")


def in_cells(slots: Parts, size: int) -> Parts:
    """Cells of ``size`` slots, each the part that most of its slots belong to; of equal ones the first in `PARTS`.

    Examples
    --------
    >>> in_cells(np.array([0, 0, 6, 6, 2, 2, 6], np.uint8), 3).tolist()
    [0, 2, 6]
    """
    cells, parts = -(-len(slots) // size), len(PARTS)
    cell = np.arange(len(slots)) // size
    votes = np.bincount(cell * parts + slots, minlength=cells * parts).reshape(cells, parts)
    made: Parts = votes.argmax(axis=1).astype(np.uint8)
    return made


def _sequences(scheduler: Scheduler) -> Iterator[Sequence]:
    """Who holds memory: running sequences, and those of their requests that have room and do not run yet."""
    batch = scheduler.running
    yield from zip(batch.handle.tolist(), batch.computed.tolist(), batch.end.tolist(), strict=True)
    if scheduler.groups is not None:
        for request in dict.fromkeys(batch.request.tolist()):
            for handle in scheduler.groups.ahead_of(request):
                yield handle, 0, int(scheduler.demand.end[request])


def _addresses(allocator: ContiguousAllocator, held: Iterable[Sequence], refused: Refusal | None) -> Parts:
    enough = refused is not None and allocator.arena.free >= refused.need
    slots = np.full(allocator.capacity, IDLE if refused is None else EXTERNAL if enough else REMAINDER, np.uint8)
    for handle, computed, end in held:
        start, size = allocator.placed(handle)
        for part, stop in ((EXTERNAL, allocator.arena.rounded(size)), (INTERNAL, size), (RESERVED, min(size, end)),
                           (TOKEN_STATES, computed)):
            slots[start:start + stop] = part
    return slots


def _blocks(allocator: PagedAllocator, held: Iterable[Sequence], free: int) -> Parts:
    """Sequences that share a block have as much in it: who writes into it first has left it for a copy."""
    size, pool = allocator.block_size, allocator.pool
    slots = np.full((pool.num_blocks, size), free, np.uint8)
    slots[pool.hash_of != NO_HASH] = CACHED            # and what is held is drawn over it
    for handle, computed, end in held:
        table = allocator.table(handle)
        place = np.arange(len(table) * size).reshape(-1, size)
        slots[table] = np.where(place < computed, TOKEN_STATES, np.where(place < end, RESERVED, INTERNAL))
    return np.concatenate((slots[1:].ravel(), np.full(allocator.rest, EXTERNAL, np.uint8)))
