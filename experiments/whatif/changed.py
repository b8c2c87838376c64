"""What is other in a scenario than when its results began: key by key, so that a refusal to go on says why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.whatif.points import Point, files_of
from experiments.whatif.scenario import TRAFFIC, Scenario, parse_scenario
from experiments.whatif.values import same
from workloads.messages import show, show_path
from workloads.request import InputError


def changes_since(text: str, scenario: Scenario, points: Sequence[Point]) -> str:
    """What keeps old results from being those of a scenario.

    Parameters
    ----------
    text : str
        The scenario's file as it was.
    points : sequence of Point
        Of the scenario as it is now.

    Returns
    -------
    str
        As ``rate = 2 -> 3``; where the file says the same, the files that it reads must be others.
    """
    try:
        changed = list(_changed(_settings(parse_scenario(scenario.path, text)), _settings(scenario)))
    except InputError:                                 # a text that is none of ours any more
        return "files or settings changed"
    names = sorted({show_path(name) for point in points for name in files_of(point)})
    return ", ".join(changed) or (f"what {' or '.join(names)} holds changed" if names else "files or settings changed")


def _settings(scenario: Scenario) -> dict[str, Any]:
    """Key -> value of all that points are made of; tuples are lists that may grow."""
    swept = {f"sweep.{knob.name}": tuple(dict.fromkeys([*knob.values, scenario.baseline[knob.name]])) for knob in scenario.knobs}
    search = {} if scenario.search is None else {f"search.{scenario.search.goal}": scenario.search.what}
    return {**scenario.options, **dict(_flat(scenario.traffic or {}, TRAFFIC)), "warm-up": scenario.warm_up, **swept,
            "allocators": scenario.allocators, "seeds": scenario.seeds, **search}


def _flat(table: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}.{key}")
        else:
            yield f"{before}.{key}", value


def _changed(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*was, *now]):
        old, new = was.get(key), now.get(key)
        if isinstance(old, tuple) and isinstance(new, tuple):
            gone = [one for one in old if not any(same(one, other) for other in new)]
            if gone:
                yield f"{key} without {_text(gone[0])}" + (f" and {len(gone) - 1:,} more" if len(gone) > 1 else "")
        elif not same(old, new):
            yield f"{key} = {_text(old)} -> {_text(new)}"


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else show(list(value) if isinstance(value, tuple) else value)
