"""A scenario: one TOML file that says what is run.

    trace = "last_week.csv"          what arrives: a trace file, or a table [traffic], or the built-in chat workload
    model = "Llama-3.1-8B"           any option of `pagedsim compare`
    allocators = ["paged-prefix"]    what is compared
    seeds = 5                        how often what is random is drawn: 5 is 0 to 4; or a list
    [sweep]                          knobs: option -> its values; the grid is all combinations
    [baseline]                       what the others are held against (else the first value of each knob)
    [search]                         the largest rate, the smallest pool or the fewest GPUs that keep a promise
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.whatif.options import check_value, option_name
from experiments.whatif.places import Wrong, at
from experiments.whatif.search_spec import Search, read_search
from experiments.whatif.values import Scalar, check_once, check_scalar, read_values
from sim.catalog import ALLOCATORS
from sim.steady import parse_warmup
from workloads.messages import show, show_path
from workloads.request import InputError
from workloads.synth.recipe import recipe_text
from workloads.toml_text import decoded, line_of, load

TRAFFIC = "traffic"
SECTIONS = ("sweep", "baseline", "search", TRAFFIC)
MOST_SEEDS = 10_000
DEFAULT_ALLOCATORS = ("paged-prefix",)
DEFAULT_CONFIDENCE = 0.95
DEFAULT_WARM_UP = "20%"                                # of the arrivals' span: the same requests in all settings of a seed


@dataclass(frozen=True)
class Knob:
    """An option, or a key of the traffic's table (``traffic.prefix.tokens``), and the values it takes."""

    name: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Scenario:
    """What one file says, checked as far as that goes without reading the trace.

    Parameters
    ----------
    path : str
        The file.
    options : mapping of option to value
        What all points have in common.
    traffic : mapping or None
        A table of `workloads.synth.recipe`.
    knobs : tuple of Knob
    allocators, seeds : tuple
    baseline : mapping of knob to value
        All knobs.
    warm_up : str
        A rule of `steady`.
    confidence : float
        Of every interval.
    search : Search or None
    text : str
        The file as it stands.
    """

    path: str
    options: Mapping[str, Scalar]
    traffic: Mapping[str, Any] | None
    knobs: tuple[Knob, ...]
    allocators: tuple[str, ...] = DEFAULT_ALLOCATORS
    seeds: tuple[int, ...] = (0,)
    baseline: Mapping[str, Scalar] = field(default_factory=dict)
    warm_up: str = DEFAULT_WARM_UP
    confidence: float = DEFAULT_CONFIDENCE
    search: Search | None = None
    text: str = ""


def read_scenario(path: str) -> Scenario:
    """The scenario in a TOML file.

    Raises
    ------
    InputError
        On one line, with the file, the line where it can be told, the key and its value.
    """
    text = recipe_text(path)
    return parse_scenario(path, decoded(text, _shown(path)))


def parse_scenario(path: str, text: str) -> Scenario:
    """The scenario in the text of a file; complaints are as those of `read_scenario`."""
    table = load(text, _shown(path))
    try:
        return replace(_Reader(path, table).scenario(), text=text)
    except Wrong as error:
        line = line_of(text, *error.keys)
        where = ".".join(key for key in error.keys if key)
        raise InputError(f"{show_path(_shown(path))}{f':{line}' if line else ''}: {where}: {error.problem}") from None


def _shown(path: str) -> str:
    return "standard input" if path == "-" else path


