"""The memory budget of a GPU: what is left for the KV cache when weights, activations and overhead are taken off.

    total x gpu_memory_utilization - weights - activation peak - overhead = available for KV      (SEMANTICS rule 43)

The activation peak of vLLM's profiling run is the larger of a forward pass over ``max_num_batched_tokens`` tokens and
the sampler over ``max_num_seqs`` rows of logits. The sampler's constant was read off start-up logs that print every
other term: v155, v157, v158 (H100) and v028 (A100) leave 9.3 to 9.9 float32 copies of the logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sim.sizing.hardware import GIB, Gpu
from sim.sizing.model import ModelShape
from workloads.request import InputError

LOGIT_COPIES = 9.5
NON_TORCH_GIB = (0.13, 0.55)                           # one GPU (v157, v158); with NCCL buffers (v155)
CUDA_GRAPH_GIB = 0.10                                  # v158

WEIGHT_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "fp8": 1.0, "int8": 1.0, "nvfp4": 0.5625,
                "mxfp4": 0.53125, "int4": 0.53125, "awq": 0.53125, "gptq": 0.53125}
"""Bytes a parameter. Four-bit groups of 128 carry an fp16 scale and zero: 0.25 bits more; mxfp4 and nvfp4 a scale each
32, 16."""


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
    overhead: Term

    @property
    def available_bytes(self) -> int:
        """Bytes for the KV cache on one GPU; negative where the model does not fit."""
        left = self.total.gib - self.weights.gib - self.activation.gib - self.overhead.gib
        return math.floor(left * GIB)

    def lines(self) -> list[str]:
        """One line a term."""
        terms = (self.total, self.weights, self.activation, self.overhead)
        return [f"{t.name}: {t.gib:.2f} GiB ({t.assumption})" for t in terms]


def weight_bytes(model: ModelShape, dtype: str | None = None) -> float:
    """Bytes of all weights; quantised models keep their embeddings in 16 bits.

    Raises
    ------
    InputError
        If the model's weight format is not known.
    """
    stored = model.quantization or dtype or model.dtype or "bfloat16"
    if stored not in WEIGHT_BYTES:
        raise InputError(f"{model.name}: the size of {stored} weights is not known; "
                         f"known are {', '.join(WEIGHT_BYTES)}")
    if model.quantization is None:
        return model.parameters * WEIGHT_BYTES[stored]
    return (model.parameters - model.embedding_parameters) * WEIGHT_BYTES[stored] + model.embedding_parameters * 2.0


def activation_gib(model: ModelShape, max_num_seqs: int, max_num_batched_tokens: int, ranks: int = 1) -> float:
    """The larger of the sampler's and the forward pass's peak, in GiB on one rank."""
    sampler = LOGIT_COPIES * 4 * max_num_seqs * (model.vocab_size or 0)
    width = 4 * model.hidden_size + 3 * (model.intermediate_size or 4 * model.hidden_size) / ranks
    forward = 2 * max_num_batched_tokens * width
    return max(sampler, forward) / GIB


def budget(model: ModelShape, gpu: Gpu, utilization: float, limits: tuple[int, int], ranks: int = 1,
           dtype: str | None = None) -> Budget:
    """The budget of one GPU of ``ranks``, by `available_bytes`.

    Parameters
    ----------
    limits : tuple of int
        ``max_num_seqs`` and ``max_num_batched_tokens``: they set the activation peak.

    Raises
    ------
    InputError
        If ``ranks`` cannot share out the heads, or if nothing is left for the KV cache; the latter names the smallest
        tensor-parallel size that would do.
    """
    model.check_tensor_parallel(ranks)
    made = _terms(model, gpu, utilization, limits, ranks, dtype)
    if made.available_bytes <= 0:
        raise InputError(f"{model.name} does not fit on {ranks} x {gpu.name}: {made.weights.gib:.2f} GiB weights, "
                         f"{made.activation.gib + made.overhead.gib:.2f} GiB activations and overhead, "
                         f"{made.total.gib:.2f} GiB usable a GPU; "
                         f"{_hint(model, gpu, utilization, limits, ranks, dtype)}")
    return made


def _terms(model: ModelShape, gpu: Gpu, utilization: float, limits: tuple[int, int], ranks: int,
           dtype: str | None) -> Budget:
    usable = math.ceil(gpu.memory_bytes * utilization)
    stored = model.quantization or dtype or model.dtype or "bfloat16"
    return Budget(
        Term("usable", usable / GIB, f"{gpu.describe()} x {utilization:g}"),
        Term("weights", weight_bytes(model, dtype) / ranks / GIB, f"{model.parameters / 1e9:.2f}e9 parameters, {stored}"
             + (f", / {ranks} GPUs" if ranks > 1 else "")),
        Term("activation peak", activation_gib(model, *limits, ranks),
             f"sampler over {limits[0]} sequences or forward pass over {limits[1]} tokens, the larger"),
        Term("overhead", NON_TORCH_GIB[ranks > 1] + CUDA_GRAPH_GIB,
             "non-torch memory and CUDA graphs as start-up logs show"),
    )


def _hint(model: ModelShape, gpu: Gpu, utilization: float, limits: tuple[int, int], ranks: int,
          dtype: str | None) -> str:
    for size in (2**k for k in range(1, 11)):
        if size > ranks and _can_share(model, size) and _terms(model, gpu, utilization, limits, size, dtype).available_bytes > 0:
            return f"--tensor-parallel-size {size} is the smallest that leaves room"
    return "no tensor-parallel size leaves room"


def _can_share(model: ModelShape, ranks: int) -> bool:
    try:
        model.check_tensor_parallel(ranks)
    except InputError:
        return False
    return True
