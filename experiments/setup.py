"""From options to a simulation: the trace, the pool and the limits, with a note for everything that was assumed."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from experiments.allocator_options import check_slots, page_size, page_slots
from experiments.cache_options import host_memory, warm_trace
from experiments.deployment import deployment, model_and_gpu
from experiments.load import load_trace
from experiments.replicas import replicas
from sim import kv_formula
from sim.config import SimConfig
from sim.scheduler_config import SchedulerConfig
from sim.sizing.hardware import GIB, Gpu, default_limits
from sim.sizing.versions import NEWEST, Version, parse_version
from sim.step_time import ConstantStepTime, StepTime, parse_constant, roofline
from workloads.later import Later
from workloads.messages import show_path
from workloads.request import InputError, Trace

if TYPE_CHECKING:
    from experiments import step_time_file
    from experiments.step_time_file import StepTimeFile
    from sim.models.model import ModelShape
    from sim.sizing import inverse, plan, weights
    from sim.sizing.deployment import Deployment
else:                                                  # a pool that is given needs no model
    step_time_file, inverse, plan, weights = map(Later, (
        "experiments.step_time_file", "sim.sizing.inverse", "sim.sizing.plan", "sim.sizing.weights"))

DEFAULT_SWAP_GIB = 4.0                                 # vLLM's --swap-space
MOST_BLOCKS, MOST_SLOTS = 1 << 27, 1 << 53             # more would exhaust our memory, or 64 bits


@dataclass
class Setup:
    """Everything a comparison needs; ``gpus`` are those of all replicas."""

    trace: Trace
    sim: SimConfig
    model: ModelShape | None
    gpu: Gpu | None
    kv_bytes_per_token: int | None
    asked: dict[str, Any]
    version: str
    notes: list[str] = field(default_factory=list)
    warm: Trace | None = None
    gpus: int = 1

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
    return size_up(load_trace(options, notes), options, notes)


def size_up(trace: Trace, options: argparse.Namespace, notes: list[str]) -> Setup:
    """The server that the options describe, for a trace that is there; ``notes`` are gone on with."""
    warm = warm_trace(options, trace)
    model, gpu = model_and_gpu(options, notes)
    asked = None if model is None else deployment(options, model, gpu)
    version = NEWEST if options.vllm_version is None else parse_version(options.vllm_version)
    longest, implied = _max_model_len(options, asked, trace)
    blocks, per_token = _pool(options, asked, longest)
    scheduler = _scheduler(options, gpu, asked, version, per_token)
    if scheduler.async_scheduling and trace.sequences is not None:
        raise InputError("several sequences a request and asynchronous scheduling do not go together")
    if blocks > MOST_BLOCKS or blocks * options.block_size > MOST_SLOTS:
        raise InputError(f"a pool of {blocks:,} blocks of {options.block_size:,} slots is too large: at most {MOST_BLOCKS:,} "
                         f"blocks and {MOST_SLOTS:,} slots")
    check_slots(options, (blocks - 1) * options.block_size, MOST_BLOCKS)
    clock, page = _step_time(options, asked, per_token, notes), page_size(options)
    try:
        sim = SimConfig(blocks, options.block_size, longest, options.placement, scheduler, clock, options.saturate,
                        split_freed=version.splits_freed, page_slots=page_slots(page, asked),
                        host_memory=host_memory(options, per_token, notes), **replicas(options, model, trace, notes))
    except ValueError as error:
        raise InputError(str(error)) from None
    _check_room(sim, trace, implied)
    asked_for = {name: getattr(options, name) for name in
                 ("seed", "rate", "limit", "shuffle", "max_total_tokens", "max_output_tokens", "samples", "beam_width",
                  "think_time")}
    asked_for["page_size"] = page
    asked_for |= {name: float(getattr(options, name)) for name in ("speed", "resample") if getattr(options, name) is not None}
    gpus = sim.data_parallel_size * options.tensor_parallel_size * options.pipeline_parallel_size
    return Setup(trace, sim, model, gpu, per_token, asked_for, str(version), notes, warm, gpus)


# ---------------------------------------------------------------------- the pool
def _pool(options: argparse.Namespace, asked: Deployment | None, longest: int) -> tuple[int, int | None]:
    """Blocks of the pool, and bytes a token on the GPU that decides."""
    if asked is None:
        return int(options.num_gpu_blocks_override), None
    asked = replace(asked, max_model_len=longest)
    made = plan.plan(asked)
    other = {c.kind for group in made.groups for c in group.caches if c.kind != "full" and (c.reach or 0) < longest}
    if other:
        raise InputError(f"{asked.model.name} has {' and '.join(sorted(other))} layers beside or instead of full ones, "
                         "which need block tables of their own: not replayed yet (pagedsim plan sizes them)")
    if made.budgets is not None and options.num_gpu_blocks_override is None:
        inverse.fitting(asked)
    return max(1, made.report.num_blocks), made.kv_bytes_per_token


def _max_model_len(options: argparse.Namespace, asked: Deployment | None, trace: Trace) -> tuple[int, bool]:
    """The limit, and whether it was only taken from the trace."""
    if options.max_model_len == 0:
        if asked is None:
            raise InputError("--max-model-len auto: without a --model there is nothing to find it by")
        return asked.longest, False
    if options.max_model_len is not None:
        return int(options.max_model_len), False
    model = None if asked is None else asked.model
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
def _scheduler(options: argparse.Namespace, gpu: Gpu | None, asked: Deployment | None, version: Version,
               per_token: int | None) -> SchedulerConfig:
    seqs: int | None
    tokens: int | None
    seqs, tokens = _limits(options, gpu) if asked is None else asked.limits()
    if options.saturate:                               # memory alone limits, unless a limit was asked for
        seqs, tokens = options.max_num_seqs, options.max_num_batched_tokens
    if options.watermark and not version.has_watermark:
        raise InputError(f"--watermark: vLLM {version} has none")
    if options.async_scheduling and not version.schedules_ahead:
        raise InputError(f"--async-scheduling: vLLM {version} has none")
    try:
        return SchedulerConfig(
            seqs, tokens, options.enable_chunked_prefill, options.long_prefill_token_threshold, version.gates_whole_prompts,
            options.watermark, options.scheduling_policy, options.async_scheduling, version.exempts_lone_prefill,
            version.goes_on_after_own_preemption, _swap_blocks(options, per_token), options.seed, options.beam_turnover or 1.0,
            options.batching)
    except ValueError as error:
        raise InputError(str(error)) from None


def _swap_blocks(options: argparse.Namespace, per_token: int | None) -> int | None:
    if options.preemption_mode == "recompute":
        for name in ("swap_space", "swap_blocks"):
            if getattr(options, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} is for --preemption-mode swap")
        return None
    if options.swap_blocks is not None:
        return int(options.swap_blocks)
    if per_token is None:
        raise InputError("--preemption-mode swap without a --model: --swap-blocks is wanted")
    space = DEFAULT_SWAP_GIB if options.swap_space is None else options.swap_space
    return int(space * GIB) // (per_token * options.block_size)


def _limits(options: argparse.Namespace, gpu: Gpu | None) -> tuple[int, int]:
    seqs, tokens = default_limits(gpu)
    tokens = options.max_num_batched_tokens or tokens
    return options.max_num_seqs or min(seqs, tokens), tokens


def _step_time(options: argparse.Namespace, asked: Deployment | None, per_token: int | None, notes: list[str]) -> StepTime:
    wanted: str | StepTimeFile | None = options.step_time      # a file may have been read before
    file = _file(wanted) if wanted is None or isinstance(wanted, str) else wanted
    gpu = None if asked is None else asked.gpu
    if file is not None and file.kind == "constant":
        return file.constant()
    try:
        if file is None and wanted is not None and wanted.startswith("constant:"):
            return _constant(wanted)
        if asked is None or gpu is None or gpu.bandwidth_bytes_per_s is None:
            if wanted is not None:
                what = "roofline" if file is None else f"{show_path(file.path)} is a roofline: it"
                raise InputError(f"--step-time {what} needs a --model and a --gpu of the catalogue")
            return ConstantStepTime(20_000)
        assert per_token is not None
        ranks = options.tensor_parallel_size
        made = roofline(asked.model, gpu, weights.weight_bytes(asked.model, asked.dtype) / ranks, per_token, ranks)
    except ValueError as error:
        raise InputError(str(error)) from None
    if file is None:
        return made
    other = file.elsewhere(model=asked.model.name, gpu=gpu.name, tensor_parallel_size=ranks)
    notes.extend([other] if other else [])
    return file.applied(made)


def _constant(wanted: str) -> ConstantStepTime:
    try:
        return parse_constant(wanted)
    except ValueError as error:
        raise InputError(f"--step-time {error}") from None


def _file(wanted: str | None) -> StepTimeFile | None:
    """The file of ``--step-time``, if it names one; a word that is neither a file nor looks like one is a slip of the pen."""
    if wanted is None or wanted == "roofline" or wanted.startswith("constant:"):
        return None
    if not os.path.exists(wanted) and not wanted.endswith(".toml"):
        raise InputError(f"--step-time {wanted!r}: roofline, constant:20ms (us, ms or s), or a file of pagedsim calibrate")
    return step_time_file.read_step_time(wanted)
