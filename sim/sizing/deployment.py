"""What is to be planned, under vLLM's names, and its defaults by version and GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from sim.kv_formula import ELEMENT_BYTES
from sim.models.mixers import Attention, CacheFormat, Latent, State
from sim.models.model import ModelShape
from sim.sizing.budget import Measured, Serving
from sim.sizing.hardware import Gpu, default_limits
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


def check(asked: Deployment) -> None:
    """What vLLM refuses to start with (rule 21, and the ways of sharing out tokens and heads)."""
    seqs, tokens = asked.limits()
    if tokens < seqs:
        raise InputError(f"max_num_batched_tokens ({tokens}) must be at least max_num_seqs ({seqs}), as in vLLM")
    if asked.enable_chunked_prefill is False and tokens < asked.longest:
        raise InputError(f"without chunked prefill max_num_batched_tokens ({tokens}) must be at least max_model_len "
                         f"({asked.longest}), as in vLLM")
    spread, ranks = asked.decode_context_parallel_size, asked.shards.tensor
    if spread == 1:
        return
    if ranks % spread:
        raise InputError(f"decode_context_parallel_size {spread} does not divide tensor_parallel_size {ranks}")
    kinds = {type(mixer) for layer in asked.model.mixers for mixer in layer}
    windows = any(isinstance(m, Attention) and (m.window or m.chunk) for layer in asked.model.mixers for m in layer)
    if kinds != {Latent} and (windows or spread > ranks // asked.model.kv_heads):
        heads = asked.model.kv_heads
        why = "windows" if windows else f"{heads} KV heads, which leave {ranks // heads} copies to spread tokens over"
        raise InputError(f"decode_context_parallel_size {spread} on {ranks} GPUs: {asked.model.name} has {why}")


def serving(asked: Deployment) -> Serving:
    """What sets the budget, defaults filled in."""
    seqs, tokens = asked.limits()
    utilization = asked.gpu_memory_utilization or asked.version.default_utilization
    return Serving(utilization, seqs, tokens, asked.shards, asked.dtype, asked.cpu_offload_gib, asked.enforce_eager,
                   asked.version, asked.measured)
