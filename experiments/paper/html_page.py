"""All results of `pagedsim reproduce all` as one page that stands alone: each number beside the published one, figures inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from experiments.html.page import picture, provenance, render, write_page
from experiments.paper.in_words import further_tables, row_table, trace_sentence, verdict, why_unjudged
from experiments.paper.outcome import JsonObject
from experiments.shown import TextTable, Titled

NAME = "reproduction.html"
UNJUDGED = "without a verdict"


@dataclass(frozen=True)
class Part:
    """One experiment of the page; ``ok`` is None where nothing is judged, or not all that could be."""

    name: str
    title: str
    command: str
    source: str
    verdict: str
    ok: bool | None
    picture: Markup
    rows: TextTable
    tables: list[Titled]
    notes: list[tuple[str, str]]


def write_reproduction(folder: Path, documents: Sequence[JsonObject], words: Sequence[str]) -> Path:
    """Write the page into the folder that holds the pictures; returns its path.

    Parameters
    ----------
    folder : Path
    documents : sequence of dict
        As `pagedsim reproduce NAME --json` writes them, one an experiment.
    words : sequence of str
        Of the command line.
    """
    path = folder / NAME
    parts = [_part(document, (folder / f"{document['name']}.png").read_bytes()) for document in documents]
    page = render("reproduction.html", title="Published numbers, reproduced", parts_of_page=parts,
                  verdict=verdict(documents) or UNJUDGED, ok=_colour(documents), read=trace_sentence(documents),
                  provenance=provenance(words))
    write_page(str(path), page)
    return path


def _colour(documents: Sequence[JsonObject]) -> bool | None:
    """False where a number is outside; None where numbers have no verdict that the whole trace would get; else True."""
    if not all(document["ok"] for document in documents):
        return False
    return None if any(why_unjudged(document) for document in documents) else True


def _part(document: JsonObject, png: bytes) -> Part:
    told = verdict([document])
    return Part(document["name"], document["title"], document["command"], document["source"], told or UNJUDGED,
                _colour([document]) if told else None, picture(png, f"{document['title']}. {told or UNJUDGED}"),
                row_table(document), list(further_tables(document)), [("note", note) for note in document["notes"]])
