"""The only lists: name -> factory. One new thing is one new file and one line here; contract tests pick it up."""

from __future__ import annotations

from collections.abc import Callable

from sim.config import SimConfig
from sim.demand import Demand
from sim.memory.allocator import Allocator
from sim.memory.arena import PLACEMENTS
from sim.memory.contiguous import ContiguousAllocator, reserve_max, reserve_oracle, reserve_pow2
from sim.memory.paged import PagedAllocator
from workloads.request import IntArray


def _contiguous(policy: Callable[[Demand], IntArray]) -> Callable[[Demand, SimConfig], Allocator]:
    def make(demand: Demand, config: SimConfig) -> Allocator:
        return ContiguousAllocator(demand, PLACEMENTS[config.placement](config.usable_slots), policy)
    return make


def _paged(caching: bool) -> Callable[[Demand, SimConfig], Allocator]:
    def make(demand: Demand, config: SimConfig) -> Allocator:
        return PagedAllocator(demand, config.num_blocks, config.block_size, caching, split_freed=config.split_freed)
    return make


ALLOCATORS: dict[str, Callable[[Demand, SimConfig], Allocator]] = {
    "contiguous-max": _contiguous(reserve_max),
    "contiguous-pow2": _contiguous(reserve_pow2),
    "contiguous-oracle": _contiguous(reserve_oracle),
    "paged": _paged(caching=False),
    "paged-prefix": _paged(caching=True),
}
"""Name -> (demand, config) -> allocator, in the order a comparison shows them."""
