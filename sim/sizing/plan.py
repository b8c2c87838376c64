"""The plan of a deployment without traffic: what fits, how many at once, and what a server of it would print.

    Deployment  what is asked, vLLM's defaults where it is silent
        |               defaults by version and GPU
        v
    caches -> groups    what each layer keeps, which block tables serve them     (layer_cache, layer_groups)
    budgets             bytes for the KV cache on a rank of each stage           (budget)
    report              blocks, tokens, concurrency, or why it does not start    (startup)
        v
    Plan
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from sim.models.layer_cache import KINDS, LayerCache, RequestLimits
from sim.models.layer_groups import Group, group_layers
from sim.sizing.budget import Budget, budgets
from sim.sizing.deployment import Deployment, cache_format, check, serving
from sim.sizing.hardware import GIB
from sim.sizing.startup import Rank, Report, block_bytes, largest_length, report
from workloads.request import InputError


@dataclass(frozen=True)
class Plan:
    """A deployment worked out. ``budgets`` has one entry a pipeline stage; None where it was replaced."""

    deployment: Deployment
    caches: tuple[tuple[LayerCache, ...], ...]
    groups: tuple[Group, ...]
    budgets: tuple[Budget, ...] | None
    ranks: tuple[Rank, ...]
    limits: RequestLimits
    report: Report

    @property
    def deciding(self) -> int:
        """The stage that has room for the fewest blocks."""
        fitting = [(rank.available_bytes // size, i) for i, rank in enumerate(self.ranks)
                   if (size := block_bytes(self.groups, rank))]
        return min(fitting)[1]

    @property
    def budget(self) -> Budget | None:
        """The budget of the deciding stage."""
        return None if self.budgets is None else self.budgets[self.deciding]

    @property
    def available_bytes(self) -> int:
        """Bytes for the KV cache on the deciding rank."""
        if self.deployment.num_gpu_blocks_override is not None:
            return self.report.num_blocks * self.kv_bytes_per_block
        return self.ranks[self.deciding].available_bytes

    @property
    def kv_bytes_per_block(self) -> int:
        """Bytes of one pool block on the deciding rank."""
        return block_bytes(self.groups, self.ranks[self.deciding])

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes one token takes on a rank in all layers that keep tokens; of several stages on the one where it is most."""
        return max(self._bytes_on(rank) for rank in self.ranks)

    @property
    def kv_bytes_per_further_token(self) -> int:
        """Bytes a long request takes more with each token: those of the layers that keep all of them."""
        return max(self._bytes_on(rank, {"full"}) for rank in self.ranks)

    def _bytes_on(self, rank: Rank, kinds: Container[str] = KINDS) -> int:
        return sum(c.bytes_per_token for g in self.groups for i, c in zip(g.layers, g.caches, strict=True)
                   if rank.holds(i) and c.kind in kinds)

    @property
    def fits(self) -> bool:
        """Whether a server of this starts."""
        return self.report.starts


def plan(asked: Deployment) -> Plan:
    """Work out a deployment.

    Raises
    ------
    InputError
        If heads cannot be shared out, a dtype is not known, a width is missing, or nothing says how much memory there is.

    >>> from sim.models.model_config import load_model
    >>> made = plan(Deployment(load_model("Llama-3.1-8B"), available_kv_gib=40, max_model_len=8192))
    >>> made.report.num_blocks, made.report.kv_tokens, made.report.max_concurrency
    (20480, 327680, 40.0)
    """
    check(asked)
    form, mode = cache_format(asked)
    caches = asked.model.caches(form, asked.shards.mtp_layers)
    flat = [cache for layer in caches for cache in layer]
    keep = not asked.disable_hybrid_kv_cache_manager and asked.version.manages_windows \
        and (asked.version.keeps_chunks or not any(cache.kind == "chunked" for cache in flat))
    groups = tuple(group_layers(flat, keep, asked.version.widest_ratio))
    made, bytes_of_stages = _memory(asked)
    ranks = tuple(Rank(available, span) for available, span in zip(bytes_of_stages, _spans(asked, caches), strict=True))
    in_flight = asked.limits()[1] * asked.version.batches_in_flight(asked.async_scheduling, asked.shards.pipeline)
    limits = RequestLimits(asked.longest, in_flight, asked.decode_context_parallel_size, mode)
    return Plan(asked, tuple(map(tuple, caches)), groups, made, ranks, limits,
                report(groups, ranks, limits, asked.version, asked.num_gpu_blocks_override))


def _memory(asked: Deployment) -> tuple[tuple[Budget, ...] | None, list[int]]:
    stages = asked.shards.pipeline
    if asked.available_kv_gib is not None:
        return None, [int(asked.available_kv_gib * GIB)] * stages
    if asked.gpu is None:
        if asked.num_gpu_blocks_override is None:
            raise InputError("a GPU, --available-kv-gib or --num-gpu-blocks-override is wanted")
        return None, [0] * stages
    made = tuple(budgets(asked.model, asked.gpu, serving(asked)))
    return made, [each.available_bytes for each in made]


def _spans(asked: Deployment, caches: list[list[LayerCache]]) -> list[range]:
    """The caches of each stage, by their place in the model: a layer may have none, or several."""
    starts = [0]
    for layer in caches:
        starts.append(starts[-1] + len(layer))
    stages = asked.shards.stages(asked.model.layers)
    last = len(caches)                                 # layers for multi-token prediction are on the last stage
    return [range(starts[stage.start], starts[last if stage is stages[-1] else stage.stop]) for stage in stages]


def longest_that_fits(asked: Deployment, most: int | None = None) -> int:
    """The largest ``max_model_len`` with which a server starts, up to ``most`` (default: the model's own); 0 if none does."""
    def fits(length: int) -> bool:
        try:
            return plan(replace(asked, max_model_len=length)).fits
        except InputError:                             # a step that could not hold the prompt
            return False
    return largest_length(fits, most or asked.model.max_position_embeddings or asked.longest)
