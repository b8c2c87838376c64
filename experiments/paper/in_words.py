"""An experiment's result as a person reads it: published and own numbers in a row, further tables, and how many are inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.paper.outcome import JsonObject
from experiments.shown import TextTable, Titled


def row_table(document: JsonObject) -> TextTable:
    """Each number beside the published one; ``document`` is what `pagedsim reproduce NAME --json` writes."""
    made = TextTable(("", "published", "ours", "difference", "tolerance", "", ""))
    for row in document["rows"]:
        made.add_row(*cells(row))
    return made


def further_tables(document: JsonObject) -> Iterator[Titled]:
    """Numbers that explain or go beyond the published ones."""
    for table in document["tables"]:
        made = TextTable(tuple(table["columns"]), frozenset({0}))
        for row in table["rows"]:
            made.add_row(*map(figure, row))
        yield table["title"], made


def verdict(documents: Sequence[JsonObject]) -> str | None:
    """How many numbers of them all are inside their tolerances; None where none is judged.

    >>> verdict([{"rows": [{"ok": True}, {"ok": None}]}, {"rows": [{"ok": False}]}])
    '1 of 2 numbers inside their tolerance'
    """
    judged = [row["ok"] for document in documents for row in document["rows"] if row["ok"] is not None]
    return f"{sum(judged)} of {len(judged)} numbers inside their tolerance" if judged else None


def cells(row: JsonObject) -> list[str]:
    """One row in text: label, published, ours, difference, tolerance, verdict, note."""
    bounds = [f"{word} {bound:g}" for word, bound in zip(("from", "to"), row["bounds"] or (), strict=False) if bound is not None]
    tolerance = " ".join(bounds) if row["tolerance"] is None else f"{row['tolerance']:.3g}"
    inside = {True: "ok", False: "OUTSIDE", None: ""}[row["ok"]]
    sign = "" if row["difference"] is None else f"{row['difference']:+.4g}"
    return [row["label"], figure(row["published"]), f"{figure(row['ours'])} {row['unit']}".strip(), sign, tolerance, inside,
            row["note"]]


def figure(value: float | int | str | None) -> str:
    """A number as people read it: four digits that count, thousands apart.

    >>> figure(20.4321), figure(15728), figure(None), figure("a")
    ('20.43', '15,728', '-', 'a')
    """
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
