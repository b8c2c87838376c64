"""Copy-on-write: samples of one prompt share its blocks, and who writes into a shared one first takes a copy."""

from __future__ import annotations

import numpy as np

from experiments.quiz.asked import pool_of, requests, shown
from experiments.quiz.exercise import Exercise, Question, between, listed, together, tried
from experiments.quiz.served import Moment, Plan, Pool, Sequence, serve

TITLE = "Copy-on-write: samples that branch"


def draw(rng: np.random.Generator) -> Plan:
    """Two requests branch: one in the middle of a block, the other there too or at the end of one."""
    return tried(rng, _propose, _is_worth)


def _propose(rng: np.random.Generator) -> Plan:
    size = 2 ** between(rng, 2, 4)
    inside = (between(rng, 1, size - 1), between(rng, 0, 1) * between(rng, 1, size - 1))
    lengths = [between(rng, 1, 3) * size + tokens for tokens in inside]
    if rng.integers(2):
        lengths.reverse()
    single = between(rng, 2, 3 * size)
    return Plan(between(rng, 12, 16), size, tuple((prompt, between(rng, 3, 2 * size), 1) for prompt in (*lengths, single)),
                samples=(between(rng, 2, 4), between(rng, 2, 3), 1))


def _is_worth(plan: Plan) -> bool:
    first, second = _steps(plan)
    return len(first.admitted) == len(plan.requests) and bool(second.copied()) and not second.preempted \
        and len(second.copied()) < len(second.after.sequences) - 2


def _steps(plan: Plan) -> tuple[Moment, Moment]:
    """The step of the prompts, and the one in which every sample writes for the first time."""
    first, second, *_ = serve(plan)
    return first, second


def work(plan: Plan) -> Exercise:
    """The first step after the prompts."""
    first, second = _steps(plan)
    return Exercise(
        f"{pool_of(plan)} A request with n samples computes its prompt once and then goes on as n sequences, named r1a, r1b and "
        "so on. The picture shows step 1, which computes the prompts, after it was scheduled.",
        requests(plan), shown(first.after, plan),
        ("Step 1 ends: every request with several samples branches, and its sequences hold the same blocks.",
         "Step 2 is scheduled: every sequence writes its first own token, in the order "
         f"{listed(s.name for s in second.before.sequences)}."),
        (_branched(second), _copies(second, plan), _tables(second, plan), _blocks(second, plan)))


def _shared(pool: Pool) -> dict[int, int]:
    """Blocks that several sequences hold, and how many."""
    return {block: n for block, n in enumerate(pool.ref) if n > 1}


def _branched(now: Moment) -> Question:
    groups: dict[tuple[int, ...], list[str]] = {}
    for sequence in now.before.sequences:
        groups.setdefault(sequence.blocks, []).append(sequence.name)
    return Question("Which blocks have a ref count above 1 when step 1 has ended, and what is it?",
                    listed(f"block {block}: {n}" for block, n in _shared(now.before).items()),
                    tuple(f"{together(names)} {'hold' if len(names) > 1 else 'holds'} {listed(blocks)}"
                          for blocks, names in groups.items()))


def _copies(now: Moment, plan: Plan) -> Question:
    copied = now.copied()
    return Question("Which sequences copy a block in step 2, and which block into which?",
                    listed(f"{name} copies {old} into {new}" for name, (old, new) in copied.items()),
                    tuple(_writes(sequence, now, plan) for sequence in now.before.sequences))


def _writes(sequence: Sequence, now: Moment, plan: Plan) -> str:
    """Why a sequence copies its last block, writes into it, or takes a new one."""
    last, size = sequence.blocks[-1], plan.block_size
    open_block = f"{sequence.name}: block {last} has {sequence.computed % size} of {size} slots filled and"
    if sequence.name in now.copied():
        return f"{open_block} others hold it: a copy in block {now.copied()[sequence.name][1]}"
    if sequence.name in now.grown():
        return f"{sequence.name}: block {last} is full and stays as it is: new block {listed(now.grown()[sequence.name])}"
    return f"{open_block} nobody else holds it{' any more' if now.before.ref[last] > 1 else ''}: it writes in place"


def _tables(now: Moment, plan: Plan) -> Question:
    several = [s for s in now.after.sequences if (plan.samples or ())[s.request] > 1]
    left = [f"block {block}: {n}" for block, n in _shared(now.after).items()]
    return Question(f"What are the block tables of {together(s.name for s in several)} then?",
                    "; ".join(f"{s.name}: {listed(s.blocks)}" for s in several),
                    ("copies and new blocks come from the front of the free queue, in running order",
                     f"still shared: {listed(left)}"))


def _blocks(now: Moment, plan: Plan) -> Question:
    held = plan.usable - len(now.after.queue)
    tables = now.after.logical // plan.block_size
    return Question("How many blocks are held in step 2, and how many would they be if nobody shared?",
                    f"{held} held, {tables} without sharing",
                    (f"free: {len(now.after.queue)} of {plan.usable}", f"the block tables have {tables} entries"))
