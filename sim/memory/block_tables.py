"""Block tables: one row for each running sequence, found by its handle, and where the slots of their blocks are.

    handle   request   held   filled   table
       0        17       48       41   [ 7 | 8 | 21 ]
       1        17       48       41   [ 7 | 8 | 21 ]        a fork of handle 0: it shares all three blocks
       2         9       16       16   [ 30 ]

Handles are small integers that are used again, the one given back last first. What happens to a table, and when, is
`paged`'s; here are the rows, the pool their blocks come from, and the sums the ledger asks for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.demand import Demand
from sim.entries import entries
from sim.memory.allocator import NOTHING, Refusal, SlotCounts, ToCome
from sim.memory.block_hash import BlockHashes
from sim.memory.block_pool import BlockPool
from sim.memory.left_blocks import LeftBlocks
from sim.memory.prefix_index import BlockIds
from sim.memory.prefix_stats import PrefixStats
from sim.memory.sharing import SharedEnds
from workloads.request import IntArray

ALL = np.iinfo(np.int64).max
COLUMNS = ("_next", "_last", "_request", "_end", "_filled", "_kept", "_full")


class BlockTables:
    """Rows on one `BlockPool`.

    Parameters
    ----------
    demand : Demand
        Lengths of the requests that may be admitted.
    num_blocks : int
        vLLM's number, null block included.
    block_size : int
        Slots a block.
    caching : bool
        Prefix caching: ``paged-prefix`` if true, ``paged`` if not.
    split_freed : bool
        See `BlockPool`.

    Attributes
    ----------
    rest : int
        Slots of the pool that make no whole block.
    slots, fillable : int
        Slots of all tables, and those of them that hold or will hold a token; shared ones once for each table.
    private_after : int64, shape (requests,), or None
        Blocks of a request from this place on are never findable; None where every request is one sequence.
    """

    _next: IntArray
    _last: IntArray
    _request: IntArray
    _end: IntArray
    _filled: IntArray
    _kept: IntArray
    _full: IntArray

    def __init__(self, demand: Demand, num_blocks: int, block_size: int, caching: bool, split_freed: bool = True) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {block_size}")
        self.demand = demand
        self.block_size = block_size
        self.hashes = BlockHashes(demand, block_size) if caching else None
        self.pool = BlockPool(num_blocks, self.hashes.shared_count if self.hashes else 0, split_freed, caching)
        self._left = LeftBlocks(self.pool)
        # Whether what a sequence generates is found by nobody else, and by itself after a preemption. Then the hashes of its
        # private blocks are written when it leaves: no look at each block it fills, 0.89 to 0.92 of the time of a replay.
        self._plain = caching and demand.sequences is None and (demand.content is None or not demand.content.cover_output)
        if self._plain:
            self.pool.put_off(self._mark_all)
        self._shared1 = entries(self.hashes.shared if self.hashes else np.zeros(len(demand), np.int64))
        self.stats = PrefixStats(demand, num_blocks, block_size) if caching else None
        self.capacity = (num_blocks - 1) * block_size
        self.rest = 0
        self.slots = 0
        self.fillable = 0
        self.copies = 0
        several = None if demand.sequences is None else demand.sequences > 1
        self.private_after: IntArray | None = None if several is None else np.where(several, demand.prompt // block_size, ALL)
        self._ends = SharedEnds(block_size)
        served = self._longest(demand)[~demand.too_long]
        self._width = min(-(-int(served.max(initial=1)) // block_size), num_blocks - 1)
        self._free_handles: list[int] = []
        self._end_of = entries(demand.end)
        for name in COLUMNS:
            setattr(self, name, np.zeros(0, np.int64))
        self._table: IntArray = np.zeros((0, self._width), np.int64)
        self._more_rows(64)

    def _more_rows(self, n: int) -> None:
        """``n`` handles more. ``_filled`` is kept up to date only where requests have several sequences.

        ``_places`` is all tables one behind the other: there ``_next`` is where a row goes on, ``_last`` where its last block is
        or will be, and ``_full`` is behind the last one that is full and findable, kept up to date where tables are plain.
        ``_kept`` of the first blocks were found cached.
        """
        before = len(self._next)
        more = np.zeros(n, np.int64)
        for name in COLUMNS:
            setattr(self, name, np.concatenate((getattr(self, name), more)))
        self._next[before:] = np.arange(before, before + n) * self._width
        self._table = np.concatenate((self._table, np.zeros((n, self._width), np.int64)))
        self._free_handles = list(range(before + n - 1, before - 1, -1))
        self._places: IntArray = self._table.reshape(-1)       # the same memory
        self._places1, self._next1, self._last1, self._request1, self._end1, self._filled1, self._kept1, self._full1 = (
            entries(column) for column in (self._places, *(getattr(self, name) for name in COLUMNS)))

    def _longest(self, demand: Demand) -> IntArray:
        """Tokens that the table of each request may come to have room for."""
        return demand.end

    def start_counting(self) -> None:
        """Counters of the pool and of prefix hits begin at 0 now."""
        self.pool.start_counting()
        if self.stats is not None:
            self.stats.start_counting()

    # ------------------------------------------------------------------ rows
    def table(self, handle: int) -> IntArray:
        """The block table of a sequence: logical block -> block id (a view)."""
        row: IntArray = self._places[handle * self._width:self._next1[handle]]
        return row

    @property
    def held(self) -> IntArray:
        """Slots of the blocks in each table, by handle."""
        slots: IntArray = self._blocks(np.arange(len(self._next))) * self.block_size
        return slots

    def _blocks(self, handles: IntArray) -> IntArray:
        """How many blocks are in the tables of these sequences."""
        blocks: IntArray = self._next[handles] - handles * self._width
        return blocks

    def _new_row(self, request: int, filled: int, *blocks: IntArray) -> int:
        """A handle for a sequence of ``request`` that has ``filled`` computed tokens in these blocks, one run after the other."""
        if not self._free_handles:
            self._more_rows(len(self._next))
        handle, end = self._free_handles.pop(), self._end_of[request]
        stop = row = handle * self._width
        for run in blocks:
            start, stop = stop, stop + len(run)
            self._places[start:stop] = run
        held = (stop - row) * self.block_size
        self._next1[handle] = stop
        self._last1[handle] = row + (end - 1) // self.block_size
        self._request1[handle] = request
        self._end1[handle] = end
        self._filled1[handle] = filled
        self._full1[handle] = row + filled // self.block_size
        self.slots += held
        self.fillable += min(held, end)
        return handle

    def _drop_row(self, handle: int) -> None:
        row = handle * self._width
        held = (self._next1[handle] - row) * self.block_size
        self.slots -= held
        self.fillable -= min(held, self._end1[handle])
        self._next1[handle] = row
        self._free_handles.append(handle)

    def _mark_own(self, handle: int) -> int:
        """The private hashes of a plain table are written; returns how many of its blocks are full, and so have one."""
        assert self.hashes is not None
        start, request = handle * self._width, self._request1[handle]
        shared, full = self._shared1[request], self._full1[handle] - start
        if shared < full:
            self.pool.mark(self._places[start + shared:start + full], self.hashes.span(request, shared, full))
        return full

    def _mark_all(self) -> None:
        """The same for every table."""
        for handle in self._blocks(np.arange(len(self._next))).nonzero()[0].tolist():
            self._mark_own(handle)

    def _check(self, handle: int) -> None:
        if self._next1[handle] == handle * self._width:
            raise ValueError(f"handle {handle} holds nothing")

    def _give(self, rows: IntArray, places: IntArray, total: int) -> None:
        """Put ``total`` new blocks into the block tables."""
        size = self.block_size
        blocks = self.pool.take(total)
        self._table[rows, places] = blocks
        self._note_writers(blocks, rows, places)
        self.slots += total * size
        self.fillable += int(np.add.reduce(np.minimum(self._end[rows] - places * size, size)))

    def _lengthen(self, rows: IntArray, blocks: IntArray) -> None:
        """These block tables have so many blocks now."""
        self._next[rows] = rows * self._width + blocks

    def _note_writers(self, blocks: BlockIds, rows: IntArray, places: IntArray) -> None:
        """Note who fills blocks that others may find."""
        if self.stats is not None and self.hashes is not None and self.hashes.shared_count:
            request = self._request[rows]
            shared = places < self.hashes.shared[request]
            self.stats.wrote(blocks[shared], request[shared])

    def writers(self, blocks: BlockIds) -> IntArray:
        """Which requests filled these blocks, all of which can be found."""
        assert self.stats is not None and self.hashes is not None
        hashes = self.pool.written(blocks)
        return np.where(hashes < self.hashes.shared_count, self.stats.writers(blocks), self.hashes.owners(hashes))

    def _leave_shared(self, rows: IntArray, computed: IntArray) -> None:
        """The last blocks of these sequences stay with the others; `_give` puts copies in their place."""
        size = self.block_size
        place = computed // size
        self.pool.leave(self._table[rows, place])
        self._ends.leave(computed, self._end[rows])
        self.copies += len(rows)
        self.slots -= len(rows) * size
        self.fillable -= int(np.minimum(self._end[rows] - place * size, size).sum())

    # ------------------------------------------------------------------ where the slots are
    def counts(self, computed: Any, refused: Refusal | None, to_come: ToCome = NOTHING, time: int = 1) -> SlotCounts:
        size, pool, ends = self.block_size, self.pool, self._ends
        free = (pool.free * time + to_come.taken) * size
        cached = (pool.cached_free * time + to_come.evicted) * size
        used = (self.capacity - self.rest) * time - free
        # A shared slot counts once, in a full block or in a partly filled one.
        states = computed - (self.slots * time - to_come.taken * size - used) + ends.empty * time
        reserved = (self.fillable - ends.reserved) * time - to_come.fillable - computed
        open_slots = free - cached
        return SlotCounts(states, reserved, used - states - reserved, cached, self.rest * time,
                          open_slots if refused else 0, 0 if refused else open_slots)

    def logical(self, to_come: ToCome = NOTHING, time: int = 1) -> Any:
        return self.slots * time - to_come.taken * self.block_size

    def largest_hole(self) -> None:
        return None


def runs(handles: IntArray, first: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """For each sequence ``counts[i]`` consecutive table places from ``first[i]`` on, flattened in order.

    Examples
    --------
    >>> [a.tolist() for a in runs(np.array([4, 9]), np.array([7, 0]), np.array([1, 3]))]
    [[4, 9, 9, 9], [7, 0, 1, 2]]
    """
    total = int(np.add.reduce(counts))
    if total == np.count_nonzero(counts):              # at most one each: the usual case of a decode step
        one = counts.nonzero()[0]
        return handles[one], first[one]
    run = np.arange(len(counts)).repeat(counts)
    behind = counts.cumsum() - counts
    return handles[run], (first - behind)[run] + np.arange(total)
