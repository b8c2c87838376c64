"""The engine: simulate(trace, config, allocator) -> Run. The only file that knows simpy.

It has an integer clock in microseconds, the arrivals, and one server or several replicas of it with a router before them. At one
instant: all steps that end, by replica; all arrivals, by row, each routed at once; then whoever is idle begins, by replica. What
arrives during a step is looked at when it ends; a lone server is not even told before. And where nobody waits for memory it
makes arrivals, steps and ends by the hundred (`free_flow`).

    arrivals     --- r0 --------- r1 r2 --------------- r3 ---       `Arrivals` knows them; an end may bring new ones
    replica 0       [ step ][ step   ][ 37 decode steps ][ step ]    `Server` makes the steps
    replica 1       .            [ step ][ step ]                    idle before r1 and after r1 has ended
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import simpy

from sim.arrivals import arrivals_of
from sim.catalog import ALLOCATORS, CACHING, ROUTERS, SCHEDULERS, block_slots
from sim.config import SimConfig
from sim.demand import Demand
from sim.fleet import Moment, fleet
from sim.free_flow import FreeFlow, free_flow
from sim.ledger import Ledger
from sim.memory.allocator import Allocator
from sim.request_log import RequestLog
from sim.run import EXCEEDS_POOL, SERVED, TOO_LONG, TOO_WIDE, Observer, Run
from sim.scheduler import Scheduler
from sim.server import Server
from sim.timeline import Timeline
from sim.warm import demand_behind, serve_ahead
from workloads.request import IntArray, Trace

FOREVER = 1 << 62
Process = Generator[simpy.Event, Any, None]
Observers = Sequence[Observer] | Callable[[int], Sequence[Observer]]


class Engine:
    """One simulation. `run` is called once.

    Parameters
    ----------
    trace : Trace
        With arrival times, unless ``config.saturate``; with think times its sessions are closed loops.
    config : SimConfig
        With the number of replicas and the router.
    allocator : str
        A name in `catalog.ALLOCATORS`.
    timeline : Timeline, or sequence of one a replica, optional
        Takes samples for a picture.
    observers : sequence of Observer, or callable
        Of several replicas each has its own: those that the callable returns for its number.
    warm : Trace, optional
        Requests whose blocks lie in the cache before the first arrival (`sim.warm`), where the allocator has one.
    """

    def __init__(self, trace: Trace, config: SimConfig, allocator: str, timeline: Timeline | Sequence[Timeline] | None = None,
                 observers: Observers = (), warm: Trace | None = None) -> None:
        _check(trace, config, allocator)
        self.config = config
        self.demand = Demand(trace, config.max_model_len)
        warms = warm is not None and allocator in CACHING
        known = demand_behind(trace, warm, config.max_model_len) if warm is not None and warms else self.demand
        self._allocators = [ALLOCATORS[allocator](known, config) for _ in range(config.data_parallel_size)]
        verdict = self._verdicts()
        self.arrivals = arrivals_of(trace, verdict == SERVED, config.saturate, config.most_in_flight)
        size = block_slots(allocator, config)
        facts = [Run((own,), config, self.demand, Ledger(own.capacity, size - 1), RequestLog(len(trace)),
                     self.arrivals.arrival_us, verdict) for own in self._allocators]
        if warms:
            for each, left in zip(facts, serve_ahead(self._allocators, len(trace), ROUTERS[config.router](known)), strict=True):
                each.warm = left
        self._servers = [Server(each, _scheduler(each, size), own, watchers)
                         for each, (own, watchers) in zip(facts, _followers(timeline, observers, len(facts)), strict=True)]
        self._env = simpy.Environment()
        self._router = ROUTERS[config.router](self.demand)
        self._views = [View(server, self._env) for server in self._servers]
        self._alone = len(self._servers) == 1
        self._free_flow = free_flow(config, self.scheduler, self.arrivals) \
            if self._alone and self._servers[0].follows_flow else None
        self._replica: IntArray = np.full(len(trace), -1, np.int64)
        self._start = self.arrivals.next_us or 0
        self._running_us: Counter[int] = Counter()
        self._moments: list[Moment] = []

    def _verdicts(self) -> IntArray:
        verdict = np.where(self._allocators[0].impossible()[: len(self.demand)], EXCEEDS_POOL, SERVED)
        if self.demand.sequences is not None and self.config.scheduler.max_num_seqs is not None:
            verdict[self.demand.sequences > self.config.scheduler.max_num_seqs] = TOO_WIDE
        verdict[self.demand.too_long] = TOO_LONG
        return verdict if self.config.refuse_impossible else np.where(verdict == TOO_LONG, TOO_LONG, SERVED)

    def run(self) -> Run:
        """Serve every request and return the facts; of several replicas the sums, with the facts of each (`Run`)."""
        for server in self._servers:
            server.open(self._start)
        self._env.process(self._serve())
        self._env.run()
        return self._close()

    @property
    def facts(self) -> Run:
        """What the first server has noted so far."""
        return self._servers[0].facts

    @property
    def allocator(self) -> Allocator:
        """The first server's."""
        return self._allocators[0]

    @property
    def scheduler(self) -> Scheduler:
        """The first server's."""
        return self._servers[0].scheduler

    # ------------------------------------------------------------------ one instant after the other
    def _serve(self) -> Process:
        now, until = 0, self.arrivals.next_us
        while until is not None:
            yield self._env.timeout(until - now)
            now = until
            until = self._instant(now)
            if until is not None and not self._alone and until > now:
                self._running_us[sum(len(server.scheduler.running) for server in self._servers)] += until - now

    def _instant(self, now: int) -> int | None:
        """What happens now; returns when something happens next."""
        servers, arrivals = self._servers, self.arrivals
        if self._alone:
            following = self._instant_alone(servers[0], now)
        else:
            for server in servers:
                if server.ends_us == now:
                    arrivals.ended(server.end(now), now)
            for request in arrivals.due(now):
                number = self._replica[request] = self._router.choose(request, self._views)
                servers[number].add(request, now)
            for server in servers:
                server.begin(now)
            instants = (arrivals.next_us, *(server.ends_us for server in servers))
            following = min((us for us in instants if us is not None), default=None)
        if self.config.saturate:
            self._mark(now)
        return None if servers[0].facts.stuck else following

    def _instant_alone(self, server: Server, now: int) -> int | None:
        """The same where nobody chooses between servers: who came during a step is told when it ends."""
        arrivals, arrival_us = self.arrivals, self.arrivals.arrival_us
        if self._free_flow is not None and (until := self._flow(self._free_flow, server, now)) is not None:
            return until
        if arrivals.next_us is not None and arrivals.next_us <= now:
            for request in arrivals.due(now - 1):
                server.add(request, int(arrival_us[request]))
        if server.ends_us is not None:
            arrivals.ended(server.end(now), now)
        for request in arrivals.due(now):
            server.add(request, now)
        following = arrivals.next_us
        # Under saturation the server is looked at in every step (`_mark`), and everybody is there from the start.
        server.begin(now, None if self.config.saturate else FOREVER if following is None else following)
        return following if server.ends_us is None else server.ends_us

    def _flow(self, free_flow: FreeFlow, server: Server, now: int) -> int | None:
        """A stretch of free flow, if one begins when what is under way has ended; when it ends, None if there is none."""
        if server.ends_us is not None:
            server.end(now)
        stretch = free_flow.plan(now) if server.scheduler.settled() else None
        if stretch is None:
            return None
        self.arrivals.skip(stretch.arrivals - stretch.waited)
        server.flow(now, stretch)
        return stretch.end_us

    def _mark(self, now: int) -> None:
        """Under saturation the window opens at the first refusal and closes when all queues are empty."""
        opens = not self._moments and any(server.was_refused for server in self._servers)
        closes = len(self._moments) == 1 and not any(len(server.scheduler.waiting) for server in self._servers)
        if opens or closes:
            self._moments.append(self._moment(now))

    def _moment(self, now: int) -> Moment:
        return Moment(now, [server.integrals(now) for server in self._servers], self._running_us.copy())

    def _close(self) -> Run:
        booked = (server.books.booked_us for server in self._servers)
        end = max(int(self._env.now), *booked)         # who is stuck ran ahead of the clock
        for server in self._servers:
            server.close(end)
        facts = [server.facts for server in self._servers]
        window = self._moment(end)
        window_us = (self._start, self._start + facts[0].ledger.total.time_us)
        if len(self._moments) == 2:
            opened, closed = self._moments
            window, window_us = closed.since(opened), (opened.time_us, closed.time_us)
        for each, integrals in zip(facts, window.pools, strict=True):
            each.window_us, each.window = window_us, integrals
        return facts[0] if len(facts) == 1 else fleet(facts, self._replica, self._running_us, window.running_us)


