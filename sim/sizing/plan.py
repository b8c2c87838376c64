"""The plan of a deployment without traffic: what fits, how many at once, and what a server of it would print.

    Deployment  what is asked, vLLM's defaults where it is silent
        |  settle       defaults by version and GPU
        v
    caches -> groups    what each layer keeps, which block tables serve them     (layer_cache, layer_groups)
    budgets             bytes for the KV cache on a rank of each stage           (budget)
    report              blocks, tokens, concurrency, or why it does not start    (startup)
        v
    Plan
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from sim.kv_formula import ELEMENT_BYTES
from sim.models.layer_cache import LayerCache, RequestLimits
from sim.models.layer_groups import Group, group_layers
from sim.models.mixers import CacheFormat, State
from sim.models.model import ModelShape
from sim.sizing.budget import Budget, Measured, Serving, budgets
from sim.sizing.hardware import GIB, Gpu, default_limits
from sim.sizing.startup import Rank, Report, block_bytes, largest_length, report
from sim.sizing.versions import NEWEST, Version
from sim.sizing.weights import Shards
from workloads.request import InputError

CHECKPOINTING = ("H100", "H200", "H20", "GH200", "H800")  # where gated delta nets run on kernels that keep checkpoints
CHECKPOINT_TOKENS = 64


@dataclass(frozen=True)
class Deployment:
    """What is to be planned, under vLLM's names; None is "not given".

    ``available_kv_gib`` or ``num_gpu_blocks_override`` replace the budget, and no GPU is needed then.
    """

    model: ModelShape
    gpu: Gpu | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    block_size: int = 16
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    shards: Shards = field(default_factory=Shards)
    decode_context_parallel_size: int = 1
    num_speculative_tokens: int = 0
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    async_scheduling: bool = False
    disable_hybrid_kv_cache_manager: bool = False
    mamba_cache_mode: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    cpu_offload_gib: float = 0.0
    enforce_eager: bool = False
    version: Version = NEWEST
    measured: Measured = field(default_factory=Measured)
    available_kv_gib: float | None = None
    num_gpu_blocks_override: int | None = None

    @property
    def longest(self) -> int:
        """``max_model_len``, or the model's.

        Raises
        ------
        InputError
            If neither is known.
        """
        longest = self.max_model_len or self.model.max_position_embeddings
        if longest is None:
            raise InputError(f"{self.model.name}: max_position_embeddings is not known: --max-model-len is wanted")
        return longest

    @property
    def kv_dtype(self) -> str:
        """The cache's dtype: as given, as the checkpoint brings scales for, or the model's."""
        asked = self.kv_cache_dtype or self.model.kv_cache_dtype or self.compute_dtype
        return {"fp16": "float16", "bf16": "bfloat16", "fp8_ds_mla": "fp8"}.get(asked, asked)

    @property
    def compute_dtype(self) -> str:
        """The dtype of activations: as given, else the model's (16 bits where that is float32)."""
        own = "float16" if self.model.dtype == "float32" else self.model.dtype
        return self.dtype or own or "float16"

    @property
    def has_states(self) -> bool:
        """Whether some layers keep a fixed state."""
        return any(isinstance(mixer, State) for layer in self.model.mixers for mixer in layer)

    def limits(self) -> tuple[int, int]:
        """``max_num_seqs`` and ``max_num_batched_tokens``: as given, else by GPU and version (rule 53).

        Where prompts are not chunked a step must hold the longest, so the second is at least ``max_model_len``.
        """
        seqs, tokens = default_limits(self.gpu)
        chunked = self.enable_chunked_prefill
        if self.version.first_engine:
            seqs, tokens = 256, 2048
            chunked = self.longest > 32768 if chunked is None else chunked
        if chunked is False:
            tokens = max(tokens, self.longest)
        tokens = self.max_num_batched_tokens or tokens
        return self.max_num_seqs or min(seqs, tokens), tokens


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
        """Bytes one token takes on the deciding rank in all layers that keep tokens."""
        rank = self.ranks[self.deciding]
        return sum(c.bytes_per_token for g in self.groups for i, c in zip(g.layers, g.caches, strict=True) if rank.holds(i))

    @property
    def kv_bytes_per_further_token(self) -> int:
        """Bytes a long request takes more with each token: those of the layers that keep all of them."""
        rank = self.ranks[self.deciding]
        return sum(c.bytes_per_token for g in self.groups for i, c in zip(g.layers, g.caches, strict=True)
                   if rank.holds(i) and c.kind == "full")

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
    form, mode = cache_format(asked)
    caches = asked.model.caches(form, asked.shards.mtp_layers)
    flat = [cache for layer in caches for cache in layer]
    keep = not asked.disable_hybrid_kv_cache_manager \
        and (asked.version.keeps_chunks or not any(cache.kind == "chunked" for cache in flat))
    groups = tuple(group_layers(flat, keep, asked.version.widest_ratio))
    made, bytes_of_stages = _memory(asked)
    ranks = tuple(Rank(available, span) for available, span in zip(bytes_of_stages, _spans(asked, caches), strict=True))
    in_flight = asked.limits()[1] * asked.version.batches_in_flight(asked.async_scheduling, asked.shards.pipeline)
    limits = RequestLimits(asked.longest, in_flight, asked.decode_context_parallel_size, mode)
    return Plan(asked, tuple(map(tuple, caches)), groups, made, ranks, limits,
                report(groups, ranks, limits, asked.version, asked.num_gpu_blocks_override))


