"""The size of a model's weights: bits a weight by storage format, and each rank's share.

    format      bits a weight                                 what stays in 16 bits
    fp8, int8   8                                             embeddings and output layer
    gptq, awq   bits + 32 / group (an fp16 scale and zero)    embeddings and output layer     4.25 at group 128
    nvfp4       4 + 8 / 16 (an fp8 scale)                     embeddings and output layer
    mxfp4       4 + 8 / 32 (a scale of 8 bits)                all but the routed experts
    Q4_K_M ...  the average of a whole file                   nothing                         GGUF

    a rank holds    its stage's layers / TP;  routed experts / (TP x DP);  embeddings on the first stage, output on the last
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from sim.sizing.model import ModelShape
from sim.sizing.model_names import shortened
from workloads.request import InputError

GROUP_OVERHEAD_BITS = 32                               # an fp16 scale and an fp16 zero a group
GGUF_BITS = {  # bits a weight of a whole Llama-3.1-8B file, measured: README of llama.cpp's quantize tool
    "F16": "16.0005", "BF16": "16.0005", "Q8_0": "8.5008", "Q6_K": "6.5633", "Q5_K_M": "5.7036", "Q5_K_S": "5.5704",
    "Q4_K_M": "4.8944", "Q4_K_S": "4.6672", "Q3_K_L": "4.2979", "Q3_K_M": "3.9960", "Q3_K_S": "3.6429", "Q2_K": "3.1593",
    "Q2_K_S": "2.9697", "IQ4_NL": "4.6818", "IQ4_XS": "4.4597", "IQ3_M": "3.7628", "IQ3_S": "3.6606", "IQ3_XS": "3.4977",
    "IQ3_XXS": "3.2548", "IQ2_M": "2.9294", "IQ2_S": "2.7403", "IQ2_XS": "2.5882", "IQ2_XXS": "2.3824", "IQ1_M": "2.1460",
    "IQ1_S": "2.0042",
    "Q4_0": "4.5", "Q4_1": "5", "Q5_0": "5.5", "Q5_1": "6",  # a block of 32: an fp16 scale, and an fp16 minimum in the _1 types
}
DTYPE_BITS = {"float32": 32, "float16": 16, "bfloat16": 16}


@dataclass(frozen=True)
class WeightFormat:
    """How weights are stored.

    Attributes
    ----------
    bits : Fraction
        Of a quantised weight, scales included.
    other_bits : int
        Of what is not quantised.
    covers : str
        "all", "linear" (embeddings and output layer stay) or "experts" (only routed experts are quantised).
    """

    name: str
    bits: Fraction
    other_bits: int = 16
    covers: str = "all"

    def describe(self) -> str:
        """Name and bits, and what is left in 16 bits.

        >>> weight_format("awq", group_size=128).describe()
        'awq, 4.25 bits a weight, embeddings and output layer in 16'
        """
        rest = {"all": "", "linear": f", embeddings and output layer in {self.other_bits}",
                "experts": f", all but the routed experts in {self.other_bits}"}[self.covers]
        return f"{self.name}, {float(self.bits):g} bits a weight{rest}"


def weight_format(name: str, bits: int | None = None, group_size: int | None = None) -> WeightFormat:
    """The storage format of a dtype, a quantisation method or a GGUF type.

    Parameters
    ----------
    name : str
        A dtype, a method as vLLM names it, or a GGUF type such as ``Q4_K_M``.
    bits, group_size : int, optional
        Of grouped methods: 4 bits in groups of 128 unless given.

    Raises
    ------
    InputError
        If the size of such weights is not known.

    >>> float(weight_format("gptq").bits) / 8
    0.53125
    """
    grouped = Fraction(GROUP_OVERHEAD_BITS, group_size or 128)
    scaled = {"fp8": Fraction(8), "int8": Fraction(8), "int4": Fraction(4), "nvfp4": 4 + Fraction(8, 16),
              "bitsandbytes": Fraction(4) + Fraction(32, 64)}
    if name in DTYPE_BITS:
        return WeightFormat(name, Fraction(DTYPE_BITS[name]), DTYPE_BITS[name])
    if name.upper() in GGUF_BITS:
        return WeightFormat(name.upper(), Fraction(GGUF_BITS[name.upper()]))
    if name in ("gptq", "awq", "w4a16"):
        return WeightFormat(name, (bits or 4) + grouped, covers="linear")
    if name == "mxfp4":
        return WeightFormat(name, 4 + Fraction(8, 32), covers="experts")
    if name == "int4-experts":                         # grouped, symmetric: an fp16 scale a group, no zero
        return WeightFormat(name, 4 + Fraction(16, group_size or 32), covers="experts")
    if name in scaled:
        return WeightFormat(name, scaled[name], covers="linear")
    known = (*DTYPE_BITS, *scaled, "gptq", "awq", "w4a16", "mxfp4", *GGUF_BITS)
    raise InputError(f"the size of {shortened(name)} weights is not known: one of {', '.join(known)}")


def format_of(model: ModelShape, dtype: str | None = None) -> WeightFormat:
    """How a model's weights are stored: as it is quantised, else in ``dtype``, else in its own dtype."""
    if model.quantization is None:
        return weight_format(dtype or model.dtype or "bfloat16")
    try:
        return weight_format(model.quantization, model.quantization_bits, model.group_size)
    except InputError as error:
        raise InputError(f"{model.name}: {error}") from None


