"""Random walks of the contiguous allocators against the naive arena: address for address the same after every operation.

Some ten thousand operations by default; PAGEDSIM_LONG=100 makes a million of them, drawn anew in every run.
"""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from naive import NaiveArena
from small import LONG

from sim.block_calendar import Some
from sim.demand import Demand
from sim.memory.allocator import NO_PREFIX, Ask, Refusal
from sim.memory.arena import PLACEMENTS
from sim.memory.contiguous import ContiguousAllocator, reserve_max, reserve_oracle, reserve_pow2
from workloads.request import Trace

POLICIES = {"max": reserve_max, "pow2": reserve_pow2, "oracle": reserve_oracle}
small = st.integers(0, 7)


def reservation(policy, prompt, output, max_model_len):
    """What is reserved, one request at a time."""
    if policy == "max":
        return max_model_len
    power = 1
    while power < output:
        power *= 2
    return min(prompt + (power if policy == "pow2" else output - 1), max_model_len)


@st.composite
def settings_of_a_walk(draw):
    """Placement, policy, pool and requests; the longest request takes a half to a tenth of the pool, or more than there is."""
    lengths = draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=6))
    policy = draw(st.sampled_from(["oracle", "pow2", "max"]))
    max_model_len = draw(st.integers(10, 20))
    return draw(st.sampled_from(sorted(PLACEMENTS))), policy, draw(st.integers(4, 110)), max_model_len, lengths


class ArenaWalk(RuleBasedStateMachine):
    @initialize(made=settings_of_a_walk())
    def start(self, made):
        self.kind, policy, capacity, max_model_len, lengths = made
        prompt, output = (np.array(column, np.int64) for column in zip(*lengths, strict=True))
        demand = Demand(Trace("walk", prompt, output), max_model_len)
        self.end = demand.end.tolist()
        self.sizes = [reservation(policy, p, o, max_model_len) for p, o in
                      zip(prompt.tolist(), demand.output.tolist(), strict=True)]
        self.real = ContiguousAllocator(demand, PLACEMENTS[self.kind](capacity), POLICIES[policy])
        assert self.real.reservation.tolist() == self.sizes
        self.naive = NaiveArena(capacity, self.kind)
        self.capacity, self.forks = capacity, 0
        self.live = {}                                 # handle -> [request, start, computed tokens], in running order

    def placed(self, request, handle, computed):
        """Both models must have found the same place, or none."""
        start = self.naive.place(self.sizes[request])
        assert (handle is None) == (start is None)
        if handle is not None:
            assert handle not in self.live
            assert self.real.placed(handle) == (start, self.sizes[request])
            self.live[handle] = [request, start, computed]
        return handle is not None

    # ------------------------------------------------------------------ operations
    @rule(request=small, tokens=st.integers(1, 9))
    def admit(self, request, tokens):
        request %= len(self.sizes)
        ask = Ask(request, self.end[request], NO_PREFIX, min(tokens, self.end[request]), True)
        assert self.real.need(ask) == self.sizes[request]
        fits = self.real.fits(ask)
        assert self.placed(request, self.real.admit(ask), ask.tokens) == fits

    @rule(request=small, tokens=st.integers(1, 9))
    def restore(self, request, tokens):
        request %= len(self.sizes)
        tokens = min(tokens, self.end[request])
        assert self.real.restore_need(tokens) == tokens <= self.real.restore_need(tokens, request) == self.sizes[request]
        self.placed(request, self.real.restore(request, tokens), tokens)

    @precondition(lambda self: self.live)
    @rule(which=small)
    def fork(self, which):
        handle = list(self.live)[which % len(self.live)]
        request, _, computed = self.live[handle]
        self.forks += self.placed(request, self.real.fork(handle), computed)

    @precondition(lambda self: self.live)
    @rule(tokens=st.integers(1, 4))
    def grow(self, tokens):
        handles = np.array(list(self.live), np.int64)
        computed = np.array([c for _, _, c in self.live.values()], np.int64)
        new = np.array([min(tokens, self.end[r] - c) for r, _, c in self.live.values()], np.int64)
        assert self.real.extend(handles, computed, new) == len(handles)
        assert self.real.extend_by_one(Some(handles, computed)) and self.real.decode_limit(Some(handles, computed), 9) == 9
        assert self.real.decode(Some(handles, computed), 2) is None
        for sequence, n in zip(self.live.values(), new.tolist(), strict=True):
            sequence[2] += n

    def let_go(self, handle):
        request, start, _ = self.live.pop(handle)
        self.real.release(handle)
        self.naive.release(start, self.sizes[request])

    @precondition(lambda self: self.live)
    @rule(which=small)
    def finish(self, which):
        self.let_go(list(self.live)[which % len(self.live)])

    @precondition(lambda self: self.live)
    @rule(many=st.integers(1, 3))
    def preempt(self, many):
        for handle in list(self.live)[-many:][::-1]:
            self.let_go(handle)

    # ------------------------------------------------------------------ after each of them
    @invariant()
    def no_two_reservations_overlap(self):
        arena, stop = self.real.arena, 0
        for handle in sorted(self.live, key=lambda h: self.live[h][1]):
            start, size = self.real.placed(handle)
            taken = arena.rounded(size)
            assert stop <= start and start + taken <= self.capacity
            if self.kind == "buddy":
                assert taken.bit_count() == 1 and start % taken == 0 and size <= taken < 2 * size
            else:
                assert taken == size
            stop = start + taken

    @invariant()
    def free_space_is_merged(self):
        arena = self.real.arena
        if self.kind == "buddy":
            holes = sorted((start, 1 << order) for order, starts in enumerate(arena._free) for start in starts)
            assert holes == self.naive.free_buddies()
        else:
            assert list(zip(arena._starts, arena._sizes, strict=True)) == self.naive.holes()
        assert arena.free == self.naive.free() and self.real.largest_hole() == self.naive.largest_hole()

    @invariant()
    def every_slot_is_somewhere(self):
        sizes = [self.sizes[r] for r, _, _ in self.live.values()]
        states = sum(c for _, _, c in self.live.values())
        wanted = sum(self.end[r] for r, _, _ in self.live.values())
        free = self.naive.free()
        rounding = self.capacity - free - sum(sizes)
        kept = (states, wanted - states, sum(sizes) - wanted, 0)
        assert self.real.counts(states, None) == (*kept, rounding, 0, free)
        for need in (free, free + 1):
            external, remainder = (free, 0) if free >= need else (0, free)
            assert self.real.counts(states, Refusal(need)) == (*kept, rounding + external, remainder, 0)
        assert self.real.logical() == sum(sizes) and self.real.copies == self.forks
        assert self.real.held.sum() == sum(sizes)


ArenaWalk.TestCase.settings = settings(max_examples=300 * LONG, stateful_step_count=50)
TestArenaWalk = ArenaWalk.TestCase
