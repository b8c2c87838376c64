"""How block tables grow: by the next chunk of a prompt, by a token each, by many decode steps at once.

    before a step   [ 7 | 8 | 21 ]     48 of 48 slots hold a token: the next one needs a block
    after it        [ 7 | 8 | 21 | 30 ]     and 21, full now, is findable

Blocks are handed out in running order, those of many steps step by step: it does not matter how many are made at once.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, chain, islice

import numpy as np

from sim.memory.allocator import Decoding, Lag, Taken
from sim.memory.block_tables import BlockTables, runs
from sim.memory.prefix_index import BlockIds
from sim.memory.sharing import writers_that_copy
from workloads.request import IntArray


class GrowingTables(BlockTables):
    """`BlockTables` that get longer."""

    def extend(self, handles: IntArray, computed: IntArray, new: IntArray, lag: Lag | None = None) -> int:
        size = self.block_size
        if len(handles) == 1 and lag is None and not self._ends.extra:
            return int(self._extend_run(int(handles[0]), int(computed[0]), int(new[0])))
        have = self._blocks(handles)
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
            self._lengthen(handles, first + more)
        if self.private_after is not None:
            self._filled[handles] = computed + new
        if self.hashes is not None and len(handles):
            if lag is None:
                self.settle(handles, computed, computed + new)
            else:
                start = lag.cache_from[: len(handles)]
                self.settle(handles, start, np.where(new > 0, lag.cache_to[: len(handles)], start))
        return len(handles)

    def _extend_run(self, row: int, computed: int, new: int) -> bool:
        """`extend` of one sequence that shares no partly filled block, such as the next chunk of a prompt.

        In slices; array operations for several sequences take five times as long.
        """
        size, start = self.block_size, row * self._width
        have = self._next1[row] - start
        more = max(-(-(computed + new) // size) - have, 0)
        if more > self.pool.free:
            return False
        request, end = self._request1[row], self._end1[row]
        if more:
            blocks = self._places[start + have:start + have + more] = self.pool.take(more)
            self._next1[row] = start + have + more
            self.slots += more * size
            self.fillable += min((have + more) * size, end) - min(have * size, end)
            if self.hashes is not None:
                self._note_filled(request, blocks, have)
        if self.private_after is not None:
            self._filled1[row] = computed + new
        if self.hashes is not None:
            first, full = computed // size, self._findable(request, computed + new)
            if first < full:
                self._full1[row] = start + full
                self._cache_run(request, self._places[start + first:start + full], first, full)
        return True

    def extend_by_one(self, sequences: Decoding) -> bool:
        if self._ends.extra:
            handles, computed = sequences.handle, sequences.computed
            one = np.ones_like(computed)
            new = int(np.count_nonzero(self._blocks(handles) * self.block_size == computed))
            fits = new + int(self._copy(handles, computed, one).sum()) <= self.pool.free
            return fits and self.extend(handles, computed, one) == len(handles)
        full, filled = sequences.due(self.block_size, 1)
        if len(full) > self.pool.free:
            return False
        if full or filled:
            self._grow(full, filled, len(full))
        if self.private_after is not None:
            self._filled[sequences.handle] = sequences.computed + 1
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
            requests = self._request[rows]
            blocks, hashes = self._table[rows, places], self.hashes.at(requests, places)
            shared = places < self.hashes.shared[requests]
            several = int(np.count_nonzero(shared))
            if several:
                self.pool.cache(*(blocks, hashes) if several == len(rows) else (blocks[shared], hashes[shared]))
            if several < len(rows):
                self.pool.mark(*(blocks[~shared], hashes[~shared]) if several else (blocks, hashes))

    def settle(self, handles: IntArray, first: IntArray, stop: IntArray) -> None:
        if self.hashes is None:
            return
        start, full = first // self.block_size, stop // self.block_size
        if self._plain:
            self._full[handles] = np.maximum(self._full[handles], handles * self._width + full)
            full = np.minimum(full, self.hashes.shared[self._request[handles]])
        self._cache_full(*runs(handles, start, np.maximum(full - start, 0)))

    # ------------------------------------------------------------------ many decode steps at once
    def decode_limit(self, sequences: Decoding, most: int) -> int:
        if self._ends.extra:
            return min(most, 1)
        periods, rest = divmod(self.pool.free, len(sequences))
        if periods * self.block_size >= most:
            return most
        until_new_block = np.sort(-sequences.computed % self.block_size)
        return min(most, periods * self.block_size + int(until_new_block[rest]))

    def decode(self, sequences: Decoding, steps: int) -> Taken | None:
        if self._ends.extra:
            raise ValueError("no decode steps at once while a partly filled block is shared")
        if self.private_after is not None:
            self._filled[sequences.handle] = sequences.computed + steps
        *due, filled = sequences.due(self.block_size, steps)           # what the last step fills has no block behind it yet
        after = [n for n, rows in enumerate(due) if rows]
        blocks = [len(due[n]) for n in after]
        total = sum(blocks)
        flags = iter(self.pool.evicted_of_next(total))
        at_end = self._grow(list(chain.from_iterable(due)), filled, len(due[0]))
        if not total:
            return None
        fillable = [n * self.block_size for n in blocks]
        for at, missing in at_end:
            fillable[bisect_right(list(accumulate(blocks)), at)] -= missing
        return Taken(after, blocks, [sum(islice(flags, n)) for n in blocks], fillable)

    def _grow(self, rows: list[int], filled: list[int], before: int) -> list[tuple[int, int]]:
        """Decode steps: a new block for each of these rows, what was in front of it being full; those in ``filled`` are full now.

        The first ``before`` were full, and findable, before the first step. Returns which of the new blocks are the last that
        their sequences need, and the slots of each that stay empty.

        One block at a time: about one sequence in sixteen needs one in a step. Array operations take as long for twenty blocks,
        and two or three times as long for the handful of a usual step: with them the replay of `dynamo` took 3.2 s and not 2.8.
        """
        size, table, next_place, last, full = self.block_size, self._places1, self._next1, self._last1, self._full1
        at_end: list[tuple[int, int]] = []
        places: list[int] = []
        total = len(rows)
        for row, block in zip(rows, self.pool.take(total).tolist() if total else (), strict=True):
            place = next_place[row]
            table[place] = block
            next_place[row] = place + 1
            if place == last[row]:
                at_end.append((len(places), -self._end1[row] % size))
            places.append(place)
        self.slots += total * size
        self.fillable += total * size - sum(missing for _, missing in at_end)
        for row in rows[before:]:
            full[row] = next_place[row] - 1
        for row in filled:
            full[row] = next_place[row]
        if self.hashes is not None and not self._plain:
            places += [next_place[row] for row in filled]
            self._cache_grown(rows + filled, places, total, before)
        return at_end

    def _cache_grown(self, rows: list[int], places: list[int], total: int, before: int) -> None:
        """New blocks are at the first ``total`` places; in front of those from ``before`` on one got full."""
        where, row = np.array(places, np.int64), np.array(rows, np.int64)
        place = where - row * self._width
        self._note_writers(self._places[where[:total]], row[:total], place[:total])
        self._cache_full(row[before:], place[before:] - 1)

    # ------------------------------------------------------------------ what becomes findable
    def _findable(self, request: int, tokens: int) -> int:
        """How many of the full blocks of the first ``tokens`` tokens may be findable."""
        full = tokens // self.block_size
        return full if self.private_after is None else min(full, int(self.private_after[request]))

    def _note_filled(self, request: int, blocks: BlockIds, first: int) -> None:
        """A request is about to fill these blocks, from place ``first`` on."""
        assert self.hashes is not None and self.stats is not None
        shared = self._shared1[request]
        if first < shared:
            self.stats.wrote(blocks[: shared - first], request)

    def _cache_run(self, request: int, blocks: BlockIds, first: int, full: int) -> None:
        """Of these blocks from place ``first`` on those before ``full`` become findable: by all, or by the request alone.

        The latter are marked when they are given back where tables are plain.
        """
        assert self.hashes is not None
        hashes, shared = self.hashes, self._shared1[request]
        stop = min(shared, full)
        if first < stop:
            self.pool.cache(blocks[: stop - first], hashes.span(request, first, stop), distinct=True)
            blocks, first = blocks[stop - first:], stop
        if first < full and not self._plain:
            self.pool.mark(blocks[: full - first], hashes.span(request, first, full))