def cache_format(asked: Deployment) -> tuple[CacheFormat, str]:
    """How the caches are stored, and how many states a request keeps."""
    version, dtype = asked.version, asked.kv_dtype
    if dtype not in ELEMENT_BYTES:
        raise InputError(f"--kv-cache-dtype {dtype!r}: one of auto, {', '.join(ELEMENT_BYTES)}")
    kinds = {mixer.kind for layer in asked.model.mixers for mixer in layer if isinstance(mixer, State)}
    caching = version.caches_states if asked.enable_prefix_caching is None else asked.enable_prefix_caching
    mode = asked.mamba_cache_mode or version.state_mode(caching and bool(kinds), bool(kinds & {"mamba", "mamba2"}))
    kernel = version.latent_kernel_tokens if asked.model.latent else 16
    checkpointed = set()
    if mode == "align" and version.keeps_checkpoints:
        checkpointed = kinds & {"mamba2"}
        if asked.gpu is not None and asked.gpu.name.startswith(CHECKPOINTING) and "linear_attention" in kinds:
            checkpointed |= {"linear_attention"}
            kernel = CHECKPOINT_TOKENS
    element: int | Fraction = ELEMENT_BYTES[dtype]
    packed = version.packs_sparse_rows and asked.kv_cache_dtype is None
    state_dtype = asked.mamba_ssm_cache_dtype or (None if version.own_state_dtype else asked.compute_dtype)
    return CacheFormat(element, asked.block_size, asked.shards.tensor, int(ELEMENT_BYTES[asked.compute_dtype]), state_dtype,
                       asked.num_speculative_tokens, version.pads_latent_rows, packed, kernel, frozenset(checkpointed),
                       asked.num_speculative_tokens if version.charges_speculation else 0), mode


def serving(asked: Deployment) -> Serving:
    """What sets the budget, defaults filled in."""
    seqs, tokens = asked.limits()
    utilization = asked.gpu_memory_utilization or asked.version.default_utilization
    return Serving(utilization, seqs, tokens, asked.shards, asked.dtype, asked.cpu_offload_gib, asked.enforce_eager,
                   asked.version, asked.measured)


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
    cap = most or asked.model.max_position_embeddings or asked.longest
    return largest_length(lambda length: plan(replace(asked, max_model_len=length)).fits, cap)
