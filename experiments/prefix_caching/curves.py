"""The cache view of a trace: the hit rate of every cache size, and what no cache can exceed.

One request runs at a time, in the order of the trace, and nothing else takes room: no clock, no queue, no running requests
that pin blocks. Two curves, of two orders in which blocks leave:

- ``lru``: the block used longest ago; a request uses its blocks head first, so heads leave before tails;
- ``vllm``: vLLM's free queue, where a request that ends gives its blocks back tail first, so tails leave before heads.

Rates are block-weighted (hits of the blocks looked up) or token-weighted (tokens of the hit blocks of all prompt tokens).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.caching.curve import histogram, lru_hits, reuse_distances
from sim.caching.endless import Hits, Known, known_prefixes
from sim.caching.stream import COLD, Accesses, SmallInts, accesses
from sim.caching.tail_first import tail_first_distances
from workloads.request import IntArray, Trace

JsonObject = dict[str, Any]
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 528, 784, 1024, 1056, 2048, 2096)
"""Powers of two, and blocks that hybrid models were seen to have."""
POINTS = 200
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5)
"""Of the distinct blocks: sizes at which papers give hit rates."""
STEPS = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


@dataclass(frozen=True, eq=False)
class Curve:
    """Hits by cache size: entry ``c`` of ``blocks`` and ``tokens`` is with room for ``c`` blocks."""

    blocks: IntArray
    tokens: IntArray
    query_blocks: int
    query_tokens: int

    def at(self, size: int) -> Hits:
        """Hits of a cache with room for that many blocks.

        >>> Curve(np.array([0, 3, 4]), np.array([0, 48, 60]), 5, 80).at(7)
        Hits(query_tokens=80, hit_tokens=60, query_blocks=5, hit_blocks=4)
        """
        place = min(size, len(self.blocks) - 1)
        return Hits(self.query_tokens, int(self.tokens[place]), self.query_blocks, int(self.blocks[place]))

    def smallest(self, tokens: float) -> int | None:
        """The fewest blocks with at least that many hit tokens; None where no size has.

        >>> curve = Curve(np.array([0, 3, 4]), np.array([0, 48, 60]), 5, 80)
        >>> curve.smallest(0), curve.smallest(48), curve.smallest(48.5), curve.smallest(61)
        (0, 1, 2, None)
        """
        place = int(np.searchsorted(self.tokens, tokens))
        return None if place == len(self.tokens) else place


@dataclass(frozen=True, eq=False)
class View:
    """A trace's block accesses at one block size and convention, both curves and the bound."""

    trace: Trace
    stream: Accesses
    known: Known
    endless: Hits
    distances: SmallInts
    tail_distances: SmallInts
    lru: Curve
    vllm: Curve
    convention: str

    def rows(self, curve: Curve, sizes: Iterable[int], gib_per_block: float | None) -> list[JsonObject]:
        """One row a size, in blocks of the stream."""
        return [{**room(size, gib_per_block), **rates(curve.at(size))} for size in sizes]


def view(trace: Trace, block_size: int, convention: str = "full") -> View:
    """Read both curves and the bound off a trace.

    Raises
    ------
    ValueError
        As `accesses`.

    >>> from workloads.request import ContentIds
    >>> content = ContentIds(np.array([1, 2, 1, 3, 1, 2]), np.array([0, 2, 4, 6]), 16)
    >>> found = view(Trace("three", np.array([32, 32, 40]), np.ones(3, int), content=content), 16)
    >>> found.lru.blocks.tolist(), found.vllm.blocks.tolist(), found.endless.hit_tokens
    ([0, 0, 2, 3], [0, 2, 2, 3], 48)
    """
    stream = accesses(trace, block_size, convention, generated=convention == "full")
    known = known_prefixes(trace)
    endless = known.full(block_size) if convention == "full" else known.ceil()
    tokens = None if convention == "full" else _tokens(trace, stream)
    near, tail = reuse_distances(stream), tail_first_distances(stream)
    return View(trace, stream, known, endless, near, tail, _curve(stream, near, endless, tokens),
                _curve(stream, tail, endless, tokens), convention)


def looked_up(stream: Accesses) -> int:
    """Distinct blocks of prompts; generated ones besides take room and are not looked up."""
    return len(np.unique(stream.blocks[stream.leading()]))


def _curve(stream: Accesses, distances: SmallInts, endless: Hits, tokens: IntArray | None) -> Curve:
    blocks = lru_hits(stream, distances)
    weighed = blocks * stream.block_size if tokens is None else lru_hits(stream, distances, weights=tokens)
    return Curve(blocks, weighed, endless.query_blocks, endless.query_tokens)


