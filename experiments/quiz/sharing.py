"""Prefix sharing: what a prompt finds, whose blocks those are, and how often each is held."""

from __future__ import annotations

import numpy as np

from experiments.quiz.asked import LETTERS, pool_of, requests, shown
from experiments.quiz.exercise import Exercise, Question, between, listed, name_of, tried
from experiments.quiz.served import Moment, Plan, calm, letter, serve
from workloads.messages import counted

TITLE = "Prefix sharing: hits and ref counts"
COMES = 2


def draw(rng: np.random.Generator) -> Plan:
    """A prompt finds blocks that somebody holds, and others that lie in the free queue."""
    return tried(rng, _propose, _is_worth)


def _propose(rng: np.random.Generator) -> Plan:
    """r1 ends before r3 arrives, r2 still runs: r2 shares a few blocks with r1, r3 more, or all of a prompt."""
    size, common = 2 ** between(rng, 2, 4), between(rng, 1, 3)
    more = common + between(rng, 1, 2)
    first = list(range(more + between(rng, 0, 1)))
    second = [*first[:common], *range(10, 10 + between(rng, 0, 2))]
    third = [*first[:more], *range(20, 20 + between(rng, 0, 1))]
    rests = [between(rng, 1, size - 1), between(rng, 1, size - 1), between(rng, 0, 1) * between(rng, 1, size - 1)]
    output = between(rng, 2, size)
    steps, outputs = (1, 2, output + 1), (output, output + between(rng, 2, 9), between(rng, 2, size))
    content = [_numbered(ids) for ids in (first, second, third)]
    lengths = [size * len(ids) + rest for ids, rest in zip(content, rests, strict=True)]
    return Plan(between(rng, 10, 16), size, tuple(zip(lengths, outputs, steps, strict=True)), tuple(content))


def _numbered(ids: list[int]) -> tuple[int, ...]:
    """Letters close to the start of the alphabet: those behind 10 begin at H, those behind 20 at P."""
    return tuple(i if i < 10 else 7 + i - 10 if i < 20 else 15 + i - 20 for i in ids)


def _is_worth(plan: Plan) -> bool:
    now = _step(plan)
    held = [now.before.ref[block] > 0 for block in _found(now, plan)]
    return any(held) and not all(held) and now.step == plan.requests[COMES][2] and calm(plan, now.step)


def _step(plan: Plan) -> Moment:
    """The step that admits `COMES`."""
    return next(moment for moment in serve(plan) if COMES in moment.admitted)


def _found(now: Moment, plan: Plan) -> tuple[int, ...]:
    """The blocks of the hit."""
    return now.after.table(name_of(COMES))[: now.admitted[COMES][0] // plan.block_size]


def work(plan: Plan) -> Exercise:
    """The step in which the last request finds its prefix."""
    now = _step(plan)
    comes = name_of(COMES)
    return Exercise(
        f"{pool_of(plan)} {LETTERS} The picture shows the pool when step {now.step - 1} has ended.",
        requests(plan), shown(now.before, plan),
        (f"{comes} arrives.", f"Step {now.step} is scheduled: first the running sequences, one token each, then {comes}."),
        (_hit(now, plan), _taken(now, plan), _table(now, plan), _shared(now, plan), _saved(now, plan)))


def _hit(now: Moment, plan: Plan) -> Question:
    tokens, found, letters = now.admitted[COMES][0], _found(now, plan), plan.content[COMES] if plan.content else ()
    prompt = plan.requests[COMES][0]
    working = [listed(f"{letter(content)} is in block {block}" for content, block in zip(letters, found, strict=False))]
    if len(letters) > len(found):
        known = letter(letters[len(found)]) in now.before.holds.values()
        working.append(f"of {prompt} tokens one must be left to compute: {letter(letters[len(found)])} is not asked for" if known
                       else f"{letter(letters[len(found)])} is in no block: the lookup stops")
    return Question(f"How many of {name_of(COMES)}'s {prompt} prompt tokens are found, and in which blocks?",
                    f"{counted(tokens, 'token')}, in {listed(found)}",
                    (*working, f"{counted(len(found), 'block')} x {plan.block_size} = {counted(tokens, 'token')}"))


def _taken(now: Moment, plan: Plan) -> Question:
    found, table = _found(now, plan), now.after.table(name_of(COMES))
    lying = [block for block in found if now.before.ref[block] == 0]
    new = table[len(found):]
    return Question(f"How many blocks leave the free queue for {name_of(COMES)}, and how many of those are new to it?",
                    f"{len(lying) + len(new)} leave, {len(new)} of them new",
                    (f"found with ref count 0, so they lay in the free queue: {listed(lying)}",
                     f"new: ceil({plan.requests[COMES][0]} / {plan.block_size}) = {len(table)} blocks less {len(found)} found = "
                     f"{len(new)}"))


def _table(now: Moment, plan: Plan) -> Question:
    found, table = _found(now, plan), now.after.table(name_of(COMES))
    grown = [f"{name} has taken {listed(blocks)} before" for name, blocks in now.grown().items()]
    return Question(f"What is {name_of(COMES)}'s block table?", listed(table),
                    (f"found: {listed(found)}", *grown,
                     f"new, from the front of the free queue: {listed(table[len(found):])}"))


def _shared(now: Moment, plan: Plan) -> Question:
    several = {block: n for block, n in enumerate(now.after.ref) if n > 1}
    holders = [f"block {block}: {listed(s.name for s in now.after.sequences if block in s.blocks)}" for block in several]
    return Question(f"Which blocks have a ref count above 1 in step {now.step}, and what is it?",
                    listed(f"block {block}: {n}" for block, n in several.items()), tuple(holders))


def _saved(now: Moment, plan: Plan) -> Question:
    held = (plan.usable - len(now.after.queue)) * plan.block_size
    return Question("How many slots does sharing save then (slots of all block tables, less slots of held blocks)?",
                    counted(now.after.logical - held, "slot"),
                    (f"block tables: {now.after.logical} slots; held blocks: {held} slots",))
