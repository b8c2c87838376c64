"""A warm start: before the first request arrives, the cache holds what an earlier trace left there.

    rows of the allocators' demand    [ the trace: 0 ... n - 1 | the earlier trace: n ... ]
                                        served by the engine     served here, one after the other, each of them alone

Only the allocator knows the rows behind the trace's own; to the engine, the log and the results they do not exist. An earlier
request is admitted with all the tokens it ends with, what is cached of its prompt being found first, and gives its blocks
back at once: the pool, its free queue and a host tier are as if a server had served it alone. Then counting begins.

Of several replicas a router says who serves it, as it does later. Nobody runs or waits then, so what counts as running is how
many each has served: by load, earlier requests are dealt out in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sim.demand import Demand
from sim.memory.allocator import Allocator, Ask
from sim.memory.paged import PagedAllocator
from sim.memory.tiered import TieredAllocator
from sim.routing import Router
from workloads.request import ContentIds, IntArray, Trace


class Warmth(NamedTuple):
    """Earlier requests that were served and that could not be, and the blocks they left: in the pool and in a host tier."""

    served: int
    skipped: int
    cached_blocks: int
    host_blocks: int


def demand_behind(trace: Trace, warm: Trace, max_model_len: int) -> Demand:
    """The demand of ``trace`` with the rows of ``warm`` behind its own; one sequence each, in sessions of their own.

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
                 session=_sessions(trace, warm), samples=column(trace.samples, 1), beam_width=column(trace.beam_width, 1))
    return Demand(both, max_model_len)


def _sessions(trace: Trace, warm: Trace) -> IntArray | None:
    """Those of the earlier trace are numbered behind the others: equal numbers of two traces name nothing in common."""
    if trace.session is None and warm.session is None:
        return None
    own, other = (np.full(len(each), -1, np.int64) if each.session is None else each.session for each in (trace, warm))
    return np.concatenate((own, np.where(other < 0, -1, other + int(own.max(initial=-1)) + 1)))


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


class _Earlier:
    """A replica as a router sees it before the first arrival."""

    waiting = 0

    def __init__(self, allocator: PagedAllocator) -> None:
        self.allocator = allocator
        self.running = 0

    def cached_tokens(self, request: int) -> int:
        return self.allocator.find_prefix(request, int(self.allocator.demand.prompt[request])).tokens

    def serve(self, request: int, end: int) -> None:
        ask = Ask(request, end, self.allocator.find_prefix(request, int(self.allocator.demand.prompt[request])), end, whole=False)
        handle = self.allocator.admit(ask)
        assert handle is not None                      # alone, what is possible fits
        self.allocator.release(handle)
        self.running += 1


def serve_ahead(allocators: Sequence[Allocator], first: int, router: Router) -> list[Warmth]:
    """Let the rows from ``first`` on come and go, in their order; counters of the allocators begin at 0 afterwards.

    What could not be served is noted at the first of them.
    """
    pools = [_Earlier(allocator) for allocator in allocators if isinstance(allocator, PagedAllocator)]
    demand = pools[0].allocator.demand
    possible = ~(pools[0].allocator.impossible() | demand.too_long)
    rows = first + np.flatnonzero(possible[first:])
    for request, end in zip(rows.tolist(), demand.end[rows].tolist(), strict=True):
        pools[router.choose(request, pools) if len(pools) > 1 else 0].serve(request, end)
    return [_left(pool, 0 if i else len(demand) - first - len(rows)) for i, pool in enumerate(pools)]


def _left(pool: _Earlier, skipped: int) -> Warmth:
    allocator = pool.allocator
    allocator.start_counting()
    held = allocator.tier.held if isinstance(allocator, TieredAllocator) else 0
    return Warmth(pool.running, skipped, allocator.pool.cached_free, held)
