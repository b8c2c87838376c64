"""vLLM's free queue for every pool size at once, where one request runs at a time.

A request gives its blocks back tail first, so its head is the last to be evicted: by recency blocks are ordered by the request
that used them last, and among those of one request the head is the most recent. That order does not depend on the size, so the
cache of C blocks is the first C of it, and one pass over the trace serves all sizes, as with exact LRU (`curve`):

    distance of a lookup = blocks that are more recent when the request begins

It is the distance in the stream with each request turned round, less the blocks of the same request that stand before it there:
these are deeper in the prompt, so their own last use is older, and they have not come in yet when the lookup is made.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.caching.curve import reuse_distances
from sim.caching.stream import COLD, Accesses, SmallInts


def tail_first_distances(stream: Accesses) -> SmallInts:
    """Blocks more recent than each access's when its request begins; COLD where it was never used.

    Use it as the distances of `curve.lru_hits`; queries of a request that does not fit into the pool are not barred.

    >>> stream = Accesses(np.array([0, 1, 2, 0, 1, 3, 0, 1, 2], np.int32), np.array([0, 3, 6, 9]), np.array([3, 3, 3]), 4, 16)
    >>> tail_first_distances(stream).tolist()          # after request 1: 0 1 3 2 from the most to the least recent
    [-1, -1, -1, 0, 1, -1, 0, 1, 3]
    """
    counts = np.diff(stream.starts)
    place = np.arange(len(stream)) - np.repeat(stream.starts[:-1], counts)
    deeper = np.repeat(counts, counts) - place - 1
    turned = np.arange(len(stream)) - place + deeper
    distances = reuse_distances(replace(stream, blocks=stream.blocks[turned]))[turned]
    return np.where(distances == COLD, COLD, distances - deeper).astype(np.int32)
