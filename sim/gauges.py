"""What a vLLM server says of itself while it serves: the gauges and counters behind its periodic log line and /metrics.

A server makes its statistics at the end of a step, after whoever has ended was taken out; a log line or a scrape shows the last
that were made. A request that arrives during a step is counted as waiting from the end of the next one on:

    step            [  a  ][  b  ][  c  ]                [  d  ]
    made                   ^      ^      ^                      ^
    shown            ...   after a, after b, after c .........., after d

Many decode steps made at once give the same numbers as one by one: between them only lengths change, so what was held after
each follows from the lengths at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.config import SimConfig
from sim.demand import Demand
from sim.engine import Engine
from sim.memory.allocator import Allocator
from sim.memory.paged import PagedAllocator
from sim.run import Observer, Run
from sim.scheduler import Scheduler
from sim.step import Jump, Step
from workloads.request import IntArray, Trace

RECENT_REQUESTS = 1000                                 # over which vLLM's log takes its hit rate
FIELDS = ("running", "waiting", "used_blocks", "prompt_tokens", "computed_prompt_tokens", "generation_tokens", "preemptions",
          "recent_queries", "recent_hits")
RUNNING, WAITING, USED, PROMPT, COMPUTED, GENERATED, PREEMPTIONS, QUERIES, HITS = range(len(FIELDS))


class Recent(NamedTuple):
    """The prefix-cache statistics of one step: requests admitted for the first time, their tokens, those found."""

    requests: int
    queries: int
    hits: int


class RecentHits:
    """The hit rate of the most recent requests, as vLLM's log keeps it: whole steps leave when there are over ``most``.

    >>> recent = RecentHits(most=3)
    >>> for step in (Recent(2, 100, 0), Recent(1, 50, 40), Recent(1, 10, 0)):
    ...     recent.add(step)
    >>> recent.queries, recent.hits
    (60, 40)
    """

    def __init__(self, most: int = RECENT_REQUESTS) -> None:
        self._most = most
        self._steps: deque[Recent] = deque()
        self._requests = self.queries = self.hits = 0

    def add(self, step: Recent) -> None:
        """A step in which requests were admitted."""
        self._steps.append(step)
        self._count(step, 1)
        while len(self._steps) > 1 and self._requests > self._most:
            self._count(self._steps.popleft(), -1)

    def _count(self, step: Recent, sign: int) -> None:
        self._requests += sign * step.requests
        self.queries += sign * step.queries
        self.hits += sign * step.hits


class Gauges(Observer):
    """Takes the server's own numbers at given instants, in one run of ``paged`` or ``paged-prefix``.

    Parameters
    ----------
    instants_us : int64, shape (instants,)
        On the clock of the simulation, never decreasing.

    Attributes
    ----------
    table : int64, shape (instants, 9)
        The columns of `FIELDS`: requests running and waiting, blocks in use, prompt tokens of requests whose first token came
        (all, and without those found cached), generated tokens, preemptions, and tokens asked for and found of the most recent
        1,000 requests. Before the first step ends all are 0.
    """

    def __init__(self, instants_us: IntArray) -> None:
        self.table: IntArray = np.zeros((len(instants_us), len(FIELDS)), np.int64)
        self._instants = instants_us
        self._done = 0
        self._last: Sequence[int] = [0] * len(FIELDS)
        self._prompt = self._computed = self._generated = self._started_us = 0
        self._recent = RecentHits()
        self._seen = Recent(0, 0, 0)
        self._sent: deque[tuple[int, int]] = deque()   # prompt tokens of each step on its way

    def follow(self, run: Run) -> None:
        """The run whose engine calls, before it begins."""
        self._demand: Demand = run.demand
        self._arrival_us, self._hit = run.arrival_us, run.log.hit_tokens
        self._of: IntArray = np.zeros(len(run.demand), np.int64)        # generated tokens of each request
        self._first = np.ones(len(run.demand), bool)   # whether its first token is to come

    def started(self, allocator: Allocator, scheduler: Scheduler) -> None:
        if not isinstance(allocator, PagedAllocator):
            raise ValueError("gauges are those of a block pool")
        self._allocator, self._scheduler = allocator, scheduler
        self._size = allocator.block_size

    # ------------------------------------------------------------------ what the engine tells
    def scheduled(self, now_us: int, step: Step) -> None:
        prompt = computed = 0
        for request in step.sampling:
            if self._first[request]:
                self._first[request] = False
                prompt += int(self._demand.prompt[request])
                computed += int(self._demand.prompt[request] - self._hit[request])
        self._sent.append((prompt, computed))
        self._started_us = now_us

    def jumped(self, jump: Jump) -> None:
        starts_us = jump.starts_us
        self._sent.append((0, 0))
        self._started_us = int(starts_us[-1])
        if len(starts_us) > 1:
            self._within(starts_us)

    def _within(self, starts_us: IntArray) -> None:
        """What was said between the first of these steps and the last; its own is the next `updated`."""
        self._fill(int(starts_us[1]))
        batch = self._scheduler.running
        first, steps = self._done, len(starts_us)
        stop = int(np.searchsorted(self._instants, starts_us[-1]))
        ends = np.append(np.searchsorted(starts_us, self._instants[first:stop], "right") - 2, steps - 2)
        used, waiting = self._used(), self._waiting(starts_us)
        rows = {}
        for step in dict.fromkeys(ends.tolist()):
            before = batch.computed - (steps - 1 - step)
            held = used - int((-(-batch.computed // self._size)).sum() - (-(-before // self._size)).sum())
            rows[step] = [len(batch), int(waiting[step]), held, self._prompt, self._computed,
                          self._generated + len(batch) * (step + 1), *self._counters()]
        for at, step in enumerate(ends[:-1].tolist(), start=first):
            self.table[at] = rows[step]
        self._done, self._last = stop, rows[steps - 2]

    def updated(self, now_us: int, finished: list[int]) -> None:
        self._fill(now_us)
        prompt, computed = self._sent.popleft()
        self._prompt += prompt
        self._computed += computed
        self._generate(finished)
        self._admit()
        waiting = int(self._waiting(np.array([self._started_us]))[0])
        self._last = [len(self._scheduler.running), waiting, self._used(), self._prompt, self._computed, self._generated,
                      *self._counters()]

    def ended(self) -> None:
        """The run is over: the rest of the instants show what was said last."""
        self.table[self._done:] = self._last
        self._done = len(self._instants)

    # ------------------------------------------------------------------ the numbers
    def _fill(self, until_us: int) -> None:
        """All instants before ``until_us`` show what was said last."""
        stop = int(np.searchsorted(self._instants, until_us))
        if stop > self._done:
            self.table[self._done:stop] = self._last
            self._done = stop

    def _used(self) -> int:
        pool = self._allocator.pool
        return pool.num_blocks - 1 - pool.free

    def _counters(self) -> tuple[int, int, int]:
        return self._scheduler.preemptions, self._recent.queries, self._recent.hits

    def _waiting(self, starts_us: IntArray) -> IntArray:
        """Who waits at the end of each step, in order of time: without whoever arrived after it began."""
        waiting = list(self._scheduler.waiting)
        return np.searchsorted(np.sort(self._arrival_us[waiting]), starts_us, "right")

    def _generate(self, finished: list[int]) -> None:
        """Tokens that have come, of those that run and those that ended. A resumed request has them before it computes them."""
        batch, flight = self._scheduler.running, self._scheduler.flight
        request = batch.request
        computed = batch.computed if flight is None else batch.computed - flight.tokens[request]
        now = np.maximum(self._of[request], computed - self._demand.prompt[request] + 1)
        self._generated += int((now - self._of[request]).sum())
        self._of[request] = now
        for one in finished:
            self._generated += int(self._demand.output[one] - self._of[one])
            self._of[one] = self._demand.output[one]

    def _admit(self) -> None:
        stats = self._allocator.stats
        if stats is not None and stats.requests != self._seen.requests:
            now = Recent(stats.requests, stats.query_tokens, stats.hit_tokens)
            self._recent.add(Recent(*(a - b for a, b in zip(now, self._seen, strict=True))))
            self._seen = now


def simulate_gauges(trace: Trace, config: SimConfig, allocator: str, instants_us: IntArray, warm: Trace | None = None,
                    ) -> tuple[Run, IntArray]:
    """Replay a trace and take the server's own numbers at these instants; the columns are those of `FIELDS`.

    Raises
    ------
    ValueError
        For an allocator without a block pool, requests of several sequences, or static batching: no vLLM server.

    Examples
    --------
    >>> trace = Trace("two requests", np.array([5, 6]), np.array([3, 1]), arrival_us=np.array([0, 0]))
    >>> run, table = simulate_gauges(trace, SimConfig(num_blocks=6, block_size=4, max_model_len=8), "paged",
    ...                              np.array([19_999, 20_000, 60_000]))
    >>> table[:, [RUNNING, USED, PROMPT, GENERATED]].tolist()
    [[0, 0, 0, 0], [1, 2, 11, 2], [0, 0, 11, 4]]
    """
    if trace.sequences is not None or config.scheduler.batching != "continuous":
        raise ValueError("gauges are those of continuous batching with one sequence a request")
    gauges = Gauges(instants_us)
    engine = Engine(trace, config, allocator, observers=[gauges], warm=warm)
    gauges.follow(engine.facts)
    run = engine.run()
    gauges.ended()
    return run, gauges.table
