"""Block tables of several groups, and how many slots they add up to.

    handle 3    group 0   [ 7 | 8 | 21 | 22 ]      length 4, first 0
                group 1   [ 0 | 0 |  3 |  9 ]      length 4, first 2: two places given back

A table is a run of null blocks (0) followed by held ones, so the number of null blocks, ``first``, says which. All tables of
a sequence are equally long. What happens to them, and when, is `grouped`'s; here are the rows and the sums the ledger asks
for. The pool is read, never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.memory.allocator import NOTHING, Refusal, SlotCounts, ToCome
from sim.memory.block_pool import BlockPool
from sim.memory.prefix_index import BlockIds
from sim.memory.window import UNBOUNDED, GroupKind
from workloads.request import IntArray


class Leaving(NamedTuple):
    """Blocks that have left their window, in the order they are freed: by sequence, group, and from the last place down.

    ``rows`` are the places of their sequences in the step; blocks with the same ``run``, those of one sequence and group,
    are given back together.
    """

    rows: IntArray
    run: IntArray
    handles: IntArray
    groups: IntArray
    places: IntArray
    blocks: BlockIds

    def segments(self) -> list[tuple[int, BlockIds]]:
        """The runs: row and blocks."""
        bounds = np.flatnonzero(np.diff(self.run, prepend=-1, append=-1)).tolist()
        rows = self.rows[bounds[:-1]].tolist()
        return [(row, self.blocks[a:b]) for row, a, b in zip(rows, bounds, bounds[1:], strict=False)]

    def before(self, n: int) -> Leaving:
        """The first ``n`` of them."""
        return Leaving(self.rows[:n], self.run[:n], self.handles[:n], self.groups[:n], self.places[:n], self.blocks[:n])


class GroupTables:
    """Tables by handle and group.

    Parameters
    ----------
    groups : sequence of GroupKind
    block_size : int
    width : int
        Places of the longest table.
    pool : BlockPool
        Where the blocks come from.

    Attributes
    ----------
    held : int64, by handle
        Slots of the blocks in the tables of all groups.
    slots, fillable, gone : int
        Sums over all sequences: slots held in all groups; places of one group that hold or will hold a token, in slots; and
        slots of the places given back.
    """

    def __init__(self, groups: Sequence[GroupKind], block_size: int, width: int, pool: BlockPool) -> None:
        self.groups = tuple(groups)
        self.pool = pool
        self.capacity = (pool.num_blocks - 1) * block_size
        self.block_size = block_size
        self.slots = self.fillable = self.gone = 0
        self.held: IntArray = np.zeros(64, np.int64)
        self._request: IntArray = np.zeros(64, np.int64)
        self._end: IntArray = np.zeros(64, np.int64)
        self._length: IntArray = np.zeros(64, np.int64)              # places of each table
        self._leaves_at: IntArray = np.full(64, UNBOUNDED, np.int64) # computed tokens at which the next block leaves a window
        self._first: IntArray = np.zeros((64, len(groups)), np.int64)
        self._table: IntArray = np.zeros((64, len(groups), width), np.int64)
        self._windows = np.array([g for g, kind in enumerate(groups) if kind.reach is not None], np.int64)
        self._free_handles = list(range(63, -1, -1))

    def table(self, handle: int) -> list[BlockIds]:
        """The block tables of a sequence, one a group: logical block -> block id, 0 where it was given back (views)."""
        return list(self._table[handle, :, : int(self._length[handle])])

    def _new_row(self, request: int, end: int, found: BlockIds, new: BlockIds) -> int:
        """A sequence begins with ``found`` of shape (places, groups) and ``new`` of shape (groups, places) behind it."""
        if not self._free_handles:
            self._more_handles()
        handle = self._free_handles.pop()
        hit, total = len(found), len(found) + new.shape[1]
        self._table[handle, :, :hit] = found.T
        self._table[handle, :, hit:total] = new
        self._first[handle] = np.count_nonzero(found == 0, axis=0)
        self._request[handle], self._end[handle], self._length[handle] = request, end, total
        gone = int(self._first[handle].sum())
        self.held[handle] = (total * len(self.groups) - gone) * self.block_size
        self._count(handle, 1)
        self._plan(np.array([handle]))
        return handle

    def _drop_row(self, handle: int) -> None:
        """A sequence ends."""
        self._count(handle, -1)
        self.held[handle] = self._length[handle] = 0
        self._free_handles.append(handle)

    def _check(self, handle: int) -> None:
        if not self._length[handle]:
            raise ValueError(f"handle {handle} holds nothing")

    def _count(self, handle: int, sign: int) -> None:
        size = self.block_size
        self.slots += sign * int(self.held[handle])
        self.fillable += sign * min(int(self._length[handle]) * size, int(self._end[handle]))
        self.gone += sign * int(self._first[handle].sum()) * size

    def _more_handles(self) -> None:
        n = len(self.held)
        for name in ("held", "_request", "_end", "_length", "_leaves_at", "_first", "_table"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate((column, np.zeros_like(column))))
        self._free_handles = list(range(2 * n - 1, n - 1, -1))

    def _append_places(self, handles: IntArray, more: IntArray, blocks: BlockIds) -> None:
        """Append ``more[i]`` places to each table of each sequence; ``blocks`` by sequence, group and place."""
        size, width = self.block_size, len(self.groups)
        have = self._length[handles]
        if len(blocks) == len(handles) * width:        # one place each: the usual case of a decode step
            self._table[handles, :, have] = blocks.reshape(-1, width)
        else:
            run, within = spread(np.repeat(more, width))
            who = run // width
            self._table[handles[who], run % width, have[who] + within] = blocks
        self._length[handles] = length = have + more
        self.held[handles] += more * width * size
        self.slots += len(blocks) * size
        end = self._end[handles]
        self.fillable += int(np.add.reduce(np.minimum(length * size, end) - np.minimum(have * size, end)))

    # ------------------------------------------------------------------ windows
    def _leaving(self, handles: IntArray, processed: IntArray, rows: IntArray) -> Leaving:
        """The blocks the next token of the sequences in these rows does not see, given how many tokens are processed."""
        handles, processed = handles[rows], processed[rows]
        kinds = [self.groups[g] for g in self._windows]
        stop = np.stack([kind.skipped(processed) // self.block_size for kind in kinds], axis=1)
        count = np.maximum(stop - self._first[handles[:, None], self._windows], 0)
        run, within = spread(count.ravel())
        who, groups = run // len(kinds), self._windows[run % len(kinds)]
        places = stop.ravel()[run] - 1 - within
        return Leaving(rows[who], run, handles[who], groups, places, self._table[handles[who], groups, places])

    def _forget(self, gone: Leaving) -> None:
        """Null blocks take the places of those given back."""
        self._table[gone.handles, gone.groups, gone.places] = 0
        np.add.at(self._first, (gone.handles, gone.groups), 1)
        np.subtract.at(self.held, gone.handles, self.block_size)
        slots = len(gone.blocks) * self.block_size
        self.slots -= slots
        self.gone += slots
        self._plan(gone.handles)

    def _plan(self, handles: IntArray) -> None:
        after = (self._first[handles] + 1) * self.block_size
        self._leaves_at[handles] = np.min([kind.leaves_at(after[:, g]) for g, kind in enumerate(self.groups)], axis=0)

    # ------------------------------------------------------------------ where the slots are
    def counts(self, computed: int, refused: Refusal | None, to_come: ToCome = NOTHING, time: int = 1) -> SlotCounts:
        size, pool, width = self.block_size, self.pool, len(self.groups)
        free, cached = pool.free * size * time, pool.cached_free * size * time
        used = self.capacity * time - free
        # Every group holds every token but those given back; a shared block is full: count its slots once.
        states = width * computed - (self.gone + self.slots) * time + used
        reserved = width * (self.fillable * time - computed)
        open_slots = free - cached
        return SlotCounts(states, reserved, used - states - reserved, cached, 0,
                          open_slots if refused else 0, 0 if refused else open_slots)

    def logical(self, to_come: ToCome = NOTHING, time: int = 1) -> int:
        return self.slots * time

    def largest_hole(self) -> None:
        return None


def spread(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Flatten runs: the number of the run and the place within it, for each of their elements.

    >>> spread(np.array([2, 0, 3]))
    (array([0, 0, 2, 2, 2]), array([0, 1, 0, 1, 2]))
    """
    run = np.repeat(np.arange(len(counts)), counts)
    behind = np.cumsum(counts) - counts
    return run, np.arange(len(run)) - behind[run]
