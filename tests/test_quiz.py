"""The answers of the quiz: as worked out by hand, as slow and obvious models have them, and wrong where the simulator is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from naive import NaiveArena
from naive_scheduler import NaiveScheduler
from quiz_plans import RIGHT, answers
from small import LONG
from test_planted_bugs import planted

from experiments.quiz import paging
from experiments.quiz.exercise import listed
from experiments.quiz.levels import LEVELS, load
from experiments.quiz.served import SAMPLES, serve
from sim.scheduler_config import SchedulerConfig

SEEDS = 30 * LONG
SERVED = list(LEVELS)[2:]
PLANTED = {
    "the walk is not reversed": ("sim/memory/block_pool.py", "walk = table[::-1]", "walk = table.copy()", ["paging"]),
    "all freed blocks to the end": ("sim/memory/block_pool.py", "front = bare if self.split_freed else 0", "front = 0",
                                    ["paging"]),
    "cached blocks head first": ("sim/memory/block_pool.py", "self._queue.append(walk[front:])",
                                 "self._queue.append(walk[front:][::-1])", ["eviction"]),
    "a block more than full ones": ("sim/memory/growth.py", "more = max(-(-(computed + new) // size) - have, 0)",
                                    "more = (computed + new) // size + 1 - have", ["rounding"]),
    "blocks of the pool rounded up": ("sim/kv_formula.py", "return max(available_bytes, 0) // block_bytes",
                                      "return -(-available_bytes // block_bytes)", ["rounding"]),
    "buddies not rounded": ("sim/memory/arena.py", "self.free -= 1 << want", "self.free -= size", ["rounding"]),
    "best fit takes the largest": ("sim/memory/arena.py", "i = min(fitting, key=self._sizes.__getitem__, default=None)",
                                   "i = max(fitting, key=self._sizes.__getitem__, default=None)", ["holes"]),
    "the first writes in place, the others copy": ("sim/memory/sharing.py", "copies[order] = ref[ordered] - left_before > 1",
                                                   "copies[order] = left_before > 0", ["copy-on-write"]),
    "the whole prompt is found": ("sim/memory/paged.py", "self._findable(request, tokens - 1)", "self._findable(request, tokens)",
                                  ["sharing"]),
    "the first running is preempted": ("sim/running.py", "return len(self.running) - 1", "return 0", ["preemption"]),
}


# ---------------------------------------------------------------------- by hand
@pytest.mark.parametrize("level", LEVELS)
def test_answers_are_those_worked_out_by_hand(level):
    assert answers(level) == [right for _, right in RIGHT[level]]


def answers_of(folder, levels):
    """What the quiz of a copy answers to the plans."""
    path = os.pathsep.join([str(folder), str(Path(__file__).parent)])
    done = subprocess.run([sys.executable, "-m", "quiz_plans", *levels], cwd=folder, capture_output=True, text=True, timeout=120,
                          check=True, env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})
    return json.loads(done.stdout)


def test_a_copy_without_a_bug_answers_right(tmp_path):
    assert answers_of(planted(tmp_path), LEVELS) == {level: [right for _, right in RIGHT[level]] for level in LEVELS}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_wrong_simulator_gives_wrong_answers(tmp_path, bug):
    *change, levels = PLANTED[bug]
    said = answers_of(planted(tmp_path, change), levels)
    for level in levels:
        assert said[level] != [right for _, right in RIGHT[level]], level


def test_a_simulator_that_gives_a_block_too_many_is_stopped_by_its_own_ledger(tmp_path):
    change = ("sim/memory/paged.py", "self.pool.take(-(-tokens // self.block_size) - known)",
              "self.pool.take(tokens // self.block_size + 1 - known)")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        answers_of(planted(tmp_path, change), ["sharing"])
    assert "BrokenInvariant: the pool has " in failed.value.stderr


# ---------------------------------------------------------------------- the scheduler and the pool, slowly
class Slow(NamedTuple):
    """A step of the naive scheduler: (request, name, block table) of the running sequences, free queue, who came and went."""

    step: int
    before: list
    queue_before: list
    after: list
    queue: list
    admitted: dict
    preempted: list
    waiting: list
    evicted: list
    refs: list


def slowly(plan):
    """The plan by `NaiveScheduler`, one block at a time."""
    several = plan.samples or (1,) * len(plan.requests)
    contents = plan.content or ((),) * len(plan.requests)

    def content(request, place):
        return contents[request][place] if place < len(contents[request]) else ("own", request, place)

    slow = NaiveScheduler([(p, o, n, False) for (p, o, _), n in zip(plan.requests, several, strict=True)], content,
                          plan.num_blocks, plan.block_size, plan.content is not None, True, SchedulerConfig())
    pool, coming, step, made = slow.memory.pool, deque(enumerate(plan.requests)), 0, []

    def running():
        seen, rows = {}, []
        for s in slow.running:
            member = seen[s.request] = seen.get(s.request, -1) + 1
            letter = SAMPLES[member] if several[s.request] > 1 else ""
            rows.append((s.request, f"r{s.request + 1}{letter}", tuple(slow.memory.live[s.name].table)))
        return rows

    while coming or slow.waiting or slow.running:
        step += 1
        while coming and coming[0][1][2] <= step:
            slow.add(coming.popleft()[0])
        if not slow.waiting and not slow.running:
            continue
        pool.evicted.clear()
        before, queue_before = running(), list(pool.queue)
        slow.schedule()
        made.append(Slow(step, before, queue_before, running(), list(pool.queue),
                         {request: (hit, new) for request, hit, new, _ in slow.admitted}, list(slow.preempted),
                         list(slow.waiting), list(pool.evicted), list(pool.ref)))
        slow.update()
    return made


def rows_of(pool):
    return [(s.request, s.name, s.blocks) for s in pool.sequences]


def drawn(level, seeds=SEEDS):
    """Plans as the command draws them, and what they ask."""
    module, number = load(level), list(LEVELS).index(level) + 1
    for seed in range(seeds):
        plan = module.draw(np.random.default_rng([seed, number, 1]))
        yield plan, [question.answer for question in module.work(plan).questions], module.work(plan)


@pytest.mark.parametrize("level", SERVED)
def test_every_step_is_as_the_slow_models_have_it(level):
    for plan, _, _ in drawn(level):
        for fast, slow in zip(serve(plan), slowly(plan), strict=True):
            assert (fast.step, fast.admitted, list(fast.preempted)) == (slow.step, slow.admitted, slow.preempted), plan
            assert (rows_of(fast.before), list(fast.before.queue)) == (slow.before, slow.queue_before), plan
            assert (rows_of(fast.after), list(fast.after.queue)) == (slow.after, slow.queue), plan
            assert (list(fast.waiting), list(fast.evicted), list(fast.after.ref)) == (slow.waiting, slow.evicted, slow.refs), plan


def step_of(plan, request):
    """The slow step that admits a request first, and the one before it."""
    steps = slowly(plan)
    place = next(i for i, step in enumerate(steps) if request in step.admitted)
    return steps[place - 1], steps[place]


def table(rows, name):
    return next(blocks for _, other, blocks in rows if other == name)


def grown(step):
    had = {name: len(blocks) for _, name, blocks in step.before}
    return listed(f"{name} gets {listed(blocks[had[name]:])}" for _, name, blocks in step.after
                  if name in had and len(blocks) > had[name])


def test_paging_answers_as_the_slow_models():
    for plan, said, _ in drawn("paging"):
        _, now = step_of(plan, 3)
        assert said[:3] == [listed(now.queue_before), grown(now), listed(table(now.after, "r4"))]
        assert said[3] == ("yes" if 4 in now.admitted else "no")
        ends = [(p + o - 1) for p, o, _ in plan.requests]
        filled = {}
        for step in slowly(plan)[: now.step]:
            for request, _, _ in step.after:
                filled[request] = step.admitted[request][1] if request in step.admitted else filled[request] + 1
        held = {r: len(blocks) * plan.block_size for r, _, blocks in now.after}
        reserved = sum(max(0, min(held[r], ends[r]) - filled[r]) for r in held)
        assert said[4] == f"{reserved} reserved, {sum(held[r] - filled[r] for r in held) - reserved} internal"


def test_sharing_answers_as_the_slow_models():
    for plan, said, _ in drawn("sharing"):
        _, now = step_of(plan, 2)
        hit, blocks = now.admitted[2][0], table(now.after, "r3")
        found, held = blocks[: hit // plan.block_size], [b for _, _, row in now.before for b in row]
        assert said[0] == f"{hit} tokens, in {listed(found)}" and said[2] == listed(blocks)
        new = len(blocks) - len(found)
        assert said[1] == f"{sum(b not in held for b in found) + new} leave, {new} of them new"
        assert said[3] == listed(f"block {b}: {n}" for b, n in enumerate(now.refs) if n > 1)
        saved = sum(len(row) for _, _, row in now.after) - len({b for _, _, row in now.after for b in row})
        assert said[4] == f"{saved * plan.block_size} slots"


def test_copy_on_write_answers_as_the_slow_models():
    for plan, said, _ in drawn("copy-on-write"):
        _, now, *_ = slowly(plan)
        before = [row for _, _, row in now.before]
        assert said[0] == listed(f"block {b}: {n}" for b in range(plan.num_blocks) if (n := sum(b in row for row in before)) > 1)
        copies = [(name, old, new) for (_, name, had), (_, _, has) in zip(now.before, now.after, strict=True)
                  for old, new in zip(had, has, strict=False) if old != new]
        assert said[1] == listed(f"{name} copies {old} into {new}" for name, old, new in copies)
        assert said[2] == "; ".join(f"{name}: {listed(row)}" for r, name, row in now.after if plan.samples[r] > 1)
        held = {b for _, _, row in now.after for b in row}
        assert said[3] == f"{len(held)} held, {sum(len(row) for _, _, row in now.after)} without sharing"


def test_eviction_answers_as_the_slow_models():
    for plan, said, _ in drawn("eviction"):
        _, now = step_of(plan, 2)
        hit = now.admitted[3][0]
        assert said[:3] == [listed(now.queue_before), listed(table(now.after, "r3")), listed(now.evicted)]
        found = table(now.after, "r4")[: hit // plan.block_size]
        assert said[3] == f"{hit} tokens, in {listed(found)}"
        assert said[4] == listed(now.queue)            # nothing but cached blocks is left where some were evicted


def test_preemption_answers_as_the_slow_models():
    for plan, said, _ in drawn("preemption"):
        steps = slowly(plan)
        now = next(step for step in steps if step.preempted)
        victim = now.preempted[0]
        back = next(step for step in steps if step.step > now.step and victim in step.admitted)
        found, new = back.admitted[victim]
        assert said == [f"r{victim + 1}", grown(now), listed(now.queue, "empty"),
                        f"{listed(f'r{r + 1}' for r in now.waiting)} wait; admitted: nobody", f"step {back.step}",
                        f"{found + new} tokens: {found} found, {new} computed"]


# ---------------------------------------------------------------------- arenas and rounding, slot by slot
def test_holes_are_as_the_slow_arena_has_them():
    for plan, said, _ in drawn("holes"):
        sizes, refusals = [p + o - 1 for p, o in plan.requests], []
        for kind, place in (("first-fit", 1), ("best-fit", 2)):
            arena = NaiveArena(plan.capacity, kind)
            starts = [arena.place(size) for size in sizes[:-3]]
            for row in plan.ended:
                arena.release(starts[row], sizes[row])
            assert said[0] == f"{arena.free()} slots free, the largest hole has {arena.largest_hole()}"
            later = [arena.place(size) for size in sizes[-3:]]
            assert said[place] == listed(f"r{len(sizes) - 2 + i} {'does not fit' if at is None else f'at {at}'}"
                                         for i, at in enumerate(later))
            refusals += [arena.free()] if later[-1] is None else []
        assert [said[3]] == [f"{free} slots" for free in refusals]


def test_rounding_is_as_counted_slot_by_slot():
    for plan, said, _ in drawn("rounding"):
        model, size, end = plan.model, plan.block_size, plan.prompt + plan.output - 1
        token = sum(2 * model.kv_heads * model.head_dim * {"bfloat16": 2, "fp8": 1}[model.dtype] for _ in range(model.layers))
        blocks = int(Fraction(plan.available_gib * 2**30, token * size))
        a_request = sum(slot % size == 0 for slot in range(plan.max_model_len))
        held = [slot for slot in range(plan.max_model_len + size) if slot // size <= (plan.computed - 1) // size]
        empty = [slot for slot in held if slot >= plan.computed]
        asked = plan.prompt + next(1 << i for i in range(20) if 1 << i >= plan.output)
        given = next(1 << i for i in range(20) if 1 << i >= asked)
        reserved = sum(slot < end for slot in empty)
        assert said == [f"{token:,} bytes", f"{blocks:,} blocks", f"{blocks / a_request:.2f}x", f"{len(held) // size} blocks",
                        f"{len(empty)} empty: {reserved} reserved, {len(empty) - reserved} internal",
                        f"{plan.max_model_len - end:,} slots", f"{asked} asked for, {given} given"]


# ---------------------------------------------------------------------- draws
def test_working_comes_with_every_answer_and_names_are_those_of_the_table():
    for level in LEVELS:
        for plan, _, exercise in drawn(level, 5):
            assert all(question.working and question.answer for question in exercise.questions), plan
            assert all(len(row) == len(exercise.requests[0]) for row in exercise.requests)
            assert len({len(line) for line in exercise.picture[:3]}) <= 2 or level == "holes"


def test_both_placements_win_and_both_answers_come():
    """No question can be answered without looking: over a few seeds every outcome comes."""
    said = [answer[1:3] for _, answer, _ in drawn("holes", 12)]
    assert {"does not fit" in first for first, _ in said} == {True, False}
    assert {answer[3] for _, answer, _ in drawn("paging", 12)} == {"yes", "no"}
    assert {answer[5].split(": ")[1].startswith("0 ") for _, answer, _ in drawn("preemption", 12)} == {True, False}
    assert {"; r2b: " in answer[2] and "r2a copies" in answer[1] for _, answer, _ in drawn("copy-on-write", 12)} == {True, False}


def test_a_picture_of_paging_shows_everybody_who_has_come_and_not_ended():
    for seed in range(60):
        plan = paging.draw(np.random.default_rng(seed))
        last, _ = paging._steps(plan)
        came = {row for row, (_, _, step) in enumerate(plan.requests) if step <= last.step}
        ended = {row for row in came if plan.requests[row][1] + plan.requests[row][2] - 1 < last.step}
        assert {sequence.request for sequence in last.after.sequences} == came - ended, seed
