"""Several groups of layers on one pool: by hand, against the naive model on random walks, and the recorded decisions."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_groups import NaiveGroups, used_slots
from small import LONG, trace_of

from experiments.conformance.diff import differences
from experiments.conformance.replay import Replay
from sim.block_calendar import Some
from sim.demand import Demand
from sim.memory.allocator import NO_PREFIX, Allocator, Ask, Lag, Refusal
from sim.memory.grouped import GroupedAllocator, GroupKind

FULL = GroupKind("full")


def sliding(reach):
    return GroupKind("sliding", reach)


def chunked(reach):
    return GroupKind("chunked", reach)


def allocator_of(requests, groups, num_blocks=20, size=4, content=None, caching=True, in_flight=64, max_len=200):
    demand = Demand(trace_of(requests, content=content, span=size), max_len)
    return GroupedAllocator(demand, num_blocks, size, groups, caching, in_flight)


def admit(allocator, request, tokens=None, known=None, whole=True):
    known = known or int(allocator.demand.prompt[request])
    prefix = allocator.find_prefix(request, known)
    handle = allocator.admit(Ask(request, known, prefix, tokens or known, whole))
    return handle, prefix.tokens


def grow(allocator, handle, computed, new=1):
    return allocator.extend(np.array([handle]), np.array([computed]), np.array([new]))


def tables(allocator, handle):
    return [table.tolist() for table in allocator.table(handle)]


# ---------------------------------------------------------------------- by hand
def test_a_block_leaves_the_window_when_the_next_token_sees_nothing_of_it():
    # Window 6: the next token at place c sees c - 5 .. c, so block 0 (tokens 0 to 3) is gone once c - 5 >= 4, at c = 9.
    allocator = allocator_of([(8, 20)], [sliding(6)])
    handle, _ = admit(allocator, 0)
    assert grow(allocator, handle, 8) == 1 and tables(allocator, handle) == [[1, 2, 3]]
    assert grow(allocator, handle, 9) == 1 and tables(allocator, handle) == [[0, 2, 3]]
    assert allocator.pool.free_queue().tolist()[-1] == 1           # it is cached: last in the queue
    assert grow(allocator, handle, 10) == grow(allocator, handle, 11) == 1
    assert grow(allocator, handle, 12) == 1 and tables(allocator, handle) == [[0, 2, 3, 4]]
    assert grow(allocator, handle, 13) == 1 and tables(allocator, handle) == [[0, 0, 3, 4]]


def test_a_chunk_is_left_all_at_once_last_block_first():
    allocator = allocator_of([(9, 20)], [FULL, chunked(8)])
    handle, _ = admit(allocator, 0)
    assert tables(allocator, handle) == [[1, 2, 3], [4, 5, 6]]     # scheduled at once; freed by the next step
    assert grow(allocator, handle, 9) == 1 and tables(allocator, handle) == [[1, 2, 3], [0, 0, 6]]
    assert allocator.pool.free_queue().tolist()[-2:] == [5, 4]


def test_a_window_is_freed_even_if_the_sequence_then_does_not_fit_and_only_once():
    allocator = allocator_of([(8, 20), (8, 20)], [sliding(4), FULL], num_blocks=9)
    first, second = admit(allocator, 0)[0], admit(allocator, 1)[0]
    assert allocator.pool.free == 0
    handles, computed = np.array([first, second]), np.array([8, 8])
    # Each frees one block and needs two: block 1 returns, request 0 does not fit; request 1 is not looked at.
    assert allocator.extend(handles, computed, np.array([1, 1])) == 0
    assert tables(allocator, first) == [[0, 2], [3, 4]] and tables(allocator, second) == [[5, 6], [7, 8]]
    assert grow(allocator, first, 8) == 0 and allocator.pool.free_queue().tolist() == [1]
    allocator.release(second)                                     # sliding group first, each from its end
    assert allocator.pool.free_queue().tolist() == [1, 6, 5, 8, 7]
    assert grow(allocator, first, 8) == 1 and tables(allocator, first) == [[0, 2, 1], [3, 4, 6]]


def test_a_sequence_without_new_tokens_frees_nothing():
    allocator = allocator_of([(12, 20)], [sliding(4)])
    handle, _ = admit(allocator, 0)
    assert grow(allocator, handle, 12, new=0) == 1 and tables(allocator, handle) == [[1, 2, 3]]


def test_uncached_blocks_are_used_again_at_once_group_by_group():
    allocator = allocator_of([(8, 20)], [sliding(4), sliding(4)], caching=False)
    handle, _ = admit(allocator, 0)
    assert tables(allocator, handle) == [[1, 2], [3, 4]]
    assert grow(allocator, handle, 8) == 1                        # frees 1, then 3, in front of it; takes 3, then 1
    assert tables(allocator, handle) == [[0, 2, 3], [0, 4, 1]]


def test_a_hit_needs_only_the_window_at_its_end():
    content = [list(range(10))] * 2
    allocator = allocator_of([(40, 2), (40, 2)], [sliding(9)], content=content, num_blocks=14)
    handle, _ = admit(allocator, 0)
    allocator.release(handle)
    assert allocator.pool.free_queue().tolist() == [11, 12, 13, *range(10, 0, -1)]
    allocator.pool.take(5)                                        # the tail of the chain, blocks 10 and 9, is evicted
    prefix = allocator.find_prefix(1, 40)
    assert prefix.tokens == 32 and prefix.blocks.T.tolist() == [[0, 0, 0, 0, 0, 0, 7, 8]]
    allocator.pool.take(2)                                        # 8 and 7 too
    assert allocator.find_prefix(1, 40).blocks.T.tolist() == [[0, 0, 0, 0, 5, 6]]
    allocator.pool.take(5)                                        # only block 1 is left: less than a window, from the start
    assert allocator.find_prefix(1, 40).blocks.T.tolist() == [[1]]


def test_all_groups_agree_on_the_hit():
    content = [list(range(10))] * 2
    allocator = allocator_of([(40, 2), (40, 2)], [sliding(5), FULL, sliding(9)], content=content, num_blocks=40)
    handle, _ = admit(allocator, 0)
    allocator.release(handle)
    queue = allocator.pool.free_queue().tolist()
    assert queue[9:] == [*range(10, 0, -1), *range(20, 10, -1), *range(30, 20, -1)]
    allocator.pool.take(9 + 3)                                    # window 5 needs one block: 7 places are left to it
    assert allocator.find_prefix(1, 40).blocks.T.tolist() == [
        [0] * 6 + [7], list(range(11, 18)), [0] * 5 + [26, 27]]


def test_a_window_of_one_token_caches_nothing_and_spoils_every_hit():
    content = [[1, 2, 3]] * 2
    alone = allocator_of([(12, 9)] * 2, [sliding(1)], content=content)
    handle, _ = admit(alone, 0)
    assert (alone.pool.hash_of == -1).all() and admit(alone, 1)[1] == 0
    assert grow(alone, handle, 12) == 1 and tables(alone, handle) == [[0, 0, 0, 3]]      # last freed, first used
    both = allocator_of([(12, 9)] * 2, [FULL, sliding(1)], content=content)
    admit(both, 0)
    assert np.flatnonzero(both.pool.hash_of >= 0).tolist() == [1, 2, 3] and admit(both, 1)[1] == 0


def test_a_chunked_group_alone_hits_what_it_never_looks_up():
    allocator = allocator_of([(22, 9)], [chunked(8)])
    handle, hit = admit(allocator, 0)
    assert hit == 16 and tables(allocator, handle) == [[0, 0, 0, 0, 1, 2]]
    assert allocator.counts(22, None).token_states == 6
    assert allocator.stats.hit_tokens == sum(allocator.stats.hit_tokens_by_origin.values()) == 16


def test_of_two_equal_windows_both_must_have_the_block():
    content = [[1, 2, 3]] * 2
    allocator = allocator_of([(12, 9)] * 2, [sliding(5), sliding(5)], content=content, num_blocks=8)
    handle, _ = admit(allocator, 0)
    allocator.release(handle)
    assert allocator.pool.free_queue().tolist() == [7, 3, 2, 1, 6, 5, 4]
    assert allocator.find_prefix(1, 12).blocks.T.tolist() == [[0, 2], [0, 5]]
    allocator.pool.take(3)                                        # block 2 of the first group is gone, its twin 5 is not
    assert allocator.find_prefix(1, 12).blocks.T.tolist() == [[1], [4]]


def test_the_gate_counts_at_most_what_a_window_can_hold():
    # Window 8 and 16 tokens in flight: ceil(23 / 4) + 1 = 7 blocks, however long the prompt; full attention has no bound.
    requests = [(100, 9)]
    ask = Ask(0, 100, NO_PREFIX, 16, whole=True)
    assert allocator_of(requests, [sliding(8)], in_flight=16).need(ask) == 28
    assert allocator_of(requests, [chunked(8)], in_flight=16).need(ask) == 24
    assert allocator_of(requests, [FULL, sliding(8)], in_flight=16).need(ask) == 100 + 28
    assert allocator_of(requests, [sliding(8)], in_flight=16, max_len=10).need(ask) == 16
    assert allocator_of(requests, [sliding(8)], in_flight=16, num_blocks=8).admit(ask) is not None
    assert allocator_of(requests, [sliding(8)], in_flight=16, num_blocks=7).admit(ask) is None


def test_the_bound_comes_before_the_hits():
    content = [list(range(10))] * 2
    allocator = allocator_of([(40, 9), (40, 9)], [sliding(5)], content=content, in_flight=8)
    admit(allocator, 0)
    prefix = allocator.find_prefix(1, 40)
    assert prefix.tokens == 36                                    # 9 blocks, more than the bound of 4: the gate asks for none
    assert allocator.need(Ask(1, 40, prefix, 37, whole=True)) == 4


def test_what_could_never_be_admitted_again_is_impossible():
    allocator = allocator_of([(60, 1), (8, 53), (70, 31)], [sliding(8)], num_blocks=7, in_flight=16)
    assert allocator.impossible().tolist() == [True, True, True]  # 7 blocks, and 6 are there
    assert not allocator_of([(60, 1), (8, 53)], [sliding(8)], num_blocks=8, in_flight=16).impossible().any()
    full = allocator_of([(20, 1), (21, 1)], [FULL, sliding(8)], num_blocks=11, in_flight=16)
    assert full.impossible().tolist() == [False, True]            # 5 + 5 blocks; 6 + 6
    ragged = allocator_of([(70, 1)], [chunked(6)], num_blocks=7, in_flight=16)
    assert ragged.impossible().tolist() == [True]                 # 6 by vLLM's count, 7 where a chunk begins inside a block


def test_the_parts_by_hand():
    # Two groups, window 6: 10 tokens are 3 blocks each; of 13 in the end the sequence fills 2 + 1 more slots of each group.
    allocator = allocator_of([(10, 4)], [FULL, sliding(6)], num_blocks=11)
    handle, _ = admit(allocator, 0)
    assert allocator.counts(10, None) == (20, 4, 0, 0, 0, 0, 16) and allocator.logical() == 24
    assert grow(allocator, handle, 10) == 1                       # 10 - 5 >= 4: block 0 of the window is cached and free
    assert allocator.counts(11, Refusal(4)) == (18, 2, 0, 4, 0, 16, 0) and allocator.logical() == 20
    grow(allocator, handle, 11)
    grow(allocator, handle, 12)
    assert allocator.counts(13, None) == (22, 0, 6, 4, 0, 0, 8)
    allocator.release(handle)
    assert allocator.counts(0, None)[:3] == (0, 0, 0) and allocator.logical() == 0


def test_a_jump_goes_on_to_the_next_block_that_changes_hands():
    allocator = allocator_of([(9, 20)], [sliding(7)])
    handle, _ = admit(allocator, 0)
    one, computed = np.array([handle]), np.array([9])
    assert allocator.decode_limit(Some(one, computed), 50) == 1         # block 0 leaves at 10, in the second step
    assert allocator.decode_limit(Some(one, computed), 0) == 0
    grow(allocator, handle, 9)
    grow(allocator, handle, 10)
    assert allocator.decode_limit(Some(one, np.array([11])), 50) == 1
    allocator.decode(Some(one, np.array([11])), 1)
    assert np.flatnonzero(allocator.pool.hash_of >= 0).tolist() == [1, 2, 3]


def test_bad_arguments_and_what_is_not_offered():
    with pytest.raises(ValueError, match="kind must be one of full, sliding, chunked, not 'mamba'"):
        GroupKind("mamba", 4)
    with pytest.raises(ValueError, match="a sliding group needs a reach, not None"):
        GroupKind("sliding")
    with pytest.raises(ValueError, match="a full group has no reach, not 4"):
        GroupKind("full", 4)
    with pytest.raises(ValueError, match="reach must be at least 1 token, not 0"):
        GroupKind("chunked", 0)
    with pytest.raises(ValueError, match="groups must be at least 1, not 0"):
        allocator_of([(8, 2)], [])
    with pytest.raises(ValueError, match="block_size must be at least 1, not 0"):
        GroupedAllocator(Demand(trace_of([(8, 2)]), 20), 9, 0, [FULL], True, 16)
    allocator: Allocator = allocator_of([(8, 2)], [FULL, sliding(4)])
    handle, _ = admit(allocator, 0)
    with pytest.raises(NotImplementedError, match="not forked"):
        allocator.fork(handle)
    with pytest.raises(NotImplementedError, match="not swapped"):
        allocator.restore_need(8)
    allocator.release(handle)
    with pytest.raises(ValueError, match=f"handle {handle} holds nothing"):
        allocator.release(handle)


def test_more_sequences_than_the_first_rows():
    allocator = allocator_of([(5, 9)] * 200, [FULL, sliding(4)], num_blocks=900)
    handles = [admit(allocator, r)[0] for r in range(200)]
    assert len(set(handles)) == 200 and allocator.logical() == 200 * 4 * 4
    assert allocator.extend(np.array(handles), np.full(200, 5), np.ones(200, np.int64)) == 200
    for handle in handles:
        allocator.release(handle)
    assert allocator.pool.free == 899 and not allocator.pool.ref.any() and not allocator.held.any()


# ---------------------------------------------------------------------- random walks
KINDS = st.one_of(st.just(FULL), st.builds(sliding, st.integers(1, 14)), st.builds(chunked, st.integers(1, 14)))


@settings(max_examples=150 * LONG)
@given(st.lists(KINDS, min_size=1, max_size=3), st.integers(2, 60), st.integers(1, 5), st.booleans(), st.booleans(),
       st.booleans(), st.randoms(use_true_random=False))
def test_random_walk_against_the_naive_model(groups, num_blocks, size, caching, late, split, rng):
    walk = Walk(groups, num_blocks, size, caching, late, split, rng)
    for _ in range(40):
        walk.operate()
        walk.compare()


class Walk:
    """Both models do the same things; ``late``: tokens are processed and known only some steps after they are scheduled."""

    def __init__(self, groups, num_blocks, size, caching, late, split, rng):
        self.rng, self.size, self.late = rng, size, late
        requests = [(rng.randint(1, 30), rng.randint(1, 30)) for _ in range(8)]
        content = [[(100 * k if rng.random() < 0.1 else 0) + k for k in range(p // size)] for p, _ in requests]
        self.demand = Demand(trace_of(requests, content=content, span=size), 100)
        in_flight = rng.randint(1, 40)
        self.fast = GroupedAllocator(self.demand, num_blocks, size, groups, caching, in_flight, split)
        hashes = self.fast.hashes and [self.fast.hashes.span(r, 0, int(end) // size).tolist()
                                       for r, end in enumerate(self.demand.end)]
        self.slow = NaiveGroups(num_blocks, size, [(k.kind, k.reach) for k in groups], caching, in_flight, 100, hashes, split)
        self.running, self.evicted = [], []            # rows of (handle, request)
        self.computed, self.processed, self.known = {}, {}, {}
        self.fast.pool.watch(lambda blocks: self.evicted.extend(blocks.tolist()))

    def operate(self):
        action = self.rng.random()
        if action < 0.3 or not self.running:
            self.admit()
        elif action < 0.6:
            self.grow([self.rng.choice([0, 1, 1, 1, 2, 9]) for _ in self.running])
        elif action < 0.85:
            self.decode(self.rng.choice([1, 1, 1, 2, 3, 4]))
        else:
            self.leave(self.rng.randrange(len(self.running)))

    def admit(self):
        request = self.rng.randrange(len(self.demand))
        if request in {r for _, r in self.running}:
            return
        known = self.rng.randint(int(self.demand.prompt[request]), int(self.demand.end[request]))
        prefix, hits = self.fast.find_prefix(request, known), self.slow.find(request, known)
        assert prefix.blocks.T.tolist() == hits and prefix.tokens == len(hits[0]) * self.size
        tokens = self.rng.randint(prefix.tokens + 1, known)
        ask = Ask(request, known, prefix, tokens, self.rng.random() < 0.7, self.rng.choice([0, 0, 2]))
        fits = self.slow.fits(hits, known, tokens, ask.whole, ask.keep_free)
        handle = self.fast.admit(ask)
        assert (handle is not None) == fits
        if fits:
            self.slow.admit(handle, request, hits, tokens)
            self.running.append((handle, request))
            self.computed[handle] = self.known[handle] = tokens
            self.processed[handle] = prefix.tokens if self.late else tokens

    def columns(self, *by_handle):
        return [np.array([column[h] for h, _ in self.running]) for column in by_handle]

    def grow(self, new):
        """A step; who does not fit leaves with all behind it."""
        handles = np.array([h for h, _ in self.running])
        new = np.minimum(new, [self.demand.end[r] - self.computed[h] for h, r in self.running])
        computed, processed, known = self.columns(self.computed, self.processed, self.known)
        to = np.array([self.rng.randint(int(k), int(n)) for k, n in zip(known, computed + new, strict=True)])
        lag = Lag(processed, known, to) if self.late else None
        to = to if self.late else computed + new
        served = self.fast.extend(handles, computed, new, lag)
        for i, handle in enumerate(handles.tolist()):
            if new[i]:
                fits = self.slow.extend(handle, int(computed[i]), int(new[i]), int(processed[i]), int(to[i]))
                assert fits == (i < served)
                if not fits:
                    break
                self.moved(handle, int(computed[i] + new[i]), int(to[i]))
        while len(self.running) > served:
            self.leave(len(self.running) - 1)

    def moved(self, handle, computed, known):
        self.processed[handle] = self.computed[handle] if self.late else computed
        self.computed[handle], self.known[handle] = computed, known

    def decode(self, steps):
        """One token a step of everybody, by the two quick ways."""
        if self.late or min(int(self.demand.end[r]) - self.computed[h] for h, r in self.running) < steps:
            return
        handles, computed = np.array([h for h, _ in self.running]), self.columns(self.computed)[0]
        before = self.slow.pool.queue.copy()
        if steps == 1:
            if not self.fast.extend_by_one(Some(handles, computed)):
                assert self.fast.pool.free_queue().tolist() == before
                return
        elif self.fast.decode_limit(Some(handles, computed), steps) < steps:
            return
        else:
            assert self.fast.decode(Some(handles, computed), steps) is None
        for _ in range(steps):
            for handle in handles.tolist():
                done = self.computed[handle]
                assert self.slow.extend(handle, done, 1, done, done + 1)
                self.moved(handle, done + 1, done + 1)

    def leave(self, place):
        handle, _ = self.running.pop(place)
        if self.late and self.rng.random() < 0.5:
            stop = self.computed[handle]
            self.fast.settle(np.array([handle]), np.array([self.known[handle]]), np.array([stop]))
            self.slow.cache(handle, stop)
        self.fast.release(handle)
        self.slow.release(handle)

    def compare(self):
        fast, slow = self.fast, self.slow
        assert fast.pool.free_queue().tolist() == slow.pool.queue
        assert fast.pool.ref.tolist() == slow.pool.ref
        assert self.evicted == slow.pool.evicted
        assert {h: tables(fast, h) for h, _ in self.running} == slow.tables
        assert [h is not None for h in slow.pool.hash_of] == (fast.pool.hash_of >= 0).tolist()
        computed = {h: self.computed[h] for h, _ in self.running}
        end = {h: int(self.demand.end[r]) for h, r in self.running}
        refused = self.rng.choice([None, Refusal(1)])
        assert tuple(fast.counts(sum(computed.values()), refused)) == slow.parts(computed, end, refused)
        held = {h: sum(b != 0 for table in slow.tables[h] for b in table) * self.size for h in computed}
        assert {h: int(fast.held[h]) for h in computed} == held and fast.logical() == sum(held.values())
        if fast.stats:
            assert sum(fast.stats.hit_tokens_by_origin.values()) == fast.stats.hit_tokens + fast.stats.resume_hit_tokens


# ---------------------------------------------------------------------- recorded decisions
GOLDEN = Path(__file__).parent / "data" / "golden"
RECORDED = {path.stem: case for path in sorted(GOLDEN.glob("*.json")) if "requests" in (case := json.loads(path.read_text()))
            and case["config"].get("groups", [{"kind": "full"}]) != [{"kind": "full"}]
            and not path.stem.startswith("long_prompt")}           # prompts that a server refuses have no place in the ledger


def test_enough_is_recorded():
    assert len(RECORDED) >= 40


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_decisions_and_where_every_slot_is(name):
    made = Replay(RECORDED[name])
    scheduler, allocator, every = made.scheduler, made.scheduler.allocator, 1 if made.full else 7
    schedule = scheduler.schedule

    def watched():
        step = schedule()
        if made._step % every == 0:
            running = scheduler.running
            handles = running.handle.tolist()
            computed, end = (dict(zip(handles, column.tolist(), strict=True)) for column in (running.computed, running.end))
            counts = allocator.counts(scheduler.computed, scheduler.refused)
            assert tuple(counts[:3]) == used_slots({h: tables(allocator, h) for h in handles}, computed, end,
                                                   allocator.block_size)
            assert sum(counts) == allocator.capacity and min(counts) >= 0
        return step
    scheduler.schedule = watched
    assert differences(made.run(), RECORDED[name]["result"]) == []
