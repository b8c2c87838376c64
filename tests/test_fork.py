"""Several sequences of one request, by hand: which blocks are copied, by whom, and who gives what back. Blocks of 4 slots."""

from itertools import permutations

import numpy as np
import pytest

from sim.block_calendar import Some
from sim.demand import Demand
from sim.memory.allocator import NO_PREFIX, Ask, Lag
from sim.memory.arena import FitArena
from sim.memory.contiguous import ContiguousAllocator, reserve_oracle
from sim.memory.paged import PagedAllocator
from workloads.request import ContentIds, Trace


def demand_of(*requests, content=None):
    """``requests`` as (prompt, output, sequences)."""
    prompt, output, sequences = (np.array(column, np.int64) for column in zip(*requests, strict=True))
    ids = None if content is None else ContentIds(np.concatenate(content), np.cumsum([0, *map(len, content)]), 4)
    demand = Demand(Trace("by hand", prompt, output, content=ids), 64)
    demand.sequences = sequences
    return demand


def paged(num_blocks, *requests, caching=True, content=None):
    """Where no content is given, each request has a twin behind the last one, so that everybody may find what prompts hold."""
    if content is None:
        content = 2 * [np.arange(prompt // 4) + 100 * place for place, (prompt, *_) in enumerate(requests)]
        requests *= 2
    return PagedAllocator(demand_of(*requests, content=content), num_blocks, 4, caching)


def admit(allocator, request, tokens=None):
    known = int(allocator.demand.prompt[request])
    return allocator.admit(Ask(request, known, allocator.find_prefix(request, known), tokens or known, False))


def extend(allocator, handles, computed, new, lag=None):
    return allocator.extend(np.array(handles), np.array(computed), np.array(new), lag)


def by_one(allocator, handles, computed):
    return allocator.extend_by_one(Some(np.array(handles), np.array(computed)))


def tables(allocator, *handles):
    return [allocator.table(h).tolist() for h in handles]


def hashed(allocator, handle):
    """Which blocks of a table are findable, by whomever."""
    return (allocator.pool.hash_of[allocator.table(handle)] >= 0).tolist()


def samples(allocator, n, request=0):
    """``n`` sequences of one request behind its prompt."""
    first = admit(allocator, request)
    return [first, *(allocator.fork(first) for _ in range(n - 1))]


def test_three_samples_share_a_prompt_until_they_write():
    allocator = paged(10, (6, 5, 3))                   # 9 blocks, 36 slots; each ends with 10 token states
    a, b, c = samples(allocator, 3)
    assert tables(allocator, a, b, c) == [[1, 2]] * 3
    assert allocator.pool.ref[1:4].tolist() == [3, 3, 0] and allocator.pool.free == 7
    assert allocator.counts(18, None) == (6, 2, 0, 0, 0, 0, 28) and allocator.logical() == 24
    assert by_one(allocator, [a, b, c], [6, 6, 6])
    assert tables(allocator, a, b, c) == [[1, 3], [1, 4], [1, 2]]      # the last one writes in place
    assert allocator.pool.ref[1:5].tolist() == [3, 1, 1, 1] and allocator.copies == 2
    assert allocator.counts(21, None) == (4 + 9, 3, 0, 0, 0, 0, 20) and allocator.logical() == 24


def test_what_no_holder_will_fill_is_internal_once():
    allocator = paged(10, (5, 2, 3))                   # ends with 6 states: of block 2, slot 5 will be filled, 6 and 7 never
    a, b, _ = samples(allocator, 3)
    assert allocator.counts(15, None) == (5, 1, 2, 0, 0, 0, 28)
    assert by_one(allocator, [b], [5])                 # only one of them was scheduled
    assert tables(allocator, a, b) == [[1, 2], [1, 3]]
    assert allocator.counts(16, None) == (4 + 1 + 2, 1, 2 + 2, 0, 0, 0, 24)


def test_a_copy_comes_before_the_further_blocks_of_its_sequence():
    allocator = paged(10, (6, 9, 3))
    a, b, c = samples(allocator, 3)
    assert extend(allocator, [a, b, c], [6, 6, 6], [3, 1, 4]) == 3
    assert tables(allocator, a, b, c) == [[1, 3, 4], [1, 5], [1, 2, 6]]
    assert allocator.counts(9 + 7 + 10, None) == (4 + 5 + 3 + 6, 24 - 18, 0, 0, 0, 0, 12)


def test_who_has_no_token_in_this_step_neither_copies_nor_counts_as_gone():
    allocator = paged(10, (6, 5, 3))
    a, b, c = samples(allocator, 3)
    assert extend(allocator, [a, b, c], [6, 6, 6], [0, 1, 1]) == 3
    assert tables(allocator, a, b, c) == [[1, 2], [1, 3], [1, 4]] and allocator.copies == 2
    assert by_one(allocator, [a], [6])                 # alone by now
    assert tables(allocator, a) == [[1, 2]] and allocator.copies == 2


def test_a_copy_needs_a_free_block():
    allocator = paged(4, (6, 5, 3))
    a, b, c = samples(allocator, 3)                    # one block is free, two copies are due
    assert not by_one(allocator, [a, b, c], [6, 6, 6])
    assert tables(allocator, a, b, c) == [[1, 2]] * 3 and allocator.copies == 0
    assert extend(allocator, [a, b, c], [6, 6, 6], [1, 1, 1]) == 1
    assert tables(allocator, a, b, c) == [[1, 3], [1, 2], [1, 2]]
    assert allocator.counts(7 + 6 + 6, None) == (4 + 2 + 3, 3, 0, 0, 0, 0, 0)
    allocator.release(c)                               # preempted: nothing comes free, but b is the last holder
    assert allocator.pool.free == 0
    assert extend(allocator, [b], [6], [1]) == 1
    assert tables(allocator, b) == [[1, 2]] and allocator.copies == 1


def test_the_last_holder_writes_in_place():
    allocator = paged(10, (6, 5, 3))
    a, b, c = samples(allocator, 3)
    allocator.release(b)
    allocator.release(a)
    assert by_one(allocator, [c], [6])
    assert tables(allocator, c) == [[1, 2]] and allocator.copies == 0 and allocator.pool.free == 7


def test_a_full_last_block_is_never_copied():
    allocator = paged(10, (8, 5, 2))
    a, b = samples(allocator, 2)
    assert allocator.decode_limit(Some(np.array([a, b]), np.array([8, 8])), 4) == 4
    assert allocator.counts(16, None) == (8, 0, 0, 0, 0, 0, 28)
    assert by_one(allocator, [a, b], [8, 8])
    assert tables(allocator, a, b) == [[1, 2, 3], [1, 2, 4]] and allocator.copies == 0


def test_who_leaves_a_full_last_block_leaves_no_partly_filled_one():
    allocator = paged(10, (8, 5, 2), (6, 5, 2))        # blocks 1 and 2 are full and shared, 3 full and 4 half full and shared
    a, b = samples(allocator, 2)
    c, d = samples(allocator, 2, request=1)
    assert allocator.counts(28, None) == (8 + 6, 2, 0, 0, 0, 0, 20) and allocator.logical() == 32
    allocator.release(b)
    assert allocator.counts(20, None) == (8 + 6, 2, 0, 0, 0, 0, 20) and allocator.logical() == 24
    assert by_one(allocator, [c, d], [6, 6])
    assert tables(allocator, a, c, d) == [[1, 2], [3, 5], [3, 4]] and allocator.copies == 1
    assert allocator.counts(22, None) == (8 + 4 + 3 + 3, 2, 0, 0, 0, 0, 16)


def test_who_leaves_with_a_copy_of_its_own_leaves_the_others_what_they_share():
    allocator = paged(10, (10, 5, 3))                  # the first two blocks are full, and stay shared
    a, b, c = samples(allocator, 3)
    assert by_one(allocator, [a], [10]) and tables(allocator, a, b, c) == [[1, 2, 4], [1, 2, 3], [1, 2, 3]]
    allocator.release(a)
    assert by_one(allocator, [b, c], [10, 10])         # 4 was freed last, without a hash
    assert tables(allocator, b, c) == [[1, 2, 4], [1, 2, 3]] and allocator.copies == 2


def test_who_leaves_a_single_block_leaves_it_to_the_others():
    allocator = paged(10, (3, 5, 3))
    a, b, c = samples(allocator, 3)
    allocator.release(a)
    assert by_one(allocator, [b, c], [3, 3])
    assert tables(allocator, b, c) == [[2], [1]] and allocator.copies == 1


def test_no_jump_while_a_partly_filled_block_is_shared():
    allocator = paged(10, (6, 9, 2))
    handles = np.array(samples(allocator, 2))
    assert allocator.decode_limit(Some(handles, np.array([6, 6])), 5) == 1
    with pytest.raises(ValueError, match="partly filled block is shared"):
        allocator.decode(Some(handles, np.array([6, 6])), 2)
    assert by_one(allocator, handles, [6, 6])
    assert allocator.decode_limit(Some(handles, np.array([7, 7])), 5) == 5


def test_dropping_one_beam_frees_only_what_it_alone_holds():
    allocator = paged(10, (6, 9, 3))
    a, b, c = samples(allocator, 3)
    extend(allocator, [a, b, c], [6, 6, 6], [3, 3, 3])
    assert tables(allocator, a, b, c) == [[1, 3, 4], [1, 5, 6], [1, 2, 7]]
    allocator.release(b)
    assert allocator.pool.free_queue().tolist() == [6, 5, 8, 9]
    d = allocator.fork(c)                              # the better beam takes its place
    assert tables(allocator, d) == [[1, 2, 7]]
    assert by_one(allocator, [a, c, d], [9, 9, 9])
    assert tables(allocator, a, c, d) == [[1, 3, 4], [1, 2, 6], [1, 2, 7]]
    assert allocator.pool.ref[1:8].tolist() == [3, 2, 1, 1, 0, 1, 1]
    allocator.release(c)
    assert allocator.pool.free_queue().tolist() == [6, 5, 8, 9]
    assert allocator.counts(20, None) == (10 + 10 - 4, 4, 0, 0, 0, 0, 16)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_whoever_leaves_first_everything_comes_back(order):
    """a wrote into a copy, b and c still share block 2: it comes free with the last of them."""
    allocator = paged(10, (6, 5, 3))
    handles = samples(allocator, 3)
    assert by_one(allocator, handles[:1], [6])
    own, left, computed = {0: 1, 1: 0, 2: 0}, {0, 1, 2}, [7, 6, 6]
    for who in order:
        before = allocator.pool.free
        left.remove(who)
        allocator.release(handles[who])
        shared = not left & {1, 2} and who > 0         # block 2 goes with the last of b and c, block 1 with the last of all
        assert allocator.pool.free - before == own[who] + shared + (not left)
        states = 4 * bool(left) + 3 * (0 in left) + 2 * bool(left & {1, 2})
        assert allocator.counts(sum(computed[i] for i in left), None).token_states == states
    assert allocator.counts(0, None) == (0, 0, 0, 4, 0, 0, 32)         # block 1 is full prompt: findable
    assert allocator.logical() == 0 and sorted(allocator.pool.free_queue().tolist()) == list(range(1, 10))


def test_fork_of_a_fork_then_preempted_last_first():
    allocator = paged(10, (5, 9, 4), caching=False)
    a = admit(allocator, 0)
    b = allocator.fork(a)
    c = allocator.fork(b)
    assert by_one(allocator, [a, b, c], [5, 5, 5])
    d = allocator.fork(a)
    assert tables(allocator, a, b, c, d) == [[1, 3], [1, 4], [1, 2], [1, 3]]
    for handle in (d, c, b):
        allocator.release(handle)
    assert allocator.pool.free_queue().tolist() == [4, 2, 5, 6, 7, 8, 9]
    assert by_one(allocator, [a], [6]) and tables(allocator, a) == [[1, 3]] and allocator.copies == 2


def test_a_fork_in_the_middle_of_a_prompt_leaves_findable_copies():
    allocator = paged(10, (12, 2, 2))
    a = admit(allocator, 0, tokens=6)
    b = allocator.fork(a)
    assert extend(allocator, [a, b], [6, 6], [6, 6]) == 2
    assert tables(allocator, a, b) == [[1, 3, 4], [1, 2, 5]]
    assert allocator.find_prefix(0, 13).blocks.tolist() == [1, 3, 4]
    allocator.release(a)
    allocator.release(b)
    assert allocator.pool.free_queue().tolist() == [6, 7, 8, 9, 4, 3, 5, 2, 1]
    allocator.pool.take(6)                             # a's 4 and 3 are gone, b's are found
    assert allocator.find_prefix(0, 13).blocks.tolist() == [1, 2, 5]


@pytest.mark.parametrize(("sequences", "found"), [(2, 4), (1, 8)])
def test_what_samples_generate_is_never_found(sequences, found):
    """A prompt of 6 and 4 generated tokens: block 2 is half prompt, half this sample's."""
    allocator = paged(10, (6, 7, sequences))
    a = admit(allocator, 0)
    assert extend(allocator, [a], [6], [4]) == 1
    assert by_one(allocator, [a], [10])
    allocator.decode(Some(np.array([a]), np.array([11])), 1)
    allocator.release(a, returns=True)
    assert allocator.find_prefix(0, 12).tokens == found


def test_what_samples_generated_is_not_found_in_a_later_prompt_either():
    content = [np.array([7, 8]), np.array([7, 8, 9])]
    allocator = paged(10, (4, 5, 2), (12, 1, 1), content=content)
    later = admit(allocator, 1)
    assert tables(allocator, later) == [[1, 2, 3]]
    assert allocator.find_prefix(0, 8).tokens == 4     # never more than the prompt, whatever others have cached


def test_asynchronous_steps_make_findable_what_is_known():
    allocator = paged(10, (4, 9, 1))
    a = admit(allocator, 0)
    one = np.array([a])
    assert extend(allocator, one, [4], [4], Lag(np.array([4]), np.array([4]), np.array([7]))) == 1
    assert allocator.find_prefix(0, 12).tokens == 4
    extend(allocator, one, [8], [0], Lag(np.array([8]), np.array([4]), np.array([8])))
    assert allocator.find_prefix(0, 12).tokens == 4    # no new token, nothing said
    extend(allocator, one, [8], [1], Lag(np.array([8]), np.array([7]), np.array([8])))
    assert hashed(allocator, a) == [True, True, False]
    extend(allocator, one, [9], [3], Lag(np.array([9]), np.array([8]), np.array([9])))
    assert hashed(allocator, a) == [True, True, False]
    allocator.settle(one, np.array([9]), np.array([12]))
    assert hashed(allocator, a) == [True, True, True]
    allocator.release(a, returns=True)
    assert allocator.find_prefix(0, 13).tokens == 12


def test_a_swapped_sequence_comes_back_in_fresh_blocks():
    allocator = paged(6, (6, 5, 2))
    a = admit(allocator, 0)
    assert allocator.restore_need(9) == 12
    b = allocator.restore(0, 9)                        # as if it had been away with 9 tokens
    assert tables(allocator, a, b) == [[1, 2], [3, 4, 5]]
    assert allocator.counts(15, None) == (15, 3, 2, 0, 0, 0, 0)
    assert allocator.restore(0, 1) is None and allocator.logical() == 20
    allocator.release(a)
    allocator.pool.take(2)                             # block 1, found first, is reused
    assert allocator.find_prefix(0, 9).blocks.tolist() == [3]
    with pytest.raises(ValueError, match="at least 1 token, not 0"):
        allocator.restore(0, 0)


def test_bad_handles_raise_and_change_nothing():
    allocator = paged(10, (6, 5, 2), (6, 5, 1))
    a, single = admit(allocator, 0), admit(allocator, 1)
    b = allocator.fork(a)
    with pytest.raises(ValueError, match="request 1 is one sequence"):
        allocator.fork(single)
    allocator.release(a)
    for again in (allocator.release, allocator.fork):
        with pytest.raises(ValueError, match=f"handle {a} holds nothing"):
            again(a)
    assert tables(allocator, b) == [[1, 2]] and allocator.pool.ref[1:3].tolist() == [1, 1]
    assert admit(allocator, 1) == a and admit(allocator, 1) not in (a, b, single)


def test_more_samples_than_the_first_table_has_rows():
    allocator = paged(120, (6, 5, 100))
    handles = samples(allocator, 100)
    assert len(set(handles)) == 100 and tables(allocator, handles[-1]) == [[1, 2]]
    assert by_one(allocator, handles, [6] * 100)
    assert tables(allocator, handles[0], handles[98], handles[99]) == [[1, 3], [1, 101], [1, 2]] and allocator.copies == 99


def test_what_can_never_run():
    # 5 blocks of 4. Blocks at the end: full ones of the prompt once, then those of each sequence: 1 + 2 x 2, 1 + 2 x 3, 1 + 1 x 5
    # (a prompt of 7 and one of 5), 2 + 0 x 9, 5 + 0, 5 + 1, 3 + 2.
    requests = [(6, 5, 2), (6, 5, 3), (7, 2, 5), (5, 1, 5), (8, 1, 9), (20, 1, 1), (20, 2, 1), (12, 9, 1)]
    allocator = PagedAllocator(demand_of(*requests), 6, 4, caching=False)
    assert allocator.impossible().tolist() == [False, True, True, True, False, False, True, False]
    allocator.demand.sequences = None
    assert allocator.impossible().tolist() == [False, False, False, False, False, False, True, False]


def test_contiguous_sequences_are_copied_whole():
    allocator = ContiguousAllocator(demand_of((6, 5, 3)), FitArena(25, best=False), reserve_oracle)
    a = allocator.admit(Ask(0, 6, NO_PREFIX, 6, True))
    b = allocator.fork(a)
    assert (allocator.placed(a), allocator.placed(b)) == ((0, 10), (10, 10))
    assert allocator.fork(a) is None and allocator.copies == 1
    assert allocator.counts(12, None) == (12, 8, 0, 0, 0, 0, 5) and allocator.logical() == 20
    allocator.release(a)
    with pytest.raises(ValueError, match=f"handle {a} holds nothing"):
        allocator.fork(a)
    with pytest.raises(ValueError, match=f"handle {a} holds nothing"):
        allocator.release(a)
    assert allocator.restore_need(6, 0) == 10 and allocator.restore(0, 6) == a and allocator.placed(a) == (0, 10)


def test_the_block_that_was_findable_first_is_found_by_whoever_comes_back():
    """Nobody else begins like request 0: no index knows its blocks. It fills block 1, is swapped out, and fills block 2 anew."""
    allocator = PagedAllocator(demand_of((4, 2, 2)), 6, 4, True)
    for block in (1, 2):
        alone = allocator.restore(0, 4)
        assert tables(allocator, alone) == [[block]]
        allocator.release(alone, returns=True)
    first = admit(allocator, 0, tokens=4)              # a whole prompt is never found: the last token is computed again
    assert allocator.find_prefix(0, 5).blocks.tolist() == [1] and tables(allocator, first) == [[3]]
    allocator.release(first, returns=True)
    again = allocator.admit(Ask(0, 5, allocator.find_prefix(0, 5), 5, False))
    twin = allocator.fork(again)
    assert tables(allocator, again, twin) == [[1, 4], [1, 4]]
    for handle in (twin, again):
        allocator.release(handle, returns=True)
    assert allocator.find_prefix(0, 5).blocks.tolist() == [1]
    allocator.pool.take(5)                             # all of them evicted
    assert not len(allocator.find_prefix(0, 5).blocks)


def test_a_block_filled_anew_is_not_as_old_as_what_it_held_before():
    """Block 1 holds the first block of request 0, then something else, then the same again: block 2 was there before."""
    allocator = PagedAllocator(demand_of((4, 2, 1), (16, 1, 1)), 5, 4, True)
    for _ in range(2):
        alone = allocator.restore(0, 4)
        allocator.release(alone, returns=True)
    hashes = allocator.pool.hash_of
    assert hashes.tolist() == [-1, hashes[1], hashes[1], -1, -1]
    taken = allocator.pool.take(3)                     # 3 and 4 were never used, then block 1, the older one
    assert taken.tolist() == [3, 4, 1]
    allocator.pool.release(taken[2:])                  # to the front: it is the next to be taken
    alone = allocator.restore(0, 4)
    assert tables(allocator, alone) == [[1]]
    allocator.release(alone, returns=True)
    assert allocator.find_prefix(0, 5).blocks.tolist() == [2]


def test_what_a_request_left_stays_small_however_often_it_is_preempted():
    """Only three blocks at a time can hold its first one, so no more are kept; a short stay takes nothing from a long one."""
    allocator = PagedAllocator(demand_of((12, 2, 1)), 4, 4, True)
    long = allocator.restore(0, 12)
    assert tables(allocator, long) == [[1, 2, 3]]
    allocator.release(long, returns=True)
    short = allocator.restore(0, 4)                    # evicts the last of the three, 3, and fills it with the first content
    assert tables(allocator, short) == [[3]]
    allocator.release(short, returns=True)
    assert allocator.find_prefix(0, 13).blocks.tolist() == [1, 2]
    for _ in range(50):
        stay = allocator.restore(0, 4)
        allocator.release(stay, returns=True)
        assert len(allocator._left._blocks[0]) <= 3
    stay = allocator.restore(0, 12)
    allocator.release(stay)                            # it has ended
    assert 0 not in allocator._left


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("way", ["a chunk", "a chunk beside another", "a token each", "many steps", "with a lag"])
def test_what_one_sequence_filled_is_found_again_however_it_grew(way, looks):
    """From 7 to 12 tokens in blocks of 4: the second and the third are full then, or as far as the lag says, and not a fourth."""
    demand = demand_of((7, 9, 1), (30, 1, 1))
    demand.sequences = None
    allocator = PagedAllocator(demand, 20, 4, True)
    first, other = admit(allocator, 0), admit(allocator, 1, tokens=5)
    if way == "a chunk":
        assert extend(allocator, [first], [7], [5]) == 1
    elif way == "a token each":
        assert all(by_one(allocator, [first], [n]) for n in range(7, 12))
    elif way == "many steps":
        allocator.decode(Some(np.array([first]), np.array([7])), 5)
    else:
        lag = Lag(np.array([7, 5]), np.array([7, 5]), np.array([9, 6])) if way == "with a lag" else None
        assert extend(allocator, [first, other], [7, 5], [5, 1], lag) == 2
    full = 2 if way == "with a lag" else 3
    if looks:
        assert hashed(allocator, first) == [True] * full + [False] * (3 - full)
    table = allocator.table(first).tolist()
    allocator.release(first, returns=True)
    assert allocator.find_prefix(0, 13).blocks.tolist() == table[:full]
    assert allocator.pool.cached_free == full
