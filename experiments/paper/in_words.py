"""An experiment's result as a person reads it: published and own numbers in a row, further tables, and how many are inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.paper.outcome import JsonObject
from experiments.paper.setting import MAX_TOTAL_TOKENS
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
    """How many numbers of them all are inside their tolerances, and how many have none; None where none is judged.

    >>> verdict([{"rows": [{"ok": True}]}, {"rows": [{"ok": False}]}])
    '1 of 2 numbers inside their tolerance'
    >>> verdict([{"rows": [{"ok": True}, {"ok": None}], "limit": 150, "trace": None}])
    '1 of 1 numbers with a verdict inside their tolerance; 1 more without a verdict (--limit 150: a part is not judged)'
    """
    found = [row["ok"] for document in documents for row in document["rows"]]
    judged = [ok for ok in found if ok is not None]
    if not judged:
        return None
    if len(judged) == len(found):
        return f"{sum(judged)} of {len(judged)} numbers inside their tolerance"
    why = "; ".join(dict.fromkeys(reason for document in documents if (reason := why_unjudged(document)) is not None))
    return (f"{sum(judged)} of {len(judged)} numbers with a verdict inside their tolerance; {len(found) - len(judged):,} more "
            f"without a verdict{f' ({why})' if why else ''}")


def why_unjudged(document: JsonObject) -> str | None:
    """Why numbers have no verdict that the whole trace of the paper would get; None where all is judged that can be."""
    if all(row["ok"] is not None for row in document["rows"]):
        return None
    if document["limit"] is not None:
        return f"--limit {document['limit']:,}: a part is not judged"
    trace = document["trace"]
    return None if trace is None or trace["artifact"] else f"{trace['source']} is not the paper's trace"


def trace_sentence(documents: Sequence[JsonObject]) -> str | None:
    """The file of lengths they all read, told so that it can be known again; None where none reads one.

    >>> trace_sentence([{"trace": {"source": "a.csv", "requests": 1000, "sha256": "2c26"}}, {"trace": None}])
    'Trace: a.csv, 1,000 requests of at most 2,048 tokens, SHA-256 2c26'
    """
    trace = next((document["trace"] for document in documents if document["trace"] is not None), None)
    if trace is None:
        return None
    known = "" if trace["sha256"] is None else f", SHA-256 {trace['sha256']}"
    return f"Trace: {trace['source']}, {trace['requests']:,} requests of at most {MAX_TOTAL_TOKENS:,} tokens{known}"


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
