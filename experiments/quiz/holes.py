"""Contiguous reservations leave holes: who fits into which, and what first fit and best fit make of the same pool.

Three requests come into a pool with holes. With fewer, first fit never wins: best fit leaves the larger hole whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from experiments.quiz.exercise import Exercise, Question, between, listed, name_of, together, tried
from experiments.quiz.pictures import Span, address_bar
from sim.demand import Demand
from sim.memory.allocator import NO_PREFIX, Ask, Refusal
from sim.memory.arena import FitArena
from sim.memory.contiguous import ContiguousAllocator, reserve_oracle
from workloads.messages import counted
from workloads.request import Trace

TITLE = "Holes: first fit, best fit, external fragmentation"
LATER = 3


@dataclass(frozen=True)
class Plan:
    """``requests`` as (prompt, output) in tokens; the last `LATER` come when the rows ``ended`` have left."""

    capacity: int
    requests: tuple[tuple[int, int], ...]
    ended: tuple[int, ...]

    @property
    def later(self) -> range:
        """The rows that come later."""
        return range(len(self.requests) - LATER, len(self.requests))


@dataclass(frozen=True)
class Outcome:
    """One placement: what lies where before the later requests, where they go (None: refused), and the pool at the end."""

    spans: tuple[Span, ...]
    free: int
    largest: int
    starts: tuple[int | None, ...]
    left: int
    largest_left: int
    external: int
    reservations: tuple[int, ...]


def draw(rng: np.random.Generator) -> Plan:
    """One placement has room for all and the other has not for the last, although enough is free."""
    best_refuses = bool(rng.integers(2))
    return tried(rng, _propose, lambda plan: _is_worth(plan, best_refuses))


def _propose(rng: np.random.Generator) -> Plan:
    """A pool about as full as it can be, of which two or three requests have ended."""
    there = [(between(rng, 3, 10), between(rng, 2, 9)) for _ in range(6)]
    filled = sum(prompt + output - 1 for prompt, output in there)
    later = [(between(rng, 2, 7), between(rng, 2, 6)) for _ in range(LATER)]
    ended = rng.choice(len(there), size=between(rng, 2, 3), replace=False)
    return Plan(filled + between(rng, 0, 9), (*there, *later), tuple(sorted(map(int, ended))))


def _is_worth(plan: Plan, best_refuses: bool) -> bool:
    refusing, other = play(plan, best_refuses), play(plan, not best_refuses)
    return (None not in (*refusing.starts[:-1], *other.starts) and refusing.starts[-1] is None and refusing.external > 0
            and refusing.starts[0] != other.starts[0])


def play(plan: Plan, best: bool) -> Outcome:
    """The plan in a `FitArena`."""
    prompt, output = np.array(plan.requests, np.int64).T
    demand, arena = Demand(Trace("quiz", prompt, output), plan.capacity), FitArena(plan.capacity, best)
    allocator = ContiguousAllocator(demand, arena, reserve_oracle)

    def admit(row: int) -> int | None:
        return allocator.admit(Ask(row, int(prompt[row]), NO_PREFIX, int(prompt[row]), whole=True))

    there = {row: admit(row) for row in range(plan.later.start)}
    for row in plan.ended:
        allocator.release(_held(there.pop(row)))
    spans = sorted(Span(*allocator.placed(_held(handle)), name_of(row)) for row, handle in there.items())
    free, largest = arena.free, arena.largest_hole()
    starts = [None if handle is None else allocator.placed(handle)[0] for handle in map(admit, plan.later)]
    sizes = tuple(allocator.reservation.tolist())
    refused = Refusal(sizes[-1]) if starts[-1] is None else None
    return Outcome(tuple(spans), free, largest, tuple(starts), arena.free, arena.largest_hole(),
                   allocator.counts(0, refused).external, sizes)


def _held(handle: int | None) -> int:
    """What was there from the start fitted."""
    assert handle is not None
    return handle


def work(plan: Plan) -> Exercise:
    """Both placements of the plan, of which one has no room for the last request."""
    first, best = play(plan, best=False), play(plan, best=True)
    rows = [(name_of(row), f"{prompt}", f"{output}", f"{size}")
            for row, ((prompt, output), size) in enumerate(zip(plan.requests, first.reservations, strict=True))]
    holes = listed(_holes(first.spans, plan.capacity))
    gone = together(name_of(row) for row in plan.ended)
    return Exercise(
        f"A pool of {counted(plan.capacity, 'slot')} with contiguous reservations (contiguous-oracle): a request reserves what "
        f"it will fill, prompt + output - 1 slots in a row, since the last token is never computed. {gone} have ended. A dot is "
        "a free slot.",
        (("request", "prompt", "output", "reserves"), *rows), address_bar(first.spans, plan.capacity),
        (f"{together(map(name_of, plan.later))} are admitted in that order, while nobody ends.",),
        (Question("How many slots are free now, and how many has the largest hole?",
                  f"{counted(first.free, 'slot')} free, the largest hole has {first.largest}", (f"holes: {holes}",)),
         _where(plan, "first", first, holes), _where(plan, "best", best, holes),
         _external(plan, *(("first", first) if first.starts[-1] is None else ("best", best)))))


def _holes(spans: tuple[Span, ...], capacity: int) -> list[str]:
    """The gaps between reservations in words."""
    edges = [Span(0, 0, ""), *spans, Span(capacity, 0, "")]
    return [f"{counted(b.start - a.start - a.slots, 'slot')} at {a.start + a.slots}" for a, b in pairwise(edges)
            if b.start > a.start + a.slots]


def _where(plan: Plan, how: str, outcome: Outcome, holes: str) -> Question:
    which = {"first": "lowest hole", "best": "smallest hole"}[how]
    placed = list(zip(map(name_of, plan.later), outcome.starts, outcome.reservations[plan.later.start:], strict=True))
    working = [f"holes: {holes}"]
    for name, start, size in placed:
        working.append(f"{name}: the {which} with at least {counted(size, 'slot')} begins at {start}" if start is not None else
                       f"{name} needs {size} in a row, and the largest hole has {outcome.largest_left}")
    return Question(f"With {how} fit, at which addresses do {together(map(name_of, plan.later))} begin, or who does not fit?",
                    listed(f"{name} {'does not fit' if start is None else f'at {start}'}" for name, start, _ in placed),
                    tuple(working))


def _external(plan: Plan, how: str, outcome: Outcome) -> Question:
    name, size = name_of(plan.later[-1]), outcome.reservations[-1]
    return Question(f"With one of the two {name} is refused. How many slots are external fragmentation then?",
                    counted(outcome.external, "slot"),
                    (f"with {how} fit {counted(outcome.left, 'slot')} are free and {name} needs {size} in a row",
                     "while the head of the queue is refused although enough slots are free in total, all of them are external "
                     f"fragmentation: {outcome.external}"))
