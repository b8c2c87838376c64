"""Cross-checks can fail: a bug is planted for every one of them, it says FAILED, and the exit status is 1."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli_run import mooncake, run

import sim.memory.arena
import sim.memory.contiguous
from experiments.crosscheck import Check
from sim.catalog import ALLOCATORS
from sim.ledger import Ledger
from sim.memory.contiguous import ContiguousAllocator
from sim.memory.paged import PagedAllocator
from sim.memory.reserving import ReservingAllocator
from sim.memory.vattention import PageAllocator
from sim.request_log import RequestLog

# A pool of 32 blocks of 4 = 128 slots and a longest request of 32: four of them fit, in either way of counting.
POOL = ("--num-gpu-blocks-override", 33, "--block-size", 4, "--max-model-len", 32, "--step-time", "constant:10ms",
        "--placement", "first-fit")
MODEL = {"vattention": ("--model", "Llama-2-13b", "--page-size", "64KiB")}       # 10,240 bytes a token: 21 pages of 6, 2 left
RUNNING = "running (sequence-us): ledger = log"
OVERLAP = "reservations overlapping = 0"
CEILING = "running <= slots // max_model_len"
FIRST_FIT = "probe, first fit: slots // max_model_len"
BYTES = "slots in tables at the fullest = blocks x block slots"
REFS = "wrong ref counts = 0"
INTERNAL = "internal over (block_size - 1) each = 0"
STATES = "token states (slot-us): ledger = log"
FULL = "full-length sequences <= blocks // 8"
EQUAL = "probe, equal prompts: blocks // 7"
NO_EVICTION = "preemptions = 0"
CONTIGUOUS = {RUNNING, OVERLAP}
PAGED = {RUNNING, BYTES, REFS, INTERNAL, EQUAL}
ALL = {"contiguous-max": CONTIGUOUS | {CEILING, FIRST_FIT}, "contiguous-pow2": CONTIGUOUS, "contiguous-oracle": CONTIGUOUS,
       "paged": PAGED | {STATES, FULL}, "paged-prefix": PAGED,
       "paged-reserve": {RUNNING, BYTES, REFS, NO_EVICTION, STATES, FULL, "probe, equal prompts: blocks // 8"},
       "token": {RUNNING, BYTES, REFS, INTERNAL, STATES, "full-length sequences <= blocks // 31",
                 "probe, equal prompts: blocks // 31"},
       "vattention": {RUNNING, BYTES.replace("slots", "bytes"), REFS, INTERNAL, STATES, "full-length sequences <= blocks // 6",
                      "probe, equal prompts: blocks // 5"}}


def named(name, *beginnings):
    """The checks of an allocator that begin so."""
    return {check for check in ALL[name] if check.startswith(beginnings)}


@pytest.fixture
def trace(tmp_path):
    """Bursts of six short requests and six equal ones that fill 31 slots."""
    short = [(5 + i % 9, 3 + i % 7, [100 + i]) for i in range(60)]
    return mooncake(tmp_path, [(300 * (i // 12), *(short[i] if i % 12 < 6 else (31, 1, [7]))) for i in range(60)])


def failed(capsys, trace, name):
    """The checks of one allocator that say FAILED; status, report and messages must agree with them."""
    said = run(capsys, "compare", trace, *POOL, *MODEL.get(name, ()), "--allocator", name, "-q")
    lines = [line for line in said.out.splitlines() if line.startswith(f"  {name} ") and line.endswith("FAILED")]
    names = {check for check in ALL[name] if any(f"  {check}  " in line for line in lines)}
    assert len(names) == len(lines)
    assert said.status == (1 if names else 0)
    complaints = said.err.splitlines()
    assert len(complaints) == len(names)
    for check in names:
        assert any(line.startswith(f"pagedsim compare: cross-check failed: {name}: {check}: ") for line in complaints)
    assert f"{len(names)} of {len(ALL[name])} cross-checks FAILED" in said.out or not names
    return names


# ---------------------------------------------------------------------- healthy
@pytest.mark.parametrize("name", ALLOCATORS)
def test_without_a_bug_nothing_fails(capsys, trace, name):
    assert failed(capsys, trace, name) == set()
    said = run(capsys, "compare", trace, *POOL, *MODEL.get(name, ()), "--allocator", name, "--json", "-", "-q")
    assert {check["name"] for check in json.loads(said.out)["crosscheck"]} == ALL[name]


def test_the_probe_and_the_pool_agree_by_hand(capsys, trace):
    """32 blocks: 4 sequences of 7 blocks, 4 of 8; 128 slots: 4 reservations of 32."""
    said = run(capsys, "compare", trace, *POOL, "--json", "-", "-q")
    numbers = {(c["scenario"], c["name"]): (c["simulated"], c["analytic"]) for c in json.loads(said.out)["crosscheck"]}
    assert numbers["paged", EQUAL] == numbers["paged-prefix", EQUAL] == (4, 4)
    assert numbers["contiguous-max", FIRST_FIT] == (4, 4)
    assert numbers["contiguous-max", CEILING] == (4, 4)
    assert numbers["paged", FULL][1] == 4


def test_equal_or_at_most():
    assert Check("a", "b", 3, 3, True).ok
    assert not Check("a", "b", 2, 3, True).ok
    assert Check("a", "b", 2, 3, False).ok
    assert not Check("a", "b", 4, 3, False).ok


# ---------------------------------------------------------------------- the bugs
def ledger_forgets_time(patch):
    """The first microsecond of every stretch is not booked."""
    book = Ledger.book
    patch.setattr(Ledger, "book", lambda self, state, duration: book(self, state, max(0, duration - 1)))


def log_forgets_time(patch):
    """A request is said to have left a microsecond early."""
    leave = RequestLog._leave
    patch.setattr(RequestLog, "_leave", lambda self, request, now, computed: leave(self, request, now - 1, computed))


def log_forgets_a_token(patch):
    finish = RequestLog.finish
    patch.setattr(RequestLog, "finish", lambda self, request, now, computed: finish(self, request, now, computed - 1))


class OverlappingArena(sim.memory.arena.FitArena):
    """Counts right and hands out the same addresses again."""

    def __init__(self, capacity):
        super().__init__(capacity, best=False)
        self._given = {}

    def place(self, size):
        start = super().place(size)
        if start is not None:
            self._given.setdefault(size, []).append(start)
        return None if start is None else 0

    def release(self, start, size):
        super().release(self._given[size].pop(), size)


def arena_overlaps(patch):
    patch.setitem(sim.memory.arena.PLACEMENTS, "first-fit", OverlappingArena)


def arena_leaves_the_pool(patch):
    place, release = sim.memory.arena.FitArena.place, sim.memory.arena.FitArena.release
    patch.setattr(sim.memory.arena.FitArena, "place", lambda self, size: None if (at := place(self, size)) is None else at + 1)
    patch.setattr(sim.memory.arena.FitArena, "release", lambda self, start, size: release(self, start - 1, size))


def reserving(policy):
    """`contiguous-max` with another reservation."""
    def plant(patch):
        patch.setitem(ALLOCATORS, "contiguous-max", lambda demand, config: ContiguousAllocator(
            demand, sim.memory.arena.PLACEMENTS[config.placement](config.usable_slots), policy))
    return plant


def allocator_leaks_a_block(patch):
    """Whoever leaves takes a block along."""
    release = PagedAllocator.release

    def leak(self, handle, returns=False):
        release(self, handle, returns)
        if self.pool.free > 8:
            self.pool.take(1)

    patch.setattr(PagedAllocator, "release", leak)


def pool_counts_a_holder_twice(patch):
    """A found block is referenced twice by one table, and let go twice."""
    admit, release = PagedAllocator.admit, PagedAllocator.release
    found = {}

    def greedy(self, ask):
        handle = admit(self, ask)
        if handle is not None and len(ask.prefix.blocks):
            self.pool.touch(ask.prefix.blocks)
            found[handle] = ask.prefix.blocks
        return handle

    def generous(self, handle, returns=False):
        if handle in found:
            self.pool.release(found.pop(handle))
        release(self, handle, returns)

    patch.setattr(PagedAllocator, "admit", greedy)
    patch.setattr(PagedAllocator, "release", generous)


def larger_blocks(name):
    """The same slots in blocks of twice the size."""
    def plant(patch):
        patch.setitem(ALLOCATORS, name, lambda demand, config: PagedAllocator(
            demand, config.usable_slots // (2 * config.block_size) + 1, 2 * config.block_size, caching=name == "paged-prefix"))
    return plant


def paged_shares(patch):
    """`paged` is said to share nothing."""
    patch.setitem(ALLOCATORS, "paged", ALLOCATORS["paged-prefix"])


def losing_blocks(name):
    def plant(patch):
        patch.setitem(ALLOCATORS, name, lambda demand, config: PagedAllocator(
            demand, config.num_blocks - 5, config.block_size, caching=name == "paged-prefix"))
    return plant


def another(name, make):
    """An allocator by this name that is not what it says."""
    def plant(patch):
        patch.setitem(ALLOCATORS, name, make)
    return plant


class Forgetful(ReservingAllocator):
    """Does not know the last of several sequences any more."""

    def extend_by_one(self, sequences):
        return len(sequences) == 1

    def extend(self, handles, computed, new, lag=None):
        return len(handles) - (len(handles) > 1)

    def decode_limit(self, sequences, most):
        return 1


MORE_BUGS = [
    (another("paged-reserve", lambda demand, config: Forgetful(demand, config.num_blocks, config.block_size)),
     "paged-reserve", {NO_EVICTION}),
    (another("paged-reserve", lambda demand, config: ReservingAllocator(demand, 4 * config.num_blocks, config.block_size)),
     "paged-reserve", named("paged-reserve", "full", "probe")),
    (another("token", lambda demand, config: PagedAllocator(demand, config.usable_slots // 2 + 1, 2, caching=False)),
     "token", {INTERNAL}),
    (another("token", lambda demand, config: PagedAllocator(demand, config.usable_slots + 1, 1, caching=True)),
     "token", {STATES, *named("token", "full")}),
    (another("token", lambda demand, config: PagedAllocator(demand, config.usable_slots - 9, 1, caching=False)),
     "token", named("token", "probe")),
    (another("vattention", lambda demand, config: PageAllocator(demand, config.usable_slots, 12)),
     "vattention", {INTERNAL, *named("vattention", "probe")}),
    (another("vattention", lambda demand, config: PagedAllocator(demand, 22, 6, caching=True)),
     "vattention", {STATES, *named("vattention", "full")}),
    *((allocator_leaks_a_block, name, {REFS, STATES, *named(name, "slots", "bytes")})
      for name in ("paged-reserve", "token", "vattention")),
]
BUGS = [
    *MORE_BUGS,
    *((ledger_forgets_time, name, {RUNNING, *({STATES} & ALL[name])}) for name in ALLOCATORS),
    *((log_forgets_time, name, {RUNNING, *({STATES} & ALL[name])}) for name in ALLOCATORS),
    (log_forgets_a_token, "paged", {STATES}),
    *((arena_overlaps, name, {OVERLAP}) for name in ALLOCATORS if name.startswith("contiguous")),
    (arena_leaves_the_pool, "contiguous-max", {OVERLAP}),
    (reserving(lambda demand: np.maximum(demand.end, 16)), "contiguous-max", {CEILING}),
    (reserving(lambda demand: np.full(len(demand), demand.max_model_len + 1, np.int64)), "contiguous-max", {FIRST_FIT}),
    (allocator_leaks_a_block, "paged", {BYTES, REFS, STATES}),
    (allocator_leaks_a_block, "paged-prefix", {BYTES, REFS}),
    (pool_counts_a_holder_twice, "paged-prefix", {REFS}),
    (larger_blocks("paged"), "paged", {INTERNAL}),
    (larger_blocks("paged-prefix"), "paged-prefix", {INTERNAL}),
    (paged_shares, "paged", {FULL, STATES}),
    (losing_blocks("paged"), "paged", {EQUAL}),
    (losing_blocks("paged-prefix"), "paged-prefix", {EQUAL}),
]


@pytest.mark.parametrize(("plant", "name", "expected"), BUGS, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_bug_is_found(capsys, trace, monkeypatch, plant, name, expected):
    monkeypatch.setattr("experiments.crosscheck.TableAudit.EVERY", 4)
    plant(monkeypatch)
    assert failed(capsys, trace, name) == expected


def test_every_check_has_its_bug():
    for name, checks in ALL.items():
        assert set().union(*(expected for _, scenario, expected in BUGS if scenario == name)) == checks
