"""A small pool with a few requests, served by the engine, and every step of it kept: what the levels on paging look at.

    step 7    before   [ tables, ref counts, free queue ]     what the end of step 6 left
              admitted, preempted, evicted, refused           what schedule() decided
              after    [ tables, ref counts, free queue ]     while the step runs
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.quiz.exercise import name_of
from sim.config import SimConfig
from sim.engine import Engine
from sim.memory.allocator import Allocator, SlotCounts
from sim.memory.paged import PagedAllocator
from sim.memory.prefix_index import NO_HASH
from sim.run import Observer
from sim.scheduler import Scheduler
from sim.step import Step
from sim.step_time import ConstantStepTime
from workloads.request import ContentIds, Trace

SAMPLES = "abcdefgh"


@dataclass(frozen=True)
class Plan:
    """A pool and its traffic.

    Parameters
    ----------
    num_blocks : int
        The null block included.
    block_size : int
        Slots a block.
    requests : tuple of (int, int, int)
        Prompt and output in tokens, and the step, from 1 on, before which it arrives.
    content : tuple of tuple of int, optional
        What the full blocks of each prompt hold: equal numbers are equal prefixes, of as many blocks; with it blocks are
        found again (``paged-prefix``).
    samples : tuple of int, optional
        Sequences sampled for each request.
    """

    num_blocks: int
    block_size: int
    requests: tuple[tuple[int, int, int], ...]
    content: tuple[tuple[int, ...], ...] | None = None
    samples: tuple[int, ...] | None = None

    @property
    def usable(self) -> int:
        """Blocks that are handed out: all but the null block."""
        return self.num_blocks - 1

    def trace(self) -> Trace:
        """As the engine wants it, a step a microsecond."""
        prompt, output, arrives = np.array(self.requests, np.int64).T
        ids = None
        if self.content is not None:
            starts = np.cumsum([0, *map(len, self.content)])
            ids = ContentIds(np.array([i for row in self.content for i in row], np.int64), starts, self.block_size)
        return Trace("quiz", prompt, output, arrival_us=arrives - 1, content=ids,
                     samples=None if self.samples is None else np.array(self.samples))


@dataclass(frozen=True)
class Sequence:
    """A running sequence: its request (row), its name, its computed tokens and its block table."""

    request: int
    name: str
    computed: int
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Pool:
    """The pool at one moment: running sequences in order, ref counts by block, contents of findable blocks, free queue, slots."""

    sequences: tuple[Sequence, ...]
    ref: tuple[int, ...]
    holds: dict[int, str]
    queue: tuple[int, ...]
    counts: SlotCounts
    logical: int

    @property
    def cached(self) -> list[int]:
        """Findable blocks that nobody holds, in the order of the free queue."""
        return [block for block in self.queue if block in self.holds]

    def table(self, name: str) -> tuple[int, ...]:
        """The block table of a sequence; empty if it does not run."""
        return next((sequence.blocks for sequence in self.sequences if sequence.name == name), ())


@dataclass(frozen=True)
class Moment:
    """One step. ``admitted`` holds (row, tokens found, tokens to compute) and ``need`` the blocks that the refused head wants."""

    step: int
    before: Pool
    after: Pool
    admitted: dict[int, tuple[int, int]]
    preempted: tuple[int, ...]
    evicted: tuple[int, ...]
    waiting: tuple[int, ...]
    need: int | None

    def grown(self) -> dict[str, tuple[int, ...]]:
        """The new blocks of sequences that ran before and still do; copies are not among them."""
        return {now.name: now.blocks[len(had):] for now in self.after.sequences
                if (had := self.before.table(now.name)) and len(now.blocks) > len(had)}

    def copied(self) -> dict[str, tuple[int, int]]:
        """Of each sequence that copied a block: the block it shared, and its own one."""
        pairs = {now.name: [pair for pair in zip(self.before.table(now.name), now.blocks, strict=False) if pair[0] != pair[1]]
                 for now in self.after.sequences}
        return {name: changed[0] for name, changed in pairs.items() if changed}


class Watch(Observer):
    """Keeps every step."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.moments: list[Moment] = []
        self._evicted: list[int] = []

    def started(self, allocator: Allocator, scheduler: Scheduler) -> None:
        assert isinstance(allocator, PagedAllocator)
        self._allocator, self._scheduler = allocator, scheduler
        allocator.pool.watch(lambda blocks: self._evicted.extend(blocks.tolist()))
        self._labels = _labels(self.plan, allocator)
        self._before = self._pool()

    def scheduled(self, now_us: int, step: Step) -> None:
        refused = self._scheduler.refused
        self.moments.append(Moment(
            now_us + 1, self._before, self._pool(), {request: (hit, new) for request, hit, new, _, _ in step.admitted},
            tuple(request for request, _ in step.preempted), tuple(self._evicted), tuple(self._scheduler.waiting),
            None if refused is None else refused.need // self.plan.block_size))
        self._evicted.clear()

    def updated(self, now_us: int, finished: list[int]) -> None:
        self._before = self._pool()

    def _pool(self) -> Pool:
        allocator, pool, running = self._allocator, self._allocator.pool, self._scheduler.running
        several = self.plan.samples or (1,) * len(self.plan.requests)
        columns = (running.request, running.member, running.handle, running.computed)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        sequences = tuple(Sequence(request, name_of(request) + (SAMPLES[member] if several[request] > 1 else ""), computed,
                                   tuple(allocator.table(handle).tolist())) for request, member, handle, computed in rows)
        holds = {block: self._labels[content] for block, content in enumerate(pool.hash_of.tolist()) if content != NO_HASH}
        return Pool(sequences, tuple(pool.ref.tolist()), holds, tuple(pool.free_queue().tolist()),
                    allocator.counts(self._scheduler.computed, None), int(allocator.logical()))


def _labels(plan: Plan, allocator: PagedAllocator) -> dict[int, str]:
    """What a block hash is called: the letter of a prompt block, or whose block it is and which one, from 1 on."""
    if allocator.hashes is None:
        return {}
    labels: dict[int, str] = {}
    for row, letters in enumerate(plan.content or ()):
        full = int(allocator.demand.end[row]) // plan.block_size
        for place, content in enumerate(allocator.hashes.span(row, 0, full).tolist()):
            labels.setdefault(content, letter(letters[place]) if place < len(letters) else f"{name_of(row)}.{place + 1}")
    return labels


def letter(content: int) -> str:
    """What a content id is called: 0 is A.

    >>> letter(0), letter(25)
    ('A', 'Z')
    """
    return chr(ord("A") + content)


def serve(plan: Plan) -> list[Moment]:
    """Every step from the first arrival until all have ended.

    >>> moments = serve(Plan(5, 4, ((5, 3, 1), (3, 1, 1))))
    >>> [(moment.step, [sequence.blocks for sequence in moment.after.sequences]) for moment in moments[:2]]
    [(1, [(1, 2), (3,)]), (2, [(1, 2)])]
    """
    config = SimConfig(plan.num_blocks, plan.block_size, step_time=ConstantStepTime(1), longest_jump=1)
    watch = Watch(plan)
    Engine(plan.trace(), config, "paged" if plan.content is None else "paged-prefix", observers=[watch]).run()
    return watch.moments


def calm(plan: Plan, step: int) -> bool:
    """Whether before a step nobody waits or is preempted: then a picture shows everybody who has come and not ended.

    >>> calm(Plan(5, 4, ((5, 3, 1), (3, 1, 1))), 3), calm(Plan(3, 4, ((5, 3, 1), (3, 1, 1))), 3)
    (True, False)
    """
    return not any(moment.waiting or moment.preempted for moment in serve(plan) if moment.step < step)
