"""Paged allocation for models with several kinds of attention: a block table a group, one block pool for all.

    request 4   full      [ 7 | 8 | 21 | 22 | 30 ]       all groups have as many places, for the same tokens;
                sliding   [ 0 | 0 |  3 |  9 | 31 ]       0 is the null block: the window has left that place behind

All groups take from one free queue, and what one gives back another may get (rules 39-41 of docs/rules.md). A hash names the
content and the group, so the prefix index is still one array. Before a sequence grows, blocks that have left its window are
freed, last first, whether or not it then fits; new blocks are taken group by group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from sim.demand import Demand
from sim.memory.allocator import Ask, Decoding, Lag, Prefix, Taken
from sim.memory.block_hash import BlockHashes
from sim.memory.block_pool import BlockPool
from sim.memory.group_tables import GroupTables, Leaving, spread
from sim.memory.prefix_index import NO_HASH, BlockIds
from sim.memory.prefix_stats import PrefixStats
from sim.memory.window import GroupKind, HitSearch
from workloads.request import IntArray

__all__ = ["GroupKind", "GroupedAllocator"]


class GroupedAllocator(GroupTables):
    """Block tables of every group for running sequences on one `BlockPool`.

    Parameters
    ----------
    demand : Demand
        Lengths of the requests that may be admitted.
    num_blocks : int
        vLLM's number, null block included. A block is one group's: ``block_size`` slots of that group's layers.
    block_size : int
        Slots a block, alike in all groups.
    groups : sequence of GroupKind
        In vLLM's order; at least one.
    caching : bool
        Prefix caching.
    max_in_flight_tokens : int
        Tokens scheduled at once, for the bound of the admission test: ``max_num_batched_tokens``, twice that with
        asynchronous scheduling.
    split_freed : bool
        Whether freed blocks without a hash go to the front of the free queue, see `BlockPool`.
    """

    reserves_ahead = False

    copies = 0

    def __init__(self, demand: Demand, num_blocks: int, block_size: int, groups: Sequence[GroupKind], caching: bool,
                 max_in_flight_tokens: int, split_freed: bool = True) -> None:
        for name, value in (("block_size", block_size), ("groups", len(groups)), ("max_in_flight_tokens", max_in_flight_tokens)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        width = -(-int(demand.end[~demand.too_long].max(initial=1)) // block_size)
        if any(kind.reach is None for kind in groups):
            width = min(width, num_blocks - 1)
        self.hashes = BlockHashes(demand, block_size) if caching else None
        pool = BlockPool(num_blocks, max(1, self.hashes.count) * len(groups) if self.hashes else 0, split_freed)
        super().__init__(groups, block_size, width, pool)
        self.demand = demand
        self.stats = PrefixStats(demand, num_blocks, block_size) if caching else None
        self._search = HitSearch(self.groups, block_size)
        self._findable = np.array([g for g, kind in enumerate(groups) if kind.findable], np.int64)
        self._most = [kind.most_blocks(block_size, max_in_flight_tokens, demand.max_model_len) for kind in groups]

    def impossible(self) -> NDArray[np.bool_]:
        """Requests whose blocks could not all be promised again, even alone: counted as vLLM's check at start does."""
        blocks = -(-self.demand.end // self.block_size)
        need = np.zeros_like(blocks)
        for kind, most in zip(self.groups, self._most, strict=True):
            # Where chunks begin inside a block, a sequence may hold one more than vLLM counts.
            ragged = kind.kind == "chunked" and kind.reach is not None and kind.reach % self.block_size > 0
            need += np.minimum(blocks, most + ragged)
        return need * self.block_size > self.capacity

    # ------------------------------------------------------------------ admission
    def find_prefix(self, request: int, tokens: int) -> Prefix:
        """Its ``blocks`` have shape (blocks hit, groups), with 0 where a group does not need the block."""
        width, limit = len(self.groups), tokens - 1
        if self.hashes is None:
            return Prefix(0, np.zeros((0, width), np.int64))
        keys = self.hashes.span(request, 0, limit // self.block_size) * width

        def cached(kind: GroupKind, blocks: int) -> NDArray[np.bool_]:
            both: NDArray[np.bool_] = np.logical_and.reduce(
                [self.pool.find(keys[:blocks] + g) != NO_HASH for g in self._search.members[kind]])
            return both

        hit, first = self._search.longest(limit, cached)
        found = np.zeros((hit, width), np.int64)
        for g, kind in enumerate(self.groups):
            found[first[kind]:, g] = self.pool.find(keys[first[kind]:hit] + g)
        return Prefix(hit * self.block_size, found)

    def need(self, ask: Ask) -> int:
        return self._new_blocks(ask) * self.block_size

    def _new_blocks(self, ask: Ask) -> int:
        """The larger of vLLM's two tests: all known tokens, bounded by what a window can hold, and those of this step."""
        size, found = self.block_size, len(ask.prefix.blocks)
        step = (-(-ask.tokens // size) - found) * len(self.groups)
        if not ask.whole:
            return step
        known = -(-min(ask.known, self.demand.max_model_len) // size)
        return max(step, sum(max(min(known, most) - found, 0) for most in self._most))

    def fits(self, ask: Ask) -> bool:
        found = ask.prefix.blocks
        lying_free = int(np.count_nonzero(self.pool.ref[found[found != 0]] == 0)) if len(found) else 0
        return self._new_blocks(ask) + lying_free <= self.pool.free - ask.keep_free

    def admit(self, ask: Ask) -> int | None:
        if not self.fits(ask):
            return None
        width, hit = len(self.groups), len(ask.prefix.blocks)
        found = ask.prefix.blocks.reshape(hit, width)
        if self.stats is not None:
            one = _one_each(found)
            self.stats.admitted(ask._replace(prefix=Prefix(ask.prefix.tokens, one)), partial(self.stats.writers, one))
        self.pool.touch(found[found != 0])
        new = self.pool.take((-(-ask.tokens // self.block_size) - hit) * width)
        handle = self._new_row(ask.request, int(self.demand.end[ask.request]), found, new.reshape(width, -1))
        if self.stats is not None:
            self.stats.wrote(new, ask.request)
        self.settle(np.array([handle]), np.array([ask.prefix.tokens]), np.array([ask.tokens]))
        return handle

    # ------------------------------------------------------------------ growth
    def extend(self, handles: IntArray, computed: IntArray, new: IntArray, lag: Lag | None = None) -> int:
        more = np.maximum(-(-(computed + new) // self.block_size) - self._length[handles], 0)
        processed = computed if lag is None else lag.processed
        served = self._grow(handles, more, processed, (self._leaves_at[handles] <= processed) & (new > 0))
        first, stop = (computed, computed + new) if lag is None else (lag.cache_from, lag.cache_to)
        moved = new[:served] > 0
        self.settle(handles[:served][moved], first[:served][moved], stop[:served][moved])
        return served

    def extend_by_one(self, sequences: Decoding) -> bool:
        handles, computed = sequences.handle, sequences.computed
        more = (self._length[handles] * self.block_size == computed).astype(np.int64)
        if int(np.add.reduce(more)) * len(self.groups) > self.pool.free:
            return False
        self._grow(handles, more, computed, self._leaves_at[handles] <= computed)
        filled = ((computed + 1) % self.block_size == 0).nonzero()[0]
        self._cache(handles[filled], computed[filled] // self.block_size)
        return True

    def _grow(self, handles: IntArray, more: IntArray, processed: IntArray, leaving: NDArray[np.bool_]) -> int:
        """Free what has left a window and append ``more`` places to each sequence, in order; how many were served."""
        pool, total = self.pool, int(np.add.reduce(more)) * len(self.groups)
        if np.count_nonzero(leaving):
            gone = self._leaving(handles, processed, leaving.nonzero()[0])
            # Freed blocks that can be found join the end of the queue, and those at its front are the next all the same.
            if total and (total > pool.free or np.count_nonzero(pool.hash_of[gone.blocks] == NO_HASH)):
                return self._grow_in_turn(handles, more, gone)
            self._give_back(gone)
        served = len(handles)
        if total > pool.free:                          # only the first few, in running order
            served = int(np.searchsorted(np.cumsum(more) * len(self.groups), pool.free, side="right"))
            total = int(np.add.reduce(more[:served])) * len(self.groups)
        if total:
            self._seat(handles[:served], more[:served], pool.take(total))
        return served

    def _grow_in_turn(self, handles: IntArray, more: IntArray, gone: Leaving) -> int:
        """The same where a block that one sequence gives back may be the next one's."""
        segments, taken, freed, served = deque(gone.segments()), [np.zeros(0, np.int64)], 0, len(handles)
        busy = more > 0
        busy[gone.rows] = True
        for i in busy.nonzero()[0].tolist():
            while segments and segments[0][0] == i:
                blocks = segments.popleft()[1]
                self.pool.release(blocks[::-1])
                freed += len(blocks)
            need = int(more[i]) * len(self.groups)
            if need > self.pool.free:
                served = int(i)
                break
            if need:
                taken.append(self.pool.take(need))
        self._forget(gone.before(freed))
        self._seat(handles[:served], more[:served], np.concatenate(taken))
        return served

    def _seat(self, handles: IntArray, more: IntArray, blocks: BlockIds) -> None:
        growing = more.nonzero()[0]
        handles, more = handles[growing], more[growing]
        if self.stats is not None:
            self.stats.wrote(blocks, np.repeat(self._request[handles], more * len(self.groups)))
        self._append_places(handles, more, blocks)

    def _give_back(self, gone: Leaving) -> None:
        """One call a group of a sequence where a shared block or the order at the front of the queue asks for it."""
        blocks = gone.blocks
        if np.count_nonzero((self.pool.ref[blocks] != 1) | (self.pool.hash_of[blocks] == NO_HASH)):
            for _, segment in gone.segments():
                self.pool.release(segment[::-1])
        else:
            self.pool.release(blocks[::-1])
        self._forget(gone)

    def settle(self, handles: IntArray, first: IntArray, stop: IntArray) -> None:
        """Make the blocks findable that tokens ``first[i]`` to ``stop[i] - 1`` of each sequence have filled."""
        place = first // self.block_size
        who, within = spread(np.maximum(stop // self.block_size - place, 0))
        self._cache(handles[who], place[who] + within)

    def _cache(self, handles: IntArray, places: IntArray) -> None:
        if self.hashes is None or not len(handles) or not len(self._findable):
            return
        hashes = self.hashes.at(self._request[handles], places)[:, None] * len(self.groups) + self._findable
        blocks = self._table[handles[:, None], self._findable, places[:, None]]
        held = blocks != 0                             # a place left behind before it was settled holds nothing
        self.pool.cache(blocks[held], hashes[held])

    def decode_limit(self, sequences: Decoding, most: int) -> int:
        """Steps until a block changes hands: those that only fill blocks are alike."""
        handles, computed = sequences.handle, sequences.computed
        until = np.minimum(self._length[handles] * self.block_size, self._leaves_at[handles]) - computed
        return min(most, int(until.min()))

    def decode(self, sequences: Decoding, steps: int) -> Taken | None:
        handles, computed = sequences.handle, sequences.computed
        filled = (computed + steps) // self.block_size > computed // self.block_size
        rows = filled.nonzero()[0]
        order = rows[np.argsort(-computed[rows] % self.block_size, kind="stable")]     # by the step that fills them
        self._cache(handles[order], computed[order] // self.block_size)
        return None

    # ------------------------------------------------------------------ leaving
    def release(self, handle: int, returns: bool = False) -> None:
        self._check(handle)
        for table, first in zip(self.table(handle), self._first[handle].tolist(), strict=True):
            self.pool.release(table[first:])
        self._drop_row(handle)

    def fork(self, handle: int) -> NoReturn:
        raise NotImplementedError("block tables of several groups are not forked: one sequence a request")

    def restore(self, request: int, tokens: int) -> NoReturn:
        raise NotImplementedError("block tables of several groups are not swapped: preemption is by recomputation")

    def restore_need(self, tokens: int, request: int | None = None) -> NoReturn:
        self.restore(0, tokens)


def _one_each(found: BlockIds) -> BlockIds:
    """For each block hit one that holds it: of the first group that has it, else that of the next block."""
    places = np.arange(len(found))
    blocks = found[places, (found != 0).argmax(axis=1)]
    behind = np.where(blocks != 0, places, len(found) - 1)[::-1]
    following: BlockIds = blocks[np.minimum.accumulate(behind)[::-1]]
    return following