class View:
    """What a router may see of a server (`routing.Replica`)."""

    def __init__(self, server: Server, env: simpy.Environment) -> None:
        self._server = server
        self._env = env

    @property
    def running(self) -> int:
        return len(self._server.scheduler.running)

    @property
    def waiting(self) -> int:
        return len(self._server.scheduler.waiting)

    def cached_tokens(self, request: int) -> int:
        self._server.catch_up(int(self._env.now))
        facts = self._server.facts
        return facts.allocator.find_prefix(request, int(facts.demand.prompt[request])).tokens


def _check(trace: Trace, config: SimConfig, allocator: str) -> None:
    for kind, name, known in (("allocator", allocator, ALLOCATORS), ("router", config.router, ROUTERS)):
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}: one of {', '.join(known)}")
    if trace.arrival_us is None and not config.saturate:
        raise ValueError(f"{trace.source} has no arrival times")


def _scheduler(facts: Run, size: int) -> Scheduler:
    config = facts.config
    made: Scheduler = SCHEDULERS[config.scheduler.batching](
        facts.demand, facts.allocator, config.scheduler_for(size), config.usable_slots // size + 1, size)
    return made


def _followers(timeline: Timeline | Sequence[Timeline] | None, observers: Observers, n: int,
               ) -> list[tuple[Timeline | None, Sequence[Observer]]]:
    """For each server its timeline and its observers."""
    timelines: Sequence[Timeline | None] = [timeline] if isinstance(timeline, Timeline) else [None] * n if timeline is None \
        else timeline
    if len(timelines) != n:
        raise ValueError(f"{n} servers want as many timelines, not {len(timelines)}")
    check_observers(observers, n)
    return [(timelines[i], observers(i) if callable(observers) else observers) for i in range(n)]


def check_observers(observers: Observers, servers: int) -> None:
    """ValueError where several servers would be followed by the same observers."""
    if servers > 1 and observers and not callable(observers):
        raise ValueError(f"{servers} servers are not followed by the same observers: a function of the server's number is wanted")


def simulate(trace: Trace, config: SimConfig, allocator: str, warm: Trace | None = None) -> Run:
    """Replay a trace through one allocator; ``warm`` as of `Engine`.

    Examples
    --------
    >>> trace = Trace("two requests", np.array([5, 6]), np.array([3, 1]), arrival_us=np.array([0, 0]))
    >>> run = simulate(trace, SimConfig(num_blocks=6, block_size=4, max_model_len=8), "paged")
    >>> run.steps, run.ledger.peak_running
    (3, 2)
    >>> both = simulate(trace, SimConfig(num_blocks=6, block_size=4, max_model_len=8, data_parallel_size=2), "paged")
    >>> both.replica.tolist(), [one.steps for one in both.replicas]
    ([0, 1], [3, 1])
    """
    return Engine(trace, config, allocator, warm=warm).run()
