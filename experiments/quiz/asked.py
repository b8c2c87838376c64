"""Questions that several levels ask, and what they show of a pool."""

from __future__ import annotations

from experiments.quiz.exercise import Question, listed, name_of
from experiments.quiz.pictures import pool_picture
from experiments.quiz.served import Moment, Plan, Pool, letter
from workloads.messages import counted

LETTERS = ("Letters stand for what a full block holds together with all before it; r1.3 is the third block of r1, part of which "
           "was generated.")


def pool_of(plan: Plan) -> str:
    """The pool and its rules in a sentence.

    >>> pool_of(Plan(9, 4, ((9, 2, 1),)))
    'A pool of 8 blocks of 4 slots (the null block, 0, is not counted), without prefix caching.'
    """
    caching = "without prefix caching" if plan.content is None else "with prefix caching (paged-prefix)"
    size = f"{counted(plan.usable, 'block')} of {counted(plan.block_size, 'slot')}"
    return f"A pool of {size} (the null block, 0, is not counted), {caching}."


def requests(plan: Plan) -> tuple[tuple[str, ...], ...]:
    """The table of requests: lengths, arrivals, and what there is of samples and contents.

    >>> requests(Plan(9, 4, ((9, 2, 1), (5, 3, 2)), content=((0, 1), (0,))))[1:]
    (('r1', '9', '2', 'step 1', 'A B'), ('r2', '5', '3', 'step 2', 'A'))
    """
    names, rows = ["request", "prompt", "output", "arrives before"], []
    for row, (prompt, output, step) in enumerate(plan.requests):
        rows.append([name_of(row), f"{prompt}", f"{output}", f"step {step}"])
    if plan.samples is not None:
        names.append("samples")
        rows = [[*row, f"{n}"] for row, n in zip(rows, plan.samples, strict=True)]
    if plan.content is not None:
        names.append("full blocks of the prompt")
        rows = [[*row, " ".join(map(letter, ids)) or "-"] for row, ids in zip(rows, plan.content, strict=True)]
    return tuple(names), *map(tuple, rows)


def shown(pool: Pool, plan: Plan) -> tuple[str, ...]:
    """The blocks, and the free queue."""
    return *pool_picture(pool, plan), f"free queue, front first: {listed(pool.queue, 'empty')}"


def queue_after_end(last: Moment, now: Moment) -> Question:
    """The free queue between two steps, where somebody leaves."""
    queue, working = now.before.queue, []
    for left in (s for s in last.after.sequences if not now.before.table(s.name)):
        free = [block for block in queue if block in left.blocks]
        kept = [block for block in left.blocks if block not in free]
        working.append(f"{left.name} had {listed(left.blocks)}; its table is walked from the end: {listed(left.blocks[::-1])}")
        working += [f"still held by others: {listed(kept)}"] if kept else []
        front = [block for block in free if block not in now.before.holds]
        end = [block for block in free if block in now.before.holds]
        working += [f"not findable, to the front: {listed(front)}"] if front else []
        working += [f"findable, to the end: {listed(end)}"] if end else []
    return Question(f"What is the free queue when step {last.step} has ended, front first?", listed(queue, "empty"),
                    tuple(working))


def growth(now: Moment, plan: Plan) -> Question:
    """Who takes a block for its next token."""
    grown = now.grown()
    working = []
    for sequence in now.before.sequences:
        held = f"{sequence.computed} of {len(sequence.blocks) * plan.block_size} slots filled"
        if sequence.name in grown:
            working.append(f"{sequence.name}: {held}: takes {listed(grown[sequence.name])} from the front")
        else:
            working.append(f"{sequence.name}: {held}: " + ("preempted" if sequence.request in now.preempted else "needs none"))
    return Question(f"Which running sequences get a new block in step {now.step}, and which one?",
                    listed(f"{name} gets {listed(blocks)}" for name, blocks in grown.items()), tuple(working))


def empty_slots(now: Moment, plan: Plan) -> Question:
    """What the block tables hold that is empty, by what will become of it."""
    counts = now.after.counts
    working = [f"{s.name}: {s.computed} of {len(s.blocks) * plan.block_size} slots filled, ends with "
               f"{sum(plan.requests[s.request][:2]) - 1} tokens" for s in now.after.sequences]
    working.append(f"in all {counted(counts.token_states, 'slot')} filled, {counts.reserved} empty that will be, "
                   f"{counts.internal} that never will")
    return Question(f"In step {now.step}, how many slots of held blocks are empty and will be filled (reserved), and how many "
                    "are empty and never will (internal fragmentation)?",
                    f"{counts.reserved} reserved, {counts.internal} internal", tuple(working))
