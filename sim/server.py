"""One server: it makes one engine step after the other, jumps over those that are alike, and books every slot.

It has no clock: whoever does (`sim.engine`) says what time it is and when somebody arrives, and comes back when what is under way
ends.

    add       --- r0 --------- r1 r2 --------------- r3 ---       r3 cuts the jump short: it ends with the step under way
    server        [ step ][ step   ][ 37 decode steps ][ step ]
                  ^begin ^end       ^begin             ^end

A step that only lets the running sequences grow is like the next one, so such steps are planned together, up to the next arrival
where somebody could join. They are made when the jump ends or somebody looks in, all at once: the ledger is told the sums over
them, which follow from when each block was taken, and the outcome is the same to the last byte. So it is of the stretches with
arrivals and ends in them that `free_flow` plans.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from sim.books import Books
from sim.entries import entries
from sim.flow import by_step
from sim.free_flow import Stretch
from sim.ledger import Integrals
from sim.pace import decode_pace
from sim.run import Observer, Run, Stalled
from sim.scheduler import Scheduler
from sim.stalls import Stalls
from sim.step import NO_RUN, DecodeRun, Jump, Step
from sim.timeline import Timeline


class Server:
    """Scheduler, allocator, ledger and log of one pool.

    Parameters
    ----------
    facts : Run
        What it is to serve and on what, and where it notes what happened.
    scheduler : Scheduler
    timeline : Timeline, optional
        Takes samples for a picture.
    observers : sequence of Observer

    Attributes
    ----------
    ends_us : int or None
        When the step or jump under way ends; None while there is none.
    was_refused : bool
        Whether anybody was ever refused for want of memory.
    books : Books
    """

    def __init__(self, facts: Run, scheduler: Scheduler, timeline: Timeline | None, observers: Sequence[Observer]) -> None:
        self.facts = facts
        self.scheduler = scheduler
        self.ends_us: int | None = None
        self.was_refused = False
        self.books = Books(facts, scheduler, timeline)
        self._allocator, self._config, self._log = facts.allocator, facts.config, facts.log
        self._end_of = entries(facts.demand.end)
        self._observers = observers
        self._jump: Jump | None = None
        self._stalls = Stalls(facts, scheduler)
        self._early = False
        self._ends: deque[int] = deque()
        self._last_end = 0

    def open(self, now: int) -> None:
        """Accounts begin."""
        self.books.booked_us = now
        for observer in self._observers:
            observer.started(self._allocator, self.scheduler)

    def add(self, request: int, now: int) -> None:
        """A request arrives. What is under way goes on to the end of the step, or of the jump if nobody could join before."""
        if self._jump is not None and self._jump.run.open:
            self.catch_up(now)
            self._jump, self.ends_us = None, self.books.booked_us
        self.scheduler.add(request)
        self._stalls.moved()
        for observer in self._observers:
            observer.arrived(now, request)

    def begin(self, now: int, next_us: int | None = None) -> None:
        """Unless something is under way or there is nothing to do: the next step, or many alike.

        ``next_us`` is when somebody else arrives, None where it may be at any time: a jump in which he could join ends with the
        step under way then. While nobody arrives and nobody leaves, one step follows the other without a look at the clock.
        """
        scheduler = self.scheduler
        if self.ends_us is not None or not (len(scheduler.waiting) or len(scheduler.running)):
            return
        self.books.idle(now)
        while True:
            run = scheduler.decode_run(self._config.longest_jump) if self._config.longest_jump > 1 else NO_RUN
            if run.steps > 1:
                self._plan(now, run, next_us)
                return
            duration = self._step(now)
            while self._early:                         # asynchronous: a second step before the first output
                duration = self._step(now)
            if duration is None:
                return
            now = self.ends_us = now + duration
            if next_us is None or next_us <= now or scheduler.somebody_may_leave():
                return
            for observer in self._observers:
                observer.updated(now, [])

    def end(self, now: int) -> list[int]:
        """The step or jump under way ends; returns who has the last token now."""
        if self._jump is not None:
            self._make(self._jump, self._jump.run.steps)
        self.ends_us = None
        finished = self.scheduler.update()
        if finished:
            self._stalls.moved()
            at_limit = 0
            for request in finished:
                end = self._end_of[request]
                if self._log.finish(request, now, end) and end == self._config.max_model_len - 1:
                    at_limit += 1
            self.facts.peak_at_limit = max(self.facts.peak_at_limit, at_limit)
        for observer in self._observers:
            observer.updated(now, finished)
        return finished

    @property
    def follows_flow(self) -> bool:
        """Whether everybody who looks on can be told of whole stretches (`sim.flow`)."""
        return self.books.timeline is None and all(vars(type(observer)).get("follows_flow") for observer in self._observers)

    def flow(self, now: int, stretch: Stretch) -> None:
        """A stretch of free flow, at once; nothing is under way."""
        self.books.idle(now)
        flow = stretch.flow
        flowed = self.scheduler.flow(flow, stretch.takes, stretch.waited)
        self._log.flow(flow)
        self.books.stretch(flow, flowed.to_come)
        self._stalls.moved()
        self.facts.steps += flow.steps
        at_limit = by_step(flow.last, (flow.end == self._config.max_model_len - 1).astype(np.int64), flow.steps)
        self.facts.peak_at_limit = max(self.facts.peak_at_limit, int(at_limit.max()))
        for observer in self._observers:
            observer.flowed(flow, flowed)

    def close(self, now: int) -> None:
        """The run is over; `integrals` has booked all of it."""
        running = self.scheduler.running
        self.facts.preemptions = self.scheduler.preemptions
        self._log.close(now, list(zip(running.request.tolist(), running.computed.tolist(), strict=True)))

    # ------------------------------------------------------------------ one step
    def _step(self, now: int) -> int | None:
        """Returns how long it takes, None if nobody can ever move again."""
        step = self.scheduler.schedule()
        self.was_refused = self.was_refused or self.scheduler.refused is not None
        self._record(now, step)
        for observer in self._observers:
            observer.scheduled(now, step)
        self.facts.steps += 1
        if (step.preempted or not step.new_tokens) and self._gives_up(step):
            return None
        duration = int(self._config.step_time.duration_us(step.load)) if step.new_tokens else 1
        if step.loaded_blocks:                         # nothing overlaps with it
            load_us = self._config.load_us(step.loaded_blocks)
            self.facts.load_us += load_us
            duration += load_us
        if self.scheduler.flight is not None:
            duration = self._take_off(now, duration, step)
        for request in step.sampling:
            self._log.sampled(request, now + duration if self.scheduler.flight is None else self._last_end)
        if duration:
            self.books.step(now, duration, len(self.scheduler.waiting))
        return duration

    def _take_off(self, now: int, duration: int, step: Step) -> int:
        """The step runs behind those on their way; returns how long until the oldest output is there (rule 35)."""
        flight = self.scheduler.flight
        assert flight is not None
        self._last_end = max(now, self._last_end) + (duration if step.new_tokens else 0)
        self._ends.append(self._last_end)
        self._early = not flight.full
        if self._early:
            return 0
        return max(self._ends.popleft() - now, int(not step.new_tokens))

    def _record(self, now: int, step: Step) -> None:
        for request, computed in step.preempted:
            self._log.preempt(request, now, computed)
        for request, hit, new, _, _ in step.admitted:
            self._log.admit(request, now, hit, new)
        for request, computed in step.swapped_in:
            self._log.admit(request, now, computed, 0)
        for request, new in step.uneven:
            self._log.uneven(request, now, new)
        self._log.step_started(now)

    def _gives_up(self, step: Step) -> bool:
        """Whether nobody can ever move again: an error where everybody was thought possible."""
        why = self._stalls.why(step)
        if why is None:
            return False
        if self._config.refuse_impossible:
            raise Stalled(why)
        self.facts.stuck, self.facts.stall = sorted(self.scheduler.waiting), why
        return True

    # ------------------------------------------------------------------ many steps at once
    def _plan(self, now: int, run: DecodeRun, next_us: int | None) -> None:
        running, ended = self.scheduler.running, self.scheduler.ended()
        n, kept = len(running) - len(ended), int(running.computed[ended].sum()) if len(ended) else 0
        first = self.scheduler.computed - kept + n
        pace = decode_pace(self._config.step_time, n, first, run.steps)
        if run.open and next_us is not None and (begun := pace.begun_before(next_us - now)) < run.steps:
            run, pace = DecodeRun(begun, run.open, run.refused), pace.part(0, begun)
        self._jump = Jump(run, now, pace, n, first, kept, len(self.scheduler.waiting))
        self.ends_us = now + pace.total_us
        self.was_refused = self.was_refused or run.refused is not None

    def catch_up(self, now: int) -> None:
        """Make the planned steps that have started before ``now``: then everything is as if each had been made at its time."""
        if self._jump is not None:
            self._make(self._jump, self._jump.pace.begun_before(now - self._jump.start_us))

    def _make(self, jump: Jump, steps: int) -> None:
        """The first ``steps`` of a jump; the others stay planned."""
        if not steps:
            return
        self._jump = None
        if steps < jump.run.steps:
            jump, self._jump = jump.part(0, steps), jump.part(steps, jump.run.steps)
        running, ended = self.scheduler.running, self.scheduler.ended()
        taken = self.scheduler.decode(jump.run)
        self.facts.steps += steps
        started = jump.start_us * steps + sum(jump.pace.offsets)
        if len(ended):
            for request in running.request[ended[running.member[ended] == 0]].tolist():
                self._log.uneven(request, started, 0)
        self._log.step_started(started)
        self.books.jump(jump, taken)
        for observer in self._observers:
            observer.jumped(jump)

    def integrals(self, now: int) -> Integrals:
        """The ledger's sums up to ``now``."""
        self.catch_up(now)
        return self.books.integrals(now)
