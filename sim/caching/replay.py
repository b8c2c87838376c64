"""A stream of block accesses through a cache of one size and policy: block by block, or at once where the policy can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.caching.pieces import Pieces
from sim.caching.policies import EvictionPolicy
from sim.caching.stream import Accesses, Mask, leading_run


@dataclass(frozen=True)
class Replayed:
    """What a replay counted, in blocks.

    Parameters
    ----------
    queries : int
        Lookups: the blocks of all prompts.
    served : int
        Hits in a row from the head of the prompt: those that spare computing.
    found : int
        Hits wherever they stand, as caches of single objects count.
    """

    queries: int
    served: int
    found: int

    @property
    def hit_rate(self) -> float:
        """Block-weighted share served; 0 where nothing was looked up."""
        return self.served / self.queries if self.queries else 0.0


def replay(stream: Accesses, policy: EvictionPolicy, tick: Callable[[int], None] = lambda requests: None) -> Replayed:
    """Take every request's blocks through a cache, head first; those behind the queries come in and are not looked up.

    Parameters
    ----------
    stream : Accesses
    policy : EvictionPolicy
        A new one, made for this stream: what is told `at_once` does not come in.
    tick : callable
        Called with the number of requests done since the last call.

    >>> from sim.caching.policies import Lru
    >>> stream = Accesses(np.array([0, 1, 2, 0, 1, 3, 0, 1, 2], np.int32), np.array([0, 3, 6, 9]), np.array([3, 3, 3]), 4, 16)
    >>> replay(stream, Lru(3, stream))
    Replayed(queries=9, served=4, found=4)
    """
    known = policy.at_once(stream)
    if known is None:
        return block_by_block(stream, policy, tick)
    tick(len(stream.queries))
    return _counted(*known, int(np.sum(stream.queries)))


def block_by_block(stream: Accesses, policy: EvictionPolicy, tick: Callable[[int], None] = lambda requests: None) -> Replayed:
    """The same through `access` alone, which is what `at_once` has to equal."""
    served = found = 0
    bounds, queries = stream.starts.tolist(), stream.queries.tolist()
    for request, asked in enumerate(queries):
        blocks = stream.blocks[bounds[request]:bounds[request + 1]].tolist()
        policy.begin(request)
        hits = [policy.access(block) for block in blocks][:asked]
        policy.end(request)
        found += sum(hits)
        served += hits.index(False) if False in hits else asked
        tick(1)
    return Replayed(int(np.sum(stream.queries)), served, found)


def _counted(cut: Pieces, hit: Mask, queries: int) -> Replayed:
    """Every block of a piece hits where the piece does, and no piece lies across the edge of a request's queries."""
    first = cut.stream.starts[:-1]
    served = cut.starts[first + leading_run(cut.stream, hit)] - cut.starts[first]
    return Replayed(queries, int(served.sum()), int(cut.lengths[hit & cut.stream.leading()].sum()))