def _tokens(trace: Trace, stream: Accesses) -> IntArray:
    """Prompt tokens of each access: fewer than a block in a last partial one."""
    counts = np.diff(stream.starts)
    place = np.arange(len(stream)) - np.repeat(stream.starts[:-1], counts)
    left: IntArray = np.clip(np.repeat(trace.prompt_tokens, counts) - place * stream.block_size, 0, stream.block_size)
    return left


# ---------------------------------------------------------------------- rows
def room(blocks: int, gib_per_block: float | None) -> JsonObject:
    """A size in blocks, and in GiB where the bytes of a block are known."""
    return {"blocks": blocks, "gib": None if gib_per_block is None else blocks * gib_per_block}


def rates(hits: Hits) -> JsonObject:
    """Both shares, named."""
    return {"hit_rate_blocks": hits.of_blocks, "hit_rate_tokens": hits.of_tokens}


def sizes(count: int, more: Iterable[int] = ()) -> list[int]:
    """Sizes at which a curve is given: evenly in their logarithm, the papers' shares, and those asked for.

    >>> sizes(5, [2, 9]), len(sizes(10**6)) <= POINTS + len(SHARES), sizes(0)
    ([1, 2, 3, 4, 5], True, [])
    """
    if not count:
        return []
    spread = np.geomspace(1, count, POINTS).round().astype(np.int64).tolist()
    wanted = {*spread, *(int(share * count) for share in SHARES), *more, count}
    return sorted(size for size in wanted if 1 <= size <= count)


def goals(found: View, gib_per_block: float | None) -> list[JsonObject]:
    """The smallest caches for round shares of the prompt tokens, and for all there is to find, by both queues."""
    bound = found.endless
    if not bound.hit_tokens:
        return []
    step = next((step for step in STEPS if bound.of_tokens >= 3 * step), STEPS[-1])
    shares = [round(step * k, 4) for k in range(1, int(bound.of_tokens / step) + 1)]
    wanted = [(share, share * bound.query_tokens) for share in shares if share < bound.of_tokens]
    rows = []
    for share, tokens in [*wanted, (bound.of_tokens, bound.hit_tokens)]:
        places = {name: curve.smallest(tokens) for name, curve in (("vllm", found.vllm), ("lru", found.lru))}
        rows.append({"hit_rate_tokens": share,
                     **{name: None if size is None else room(size, gib_per_block) for name, size in places.items()}})
    return rows


def endless(found: View) -> JsonObject:
    """The bound: a cache that never forgets; with vLLM's last-token rule apart where blocks are whole ones."""
    hits = found.endless
    made = {"hit_rate_tokens": hits.of_tokens, "hit_rate_blocks": hits.of_blocks, "query_tokens": hits.query_tokens,
            "hit_tokens": hits.hit_tokens, "query_blocks": hits.query_blocks, "hit_blocks": hits.hit_blocks}
    whole = found.convention == "full"
    return {**made, "last_token_rule": last_token_rule(found.known, found.stream.block_size) if whole else None}


def last_token_rule(known: Known, block_size: int) -> JsonObject:
    """What is left where the last token of a prompt is always computed, as in vLLM."""
    hits = known.full(block_size, last_token_rule=True)
    return {"hit_tokens": hits.hit_tokens, "hit_rate_tokens": hits.of_tokens}


def block_sizes(known: Known, wanted: Sequence[int]) -> list[JsonObject]:
    """The bound by block size, whole blocks only.

    >>> rows = block_sizes(Known(np.array([40, 40]), np.array([0, 35]), np.array([3, 3]), np.array([0, 3]), 16), [1, 16, 36])
    >>> [row["hit_tokens"] for row in rows]
    [35, 32, 0]
    """
    rows = []
    for size in sorted(set(wanted)):
        hits = known.full(size)
        rows.append({"block_size": size, "query_blocks": hits.query_blocks, "hit_blocks": hits.hit_blocks, **rates(hits),
                     "hit_tokens": hits.hit_tokens, "last_token_rule": last_token_rule(known, size)})
    return rows


def reuse(found: View) -> JsonObject:
    """How many other blocks were used between two uses of a block: all lookups, by powers of two."""
    asked = found.distances[found.stream.leading()]
    return {"lookups": len(asked), "first_uses": int(np.count_nonzero(asked == COLD)),
            "histogram": [{"least": low, "most": high, "lookups": n} for low, high, n in histogram(asked)]}