def nominal_bytes(parameters: float, bits: float | Fraction) -> float:
    """Bytes of so many parameters: the rule everybody knows.

    >>> nominal_bytes(70e9, 4) / 1e9, round(nominal_bytes(7e9, 16) / 2**30, 1)
    (35.0, 13.0)
    """
    return parameters * float(bits) / 8


@dataclass(frozen=True)
class Shards:
    """How a model is cut up: tensor, pipeline and data parallel sizes, and layers for multi-token prediction."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert_parallel: bool = False
    mtp_layers: int = 0

    def stages(self, layers: int) -> list[range]:
        """The layers of each pipeline stage: the rest goes to the last but one, then those before it.

        >>> [len(stage) for stage in Shards(pipeline=4).stages(62)]
        [15, 16, 16, 15]
        """
        if self.pipeline > layers:
            raise InputError(f"pipeline_parallel_size {self.pipeline} is more than the {layers} layers")
        counts = [layers // self.pipeline] * self.pipeline
        for i in range(layers % self.pipeline):
            counts[-(i + 2) % self.pipeline] += 1
        starts = [sum(counts[:i]) for i in range(self.pipeline)]
        return [range(start, start + count) for start, count in zip(starts, counts, strict=True)]


def weight_bytes(model: ModelShape, dtype: str | None = None) -> int:
    """Bytes of all weights, once.

    Raises
    ------
    InputError
        If the format, or a width that the count needs, is not known.
    """
    return math.ceil(_whole(model, format_of(model, dtype)))


def rank_bytes(model: ModelShape, shards: Shards, dtype: str | None = None) -> list[int]:
    """Bytes of weights on one rank of each pipeline stage.

    Raises
    ------
    InputError
        As `weight_bytes`; or if experts cannot be shared out.

    >>> from sim.sizing.model_config import load_model
    >>> rank_bytes(load_model("Llama-3.1-8B"), Shards(tensor=2))
    [8030261248]
    """
    stored = format_of(model, dtype)
    plain, routed = _bits(stored)
    embedding = model.embedding_parameters / Fraction(1 if model.tied_embeddings else 2)
    one = Fraction(stored.bits if stored.covers == "all" else stored.other_bits)
    totals = []
    stages = shards.stages(model.layers)
    for number, stage in enumerate(stages):
        rest = sum(model.layer_parameters(i, 0) for i in stage)
        experts = sum(model.layer_parameters(i) for i in stage) - rest
        first, last = number == 0, number == len(stages) - 1
        ends = embedding * (first + last - (first and last and model.tied_embeddings))
        if last and shards.mtp_layers:
            rest += shards.mtp_layers * (model.mtp_parameters - _routed_of_last(model))
            experts += shards.mtp_layers * _routed_of_last(model)
        extra = model.extra_parameters * first
        rest += model.norm_parameters * last
        bits = (rest * plain + ends * one + extra * one) / shards.tensor + _expert_share(model, shards) * experts * routed
        totals.append(math.ceil(bits / 8))
    return totals


def _routed_of_last(model: ModelShape) -> int:
    return model.layer_parameters(model.layers - 1) - model.layer_parameters(model.layers - 1, 0)


def _expert_share(model: ModelShape, shards: Shards) -> Fraction:
    """The part of the routed experts on one rank: with expert parallelism whole experts, rounded up."""
    size = shards.tensor * shards.data
    if not shards.expert_parallel or model.experts is None:
        return Fraction(1, size)
    return Fraction(-(-model.experts.count // size), model.experts.count)


def _bits(stored: WeightFormat) -> tuple[Fraction, Fraction]:
    """Bits of a weight of the layers, and of a routed expert."""
    return (Fraction(stored.other_bits) if stored.covers == "experts" else stored.bits), stored.bits


def _whole(model: ModelShape, stored: WeightFormat) -> Fraction:
    plain, routed = _bits(stored)
    experts, embeddings = model.routed_parameters, model.embedding_parameters + model.extra_parameters
    one = stored.bits if stored.covers == "all" else Fraction(stored.other_bits)
    return ((model.parameters - experts - embeddings) * plain + experts * routed + embeddings * one) / 8
