"""Paged allocation: block tables on a block pool, with refcounted prefix sharing.

    request 4   block table [ 7 | 8 | 21 | 22 ]        blocks 7 and 8 hold a prefix both requests begin with:
    request 9   block table [ 7 | 8 | 30 ]             ref count 2, each slot counted once

A sequence grows block by block; the only waste is the unfilled end of its last block. With prefix caching, full blocks
become findable in the step that schedules their last token (SEMANTICS rules 16-19) and stay so after their holder has
gone, until they are reused.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.demand import Demand
from sim.memory.allocator import NO_PREFIX, Ask, DecodePath, Prefix, Refusal, SlotCounts
from sim.memory.block_hash import BlockHashes
from sim.memory.block_pool import NO_HASH, BlockPool
from sim.memory.prefix_stats import PrefixStats
from workloads.request import IntArray


class PagedAllocator:
    """Block tables for running sequences on one `BlockPool`.

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
    """

    def __init__(self, demand: Demand, num_blocks: int, block_size: int, caching: bool) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {block_size}")
        self.demand = demand
        self.block_size = block_size
        self.hashes = BlockHashes(demand, block_size) if caching else None
        self.pool = BlockPool(num_blocks, max(1, self.hashes.count) if self.hashes else 0)
        self.stats = PrefixStats(demand, num_blocks, block_size) if caching else None
        self.capacity = (num_blocks - 1) * block_size
        self.slots = 0
        self.fillable = 0
        self.held = np.zeros(64, np.int64)
        self._request = np.zeros(64, np.int64)
        self._end = np.zeros(64, np.int64)
        served = demand.end[~demand.too_long]
        self._width = min(-(-int(served.max(initial=1)) // block_size), num_blocks - 1)
        self._table: NDArray[np.int32] = np.zeros((64, self._width), np.int32)
        self._free_handles = list(range(63, -1, -1))

    def table(self, handle: int) -> NDArray[np.int32]:
        """The block table of a sequence: logical block -> block id (a view)."""
        row: NDArray[np.int32] = self._table[handle, : int(self.held[handle]) // self.block_size]
        return row

    def impossible(self) -> NDArray[np.bool_]:
        return self.demand.end > self.capacity

    # ------------------------------------------------------------------ admission
    def find_prefix(self, request: int, tokens: int) -> Prefix:
        if self.hashes is None:
            return NO_PREFIX
        blocks = self.pool.lookup(self.hashes.span(request, 0, (tokens - 1) // self.block_size))
        return Prefix(len(blocks) * self.block_size, blocks)

    def need(self, ask: Ask) -> int:
        tokens = ask.known if ask.whole else ask.tokens
        return (-(-tokens // self.block_size) - len(ask.prefix.blocks)) * self.block_size

    def fits(self, ask: Ask) -> bool:
        found = ask.prefix.blocks
        lying_free = int(np.count_nonzero(self.pool.ref[found] == 0)) if len(found) else 0
        return self.need(ask) // self.block_size + lying_free <= self.pool.free - ask.keep_free

    def admit(self, ask: Ask) -> int | None:
        if not self.fits(ask):
            return None
        found, size = ask.prefix.blocks, self.block_size
        if self.stats is not None:
            self.stats.admitted(ask)
        if len(found):
            self.pool.touch(found)
        total = -(-ask.tokens // size)
        new = self.pool.take(total - len(found))
        handle = self._new_handle()
        row = self._table[handle]
        row[: len(found)] = found
        row[len(found):total] = new
        self._request[handle] = ask.request
        self._end[handle] = end = int(self.demand.end[ask.request])
        self.held[handle] = total * size
        self.slots += total * size
        self.fillable += min(total * size, end)
        if self.hashes is not None and self.stats is not None:
            self.stats.wrote(new, ask.request)
            full = ask.tokens // size
            self.pool.cache(row[len(found):full], self.hashes.span(ask.request, len(found), full))
        return handle

    def _new_handle(self) -> int:
        if not self._free_handles:
            n = len(self.held)
            self.held, self._request, self._end = (np.concatenate((a, np.zeros(n, np.int64)))
                                                   for a in (self.held, self._request, self._end))
            self._table = np.concatenate((self._table, np.zeros_like(self._table)))
            self._free_handles = list(range(2 * n - 1, n - 1, -1))
        return self._free_handles.pop()

    # ------------------------------------------------------------------ growth
    def extend(self, handles: IntArray, computed: IntArray, new: IntArray) -> int:
        size = self.block_size
        have = self.held[handles] // size
        more = np.maximum(-(-(computed + new) // size) - have, 0)
        needed = np.cumsum(more)
        total = int(needed[-1])
        if total > self.pool.free:                     # only the first few, in running order
            fit = int(np.searchsorted(needed, self.pool.free, side="right"))
            handles, computed, new, have, more = (a[:fit] for a in (handles, computed, new, have, more))
            total = int(needed[fit - 1]) if fit else 0
        if total:
            self._give(*_runs(handles, have, more), total)
            self.held[handles] += more * size
        if self.hashes is not None and len(handles):
            first = computed // size
            self._cache_full(*_runs(handles, first, (computed + new) // size - first))
        return len(handles)

    def extend_by_one(self, handles: IntArray, computed: IntArray) -> bool:
        held = self.held[handles]
        due = (held == computed).nonzero()[0]
        if len(due):
            if len(due) > self.pool.free:
                return False
            rows = handles[due]
            self._give(rows, held[due] // self.block_size, len(due))
            held[due] += self.block_size
            self.held[rows] = held[due]
        if self.hashes is not None:
            filled = (held == computed + 1).nonzero()[0]
            self._cache_full(handles[filled], computed[filled] // self.block_size)
        return True

    def _give(self, rows: IntArray, places: IntArray, total: int) -> NDArray[np.int32]:
        """Put ``total`` new blocks into the block tables; returns how many slots of each will be filled."""
        size = self.block_size
        blocks = self.pool.take(total)
        self._table[rows, places] = blocks
        if self.stats is not None:
            self.stats.wrote(blocks, self._request[rows])
        self.slots += total * size
        will_fill: NDArray[np.int32] = np.minimum(self._end[rows] - places * size, size)
        self.fillable += int(np.add.reduce(will_fill))
        return will_fill

    def _cache_full(self, rows: IntArray, places: IntArray) -> None:
        assert self.hashes is not None
        if len(rows):
            self.pool.cache(self._table[rows, places], self.hashes.at(self._request[rows], places))

    def decode_limit(self, handles: IntArray, computed: IntArray, most: int) -> int:
        periods, rest = divmod(self.pool.free, len(handles))
        if periods * self.block_size >= most:
            return most
        until_new_block = np.sort(self.held[handles] - computed)
        return min(most, periods * self.block_size + int(until_new_block[rest]))

    def decode(self, handles: IntArray, computed: IntArray, steps: int) -> DecodePath | None:
        size, n = self.block_size, len(handles)
        held = self.held[handles]
        until = held - computed                        # steps each sequence makes before it needs a block
        periods, rest = divmod(steps, size)
        in_rest = until < rest
        total = periods * n + int(np.count_nonzero(in_rest))
        path = None
        if total:
            order = np.argsort(until, kind="stable")   # the order of the needs within each period of `size` steps
            event = np.arange(total)
            turn, who = event // n, order[event % n]
            at_step = until[who] + size * turn         # never decreasing
            hashed = self.pool.hash_of[self.pool.peek(total)] != NO_HASH
            will_fill = self._give(handles[who], held[who] // size + turn, total)
            self.held[handles] = held + size * (periods + in_rest)
            taken = np.searchsorted(at_step, np.arange(steps), side="right")
            path = DecodePath(taken, *(np.concatenate(([0], np.cumsum(x)))[taken] for x in (hashed, will_fill)))
        if self.hashes is not None:
            first = computed // size
            row, place = _runs(np.arange(n), first, (computed + steps) // size - first)
            order = np.argsort((place + 1) * size - computed[row], kind="stable")      # by the step that fills them
            self._cache_full(handles[row[order]], place[order])
        return path

    def release(self, handle: int) -> None:
        self.pool.release(self.table(handle))
        held = int(self.held[handle])
        self.slots -= held
        self.fillable -= min(held, int(self._end[handle]))
        self.held[handle] = 0
        self._free_handles.append(handle)

    # ------------------------------------------------------------------ accounting
    def counts(self, computed: IntArray | int, refused: Refusal | None, path: DecodePath | None = None) -> SlotCounts:
        size, pool = self.block_size, self.pool
        taken: IntArray | int = 0
        evicted: IntArray | int = 0
        fillable: IntArray | int = 0
        if path is not None:                           # go back from the state after the last step
            taken = path.taken[-1] - path.taken
            evicted = path.evicted[-1] - path.evicted
            fillable = path.fillable[-1] - path.fillable
        free = (pool.free + taken) * size
        cached = (pool.cached_free + evicted) * size
        used = self.capacity - free
        states = computed - (self.logical(path) - used)           # a shared block is full: count its slots once
        reserved = self.fillable - fillable - computed
        open_slots = free - cached
        return SlotCounts(states, reserved, used - states - reserved, cached, 0,
                          open_slots if refused else 0, 0 if refused else open_slots)

    def logical(self, path: DecodePath | None = None) -> IntArray | int:
        return self.slots if path is None else self.slots - (path.taken[-1] - path.taken) * self.block_size

    def largest_hole(self) -> None:
        return None


def _runs(handles: IntArray, first: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """For each sequence ``counts[i]`` consecutive table places from ``first[i]`` on, flattened in order."""
    total = int(np.add.reduce(counts))
    if total == np.count_nonzero(counts):              # at most one each: the usual case of a decode step
        one = counts.nonzero()[0]
        return handles[one], first[one]
    behind = np.cumsum(counts) - counts
    within = np.arange(total) - np.repeat(behind, counts)
    return np.repeat(handles, counts), np.repeat(first, counts) + within
