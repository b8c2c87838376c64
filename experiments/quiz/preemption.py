"""Preemption: who leaves when the pool runs out, who gets its blocks, and what has to be computed again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from experiments.quiz.asked import LETTERS, growth, pool_of, requests, shown
from experiments.quiz.exercise import Exercise, Question, between, listed, name_of, together, tried
from experiments.quiz.served import Moment, Plan, serve
from workloads.messages import counted

TITLE = "Preemption: who leaves, and what is computed again"
RUNNING, WAITS, SOON = 3, 3, 12


def draw(rng: np.random.Generator) -> Plan:
    """A request is preempted for another's growth while one waits, and is resumed a few steps later."""
    caching = bool(rng.integers(3))
    return tried(rng, lambda rng: _propose(rng, caching), _is_worth)


def _propose(rng: np.random.Generator, caching: bool) -> Plan:
    size = 2 ** between(rng, 2, 3)
    lengths = [(between(rng, 2, 3 * size), between(rng, size, 4 * size), 1) for _ in range(RUNNING)]
    lengths.append((between(rng, size, 4 * size), between(rng, 2, size), between(rng, 2, 4)))
    starts = np.cumsum([0, *(prompt // size for prompt, _, _ in lengths)]).tolist()
    content = tuple(tuple(range(a, b)) for a, b in pairwise(starts))
    return Plan(between(rng, 7, 11), size, tuple(lengths), content if caching else None)


def _is_worth(plan: Plan) -> bool:
    if any(prompt + output > plan.usable * plan.block_size for prompt, output, _ in plan.requests):
        return False
    steps = _steps(plan)
    if len(steps) not in range(2, SOON + 1) or any(moment.preempted for moment in steps[1:]):
        return False
    now, (found, new) = steps[0], steps[-1].admitted[steps[0].preempted[0]]
    return len(now.preempted) == 1 and len(now.grown()) > 0 and now.waiting[1:] == (WAITS,) and new > 1 \
        and (plan.content is None or found > 0)


def _steps(plan: Plan) -> list[Moment]:
    """The steps from the first that preempts somebody to the one that resumes it; none where nobody is."""
    moments = serve(plan)
    first = next((i for i, moment in enumerate(moments) if moment.preempted), len(moments))
    last = next((i for i, moment in enumerate(moments) if i > first and moments[first].preempted[0] in moment.admitted), first)
    return moments[first:last + 1]


def work(plan: Plan) -> Exercise:
    """The step in which the pool runs out, and what becomes of the request preempted."""
    steps = _steps(plan)
    now = steps[0]
    letters = "" if plan.content is None else f"{LETTERS} "
    return Exercise(
        f"{pool_of(plan)} First come, first served; preemption by recompute. {letters}The picture shows the pool when step "
        f"{now.step - 1} has ended.",
        requests(plan), shown(now.before, plan),
        (f"Step {now.step} is scheduled: the running sequences want a slot for one token each, in the order "
         f"{listed(s.name for s in now.before.sequences)}. {name_of(WAITS)} waits.",),
        (_victim(now, plan), growth(now, plan), _queue(now), _waiting(now), _resumed(steps, plan), _again(steps, plan)))


def _victim(now: Moment, plan: Plan) -> Question:
    needs = [s.name for s in now.before.sequences if s.computed == len(s.blocks) * plan.block_size]
    return Question(f"Who is preempted in step {now.step}?", listed(map(name_of, now.preempted)),
                    (f"a new block is needed by {together(needs)}; free: {len(now.before.queue)}",
                     f"the one last admitted goes: of {listed(s.name for s in now.before.sequences)} the last is "
                     f"{name_of(now.preempted[0])}"))


def _queue(now: Moment) -> Question:
    victim = name_of(now.preempted[0])
    table = now.before.table(victim)
    taken = [block for blocks in now.grown().values() for block in blocks]
    return Question(f"What is the free queue in step {now.step}, front first?", listed(now.after.queue, "empty"),
                    (f"{victim} gives back {listed(table)}, walked from the end; those that are not findable go to the front, "
                     "the others to the end", f"taken by those that go on: {listed(taken)}"))


def _waiting(now: Moment) -> Question:
    return Question(f"Who waits after step {now.step} was scheduled, head first, and who is admitted in it?",
                    f"{listed(map(name_of, now.waiting))} wait; admitted: {listed(map(name_of, now.admitted), 'nobody')}",
                    ("whoever was preempted goes to the front of the waiting queue",
                     "in a step that preempts somebody, nobody is admitted"))


def _resumed(steps: list[Moment], plan: Plan) -> Question:
    now, back, victim = steps[0], steps[-1], steps[0].preempted[0]
    table = back.after.table(name_of(victim))
    left = [s.name for s in now.after.sequences if not back.before.table(s.name)]
    return Question(f"In which step is {name_of(victim)} resumed?", f"step {back.step}",
                    (f"it wants {counted(len(table), 'block')} for all it has to compute: ceil({sum(back.admitted[victim])} / "
                     f"{plan.block_size})",
                     f"{together(left) if left else 'nobody'} left before step {back.step}, and "
                     f"{counted(len(back.before.queue), 'block')} are free then"))


def _again(steps: list[Moment], plan: Plan) -> Question:
    back, victim = steps[-1], steps[0].preempted[0]
    found, new = back.admitted[victim]
    blocks = back.after.table(name_of(victim))[: found // plan.block_size]
    taken = [f"{name} has taken {listed(new_blocks)} in step {step.step}" for step in steps
             for name, new_blocks in step.grown().items()]
    kept = f"still there of its own: {listed(blocks)}" if plan.content is not None else "without prefix caching nothing is found"
    known, prompt = found + new, plan.requests[victim][0]
    return Question(f"How many tokens does {name_of(victim)} then have to have computed, how many of them are found in "
                    "the cache, and how many does the model compute?", f"{known} tokens: {found} found, {new} computed",
                    (f"its prompt and what it has generated: {prompt} + {known - prompt} = {known}", listed(taken),
                     f"{kept}; {known} - {found} = {new}"))
