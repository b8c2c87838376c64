"""The size of a model's weights, and each rank's share: counts by part (`model`) times bits by part (`weight_formats`).

    a rank holds    its stage's layers / TP;  routed experts / (TP x DP);  embeddings on the first stage, output on the last;
                    norms, routers and low-rank projections whole
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from sim.models.model import ModelShape
from sim.models.quantization import MIXED
from sim.models.weight_formats import EMBEDDING, HEAD, LOW_RANK, REST, ROUTED, WeightFormat, laid_out, weight_format
from workloads.request import InputError

__all__ = ["Shards", "WeightFormat", "format_of", "nominal_bytes", "rank_bytes", "weight_bytes", "weight_format"]


def format_of(model: ModelShape, dtype: str | None = None) -> WeightFormat:
    """How a model's weights are stored: as it is quantised, else in ``dtype``, else in its own dtype.

    >>> from sim.models.model_config import load_model
    >>> format_of(load_model("GLM-5.1-NVFP4")).describe()
    'nvfp4, 4.5 bits a weight, all but the routed experts in 16'
    """
    if model.quantization is None:
        return weight_format(dtype or model.dtype or "bfloat16")
    layout = model.layout if model.layout and model.layout.method == model.quantization else None
    try:
        if layout and layout.formats:
            return laid_out(WeightFormat(MIXED, Fraction(16)), layout)
        stored = weight_format(model.quantization, model.quantization_bits, model.group_size)
        return laid_out(stored, layout) if layout else stored
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
    return rank_bytes(model, Shards(), dtype)[0]


def rank_bytes(model: ModelShape, shards: Shards, dtype: str | None = None) -> list[int]:
    """Bytes of weights on one rank of each pipeline stage.

    Raises
    ------
    InputError
        As `weight_bytes`; or if there are more stages than layers.

    >>> from sim.models.model_config import load_model
    >>> rank_bytes(load_model("Llama-3.1-8B"), Shards(tensor=2))
    [8030527488]
    """
    stored, stages = format_of(model, dtype), shards.stages(model.layers)
    ends, totals = model.end_parts(), []
    for number, stage in enumerate(stages):
        bits = sum((_layer_bits(model, i, stored, shards) for i in stage), Fraction(0))
        is_first, is_last = number == 0, number == len(stages) - 1
        if is_last:
            bits += shards.mtp_layers * _layer_bits(model, model.layers, stored, shards) if shards.mtp_layers else 0
        bits += sum(count * stored.bits_of(part) / (1 if part == REST else shards.tensor) for part, count in ends.items()
                    if (is_first if part == EMBEDDING else is_last))
        if is_last and not is_first and model.tied_embeddings:  # the table once more, as the output layer
            bits += (ends[EMBEDDING] - model.extra_parameters) * stored.bits_of(HEAD) / shards.tensor
        totals.append(math.ceil(bits / 8))
    return totals


def _layer_bits(model: ModelShape, layer: int, stored: WeightFormat, shards: Shards) -> Fraction:
    """Bits of a layer on one rank."""
    share = {ROUTED: _expert_share(model, shards), LOW_RANK: Fraction(1), REST: Fraction(1)}
    return sum((count * stored.bits_of(part, layer) * share.get(part, Fraction(1, shards.tensor))
                for part, count in model.layer_parts(layer).items()), Fraction(0))


def _expert_share(model: ModelShape, shards: Shards) -> Fraction:
    """The part of the routed experts on one rank: with expert parallelism whole experts, rounded up."""
    size = shards.tensor * shards.data
    if not shards.expert_parallel or model.experts is None:
        return Fraction(1, size)
    return Fraction(-(-model.experts.count // size), model.experts.count)
