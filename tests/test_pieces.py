"""Streams in pieces: cut by hand, against counting, and what they spare a replay of one size."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG

from sim.caching.curve import piece_distances, reuse_distances
from sim.caching.pieces import pieces
from sim.caching.policies import Fifo, Lru
from sim.caching.replay import Replayed, block_by_block, replay
from sim.caching.stream import COLD, Accesses
from sim.caching.tail_first import tail_first_distances


def stream_of(requests, queries=None, count=None):
    """Blocks of each request; all are queries unless their numbers are given."""
    flat = [block for request in requests for block in request]
    lengths = [len(request) for request in requests]
    return Accesses(np.array(flat, np.int32), np.cumsum([0, *lengths]),
                    np.array(lengths if queries is None else queries, np.int64), max(flat, default=-1) + 1 + (count or 0), 16)


@st.composite
def streams(draw):
    """Any requests at all: runs of numbers, blocks named twice, no blocks, fewer queries than blocks, numbers nobody has."""
    run = st.builds(lambda first, length: list(range(first, first + length)), st.integers(0, 11), st.integers(0, 5))
    rows = [[b for part in parts for b in part] for parts in draw(st.lists(st.lists(run, max_size=4), max_size=8))]
    queries = [draw(st.integers(0, len(row))) for row in rows] if draw(st.booleans()) else None
    return stream_of(rows, queries, draw(st.integers(0, 3)))


class AtOnce(Lru):
    """However many pieces there are."""
    FEW = 1.0


# ---------------------------------------------------------------------- by hand
def test_a_run_is_cut_where_any_other_begins_or_ends():
    cut = pieces(stream_of([[7, 8, 9, 10], [7, 8, 20, 21], [7, 8, 9, 10, 20, 21]]))
    blocks = [list(range(first, first + n)) for first, n in ((7, 2), (9, 2), (7, 2), (20, 2), (7, 2), (9, 2), (20, 2))]
    assert cut.lengths.tolist() == [len(piece) for piece in blocks]
    assert cut.starts.tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    number = cut.stream.blocks.tolist()
    assert [number.index(n) for n in number] == [0, 1, 0, 3, 0, 1, 3]
    assert (cut.stream.starts.tolist(), cut.stream.queries.tolist()) == ([0, 2, 4, 7], [2, 2, 3])
    # 20 was used before 7 8 9 10 of the last request: four others, and 21
    assert piece_distances(cut).tolist() == [COLD, COLD, 3, COLD, 3, 5, 5]


def test_requests_and_their_queries_end_a_piece():
    cut = pieces(stream_of([[0, 1, 2, 3], [], [4, 5]], queries=[3, 0, 0]))
    assert cut.starts.tolist() == [0, 3, 4, 6]
    assert (cut.stream.starts.tolist(), cut.stream.queries.tolist()) == ([0, 2, 2, 3], [1, 0, 0])


def test_nothing_is_no_piece():
    cut = pieces(stream_of([[], []]))
    assert (len(cut.stream), cut.starts.tolist(), cut.stream.starts.tolist()) == (0, [0], [0, 0, 0])
    assert piece_distances(cut).tolist() == []


def test_a_request_longer_than_the_cache_and_one_that_evicts_what_it_looks_up_later():
    # of 4 blocks: 0-5 leaves 2-5; 0 evicts 2, 1 evicts 3, 2 evicts 4 and so on, though all four were there at the beginning
    stream = stream_of([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [4, 5, 2, 3], [4, 5, 4, 5]])
    assert replay(stream, AtOnce(4, stream)) == Replayed(queries=20, served=8, found=8)


def test_hits_behind_a_miss_and_behind_the_queries():
    stream = stream_of([[0, 1, 2, 3], [9, 2, 3], [2, 3, 1]], queries=[4, 3, 2])
    assert replay(stream, AtOnce(4, stream)) == Replayed(queries=9, served=2, found=4)


# ---------------------------------------------------------------------- against counting
@given(streams())
@settings(max_examples=200 * LONG)
def test_pieces_are_the_stream(stream):
    cut = pieces(stream)
    blocks = [tuple(stream.blocks[a:b].tolist()) for a, b in zip(cut.starts[:-1], cut.starts[1:], strict=True)]
    assert [b for piece in blocks for b in piece] == stream.blocks.tolist()
    of = dict(zip(cut.stream.blocks.tolist(), blocks, strict=True))
    assert [of[number] for number in cut.stream.blocks.tolist()] == blocks
    assert sum(map(len, of.values())) == len(set(stream.blocks.tolist())) and max(of, default=-1) < cut.stream.count
    assert cut.starts[cut.stream.starts].tolist() == stream.starts.tolist()
    asked = cut.starts[cut.stream.starts[:-1] + cut.stream.queries] - cut.starts[cut.stream.starts[:-1]]
    assert asked.tolist() == stream.queries.tolist()


@given(streams())
@settings(max_examples=200 * LONG)
def test_distances_equal_counting(stream):
    blocks, ours = stream.blocks.tolist(), reuse_distances(stream)
    assert ours.dtype == np.int32
    for i, block in enumerate(blocks):
        seen = [j for j in range(i) if blocks[j] == block]
        assert ours[i] == (len(set(blocks[seen[-1] + 1:i])) if seen else COLD)


@given(streams())
@settings(max_examples=200 * LONG)
def test_distances_tail_first_are_those_of_requests_turned_round(stream):
    rows = [stream.blocks[a:b].tolist() for a, b in zip(stream.starts[:-1], stream.starts[1:], strict=True)]
    turned = reuse_distances(stream_of([row[::-1] for row in rows])).tolist()
    expected = []
    for row, start in zip(rows, stream.starts.tolist(), strict=False):
        theirs = turned[start:start + len(row)][::-1]
        expected += [COLD if there == COLD else there - (len(row) - 1 - k) for k, there in enumerate(theirs)]
    ours = tail_first_distances(stream)
    assert (ours.tolist(), ours.dtype) == (expected, np.int32)


# ---------------------------------------------------------------------- replays of one size
@given(streams(), st.integers(1, 20))
@settings(max_examples=400 * LONG)
def test_at_once_is_as_block_by_block(stream, size):
    assert replay(stream, AtOnce(size, stream)) == block_by_block(stream, Lru(size, stream))


def test_at_once_is_as_block_by_block_on_many_requests():
    rng = np.random.default_rng(7)
    rows = [[b for first in rng.integers(0, 60, 4) * 30 for b in range(first, first + 10 * rng.integers(1, 6))]
            for _ in range(300)]
    stream = stream_of(rows, [rng.integers(0, len(row) + 1) for row in rows])
    assert len(pieces(stream).stream) * 2 < len(stream)
    for size in (1, 29, 30, 31, 300, 1000, 1500, 5000):
        assert replay(stream, Lru(size, stream)) == block_by_block(stream, Lru(size, stream)), size


def test_where_pieces_are_many_or_the_cache_was_used_it_goes_block_by_block():
    single, runs = stream_of([[0, 2, 4]]), stream_of([[0, 1, 2, 3], [0, 1, 2, 3]])
    assert Lru(2, single).at_once(single) is None and Lru(2, runs).at_once(runs) is not None
    used = Lru(4, runs)
    used.access(0)
    assert replay(runs, used).found == 5
    assert Fifo(4, runs).at_once(runs) is None


def test_the_bar_moves_once_by_all_requests():
    stream, ticks = stream_of([[0, 1, 2, 3], [], [0, 1, 2, 3]]), []
    replay(stream, Lru(1, stream), ticks.append)
    assert ticks == [3]
