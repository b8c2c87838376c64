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

from sim.memory.allocator import NO_PREFIX, Ask, Prefix
from sim.memory.block_pool import BlockPool
from sim.memory.block_tables import ALL
from sim.memory.flowing import FlowingTables
from sim.memory.prefix_index import BlockIds
from workloads.request import IntArray

EVENTS = ("find_prefix", "need", "fits", "admit", "extend", "extend_by_one", "decode_limit", "decode", "release", "counts",
          "logical", "_seat")


class PagedAllocator(FlowingTables):
    """Block tables that are found, admitted, forked and given back; how they grow is `growth`'s. Made like `BlockTables`."""

    reserves_ahead = False

    def impossible(self) -> NDArray[np.bool_]:
        """Several sequences need their own blocks behind the full ones of the prompt, at the latest after a recompute."""
        demand, size = self.demand, self.block_size
        shared = demand.prompt // size
        own = -(-demand.end // size) - shared
        return (shared + own * (1 if demand.sequences is None else demand.sequences)) * size > self.capacity

    @property
    def flows(self) -> bool:
        """Whether `flow` does the same as event after event.

        Every request has one sequence, nobody else can find its blocks, and what is evicted is known beforehand; nobody watches
        what is evicted, and nothing is done at an event that this class and the pool do not do.
        """
        pool = self.pool
        if type(pool) is not BlockPool or pool.watched or any(
                event in vars(self) or getattr(type(self), event) is not getattr(PagedAllocator, event) for event in EVENTS):
            return False
        if self.hashes is None:
            return self.demand.sequences is None
        return self._plain and not self.hashes.shared_count and pool.split_freed

    # ------------------------------------------------------------------ admission
    def find_prefix(self, request: int, tokens: int) -> Prefix:
        if self.hashes is None:
            return NO_PREFIX
        blocks = self._lookup(request, self._findable(request, tokens - 1))
        return Prefix(len(blocks) * self.block_size, blocks) if len(blocks) else NO_PREFIX

    def _lookup(self, request: int, full: int) -> BlockIds:
        """The leading ones of the first ``full`` blocks that are cached: those that others may find, then its own."""
        assert self.hashes is not None
        shared, returned = self._shared1[request], request in self._left
        found: BlockIds = NO_PREFIX.blocks
        if shared and full:
            found = self.pool.lookup(self.hashes.span(request, 0, min(shared, full)))
        if returned and shared <= len(found) and shared < full:
            own = self._left.lookup(request, self.hashes.span(request, shared, full))
            found = np.concatenate((found, own)) if shared else own
        return found

    def need(self, ask: Ask) -> int:
        tokens = min(ask.known, self.demand.max_model_len) if ask.whole else ask.tokens
        return (-(-tokens // self.block_size) - len(ask.prefix.blocks)) * self.block_size

    def fits(self, ask: Ask) -> bool:
        found = ask.prefix.blocks
        room = self.pool.free - ask.keep_free - self.need(ask) // self.block_size      # for those of the found ones that lie free
        return room >= len(found) or self.pool.lying_free(found) <= room

    def admit(self, ask: Ask) -> int | None:
        found = ask.prefix.blocks
        if not self.fits(ask):
            return None
        if self.stats is not None:
            self.stats.admitted(ask, lambda: self._found_writers(ask.request, found))
        if len(found):
            self.pool.touch(found)
        return self._seat(ask.request, found, ask.tokens)

    def _found_writers(self, request: int, found: BlockIds) -> IntArray:
        """Who filled the blocks found for a request: those behind its shared ones it filled itself."""
        assert self.hashes is not None and self.stats is not None
        shared = self._shared1[request]
        writers = self.stats.writers(found)
        if len(found) > shared:
            writers[shared:] = request
        return writers

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
        handle = self._new_row(request, tokens, found, new)
        if self.hashes is not None:
            if known < self._shared1[request] or not self._plain:
                self._note_filled(request, new, known)
                self._cache_run(request, new, known, self._findable(request, tokens))
            self._kept1[handle] = known
        return handle

    def fork(self, handle: int) -> int | None:
        """See `Allocator.fork`; it always fits. ValueError if the request is one sequence: its blocks would be findable."""
        self._check(handle)
        request, filled = int(self._request[handle]), int(self._filled[handle])
        if self.private_after is None or self.private_after[request] == ALL:
            raise ValueError(f"request {request} is one sequence and cannot fork")
        blocks = self.table(handle)
        self.pool.touch(blocks)
        child = self._new_row(request, filled, blocks)
        self._kept1[child] = self._kept1[handle]
        if filled % self.block_size:
            self._ends.join(self._filled[[child]], self._end[[child]])
        return child

    # ------------------------------------------------------------------ leaving
    def release(self, handle: int, returns: bool = False) -> None:
        self._check(handle)
        table = self.table(handle)
        full = self._mark_own(handle) if self._plain else None
        if not returns:
            self._left.forget(self._request1[handle])
        elif self.hashes is not None:
            self._remember(handle, table)
        if self._ends.extra and self._filled[handle] % self.block_size and self.pool.ref[table[-1]] > 1:
            self._ends.leave(self._filled[[handle]], self._end[[handle]])
        self.pool.release(table, full)
        self._drop_row(handle)

    def _remember(self, handle: int, table: BlockIds) -> None:
        """Where the private blocks of a request lie that will come back."""
        assert self.hashes is not None
        request = self._request1[handle]
        shared = self._shared1[request]
        own = table[shared:self._findable(request, len(table) * self.block_size)]
        hashes = self.hashes.span(request, shared, shared + len(own))
        self._left.note(request, own, max(self._kept1[handle] - shared, 0), hashes)
