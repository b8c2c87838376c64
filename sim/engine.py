"""The engine: simulate(trace, config, allocator) -> Run. The only file that knows simpy.

The server is a process on an integer clock in microseconds that makes one engine step after the other. At one instant: the
end of a step, then all arrivals, then the next schedule(); what arrives during a step is looked at when it ends.

    arrivals   --- r0 --------- r1 r2 --------------- r3 ---         `Arrivals` knows them; an end may bring new ones
    server        [ step ][ step   ][ 37 decode steps ][ step ]
                  ^schedule        ^update              ^ a jump ends where an arrival could be admitted

A step that only lets the running sequences grow is like the next one, so such steps are made together: their times are
one array, the ledger books them one by one in array operations, and the outcome is the same to the last byte.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import simpy

from sim.arrivals import Arrivals, InFlight
from sim.catalog import ALLOCATORS, CACHING, SCHEDULERS, block_slots
from sim.config import SimConfig
from sim.demand import Demand
from sim.ledger import Integrals, Ledger, PoolState
from sim.memory.allocator import DecodePath, SlotCounts
from sim.request_log import RequestLog
from sim.run import EXCEEDS_POOL, SERVED, TOO_LONG, TOO_WIDE, Observer, Run, Stalled
from sim.step import NO_RUN, DecodeRun, Step
from sim.step_time import StepLoad
from sim.timeline import Timeline
from sim.warm import demand_behind, serve_ahead
from workloads.request import IntArray, Trace

Process = Generator[simpy.Event, Any, None]


class Engine:
    """One simulation. `run` is called once.

    Parameters
    ----------
    trace : Trace
        With arrival times, unless ``config.saturate``; with think times its sessions are closed loops.
    config : SimConfig
    allocator : str
        A name in `catalog.ALLOCATORS`.
    timeline : Timeline, optional
        Takes samples for a picture.
    observers : sequence of Observer
    warm : Trace, optional
        Requests whose blocks lie in the cache before the first arrival (`sim.warm`), where the allocator has one.
    """

    def __init__(self, trace: Trace, config: SimConfig, allocator: str, timeline: Timeline | None = None,
                 observers: Sequence[Observer] = (), warm: Trace | None = None) -> None:
        if allocator not in ALLOCATORS:
            raise ValueError(f"unknown allocator {allocator!r}: one of {', '.join(ALLOCATORS)}")
        if trace.arrival_us is None and not config.saturate:
            raise ValueError(f"{trace.source} has no arrival times")
        self.config = config
        self.demand = Demand(trace, config.max_model_len)
        warms = warm is not None and allocator in CACHING
        known = demand_behind(trace, warm, config.max_model_len) if warm is not None and warms else self.demand
        self.allocator = ALLOCATORS[allocator](known, config)
        size = block_slots(allocator, config)
        self.scheduler = SCHEDULERS[config.scheduler.batching](
            self.demand, self.allocator, config.scheduler_for(size), config.usable_slots // size + 1, size)
        self.ledger = Ledger(self.allocator.capacity, size - 1)
        self.log = RequestLog(len(trace))
        verdict = self._verdicts()
        limit, served = config.most_in_flight, verdict == SERVED
        self.arrivals = Arrivals(trace, served, config.saturate) if limit is None \
            else InFlight(trace, served, limit, config.saturate)
        self.facts = Run(self.allocator, config, self.demand, self.ledger, self.log, self.arrivals.arrival_us, verdict)
        if warms:
            self.facts.warm = serve_ahead(self.allocator, len(trace))
        self._timeline = timeline
        self._observers = observers
        self._env = simpy.Environment()
        self._marks: list[tuple[int, Integrals]] = []
        self._idle_steps = 0
        self._early = False
        self._ends: deque[int] = deque()
        self._last_end = 0

    def _verdicts(self) -> IntArray:
        verdict = np.where(self.allocator.impossible()[: len(self.demand)], EXCEEDS_POOL, SERVED)
        if self.demand.sequences is not None and self.config.scheduler.max_num_seqs is not None:
            verdict[self.demand.sequences > self.config.scheduler.max_num_seqs] = TOO_WIDE
        verdict[self.demand.too_long] = TOO_LONG
        return verdict if self.config.refuse_impossible else np.zeros_like(verdict)

    def run(self) -> Run:
        """Serve every request and return the facts."""
        for observer in self._observers:
            observer.started(self.allocator, self.scheduler)
        self._env.process(self._server())
        self._env.run()
        self._close()
        return self.facts

    @property
    def now(self) -> int:
        """The clock, in microseconds."""
        return int(self._env.now)

    # ------------------------------------------------------------------ the server
    def _server(self) -> Process:
        scheduler, arrivals = self.scheduler, self.arrivals
        while True:
            for request in arrivals.due(self.now):
                scheduler.add(request)
            if not len(scheduler.waiting) and not len(scheduler.running):
                if arrivals.next_us is None:
                    return
                yield from self._idle(arrivals.next_us)
                continue
            duration = self._advance()
            if duration is None:
                return
            if self._early:                            # asynchronous: a second step before the first output
                continue
            yield self._env.timeout(duration)
            finished = scheduler.update()
            if finished:
                self._finish(finished)
            for observer in self._observers:
                observer.updated(self.now, finished)

    def _finish(self, finished: list[int]) -> None:
        ends = self.demand.end[finished].tolist()
        held = [end for request, end in zip(finished, ends, strict=True) if self.log.finish(request, self.now, end)]
        at_limit = held.count(self.config.max_model_len - 1)
        self.facts.peak_at_limit = max(self.facts.peak_at_limit, at_limit)
        self.arrivals.ended(finished, self.now)

    def _idle(self, until: int) -> Process:
        """Nothing to do until somebody arrives; time without any request served before it opens no window."""
        since = self.now
        yield self._env.timeout(until - since)
        if self.facts.steps:
            self._book(since, until - since, waiting=0)
        else:
            self.facts.window_us = (until, 0)

    # ------------------------------------------------------------------ steps
    def _advance(self) -> int | None:
        """Make one step, or many at once; returns how long they take, None if nobody can ever move again."""
        run = self.scheduler.decode_run(self.config.longest_jump) if self.config.longest_jump > 1 else NO_RUN
        if run.steps > 1:
            return self._jump(run)
        now = self.now
        step = self.scheduler.schedule()
        self._record(now, step)
        for observer in self._observers:
            observer.scheduled(now, step)
        self.facts.steps += 1
        if step.new_tokens == 0 and self._stalls():
            return None
        duration = int(self.config.step_time.duration_us(step.load)) if step.new_tokens else 1
        if step.loaded_blocks:                         # nothing overlaps with it
            load_us = self.config.load_us(step.loaded_blocks)
            self.facts.load_us += load_us
            duration += load_us
        if self.scheduler.flight is not None:
            duration = self._take_off(now, duration, step)
        for request in step.sampling:
            self.log.sampled(request, now + duration if self.scheduler.flight is None else self._last_end)
        self._mark(now)
        if duration:
            self._book(now, duration, len(self.scheduler.waiting))
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
            self.log.preempt(request, now, computed)
        for request, hit, new, _, _ in step.admitted:
            self.log.admit(request, now, hit, new)
        for request, computed in step.swapped_in:
            self.log.admit(request, now, computed, 0)
        for request, new in step.uneven:
            self.log.uneven(request, now, new)
        self.log.step_started(now)

    def _jump(self, run: DecodeRun) -> int:
        now, running, ended = self.now, self.scheduler.running, self.scheduler.ended()
        n, kept = len(running) - len(ended), int(running.computed[ended].sum())
        context = self.scheduler.computed - kept + n * np.arange(1, run.steps + 1)
        tokens = np.full(run.steps, n)
        durations = np.asarray(self.config.step_time.duration_us(StepLoad(tokens, tokens, context, context)), np.int64)
        starts: IntArray = now + np.cumsum(durations) - durations
        if run.open and self.arrivals.next_us is not None:       # ends inside the run there are none: nobody new by them
            run = run._replace(steps=int(np.searchsorted(starts, self.arrivals.next_us)))
            durations, starts, context = durations[: run.steps], starts[: run.steps], context[: run.steps]
        path = self.scheduler.decode(run)
        self.facts.steps += run.steps
        for request in running.request[ended[running.member[ended] == 0]].tolist():
            self.log.uneven(request, int(starts.sum()), 0)
        self.log.step_started(int(starts.sum()))
        self._mark(now)
        self._book_run(context + kept, durations, path)
        for observer in self._observers:
            observer.jumped(starts, run)
        return int(durations.sum())

    def _stalls(self) -> bool:
        self._idle_steps += 1
        if self._idle_steps < 2 or len(self.scheduler.running):
            return False
        head = self.scheduler.waiting.head()
        if self.config.refuse_impossible:
            raise Stalled(f"request {head} ({self.demand.prompt[head]} + {self.demand.output[head]} tokens) waits for "
                          f"{self.scheduler.refused} and nobody runs: the pool can make no progress")
        self.facts.stuck = sorted(self.scheduler.waiting)
        return True

    # ------------------------------------------------------------------ booking
    def _state(self, computed: Any, path: DecodePath | None) -> PoolState:
        allocator, refused = self.allocator, self.scheduler.refused
        return PoolState(allocator.counts(computed, refused, path), allocator.logical(path), allocator.largest_hole(),
                         len(self.scheduler.running))

    def _book(self, start: int, duration: int, waiting: int) -> None:
        self._idle_steps = 0 if len(self.scheduler.running) else self._idle_steps
        state = self._state(self.scheduler.computed, None)
        self.ledger.book(state, duration)
        if self._timeline is not None:
            self._timeline.sample(start, state.counts, state.running, waiting)

    def _book_run(self, context: IntArray, durations: IntArray, path: DecodePath | None) -> None:
        state = self._state(context, path)
        self.ledger.book_run(state, durations)
        if self._timeline is not None:
            now = self.now
            for at, time in ((0, now), (-1, now + int(durations[:-1].sum()))):
                counts = SlotCounts(*(int(np.broadcast_to(part, durations.shape)[at]) for part in state.counts))
                self._timeline.sample(time, counts, state.running, len(self.scheduler.waiting))

    def _mark(self, now: int) -> None:
        """Under saturation the window opens at the first refusal and closes when the queue is empty."""
        if not self.config.saturate or len(self._marks) == 2:
            return
        opens = not self._marks and self.scheduler.refused is not None
        closes = len(self._marks) == 1 and not len(self.scheduler.waiting)
        if opens or closes:
            self._marks.append((now, self.ledger.total.copy()))

    def _close(self) -> None:
        facts = self.facts
        facts.preemptions = self.scheduler.preemptions
        running = self.scheduler.running
        self.log.close(self.now, list(zip(running.request.tolist(), running.computed.tolist(), strict=True)))
        if len(self._marks) == 2:
            (start, before), (end, after) = self._marks
            facts.window_us, facts.window = (start, end), after - before
        else:
            facts.window_us = (facts.window_us[0], facts.window_us[0] + self.ledger.total.time_us)
            facts.window = self.ledger.total


def simulate(trace: Trace, config: SimConfig, allocator: str, warm: Trace | None = None) -> Run:
    """Replay a trace through one allocator; ``warm`` as of `Engine`.

    Examples
    --------
    >>> trace = Trace("two requests", np.array([5, 6]), np.array([3, 1]), arrival_us=np.array([0, 0]))
    >>> run = simulate(trace, SimConfig(num_blocks=6, block_size=4, max_model_len=8), "paged")
    >>> run.steps, run.ledger.peak_running
    (3, 2)
    """
    return Engine(trace, config, allocator, warm=warm).run()
