"""The only lists: name -> factory. One new thing is one new file and one line here; contract tests pick it up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.config import SimConfig
from sim.demand import Demand
from sim.memory.allocator import Allocator
from sim.memory.arena import PLACEMENTS
from sim.memory.contiguous import ContiguousAllocator, reserve_max, reserve_oracle, reserve_pow2
from sim.memory.paged import PagedAllocator
from sim.memory.reserving import ReservingAllocator
from sim.memory.tiered import TieredAllocator
from sim.memory.vattention import PageAllocator
from sim.routing import LeastLoaded, PrefixAware, RoundRobin, Router, SessionAffinity
from sim.scheduler import Scheduler
from sim.static_batching import StaticScheduler
from workloads.later import LaterTable
from workloads.request import IntArray

if TYPE_CHECKING:
    from sim.caching.policies import EvictionPolicy
    from sim.caching.stream import Accesses


def _contiguous(policy: Callable[[Demand], IntArray]) -> Callable[[Demand, SimConfig], Allocator]:
    def make(demand: Demand, config: SimConfig) -> Allocator:
        return ContiguousAllocator(demand, PLACEMENTS[config.placement](config.usable_slots), policy)
    return make


def _paged(demand: Demand, config: SimConfig) -> Allocator:
    return PagedAllocator(demand, config.num_blocks, config.block_size, caching=False, split_freed=config.split_freed)


def _paged_prefix(demand: Demand, config: SimConfig) -> Allocator:
    if config.tier_blocks:
        return TieredAllocator(demand, config.num_blocks, config.block_size, config.tier_blocks, config.split_freed)
    return PagedAllocator(demand, config.num_blocks, config.block_size, caching=True, split_freed=config.split_freed)


def _reserving(demand: Demand, config: SimConfig) -> Allocator:
    return ReservingAllocator(demand, config.num_blocks, config.block_size, config.split_freed)


def _token(demand: Demand, config: SimConfig) -> Allocator:
    return PagedAllocator(demand, config.usable_slots + 1, 1, caching=False, split_freed=config.split_freed)


def _vattention(demand: Demand, config: SimConfig) -> Allocator:
    return PageAllocator(demand, config.usable_slots, block_slots("vattention", config), config.split_freed)


def block_slots(name: str, config: SimConfig) -> int:
    """Slots of the blocks that an allocator gives out, and in which its host pool and watermark are counted."""
    if name == "vattention":
        if config.page_slots is None:
            raise ValueError("vattention: page_slots is wanted, the tokens of a page")
        return config.page_slots
    return 1 if name == "token" else config.block_size


ALLOCATORS: dict[str, Callable[[Demand, SimConfig], Allocator]] = {
    "contiguous-max": _contiguous(reserve_max),
    "contiguous-pow2": _contiguous(reserve_pow2),
    "contiguous-oracle": _contiguous(reserve_oracle),
    "paged": _paged,
    "paged-prefix": _paged_prefix,
    "paged-reserve": _reserving,
    "token": _token,
    "vattention": _vattention,
}
"""Name -> (demand, config) -> allocator."""

ABOUT = {
    "contiguous-max": "max_model_len slots in a row for each sequence",
    "contiguous-pow2": "prompt + the next power of two of the output, in a row",
    "contiguous-oracle": "exactly what a sequence will fill, in a row: the output length is known beforehand",
    "paged": "blocks, taken one by one as a sequence grows",
    "paged-prefix": "blocks, and full ones are found again by their prefix hash and shared",
    "paged-reserve": "at admission all blocks a sequence may come to need",
    "token": "single slots",
    "vattention": "pages of memory behind a contiguous range of addresses",
}
"""Name -> what a sequence is given, for people; an allocator without a line here goes by its name alone."""

SCHEDULERS = {"continuous": Scheduler, "static": StaticScheduler}
"""`SchedulerConfig.batching` -> scheduler."""

ROUTERS: dict[str, Callable[[Demand], Router]] = {
    "round-robin": RoundRobin, "least-loaded": LeastLoaded, "session-affinity": SessionAffinity, "prefix-aware": PrefixAware,
}
"""Name -> demand -> router."""

EVICTION: LaterTable[Callable[[int, Accesses], EvictionPolicy]] = LaterTable({
    name: f"sim.caching.{place}" for name, place in {
        "vllm": "policies:Vllm", "lru": "policies:Lru", "fifo": "policies:Fifo", "lfu": "policies:Lfu",
        "sieve": "second_chance:Sieve", "s3-fifo": "second_chance:S3Fifo", "gdsf": "worth:Gdsf", "belady": "worth:Belady",
    }.items()})
"""Name -> (room in blocks, stream) -> policy of the cache view; the last is the bound. A replay of requests loads none."""

CACHING = ("paged-prefix",)
"""Allocators that find prefixes again: a host tier and a warm start are theirs."""

DEFAULT = ("contiguous-max", "contiguous-pow2", "contiguous-oracle", "paged", "paged-prefix")
"""What a comparison shows unless asked for others."""
