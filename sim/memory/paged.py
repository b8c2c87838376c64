"""Paged allocation: block tables on a block pool, with refcounted prefix sharing.

    request 4   block table [ 7 | 8 | 21 | 22 ]        blocks 7 and 8 hold a prefix both requests begin with:
    request 9   block table [ 7 | 8 | 30 ]             ref count 2, each slot counted once

A sequence grows block by block; the only waste is the unfilled end of its last block. With prefix caching, full blocks
become findable in the step that schedules their last token (rules 16-19 of docs/rules.md) and stay so after their holder has
gone, until they are reused. Sequences of one request share blocks until they write differently (see `sharing`); what they
generate is their own and never findable.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.memory.allocator import NO_PREFIX, Ask, DecodePath, Lag, Prefix
from sim.memory.block_pool import BlockIds
from sim.memory.block_tables import ALL, BlockTables, runs
from sim.memory.sharing import writers_that_copy
from workloads.request import IntArray


class PagedAllocator(BlockTables):
    """Block tables that are found, admitted, grown, forked and given back; made like `BlockTables`."""

    reserves_ahead = False

    def impossible(self) -> NDArray[np.bool_]:
        """Several sequences need their own blocks behind the full ones of the prompt, at the latest after a recompute."""
        demand, size = self.demand, self.block_size
        shared = demand.prompt // size
        own = -(-demand.end // size) - shared
        return (shared + own * (1 if demand.sequences is None else demand.sequences)) * size > self.capacity

    # ------------------------------------------------------------------ admission
    def find_prefix(self, request: int, tokens: int) -> Prefix:
        if self.hashes is None:
            return NO_PREFIX
        blocks = self.pool.lookup(self.hashes.span(request, 0, self._findable(request, tokens - 1)))
        return Prefix(len(blocks) * self.block_size, blocks)

    def _findable(self, request: int, tokens: int) -> int:
        """How many of the full blocks of the first ``tokens`` tokens may be findable."""
        full = tokens // self.block_size
        return full if self.private_after is None else min(full, int(self.private_after[request]))

    def need(self, ask: Ask) -> int:
        tokens = min(ask.known, self.demand.max_model_len) if ask.whole else ask.tokens
        return (-(-tokens // self.block_size) - len(ask.prefix.blocks)) * self.block_size

    def fits(self, ask: Ask) -> bool:
        found = ask.prefix.blocks
        lying_free = int(np.count_nonzero(self.pool.ref[found] == 0)) if len(found) else 0
        return self.need(ask) // self.block_size + lying_free <= self.pool.free - ask.keep_free

    def admit(self, ask: Ask) -> int | None:
        if not self.fits(ask):
            return None
        if self.stats is not None:
            self.stats.admitted(ask)
        if len(ask.prefix.blocks):
            self.pool.touch(ask.prefix.blocks)
        return self._seat(ask.request, ask.prefix.blocks, ask.tokens)

    def restore_need(self, tokens: int, request: int | None = None) -> int:
        return -(-tokens // self.block_size) * self.block_size

    def restore(self, request: int, tokens: int) -> int | None:
        if tokens < 1:
            raise ValueError(f"a sequence is restored with at least 1 token, not {tokens}")
        if self.restore_need(tokens) // self.block_size > self.pool.free:
            return None
        return self._seat(request, NO_PREFIX.blocks, tokens)

    def _seat(self, request: int, found: BlockIds, tokens: int) -> int:
        """A block table for ``tokens`` tokens: what was found, then new blocks, of which the full ones become findable."""
        known = len(found)
        new = self.pool.take(-(-tokens // self.block_size) - known)
        handle = self._new_row(request, np.concatenate((found, new)) if known else new, tokens)
        if self.hashes is not None and self.stats is not None:
            self.stats.wrote(new, request)
            full = self._findable(request, tokens)
            self.pool.cache(new[: full - known], self.hashes.span(request, known, full))
        return handle

    def fork(self, handle: int) -> int | None:
        """See `Allocator.fork`; it always fits. ValueError if the request is one sequence: its blocks would be findable."""
        self._check(handle)
        request, filled = int(self._request[handle]), int(self._filled[handle])
        if self.private_after is None or self.private_after[request] == ALL:
            raise ValueError(f"request {request} is one sequence and cannot fork")
        blocks = self.table(handle)
        self.pool.touch(blocks)
        child = self._new_row(request, blocks, filled)
        if filled % self.block_size:
            self._ends.join(self._filled[[child]], self._end[[child]])
        return child

    # ------------------------------------------------------------------ growth
    def extend(self, handles: IntArray, computed: IntArray, new: IntArray, lag: Lag | None = None) -> int:
        size = self.block_size
        have = self.held[handles] // size
        first, more = have, np.maximum(-(-(computed + new) // size) - have, 0)
        if self._ends.extra:                           # a copy takes the place of the last block
            copied = self._copy(handles, computed, new)
            first, more = have - copied, more + copied
        needed = more.cumsum()
        total = int(needed[-1])
        if total > self.pool.free:                     # only the first few, in running order
            fit = int(np.searchsorted(needed, self.pool.free, side="right"))
            handles, computed, new, have, first, more = (a[:fit] for a in (handles, computed, new, have, first, more))
            total = int(needed[fit - 1]) if fit else 0
        if total:
            if first is not have:
                self._leave_shared(handles[first < have], computed[first < have])
            self._give(*runs(handles, first, more), total)
            self.held[handles] = (first + more) * size
        if self.private_after is not None:
            self._filled[handles] = computed + new
        if self.hashes is not None and len(handles):
            if lag is None:
                self.settle(handles, computed, computed + new)
            else:
                start = lag.cache_from[: len(handles)]
                self.settle(handles, start, np.where(new > 0, lag.cache_to[: len(handles)], start))
        return len(handles)

    def extend_by_one(self, handles: IntArray, computed: IntArray) -> bool:
        held = self.held[handles]
        due = (held == computed).nonzero()[0]
        if self._ends.extra:
            one = np.ones_like(computed)
            fits = len(due) + int(self._copy(handles, computed, one).sum()) <= self.pool.free
            return fits and self.extend(handles, computed, one) == len(handles)
        if len(due):
            if len(due) > self.pool.free:
                return False
            rows = handles[due]
            self._give(rows, held[due] // self.block_size, len(due))
            held[due] += self.block_size
            self.held[rows] = held[due]
        if self.private_after is not None:
            self._filled[handles] = computed + 1
        if self.hashes is not None:
            filled = (held == computed + 1).nonzero()[0]
            self._cache_full(handles[filled], computed[filled] // self.block_size)
        return True

    def _copy(self, handles: IntArray, computed: IntArray, new: IntArray) -> IntArray:
        """1 for each sequence that will write into a partly filled block others hold, 0 for the rest; nothing changes."""
        copies = np.zeros(len(handles), np.int64)
        writing = ((new > 0) & (computed % self.block_size > 0)).nonzero()[0]
        blocks = self._table[handles[writing], computed[writing] // self.block_size]
        copies[writing] = writers_that_copy(blocks, self.pool.ref)
        return copies

    def _cache_full(self, rows: IntArray, places: IntArray) -> None:
        assert self.hashes is not None
        if self.private_after is not None:
            public = places < self.private_after[self._request[rows]]
            rows, places = rows[public], places[public]
        if len(rows):
            self.pool.cache(self._table[rows, places], self.hashes.at(self._request[rows], places))

    def settle(self, handles: IntArray, first: IntArray, stop: IntArray) -> None:
        if self.hashes is not None:
            start = first // self.block_size
            self._cache_full(*runs(handles, start, np.maximum(stop // self.block_size - start, 0)))

    # ------------------------------------------------------------------ many decode steps at once
    def decode_limit(self, handles: IntArray, computed: IntArray, most: int) -> int:
        if self._ends.extra:
            return min(most, 1)
        periods, rest = divmod(self.pool.free, len(handles))
        if periods * self.block_size >= most:
            return most
        until_new_block = np.sort(self.held[handles] - computed)
        return min(most, periods * self.block_size + int(until_new_block[rest]))

    def decode(self, handles: IntArray, computed: IntArray, steps: int) -> DecodePath | None:
        if self._ends.extra:
            raise ValueError("no decode steps at once while a partly filled block is shared")
        size, n = self.block_size, len(handles)
        held = self.held[handles]
        until = held - computed                        # steps each sequence makes before its last block is full
        periods, rest = divmod(steps, size)
        if self.private_after is not None:
            self._filled[handles] = computed + steps
        ends = (until <= rest).nonzero()[0]
        total = periods * n + len(ends)                # so many blocks get full, those that are full now among them
        if not total:
            return None
        order = until.argsort(kind="stable") if periods else ends[until[ends].argsort(kind="stable")]
        turn, who = np.divmod(np.arange(total), len(order))
        who = order[who]                               # in each `size` steps in this order
        after = until[who] + size * turn               # steps after which a block is full, never decreasing
        rows, place = handles[who], held[who] // size + turn
        taking = until < rest                          # a block that the last step fills has none behind it yet
        taken = periods * n + int(np.count_nonzero(taking))
        path = None
        if taken:
            moves = self._give(rows[:taken], place[:taken], taken)
            self.held[handles] = held + size * (periods + taking)
            path = _path(after[:taken], *moves, steps)
        if self.hashes is not None:
            full = int(np.count_nonzero(until == 0))   # those were full before the first of these steps
            self._cache_full(rows[full:], place[full:] - 1)
        return path

    def release(self, handle: int) -> None:
        self._check(handle)
        table = self.table(handle)
        if self._ends.extra and self._filled[handle] % self.block_size and self.pool.ref[table[-1]] > 1:
            self._ends.leave(self._filled[[handle]], self._end[[handle]])
        self.pool.release(table)
        self._drop_row(handle)


def _path(after: IntArray, evicted: NDArray[np.bool_], will_fill: IntArray, steps: int) -> DecodePath:
    """What is still to come after each of ``steps`` steps of blocks taken when ``after`` steps were made."""
    done = np.zeros((3, len(after) + 1), np.int64)     # running totals, block by block
    done[0] = np.arange(len(after) + 1)
    evicted.cumsum(out=done[1, 1:])
    will_fill.cumsum(out=done[2, 1:])
    taken = after.searchsorted(np.arange(steps), side="right")
    return DecodePath(*(done[:, -1:] - done).take(taken, axis=1))
