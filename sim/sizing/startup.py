"""The start-up report of a vLLM server: blocks, the "KV cache size" in tokens, the maximum concurrency, and the refusal.

    available bytes of each rank // bytes of a block on it      blocks; the smallest rank decides     (rule 45)
    blocks / blocks a request of max_model_len holds            maximum concurrency                   (rule 46)
    by the rules of the version                                 tokens                                (rules 47 and 52)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.kv_formula import blocks_that_fit, report_lines
from sim.models.layer_cache import RequestLimits
from sim.models.layer_groups import Group
from sim.sizing.versions import NEWEST, Version


@dataclass(frozen=True)
class Report:
    """What a server prints, or why it would not start.

    ``needed_bytes`` is the KV cache of one request of ``max_model_len`` on the rank that decides; ``longest`` the largest
    length that would fit (None where ``max_model_len`` does).
    """

    num_blocks: int
    max_model_len: int
    kv_tokens: int
    max_concurrency: float
    needed_bytes: int
    longest: int | None

    @property
    def starts(self) -> bool:
        """Whether one request of ``max_model_len`` fits (rule 50)."""
        return self.longest is None

    def lines(self) -> list[str]:
        """The log in two lines, as vLLM before 0.28 prints it; since then one, these joined by a comma (rule 48).

        >>> print(*Report(20480, 8001, 327066, 20480 / 501, 1, None).lines(), sep="\\n")
        GPU KV cache size: 327,066 tokens
        Maximum concurrency for 8,001 tokens per request: 40.88x
        """
        return report_lines(self.kv_tokens, self.max_model_len, self.max_concurrency)


@dataclass(frozen=True)
class Rank:
    """One rank's share: its bytes for the KV cache and the layers it holds (all, without pipeline parallelism)."""

    available_bytes: int
    layers: range | None = None

    def holds(self, layer: int) -> bool:
        """Whether the layer's cache is on this rank."""
        return self.layers is None or layer in self.layers


def block_bytes(groups: Sequence[Group], rank: Rank) -> int:
    """Bytes of one pool block on a rank: the largest group's pages (rule 45).

    >>> from sim.models.layer_cache import LayerCache
    >>> block_bytes([Group(tuple(range(32)), (LayerCache("full", 16, 4096),) * 32)], Rank(0))
    2097152
    """
    return max(group.block_bytes(rank.holds) for group in groups)


def report(groups: Sequence[Group], ranks: Sequence[Rank], limits: RequestLimits, version: Version = NEWEST,
           num_gpu_blocks_override: int | None = None) -> Report:
    """The report of a server whose ranks have this much memory for the KV cache.

    >>> from sim.models.layer_cache import LayerCache
    >>> layers = (LayerCache("full", 16, 4096),) * 32
    >>> made = report([Group(tuple(range(32)), layers)], [Rank(40 * 2**30)], RequestLimits(8192))
    >>> made.num_blocks, made.kv_tokens, made.max_concurrency
    (20480, 327680, 40.0)
    """
    sizes = [size for rank in ranks if (size := block_bytes(groups, rank))]
    if num_gpu_blocks_override is None:
        fitting = [blocks_that_fit(rank.available_bytes, size) for rank in ranks if (size := block_bytes(groups, rank))]
        blocks = min(fitting)
        deciding = sizes[fitting.index(blocks)]
    else:
        blocks, deciding = num_gpu_blocks_override, max(sizes)
    held = request_blocks(groups, limits)
    tokens, concurrency = version.tokens_and_concurrency(blocks, groups, limits, held)
    usable = blocks - version.null_block_checked
    longest = None if held <= usable else largest_length(lambda length: request_blocks(groups, _of(limits, length)) <= usable,
                                                         limits.max_model_len)
    return Report(blocks, limits.max_model_len, tokens, concurrency, held * deciding, longest)


def request_blocks(groups: Sequence[Group], limits: RequestLimits) -> int:
    """Pool blocks that one request may hold, over all groups."""
    return sum(group.request_blocks(limits) for group in groups)


def largest_length(fits: Callable[[int], bool], most: int) -> int:
    """The largest length from 1 to ``most`` that fits; 0 if none does. ``fits`` must not become true again.

    >>> largest_length(lambda length: length <= 37, 100)
    37
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _of(limits: RequestLimits, length: int) -> RequestLimits:
    return RequestLimits(length, limits.in_flight_tokens, limits.decode_context_parallel_size, limits.state_mode)
