"""How vLLM groups the layers of a model into block tables that draw from one pool (rules 39, 45 and 51 of docs/rules.md).

    5 full + 29 sliding layers          pool block = 5 pages, whichever group holds it
    group 0   full     0 ..  4            +----+----+----+----+----+
    group 1   sliding  every 6th          | p0 | p1 | p2 | p3 | p4 |
    ...                                   +----+----+----+----+----+
    group 6   sliding  4 layers (one page of its blocks is empty)

Pages of different size are made equal first: by a longer block where one divides the other, else by padding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from sim.models.layer_cache import LayerCache, RequestLimits
from workloads.request import InputError


@dataclass(frozen=True)
class Group:
    """Layers that share a block table: their indices in the model, and the cache of each."""

    layers: tuple[int, ...]
    caches: tuple[LayerCache, ...]

    def block_bytes(self, held: Callable[[int], bool] = lambda layer: True) -> int:
        """Bytes of one block: the pages of the layers that a rank holds."""
        return sum(c.page_bytes for i, c in zip(self.layers, self.caches, strict=True) if held(i))

    def request_blocks(self, limits: RequestLimits) -> int:
        """Blocks of this group that one request may hold: the layer that needs most decides."""
        return max(cache.request_blocks(limits) for cache in self.caches)


def group_layers(caches: Sequence[LayerCache], keep_windows: bool = True, widest_ratio: float = 1.5) -> list[Group]:
    """The groups of a model's layers, in vLLM's order.

    Parameters
    ----------
    caches : sequence of LayerCache
        One a layer, in the model's order.
    keep_windows : bool
        False where the hybrid manager is off: sliding and chunked layers beside full ones are kept in full.
    widest_ratio : float
        Where the most frequent kind has fewer layers than this times the rarest, groups take the larger number.

    Raises
    ------
    InputError
        If latent pages would have to be padded, or if states are to be managed with the hybrid manager off.

    >>> layers = [LayerCache("full", 16, 4096)] * 5 + [LayerCache("sliding", 16, 4096, reach=1024)] * 29
    >>> [len(group.layers) for group in group_layers(layers)]
    [5, 5, 5, 5, 5, 5, 4]
    """
    if not caches:
        raise InputError("no layer of the model keeps a cache")
    if not keep_windows and any(c.kind == "full" for c in caches):
        caches = [c.as_full() for c in caches]
        if len({_type(c) for c in caches}) > 1:
            raise InputError("states need block tables of their own: the hybrid KV cache manager cannot be off")
    if len({_type(c) for c in caches}) == 1:           # one table serves them all, whatever the size of each page
        return [Group(tuple(range(len(caches))), tuple(caches))]
    try:
        caches = equal_pages(caches)
    except InputError:                                 # latent pages beside a window's: the window is kept in full
        if {c.kind for c in caches} != {"full", "sliding"}:
            raise
        return group_layers([c.as_full() for c in caches])
    buckets: dict[LayerCache, list[int]] = {}
    for index, cache in enumerate(caches):
        buckets.setdefault(cache, []).append(index)
    counts = [len(bucket) for bucket in buckets.values()]
    size = max(counts) if max(counts) < widest_ratio * min(counts) else min(counts)
    groups = []
    for bucket in buckets.values():
        tables = -(-len(bucket) // size)
        groups += [Group(tuple(part), tuple(caches[i] for i in part)) for part in (bucket[i::tables] for i in range(tables))]
    return groups


def equal_pages(caches: Sequence[LayerCache]) -> list[LayerCache]:
    """The same layers with pages of one size, the largest (rule 51).

    >>> [c.block_size for c in equal_pages([LayerCache("full", 16, 2048), LayerCache("sliding", 16, 4096, reach=1024)])]
    [32, 16]
    """
    largest = max(c.page_bytes for c in caches)
    return [_with_page(c, largest) for c in caches]


def align_to_state(caches: Sequence[LayerCache], kernel_tokens: int = 16) -> list[LayerCache]:
    """Attention blocks made long enough that a page holds a state; states padded to that page.

    Parameters
    ----------
    kernel_tokens : int
        The block is a multiple of this many tokens and of the block size asked for.

    >>> [c.block_size for c in align_to_state([LayerCache("full", 16, 2048), LayerCache("state", 16, state_bytes=1_073_152)])]
    [528, 528]
    """
    states = [c.page_bytes for c in caches if c.kind == "state"]
    tokens = [c for c in caches if c.kind != "state"]
    if not states or not tokens:
        return list(caches)
    # the attention layer with the smallest row decides: its page must hold the largest state
    row, asked = min(c.bytes_per_token for c in tokens), max(c.block_size for c in tokens)
    step = max(kernel_tokens, asked)
    block = max(asked, step * -(-max(states) // (step * row)))
    page = block * row
    return [replace(c, block_size=block, padded_bytes=page if page > c.own_bytes else None) if c.kind == "state"
            else replace(c, block_size=block) for c in caches]


def _with_page(cache: LayerCache, wanted: int) -> LayerCache:
    if cache.page_bytes == wanted:
        return cache
    if cache.kind != "state" and wanted % cache.page_bytes == 0:
        return replace(cache, block_size=cache.block_size * (wanted // cache.page_bytes))
    if cache.latent:
        raise InputError(f"a latent page of {cache.page_bytes:,} bytes cannot be padded to the {wanted:,} of other layers")
    return replace(cache, padded_bytes=wanted)


def _type(cache: LayerCache) -> Hashable:
    """Layers of one type need the same blocks at the same time."""
    size = cache.page_bytes if cache.kind == "state" else None
    return cache.kind, cache.block_size, cache.reach, cache.speculative_blocks, cache.checkpoint_blocks, size
