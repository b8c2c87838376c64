"""Stays: from when to when each request was running, as the engine's events tell it, and the levels that follow.

A request has a stay an admission: one if nobody preempts it.

    r0   arrives        [ stay ]         [ stay ]                       preempted once
         |---waiting----|running|--waiting--|running| ends

Everything is columns without a run behind them: those of several servers are put one behind the other. Where a request has
several sequences, ``surplus`` counts what runs besides the first sequence of each stay, so that levels count sequences as the
ledger does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from sim.flow import Flow
from sim.levels import Level, level_of
from sim.memory.allocator import Allocator
from sim.memory.flowing import Flowed
from sim.request_log import NEVER
from sim.run import Observer
from sim.scheduler import Scheduler
from sim.step import Step
from workloads.request import IntArray


@dataclass(frozen=True, eq=False)
class Stays:
    """Columns, all int64 in microseconds.

    Parameters
    ----------
    request, admitted_us, left_us : shape (stays,)
        Row of the trace, when the step began that admitted it, when it was preempted or ended.
    surplus_us, surplus : shape (changes,)
        Changes of the number of running sequences beyond one a stay; none where every request has one sequence.
    """

    request: IntArray
    admitted_us: IntArray
    left_us: IntArray
    surplus_us: IntArray
    surplus: IntArray

    def __len__(self) -> int:
        return len(self.request)


def concatenated(stays: Sequence[Stays]) -> Stays:
    """Stays of several runs on one clock as one; requests keep their numbers.

    >>> one = Stays(np.array([0]), np.array([5]), np.array([9]), np.zeros(0, int), np.zeros(0, int))
    >>> concatenated([one, one]).left_us.tolist()
    [9, 9]
    """
    return Stays(*(np.concatenate([np.zeros(0, np.int64), *(getattr(s, f.name) for s in stays)]) for f in fields(Stays)))


def running_level(stays: Stays) -> Level:
    """How many sequences run, from any instant on: the ledger's number, by another way.

    >>> none = np.zeros(0, int)
    >>> running_level(Stays(np.array([0, 1]), np.array([5, 7]), np.array([9, 8]), none, none)).values.tolist()
    [1, 2, 1, 0]
    """
    ones = np.ones(len(stays), np.int64)
    return level_of(np.concatenate((stays.admitted_us, stays.left_us, stays.surplus_us)),
                    np.concatenate((ones, -ones, stays.surplus)))


def waiting_level(stays: Stays, arrival_us: IntArray, finished_us: IntArray) -> Level:
    """How many requests have arrived and neither run nor ended: not admitted yet, or preempted.

    Parameters
    ----------
    stays : Stays
    arrival_us : int64
        Arrivals of served requests; the rejected do not wait. ``NEVER`` (-1) for who never came.
    finished_us : int64
        Ends; ``NEVER`` for none.

    >>> none = np.zeros(0, int)
    >>> stays = Stays(np.array([0, 0]), np.array([5, 9]), np.array([7, 12]), none, none)       # preempted from 7 to 9
    >>> level = waiting_level(stays, np.array([1]), np.array([12]))
    >>> level.times_us.tolist(), level.values.tolist()
    ([1, 5, 7, 9], [1, 0, 1, 0])
    """
    arrived, ended = arrival_us[arrival_us != NEVER], finished_us[finished_us != NEVER]
    times = (arrived, stays.left_us, stays.admitted_us, ended)     # whoever leaves waits, unless it ends at that instant
    changes = [np.full(len(column), sign, np.int64) for column, sign in zip(times, (1, 1, -1, -1), strict=True)]
    return level_of(np.concatenate(times), np.concatenate(changes))


class StayLog(Observer):
    """Writes down stays as a run goes on; a few operations an admission, none a step that only grows.

    Examples
    --------
    >>> from sim.config import SimConfig
    >>> from sim.engine import Engine
    >>> from sim.step_time import ConstantStepTime
    >>> from workloads.request import Trace
    >>> trace = Trace("two", np.array([5, 6]), np.array([3, 1]), arrival_us=np.array([0, 2]))
    >>> log = StayLog()
    >>> run = Engine(trace, SimConfig(6, 4, 8, step_time=ConstantStepTime(10)), "paged", observers=[log]).run()
    >>> stays = log.stays()
    >>> stays.request.tolist(), stays.admitted_us.tolist(), stays.left_us.tolist()
    ([0, 1], [0, 10], [30, 20])
    """

    follows_flow = True

    def __init__(self) -> None:
        self._scheduler: Scheduler | None = None
        self._open: dict[int, int] = {}                # admitted when, of who runs
        self._rows: list[tuple[int, int, int]] = []
        self._surplus: list[tuple[int, int]] = []
        self._surplus_now = 0
        self._now = 0

    def started(self, allocator: Allocator, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def scheduled(self, now_us: int, step: Step) -> None:
        self._now = now_us
        for request, _ in step.preempted:
            self._leave(request, now_us)
        for admitted in step.admitted:
            self._open[admitted[0]] = now_us
        for request, _ in step.swapped_in:
            self._open[request] = now_us
        self._count_surplus(now_us)

    def updated(self, now_us: int, finished: list[int]) -> None:
        self._now = now_us
        for request in finished:
            if request in self._open:                  # not where it was preempted with its last token on the way
                self._leave(request, now_us)
        self._count_surplus(now_us)

    def flowed(self, flow: Flow, flowed: Flowed) -> None:
        starts: list[int] = flow.starts_us.tolist()
        begin, last = flow.begin.tolist(), flow.last.tolist()
        for row, request in enumerate(flow.request.tolist()):
            if row >= flow.running:
                self._open[request] = starts[begin[row]]
            if last[row] < flow.steps:
                self._leave(request, starts[last[row] + 1])
        self._now = starts[-1]

    def _leave(self, request: int, now_us: int) -> None:
        self._rows.append((request, self._open.pop(request), now_us))

    def _count_surplus(self, now_us: int) -> None:
        assert self._scheduler is not None
        if self._scheduler.groups is None:
            return
        surplus = len(self._scheduler.running) - len(self._open)
        if surplus != self._surplus_now:
            self._surplus.append((now_us, surplus - self._surplus_now))
            self._surplus_now = surplus

    def stays(self) -> Stays:
        """All stays by admission, then request; one that is not over ends at the last event, and its surplus with it."""
        rows = [*self._rows, *((request, since, self._now) for request, since in self._open.items())]
        table = np.array(sorted(rows, key=lambda row: (row[1], row[0])), np.int64).reshape(-1, 3)
        changes = [*self._surplus, *([(self._now, -self._surplus_now)] if self._surplus_now else [])]
        surplus = np.array(changes, np.int64).reshape(-1, 2)
        request, admitted_us, left_us = (column.copy() for column in table.T)
        return Stays(request, admitted_us, left_us, surplus[:, 0].copy(), surplus[:, 1].copy())
