"""The plan turned round: how long, how many, on how many GPUs, on which card; and what each knob buys.

Every answer is a plan of its own, made with one setting changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sim.sizing.budget import Budget, budgets
from sim.sizing.deployment import Deployment, serving
from sim.sizing.hardware import GIB, Gpu
from sim.sizing.plan import Plan, plan
from sim.sizing.startup import report
from workloads.request import InputError

MOST_RANKS = 1024
LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)


def concurrency_at(made: Plan, lengths: Iterable[int] = LENGTHS) -> list[tuple[int, float]]:
    """How many requests of each length fit at once, up to the longest the model knows.

    >>> from sim.models.model_config import load_model
    >>> made = plan(Deployment(load_model("Llama-3.1-8B"), available_kv_gib=40, max_model_len=8192))
    >>> concurrency_at(made, [4096, 131072])
    [(4096, 80.0), (8192, 40.0), (131072, 2.5)]
    """
    most = max(made.deployment.model.max_position_embeddings or 0, made.deployment.longest)
    return [(length, concurrency(made, length)) for length in sorted({*lengths, made.deployment.longest}) if length <= most]


def concurrency(made: Plan, length: int) -> float:
    """How many requests of ``length`` tokens fit at once, by the rule of the report."""
    limits = replace(made.limits, max_model_len=length)
    return report(made.groups, made.ranks, limits, made.deployment.version,
                  made.deployment.num_gpu_blocks_override).max_concurrency


def smallest_tensor_parallel(asked: Deployment) -> int | None:
    """The smallest tensor-parallel size, a power of two, with which a server of ``max_model_len`` starts; None: none does."""
    size = 1
    while size <= MOST_RANKS:
        wider = replace(asked, shards=replace(asked.shards, tensor=size))
        if size != asked.shards.tensor:                # what was measured on so many ranks does not hold on others
            wider = replace(wider, measured=replace(asked.measured, weights_gib=None))
        if starts(wider):
            return size
        size *= 2
    return None


def fitting(asked: Deployment) -> tuple[Budget, ...]:
    """The budgets of a deployment on a GPU, where something must be left for the KV cache.

    Raises
    ------
    InputError
        If nothing is; it names the smallest tensor-parallel size that would serve.
    """
    assert asked.gpu is not None
    made = tuple(budgets(asked.model, asked.gpu, serving(asked)))
    least = min(made, key=lambda each: each.available_bytes)
    if least.available_bytes <= 0:
        size = smallest_tensor_parallel(asked)
        hint = "no tensor-parallel size serves" if size is None else f"--tensor-parallel-size {size} is the smallest that serves"
        raise InputError(f"{asked.model.name} does not fit on {asked.shards.tensor} x {asked.gpu.name}: "
                         f"{least.weights.gib:.2f} GiB weights, {least.activation.gib + least.overhead_gib:.2f} GiB activations "
                         f"and overhead, {least.total.gib:.2f} GiB usable a GPU; {hint} max_model_len {asked.longest:,}")
    return made


def smallest_card(asked: Deployment, cards: Iterable[Gpu]) -> Gpu | None:
    """The card with the least memory on which as many of them serve ``max_model_len``; None: none of them does."""
    for card in sorted(cards, key=lambda each: each.memory_bytes):
        if starts(replace(asked, gpu=card)):
            return card
    return None


def starts(asked: Deployment) -> bool:
    """Whether a server of this starts; False too where its ranks cannot share out the heads."""
    try:
        made = plan(asked)
    except InputError:
        return False
    return made.fits and made.available_bytes > 0


@dataclass(frozen=True)
class Knob:
    """One setting changed, and what it buys."""

    name: str
    change: str
    kv_tokens: int
    max_concurrency: float
    available_gib: float
    gain: float | None


def knobs(made: Plan) -> list[Knob]:
    """What each knob buys, in the order in which they are best turned: KV dtype, context limit, weights, then the rest.

    ``gain`` is the ratio of the concurrencies; None where there was none before.
    """
    found = []
    for name, change, asked in _turned(made.deployment):
        try:
            after = plan(asked)
        except InputError:                             # not possible with this model: no knob
            continue
        before = made.report.max_concurrency
        now = after.report.max_concurrency
        found.append(Knob(name, change, after.report.kv_tokens, now, after.available_bytes / GIB,
                          now / before if before > 0 else None))
    return found


def _turned(asked: Deployment) -> Iterator[tuple[str, str, Deployment]]:
    if asked.kv_dtype not in ("fp8", "fp8_e4m3", "fp8_e5m2", "int8", "int4"):
        yield "KV cache dtype", "--kv-cache-dtype fp8", replace(asked, kv_cache_dtype="fp8")
    half = asked.longest // 2
    if half >= 1024:
        yield "context limit", f"--max-model-len {half}", replace(asked, max_model_len=half)
    if asked.available_kv_gib is not None or asked.num_gpu_blocks_override is not None or asked.gpu is None:
        return                                         # the pool is given: weights and GPUs do not change it
    stored = asked.model.quantization
    fresh = replace(asked, measured=replace(asked.measured, weights_gib=None))
    for method, about in (("fp8", "8 bits"), ("awq", "4 bits, groups of 128")):
        if stored is None or (method == "awq" and stored in ("fp8", "int8")):
            model = replace(asked.model, quantization=method, quantization_bits=None, group_size=None)
            yield "weights", f"--quantization {method} ({about})", replace(fresh, model=model)
    utilization = asked.gpu_memory_utilization or asked.version.default_utilization
    if utilization < 0.95:
        yield "utilisation", "--gpu-memory-utilization 0.95", replace(asked, gpu_memory_utilization=0.95)
    if asked.limits()[0] > 256:
        yield "sequences", "--max-num-seqs 256 (smaller activation peak)", replace(asked, max_num_seqs=256)
    doubled = 2 * asked.shards.tensor
    yield "GPUs", f"--tensor-parallel-size {doubled}", replace(fresh, shards=replace(asked.shards, tensor=doubled))
