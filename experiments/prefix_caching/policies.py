"""Eviction policies beside each other: replays of the cache view at a few sizes.

A replay, but for that of `lru`, goes block by block in Python. Where that would take long it uses larger blocks than the curves
do, those of the trace's own ids, inside which nothing is known to differ. Sizes are the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sim.caching.endless import Hits
from sim.caching.replay import replay
from sim.caching.stream import Accesses, accesses
from sim.catalog import EVICTION
from workloads.request import Trace

JsonObject = dict[str, Any]
Tick = Callable[[int], None]
MOST_ACCESSES = 25_000_000
"""Block accesses that the replays chosen by default may take together: about 10 to 20 s."""
SEVERAL = 5                                            # sizes that should be affordable before larger blocks are taken
AROUND = (1.0, 4.0, 16.0, 64.0, 0.25, 2.0, 8.0, 32.0, 0.5)
"""Times today's pool, the most telling first."""
FRACTIONS = (0.1, 0.5, 0.01, 0.25, 0.05)
"""Of the distinct blocks, where today's pool holds them all."""


def default_sizes(pool: int | None, count: int, accesses_a_size: int) -> list[int]:
    """Sizes in blocks around today's pool up to the distinct blocks; fewer where replays are long.

    >>> default_sizes(100, 1000, 10**6), default_sizes(100, 1000, 20 * 10**6), default_sizes(5000, 1000, 10**6)
    ([25, 50, 100, 200, 400, 800], [100], [10, 50, 100, 250, 500])
    """
    around = [int(pool * times) for times in AROUND if 1 <= int(pool * times) < count] if pool and pool < count else []
    wanted = around or [int(count * share) for share in FRACTIONS if int(count * share)] or [count]
    affordable = max(1, MOST_ACCESSES // max(accesses_a_size, 1))
    return sorted(list(dict.fromkeys(wanted))[:affordable])


def replays(trace: Trace, stream: Accesses, names: Sequence[str], sizes: Sequence[JsonObject], block_size: int,
            whole: bool, watch: Callable[[str, int], Tick]) -> dict[str, list[JsonObject]]:
    """Every policy at every size.

    Parameters
    ----------
    trace : Trace
    stream : Accesses
        What is replayed.
    names : sequence of str
        Of `EVICTION`.
    sizes : sequence of dict
        `curves.room` of each, in blocks of the curves.
    block_size : int
        Of the curves; replayed blocks of another size are as many as the same bytes hold.
    whole : bool
        Blocks are whole ones, so that hits can be given in tokens.
    watch : callable
        (policy, requests to come) -> what is called with requests replayed.

    Returns
    -------
    dict
        Policy -> rows. ``found_blocks`` counts hits wherever they stand; only those in a row from the head spare computing.
    """
    return {name: [_row(trace, stream, name, size, block_size, whole, tick) for size in sizes]
            for name in names for tick in (watch(name, len(trace) * len(sizes)),)}


def _row(trace: Trace, stream: Accesses, name: str, size: JsonObject, block_size: int, whole: bool, tick: Tick) -> JsonObject:
    blocks = max(1, size["blocks"] * block_size // stream.block_size)
    done = replay(stream, EVICTION[name](blocks, stream), tick)
    hits = Hits(int(trace.prompt_tokens.sum()), done.served * stream.block_size, done.queries, done.served)
    return {**size, "hit_rate_blocks": hits.of_blocks, "hit_rate_tokens": hits.of_tokens if whole else None,
            "replayed_blocks": blocks, "query_blocks": done.queries, "hit_blocks": done.served, "found_blocks": done.found}


def replayed_stream(trace: Trace, stream: Accesses, names: int, convention: str, asked: int | None) -> Accesses:
    """What is replayed: blocks of the size asked for, else those of the curves, or the trace's own where those are too many."""
    if asked is not None:
        return stream if asked == stream.block_size else accesses(trace, asked, convention, generated=convention == "full")
    span = stream.block_size if trace.content is None else trace.content.span_tokens
    if span <= stream.block_size or names * SEVERAL * len(stream) <= MOST_ACCESSES:
        return stream
    return accesses(trace, span, convention, generated=convention == "full")
