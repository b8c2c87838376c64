"""Replay a recorded case step by step and write down what the real recorder wrote: events, rows, totals.

The loop is the recorder's: hand over who arrives by this step, schedule, take the oldest output back once enough steps are on
their way (two with asynchronous scheduling, else one) or nothing was scheduled, stop when nobody can ever move again.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.conformance.cases import Case, build
from experiments.conformance.config import CaseConfig
from sim.memory.prefix_index import NO_HASH, BlockIds
from sim.step import DecodeRun, Step
from workloads.request import IntArray, Trace

Event = list[Any]
ROW = ("step", "running", "waiting", "scheduled_tokens", "free_after_schedule", "free_after_update", "free_queue_crc32")
NO_STEP = 1 << 62                                      # later than any
SHOWN = 8                                              # blocks of either end of the free queue kept for a report


class Replay:
    """One replay; `run` makes it.

    Attributes
    ----------
    events, rows : list of list
        As the case records them.
    queues : list of (first blocks, last blocks, length)
        Both ends of the free queue after each row.
    ended : callable, optional
        Told how many requests finished, whenever some did.
    outcome : str
        ``finished`` or ``stalled``, with the names of the requests that are ``stuck``; ``longer than recorded`` past step
        ``last``, where it differs whatever comes.
    """

    def __init__(self, case: Case, longest_jump: int = 1, ended: Callable[[int], None] | None = None,
                 last: int = NO_STEP) -> None:
        config = CaseConfig.of(case["config"])
        self.names, self.trace, self.scheduler = build(case, config)
        self.pool = self.scheduler.allocator.pool      # type: ignore[attr-defined]
        self.full = config.detail == "full"
        self.keeps_steps = config.detail in ("full", "steps")
        self.most_steps, self._last = config.max_steps, last
        self.longest_jump = longest_jump
        self._ended = ended
        self.events: list[Event] = []
        self.rows: list[list[int]] = []
        self.queues: list[tuple[list[int], list[int], int]] = []
        self.cached: dict[str, list[int]] = {}
        self.outcome, self.stuck, self.steps = "finished", [], 0  # type: ignore[var-annotated]
        self.peak_running = self.peak_used = self.schedules = 0
        self._step = 0
        self._lengths: dict[int, list[int]] = {}
        self.scheduler.watch(lambda request: self.events.append(["preempt", self._step, self.names[request]]))
        self.pool.watch(self._evicted)

    def run(self) -> Replay:
        """Replay all of it."""
        coming = deque(range(len(self.names)))
        arrive, instants = _arrivals(self.trace)
        live: set[int] = set()
        depth, idle = 1 if self.scheduler.flight is None else 2, 0
        while coming or live:
            if not live and arrive[coming[0]] > self._step:
                self._step = arrive[coming[0]]
            while coming and arrive[coming[0]] <= self._step:
                live.add(coming[0])
                self.scheduler.add(coming[0], instants[coming.popleft()])
            scheduled, finished = self._advance(arrive[coming[0]] if coming else None)
            live -= set(finished)
            if finished and self._ended is not None:
                self._ended(len(finished))
            idle = 0 if scheduled else idle + 1
            nobody = not len(self.scheduler.running) and not len(self.scheduler.waiting)
            if idle > depth and live and not (coming and nobody):
                self.outcome, self.stuck = "stalled", sorted(self.names[request] for request in live)
                break
            self._step += 1
            if self._step >= self.most_steps:
                self.outcome, self.stuck = "max_steps", sorted(self.names[request] for request in live)
                break
            if self._step > self._last and (live or coming):
                self.outcome, self.stuck = "longer than recorded", sorted(self.names[request] for request in live)
                break
        self.steps = self._step
        return self

    def _advance(self, next_arrival: int | None) -> tuple[int, list[int]]:
        """One step, or several alike; (tokens scheduled, requests that finished)."""
        scheduler = self.scheduler
        if self.longest_jump > 1:
            most = min(self.longest_jump, self.most_steps - self._step)
            most = most if next_arrival is None else min(most, next_arrival - self._step)
            run = scheduler.decode_run(most) if most > 1 else DecodeRun(0)
            if run.steps > 1:
                return self._jump(run)
        self.schedules += 1
        step = scheduler.schedule()
        self._scheduled(step)
        finished = scheduler.update() if scheduler.flight is None or scheduler.flight.full else []
        self._updated(finished)
        return step.new_tokens, finished

    # ------------------------------------------------------------------ what the recorder writes
    def _evicted(self, blocks: BlockIds) -> None:
        if self.full:
            self.events += [["evict", self._step, block] for block in blocks.tolist()]

    def _scheduled(self, step: Step) -> None:
        scheduler, admitted = self.scheduler, {a[0] for a in step.admitted}
        tables = self._tables() if self.full else {}
        for request, hit, new, resumed, _ in step.admitted:
            event = ["resume" if resumed else "admit", self._step, self.names[request], hit, new]
            self.events.append([*event, _plain(tables[request])] if self.full else event)
            self.cached.setdefault(self.names[request], []).append(hit)
        for request, table in tables.items():
            had = self._lengths.get(request)
            if had is not None and request not in admitted:
                grown = [part[n:] for part, n in zip(table, had, strict=True)]
                if any(grown):
                    self.events.append(["grow", self._step, self.names[request], _plain(grown)])
        self._lengths = {request: [len(part) for part in table] for request, table in tables.items()}
        self._row = [self._step, len(scheduler.running), len(scheduler.waiting), step.new_tokens, self.pool.free]
        self._peaks()

    def _updated(self, finished: list[int]) -> None:
        self.events += [["finish", self._step, self.names[request]] for request in finished]
        if self.keeps_steps:
            self._end_row(self._row, self.pool.free_queue())

    def _end_row(self, row: list[int], queue: BlockIds) -> None:
        self.rows.append([*row, len(queue), zlib.crc32(",".join(map(str, queue.tolist())).encode())])
        self.queues.append((queue[:SHOWN].tolist(), queue[-SHOWN:].tolist(), len(queue)))

    def _peaks(self) -> None:
        self.peak_running = max(self.peak_running, len(self.scheduler.running))
        self.peak_used = max(self.peak_used, self.pool.num_blocks - 1 - self.pool.free)

    def _tables(self) -> dict[int, list[list[int]]]:
        """Block tables of the running requests, in running order, one a group."""
        running, found = self.scheduler.running, {}
        for request, handle in zip(running.request.tolist(), running.handle.tolist(), strict=True):
            table = self.scheduler.allocator.table(handle)  # type: ignore[attr-defined]
            groups = table if isinstance(table, (list, tuple)) else [table]
            found[request] = [np.asarray(group).tolist() for group in groups]
        return found

    # ------------------------------------------------------------------ several steps at once
    def _jump(self, run: DecodeRun) -> tuple[int, list[int]]:
        """Make the steps of a decode run and write down each as if it had been made alone."""
        scheduler, pool, first = self.scheduler, self.pool, self._step
        if not self.keeps_steps:
            scheduler.decode(run)
            self._step = first + run.steps - 1
            self._peaks()
            return len(scheduler.running), scheduler.update()
        queue, hashed = pool.free_queue(), pool.hash_of != NO_HASH
        computed = scheduler.running.computed.copy()
        had = self._tables()
        own, pool_seen = self.events, pool
        self.events = []                               # evictions come all at once: they are told again by step
        scheduler.decode(run)
        self.events = own
        taken = self._tell(first, run.steps, computed, had, hashed)
        self._peaks()
        self._step = first + run.steps - 1
        n, waiting = len(scheduler.running), len(scheduler.waiting)
        for k in range(run.steps - 1):
            left = queue[taken[k]:]
            self._end_row([first + k, n, waiting, n, len(left)], left)
        self._row = [self._step, n, waiting, n, pool_seen.free]
        finished = scheduler.update()
        self._updated(finished)
        return n, finished

    def _tell(self, first: int, steps: int, computed: IntArray, had: dict[int, list[list[int]]], hashed: Any) -> list[int]:
        """Growth and evictions by step; returns how many blocks were taken up to each."""
        size = self.scheduler.allocator.block_size     # type: ignore[attr-defined]
        by_step: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
        now = self._tables()
        for request, done in zip(self.scheduler.running.request.tolist(), computed.tolist(), strict=True):
            for before, after in zip(had[request], now[request], strict=True):       # of several groups none grows here
                for place in range(len(before), len(after)):
                    by_step[place * size - done].append((request, after[place]))
        counts = np.cumsum([len(blocks) for blocks in by_step]).tolist()
        for k, blocks in enumerate(by_step):
            if self.full:
                self.events += [["evict", first + k, block] for _, block in blocks if hashed[block]]
                self.events += [["grow", first + k, self.names[request], [block]] for request, block in blocks]
        self._lengths = {request: [len(part) for part in table] for request, table in now.items()}
        return counts


def _arrivals(trace: Trace) -> tuple[list[int], list[int]]:
    """The step of each arrival, and its place among such steps: requests of one step and priority are equally urgent.

    A server gives each an arrival time of its own.
    """
    assert trace.arrival_us is not None
    return trace.arrival_us.tolist(), np.unique(trace.arrival_us, return_inverse=True)[1].tolist()


def _plain(parts: list[list[int]]) -> Any:
    """One group's blocks as they are; several groups as a list of lists."""
    return parts[0] if len(parts) == 1 else parts


def replay(case: Case, longest_jump: int = 1) -> Replay:
    """Replay a case.

    Raises
    ------
    InputError
        If the case cannot be used.
    """
    return Replay(case, longest_jump).run()

