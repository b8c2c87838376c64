"""A step time in a file: what `pagedsim calibrate --out` writes and ``--step-time FILE`` takes.

    kind = "roofline"                # or kind = "constant", and us = 20000
    bandwidth_efficiency = 0.71
    flops_efficiency = 0.48
    overhead_us = 3500.0

    [fitted]                         # for people, and for a note where it is used elsewhere
    model = "Llama-3.1-8B"
    gpu = "H100-80GB"
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from sim.step_time import ConstantStepTime, RooflineStepTime
from workloads.messages import complaint, show, show_names, show_path
from workloads.readers.source import open_source, whole_text
from workloads.request import InputError
from workloads.toml_text import line_of_path, load

EFFICIENCIES = ("bandwidth_efficiency", "flops_efficiency", "overhead_us")
LIMITS = {"bandwidth_efficiency": (0.0, 10.0), "flops_efficiency": (0.0, 10.0), "overhead_us": (0.0, 1e9), "us": (0.5, 2.0**40)}
KINDS: dict[str, tuple[str, ...]] = {"roofline": EFFICIENCIES, "constant": ("us",)}
METRICS = ("ttft", "tpot", "itl")                      # what is fitted to: to first token, per output token, between tokens
POOR = 0.2                                             # a mean error above it is worth a word
SAME = ("model", "gpu", "tensor_parallel_size")
LONGEST = 1 << 20
Provenance: TypeAlias = Mapping[str, str | int | float | list[str]]


@dataclass(frozen=True)
class StepTimeFile:
    """What stands in the file.

    Parameters
    ----------
    path : str
    kind : str
        A key of `KINDS`.
    numbers : mapping of name to float
        Those of its kind.
    fitted : mapping
        What the numbers were fitted to: the table ``fitted``.
    """

    path: str
    kind: str
    numbers: Mapping[str, float]
    fitted: Provenance = field(default_factory=dict)

    def constant(self) -> ConstantStepTime:
        """The step time of kind ``constant``."""
        return ConstantStepTime(round(self.numbers["us"]), self.source)

    def applied(self, roofline: RooflineStepTime) -> RooflineStepTime:
        """A model's roofline with the efficiencies of the file."""
        return replace(with_numbers(roofline, self.numbers), source=self.source)

    @property
    def source(self) -> str:
        """Where the numbers come from, for people."""
        where = ", ".join(str(self.fitted[name]) for name in ("model", "gpu") if name in self.fitted)
        return f"from {show_path(self.path)}" + (f", fitted to {where}" if where else "")

    def elsewhere(self, **used: str | int | None) -> str | None:
        """One line where the numbers were fitted to another model or GPU than they are ``used`` with, or badly; None if not."""
        others = [f"{name} {self.fitted[name]}, not {used[name]}" for name in SAME
                  if name in self.fitted and used.get(name) is not None and self.fitted[name] != used[name]]
        poor = [f"{metric.upper()} {100 * float(error):.0f} %" for metric in METRICS
                if isinstance(error := self.fitted.get(f"{metric}_error"), int | float) and error > POOR]
        said = [*([f"fitted to {'; '.join(others)}"] if others else []),
                *([f"its mean error is {' and '.join(poor)} where it was fitted"] if poor else [])]
        return f"--step-time {show_path(self.path)}: {'; '.join(said)}" if said else None


def with_numbers(roofline: RooflineStepTime, numbers: Mapping[str, float]) -> RooflineStepTime:
    """A roofline with other efficiencies, by their names in `EFFICIENCIES`."""
    bandwidth, flops, overhead_us = (numbers[name] for name in EFFICIENCIES)
    return replace(roofline, bandwidth_efficiency=bandwidth, flops_efficiency=flops, overhead_us=overhead_us)


def read_step_time(path: str) -> StepTimeFile:
    """Read a step time; every key must be known.

    Raises
    ------
    InputError
        One line with file, line and value.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "server.toml")
    >>> _ = path.write_text('kind = "constant"\\nus = 18000\\n')
    >>> read_step_time(str(path)).constant().us
    18000
    """
    source = open_source(path)
    text = whole_text(source)
    if len(text) > LONGEST:
        raise InputError(f"{show_path(source.path)}: a step time takes a few lines, this file is longer than 1 MiB")
    return _checked(_Lines(source.path, text), load(text, source.path))


@dataclass(frozen=True)
class _Lines:
    path: str
    text: str

    def complain(self, key: str, problem: str) -> InputError:
        """About the line on which a key stands."""
        return complaint(self.path, line_of_path(self.text, key) or 1, problem)


def _checked(lines: _Lines, found: dict[str, Any]) -> StepTimeFile:
    kind = found.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        missing = "kind" not in found
        raise lines.complain("kind", f"kind = {show(kind)}: one of {show_names(KINDS)} is wanted" if not missing
                             else f"no kind: one of {show_names(KINDS)} is wanted")
    for key in found:
        if key not in ("kind", "fitted", *KINDS[kind]):
            raise lines.complain(key, f"unknown key {show(key)}: a {kind} has {show_names(KINDS[kind])}")
    numbers = {name: _number(lines, found, name) for name in KINDS[kind]}
    return StepTimeFile(lines.path, kind, numbers, _provenance(lines, found.get("fitted", {})))


def _number(lines: _Lines, found: dict[str, Any], name: str) -> float:
    if name not in found:
        raise lines.complain("kind", f"no {name}: a {found['kind']} needs it")
    value, (above, most) = found[name], LIMITS[name]
    if type(value) not in (int, float) or not (above < value <= most or (name == "overhead_us" and value == 0)):
        bound = f"from {above:g}" if name == "overhead_us" else f"above {above:g}"
        raise lines.complain(name, f"{name} = {show(value)}: a number {bound} up to {most:g} is wanted")
    return float(value)


def _provenance(lines: _Lines, fitted: Any) -> Provenance:
    if not isinstance(fitted, dict):
        raise lines.complain("fitted", f"fitted = {show(fitted)}: a table is wanted")
    for name, value in fitted.items():
        texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if type(value) not in (str, int, float) and not texts:
            raise lines.complain(f"fitted.{name}", f"{name} = {show(value)}: a text, a number or a list of texts is wanted")
    return fitted


def step_time_text(numbers: Mapping[str, float], fitted: Provenance, comments: list[str]) -> str:
    """The file that `read_step_time` reads, of kind ``roofline``; each comment is a line on top.

    >>> print(step_time_text({"bandwidth_efficiency": 0.5, "flops_efficiency": 0.25, "overhead_us": 9.0}, {"gpu": "L4"}, ["hi"]))
    # hi
    kind = "roofline"
    bandwidth_efficiency = 0.5
    flops_efficiency = 0.25
    overhead_us = 9.0
    <BLANKLINE>
    [fitted]
    gpu = "L4"
    <BLANKLINE>
    """
    lines = [f"# {' '.join(text.split())}" for text in comments]
    lines += ['kind = "roofline"', *(f"{name} = {numbers[name]!r}" for name in EFFICIENCIES), "", "[fitted]"]
    lines += [f"{name} = {_toml(value)}" for name, value in fitted.items()]
    return "\n".join(lines) + "\n"


def _toml(value: str | int | float | list[str]) -> str:
    """JSON's texts, numbers and lists are TOML's, but for DEL and surrogates."""
    return json.dumps(value).replace("\x7f", "\\u007f") if not isinstance(value, float) else repr(value)
