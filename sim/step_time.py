"""How long an engine step takes: a constant, or the roofline of the model on its GPU.

    decode steps read the weights once and every running sequence's K and V:    bound by memory bandwidth
    prefill steps multiply many tokens by each weight:                           bound by arithmetic

The roofline takes the larger of the two and adds a fixed time for launching kernels and scheduling:

    t = max(bytes / (bandwidth x efficiency), flops / (peak x efficiency)) + overhead

The default efficiencies are stated, not fitted: 0.8 of the data sheet's bandwidth and 0.5 of its dense peak are what
well-tuned kernels reach. They are fields; `pagedsim calibrate` fits them to measurements of a server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from sim.models.model import ModelShape
    from sim.sizing.hardware import Gpu

UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


class StepLoad(NamedTuple):
    """The work of one step; or of ``k`` consecutive steps, each field an int64 array of shape (k,).

    ``new_tokens`` computed by all sequences, ``sequences`` scheduled, ``context_tokens`` whose K and V are read (the
    sum of computed tokens after the step), ``attention_pairs`` of a new token and a token it attends to.
    """

    new_tokens: Any
    sequences: Any
    context_tokens: Any
    attention_pairs: Any


class StepTime(Protocol):
    """A step-time model. The array form gives the same integers as one call an element.

    It may be asked about steps that are not made: with any number of sequences and tokens that the limits allow.
    """

    def duration_us(self, load: StepLoad) -> Any:
        """Microseconds of the step, at least 1; an int64 array where the load's fields are arrays."""
        ...

    def describe(self) -> str:
        """One line for people, with units."""
        ...


@dataclass(frozen=True)
class ConstantStepTime:
    """Every step takes ``us`` microseconds; ``source`` says who says so.

    Examples
    --------
    >>> ConstantStepTime(20_000).describe()
    'constant 20 ms'
    """

    us: int
    source: str = ""

    def __post_init__(self) -> None:
        if not self.us >= 1 or self.us % 1:
            raise ValueError(f"a step takes whole microseconds, at least 1, not {self.us}")

    def duration_us(self, load: StepLoad) -> Any:
        return self.us if isinstance(load.new_tokens, int) else np.full(len(load.new_tokens), self.us, np.int64)

    def describe(self) -> str:
        return f"constant {self.us / 1000:g} ms" + (f", {self.source}" if self.source else "")


@dataclass(frozen=True)
class RooflineStepTime:
    """The slower of memory traffic and arithmetic, all ranks of a tensor-parallel group sharing both equally.

    Parameters
    ----------
    weight_bytes : float
        Read once a step, on one rank.
    kv_bytes_per_token : int
        Read for every context token, on one rank.
    flops_per_token : float
        2 x active parameters / ranks: a multiply-add for each weight a token passes through.
    flops_per_pair : float
        Attention: a new token with one it attends to, all layers, on one rank.
    bandwidth_bytes_per_s, peak_flops_per_s : float
        Of one GPU, from its data sheet.
    bandwidth_efficiency, flops_efficiency : float
        Reached shares of them.
    overhead_us : float
        Fixed time of a step.
    source : str
        Who says so, for people; empty for the defaults.
    """

    weight_bytes: float
    kv_bytes_per_token: int
    flops_per_token: float
    flops_per_pair: float
    bandwidth_bytes_per_s: float
    peak_flops_per_s: float
    bandwidth_efficiency: float = 0.8
    flops_efficiency: float = 0.5
    overhead_us: float = 1000.0
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("bandwidth_bytes_per_s", "peak_flops_per_s", "bandwidth_efficiency", "flops_efficiency"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")

    def duration_us(self, load: StepLoad) -> Any:
        # The same float64 operations in the same order for numbers and arrays, so that both round alike.
        per_us = self.bandwidth_bytes_per_s * self.bandwidth_efficiency / 1e6
        memory = (self.weight_bytes + load.context_tokens * float(self.kv_bytes_per_token)) / per_us
        flops = load.new_tokens * self.flops_per_token + load.attention_pairs * self.flops_per_pair
        compute = flops / (self.peak_flops_per_s * self.flops_efficiency / 1e6)
        if isinstance(memory, float):
            return max(1, round(max(memory, compute) + self.overhead_us))
        return np.maximum(np.rint(np.maximum(memory, compute) + self.overhead_us), 1).astype(np.int64)

    def describe(self) -> str:
        return (f"roofline ({self.weight_bytes / 1e9:.1f} GB weights and {self.kv_bytes_per_token:,} B/token over "
                f"{self.bandwidth_bytes_per_s / 1e9:,.0f} GB/s x {self.bandwidth_efficiency:g}, prefill over "
                f"{self.peak_flops_per_s / 1e12:,.0f} TFLOP/s x {self.flops_efficiency:g}, "
                f"{self.overhead_us / 1000:g} ms a step)" + (f", {self.source}" if self.source else ""))


def roofline(model: ModelShape, gpu: Gpu, weight_bytes: float, kv_bytes_per_token: int,
             ranks: int = 1) -> RooflineStepTime:
    """The roofline of a model on ``ranks`` equal GPUs.

    Raises
    ------
    ValueError
        If the GPU is only a size: it has no bandwidth.
    """
    if gpu.bandwidth_bytes_per_s is None or gpu.peak_flops_per_s is None:
        raise ValueError(f"{gpu.name} is only a size: a roofline needs a GPU of the catalogue")
    return RooflineStepTime(weight_bytes, kv_bytes_per_token, 2 * model.active_parameters / ranks,
                            model.attention_flops_per_pair / ranks, gpu.bandwidth_bytes_per_s, gpu.peak_flops_per_s)


def parse_constant(text: str) -> ConstantStepTime:
    """A constant step time from ``constant:20ms`` (us, ms or s).

    Raises
    ------
    ValueError
        Naming the text.

    Examples
    --------
    >>> parse_constant("constant:0.5ms").us
    500
    """
    match = re.fullmatch(r"constant:(\d+(?:\.\d+)?)(us|ms|s)", text.strip())
    if not match:
        raise ValueError(f"{text!r}: constant:20ms (us, ms or s) is wanted")
    us = float(match[1]) * UNITS_US[match[2]]
    if not 0.5 < us <= 1 << 40:
        raise ValueError(f"{text!r}: a step takes from 1 us to 12 days")
    return ConstantStepTime(round(us))
