"""Points: what is run, one simulation each. A scenario's grid is all combinations of its knobs, allocators and seeds.

    knobs       speed 2, kv-cache-dtype fp8        what differs
    allocator   paged-prefix
    seed        3                                  the same seed draws the same numbers in every combination
    arguments   ('--model=...', '--speed=2', ...)  of `pagedsim compare`, which would run the same
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.version import VERSION
from experiments.whatif.options import words
from experiments.whatif.scenario import TRAFFIC, Scenario, beside
from experiments.whatif.values import Scalar, same
from workloads.request import InputError

FILES = ("trace", "warm-trace", "model", "step-time")
"""Options whose value may be the name of a file."""
MOST_POINTS = 1_000_000
Knobs = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True)
class Point:
    """One simulation.

    Parameters
    ----------
    knobs : tuple of (name, value)
        In the order of the scenario.
    allocator : str
    seed : int
    arguments : tuple of str
        Words of ``pagedsim compare``, the trace's name aside.
    trace : str or None
        The trace file.
    changes : tuple of (key, value)
        Keys of the recipe that get another value.
    """

    knobs: Knobs
    allocator: str
    seed: int
    arguments: tuple[str, ...]
    trace: str | None = None
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def group(self) -> tuple[Knobs, str]:
        """What its sisters with other seeds have in common."""
        return self.knobs, self.allocator

    def name(self) -> str:
        """For people.

        >>> Point((("speed", 2), ("enable-prefix-caching", True)), "paged", 3, ()).name()
        'speed 2, enable-prefix-caching on, paged, seed 3'
        """
        return ", ".join([*(said(*knob) for knob in self.knobs), self.allocator, f"seed {self.seed}"])


def shown(value: object) -> str:
    """A value, for people."""
    return "on" if value is True else "off" if value is False else str(value)


def said(name: str, value: Scalar) -> str:
    """A knob at a value, for people."""
    return f"{name} {shown(value)}"


def said_of(settings: Mapping[str, Any]) -> str:
    """Knobs and allocator, for people.

    >>> said_of({"rate": 2, "enable-prefix-caching": False, "allocator": "paged"})
    'rate 2, enable-prefix-caching off, paged'
    """
    return ", ".join([*(said(name, value) for name, value in settings.items() if name != "allocator"), settings["allocator"]])


def grid(scenario: Scenario) -> list[Point]:
    """All points, the baseline's first where its values are not in the grid; allocators and seeds vary fastest.

    Raises
    ------
    InputError
        If there are more than a million.
    """
    lists = [knob.values for knob in scenario.knobs]
    count = len(scenario.allocators) * len(scenario.seeds)
    for values in lists:
        count *= len(values)
    if count > MOST_POINTS:
        raise InputError(f"{scenario.path}: a grid of {count:,} points is too large: at most {MOST_POINTS:,}")
    names = [knob.name for knob in scenario.knobs]
    combinations = [tuple(zip(names, values, strict=True)) for values in itertools.product(*lists)]
    base = baseline_knobs(scenario)
    if not any(same_knobs(base, knobs) for knobs in combinations):
        combinations.insert(0, base)
    return list(itertools.chain.from_iterable(group_points(scenario, knobs) for knobs in combinations))


def baseline_knobs(scenario: Scenario) -> Knobs:
    """What the others are held against."""
    return tuple((knob.name, scenario.baseline[knob.name]) for knob in scenario.knobs)


def same_knobs(a: Knobs, b: Knobs) -> bool:
    """Whether two settings are one, 1 and 1.0 being the same."""
    return len(a) == len(b) and all(x == y and same(v, w) for (x, v), (y, w) in zip(a, b, strict=True))


def group_points(scenario: Scenario, knobs: Knobs) -> Iterator[Point]:
    """The points of one combination of knobs: every allocator with every seed."""
    for allocator in scenario.allocators:
        for seed in scenario.seeds:
            yield make_point(scenario, knobs, allocator, seed)


def make_point(scenario: Scenario, knobs: Knobs, allocator: str, seed: int) -> Point:
    """One point; the words of its command line are not looked at here."""
    settings = {**scenario.options, **{name: value for name, value in knobs if not name.startswith(f"{TRAFFIC}.")}}
    changes = {name.removeprefix(f"{TRAFFIC}."): value for name, value in knobs if name.startswith(f"{TRAFFIC}.")}
    if scenario.traffic is not None:
        changes["seed"] = seed
        if "rate" in settings:
            changes["arrivals.rate"] = settings.pop("rate")
    for option in FILES:
        if option in settings:
            settings[option] = beside(scenario.path, str(settings[option]))
    trace = settings.pop("trace", None)
    cached = settings.get("enable-prefix-caching") is not False
    arguments = [word for name, value in settings.items() for word in words(name, value)]
    arguments += [f"--allocator={allocator if cached or allocator != 'paged-prefix' else 'paged'}", f"--seed={seed}",
                  f"--warm-up={scenario.warm_up}"]
    return Point(knobs, allocator, seed, tuple(arguments), None if trace is None else str(trace), tuple(changes.items()))


def point_key(point: Point, scenario: Scenario, digests: Mapping[str, str]) -> str:
    """A name that two points share only if they are the same simulation of the same input by the same version.

    Parameters
    ----------
    digests : mapping of file to digest
        Of every file that points read.
    """
    files = sorted(digests[name] for name in files_of(point))
    what = [VERSION, point.arguments, point.knobs, point.allocator, scenario.traffic, point.changes, files]
    return hashlib.sha256(json.dumps(what, default=str).encode()).hexdigest()


def files_of(point: Point) -> list[str]:
    """The files a point reads: its trace, and what its options name."""
    return [*([] if point.trace is None else [point.trace]), *option_files(point.arguments).values()]


def option_files(arguments: Iterable[str]) -> dict[str, str]:
    """Word of the command line -> the file it names."""
    found = {}
    for word in arguments:
        option, _, value = word.partition("=")
        if option[2:] in FILES and os.path.exists(value):
            found[word] = value
    return found
