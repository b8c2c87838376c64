"""One point, simulated: from its options and the traces to the row of the results. Runs in any process, on any machine.

`run_point` gives everything back as plain numbers and text, failures too: one point that cannot be run stops no other.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from experiments.compare import config_json, trace_json
from experiments.crosscheck import audit_for, checks
from experiments.load import load_trace
from experiments.setup import Setup, size_up
from experiments.version import VERSION
from experiments.whatif.materials import Materials
from experiments.whatif.options import parse
from experiments.whatif.points import Point
from experiments.whatif.store import DONE, FAILED, LOST, Row
from sim.engine import Engine
from sim.result import scenario
from sim.run import Run
from sim.sizing.hardware import GIB
from sim.stays import Stays
from sim.steady import METRICS, measures, warnings
from workloads.request import InputError, Trace
from workloads.scaling import scale_times, speed_for
from workloads.synth.recipe import recipe, with_changes

HEAD = ("number", "status", "error", "allocator", "seed")
CAPACITY = ("gpus", "kv_gib", "num_blocks", "block_size", "kv_tokens", "max_model_len", "max_concurrency", "kv_bytes_per_token")
TAIL = ("warnings", "checks_ok", "command", "result")


@dataclass(frozen=True)
class Job:
    """What every point of a scenario needs besides itself."""

    materials: Materials
    path: str
    traffic: Mapping[str, Any] | None
    warm_up: str
    version: str = VERSION


def columns(knobs: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of the results, in order."""
    return (*HEAD, *knobs, *CAPACITY, *METRICS, *TAIL)


def run_point(job: Job, point: Point) -> Row:
    """Simulate a point; what goes wrong is in the row's ``status`` and ``error``."""
    row: Row = {"allocator": point.allocator, "seed": point.seed, **dict(point.knobs)}
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
    trace, command = _traffic(job, point, options, notes)
    setup = size_up(trace, options, notes)
    name, stays = options.allocator[0], Stays()
    audit = audit_for(name)
    run = Engine(setup.trace, setup.sim, name, None, [audit, stays], setup.warm).run()
    held = list(checks(name, run, setup.kv_bytes_per_token, audit))
    measured = measures(run, stays, job.warm_up)
    result = {"schema": 1, "pagedsim": VERSION, "trace": trace_json(setup), "config": config_json(setup),
              "capacity": setup.capacity(), "scenarios": [scenario(name, run)], "crosscheck": [check.json() for check in held]}
    return {**_capacity(setup, run, options), **measured, "warnings": "; ".join(warnings(run, stays, measured)) or None,
            "checks_ok": all(check.ok for check in held), "command": command,
            "result": json.dumps(result, allow_nan=False, separators=(",", ":"))}


def _traffic(job: Job, point: Point, options: argparse.Namespace, notes: list[str]) -> tuple[Trace, str]:
    """The trace that arrives, and the command line that would replay the same."""
    base = job.materials.trace(point, options)
    words = ["pagedsim", "compare", *([] if point.trace is None else [point.trace]), *point.arguments]
    if job.traffic is not None:
        base = recipe(with_changes(job.traffic, dict(point.changes)))
        words[2:2] = ["TRAFFIC.csv"]
    options.trace = point.trace if job.traffic is None else job.path
    rate = options.rate
    if base is None or base.arrival_us is None or rate is None or options.saturate:
        return load_trace(options, notes, base), shlex.join(words)
    if options.speed is not None:
        raise InputError("rate and speed both say how fast requests of a timed trace arrive: one of them")
    options.rate = None                                # of a trace with times: its own pace, changed exactly
    trace = load_trace(options, notes, base)
    speed = speed_for(trace, Fraction(str(rate)))
    words = [f"--speed={speed}" if word.startswith("--rate=") else word for word in words]
    return scale_times(trace, speed), shlex.join(words)


def _capacity(setup: Setup, run: Run, options: argparse.Namespace) -> Row:
    capacity = setup.capacity()
    gpus = options.tensor_parallel_size * options.pipeline_parallel_size
    token = setup.kv_bytes_per_token
    return {**{name: capacity[name] for name in CAPACITY if name in capacity}, "gpus": gpus,
            "kv_gib": None if token is None else setup.sim.usable_slots * token * gpus / GIB}
