"""From options to a simulation: the trace, the pool and the limits, with a note for everything that was assumed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sim.config import SimConfig
from sim.scheduler import SchedulerConfig
from sim.sizing import kv_formula
from sim.sizing.budget import budget, weight_bytes
from sim.sizing.hardware import GIB, Gpu, default_limits, find_gpu
from sim.sizing.model import ModelShape
from sim.sizing.model_config import load_model
from sim.step_time import ConstantStepTime, StepTime, parse_constant, roofline
from workloads import transform
from workloads.readers import read_trace
from workloads.request import InputError, Trace
from workloads.synthetic import chat_workload

DEFAULT_MODEL, DEFAULT_GPU = "Llama-2-13b", "A100-40GB"
DEFAULT_RATE = 2.0
MOST_BLOCKS, MOST_SLOTS = 1 << 27, 1 << 53             # more would exhaust our memory, or 64 bits
DTYPES = {"half": "float16", "float": "float32"}


@dataclass
class Setup:
    """Everything a comparison needs."""

    trace: Trace
    sim: SimConfig
    model: ModelShape | None
    gpu: Gpu | None
    kv_bytes_per_token: int | None
    asked: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def capacity(self) -> dict[str, Any]:
        """The ``capacity`` object of the JSON; tokens and concurrency by vLLM's start-up rules."""
        blocks, size, longest = self.sim.num_blocks, self.sim.block_size, self.sim.max_model_len
        return {
            "kv_bytes_per_token": self.kv_bytes_per_token, "block_size": size, "num_blocks": blocks,
            "usable_slots": self.sim.usable_slots, "kv_tokens": kv_formula.kv_tokens(blocks, size, longest),
            "max_model_len": longest, "max_concurrency": kv_formula.max_concurrency(blocks, size, longest),
        }


def prepare(options: argparse.Namespace) -> Setup:
    """Read, size and check; raises InputError with one line for whatever cannot be used."""
    notes: list[str] = []
    trace = load_trace(options, notes)
    model, gpu = _model_and_gpu(options, notes)
    ranks = options.tensor_parallel_size
    scheduler = _scheduler(options, gpu)
    element = _kv_element_bytes(options, model)
    per_token = None if model is None else model.kv_bytes_per_token(element, ranks)
    longest, implied = _max_model_len(options, model, trace)
    blocks = _num_blocks(options, model, gpu, per_token)
    if blocks > MOST_BLOCKS or blocks * options.block_size > MOST_SLOTS:
        raise InputError(f"a pool of {blocks:,} blocks of {options.block_size:,} slots is too large: at most {MOST_BLOCKS:,} "
                         f"blocks and {MOST_SLOTS:,} slots")
    clock = _step_time(options, model, gpu, per_token)
    try:
        sim = SimConfig(blocks, options.block_size, longest, options.placement, scheduler, clock, options.saturate)
    except ValueError as error:
        raise InputError(str(error)) from None
    _check_room(sim, trace, implied)
    asked = {name: getattr(options, name) for name in ("seed", "rate", "limit", "shuffle", "max_total_tokens")}
    return Setup(trace, sim, model, gpu, per_token, asked, notes)


# ---------------------------------------------------------------------- the trace
def load_trace(options: argparse.Namespace, notes: list[str]) -> Trace:
    """Read or make the trace, cut it and give it arrival times."""
    lengths, arrivals, order = (np.random.default_rng(s) for s in np.random.SeedSequence(options.seed).spawn(3))
    if options.trace is None:
        if options.format is not None:
            raise InputError("--format is for a trace file, and none was given")
        trace = replace(_at_rate(options, chat_workload, rng=lengths), source=_chat_source(options))
    else:
        trace = read_trace(options.trace, options.format)
    if options.max_total_tokens is not None:
        trace = transform.drop_longer_than(trace, options.max_total_tokens)
    if options.shuffle:
        trace = transform.shuffle(trace, order)
    if options.limit is not None:
        trace = transform.limit(trace, options.limit)
    if not len(trace):
        left_out = ", ".join(f"{n:,} {reason}" for reason, n in trace.dropped.items())
        raise InputError(f"{trace.source}: no request is left ({left_out or 'there was none'})")
    return _timed(trace, options, arrivals, notes)


def _at_rate(options: argparse.Namespace, make: Callable[..., Trace], **arguments: Any) -> Trace:
    try:
        with np.errstate(over="ignore"):
            return make(rate_per_s=options.rate or DEFAULT_RATE, **arguments)
    except ValueError as error:
        raise InputError(f"--rate: {error}") from None


def _chat_source(options: argparse.Namespace) -> str:
    times = "all at once" if options.saturate else f"{options.rate or DEFAULT_RATE:g} requests/s"
    return (f"built-in chat workload (1,000 requests, ShareGPT lengths, a shared 256-token system prompt, {times}, "
            f"seed {options.seed})")


def _timed(trace: Trace, options: argparse.Namespace, rng: np.random.Generator, notes: list[str]) -> Trace:
    if trace.content is None:
        notes.append(f"{trace.source} has no prefix identity: what sharing would save cannot be measured on it")
    if options.saturate:
        if options.rate is not None:
            raise InputError("--rate has no meaning with --saturate: all requests arrive at once")
        return transform.all_at_once(trace)
    if trace.arrival_us is None:
        rate = options.rate or DEFAULT_RATE
        timed = _at_rate(options, transform.with_poisson_arrivals, trace=trace, rng=rng)
        notes.append(f"{trace.source} has no arrival times: Poisson arrivals at {rate:g} requests/s, seed {options.seed}")
        return timed
    if options.rate is not None and options.trace is not None:
        raise InputError(f"{trace.source} has its own arrival times: --rate is for traces without")
    return replace(trace, arrival_us=trace.arrival_us - trace.arrival_us[0])


