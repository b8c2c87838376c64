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

from sim.caching.curve import piece_distances
from sim.caching.pieces import Pieces, pieces
from sim.caching.stream import COLD, Accesses, SmallInts


def tail_first_distances(stream: Accesses) -> SmallInts:
    """Blocks more recent than each access's when its request begins; COLD where it was never used.

    Use it as the distances of `curve.lru_hits`; queries of a request that does not fit into the pool are not barred.

    >>> stream = Accesses(np.array([0, 1, 2, 0, 1, 3, 0, 1, 2], np.int32), np.array([0, 3, 6, 9]), np.array([3, 3, 3]), 4, 16)
    >>> tail_first_distances(stream).tolist()          # after request 1: 0 1 3 2 from the most to the least recent
    [-1, -1, -1, 0, 1, -1, 0, 1, 3]
    """
    cut = pieces(stream)
    counts = np.diff(cut.stream.starts)
    turned = np.repeat(cut.stream.starts[:-1] + cut.stream.starts[1:] - 1, counts) - np.arange(len(cut.stream))
    lengths = cut.lengths
    back = Pieces(replace(cut.stream, blocks=cut.stream.blocks[turned]), np.append(0, np.cumsum(lengths[turned])))
    distances = piece_distances(back)[turned]
    deeper = np.repeat(stream.starts[1:], counts) - cut.starts[:-1] - 1        # than a piece's first block; each has one less
    from_start = (distances - deeper - cut.starts[:-1]).astype(np.int32)
    found = np.arange(len(stream), dtype=np.int32)
    found += np.repeat(from_start, lengths)
    found[np.repeat(distances == COLD, lengths)] = COLD
    return found
