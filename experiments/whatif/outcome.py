"""What a sweep came to: rows in groups of one setting, their statistics over the seeds, and differences against the baseline.

Seeds are common to all settings (common random numbers), so a difference is taken seed by seed and its interval is that of the
differences: what the draws have in common falls out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from experiments.whatif.points import Knobs, Point, baseline_knobs, same_knobs
from experiments.whatif.scenario import Scenario
from experiments.whatif.search import Found
from experiments.whatif.simulate import WINDOWED
from experiments.whatif.statistics import Estimate, estimate, paired
from experiments.whatif.store import DONE, Row


@dataclass(frozen=True)
class Group:
    """One setting: an allocator and a value of every knob, with a row for each seed."""

    knobs: Knobs
    allocator: str
    rows: tuple[Row, ...]

    @property
    def done(self) -> bool:
        """Whether every seed gave a result."""
        return all(row["status"] == DONE for row in self.rows)

    @property
    def error(self) -> str | None:
        """Why one of its points gave none."""
        return next((row["error"] for row in self.rows if row["status"] != DONE), None)

    def settings(self) -> dict[str, Any]:
        """Knobs and allocator, to be compared with others."""
        return {**dict(self.knobs), "allocator": self.allocator}

    def values(self, metric: str) -> list[float | None]:
        """A metric's value for each seed; None where it was not measured."""
        return [row.get(metric) for row in self.rows]


@dataclass(frozen=True)
class Outcome:
    """All of it.

    Parameters
    ----------
    scenario : Scenario
    points : list of Point
        Of the grid first, then of the searches.
    rows : list of dict
        A row a point.
    grid_points : int
        How many of them are the grid's.
    found : list of Found
    counts : mapping of str to int
        Points run now, kept from before, failed, lost.
    columns : sequence of str
        Of a row, in order.
    """

    scenario: Scenario
    points: Sequence[Point]
    rows: Sequence[Row]
    grid_points: int
    found: Sequence[Found]
    counts: Mapping[str, int]
    columns: Sequence[str]

    @cached_property
    def groups(self) -> list[Group]:
        """The settings of the grid, in its order."""
        made: dict[tuple[Knobs, str], list[Row]] = {}
        for point, row in zip(self.points[: self.grid_points], self.rows, strict=False):
            made.setdefault(point.group, []).append(row)
        return [Group(knobs, allocator, tuple(rows)) for (knobs, allocator), rows in made.items()]

    @cached_property
    def baseline(self) -> Group:
        """What the others are held against: the baseline's knobs under the first allocator."""
        knobs = baseline_knobs(self.scenario)
        return next(group for group in self.groups if same_knobs(group.knobs, knobs))

    def estimate(self, group: Group, metric: str) -> Estimate | None:
        """Mean and interval over the seeds; None where no seed has a value."""
        found = estimate(group.values(metric), self.scenario.confidence)
        return None if found.mean is None else found

    def difference(self, group: Group, metric: str, base: Group | None = None) -> Estimate | None:
        """Mean and interval of the differences seed by seed; None where there are none, or the windows are unlike."""
        base = base or self.baseline
        if metric in WINDOWED and unlike_windows(base, group):
            return None
        found = paired(base.values(metric), group.values(metric), self.scenario.confidence)
        return None if found.mean is None else found


def unlike_windows(base: Group, group: Group) -> bool:
    """Whether a seed is averaged over the whole run in one setting and over the time of the traffic in the other."""
    return any(a["whole_run"] != b["whole_run"] for a, b in zip(base.rows, group.rows, strict=True)
               if a["status"] == b["status"] == DONE)


def changes(base: Group, group: Group) -> dict[str, tuple[Any, Any]]:
    """What is other than in ``base``: name -> (there, here).

    >>> changes(Group((("rate", 1),), "paged", ()), Group((("rate", 2),), "paged", ()))
    {'rate': (1, 2)}
    """
    there, here = base.settings(), group.settings()
    return {name: (there[name], value) for name, value in here.items() if there[name] != value}
