"""A warm start: before the first request arrives, the cache holds what an earlier trace left there.

    rows of the allocator's demand    [ the trace: 0 ... n - 1 | the earlier trace: n ... ]
                                        served by the engine     served here, one after the other, each of them alone

Only the allocator knows the rows behind the trace's own; to the engine, the log and the results they do not exist. An earlier
request is admitted with all the tokens it ends with, what is cached of its prompt being found first, and gives its blocks
back at once: the pool, its free queue and a host tier are as if a server had served it alone. Then counting begins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sim.demand import Demand
from sim.memory.allocator import Allocator, Ask
from sim.memory.paged import PagedAllocator
from sim.memory.tiered import TieredAllocator
from workloads.request import ContentIds, IntArray, Trace


class Warmth(NamedTuple):
    """Earlier requests that were served and that could not be, and the blocks they left: in the pool and in a host tier."""

    served: int
    skipped: int
    cached_blocks: int
    host_blocks: int


def demand_behind(trace: Trace, warm: Trace, max_model_len: int) -> Demand:
    """The demand of ``trace`` with the rows of ``warm`` behind its own; one sequence each, in no session.

    Raises
    ------
    ValueError
        If the content ids of the two are not of one kind: missing, of other spans, or only one covers generated tokens; if an
        earlier request has several sequences.

    Examples
    --------
    >>> ids = ContentIds(np.array([7, 8]), np.array([0, 2]), 16)
    >>> one = Trace("one", np.array([32]), np.array([1]), content=ids)
    >>> demand_behind(one, replace(one, prompt_tokens=np.array([20])), 4096).prompt.tolist()
    [32, 20]
    """
    content, more = _joined(trace, warm), len(warm)

    def column(values: IntArray | None, fill: int) -> IntArray | None:
        return None if values is None else np.concatenate((values, np.full(more, fill, np.int64)))
    both = Trace(trace.source, np.concatenate((trace.prompt_tokens, warm.prompt_tokens)),
                 np.concatenate((trace.output_tokens, warm.output_tokens)), content=content,
                 session=column(trace.session, -1), samples=column(trace.samples, 1), beam_width=column(trace.beam_width, 1))
    return Demand(both, max_model_len)


def check_warm(trace: Trace, warm: Trace) -> None:
    """Raise what `demand_behind` raises."""
    for one in (trace, warm):
        if one.content is None:
            raise ValueError(f"{one.source} has no prefix identity: nothing could be found again")
    if warm.sequences is not None:
        raise ValueError(f"{warm.source} has several sequences a request: earlier requests are served with one")
    a, b = trace.content, warm.content
    assert a is not None and b is not None
    if a.span_tokens != b.span_tokens:
        raise ValueError(f"an id of {warm.source} stands for {b.span_tokens} tokens and one of {trace.source} for "
                         f"{a.span_tokens}: they do not name the same blocks")
    if a.cover_output != b.cover_output:
        names = (trace.source, warm.source) if a.cover_output else (warm.source, trace.source)
        raise ValueError(f"the ids of {names[0]} go on over generated tokens and those of {names[1]} do not")


def _joined(trace: Trace, warm: Trace) -> ContentIds:
    """The ids of both, one id space."""
    check_warm(trace, warm)
    a, b = trace.content, warm.content
    assert a is not None and b is not None
    return replace(a, ids=np.concatenate((a.ids, b.ids)), starts=np.concatenate((a.starts, b.starts[1:] + a.starts[-1])))


def serve_ahead(allocator: Allocator, first: int) -> Warmth:
    """Let the rows from ``first`` on come and go, in their order; counters of the allocator begin at 0 afterwards."""
    assert isinstance(allocator, PagedAllocator)
    demand = allocator.demand
    possible = ~(allocator.impossible() | demand.too_long)
    rows = first + np.flatnonzero(possible[first:])
    for request, prompt, end in zip(rows.tolist(), demand.prompt[rows].tolist(), demand.end[rows].tolist(), strict=True):
        handle = allocator.admit(Ask(request, end, allocator.find_prefix(request, prompt), end, whole=False))
        assert handle is not None                      # alone, what is possible fits
        allocator.release(handle)
    allocator.start_counting()
    held = allocator.tier.held if isinstance(allocator, TieredAllocator) else 0
    return Warmth(len(rows), len(demand) - first - len(rows), allocator.pool.cached_free, held)
