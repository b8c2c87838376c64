"""Contiguous reservations by hand: where they lie, which sequences can never run, and a table that grows.

`test_walk_arena` compares them with the naive arena; several sequences of a request are in `test_fork`.
"""

import numpy as np
import pytest

from sim.demand import Demand
from sim.memory.allocator import NO_PREFIX, Ask, Refusal
from sim.memory.arena import BuddyArena, FitArena
from sim.memory.contiguous import ContiguousAllocator, reserve_max, reserve_oracle, reserve_pow2
from workloads.request import Trace


def demand_of(*requests, max_model_len=64):
    """``requests`` as (prompt, output)."""
    prompt, output = (np.array(column, np.int64) for column in zip(*requests, strict=True))
    return Demand(Trace("by hand", prompt, output), max_model_len)


def allocator_of(capacity, *requests, arena=lambda capacity: FitArena(capacity, best=False)):
    return ContiguousAllocator(demand_of(*requests), arena(capacity), reserve_oracle)


def admit(allocator, request):
    return allocator.admit(Ask(request, 1, NO_PREFIX, 1, False))


@pytest.mark.parametrize(("policy", "slots"), [
    (reserve_max, [16, 16, 16, 16]),
    (reserve_pow2, [5 + 1, 5 + 4, 5 + 8, 16]),         # of 1, 3, 5 and 9 output tokens; 9 + 16 are more than 16
    (reserve_oracle, [5, 5 + 2, 5 + 4, 9 + 6]),        # the last output token is never stored; of 9 there is room for 7
])
def test_what_is_reserved(policy, slots):
    reserved = policy(demand_of((5, 1), (5, 3), (5, 5), (9, 9), max_model_len=16))
    assert reserved.tolist() == slots and reserved.dtype == np.int64


def test_reservations_now_held():
    allocator = allocator_of(20, (4, 3), (5, 1), (2, 4))        # 6, 5 and 5 slots
    first, second, third = (admit(allocator, request) for request in range(3))
    assert [part.tolist() for part in allocator.reservations()] == [[0, 6, 11], [6, 5, 5]]
    assert [allocator.placed(handle) for handle in (first, second, third)] == [(0, 6), (6, 5), (11, 5)]
    allocator.release(second)
    start, size = allocator.reservations()
    assert (start.tolist(), size.tolist()) == ([0, 11], [6, 5]) and start.dtype == size.dtype == np.int64
    assert allocator.counts(9, None) == (9, 2, 0, 0, 0, 0, 9) and allocator.logical() == 11


def test_states_that_last_count_as_often():
    # 5 slots in a buddy block of 8, 5 in another, 4 of 20 free; 3 us, in which 6, 7 and 8 tokens are there.
    allocator = allocator_of(20, (2, 4), (5, 1), arena=BuddyArena)
    admit(allocator, 0), admit(allocator, 1)
    assert allocator.counts(21, None, time=3) == (21, 30 - 21, 0, 0, 18, 0, 12)
    assert allocator.counts(21, Refusal(4), time=3) == (21, 9, 0, 0, 18 + 12, 0, 0)
    assert allocator.counts(21, Refusal(5), time=3) == (21, 9, 0, 0, 18, 12, 0)
    assert allocator.logical(time=3) == 30


def test_more_sequences_than_the_table_had_rows_for():
    allocator = allocator_of(600, (3, 1), (2, 1))
    handles = [admit(allocator, place % 2) for place in range(200)]
    assert len(set(handles)) == 200
    pairs = [(5 * (place // 2) + 3 * (place % 2), 3 - place % 2) for place in range(200)]
    assert [allocator.placed(handle) for handle in handles] == pairs and allocator.reservations()[1].dtype == np.int64
    for handle in handles[:100]:
        allocator.release(handle)
    again = [admit(allocator, 0) for _ in range(100)]
    assert len({*again, *handles[100:]}) == 200 and allocator.logical() == 50 * 5 + 100 * 3
    assert [allocator.placed(handle) for handle in handles[100:]] == pairs[100:]


def test_what_can_never_run():
    demand = demand_of((6, 1), (6, 1), (6, 1), (9, 1), (9, 1), (17, 1))
    buddy, fit = (ContiguousAllocator(demand, arena, reserve_oracle) for arena in (BuddyArena(16), FitArena(18, best=True)))
    demand.sequences = np.array([1, 2, 3, 1, 2, 1])
    assert buddy.impossible().tolist() == [False, False, True, False, True, True]        # blocks of 8, 8, 8, 16, 16 and 32
    assert fit.impossible().tolist() == [False, False, False, False, False, False]
    demand.sequences = None
    assert buddy.impossible().tolist() == [False, False, False, False, False, True]


def test_who_holds_nothing_is_named():
    allocator = allocator_of(20, (4, 1))
    handle = admit(allocator, 0)
    allocator.release(handle)
    for operation in (allocator.release, allocator.fork):
        with pytest.raises(ValueError, match=f"handle {handle} holds nothing"):
            operation(handle)
    assert allocator.counts(0, None) == (0, 0, 0, 0, 0, 0, 20)
