"""Why the head of the waiting queue is not running for want of memory: the numbers, looked up in the moment it is refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.viewer.snapshot import Drawn
from experiments.viewer.wording import Names
from sim.memory.contiguous import ContiguousAllocator
from sim.memory.paged import PagedAllocator
from sim.scheduler import Scheduler
from workloads.messages import counted


@dataclass(frozen=True)
class Refused:
    """Everything in slots; blocks are ``slots // block_size``.

    Parameters
    ----------
    request : int
    need : int
        Asked for, before any rounding.
    pieces : int
        Reservations among which ``need`` is divided evenly.
    rounded : int
        What each of them really takes.
    free, cached : int
        All free slots, and those of them that hold a findable prefix.
    hole : int, optional
        The largest that a reservation could use; None where addresses do not matter.
    found_free : int
        Of its own prefix: lies among the free slots and is no use for the rest.
    keep_free : int
        Watermark.
    rounding : int
        Lost to rounding reservations up: neither free nor asked for.
    barred : bool
        Nobody is admitted in a step that preempts, whatever is free.
    """

    request: int
    need: int
    pieces: int
    rounded: int
    free: int
    cached: int
    hole: int | None
    found_free: int = 0
    keep_free: int = 0
    rounding: int = 0
    barred: bool = False


def refusal(allocator: Drawn, scheduler: Scheduler, barred: bool) -> Refused | None:
    """Who is refused now and by what; None if nobody is."""
    if scheduler.refused is None:
        return None
    request, need = scheduler.waiting.head(), scheduler.refused.need
    pieces = 1 if scheduler.groups is None else scheduler.groups.pieces(request)
    if isinstance(allocator, ContiguousAllocator):
        arena = allocator.arena
        return Refused(request, need, pieces, arena.rounded(need // pieces), arena.free, 0, arena.largest_hole(),
                       rounding=arena.capacity - arena.free - allocator.slots, barred=barred)
    pool, size = allocator.pool, allocator.block_size
    keep_free = scheduler.watermark_blocks if len(scheduler.running) else 0
    return Refused(request, need, pieces, need // pieces, pool.free * size, pool.cached_free * size, None,
                   _found_free(allocator, scheduler, request) * size, keep_free * size, barred=barred)


def _found_free(allocator: PagedAllocator, scheduler: Scheduler, request: int) -> int:
    """Blocks of its prefix that lie in the free queue: they would leave it and not be there for others."""
    if scheduler.host is not None and request in scheduler.host:
        return 0
    found = allocator.find_prefix(request, scheduler.known(request)).blocks
    return int(np.count_nonzero(allocator.pool.ref[found] == 0)) if len(found) else 0


def refusal_text(refused: Refused, names: Names, block_size: int) -> str:
    """Who is refused, what was needed, what was there, and what that is called.

    Examples
    --------
    >>> refusal_text(Refused(17, 2048, 1, 2048, 3112, 0, 1920), Names([f"r{i}" for i in range(18)]), 16)
    'r17 refused: needs 2,048 contiguous slots; 3,112 free, largest hole 1,920: external fragmentation.'
    >>> refusal_text(Refused(2, 80, 1, 80, 48, 32, None), Names(["r0", "r1", "r2"]), 16)
    'r2 refused: needs 5 new blocks; 3 free (2 of them cached): 2 too few.'
    """
    name = names[refused.request]
    if refused.barred:
        return f"{name} waits: nobody is admitted in a step that preempts."
    if refused.hole is not None:
        return f"{name} refused: {_no_hole(refused)}."
    need, free, found, keep = (slots // block_size for slots in (refused.need, refused.free, refused.found_free,
                                                                 refused.keep_free))
    besides = [f"{counted(found, 'free block')} of its own prefix to be kept" if found else "",
               f"{counted(keep, 'block')} must stay free (watermark)" if keep else ""]
    told = "".join(f", {part}" for part in besides if part)
    cached = f" ({refused.cached // block_size:,} of them cached)" if refused.cached else ""
    short = need + found + keep - free
    return f"{name} refused: needs {counted(need, 'new block')}{told}; {free:,} free{cached}: {short:,} too few."


def _no_hole(refused: Refused) -> str:
    each = refused.need // refused.pieces
    times = f"{refused.pieces:,} times " if refused.pieces > 1 else ""
    up = f", rounded up to {refused.rounded:,} by the buddy allocator" if refused.rounded > each else ""
    are = "is" if refused.rounding == 1 else "are"
    lost = f" ({counted(refused.rounding, 'slot')} {are} lost to rounding)" if refused.rounding else ""
    why = "external fragmentation" if refused.free >= refused.need else "too few in total (remainder)"
    return (f"needs {times}{counted(each, 'contiguous slot')}{up}; {refused.free:,} free{lost}, "
            f"largest hole {refused.hole:,}: {why}")
