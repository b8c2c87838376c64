"""Block tables and the free queue: which block comes next, who fits, what is lost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from experiments.quiz.asked import empty_slots, growth, pool_of, queue_after_end, requests, shown
from experiments.quiz.exercise import Exercise, Question, between, listed, name_of, together, tried
from experiments.quiz.served import Moment, Plan, calm, serve
from workloads.messages import counted

TITLE = "Paging: block tables and the free queue"
COMES, BEHIND = 3, 4


def draw(rng: np.random.Generator) -> Plan:
    """Somebody ends, and the next request gets blocks out of order, with another behind it that may or may not fit."""
    fits = bool(rng.integers(2))
    return tried(rng, _propose, lambda plan: _is_worth(plan, fits))


def _propose(rng: np.random.Generator) -> Plan:
    size = 2 ** between(rng, 2, 4)
    first = [(between(rng, 2, 4 * size), between(rng, 3, 2 * size)) for _ in range(COMES)]
    ends = min(output for _, output in first)          # in the step of this number
    later = [(between(rng, size + 1, 4 * size), between(rng, 2, 2 * size)) for _ in range(2)]
    return Plan(between(rng, 9, 14), size, (*((p, o, 1) for p, o in first), *((p, o, ends + 1) for p, o in later)))


def _is_worth(plan: Plan, fits: bool) -> bool:
    last, now = _steps(plan)
    table = now.after.table(name_of(COMES))
    return (BEHIND in now.admitted) == fits and (fits or now.need is not None) and not now.preempted and len(now.grown()) > 0 \
        and len(last.after.sequences) > len(now.before.sequences) and len(table) > 1 and sorted(table) != list(table) \
        and calm(plan, now.step)


def _steps(plan: Plan) -> tuple[Moment, Moment]:
    """The step at whose end somebody leaves, and the next, before which `COMES` and `BEHIND` arrive."""
    return next((last, now) for last, now in pairwise(serve(plan)) if now.step == plan.requests[COMES][2])


def work(plan: Plan) -> Exercise:
    """The step in which the next request gets what another left."""
    last, now = _steps(plan)
    comes, behind = name_of(COMES), name_of(BEHIND)
    left = [s.name for s in last.after.sequences if not now.before.table(s.name)]
    return Exercise(
        f"{pool_of(plan)} The picture shows step {last.step}, after it was scheduled.",
        requests(plan), shown(last.after, plan),
        (f"Step {last.step} ends: {together(left)} {'has' if len(left) == 1 else 'have'} the last token and "
         f"{'leaves' if len(left) == 1 else 'leave'}.",
         f"{comes} and {behind} arrive.",
         f"Step {now.step} is scheduled: first the running sequences, one token each, then {comes} and {behind}."),
        (queue_after_end(last, now), growth(now, plan), _table(now, plan), _fits(now, plan), empty_slots(now, plan)))


def _table(now: Moment, plan: Plan) -> Question:
    table, prompt = now.after.table(name_of(COMES)), plan.requests[COMES][0]
    return Question(f"{name_of(COMES)} is admitted with its {prompt} prompt tokens. What is its block table?", listed(table),
                    (f"ceil({prompt} / {plan.block_size}) = {len(table)} blocks from the front of the free queue, after the "
                     "running sequences have taken theirs",))


def _fits(now: Moment, plan: Plan) -> Question:
    behind, prompt = name_of(BEHIND), plan.requests[BEHIND][0]
    table = now.after.table(behind)
    need = len(table) if now.need is None else now.need
    free = len(now.after.queue) + len(table)
    return Question(f"Does {behind} fit behind it, with {prompt} prompt tokens?", "yes" if now.need is None else "no",
                    (f"ceil({prompt} / {plan.block_size}) = {counted(need, 'block')} needed, {free} free",))
