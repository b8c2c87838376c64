"""The books of one server: what the ledger and the timeline are told, so that every microsecond is booked once.

    nothing to do | step           | 37 decode steps alike            | a stretch of free flow
    the state     | the state x us | sums over them, the last state   | an array entry a step
                  ^ booked_us moves on from here
"""

from __future__ import annotations

import numpy as np

from sim.flow import Flow
from sim.ledger import Integrals, PoolState
from sim.memory.allocator import NOTHING, Taken, ToCome
from sim.run import Run
from sim.scheduler import Scheduler
from sim.step import Jump
from sim.timeline import Timeline


class Books:
    """Books the states of one pool.

    Parameters
    ----------
    facts : Run
        With the ledger.
    scheduler : Scheduler
    timeline : Timeline, optional
        Takes samples for a picture.

    Attributes
    ----------
    booked_us : int
        The ledger knows everything up to here.
    """

    def __init__(self, facts: Run, scheduler: Scheduler, timeline: Timeline | None) -> None:
        self.booked_us = 0
        self.timeline = timeline
        self._ledger, self._allocator, self._scheduler = facts.ledger, facts.allocator, scheduler

    def integrals(self, now: int) -> Integrals:
        """The ledger's sums up to ``now``; nobody has had anything to do since what was booked last."""
        self.idle(now)
        return self._ledger.before(self.booked_us - now)

    def idle(self, now: int) -> None:
        """Nothing was to be done since the last step."""
        if now > self.booked_us:
            self.step(self.booked_us, now - self.booked_us, waiting=0)

    def step(self, start: int, duration: int, waiting: int) -> None:
        """The pool is as it is now from ``start`` on for so many microseconds."""
        state = self._state()
        self._ledger.book(state, duration)
        self.booked_us = start + duration
        if self.timeline is not None:
            self.timeline.sample(start, state.counts, state.running, waiting)

    def jump(self, jump: Jump, taken: Taken | None) -> None:
        """Decode steps that were made at once."""
        allocator, refused, pace, n = self._allocator, self._scheduler.refused, jump.pace, jump.sequences
        first, time_us = jump.context + jump.kept, jump.pace.total_us
        to_come = NOTHING if taken is None else taken.to_come(pace.offsets)
        sums = allocator.counts(first * time_us + n * pace.ramp_us, refused, to_come, time_us)
        last = self._state()
        self._ledger.book_run(last, sums, allocator.logical(to_come, time_us), time_us)
        self.booked_us = jump.end_us
        if self.timeline is not None:
            behind_first = NOTHING if taken is None else taken.to_come([0] + [1] * (pace.steps - 1))
            self.timeline.sample(jump.start_us, allocator.counts(first, refused, behind_first), last.running, jump.waiting)
            start_last = jump.start_us + pace.offsets[-1]
            self.timeline.sample(start_last, last.counts, last.running, jump.waiting)

    def stretch(self, flow: Flow, to_come: ToCome) -> None:
        """A stretch of free flow, of which the timeline is told nothing."""
        allocator = self._allocator
        self._ledger.book_steps(allocator.counts(flow.tokens, None, to_come), allocator.logical(to_come), flow.places,
                                np.diff(flow.starts_us))
        self.booked_us = int(flow.starts_us[-1])

    def _state(self) -> PoolState:
        allocator, scheduler = self._allocator, self._scheduler
        return PoolState(allocator.counts(scheduler.computed, scheduler.refused), allocator.logical(), allocator.largest_hole(),
                         len(scheduler.running))
