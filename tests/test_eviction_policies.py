"""Eviction policies: sequences worked out by hand, brute force, what all must keep, and libCacheSim on a public trace."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest
from cli_run import shared_trace
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG

from sim.caching.curve import lru_hits, reuse_distances
from sim.caching.policies import Fifo, Lfu, Lru, Vllm
from sim.caching.replay import block_by_block, replay
from sim.caching.second_chance import S3Fifo, Sieve
from sim.caching.stream import Accesses, accesses
from sim.caching.tail_first import tail_first_distances
from sim.caching.worth import Belady, Gdsf
from sim.catalog import EVICTION
from workloads.readers import read_trace

CURVES = {"lru": reuse_distances, "vllm": tail_first_distances}
PREFIX_CLOSED = ("vllm", "lru", "belady")


def stream_of(requests, queries=None):
    """Blocks of each request; all are queries unless their numbers are given."""
    flat = [block for request in requests for block in request]
    lengths = [len(request) for request in requests]
    dense = np.unique(np.array(flat, np.int64), return_inverse=True)[1].astype(np.int32)
    return Accesses(dense, np.cumsum([0, *lengths]), np.array(lengths if queries is None else queries, np.int64),
                    len(set(flat)), 16)


def hits(policy, size, requests):
    """Which accesses hit: one string a request, x for a hit."""
    stream = stream_of(requests)
    cached = policy(size, stream)
    said = []
    for i, (start, end) in enumerate(zip(stream.starts[:-1], stream.starts[1:], strict=True)):
        cached.begin(i)
        said.append("".join(".x"[cached.access(int(block))] for block in stream.blocks[start:end]))
        cached.end(i)
    return said


def one_by_one(policy, size, blocks):
    """The same where each request is one block."""
    return "".join(hits(policy, size, [[ord(block)] for block in blocks]))


# ---------------------------------------------------------------------- by hand
@pytest.mark.parametrize(("policy", "size", "blocks", "expected"), [
    (Fifo, 2, "abacab", "..x..."),                     # c evicts a although it was used, a evicts b, b evicts c
    (Lru, 2, "abacab", "..x.x."),                      # c evicts b
    (Lfu, 2, "aabcab", ".x..x."),                      # a has two uses: c evicts b, b evicts c
    (Lfu, 2, "abcba", "...x."),                        # of equals the oldest leaves: c evicts a, a evicts c
    (Sieve, 3, "abcadbead", "...x...x."),              # the hand spares a, takes b; stays at c, takes it; takes d
    (S3Fifo, 3, "abcdabebca", ".....x.x.x"),           # d evicts a to the ghosts, so a comes back into the main queue; e spares b
    (S3Fifo, 10, "abcdefghij" + "aak" + "a", ".........." + "xx." + "x"),    # used twice in the small queue, a moves on
    (S3Fifo, 10, "abcdefghij" + "ak" + "a", ".........." + "x." + "."),      # once is not enough
    (Gdsf, 2, "cbcabc", "..x..."),                     # c has two uses, but what left lifts a to as much: c, the older, leaves
    (Belady, 1, "aba", "..x"),                         # b is not let in
    (Belady, 2, "abcab", "...xx"),                     # nor is c
    (Belady, 2, "abcabac", "...xxx."),
    (Belady, 2, "abcbca", "...xx."),                   # a's next use is farthest when c comes
])
def test_blocks_one_by_one(policy, size, blocks, expected):
    assert one_by_one(policy, size, blocks) == expected


def test_the_ghost_queue_remembers_nine_tenths_of_the_room():
    cached = S3Fifo(10, stream_of([[block] for block in range(60)]))
    assert [cached.access(block) for block in range(60)] == [False] * 60
    assert len(cached._ghost) == 9


def test_generation_is_no_lookup_for_the_bound():
    """Blocks 1 and 2 are looked up again, 3 is only written again: it is not worth a place."""
    stream = stream_of([[1, 2], [3], [3, 1, 2]], queries=[2, 1, 0])
    again = stream_of([[3], [1, 2], [3], [1, 2]], queries=[1, 2, 0, 2])
    assert replay(stream, Belady(1, stream)).served == 0
    assert replay(again, Belady(2, again)).served == 2
    for size in (1, 2, 3):
        assert all(replay(again, EVICTION[name](size, again)).served <= replay(again, Belady(size, again)).served
                   for name in EVICTION)


def test_heads_leave_before_tails_with_lru_and_tails_before_heads_in_vllm():
    requests = [[0, 1, 2], [0, 1, 3], [0, 1, 2]]
    assert hits(Lru, 3, requests) == ["...", "xx.", "xx."]
    assert hits(Lru, 2, requests) == ["...", "...", "..."]                  # 1 evicts 0 before it is asked for again
    assert hits(Vllm, 3, requests) == ["...", "xx.", "xx."]
    assert hits(Vllm, 2, requests) == ["...", "xx.", "xx."]                 # as many blocks of the head as there is room for
    assert hits(Vllm, 4, requests) == ["...", "xx.", "xxx"]                 # room for all four


def test_vllm_evicts_the_tail_of_the_request_that_ended_first():
    # free queue, first to leave first: 2 1 0 | 2 1 0 5 4 3 | 6 takes 2, so 1 0 5 4 3 6
    assert hits(Vllm, 6, [[0, 1, 2], [3, 4, 5], [6], [0, 1, 2], [3, 4, 5]]) == ["...", "...", ".", "xx.", "xx."]
    # LRU evicts 0; asked for again it evicts 1, and so on through all six
    assert hits(Lru, 6, [[0, 1, 2], [3, 4, 5], [6], [0, 1, 2], [3, 4, 5]]) == ["...", "...", ".", "...", "..."]


def test_a_request_of_vllm_pins_its_own_blocks():
    # 7 8 9 come after 0 was touched: 1 and 2 leave, 0 does not, and 9 finds no room
    assert hits(Vllm, 3, [[0, 1, 2], [0, 7, 8, 9], [0, 7, 8, 9]]) == ["...", "x...", "xxx."]


def test_gdsf_lets_blocks_of_long_prompts_go_first():
    # worth 1, then twice 1/2; 3 evicts the older half and is worth 1.5, for the age grew; 1 and 2 are each other's victims
    assert hits(Gdsf, 3, [[0], [1, 2], [3], [0], [1, 2], [0, 9]]) == [".", "..", ".", "x", "..", "x."]
    assert hits(Lru, 3, [[0], [1, 2], [3], [0], [1, 2], [0, 9]]) == [".", "..", ".", ".", "..", "x."]


def test_hits_behind_a_miss_are_found_and_serve_nothing():
    stream = stream_of([[0, 1, 2], [3], [0, 1, 2]])
    done = replay(stream, Fifo(3, stream))
    assert (done.queries, done.served, done.found, done.hit_rate) == (7, 0, 0, 0.0)
    stream = stream_of([[0], [1, 2], [0, 4], [3, 2]])  # FIFO of 3: 4 evicts 0, 3 evicts 1; 2 is there behind the missing 3
    done = replay(stream, Fifo(3, stream))
    assert (done.queries, done.served, done.found) == (7, 1, 2)


def test_blocks_behind_the_queries_come_in_and_are_not_counted():
    stream = stream_of([[0, 1, 2], [0, 1, 2]], queries=[1, 2])
    done = replay(stream, Lru(3, stream))
    assert (done.queries, done.served, done.found) == (3, 2, 2)


def test_the_bar_moves_once_a_request():
    stream, ticks = stream_of([[0], [1], [0]]), []
    replay(stream, Lru(1, stream), ticks.append)
    assert ticks == [1, 1, 1]


# ---------------------------------------------------------------------- random prefixes
@st.composite
def prefix_streams(draw, most=8, longest=5):
    """Requests that go on from earlier ones; a block is a whole prefix; sometimes with generated blocks behind the queries."""
    rows, numbers = [], {}
    for _ in range(draw(st.integers(1, most))):
        old = draw(st.sampled_from(rows)) if rows else ()
        row = old[:draw(st.integers(0, len(old)))]
        rows.append(row + tuple(draw(st.lists(st.integers(0, 1), min_size=0 if row else 1, max_size=longest - len(row)))))
    requests = [[numbers.setdefault(row[:end], len(numbers)) for end in range(1, len(row) + 1)] for row in rows]
    queries = [draw(st.integers(1, len(row))) for row in rows] if draw(st.booleans()) else None
    return stream_of(requests, queries)


@given(prefix_streams())
@settings(max_examples=150 * LONG)
def test_the_curves_equal_replays_at_every_size(stream):
    for name, distances in CURVES.items():
        curve = lru_hits(stream, distances(stream)).tolist()
        for size in range(1, stream.count + 3):
            assert curve[min(size, stream.count)] == block_by_block(stream, EVICTION[name](size, stream)).served, (name, size)


@given(prefix_streams())
@settings(max_examples=100 * LONG)
def test_a_larger_cache_is_never_worse_and_what_is_found_serves(stream):
    for name in PREFIX_CLOSED:
        done = [replay(stream, EVICTION[name](size, stream)) for size in range(1, stream.count + 1)]
        assert [d.served for d in done] == sorted(d.served for d in done), name
        assert all(d.served == d.found for d in done), name


@given(prefix_streams(), st.integers(1, 4))
@settings(max_examples=100 * LONG)
def test_nobody_beats_belady(stream, size):
    bound = replay(stream, Belady(size, stream))
    for name, make in EVICTION.items():
        done = replay(stream, make(size, stream))
        assert done.served <= done.found and done.served <= bound.served, name


@given(prefix_streams(most=4, longest=3), st.integers(1, 3))
@settings(max_examples=60 * LONG, deadline=None)
def test_belady_equals_the_best_of_all_choices(stream, size):
    assert replay(stream, Belady(size, stream)).served == best(stream, size, in_a_row=True)
    whole = Accesses(stream.blocks, stream.starts, np.diff(stream.starts), stream.count, 16)
    assert replay(whole, Belady(size, whole)).found == best(whole, size, in_a_row=False)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.integers(1, 3))
@settings(max_examples=60 * LONG, deadline=None)
def test_belady_is_the_best_for_single_blocks_too(blocks, size):
    stream = stream_of([[block] for block in blocks])
    assert replay(stream, Belady(size, stream)).found == best(stream, size, in_a_row=False)


def best(stream, size, in_a_row):
    """Most hits over every choice of who leaves or stays out; only those in a row from the head count, or all."""
    blocks = stream.blocks.tolist()
    owner = np.repeat(np.arange(len(stream.queries)), np.diff(stream.starts)).tolist()
    asked = stream.leading().tolist()

    @cache
    def most(at, cached, unbroken):
        if at == len(blocks):
            return 0
        block = blocks[at]
        unbroken = unbroken or at == 0 or owner[at] != owner[at - 1]
        if block in cached:
            return (asked[at] and (unbroken or not in_a_row)) + most(at + 1, cached, unbroken)
        choices = [cached]
        choices += [cached | {block}] if len(cached) < size else [cached - {victim} | {block} for victim in cached]
        return max(most(at + 1, choice, False) for choice in choices)

    return most(0, frozenset(), True)


# ---------------------------------------------------------------------- what every policy keeps
@pytest.mark.parametrize("name", EVICTION)
def test_a_cache_of_no_room_is_refused(name):
    with pytest.raises(ValueError, match="at least 1 block, not 0"):
        EVICTION[name](0, stream_of([[0]]))


@pytest.mark.parametrize("name", EVICTION)
@given(stream=prefix_streams())
@settings(max_examples=40 * LONG)
def test_room_for_all_blocks_is_an_endless_cache(name, stream):
    endless = int(lru_hits(stream, reuse_distances(stream))[-1])
    done = replay(stream, EVICTION[name](stream.count, stream))
    assert (done.served, done.found, done.queries) == (endless, endless, int(stream.queries.sum()))


@pytest.mark.parametrize("name", EVICTION)
@given(stream=prefix_streams(), size=st.integers(1, 4))
@settings(max_examples=40 * LONG)
def test_no_more_blocks_than_room_and_none_that_never_came(name, stream, size):
    policy, seen = EVICTION[name](size, stream), set()
    for request in range(len(stream.queries) - 1):     # Belady knows no access behind the last
        policy.begin(request)
        for block in stream.blocks[stream.starts[request]:stream.starts[request + 1]].tolist():
            assert policy.access(block) <= (block in seen)
            seen.add(block)
        policy.end(request)
        there = {block for block in range(stream.count) if copy.deepcopy(policy).access(block)}
        assert len(there) <= size and there <= seen


@pytest.mark.parametrize("name", EVICTION)
@given(stream=prefix_streams(), size=st.integers(1, 4))
@settings(max_examples=20 * LONG)
def test_the_same_counts_twice(name, stream, size):
    assert replay(stream, EVICTION[name](size, stream)) == replay(stream, EVICTION[name](size, stream))


# ---------------------------------------------------------------------- on real traffic
SIZES = (1827, 9139, 18279, 45697)
RECORDED = {                                           # libcachesim 0.3.5 from PyPI: hits on the same stream of 288,500 accesses
    "lru": ("LRU", (15080, 56382, 80323, 101978)), "fifo": ("FIFO", (14565, 51808, 73806, 96469)),
    "s3-fifo": ("S3FIFO", (19476, 53500, 64853, 81233)), "sieve": ("Sieve", (16789, 36602, 56207, 97050)),
    "lfu": ("LFU", (16789, 36602, 56207, 97050)),
}


@pytest.fixture(scope="module")
def conversation():
    return accesses(read_trace(shared_trace("mooncake/conversation_trace.jsonl")), 512, "ceil")


@pytest.mark.parametrize("name", RECORDED)
def test_libcachesims_counts(conversation, name):
    found = tuple(replay(conversation, EVICTION[name](size, conversation)).found for size in SIZES)
    assert found == RECORDED[name][1]


@pytest.mark.parametrize("name", RECORDED)
def test_libcachesim_itself_where_it_is_installed(conversation, name):
    libcachesim = pytest.importorskip("libcachesim")
    for size, recorded in zip(SIZES, RECORDED[name][1], strict=True):
        theirs, request, found = getattr(libcachesim, RECORDED[name][0])(cache_size=size), libcachesim.Request(), 0
        request.obj_size = 1
        for request.clock_time, request.obj_id in enumerate(conversation.blocks.tolist()):
            found += theirs.get(request)
        assert found == recorded


@pytest.mark.parametrize(("name", "rates"), [
    ("lru", [".0523", ".1954", ".2784", ".3535", ".3631"]), ("vllm", [".0525", ".1958", ".2789"])])
def test_both_queues_on_mooncake_by_curve_and_by_replay(conversation, name, rates):
    curve = lru_hits(conversation, CURVES[name](conversation))
    for share, rate in zip((0.01, 0.05, 0.1, 0.25, 0.5), rates, strict=False):
        size = int(share * conversation.count)
        done = block_by_block(conversation, EVICTION[name](size, conversation))
        assert (int(curve[size]), f"{done.hit_rate:.4f}") == (done.served, "0" + rate)
