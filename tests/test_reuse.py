"""Reuse of prefix blocks: by hand, against models of a few lines that keep token lists and queues, and on a public trace."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from cli_run import shared_trace
from hypothesis import given
from hypothesis import strategies as st
from small import config_of, trace_of

from sim.caching.curve import histogram, lru_hits, reuse_distances, weight_above
from sim.caching.endless import Hits, known_prefixes
from sim.caching.stream import COLD, Accesses, accesses, last_access, leading_run
from sim.engine import Engine
from sim.result import scenario
from workloads.readers import read_trace
from workloads.request import ContentIds, Trace


# ---------------------------------------------------------------------- by hand
def three():
    """Spans of 4 tokens: a b C | a b D | a (two of b's tokens)."""
    return trace_of([(12, 1), (11, 1), (6, 1)], content=[[0, 1, 2], [0, 1, 3], [0, 1]])


def test_full_blocks_at_the_traces_own_size():
    stream = accesses(three(), 4)
    assert (stream.blocks.tolist(), stream.starts.tolist(), stream.count) == ([0, 1, 2, 0, 1, 0], [0, 3, 5, 6], 3)
    assert last_access(stream).tolist() == [-1, -1, -1, 0, 1, 3]
    assert reuse_distances(stream).tolist() == [-1, -1, -1, 2, 2, 1]
    assert known_prefixes(three()).full(4) == Hits(29, 12, 6, 3)


def test_every_id_is_a_block_with_ceil():
    stream = accesses(three(), 4, "ceil")
    assert (len(stream), stream.count) == (8, 4)
    assert reuse_distances(stream).tolist() == [-1, -1, -1, 2, 2, -1, 2, 2]
    assert known_prefixes(three()).ceil() == Hits(29, 8 + 6, 8, 4)


def test_small_blocks_inside_a_span_and_large_ones_over_several():
    known = known_prefixes(three())
    assert known.tokens.tolist() == [0, 8, 6]
    assert [known.full(b).hit_blocks for b in (1, 2, 3, 5, 6, 8, 9)] == [14, 7, 4, 2, 2, 1, 0]
    assert len(accesses(three(), 5)) == 2 + 2 + 1


def test_the_last_token_is_always_computed():
    same = trace_of([(8, 1), (8, 1), (9, 1)], content=[[0, 1], [0, 1], [0, 1, 2]])
    known = known_prefixes(same)
    assert known.full(4).hit_tokens == 16
    assert known.full(4, last_token_rule=True).hit_tokens == 4 + 8
    stream = accesses(same, 4)
    counted = stream.leading((same.prompt_tokens - 1) // 4)
    assert lru_hits(stream, reuse_distances(stream), counted).tolist() == [0, 0, 3]


def test_generated_blocks_are_found_by_the_next_turn_and_are_no_queries():
    ids = ContentIds(np.array([0, 1, 2, 0, 1, 2, 3, 4]), np.array([0, 3, 8]), 4, cover_output=True)
    trace = Trace("chat", np.array([6, 13]), np.array([6, 5]), content=ids)
    stream = accesses(trace, 4)
    # 6 + 6 - 1 = 11 states fill two blocks, one of them the prompt's; 13 + 5 - 1 = 17 fill four
    assert (np.diff(stream.starts).tolist(), stream.queries.tolist()) == ([2, 4], [1, 3])
    assert stream.blocks.tolist() == [0, 1, 0, 1, 2, 3]
    known = known_prefixes(trace)
    assert known.tokens.tolist() == [0, 11]
    assert known.full(4) == Hits(19, 8, 4, 2)
    assert lru_hits(stream, reuse_distances(stream)).tolist() == [0, 0, 2, 2, 2]


def test_prompt_blocks_without_identity_take_room_and_are_never_found():
    half = trace_of([(12, 1), (12, 1)], content=[[0], [0]])
    assert accesses(half, 4).blocks.tolist() == [0, 1, 2, 0, 3, 4]
    assert known_prefixes(half).full(4) == Hits(24, 4, 6, 1)


def test_equal_ids_behind_different_ones_are_different_blocks():
    assert accesses(trace_of([(8, 1), (8, 1)], content=[[0, 5], [1, 5]]), 4).count == 4


def test_nothing_at_all():
    empty = Accesses(np.zeros(0, np.int32), np.zeros(3, np.int64), np.zeros(2, np.int64), 0, 16)
    assert lru_hits(empty, reuse_distances(empty)).tolist() == [0]
    assert histogram(reuse_distances(empty)) == []
    short = trace_of([(3, 1), (3, 1)], content=[[0], [0]])
    assert len(accesses(short, 4)) == 0
    assert known_prefixes(short).full(4).of_blocks == 0.0
    assert leading_run(accesses(short, 4), np.zeros(0, bool)).tolist() == [0, 0]


@pytest.mark.parametrize(("size", "convention", "said"), [
    (0, "full", "at least 1 token, not 0"), (8, "ceil", "4 tokens, not 8"), (4, "floor", "'floor'")])
def test_what_does_not_fit_is_named(size, convention, said):
    with pytest.raises(ValueError, match=said):
        accesses(three(), size, convention)


def test_a_trace_without_identity_is_refused():
    with pytest.raises(ValueError, match="by hand has no prefix identity"):
        known_prefixes(trace_of([(4, 1)]))


def test_histogram_in_powers_of_two():
    assert histogram(np.array([0, 1, 1, 3, 8, 15, COLD], np.int32)) == [
        (0, 0, 1), (1, 1, 2), (2, 3, 1), (4, 7, 0), (8, 15, 2)]


# ---------------------------------------------------------------------- against models that keep lists
@st.composite
def shared_prefixes(draw):
    """A trace whose requests go on from earlier ones, and (prompt, all that is kept) of each as lists of tokens.

    A token is (id, place in its span): ids that differ share none of their tokens, ids that are equal all they both have.
    """
    span, cover = draw(st.integers(1, 5)), draw(st.booleans())
    rows, requests = [], []
    for _ in range(draw(st.integers(1, 12))):
        old = draw(st.sampled_from(rows)) if rows else []
        row = old[:draw(st.integers(0, len(old)))]
        row = row + draw(st.lists(st.integers(0, 2), min_size=0 if row else 1, max_size=5))
        total = (len(row) - 1) * span + draw(st.integers(1, span))
        prompt = draw(st.integers(1, total)) if cover else total
        tokens = [(row[i // span], i % span) for i in range(total)]
        rows.append(row)
        requests.append((tokens[:prompt], tokens, prompt))
    flat = np.array([i for row in rows for i in row], np.int64)
    content = ContentIds(flat, np.cumsum([0, *map(len, rows)]), span, cover)
    prompts = np.array([p for _, _, p in requests], np.int64)
    # the last sampled token is never kept, so it takes one output token more than there are kept ones
    output = np.array([len(kept) for _, kept, _ in requests]) - prompts + 1
    return Trace("random", prompts, output, content=content), [(prompt, kept) for prompt, kept, _ in requests]


def blocks_of(tokens, size):
    return [tuple(tokens[:end]) for end in range(size, len(tokens) + 1, size)]


def lru_model(requests, size, room):
    """Hits block by block: (of the queries, leading runs of hits only)."""
    cache, hits, leading = OrderedDict(), 0, 0
    for prompt, kept in requests:
        unbroken = True
        for block in blocks_of(kept, size):
            hit = block in cache
            unbroken &= hit
            if len(block) <= len(prompt):
                hits, leading = hits + hit, leading + unbroken
            cache[block] = True
            cache.move_to_end(block)
            if len(cache) > room:
                cache.popitem(last=False)
    return hits, leading


def endless_model(requests, size, last_token_rule):
    seen, tokens = set(), 0
    for prompt, kept in requests:
        run = 0
        for block in blocks_of(prompt, size):
            if block not in seen:
                break
            run += 1
        tokens += min(run, (len(prompt) - 1) // size if last_token_rule else run) * size
        seen.update(blocks_of(kept, size))
    return tokens


@given(shared_prefixes(), st.integers(1, 7))
def test_endless_hits_equal_sets_of_token_lists(drawn, size):
    trace, requests = drawn
    known, stream = known_prefixes(trace), accesses(trace, size)
    for rule in (False, True):
        assert known.full(size, rule).hit_tokens == endless_model(requests, size, rule)
    assert np.array_equal(leading_run(stream, last_access(stream) != COLD), known.tokens // size)
    assert len(stream) == sum(len(kept) // size for _, kept in requests)
    assert stream.count == len({b for _, kept in requests for b in blocks_of(kept, size)})


@given(shared_prefixes(), st.integers(1, 7))
def test_the_curve_equals_a_queue_of_every_size(drawn, size):
    trace, requests = drawn
    stream = accesses(trace, size)
    distances = reuse_distances(stream)
    curve = lru_hits(stream, distances).tolist()
    for room, ours in enumerate(curve):
        hits, leading = lru_model(requests, size, room)
        assert ours == hits == leading
        assert int(leading_run(stream, (distances != COLD) & (distances < room)).sum()) == ours
    assert sum(n for _, _, n in histogram(distances)) + stream.count == len(stream)


@given(st.lists(st.integers(0, 8), max_size=60))
def test_distances_of_any_stream_equal_counting(blocks):
    whole = Accesses(np.unique(np.array(blocks, np.int32), return_inverse=True)[1].astype(np.int32),
                     np.array([0, len(blocks)]), np.array([len(blocks)]), len(set(blocks)), 1)
    ours = reuse_distances(whole).tolist()
    for i, block in enumerate(blocks):
        seen = [j for j in range(i) if blocks[j] == block]
        assert ours[i] == (len(set(blocks[seen[-1] + 1:i])) if seen else COLD)


@given(st.permutations(list(range(9))), st.lists(st.integers(1, 9), min_size=9, max_size=9))
def test_weight_above_equals_counting(rank, weight):
    expected = [sum(w for r, w in zip(rank[:i], weight, strict=False) if r > rank[i]) for i in range(len(rank))]
    assert weight_above(np.array(rank), np.array(weight)).tolist() == expected


def test_an_endless_pool_of_the_engine_finds_the_same():
    rng = np.random.default_rng(5)
    rows = [(int(p), 3, 10**9 * i) for i, p in enumerate(rng.integers(1, 60, 40))]
    ids = [[int(rng.integers(0, 2)) * 100 + k for k in range(-(-p // 8))] for p, _, _ in rows]
    trace = trace_of(rows, content=ids, span=8)
    for size in (4, 8, 16):
        found = scenario("paged-prefix", Engine(trace, config_of(4_000, size, 1 << 20), "paged-prefix").run())["prefix_cache"]
        assert Hits(*(found[name] for name in ("query_tokens", "hit_tokens", "query_blocks", "hit_blocks"))) == \
            known_prefixes(trace).full(size, last_token_rule=True)


# ---------------------------------------------------------------------- on real traffic
@pytest.fixture(scope="module")
def conversation():
    return read_trace(shared_trace("mooncake/conversation_trace.jsonl"))


def test_endless_cache_on_mooncake(conversation):
    known = known_prefixes(conversation)
    assert known.full(512) == known.full(512, last_token_rule=True) == Hits(144_793_823, 54_063_104, 276_491, 105_592)
    assert (round(known.full(512).of_tokens, 5), round(known.full(512).of_blocks, 4)) == (0.37338, 0.3819)
    ceil = known.ceil()
    assert (ceil.hit_blocks, ceil.query_blocks, round(ceil.of_blocks, 5)) == (105_710, 288_500, 0.36641)
    for rule, blocks in ((False, 3_381_097), (True, 3_381_090)):
        small = known.full(16, last_token_rule=rule)
        assert (small.query_blocks, small.hit_blocks, round(small.of_tokens, 5)) == (9_044_013, blocks, 0.37362)


def test_lru_curve_on_mooncake(conversation):
    stream = accesses(conversation, 512, "ceil")
    assert (len(stream), stream.count) == (288_500, 182_790)
    curve = lru_hits(stream, reuse_distances(stream))
    rates = [f"{curve[int(f * stream.count)] / len(stream):.4f}" for f in (0.01, 0.05, 0.10, 0.25, 0.50, 1.0)]
    assert rates == ["0.0523", "0.1954", "0.2784", "0.3535", "0.3631", "0.3664"]


def test_nine_million_accesses(conversation):
    stream = accesses(conversation, 16)
    curve = lru_hits(stream, reuse_distances(stream))
    assert (len(stream), int(curve[-1])) == (9_044_013, 3_381_097)


def test_a_million_accesses_without_any_order():
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 200_000, 1_000_000).astype(np.int32)
    stream = Accesses(blocks, np.arange(1_000_001), np.ones(1_000_000, np.int64), 200_000, 16)
    distances = reuse_distances(stream)
    assert int((distances == COLD).sum()) == len(np.unique(blocks))
    for i in np.flatnonzero(distances != COLD)[[0, 1_000, 400_000, -1]]:
        last = np.flatnonzero(blocks[:i] == blocks[i])[-1]
        assert distances[i] == len(np.unique(blocks[last + 1:i]))


