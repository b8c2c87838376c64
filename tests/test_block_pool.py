"""The block pool against the rules, by hand and against the naive model on random walks."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import NaivePool
from small import LONG

from sim.memory.block_pool import BlockPool


def hashes(*values):
    return np.array(values, np.int64)


def test_null_block_is_never_handed_out():
    pool = BlockPool(4)
    assert pool.free == 3
    assert pool.take(3).tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="asked for 1 blocks with 0 free"):
        pool.take(1)


def test_blocks_without_a_hash_go_to_the_front_last_first():
    pool = BlockPool(7)
    table = pool.take(3)
    pool.release(table)
    assert pool.free_queue().tolist() == [3, 2, 1, 4, 5, 6]


def test_cached_blocks_go_to_the_end_tail_first():
    pool = BlockPool(7, 10)
    table = pool.take(3)
    pool.cache(table[:2], hashes(4, 5))
    pool.release(table)
    assert pool.free_queue().tolist() == [3, 4, 5, 6, 2, 1]
    assert (pool.free, pool.cached_free) == (6, 2)


def test_a_touched_block_leaves_the_queue_and_comes_back_younger():
    pool = BlockPool(4, 10)
    table = pool.take(3)
    pool.cache(table, hashes(1, 2, 3))
    pool.release(table)
    assert pool.free_queue().tolist() == [3, 2, 1]
    pool.touch(pool.lookup(hashes(1)))
    assert pool.free_queue().tolist() == [3, 2]
    pool.release(np.array([1], np.int32))
    assert pool.free_queue().tolist() == [3, 2, 1]
    assert pool.take(1).tolist() == [3] and pool.evicted == 1
    assert pool.lookup(hashes(1, 2, 3)).tolist() == [1, 2]


def test_a_copy_is_found_when_the_first_is_evicted():
    pool = BlockPool(4, 10)
    first, second = pool.take(1), pool.take(1)
    pool.cache(first, hashes(5))
    pool.cache(second, hashes(5))
    assert pool.lookup(hashes(5)).tolist() == [1]
    pool.release(first)
    assert pool.take(2).tolist() == [3, 1]
    assert pool.lookup(hashes(5)).tolist() == [2]
    pool.release(second)
    pool.take(1)
    assert pool.lookup(hashes(5)).tolist() == []


def test_of_equal_blocks_cached_in_one_call_the_first_is_found():
    # Two prompts with the same beginning, prefilled in chunks side by side, fill the same block in the same step.
    pool = BlockPool(6, 10)
    table = pool.take(3)
    pool.cache(table, hashes(5, 7, 5))
    assert pool.lookup(hashes(5)).tolist() == [1]
    pool.release(table[:1])
    pool.take(3)                                       # 4, 5 and block 1, evicted
    assert pool.lookup(hashes(5, 7)).tolist() == [3, 2]
    pool.release(table[2:])
    pool.take(1)
    assert pool.lookup(hashes(5)).tolist() == []


def test_double_free_raises():
    pool = BlockPool(4)
    table = pool.take(2)
    pool.release(table)
    with pytest.raises(ValueError, match="double free of block 2"):
        pool.release(table)


def test_older_versions_append_whatever_is_freed():
    for contents in (0, 10):
        pool = BlockPool(7, contents, split_freed=False)
        table = pool.take(3)
        if contents:
            pool.cache(table[:2], hashes(4, 5))
        pool.release(table)
        assert pool.free_queue().tolist() == [4, 5, 6, 3, 2, 1]
        assert (pool.free, pool.cached_free) == (6, 2 if contents else 0)


def test_who_watches_hears_of_evictions_in_order():
    pool, first, second = BlockPool(6, 10), [], []
    pool.watch(lambda blocks: first.append(blocks.tolist()))
    pool.watch(lambda blocks: second.extend(blocks.tolist()))
    table = pool.take(4)
    pool.cache(table[:3], hashes(1, 2, 3))
    pool.release(table)
    pool.take(2)                                       # 4 and 5 hold nothing
    assert first == []
    pool.take(2)
    pool.take(1)
    assert first == [[3, 2], [1]] and second == [3, 2, 1]


def test_a_holder_that_leaves_must_not_be_the_last():
    pool = BlockPool(4)
    table = pool.take(2)
    pool.touch(table)
    pool.touch(table[:1])
    pool.leave(table[[0, 0]])
    assert pool.ref.tolist() == [0, 1, 2, 0] and pool.free == 1
    with pytest.raises(ValueError, match="nobody is left to hold block 1"):
        pool.leave(table[:1])


@pytest.mark.parametrize(("full", "queue"), [
    ([3], [4, 2, 1, 5, 6, 3]), ([2, 4], [3, 1, 5, 6, 4, 2]), ([3, 4], [2, 1, 5, 6, 4, 3]), ([1, 2, 3, 4], [5, 6, 4, 3, 2, 1])])
def test_whichever_blocks_of_a_table_are_full(full, queue):
    pool = BlockPool(7, 10)
    table = pool.take(4)
    pool.cache(np.array(full), np.array(full))
    pool.release(table)
    assert pool.free_queue().tolist() == queue and pool.cached_free == len(full)


def test_what_a_new_pool_is():
    pool = BlockPool(4)
    assert (pool.num_blocks, pool.free, pool.caching) == (4, 3, False)
    assert pool.ref.dtype == np.int32 and pool.hash_of.dtype == np.int64
    assert BlockPool(4, 1).caching and BlockPool(4, caching=True).caching and not BlockPool(4, 1, caching=False).caching


def test_there_must_be_a_null_block():
    assert BlockPool(1).free == 0
    with pytest.raises(ValueError, match="num_blocks must be at least 1, the null block, not 0"):
        BlockPool(0)


def test_counters_of_what_is_taken_touched_and_evicted():
    pool = BlockPool(6, 10)
    table = pool.take(3)
    pool.cache(table, hashes(1, 2, 3))
    pool.release(table)
    pool.touch(pool.lookup(hashes(1, 2)))
    pool.touch(pool.lookup(hashes(1)))
    assert pool.take(3).tolist() == [4, 5, 3]          # two never used, then the one cached block that is free
    assert (pool.taken, pool.touched, pool.evicted) == (6, 3, 1)
    assert (pool.free, pool.cached_free) == (0, 0) and pool.ref.tolist() == [0, 2, 1, 1, 1, 1]
    pool.start_counting()
    assert (pool.taken, pool.touched, pool.evicted) == (0, 0, 0)


@pytest.mark.parametrize(("split_freed", "queue", "evicted"), [
    (True, [1, 4, 5, 6, 3, 2], [False, False, False, False, True, True]),
    (False, [4, 5, 6, 3, 2, 1], [False, False, False, True, True, False])])
def test_which_of_the_next_are_evicted(split_freed, queue, evicted):
    pool = BlockPool(7, 10, split_freed)
    table = pool.take(3)
    pool.cache(table[1:], hashes(4, 5))                # a table whose first block is not full is none that a request has
    pool.release(table)
    assert pool.free_queue().tolist() == queue and pool.cached_free == 2
    for n in range(7):
        assert pool.evicted_of_next(n) == evicted[:n]
    watched = []
    pool.watch(lambda blocks: watched.extend(blocks.tolist()))
    assert pool.take(6).tolist() == queue and watched == [3, 2] and pool.evicted == 2


def test_how_many_lie_free():
    pool = BlockPool(7)
    table = pool.take(4)
    pool.release(table[2:])
    assert [pool.lying_free(table), pool.lying_free(table[:2]), pool.lying_free(table[:0])] == [2, 0, 0]


def test_what_is_marked_lies_at_the_end_and_no_index_finds_it():
    pool = BlockPool(7, 10)
    table = pool.take(4)
    pool.mark(table[:3], hashes(25, 26, 27))
    assert pool.hash_of.tolist() == [-1, 25, 26, 27, -1, -1, -1]
    assert pool.leading(table[:3], hashes(25, 26, 28)).tolist() == [1, 2]
    assert pool.find(np.arange(10)).tolist() == [-1] * 10
    pool.release(table)
    assert pool.free_queue().tolist() == [4, 5, 6, 3, 2, 1] and pool.cached_free == 3


@pytest.mark.parametrize("there", [0, 1, 3])
def test_hashes_that_are_known_to_differ_are_cached_the_same(there):
    """Of three hashes the first ``there`` are findable already: their new blocks are copies."""
    pools = [BlockPool(9, 10) for _ in range(2)]
    for pool, distinct in zip(pools, (False, True), strict=True):
        first, second = pool.take(3), pool.take(3)
        pool.cache(first[:there], hashes(5, 6, 7)[:there])
        pool.cache(second, hashes(5, 6, 7), distinct)
        assert pool.find(hashes(5, 6, 7)).tolist() == [*first[:there].tolist(), *second[there:].tolist()]
        pool.release(first)
        pool.release(second)
        pool.take(8 - 3)                               # evicts two blocks: of the first ones, where there are any
    assert pools[0].find(hashes(5, 6, 7)).tolist() == pools[1].find(hashes(5, 6, 7)).tolist()
    assert pools[0]._copies == pools[1]._copies


def test_what_a_holder_put_off_is_there_for_whoever_reads_it():
    pool = BlockPool(7, 10)
    table = pool.take(4)
    pool.put_off(lambda: pool.mark(table[:2], hashes(25, 26)))
    assert pool.written(table).tolist() == [-1] * 4            # by those who ask for blocks that are free
    assert pool.hash_of.tolist() == [-1, 25, 26, -1, -1, -1, -1]


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("full", range(6))
@pytest.mark.parametrize("shared", range(6))
def test_a_release_that_is_told_how_many_blocks_have_a_hash_is_the_same(split, full, shared):
    """Of five blocks the first ``full`` have one, and the first ``shared`` are held twice."""
    pools = [BlockPool(9, 10, split_freed=split) for _ in range(2)]
    for pool, told in zip(pools, (None, full), strict=True):
        table = pool.take(5)
        pool.cache(table[:full], np.arange(full))
        pool.touch(table[:shared])
        pool.release(table, told)
        assert pool.free == 8 - shared and pool.cached_free == max(full - shared, 0)
    assert pools[0].free_queue().tolist() == pools[1].free_queue().tolist()
    with pytest.raises(ValueError, match="double free of block 6"):
        pools[1].release(np.array([1, 6]), 1)


def test_each_hash_by_itself():
    pool = BlockPool(6, 10)
    pool.cache(pool.take(3), hashes(1, 2, 3))
    assert pool.find(hashes(1, 9, 3)).tolist() == [1, -1, 3]


def test_of_three_copies_the_oldest_left_is_found():
    pool = BlockPool(6, 10)
    blocks = [pool.take(1) for _ in range(4)]
    for block in blocks[:3]:
        pool.cache(block, hashes(5))
    pool.cache(blocks[3], hashes(6))
    pool.release(blocks[1])                            # the second of them is evicted first: the first is still found
    pool.take(2)
    assert pool.find(hashes(5, 6)).tolist() == [1, 4]
    pool.release(blocks[0])
    pool.take(1)
    assert pool.find(hashes(5, 6)).tolist() == [3, 4]
    pool.release(blocks[2])
    pool.take(1)
    assert pool.find(hashes(5, 6)).tolist() == [-1, 4]


def test_one_that_had_a_copy_goes_beside_one_that_has():
    pool = BlockPool(6, 10)
    blocks = [pool.take(1) for _ in range(4)]
    for block, content in zip(blocks, (5, 5, 6, 6), strict=True):
        pool.cache(block, hashes(content))
    pool.release(blocks[1])
    pool.take(2)                                       # the copy of block 1 is gone
    pool.release(blocks[0])
    pool.release(blocks[2])
    assert pool.take(2).tolist() == [1, 3] and pool.evicted == 3
    assert pool.find(hashes(5, 6)).tolist() == [-1, 4]


def test_a_lookup_stops_at_the_first_miss():
    pool = BlockPool(6, 10)
    pool.cache(pool.take(3), hashes(1, 2, 3))
    assert pool.lookup(hashes(1, 9, 3)).tolist() == [1]
    assert pool.lookup(hashes(9, 1)).tolist() == []
    assert pool.lookup(hashes()).tolist() == []


@settings(max_examples=150 * LONG)
@given(st.integers(2, 40), st.integers(1, 12), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_random_walk_against_the_naive_model(num_blocks, contents, caching, split_freed, rng):
    models = BlockPool(num_blocks, contents if caching else 0, split_freed), NaivePool(num_blocks, split_freed)
    walk(*models, contents, caching, rng, operations=80)


def walk(pool, naive, contents, caching, rng: random.Random, operations):
    """Admit with a looked-up prefix, grow, cache, release; both models must agree on every block id."""
    tables, evicted = [], []
    pool.watch(lambda blocks: evicted.extend(blocks.tolist()))
    for _ in range(operations):
        action = rng.random()
        if action < 0.5:
            admit(pool, naive, tables, contents, caching, rng)
        elif tables and action < 0.7:
            grow(pool, naive, rng.choice(tables), rng)
        elif tables:
            table = tables.pop(rng.randrange(len(tables)))
            pool.release(np.array(table, np.int32))
            naive.release(table)
        assert pool.free_queue().tolist() == naive.queue
        assert pool.free == len(naive.queue)
        assert pool.ref.tolist() == naive.ref
        assert evicted == naive.evicted and pool.evicted == len(evicted)
        assert pool.cached_free == sum(naive.hash_of[b] is not None for b in naive.queue)


def admit(pool, naive, tables, contents, caching, rng):
    want = [rng.randrange(contents) for _ in range(rng.randint(1, 4))] if caching else []
    found = pool.lookup(hashes(*want)) if caching else np.zeros(0, np.int32)
    assert found.tolist() == naive.lookup(want)
    if len(set(found.tolist())) < len(found):          # a table never holds a block twice
        return
    new = rng.randint(0, 3)
    lying_free = sum(naive.ref[b] == 0 for b in found.tolist())
    if new + lying_free > pool.free:
        return
    pool.touch(found)
    naive.touch(found.tolist())
    blocks = pool.take(new)
    assert blocks.tolist() == naive.take(new)
    fresh = blocks[: len(want) - len(found)]
    if caching and len(fresh):
        keys = want[len(found): len(found) + len(fresh)]     # equal ones too: several requests are cached in one call
        pool.cache(fresh, hashes(*keys))
        naive.cache(fresh.tolist(), keys)
    tables.append(found.tolist() + blocks.tolist())


def grow(pool, naive, table, rng):
    n = min(rng.randint(1, 3), pool.free)
    assert pool.free_queue()[:n].tolist() == naive.queue[:n]
    blocks = pool.take(n)
    assert blocks.tolist() == naive.take(n)
    table += blocks.tolist()
