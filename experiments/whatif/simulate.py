"""One point, simulated: from its options and the traces to the row of the results. Runs in any process, on any machine.

`run_point` gives everything back as plain numbers and text, failures too: one point that cannot be run stops no other.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from experiments.compare import compare_json
from experiments.load import DEFAULT_RATE, load_trace
from experiments.serving import serve
from experiments.setup import Setup, size_up
from experiments.version import VERSION
from experiments.whatif.materials import Materials
from experiments.whatif.options import parse
from experiments.whatif.points import Point
from experiments.whatif.store import DONE, FAILED, LOST, Row
from sim.measures import LATENCIES, STATISTICS
from sim.memory.allocator import PARTS
from sim.sizing.hardware import GIB
from sim.stays import StayLog
from workloads.request import InputError, Trace
from workloads.scaling import scale_times, speed_for
from workloads.synth.recipe import recipe, with_changes

HEAD = ("number", "part", "status", "error", "allocator", "seed")
GRID, SEARCH = "grid", "search"                        # parts
CAPACITY = ("gpus", "kv_gib", "num_blocks", "block_size", "kv_tokens", "max_model_len", "max_concurrency", "kv_bytes_per_token")
METRICS = (
    "warmup_s", "warmup_requests", "window_s", "measured_requests", "whole_run", "concurrency_mean", "concurrency_p50",
    "concurrency_p99", "concurrency_peak", "waiting_mean", "waiting_p99", "waiting_peak",
    *(f"{name}_{statistic}_s" for name in LATENCIES for statistic in STATISTICS), "requests_per_s", "output_tokens_per_s",
    "total_tokens_per_s", "preemptions", "completed", "unfinished", "rejected", "truncated", *PARTS, "useful_of_allocated",
    "kv_usage_mean", "hit_rate", "evicted_blocks", "makespan_s", "steps")
WINDOWED = METRICS[METRICS.index("concurrency_mean"): METRICS.index("preemptions")]
"""Those over the window behind the warm-up; the others are of the whole run."""
SEPARATOR = " | "                                      # between notes, which have semicolons of their own
TAIL = ("step_time", "notes", "warnings", "checks_ok", "command", "result")


@dataclass(frozen=True)
class Job:
    """What every point of a scenario needs besides itself; ``searched`` are the options that its search chooses."""

    materials: Materials
    path: str
    traffic: Mapping[str, Any] | None
    searched: tuple[str, ...] = ()
    version: str = VERSION


def columns(knobs: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of the results, in order."""
    return (*HEAD, *knobs, *CAPACITY, *METRICS, *TAIL)