# ---------------------------------------------------------------------- model, GPU and pool
def _model_and_gpu(options: argparse.Namespace, notes: list[str]) -> tuple[ModelShape | None, Gpu | None]:
    sized = options.num_gpu_blocks_override is not None
    name, gpu_name = options.model, options.gpu
    if not sized and name is None:
        name = DEFAULT_MODEL
        notes.append(f"no --model: {name} is assumed")
    if not sized and gpu_name is None and options.available_kv_gib is None:
        gpu_name = DEFAULT_GPU
        notes.append(f"no --gpu: {gpu_name} is assumed")
    model = None if name is None else load_model(name)
    if model is not None and options.model is not None and model.note:
        notes.append(f"model: {model.note}")
    return model, None if gpu_name is None else find_gpu(gpu_name)


def _dtype(options: argparse.Namespace, model: ModelShape | None) -> str:
    if options.dtype == "auto":
        return "float16" if model is None or model.dtype == "float32" else model.dtype or "float16"
    return str(DTYPES.get(options.dtype, options.dtype))


def _kv_element_bytes(options: argparse.Namespace, model: ModelShape | None) -> Any:
    dtype = _dtype(options, model) if options.kv_cache_dtype == "auto" else options.kv_cache_dtype
    for flag, value in (("--dtype", _dtype(options, model)), ("--kv-cache-dtype", dtype)):
        if value not in kv_formula.ELEMENT_BYTES:
            raise InputError(f"{flag} {value!r}: one of auto, {', '.join(kv_formula.ELEMENT_BYTES)}")
    return kv_formula.ELEMENT_BYTES[dtype]


def _limits(options: argparse.Namespace, gpu: Gpu | None) -> tuple[int, int]:
    seqs, tokens = default_limits(gpu)
    seqs = options.max_num_seqs or (min(seqs, options.max_num_batched_tokens) if options.max_num_batched_tokens else seqs)
    return seqs, options.max_num_batched_tokens or tokens


def _num_blocks(options: argparse.Namespace, model: ModelShape | None, gpu: Gpu | None, per_token: int | None) -> int:
    if options.num_gpu_blocks_override is not None:
        return int(options.num_gpu_blocks_override)
    assert model is not None and per_token is not None
    if options.available_kv_gib is not None:
        available = int(options.available_kv_gib * GIB)
    else:
        assert gpu is not None
        available = budget(model, gpu, options.gpu_memory_utilization, _limits(options, gpu), options.tensor_parallel_size,
                           _dtype(options, model)).available_bytes
    return max(1, kv_formula.blocks_that_fit(available, kv_formula.kv_bytes_per_block(per_token, options.block_size)))


def _max_model_len(options: argparse.Namespace, model: ModelShape | None, trace: Trace) -> tuple[int, bool]:
    """The limit, and whether it was only taken from the trace."""
    if options.max_model_len is not None:
        return options.max_model_len, False
    if model is not None and model.max_position_embeddings is not None:
        return model.max_position_embeddings, False
    longest = int((trace.prompt_tokens + trace.output_tokens).max())
    return kv_formula.blocks_for(longest, options.block_size) * options.block_size, True


def _check_room(sim: SimConfig, trace: Trace, implied: bool) -> None:
    """vLLM does not start where one request of max_model_len does not fit (rule 50); nor do we where nobody fits."""
    fits = kv_formula.startup_shortfall(sim.num_blocks, sim.block_size, sim.max_model_len)
    if fits is None:
        return
    pool = f"the pool of {sim.num_blocks:,} blocks of {sim.block_size} (one is the null block) holds {fits:,} tokens"
    if not implied:
        raise InputError(f"{pool}, fewer than one request of max_model_len {sim.max_model_len:,}: a larger pool, or "
                         f"--max-model-len {fits} at most")
    shortest = int((trace.prompt_tokens + trace.output_tokens - 1).min())
    if shortest > fits:
        raise InputError(f"{pool}, fewer than the shortest request of {trace.source} needs ({shortest:,})")


# ---------------------------------------------------------------------- scheduler and clock
def _scheduler(options: argparse.Namespace, gpu: Gpu | None) -> SchedulerConfig:
    seqs: int | None
    tokens: int | None
    seqs, tokens = _limits(options, gpu)
    if options.saturate:                               # memory alone limits, unless a limit was asked for
        seqs, tokens = options.max_num_seqs, options.max_num_batched_tokens
    try:
        return SchedulerConfig(seqs, tokens, options.enable_chunked_prefill, options.long_prefill_token_threshold,
                               watermark=options.watermark)
    except ValueError as error:
        raise InputError(str(error)) from None


def _step_time(options: argparse.Namespace, model: ModelShape | None, gpu: Gpu | None, per_token: int | None) -> StepTime:
    wanted = options.step_time
    known = model is not None and gpu is not None and gpu.bandwidth_bytes_per_s is not None
    try:
        if wanted is not None and wanted != "roofline":
            return parse_constant(wanted)
        if not known:
            if wanted == "roofline":
                raise InputError("--step-time roofline needs a --model and a --gpu of the catalogue")
            return ConstantStepTime(20_000)
        assert model is not None and gpu is not None and per_token is not None
        ranks = options.tensor_parallel_size
        return roofline(model, gpu, weight_bytes(model, _dtype(options, model)) / ranks, per_token, ranks)
    except ValueError as error:
        raise InputError(str(error)) from None
