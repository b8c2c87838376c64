"""Eviction: the order of the free queue with cached blocks in it, whose content goes first, and what is still found."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from experiments.quiz.asked import LETTERS, pool_of, queue_after_end, requests, shown
from experiments.quiz.exercise import Exercise, Question, between, listed, name_of, tried
from experiments.quiz.served import Moment, Plan, calm, letter, serve
from workloads.messages import counted

TITLE = "Eviction: the order of the free queue"
COMES, AGAIN = 2, 3


def draw(rng: np.random.Generator) -> Plan:
    """A large prompt evicts the tail of what two requests left, and a prompt that was there before finds only a part."""
    return tried(rng, _propose, _is_worth)


def _propose(rng: np.random.Generator) -> Plan:
    """r1 and r2 end one after the other; then come r3, with contents of its own, and r4, which begins as r1 or r2 did."""
    size = 2 ** between(rng, 2, 4)
    blocks = [between(rng, 2, 5), between(rng, 2, 5)]
    first, second = list(range(blocks[0])), list(range(blocks[0], sum(blocks)))
    large = list(range(sum(blocks), sum(blocks) + between(rng, 2, 6)))
    again = (first, second)[between(rng, 0, 1)]
    outputs = [between(rng, 2, size), between(rng, 2, 2 * size), between(rng, 2, 9), between(rng, 2, 9)]
    arrives = max(outputs[:2]) + 1
    contents = (first, second, large, again)
    lengths = [size * len(ids) + between(rng, 0, size - 1) for ids in contents]
    return Plan(between(rng, 9, 15), size, tuple(zip(lengths, outputs, (1, 1, arrives, arrives), strict=True)),
                tuple(map(tuple, contents)))


def _is_worth(plan: Plan) -> bool:
    _, now = _steps(plan)
    hit = now.admitted.get(AGAIN, (0, 0))[0]
    return COMES in now.admitted and not now.before.sequences and bool(now.after.cached) \
        and 0 < hit < plan.block_size * len(_known(plan)) and bool(_gone(now, plan)) and calm(plan, now.step)


def _steps(plan: Plan) -> tuple[Moment, Moment]:
    """The step at whose end the pool is left to the cache, and the next, before which `COMES` and `AGAIN` arrive."""
    return next((last, now) for last, now in pairwise(serve(plan)) if now.step == plan.requests[COMES][2])


def _known(plan: Plan) -> tuple[int, ...]:
    assert plan.content is not None
    return plan.content[AGAIN]


def _gone(now: Moment, plan: Plan) -> list[str]:
    """Letters that r4 would have found before, and that were evicted."""
    left = {now.before.holds[block] for block in now.evicted}
    return [name for name in map(letter, _known(plan)) if name in left]


def work(plan: Plan) -> Exercise:
    """The step that evicts."""
    last, now = _steps(plan)
    comes, again = name_of(COMES), name_of(AGAIN)
    leaving = listed(s.name for s in last.after.sequences)
    return Exercise(
        f"{pool_of(plan)} {LETTERS} The picture shows step {last.step}, after it was scheduled.",
        requests(plan), shown(last.after, plan),
        (f"Step {last.step} ends: {leaving} {'leaves' if ',' not in leaving else 'leave'}.", f"{comes} and {again} arrive.",
         f"Step {now.step} is scheduled: it admits {comes}, then {again}."),
        (queue_after_end(last, now), _table(now, plan), _evicted(now, plan), _hit(now, plan), _next(now)))


def _table(now: Moment, plan: Plan) -> Question:
    table, prompt = now.after.table(name_of(COMES)), plan.requests[COMES][0]
    return Question(f"What is {name_of(COMES)}'s block table ({prompt} prompt tokens, none of them known)?", listed(table),
                    (f"ceil({prompt} / {plan.block_size}) = {len(table)} blocks from the front of the free queue",))


def _evicted(now: Moment, plan: Plan) -> Question:
    contents = listed(f"block {block} held {now.before.holds[block]}" for block in now.evicted)
    hits = now.after.table(name_of(AGAIN))[: now.admitted[AGAIN][0] // plan.block_size]
    return Question(f"Which blocks are evicted in step {now.step}, in order?", listed(now.evicted),
                    (f"of the blocks that {name_of(COMES)} and {name_of(AGAIN)} take, those that were findable: {contents}",
                     f"what {name_of(AGAIN)} finds, {listed(hits)}, is taken out of the queue first, and not evicted"))


def _hit(now: Moment, plan: Plan) -> Question:
    tokens, known = now.admitted[AGAIN][0], list(map(letter, _known(plan)))
    found = now.after.table(name_of(AGAIN))[: tokens // plan.block_size]
    return Question(f"{name_of(AGAIN)}'s prompt begins with {' '.join(known)}. How many of its tokens are found, and in which "
                    "blocks?", f"{counted(tokens, 'token')}, in {listed(found)}",
                    (f"evicted by then: {listed(_gone(now, plan))}",
                     f"the lookup goes from the first block to the first miss, and one token must be left to compute: "
                     f"{counted(len(found), 'block')} x {plan.block_size} = {counted(tokens, 'token')}"))


def _next(now: Moment) -> Question:
    cached = now.after.cached
    return Question(f"In step {now.step}, which blocks are still cached with ref count 0, the next to be evicted first?",
                    listed(cached), (f"the free queue is {listed(now.after.queue, 'empty')}",
                                     "a chain goes from its tail, older requests before younger ones"))
