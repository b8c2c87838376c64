"""The analytic formula beside a map: lines that stay, and lines with places for the numbers of each moment."""

from __future__ import annotations

from typing import Any

from experiments.viewer.snapshot import Drawn, Snapshot
from sim import kv_formula
from sim.memory.contiguous import ContiguousAllocator
from sim.memory.paged import PagedAllocator
from sim.memory.vattention import PageAllocator
from sim.sizing.hardware import GIB
from workloads.messages import counted

TABLES = "{0} sequences: {1} blocks in block tables, {2} of them the same block once more (shared) = {3} in use; " \
         "{3} + {4} cached + {5} free = {6} blocks"
CEILINGS = TABLES.replace("sequences: ", "sequences: Σ ⌈tokens ÷ %s⌉ = ")
RESERVATIONS = "{0} reservations: Σ = {1} slots, {2} with rounding; {3} − {2} = {4} free; holes: {5}"
USEFUL = "useful share of what is allocated: token states ÷ (token states + reserved + internal) = {%d} ÷ {%d} = {%d}"
ROUNDED = USEFUL + "; what rounding adds, {2} − {1} slots, is outside of it (external fragmentation)"
MEAN = "now {3} in use ÷ {0} sequences = {10} %ss on average (shared ones counted once), where one of the longest takes %s: " \
       "that is why more can run at once"


def fixed_lines(allocator: Drawn, num_blocks: int, block_size: int, max_model_len: int, per_token: int | None) -> list[str]:
    """What holds all the time.

    Parameters
    ----------
    num_blocks, block_size : int
        Of the pool as vLLM counts it, null block included.
    max_model_len : int
        In tokens.
    per_token : int, optional
        Bytes of one token's K and V on a GPU, where a model is known.
    """
    slots = (num_blocks - 1) * block_size
    lines = [f"pool: ({num_blocks:,} − 1 null block) × {block_size:,} slots = {slots:,} slots"]
    if per_token is not None:
        gib = slots * per_token / GIB
        lines.append(f"bytes: {slots:,} slots × {per_token:,} bytes a token = {slots * per_token:,} bytes = {gib:,.2f} GiB")
    if not isinstance(allocator, ContiguousAllocator):
        return [*lines, _longest(allocator, num_blocks, max_model_len)]
    largest = int(allocator.reservation.max())
    rounded = allocator.arena.rounded(largest)
    return [*lines, f"largest reservations at once: ⌊{slots:,} ÷ {rounded:,}⌋ = {slots // rounded:,}"
            + (f" ({counted(largest, 'slot')} rounded up)" if rounded > largest else "")]


def _longest(allocator: PagedAllocator, num_blocks: int, max_model_len: int) -> str:
    """How many of the longest requests fit at once, in what the pool is divided into."""
    size, unit, usable = allocator.block_size, unit_of(allocator), allocator.pool.num_blocks - 1
    each = kv_formula.blocks_for(max_model_len, size)
    whole = f"⌊{usable:,} ÷ {each:,}⌋ = {usable // each:,}"
    if unit != "block":
        return f"longest requests at once: {usable:,} {unit}s, ⌈{max_model_len:,} ÷ {size:,}⌉ = {each:,} each: {whole}"
    most = kv_formula.max_concurrency(num_blocks, size, max_model_len)
    return f"longest requests at once, as vLLM reports it: {num_blocks:,} blocks ÷ ⌈{max_model_len:,} ÷ {size:,}⌉ = " \
           f"{num_blocks:,} ÷ {each:,} = {most:.2f}; vLLM counts the null block too, without it {whole}"


def moving_lines(allocator: Drawn, by_ceiling: bool, max_model_len: int) -> list[str]:
    """What changes, with places for the `numbers` of each moment.

    Parameters
    ----------
    by_ceiling : bool
        Whether each sequence has just the blocks that its tokens take.
    max_model_len : int
        In tokens.
    """
    if isinstance(allocator, ContiguousAllocator):
        return [RESERVATIONS, ROUNDED % (6, 7, 8)]
    unit, most = unit_of(allocator), kv_formula.blocks_for(max_model_len, allocator.block_size)
    tables = CEILINGS % f"{allocator.block_size:,}" if by_ceiling else TABLES
    tables = tables.replace("block", unit).replace(f"{unit} tables", "block tables")
    return [tables, MEAN % (unit, f"{most:,}"), USEFUL % (7, 8, 9)]


def unit_of(allocator: PagedAllocator) -> str:
    """What its pool is divided into."""
    return {1: "slot"}.get(allocator.block_size, "page" if isinstance(allocator, PageAllocator) else "block")


def numbers(allocator: Drawn, pool: Snapshot) -> list[Any]:
    """The numbers of one moment, as text."""
    useful, allocated = pool.parts[0], sum(pool.parts[:3])
    share = f"{100 * useful / allocated:.1f} %" if allocated else "–"
    last = [f"{useful:,}", f"{allocated:,}", share]
    if isinstance(allocator, ContiguousAllocator):
        places = [row.place for row in pool.rows.values() if row.place is not None]
        rounded, free = sum(place.rounded for place in places), sum(size for _, size in pool.holes)
        return [*(f"{n:,}" for n in (len(places), sum(place.size for place in places), rounded, allocator.capacity, free,
                                     len(pool.holes))), *last]
    listed, held = sum(len(row.blocks) for row in pool.rows.values()), allocator.pool.num_blocks - 1 - len(pool.queue)
    cached = pool.parts[3] // allocator.block_size
    free = len(pool.queue) - cached
    return [*(f"{n:,}" for n in (len(pool.rows), listed, listed - held, held, cached, free, held + cached + free)), *last,
            f"{held / len(pool.rows):,.1f}" if pool.rows else "–"]


def by_ceiling(allocator: Drawn, pool: Snapshot) -> bool:
    """Whether each sequence has just the blocks that its tokens take."""
    if isinstance(allocator, ContiguousAllocator):
        return False
    size = allocator.block_size
    return all(len(row.blocks) == kv_formula.blocks_for(row.computed, size) for row in pool.rows.values())