def run_point(job: Job, point: Point) -> Row:
    """Simulate a point; what goes wrong is in the row's ``status`` and ``error``."""
    part = SEARCH if any(name in job.searched for name, _ in point.knobs) else GRID
    row: Row = {"part": part, "allocator": point.allocator, "seed": point.seed, **dict(point.knobs)}
    if job.version != VERSION:                         # a worker that joined a cluster late
        return {**row, "status": LOST, "error": f"the worker has pagedsim {VERSION}, and {job.version} is wanted"}
    try:
        return {**row, "status": DONE, **_simulated(job, point)}
    except InputError as error:
        return {**row, "status": FAILED, "error": " ".join(str(error).split())}
    except MemoryError:
        return {**row, "status": LOST, "error": "this takes more memory than there is"}
    except Exception as error:                         # a broken invariant, a stall, a bug: told, and the others go on
        return {**row, "status": FAILED, "error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]}


def _simulated(job: Job, point: Point) -> Row:
    options, notes = parse(point.arguments), []
    options.model = job.materials.models.get(options.model, options.model)
    options.step_time = job.materials.step_times.get(options.step_time, options.step_time)
    trace, command, rate = _traffic(job, point, options, notes)
    setup = size_up(trace, options, notes)
    logs = [StayLog() for _ in range(setup.sim.data_parallel_size)]
    served = serve(setup, options.allocator[0], observers=lambda number: [logs[number]])
    document = compare_json(setup, [served], options.warm_up, {served.name: [log.stays() for log in logs]})
    measured = document["scenarios"][0]["measured"]
    unsaid = [name for name in job.searched if name not in dict(point.knobs)]
    return {**_ran_at(unsaid, setup, options, rate), **_capacity(setup, document["capacity"]),
            **{name: measured[name] for name in METRICS}, "command": command,
            "step_time": setup.sim.step_time.describe(), "notes": SEPARATOR.join(setup.notes) or None,
            "warnings": SEPARATOR.join(measured["warnings"]) or None,
            "checks_ok": all(check["ok"] for check in document["crosscheck"]),
            "result": json.dumps(document, allow_nan=False, separators=(",", ":"))}


def _traffic(job: Job, point: Point, options: argparse.Namespace, notes: list[str]) -> tuple[Trace, str, float | None]:
    """The trace that arrives, the command line that would replay the same, and requests a second."""
    base = job.materials.trace(point, options)
    words = ["pagedsim", "compare", *([] if point.trace is None else [point.trace]), *point.arguments]
    if job.traffic is not None:
        base = recipe(with_changes(job.traffic, dict(point.changes)))
        words = [*_synth(job.path, point), "|", "pagedsim", "compare", "-", *point.arguments]
    options.trace = point.trace if job.traffic is None else job.path
    rate = options.rate
    if base is None or base.arrival_us is None or rate is None or options.saturate:
        trace = load_trace(options, notes, base)
        drawn = options.synth_arrivals is None and (base is None or base.arrival_us is None)
        return trace, _line(words), (rate or DEFAULT_RATE) if drawn and not options.saturate else _own_rate(trace)
    if options.speed is not None:
        raise InputError("rate and speed both say how fast requests of a timed trace arrive: one of them")
    options.rate = None                                # of a trace with times: its own pace, changed exactly
    trace = load_trace(options, notes, base)
    speed = speed_for(trace, Fraction(str(rate)))
    words = [f"--speed={speed}" if word.startswith("--rate=") else word for word in words]
    return scale_times(trace, speed), _line(words), rate


def _own_rate(trace: Trace) -> float | None:
    """Requests over the time from the first to the last, as `speed_for` has it; None where all arrive at once."""
    span_us = 0 if trace.arrival_us is None else int(trace.arrival_us[-1] - trace.arrival_us[0])
    return len(trace) * 1e6 / span_us if span_us else None


def _ran_at(unsaid: Sequence[str], setup: Setup, options: argparse.Namespace, rate: float | None) -> Row:
    """What a point of the grid ran at in the options that are left to the search."""
    values = {"rate": rate, "speed": options.speed or 1.0, "num-gpu-blocks-override": setup.sim.num_blocks,
              "max-num-seqs": setup.sim.scheduler.max_num_seqs, "max-model-len": setup.sim.max_model_len,
              "tensor-parallel-size": options.tensor_parallel_size, "data-parallel-size": setup.sim.data_parallel_size}
    return {name: values[name] for name in unsaid}


def _synth(path: str, point: Point) -> list[str]:
    """What makes a point's traffic, on standard output."""
    changes = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in point.changes]
    name = "SCENARIO.toml" if path == "-" else path
    return ["pagedsim", "trace", "synth", name, "-", "-q", *(f"--set={change}" for change in changes)]


def _line(words: list[str]) -> str:
    """For a shell; a bare ``|`` is a pipe."""
    return " ".join(word if word == "|" else shlex.quote(word) for word in words)


def _capacity(setup: Setup, capacity: Mapping[str, Any]) -> Row:
    token = setup.kv_bytes_per_token
    gib = None if token is None else setup.sim.usable_slots * token * setup.gpus / GIB
    return {**{name: capacity[name] for name in CAPACITY if name in capacity}, "gpus": setup.gpus, "kv_gib": gib}