class _Reader:
    """Takes a table apart, part by part."""

    def __init__(self, path: str, table: dict[str, Any]) -> None:
        self.path, self.table = path, table

    def scenario(self) -> Scenario:
        """Everything together."""
        table = dict(self.table)
        parts = {name: self._section(table.pop(name, {}), name) for name in SECTIONS}
        traffic = parts[TRAFFIC] or None
        knobs = [self._knob(name, value, traffic) for name, value in _flat(parts["sweep"])]
        _unique([knob.name for knob in knobs])
        knobs, drawn = [knob for knob in knobs if knob.name not in ("seed", "allocator")], \
            {knob.name: knob.values for knob in knobs if knob.name in ("seed", "allocator")}
        allocators = at(("allocators",), _allocators, _either(table, "allocators", drawn.get("allocator")))
        seeds = at(("seeds",), _seeds, _either(table, "seeds", drawn.get("seed")))
        warm_up = at(("warm-up",), _warm_up, table.pop("warm-up", table.pop("warm_up", DEFAULT_WARM_UP)))
        confidence = at(("confidence",), _confidence, table.pop("confidence", DEFAULT_CONFIDENCE))
        options = {at((key,), option_name, key): value for key, value in table.items()}
        for key, name in zip(table, options, strict=False):
            at((key,), check_value, name, options[name])
        self._disjoint(options, knobs, traffic)
        search = at(("search",), read_search, parts["search"]) if parts["search"] else None
        return Scenario(self.path, options, traffic, tuple(knobs), allocators, seeds,
                        self._baseline(parts["baseline"], knobs, traffic), warm_up, confidence, search)

    def _section(self, value: object, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(f"a table [{name}] is wanted, not {show(value)}", name)
        return value

    def _name(self, key: str, traffic: Mapping[str, Any] | None) -> str:
        if key.startswith(f"{TRAFFIC}."):
            if traffic is None:
                raise InputError("there is no table [traffic] to change")
            return key
        if key in ("seed", "seeds", "allocator", "allocators"):
            return key.removesuffix("s")
        return option_name(key)

    def _knob(self, key: str, value: object, traffic: Mapping[str, Any] | None) -> Knob:
        name = at(("sweep", key), self._name, key, traffic)
        values = at(("sweep", key), read_values, value)
        for one in values:
            if not name.startswith(f"{TRAFFIC}.") and name not in ("seed", "allocator"):
                at(("sweep", key), check_value, name, one)
        return Knob(name, values)

    def _disjoint(self, options: Mapping[str, Any], knobs: list[Knob], traffic: Mapping[str, Any] | None) -> None:
        for knob in knobs:
            if knob.name in options:
                raise Wrong("said above and swept here: one of them", "sweep", knob.name)
        if traffic is not None and ("trace" in options or any(knob.name == "trace" for knob in knobs)):
            raise Wrong("a trace is named as well: one of them", TRAFFIC)

    def _baseline(self, given: Mapping[str, Any], knobs: list[Knob], traffic: Mapping[str, Any] | None) -> dict[str, Scalar]:
        made: dict[str, Scalar] = {knob.name: knob.values[0] for knob in knobs}
        for key, value in _flat(given):
            name = at(("baseline", key), self._name, key, traffic)
            if name not in made:
                raise Wrong("not among the knobs of [sweep]", "baseline", key)
            at(("baseline", key), check_scalar, value)
            made[name] = value
        return made


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """``traffic = {prefix = {tokens = [..]}}`` as ``traffic.prefix.tokens``; ranges stay as they are."""
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, dict) and (name == TRAFFIC or (before and "from" not in value)):
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _unique(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise Wrong("comes twice, under two names", "sweep", name)


def _either(table: dict[str, Any], key: str, swept: tuple[Scalar, ...] | None) -> Any:
    """What stands under a key of the scenario or, as a knob, in [sweep]."""
    said = table.pop(key, table.pop(key[:-1], None))
    if said is not None and swept is not None:
        raise Wrong(f"said above and in [sweep] as {key[:-1]}: one of them", key)
    return said if swept is None else list(swept)


def _allocators(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else list(DEFAULT_ALLOCATORS) if value is None else value
    if not isinstance(names, list) or not names:
        raise InputError(f"a list of names is wanted, not {show(value)}")
    unknown = [name for name in names if not isinstance(name, str) or name not in ALLOCATORS]
    if unknown:
        raise InputError(f"unknown allocator {show(unknown[0])}: one of {', '.join(ALLOCATORS)}")
    check_once(names)
    return tuple(names)


def _seeds(value: Any) -> tuple[int, ...]:
    if value is None:
        return (0,)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SEEDS:
        return tuple(range(value))
    if not isinstance(value, list) or not value or any(type(seed) is not int or not 0 <= seed < 1 << 53 for seed in value):
        raise InputError(f"how many (1 to {MOST_SEEDS:,}), or a list of whole numbers from 0, is wanted, not {show(value)}")
    check_once(value)
    return tuple(value)


def _warm_up(value: Any) -> str:
    try:
        parse_warmup(str(value))
    except ValueError as error:
        raise InputError(str(error)) from None
    return str(value)


def _confidence(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 <= value < 1:
        raise InputError(f"a share from 0.5 to below 1 is wanted, not {show(value)}")
    return float(value)


def beside(path: str, name: str) -> str:
    """A file named in a scenario: looked for beside the scenario first, then where the command runs."""
    near = os.path.join(os.path.dirname(path), name)
    return near if os.path.exists(near) else name
