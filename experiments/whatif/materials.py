"""What points read, read once: the traces, and a digest of every file, so that a result is never taken for another's."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from experiments.reading import read
from experiments.step_time_file import StepTimeFile, read_step_time
from experiments.whatif.options import parse
from experiments.whatif.points import Point, files_of, option_files
from sim.models.model import ModelShape
from sim.models.model_config import load_model
from workloads.messages import reading_failed
from workloads.request import ContentIds, InputError, Trace

READING = ("format", "columns", "strict", "hash_block_size", "incremental_turns", "window", "session_rate")
DRAWN = ("servegen",)                                  # formats that hold rates: every seed draws other requests
Key = tuple[str, ...]


@dataclass(frozen=True)
class Materials:
    """Traces by how they are read, digests by file, and what other files hold, so that a worker needs none of them."""

    traces: Mapping[Key, Trace]
    digests: Mapping[str, str]
    models: Mapping[str, ModelShape]
    step_times: Mapping[str, StepTimeFile]

    def trace(self, point: Point, options: argparse.Namespace) -> Trace | None:
        """The trace of a point before it is cut and timed; None: made from a table, or built in."""
        return None if point.trace is None else self.traces[_found(self.traces, point.trace, options)]


def gather(points: Iterable[Point]) -> Materials:
    """Read every trace that the points need, and look at every file.

    Raises
    ------
    InputError
        If one cannot be read, or options about reading make no sense.
    """
    traces: dict[Key, Trace] = {}
    digests: dict[str, str] = {}
    models: dict[str, ModelShape] = {}
    step_times: dict[str, StepTimeFile] = {}
    for point in points:
        if point.trace is not None:
            options = parse(point.arguments)
            options.trace = point.trace
            _read_new(traces, point.trace, options)
        for word, name in option_files(point.arguments).items():
            if word.startswith("--model=") and name not in models:
                models[name] = load_model(name)
            if word.startswith("--step-time=") and name not in step_times:
                step_times[name] = read_step_time(name)
        for name in files_of(point):
            if name not in digests:
                digests[name] = _digest_of(os.path.join(name, "config.json") if name in models and os.path.isdir(name) else name,
                                           traces)
    return Materials(traces, digests, models, step_times)


def _read_new(traces: dict[Key, Trace], path: str, options: argparse.Namespace) -> None:
    if path == "-":
        raise InputError("a scenario's trace is a file: standard input cannot be read again by another process")
    plain, seeded = _key(path, options), (*_key(path, options), str(options.seed))
    if plain in traces or seeded in traces:
        return
    rows, asked = read(options, path)
    draws = rows.format in DRAWN or rows.clocks is not None
    traces[seeded if draws else plain] = rows.to_trace(asked)


def _found(traces: Mapping[Key, Trace], path: str, options: argparse.Namespace) -> Key:
    plain = _key(path, options)
    return plain if plain in traces else (*plain, str(options.seed))


def _key(path: str, options: argparse.Namespace) -> Key:
    return (path, *(str(getattr(options, name)) for name in READING))


def _digest_of(name: str, traces: Mapping[Key, Trace]) -> str:
    """Of what a trace holds, of the bytes of any other file."""
    held = [trace_digest(trace) for key, trace in traces.items() if key[0] == name]
    if held:
        return hashlib.sha256("".join(held).encode()).hexdigest()
    made = hashlib.sha256()
    try:
        for path in sorted(Path(name).rglob("*")) if os.path.isdir(name) else [Path(name)]:
            if path.is_file():
                made.update(os.fsencode(os.path.relpath(path, name)) + b"\n" + path.read_bytes())
    except OSError as error:
        raise reading_failed(name, error) from None
    return made.hexdigest()


def trace_digest(trace: Trace) -> str:
    """A digest of every column and of what was left out; the file's name does not count.

    >>> a, b = (Trace(name, np.array([5, 6]), np.array([3, 1])) for name in "ab")
    >>> trace_digest(a) == trace_digest(b), trace_digest(a) == trace_digest(Trace("a", np.array([5, 6]), np.array([3, 2])))
    (True, False)
    """
    made = hashlib.sha256()
    for one in fields(trace):
        if one.name not in ("source", "notes", "made_by"):
            _feed(made, one.name, getattr(trace, one.name))
    return made.hexdigest()


def _feed(made: Any, name: str, value: Any) -> None:
    made.update(f"\n{name}:".encode())
    if isinstance(value, ContentIds):
        for part in ("ids", "starts", "span_tokens", "cover_output"):
            _feed(made, part, getattr(value, part))
    elif isinstance(value, np.ndarray):
        made.update(f"{value.dtype.str}{value.shape}".encode())
        made.update(np.ascontiguousarray(value).data)
    else:
        made.update(repr(value).encode())


