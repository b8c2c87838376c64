"""Free flow: a stretch of steps in which nobody waits for memory or tokens, planned and made as a whole.

    r0   ........|                    runs from the start, and leaves with its last token
    r1   ..............
    r2     P...........|              arrives; its whole prompt is computed in the next step (P), then a token a step
    r3          P......
         0 1 2 3 4 5 6 7 8 ...        steps

While blocks and the token budget suffice, the way of a request is settled when it arrives: it is admitted in the next step in
which there is a place, and leaves after as many steps as it has output tokens. So the ways of hundreds of requests are columns
(`flow`), what they need in each step is a sum over them, and the first step in which something would not suffice is where the
stretch ends: from there on steps are made one by one, until the ways of all are settled again.

Like a jump over decode steps this changes nothing but the time it takes: a property of the tests.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.arrivals import Arrivals
from sim.batch import UNLIMITED
from sim.config import SimConfig
from sim.flow import Flow, Takes, takes_of
from sim.memory.paged import PagedAllocator
from sim.scheduler import Scheduler
from sim.step_time import ConstantStepTime, StepLoad
from sim.waiting import ArrivalQueue
from workloads.request import IntArray

FEW, AHEAD = 12, 256                                   # arrivals: the fewest of a stretch, and those looked at for one
MOST_BLOCKS = 1 << 20                                  # in all their tables: for some 100 MB of columns
LONGEST_PAUSE = 256
MOST_ROUNDS = 16
LARGEST = 1 << 62                                      # products of slots and microseconds of a stretch stay below, and its
                                                       # time below 2 ** 53, where sums in floats end to be exact
ZERO = np.zeros(1, np.int64)


class Stretch(NamedTuple):
    """A plan: the ways of all sequences, the blocks they take, and how many of them wait when it begins."""

    flow: Flow
    takes: Takes
    waited: int

    @property
    def arrivals(self) -> int:
        """Requests that are admitted in it."""
        return len(self.flow.request) - self.flow.running

    @property
    def end_us(self) -> int:
        return int(self.flow.starts_us[-1])


def free_flow(config: SimConfig, scheduler: Scheduler, arrivals: Arrivals) -> FreeFlow | None:
    """What plans the stretches of one server; None where there are none.

    That is where steps are to be made one by one, where requests are not admitted in the order of arrival and with a whole prompt
    each, where nobody knows who arrives, and where others may find a request's blocks. Schedulers and allocators that are derived
    from ours go by events.
    """
    limits, tables = config.scheduler, scheduler.allocator
    ours = type(scheduler) is Scheduler and type(scheduler.waiting) is ArrivalQueue
    whole = not limits.async_scheduling and not limits.long_prefill_token_threshold
    if not (ours and whole and arrivals.known) or config.longest_jump < 2 or config.saturate:
        return None
    return FreeFlow(config, scheduler, tables, arrivals) if isinstance(tables, PagedAllocator) and tables.flows else None


class FreeFlow:
    """Plans stretches where there can be some (`free_flow`).

    Parameters
    ----------
    config : SimConfig
    scheduler : Scheduler
    tables : PagedAllocator
        Of the scheduler.
    arrivals : Arrivals
    """

    def __init__(self, config: SimConfig, scheduler: Scheduler, tables: PagedAllocator, arrivals: Arrivals) -> None:
        self._scheduler, self._tables, self._arrivals = scheduler, tables, arrivals
        self._most_steps, self._step_time = config.longest_jump, config.step_time
        self._seqs = config.scheduler.max_num_seqs or UNLIMITED
        self._tokens = config.scheduler.max_num_batched_tokens or UNLIMITED
        self._constant_us = self._step_time.us if type(self._step_time) is ConstantStepTime else None
        self._ahead, self._pause, self._wait = AHEAD, 1, 0

    def plan(self, now: int) -> Stretch | None:
        """The stretch that begins now, None where there is none; nothing is under way and everybody's way is settled.

        A stretch costs as much as some requests by themselves, so a short one is none. After it there is a pause, the longer the
        more there were in a row. It is looked twice as far ahead as the last one went.
        """
        if self._wait:
            self._wait -= 1
            return None
        stretch = self._planned(now)
        served = 0 if stretch is None else stretch.arrivals
        self._ahead = min(max(2 * served, 2 * FEW), AHEAD)
        if served >= FEW:
            self._pause = 1
            return stretch
        self._wait = self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return None

    def _planned(self, now: int) -> Stretch | None:
        if not self._tables.flows:                     # somebody has begun to look on
            return None
        flow, waited = self._as_far_as_known(now)
        if not flow.steps:
            return None
        takes = takes_of(flow, self._tables.block_size)
        enough = self._suffices(flow, takes)
        steps = flow.steps if enough.all() else int(enough.argmin())
        if not steps:
            return None
        flow, takes = flow.cut(steps), takes.cut(steps)
        stretch = Stretch(flow, takes, min(waited, len(flow.request) - flow.running))
        most = max(self._tables.capacity, int(flow.end.max()), LARGEST >> 53)
        return stretch if (stretch.end_us - now) * most < LARGEST else None

    def _as_far_as_known(self, now: int) -> tuple[Flow, int]:
        """As if everything sufficed but places, until the first request that is not looked at; and how many of them wait now."""
        demand, batch, most = self._scheduler.demand, self._scheduler.running, self._most_steps
        rows, times_us, waited, cut = self._next_in_line(now)
        n, m = len(batch), len(rows)
        begin = np.concatenate((np.zeros(n, np.int64), np.full(m, most)))          # who comes is not in a step yet
        before = np.concatenate((batch.computed, np.zeros(m, np.int64)))
        chunk = np.concatenate((np.ones(n, np.int64), demand.prompt[rows]))
        flow, steps = self._timed(
            Flow(batch.handle.tolist(), np.concatenate((batch.request, rows)), begin, before, chunk,
                 np.concatenate((batch.end, demand.end[rows])), now + np.arange(most + 1)), times_us)
        return flow.cut(min(steps, int(flow.begin[-1])) if cut else steps), waited

    def _next_in_line(self, now: int) -> tuple[IntArray, IntArray, int, bool]:
        """Rows of those who wait and those who will come, when they are there, and how many wait.

        And whether the last one is not looked at: it says how far all arrivals are known.
        """
        line = list(islice(self._scheduler.waiting, self._ahead + 1))
        rows, times_us = self._arrivals.ahead(self._ahead + 1 - len(line))
        rows = np.concatenate((np.array(line, np.int64), rows))
        blocks = (self._scheduler.demand.end[rows] // self._tables.block_size + 1).cumsum()
        most = min(self._ahead, int(blocks.searchsorted(MOST_BLOCKS)))
        times_us = np.concatenate((np.full(len(line), now), times_us))
        return rows[:most + 1], times_us[:most + 1], len(line), len(rows) > most

    def _timed(self, flow: Flow, times_us: IntArray) -> tuple[Flow, int]:
        """The same with the times of its steps and of who comes, and in how many steps they are right.

        When a step begins depends on those before it, and who is admitted in it on when it begins. So it is tried, as if nobody
        came at first; each round is right further than the one before, and where two agree both are.
        """
        now, running, known = int(flow.starts_us[0]), flow.running, 0
        alike = self._constant_us is not None          # then who begins when does not matter
        for _ in range(1 if alike else MOST_ROUNDS):
            starts, timed = self._starts(flow, now)
            begin = np.concatenate((flow.begin[:running], self._with_a_place(flow, starts[:-1].searchsorted(times_us))))
            wrong = (begin != flow.begin).nonzero()[0]
            known = min(int(np.minimum(begin[wrong], flow.begin[wrong]).min(initial=flow.steps)), timed)
            flow = replace(flow, begin=begin, starts_us=starts)
            if not len(wrong):
                break
        return flow, flow.steps if alike else known

    def _starts(self, flow: Flow, now: int) -> tuple[IntArray, int]:
        """When the steps start, and how many have a time: up to the first that is none, as nobody runs or tokens run out."""
        steps = timed = flow.steps
        durations = np.full(steps, self._constant_us or 1)
        if self._constant_us is None:
            possible = self._possible(flow)
            timed = steps if possible.all() else int(possible.argmin())
        if self._constant_us is None and timed:
            loads = StepLoad(*(column[:timed] for column in flow.loads))
            durations[:timed] = self._step_time.duration_us(loads)
            durations[timed:] = durations[timed - 1]   # anything that grows
        return now + np.concatenate((ZERO, durations.cumsum())), timed

    def _with_a_place(self, flow: Flow, ready: IntArray) -> IntArray:
        """In which step each arrival finds a place, first come, first served, if it is there in step ``ready``."""
        if flow.running + len(ready) <= self._seqs:
            return ready
        busy, begin, at = flow.last[:flow.running].tolist(), [], 0
        heapify(busy)                                  # the last step of each place that is taken
        for first, more in zip(ready.tolist(), (flow.end - flow.chunk)[flow.running:].tolist(), strict=True):
            at = max(at, first)
            if len(busy) == self._seqs:
                at = max(at, heappop(busy) + 1)
            heappush(busy, at + more)
            begin.append(at)
        return np.minimum(begin, flow.steps)

    def _possible(self, flow: Flow) -> NDArray[np.bool_]:
        """Whether somebody has a place in each step, and there are tokens for all that have one."""
        return (flow.places > 0) & (flow.new_tokens <= self._tokens)

    def _suffices(self, flow: Flow, takes: Takes) -> NDArray[np.bool_]:
        """Whether each step is possible, and there are blocks for it."""
        taken = takes.by_step(flow.steps) - flow.left_before(-(-flow.end // self._tables.block_size))
        kept_free = np.where(flow.admitted > 0, self._scheduler.watermark_blocks, 0)
        return self._possible(flow) & (taken <= self._tables.pool.free - kept_free)
