"""The engine: simulate(trace, config, allocator) -> Run. The only file that knows simpy.

It has an integer clock in microseconds. At one instant: the end of a step, then all arrivals, then the next schedule(); what
arrives during a step is looked at when it ends.

    arrivals   --- r0 --------- r1 r2 --------------- r3 ---         `Arrivals` knows them; an end may bring new ones
    server        [ step ][ step   ][ 37 decode steps ][ step ]      `Server` makes the steps
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import simpy

from sim.arrivals import Arrivals
from sim.catalog import ALLOCATORS, CACHING, SCHEDULERS, block_slots
from sim.config import SimConfig
from sim.demand import Demand
from sim.ledger import Integrals, Ledger
from sim.request_log import RequestLog
from sim.run import EXCEEDS_POOL, SERVED, TOO_LONG, TOO_WIDE, Observer, Run
from sim.scheduler import Scheduler
from sim.server import Server
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
        verdict = self._verdicts()
        self.arrivals = Arrivals(trace, verdict == SERVED, config.saturate)
        size = block_slots(allocator, config)
        self.scheduler: Scheduler = SCHEDULERS[config.scheduler.batching](
            self.demand, self.allocator, config.scheduler_for(size), config.usable_slots // size + 1, size)
        self.facts = Run(self.allocator, config, self.demand, Ledger(self.allocator.capacity, size - 1), RequestLog(len(trace)),
                         self.arrivals.arrival_us, verdict)
        if warms:
            self.facts.warm = serve_ahead(self.allocator, len(trace))
        self._server = Server(self.facts, self.scheduler, timeline, observers)
        self._env = simpy.Environment()
        self._start = self.arrivals.next_us or 0
        self._marks: list[tuple[int, Integrals]] = []

    def _verdicts(self) -> IntArray:
        verdict = np.where(self.allocator.impossible()[: len(self.demand)], EXCEEDS_POOL, SERVED)
        if self.demand.sequences is not None and self.config.scheduler.max_num_seqs is not None:
            verdict[self.demand.sequences > self.config.scheduler.max_num_seqs] = TOO_WIDE
        verdict[self.demand.too_long] = TOO_LONG
        return verdict if self.config.refuse_impossible else np.zeros_like(verdict)

    def run(self) -> Run:
        """Serve every request and return the facts."""
        self._server.open(self._start)
        self._env.process(self._serve())
        self._env.run()
        self._close()
        return self.facts

    @property
    def now(self) -> int:
        """The clock, in microseconds."""
        return int(self._env.now)

    # ------------------------------------------------------------------ one instant after the other
    def _serve(self) -> Process:
        until = self.arrivals.next_us
        while until is not None:
            yield self._env.timeout(until - self.now)
            until = self._instant(until)

    def _instant(self, now: int) -> int | None:
        """What happens now; returns when something happens next."""
        server, arrivals = self._server, self.arrivals
        if server.ends_us == now:
            arrivals.ended(server.end(now), now)
        for request in arrivals.due(now):
            server.add(request, now)
        if server.ends_us == now:                      # a jump was cut short
            server.end(now)
        server.begin(now)
        if self.facts.stuck:
            return None
        if self.config.saturate:
            self._mark(now)
        times = [time for time in (server.ends_us, arrivals.next_us) if time is not None]
        return min(times) if times else None

    def _mark(self, now: int) -> None:
        """Under saturation the window opens at the first refusal and closes when the queue is empty."""
        opens = not self._marks and self._server.was_refused
        closes = len(self._marks) == 1 and not len(self.scheduler.waiting)
        if opens or closes:
            self._marks.append((now, self._server.integrals(now)))

    def _close(self) -> None:
        facts = self.facts
        self._server.close(self.now)
        if len(self._marks) == 2:
            (start, before), (end, after) = self._marks
            facts.window_us, facts.window = (start, end), after - before
        else:
            facts.window_us = (self._start, self._start + facts.ledger.total.time_us)
            facts.window = facts.ledger.total


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
