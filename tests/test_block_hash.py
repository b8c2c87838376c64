"""Block hashes as runs of consecutive numbers, against those of each request by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, trace_of

from sim.demand import Demand
from sim.memory.block_hash import BlockHashes


@given(st.data(), st.integers(1, 6), st.integers(1, 5), st.booleans())
@settings(max_examples=200 * LONG)
def test_runs_of_hashes_are_all_hashes(data, block_size, span, cover):
    lengths = data.draw(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9)), min_size=1, max_size=5))
    ids = [data.draw(st.lists(st.integers(0, 2), min_size=0, max_size=-(-p // span))) for p, _ in lengths]
    trace = trace_of(lengths, content=ids, span=span)
    demand = Demand(trace, 1 << 20)
    hashes = BlockHashes(demand, block_size)
    counts = np.array([data.draw(st.integers(0, int(end) // block_size)) for end in demand.end])
    first, many = hashes.runs(counts)
    assert (many > 0).all()
    ours = [n for a, m in zip(first.tolist(), many.tolist(), strict=True) for n in range(a, a + m)]
    assert ours == [n for r, count in enumerate(counts.tolist()) for n in hashes.span(r, 0, count).tolist()]


def test_without_content_all_blocks_are_private():
    hashes = BlockHashes(Demand(trace_of([(20, 1), (9, 1)]), 100), 4)
    assert [column.tolist() for column in hashes.runs(np.array([5, 2]))] == [[0, 5], [5, 2]]
