"""The memory budget of one GPU: what is left for the KV cache when weights, activations and overhead are taken off.

    total x gpu_memory_utilization - weights - activation peak - overhead = available for KV      (rule 43)

The activation peak of vLLM's profiling run is the larger of a forward pass over ``max_num_batched_tokens`` tokens and
the sampler over ``max_num_seqs`` rows of logits. Both constants were read off start-up logs that print every other term:
v155, v157, v158 (H100) and v028 (A100) leave 9.3 to 9.9 float32 copies of the logits; v001 and v002 (one prompt of 20,000
and of 29,000 tokens) leave 3 hidden and 3 MLP widths in 16 bits a token. Each term can be replaced by a measured one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sim.models.model import ModelShape
from sim.sizing.hardware import GIB, Gpu
from sim.sizing.versions import NEWEST, Version
from sim.sizing.weights import Shards, format_of, rank_bytes

LOGIT_COPIES = 9.5
NON_TORCH_GIB = (0.13, 0.55)                           # one GPU (v157, v158); with NCCL buffers (v155)
CUDA_GRAPH_GIB = 0.10                                  # v158
FULL_OF_WEIGHTS = 0.9                                  # above this share of the card a warning


@dataclass(frozen=True)
class Measured:
    """Terms that a server printed, in GiB on one GPU; None: not measured, so predicted."""

    total_gib: float | None = None
    weights_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    cuda_graph_gib: float | None = None


@dataclass(frozen=True)
class Serving:
    """What sets the budget besides the model and the GPU, under vLLM's names."""

    gpu_memory_utilization: float = 0.92
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    shards: Shards = field(default_factory=Shards)
    dtype: str | None = None
    cpu_offload_gib: float = 0.0
    enforce_eager: bool = False
    version: Version = NEWEST
    measured: Measured = field(default_factory=Measured)


@dataclass(frozen=True)
class Term:
    """One term of the budget in GiB and the assumption behind it."""

    name: str
    gib: float
    assumption: str


@dataclass(frozen=True)
class Budget:
    """All terms on one GPU; what is available is the first less the others."""

    total: Term
    weights: Term
    activation: Term
    non_torch: Term
    cuda_graphs: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """In the order of the formula."""
        return self.total, self.weights, self.activation, self.non_torch, self.cuda_graphs

    @property
    def overhead_gib(self) -> float:
        """Non-torch memory and CUDA graphs."""
        return self.non_torch.gib + self.cuda_graphs.gib

    @property
    def available_bytes(self) -> int:
        """Bytes for the KV cache on one GPU; negative where the model does not fit."""
        return math.floor((self.total.gib - sum(term.gib for term in self.terms[1:])) * GIB)


def activation_gib(model: ModelShape, max_num_seqs: int, max_num_batched_tokens: int, ranks: int = 1) -> float:
    """The larger of the sampler's and the forward pass's peak, in GiB on one rank.

    >>> from sim.models.model_config import load_model
    >>> round(activation_gib(load_model("Llama-3.1-8B"), 256, 20_000), 2)   # v001: 2.07 left by the other terms
    2.06
    """
    sampler = LOGIT_COPIES * 4 * max_num_seqs * (model.vocab_size or 0)
    width = model.intermediate_size or 4 * model.hidden_size
    if model.experts and model.experts.width and model.experts.per_token:
        width = max(model.experts.per_token * model.experts.width + model.experts.shared_width,
                    width if "dense" in model.mlps else 0)
    forward = 2 * max_num_batched_tokens * 3 * (model.hidden_size + width / ranks)
    return max(sampler, forward) / GIB


def budgets(model: ModelShape, gpu: Gpu, serving: Serving) -> list[Budget]:
    """The budget of one GPU of each pipeline stage; what is left may be negative.

    Raises
    ------
    InputError
        If the ranks cannot share out the heads, or the weights cannot be counted.
    """
    model.check_tensor_parallel(serving.shards.tensor)
    measured, shards = serving.measured, serving.shards
    total = _total(gpu, serving)
    activation = _activation(model, serving)
    several = shards.tensor * shards.pipeline > 1
    non_torch = Term("non-torch", NON_TORCH_GIB[several], "CUDA context" + (" and NCCL buffers" if several else "")
                     + ", as start-up logs show") if measured.non_torch_gib is None \
        else Term("non-torch", measured.non_torch_gib, "measured")
    return [Budget(total, weights, activation, non_torch, _graphs(serving)) for weights in _weights(model, serving)]


# ---------------------------------------------------------------------- the terms
def _total(gpu: Gpu, serving: Serving) -> Term:
    memory, label = gpu.memory_bytes, gpu.describe()
    if serving.measured.total_gib is not None:
        memory, label = round(serving.measured.total_gib * GIB), f"{serving.measured.total_gib:g} GiB measured"
    usable = math.ceil(memory * serving.gpu_memory_utilization) / GIB
    return Term("usable", usable, f"{label} x {serving.gpu_memory_utilization:g}")


def _weights(model: ModelShape, serving: Serving) -> list[Term]:
    shards, moved = serving.shards, serving.cpu_offload_gib
    if serving.measured.weights_gib is not None:
        return [Term("weights", serving.measured.weights_gib, "measured")] * shards.pipeline
    about = f"{model.parameters / 1e9:.2f}e9 parameters, {format_of(model, serving.dtype).describe()}"
    about += f", {shards.mtp_layers} MTP" if shards.mtp_layers else ""
    about += f", / {shards.tensor} GPUs" if shards.tensor > 1 else ""
    about += f", experts over {shards.tensor * shards.data}" if shards.data > 1 and model.experts else ""
    about += f", {moved:g} GiB moved to the CPU" if moved else ""
    terms = []
    for number, size in enumerate(rank_bytes(model, shards, serving.dtype)):
        stage = f", stage {number + 1} of {shards.pipeline}" if shards.pipeline > 1 else ""
        terms.append(Term("weights", max(0.0, (size + rotary_bytes(model)) / GIB - moved), about + stage))
    return terms


def rotary_bytes(model: ModelShape) -> int:
    """The table of rotary positions, which servers count with the weights: 0.03 GiB for 131,072 positions of 128."""
    if model.family.extra_positions is not None or model.max_position_embeddings is None:
        return 0
    width = model.latent.qk_rope_head_dim if model.latent else model.head_dim
    return 2 * model.max_position_embeddings * width


def _activation(model: ModelShape, serving: Serving) -> Term:
    if serving.measured.activation_gib is not None:
        return Term("activation peak", serving.measured.activation_gib, "measured")
    seqs, tokens = serving.max_num_seqs, serving.max_num_batched_tokens
    gib = activation_gib(model, seqs, tokens, serving.shards.tensor)
    return Term("activation peak", gib, f"sampler over {seqs:,} sequences or forward pass over {tokens:,} tokens, the larger")


def _graphs(serving: Serving) -> Term:
    if serving.measured.cuda_graph_gib is not None:
        return Term("CUDA graphs", serving.measured.cuda_graph_gib, "measured")
    if None not in (serving.measured.weights_gib, serving.measured.activation_gib, serving.measured.non_torch_gib):
        return Term("CUDA graphs", 0.0, "not among the terms measured")
    if serving.enforce_eager:
        return Term("CUDA graphs", 0.0, "none with --enforce-eager")
    if not serving.version.deducts_cuda_graphs:
        return Term("CUDA graphs", 0.0, f"vLLM {serving.version} takes them from what utilisation leaves over")
    return Term("CUDA graphs", CUDA_GRAPH_GIB, "as a start-up log shows; grows with captured sizes")
