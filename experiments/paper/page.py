"""All results on one page: Markdown beside the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from experiments.output import write_text
from experiments.paper.in_words import why_unjudged
from experiments.paper.outcome import JsonObject

NAME = "reproduction.md"


def write_page(folder: Path, documents: list[JsonObject]) -> Path:
    """Write the page into the folder of the pictures; returns its path."""
    path = folder / NAME
    def write(file: IO[str]) -> None:
        file.write(page(documents))

    write_text(str(path), write)
    return path


def page(documents: list[JsonObject]) -> str:
    """The text of the page."""
    rows = [row for document in documents for row in document["rows"]]
    judged = [row for row in rows if row["ok"] is not None]
    right = sum(row["ok"] for row in judged)
    why = "; ".join(dict.fromkeys(filter(None, map(why_unjudged, documents))))
    parts = ["# Published numbers, reproduced", f"{right} of {len(judged)} judged numbers are inside their stated tolerances; "
             f"{len(rows) - len(judged)} more stand beside published ones without a verdict{f' ({_text(why)})' if why else ''}."]
    for document in documents:
        title = _text(document["title"])
        parts += [f"## {title}", f"`{document['command']}` (seed {document['seed']}). Published: {_text(document['source'])}.",
                  f"![{title}]({document['name']}.png)", _rows(document["rows"])]
        parts += [f"**{_text(table['title'])}**\n\n" + _table(table["columns"], table["rows"]) for table in document["tables"]]
        parts += ["\n".join(f"- {_text(note)}" for note in document["notes"])] if document["notes"] else []
    return "\n\n".join(parts) + "\n"


def _rows(rows: list[JsonObject]) -> str:
    verdict = {True: "ok", False: "**outside**", None: ""}
    return _table(["", "published", "ours", "unit", "difference", "tolerance", "", "note"],
                  [[r["label"], r["published"], r["ours"], r["unit"], r["difference"], r["tolerance"] or _bounds(r["bounds"]),
                    verdict[r["ok"]], r["note"]] for r in rows])


def _bounds(bounds: list[float | None] | None) -> str:
    return "" if bounds is None else " to ".join("" if bound is None else f"{bound:g}" for bound in bounds)


def _table(columns: list[str], rows: list[list[object]]) -> str:
    lines = [[_text(column) for column in columns], ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
    return _text(str(value))


def _text(text: str) -> str:
    """Plain text inside Markdown: what users name must not become markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
