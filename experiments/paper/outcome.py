"""What an experiment found: rows of published and own numbers, data for its figure, and what was assumed.

    row   label                    published   ours   difference   tolerance   ok
          Orca (Max), token states      20.4   20.4          0.0         0.8   yes
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One number beside its published counterpart.

    Parameters
    ----------
    label, unit : str
        What it is; the unit of all its numbers.
    published, ours : float or None
        None where nothing is published, or nothing can be computed.
    tolerance : float or None
        Largest difference either way that counts as reproduced; None: no verdict.
    least, most : float or None
        Bounds that ``ours`` has to keep, where a range is published instead of a number.
    note : str
        Why it differs, what was assumed, or whose measurement it is.
    """

    label: str
    published: float | None
    ours: float | None
    unit: str = ""
    tolerance: float | None = None
    least: float | None = None
    most: float | None = None
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less published."""
        return None if self.published is None or self.ours is None else self.ours - self.published

    @property
    def ok(self) -> bool | None:
        """Whether it is inside its tolerance or its bounds; None where there are none.

        >>> Row("a", 20.4, 20.5, tolerance=0.2).ok, Row("b", None, 3.0, most=2.0).ok, Row("c", 1.0, 2.0).ok
        (True, False, None)
        """
        if self.tolerance is None and self.least is None and self.most is None:
            return None
        if self.ours is None:
            return False
        inside = (self.least is None or self.ours >= self.least) and (self.most is None or self.ours <= self.most)
        return inside and (self.tolerance is None or self.difference is None or abs(self.difference) <= self.tolerance)

    def json(self) -> JsonObject:
        """As a row of the JSON, with unit, bounds and note."""
        bounds = None if self.least is None and self.most is None else [self.least, self.most]
        return {"label": self.label, "published": self.published, "ours": self.ours, "difference": self.difference,
                "tolerance": self.tolerance, "ok": self.ok, "unit": self.unit, "bounds": bounds, "note": self.note}


@dataclass(frozen=True)
class Table:
    """Numbers that explain or go beyond the published ones, without a verdict."""

    title: str
    columns: list[str]
    rows: list[list[str | float | int | None]]

    def json(self) -> JsonObject:
        """The same as an object."""
        return {"title": self.title, "columns": self.columns, "rows": self.rows}


@dataclass(frozen=True)
class Outcome:
    """Rows, tables, what the figure is drawn from, and sentences about what was assumed."""

    rows: list[Row]
    data: JsonObject = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No row is outside its tolerance."""
        return all(row.ok is not False for row in self.rows)


def mean_absolute_difference(rows: Iterable[Row]) -> float:
    """Mean of the differences without their sign.

    >>> mean_absolute_difference([Row("a", 1.0, 2.0), Row("b", 3.0, 1.0), Row("c", None, 1.0)])
    1.5
    """
    found = [abs(row.difference) for row in rows if row.difference is not None]
    return sum(found) / len(found)
