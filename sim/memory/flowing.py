"""How block tables come and go in free flow: hundreds of requests at once (see `sim.flow`).

    the stretch     take take take | release | take take | release | take ...
    made as         take           | release | take      | release | take          one operation of the pool each

Between two releases all blocks that are taken lie in a row at the front of the free queue, whoever gets them; whose they are
follows from the stretch. So the tables of those who come and go within it are never rows: all lie one behind the other in one
array, those that leave first in front, and what a block holds in the end is what is said of it last:

    tables    [ r1: 4 5 9 | r0: 7 2 | r2: 4 5 8 11 | r3: 9 ]        4 and 5 of r1 were given to r2 when r1 had left
                gone        gone      stays          stays
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.flow import Flow, Takes, by_step
from sim.memory.allocator import ToCome
from sim.memory.growth import GrowingTables
from sim.memory.prefix_index import NO_HASH, BlockIds
from workloads.request import IntArray

ZERO = np.zeros(1, np.int64)


class FlowingTables(GrowingTables):
    """`GrowingTables` for whole stretches."""

    def flow(self, flow: Flow, takes: Takes) -> Flowed:
        """Make a stretch: there are blocks enough in every step."""
        tables, handles = FlowTables(flow, self.block_size), np.array(flow.handles, np.int64)
        before = spans(handles * self._width, tables.had[:flow.running])
        tables.blocks[spans(tables.first, tables.had)] = self._places[before]
        evicted = self._run_pool(flow, takes, tables)
        self._settle(flow, tables)
        self._go_on(flow, tables, handles)
        if self.stats is not None:
            self.stats.found_nothing(flow.chunk[flow.running:])
        return Flowed(tables, self._to_come(flow, takes, evicted), self._seat_all(flow, tables))

    def _run_pool(self, flow: Flow, takes: Takes, tables: FlowTables) -> NDArray[np.bool_]:
        """Take and give back; says of each block taken whether it was evicted for that."""
        gone, first = tables.gone, tables.first[tables.gone]
        until = np.concatenate((ZERO, takes.count.cumsum()))
        taken = until[takes.step.searchsorted(flow.last[gone], side="right")]
        leaving = (taken, first, first + tables.full[gone], first + tables.held[gone])
        return self.pool.flow(tables.blocks, spans(tables.first[takes.row] + takes.place, takes.count),
                              zip(*(column.tolist() for column in leaving), strict=True))

    def _settle(self, flow: Flow, tables: FlowTables) -> None:
        """What blocks hold in the end. First those that were given back; some of them were taken again, and so come behind."""
        gone, held = tables.gone, tables.held[tables.gone]
        hashes = np.full(int(held.sum()), NO_HASH)
        if self.hashes is not None:
            place = spans(np.zeros_like(held), held)
            private = self.hashes.private[flow.request[gone]].repeat(held) + place
            hashes = np.where(place < tables.full[gone].repeat(held), private, hashes)
        self.pool.settle(tables.blocks[:len(hashes)], 0, hashes)
        stay, taken = tables.stay, (tables.held - tables.had)[tables.stay]
        self.pool.settle(tables.blocks[spans(tables.first[stay] + tables.had[stay], taken)], 1, NO_HASH)

    def _go_on(self, flow: Flow, tables: FlowTables, handles: IntArray) -> None:
        """The rows of those that ran before: what they took stands behind what they had, or all is given back."""
        size, n = self.block_size, flow.running
        had, stays, end = tables.had[:n], flow.last[:n] >= flow.steps, flow.end[:n]
        blocks = np.where(stays, tables.held[:n], 0)
        taken = np.maximum(blocks - had, 0)
        self._places[spans(handles * self._width + had, taken)] = tables.blocks[spans(tables.first[:n] + had, taken)]
        self._lengthen(handles, blocks)
        self._full[handles] = handles * self._width + flow.computed[:n] // size
        self.slots += int((blocks - had).sum()) * size
        self.fillable += int((np.minimum(blocks * size, end) - np.minimum(had * size, end)).sum())
        self._free_handles += handles[~stays].tolist()
        for request in flow.request[:n][~stays].tolist():
            self._left.forget(request)

    def _seat_all(self, flow: Flow, tables: FlowTables) -> list[int]:
        """Rows for the arrivals that still run; their handles."""
        stay = tables.stay[tables.stay >= flow.running]
        columns = zip(stay.tolist(), flow.request[stay].tolist(), flow.computed[stay].tolist(), strict=True)
        handles = [self._new_row(request, computed, tables.table(row)) for row, request, computed in columns]
        self._kept[handles] = 0
        return handles

    def _to_come(self, flow: Flow, takes: Takes, evicted: NDArray[np.bool_]) -> ToCome:
        size, end = self.block_size, flow.end[takes.row]
        fillable = np.minimum((takes.place + takes.count) * size, end) - np.minimum(takes.place * size, end)
        taken, will_fill = takes.by_step(flow.steps), by_step(takes.step, fillable, flow.steps).cumsum()
        evicted_until = np.concatenate((ZERO, evicted.cumsum()))
        hashed = flow.end // size if self.pool.caching else np.zeros_like(flow.end)
        return ToCome(len(evicted) - taken - flow.to_leave(-(-flow.end // size)),
                      evicted_until[-1] - evicted_until[taken] - flow.to_leave(hashed),
                      int(fillable.sum()) - will_fill - flow.to_leave(flow.end))


class FlowTables:
    """Block tables of all rows of a stretch, as long as they are when the row has left or the stretch ends.

    Attributes
    ----------
    blocks : int64
        The tables one behind the other: those of ``gone`` rows as they leave, then of those that ``stay``.
    first, had, held, full : int64, shape (rows,)
        Where the table of each row begins, its blocks before the stretch, all its blocks, and those of them that are full.
    """

    def __init__(self, flow: Flow, size: int) -> None:
        self._flow, self._size = flow, size
        gone, self.stay = (flow.last < flow.steps).nonzero()[0], (flow.last >= flow.steps).nonzero()[0]
        self.gone = gone[flow.last[gone].argsort(kind="stable")]       # those of one step in running order
        self.had, self.held, self.full = -(-flow.before // size), -(-flow.computed // size), flow.computed // size
        order = np.concatenate((self.gone, self.stay))
        held = self.held[order]
        self.first = np.empty_like(held)
        self.first[order] = held.cumsum() - held
        self.blocks: BlockIds = np.zeros(int(held.sum()), np.int64)

    def table(self, row: int) -> BlockIds:
        """The blocks of a row (a view)."""
        return self.blocks[self.first[row]:self.first[row] + self.held[row]]

    def held_in(self, step: int) -> BlockIds:
        """The blocks of all tables in a step of the stretch, running order."""
        flow = self._flow
        runs = ((flow.begin <= step) & (flow.last >= step)).nonzero()[0]
        tokens = (flow.before + flow.chunk + step - flow.begin)[runs]
        return self.blocks[spans(self.first[runs], -(-tokens // self._size))]


class Flowed(NamedTuple):
    """What became of a stretch.

    Parameters
    ----------
    tables : FlowTables
    to_come : ToCome
        Arrays of shape (steps,): what was to come after each step until the end of the stretch, the blocks that were given back
        against those that were taken; see `FlowingTables.counts`.
    handles : list of int
        Of the arrivals that still run, in order.
    """

    tables: FlowTables
    to_come: ToCome
    handles: list[int]


def spans(first: IntArray, counts: IntArray) -> IntArray:
    """``counts[i]`` consecutive places from ``first[i]`` on, one span behind the other.

    >>> spans(np.array([7, 0]), np.array([2, 3])).tolist()
    [7, 8, 0, 1, 2]
    """
    run = (first - counts.cumsum() + counts).repeat(counts)
    places: IntArray = run + np.arange(len(run))
    return places
