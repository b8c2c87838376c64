"""What hits are worth: prefill tokens and GPU-seconds a day, and the memory for ten more points of hit rate.

    tokens a day        hit tokens of the trace x 86,400 s / its duration
    GPU-seconds a day   (hit tokens x 2 x active parameters + attention pairs x FLOPs a pair) / (peak x efficiency)

A prompt whose first h tokens are found spares h x (h + 1) / 2 pairs of a token and one it attends to. The efficiency is that of
the roofline clock (`sim.step_time`): stated, not measured. All sizes are by vLLM's queue in the cache view.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.prefix_caching.curves import View, room
from sim.caching.stream import COLD, leading_run
from sim.models.model import ModelShape
from sim.sizing.hardware import GIB, Gpu
from sim.step_time import RooflineStepTime
from workloads.request import IntArray

JsonObject = dict[str, Any]
DAY_S = 86_400
POINTS = 0.10


@dataclass(frozen=True)
class Prices:
    """What turns hits into money; None where it is not known, and then ``why`` says so.

    Parameters
    ----------
    requests_per_s : float, optional
    flops_per_token, flops_per_pair : float, optional
        Of the whole model.
    flops_per_s : float, optional
        Of one GPU, reached.
    gib_per_block : float, optional
        On one GPU.
    gpu_gib : float, optional
        Memory of one GPU.
    gpus : int
        GPUs of a replica; each holds its part of a block.
    why : dict
        What is missing -> reason.
    """

    requests_per_s: float | None
    flops_per_token: float | None
    flops_per_pair: float | None
    flops_per_s: float | None
    gib_per_block: float | None
    gpu_gib: float | None
    gpus: int
    why: dict[str, str]


def prices(rate: float | None, why_no_rate: str, model: ModelShape | None, gpu: Gpu | None, gib_per_block: float | None,
           gpus: int) -> Prices:
    """Whatever is known of them, and a reason for each that is not."""
    why = {} if rate is not None else {"a day": why_no_rate}
    peak = None if gpu is None else gpu.peak_flops_per_s
    if model is None or peak is None:
        why["GPU-seconds"] = ("no model is known: --model" if model is None else
                              "the speed of the GPU is not known: a --gpu of the catalogue")
    if gib_per_block is None:
        why["GiB"] = "no model is known: --model"
    if gpu is None:
        why["GPUs"] = "no GPU is known: --gpu"
    flops = (None, None, None) if model is None or peak is None else (
        2.0 * model.active_parameters, float(model.attention_flops_per_pair), peak * RooflineStepTime.flops_efficiency)
    return Prices(rate, *flops, gib_per_block, None if gpu is None else gpu.memory_bytes / GIB, gpus, why)


def money(found: View, today: int, known: Prices) -> JsonObject:
    """The value of today's pool, of ten points more, and of all there is to find.

    Parameters
    ----------
    found : View
    today : int
        Blocks of today's pool.
    """
    now, bound = found.vllm.at(today), found.endless
    wanted = min(now.hit_tokens + POINTS * bound.query_tokens, bound.hit_tokens)
    target = found.vllm.smallest(wanted) if bound.hit_tokens > now.hit_tokens else None
    more = None if target is None else target - min(today, target)
    return {
        "requests_per_day": None if known.requests_per_s is None else known.requests_per_s * DAY_S,
        "prefill": {"flops_per_token": known.flops_per_token, "flops_per_pair": known.flops_per_pair,
                    "flops_per_s": known.flops_per_s, "efficiency": RooflineStepTime.flops_efficiency},
        "today": _worth(found, today, known),
        "next": None if target is None or more is None else {
            **_worth(found, target, known), "points": 100 * (found.vllm.at(target).of_tokens - now.of_tokens),
            "more_blocks": more, "more_gib": room(more, known.gib_per_block)["gib"], "more_gpus": _gpus(more, known)},
        "bound": _worth(found, found.stream.count, known),
        "why_null": {**known.why, **({} if target is not None else {"next": _why_no_next(found)})},
    }


def _why_no_next(found: View) -> str:
    return "nothing is shared" if not found.endless.hit_tokens else "today's pool finds all there is"


def _worth(found: View, blocks: int, known: Prices) -> JsonObject:
    hits = hit_tokens(found, blocks)
    tokens, days = int(hits.sum()), _days(found, known)
    seconds = None
    if known.flops_per_token is not None and known.flops_per_pair is not None and known.flops_per_s is not None:
        pairs = int((hits * (hits + 1) // 2).sum())
        seconds = (tokens * known.flops_per_token + pairs * known.flops_per_pair) / known.flops_per_s
    return {**room(blocks, known.gib_per_block), "hit_rate_tokens": found.vllm.at(blocks).of_tokens, "tokens": tokens,
            "gpu_seconds": seconds, "tokens_per_day": None if days is None else tokens / days,
            "gpu_seconds_per_day": None if days is None or seconds is None else seconds / days}


def hit_tokens(found: View, blocks: int) -> IntArray:
    """Prompt tokens of each request that vLLM's queue of that many blocks holds; shape (requests,)."""
    distances = found.tail_distances
    run = leading_run(found.stream, (distances != COLD) & (distances < blocks))
    return np.minimum(run * found.stream.block_size, found.trace.prompt_tokens)


def _days(found: View, known: Prices) -> float | None:
    """How long the trace's requests take to come, in days."""
    return None if known.requests_per_s is None else len(found.trace) / known.requests_per_s / DAY_S


def _gpus(blocks: int, known: Prices) -> int | None:
    if known.gib_per_block is None or known.gpu_gib is None:
        return None
    return math.ceil(blocks * known.gib_per_block * known.gpus / known.gpu_gib)
