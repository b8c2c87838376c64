"""A server's log as a piece of the result: start-up lines, and the traffic replayed beside what was seen."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.calibration.log_doubts import NO_LINES, doubts
from experiments.calibration.over_time import Replayed, ReplayOptions, replay
from experiments.calibration.server_log import Sample, ServerLog
from experiments.calibration.startup import blocks_seen, start_up_lines
from experiments.deployment import deployment, model_and_gpu
from experiments.load import load_trace
from experiments.setup import Setup, size_up
from sim.gauges import RECENT_REQUESTS
from sim.run import SERVED, Run
from sim.sizing.deployment import Deployment
from sim.sizing.versions import parse_version
from workloads.messages import counted, show_path
from workloads.request import InputError

JsonObject = dict[str, Any]
COMPUTED_SINCE = (0, 16, 0)                            # from about then on the log counts prompt tokens that were computed only
PER_ADMISSION_SINCE = (0, 28, 0)
ONE_ENGINE = "a trace is replayed through one: --engine N, with the trace of what it served"


@dataclass(frozen=True)
class Watched:
    """A piece of the result, and what a picture or a fit needs of it."""

    document: JsonObject
    setup: Setup | None = None
    replayed: Replayed | None = None


def allocator_of(options: argparse.Namespace) -> str:
    """The paged allocator that serves as the measured server does."""
    return "paged-prefix" if options.enable_prefix_caching else "paged"


def watch_log(log: ServerLog, options: argparse.Namespace, notes: list[str]) -> Watched:
    """Start-up lines, and the gauges over time where there is a trace.

    Raises
    ------
    InputError
        If the trace cannot be served by the server that the log and the options describe.
    """
    if options.engine is not None:
        log = log.of_engine(options.engine)
    notes += [*log.notes, *doubts(log)]
    asked = _asked(options, notes)
    pool = blocks_seen(log, asked, options.block_size)
    lines = start_up_lines(log, asked, None if pool is None else pool[0], notes)
    document: JsonObject = {"startup": [line.json() for line in lines], "lines": len(log.samples), "engines": list(log.engines),
                            "facts": {name: list(values) for name, values in log.facts.items()}, "settings": log.settings,
                            "vllm_version": log.version, "pool": pool and {"num_blocks": pool[0], "how": pool[1]},
                            "over_time": None}
    if options.trace is None:
        if log.samples:
            notes.append("the periodic lines are not compared: --trace TRACE gives the traffic that was served")
        return Watched(document | {"seen": _seen(log)})
    _check_lines(log)
    setup = served_by(options, None if pool is None else pool[0], show_path(log.path), notes)
    made = replay(log.samples, setup.trace, setup.sim, allocator_of(options), _replay_options(setup, options))
    if made is None:
        raise InputError(f"{show_path(log.path)}: no line falls into the time that the trace takes, from its first arrival to "
                         "the simulated end"
                         + ("" if options.offset is None else f" at --offset {options.offset:g}"))
    _time_notes(made, log, setup, notes)
    rejected(made.run, notes)
    return Watched(document | {"seen": _seen(log), "over_time": _over_time(made)}, setup, made)


def _check_lines(log: ServerLog) -> None:
    if not log.samples:
        raise InputError(f"{show_path(log.path)}: nothing to compare a replay with: {NO_LINES}")
    if len(log.engines) > 1:
        raise InputError(f"{show_path(log.path)}: lines of {len(log.engines)} engines ({', '.join(map(str, log.engines))}): "
                         + ONE_ENGINE)


def _asked(options: argparse.Namespace, notes: list[str]) -> Deployment | None:
    """The server without a given pool; None where no model is known."""
    if options.model is None:
        return None
    bare = argparse.Namespace(**{**vars(options), "num_gpu_blocks_override": options.num_gpu_blocks_override or 1})
    model, gpu = model_and_gpu(bare, notes)            # a pool is given: no GPU is assumed
    assert model is not None
    return replace(deployment(options, model, gpu), num_gpu_blocks_override=None)


def served_by(options: argparse.Namespace, blocks: int | None, path: str, notes: list[str]) -> Setup:
    """The simulated server and its traffic: the pool that was seen, unless an option says otherwise.

    Raises
    ------
    InputError
        If no pool is known, or no vLLM server serves like that; ``path`` is what was seen.
    """
    if options.num_gpu_blocks_override is None and options.available_kv_gib is None:
        if blocks is None and options.gpu is None:
            raise InputError(f"{path}: it does not say how large the pool is: --num-gpu-blocks-override, or --model and --gpu")
        if blocks is not None:
            options = argparse.Namespace(**{**vars(options), "num_gpu_blocks_override": blocks})
            notes.append(f"replayed in the pool that was seen: {blocks:,} blocks of {options.block_size}")
    trace = load_trace(options, notes)
    if trace.sequences is not None:
        raise InputError(f"{trace.source}: requests of several sequences are not compared with a server's gauges")
    setup = size_up(trace, options, notes)
    if setup.sim.scheduler.batching != "continuous":
        raise InputError("--batching static: a vLLM server batches continuously")
    notes.append(f"step time: {setup.sim.step_time.describe()}")
    return setup


def _replay_options(setup: Setup, options: argparse.Namespace) -> ReplayOptions:
    return ReplayOptions(options.offset, parse_version(setup.version).number < COMPUTED_SINCE, setup.warm)


SECOND_S = 1.0                                         # vLLM's own times are whole seconds
POOR = 0.5                                             # of what was seen: an error above it is no prediction


def _time_notes(made: Replayed, log: ServerLog, setup: Setup, notes: list[str]) -> None:
    how = (f"looked for within the {made.interval_s:g} s before the first line with work, where running requests and generated "
           "tokens fit best; --offset S sets it") if made.searched else "as --offset says"
    side = "after" if made.offset_s >= 0 else "before"
    notes.append(f"clocks: the first arrival comes {abs(made.offset_s):g} s {side} the first periodic line, {how}")
    if made.before or made.after:
        notes.append(f"not compared: {counted(made.before, 'line')} before the first arrival, {made.after:,} after the "
                     "simulated end")
    notes += _outside(made, log.samples[0])
    running = made.errors()["running"]
    if running["mean_absolute_error"] > POOR * running["seen_mean"]:
        notes.append(f"warning: the mean error of running requests is {running['mean_absolute_error']:.1f} where "
                     f"{running['seen_mean']:.1f} were seen: do trace, flags and --offset belong to this log?")
    if "hit_percent" in made.seen:
        notes.append(f"the hit rate is that of the {RECENT_REQUESTS:,} most recent requests, as the log takes it")
        if parse_version(setup.version).number < PER_ADMISSION_SINCE:
            notes.append(f"vLLM {setup.version} counts a waiting request in every step that looks at it, the simulation once")


def _outside(made: Replayed, first: Sample) -> Iterator[str]:
    """Warnings of a server that worked before the first arrival or after the simulated end."""
    arrived = int((made.run.arrival_us <= (SECOND_S - made.offset_s) * 1e6).sum())
    if first.running + first.waiting > arrived:
        yield (f"warning: the log begins with requests already running: its first line shows {first.running:,} running and "
               f"{first.waiting:,} waiting where {arrived:,} of the trace have arrived; --offset S says where the trace begins")
    elif made.early:
        yield (f"warning: the server works in {counted(made.early, 'line')} before the first arrival: the log begins in the "
               "middle, or the trace does not belong to it; --offset S says where it belongs")
    if made.late:
        yield (f"warning: the server was still busy: {counted(made.late, 'line')} after the simulated end, not compared: the "
               "prediction is too fast, or the trace is not all that was served")


def _over_time(made: Replayed) -> JsonObject:
    return {"offset_s": made.offset_s, "searched": made.searched, "interval_s": made.interval_s, "compared": len(made.time_s),
            "before_first_arrival": made.before, "after_simulated_end": made.after, "still_busy": made.late,
            "errors": made.errors(), "time_s": np.round(made.time_s, 6).tolist(),
            "seen": {name: values.tolist() for name, values in made.seen.items()},
            "predicted": {name: values.tolist() for name, values in made.predicted.items()}}


def _seen(log: ServerLog) -> JsonObject:
    """Mean and peak of the gauges, as they were printed."""
    made = {}
    for name in ("running", "waiting", "usage_percent", "hit_percent", "prompt_tokens_per_s", "generation_tokens_per_s"):
        values = [value for sample in log.samples if (value := getattr(sample, name)) is not None]
        if values:
            made[name] = {"mean": float(np.mean(values)), "peak": float(np.max(values)), "last": float(values[-1])}
    return made


def rejected(run: Run, notes: list[str]) -> None:
    """Say how many requests could not be served at all."""
    count = int((run.verdict != SERVED).sum())
    if count:
        notes.append(f"{counted(count, 'request')} of the trace rejected as too long for the server: max_model_len or the pool "
                     "differs")
