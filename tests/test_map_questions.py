"""docs/map-questions.md: the answers that a reader found on the map are those of the engine, computed without the map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from viewed import SMALL, SMALL_CONFIG

from sim.engine import Engine
from sim.memory.prefix_index import NO_HASH
from sim.run import Observer

PAGE = " ".join((Path(__file__).resolve().parents[1] / "docs" / "map-questions.md").read_text(encoding="utf-8").split())
ALLOCATORS = ("contiguous-max", "contiguous-oracle", "paged", "paged-prefix")


class Notes(Observer):
    """What happened when: refusals, preemptions, evictions, and the pool as it is behind each step."""

    def __init__(self):
        self.refused, self.preempted, self.evicted, self.states = [], [], [], {}

    def started(self, allocator, scheduler):
        self.allocator, self.scheduler, self.gone = allocator, scheduler, []
        if hasattr(allocator, "pool"):
            allocator.pool.watch(lambda blocks: self.gone.extend(blocks.tolist()))

    def tables(self):
        running = self.scheduler.running
        rows = zip(running.request.tolist(), running.handle.tolist(), running.computed.tolist(), strict=True)
        return {request: (self.allocator.table(handle).tolist(), computed) for request, handle, computed in rows} \
            if hasattr(self.allocator, "pool") else dict.fromkeys(running.request.tolist())

    def updated(self, now_us, finished):
        self.keep(now_us)

    def scheduled(self, now_us, step):
        before = self.states[max(self.states)] if self.states else {"tables": {}}
        if self.scheduler.refused is not None:
            self.refused.append((now_us, self.scheduler.waiting.head(), self.scheduler.refused.need))
        for request, computed in step.preempted:
            self.preempted.append((now_us, request, computed, before["tables"][request][0]))
        if self.gone:
            self.evicted.append((now_us, list(self.gone), [request for request, *_ in step.admitted]))
            self.gone.clear()
        self.keep(now_us)

    def keep(self, now_us):
        state = {"tables": self.tables(), "counts": self.allocator.counts(self.scheduler.computed, self.scheduler.refused)}
        if hasattr(self.allocator, "pool"):
            pool = self.allocator.pool
            state |= {"ref": pool.ref.copy(), "queue": pool.free_queue().tolist(), "hashed": pool.hash_of.copy() != NO_HASH}
        self.states[now_us] = state

    def at(self, time_us):
        return self.states[max(time for time in self.states if time <= time_us)]


@pytest.fixture(scope="module")
def runs():
    made = {}
    for name in ALLOCATORS:
        made[name] = Notes()
        Engine(SMALL, SMALL_CONFIG, name, observers=[made[name]]).run()
    return made


def said(*pieces):
    return all(piece in PAGE for piece in pieces)


def test_the_first_refusal(runs):
    now, request, need = runs["contiguous-max"].refused[0]
    held = len(runs["contiguous-max"].at(now)["tables"])
    assert said(f"r{request} at {now / 1e6:.3f} s: it needs {need} slots in a row", f"{held} reservations of {need}")
    assert held * need == 1536


def test_internal_fragmentation(runs):
    internal = [runs[name].at(1_000_000)["counts"].internal for name in ALLOCATORS]
    assert internal[1:] == [0, 0, 0] and said(f"{internal[0]} under `contiguous-max`, 0 under the others")


def test_what_is_shared(runs):
    ref = runs["paged-prefix"].at(1_000_000)["ref"]
    shared = {count: np.flatnonzero(ref == count).tolist() for count in set(ref[ref > 1].tolist())}
    told = {count: ", ".join(map(str, blocks)) for count, blocks in shared.items()}
    assert len(shared) == 2 and all(said(f"{blocks} with ref count {count}") for count, blocks in told.items())


def test_the_first_preemption(runs):
    now, request, computed, blocks = runs["paged"].preempted[0]
    back = ", ".join(map(str, blocks[::-1]))
    assert said(f"r{request} at {now / 1e6:.3f} s with {computed} tokens: {back} are given back in this order")
    taken = {block: other for other, (table, _) in runs["paged"].at(now)["tables"].items() for block in table if block in blocks}
    assert said(*(f"r{other} takes {block}" for block, other in taken.items())) and len(taken) == 2


def test_evictions(runs):
    state = runs["paged-prefix"].at(1_000_000)
    place = next(i for i, block in enumerate(state["queue"]) if state["hashed"][block])
    now, blocks, admitted = runs["paged-prefix"].evicted[0]
    assert blocks[0] == state["queue"][place]
    assert said(f"block {blocks[0]}, when {place} others have been handed out",
                f"with {blocks[1]}, for r{admitted[-1]} at {now / 1e6:.3f} s") and len(blocks) == 2


def test_how_many_run(runs):
    states = [runs[name].at(1_000_000) for name in ALLOCATORS]
    running = [len(state["tables"]) for state in states]
    held = [int((state["ref"] > 0).sum()) for state in states[2:]]
    assert said(f"{running[0]}, {running[1]}, {running[2]} and {running[3]}: 6 is how many", f"hold {held[0]} blocks, "
                f"{held[0] / running[2]:.1f} each", f"`paged-prefix` {held[1]}")


def test_a_block_table(runs):
    table, computed = runs["paged"].at(1_100_000)["tables"][0]
    assert said(f"{', '.join(map(str, table))}: {computed} tokens")
