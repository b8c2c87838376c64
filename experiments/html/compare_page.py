"""The page of `pagedsim compare --html`: what its report prints, a bar an allocator, the pool over time, the seven parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments.check_report import check_table, meaning, verdict
from experiments.html.page import provenance, render
from experiments.html.pictures import drawn_picture
from experiments.html.pool_bar import bars, patterns
from experiments.numbers import percent
from experiments.parts import LABELS, PARTS_IN_WORDS, TOGETHER
from experiments.report import header, remarks, tables
from experiments.shown import TextTable, grouped
from workloads.messages import show_path

JsonObject = dict[str, Any]


def compare_page(document: JsonObject, title: str, draw: Callable[[str], None], words: Sequence[str]) -> str:
    """The text of the page.

    Parameters
    ----------
    document : dict
        What ``--json`` writes.
    title : str
        Name of the trace.
    draw : callable
        Draws the pool over time into a PNG.
    words : sequence of str
        Of the command line behind ``compare``.
    """
    scenarios, checks = document["scenarios"], document["crosscheck"]
    return render(
        "compare.html", title=f"Where the KV cache goes: {show_path(title)}", header=grouped(header(document)),
        notes=[("note", note) for note in document["config"]["notes"]], patterns=patterns(), bars=bars(scenarios),
        glossary=[(part, LABELS[part], about) for part, about in PARTS_IN_WORDS.items()], together=TOGETHER,
        picture=drawn_picture(draw, _alt(scenarios)), tables=[(_name(table), table) for table in tables(scenarios)],
        remarks=list(remarks(scenarios)), checks=check_table(checks), meaning=meaning(checks), verdict=verdict(checks),
        failed=not all(check["ok"] for check in checks), provenance=provenance(["compare", *words]))


def _name(table: TextTable) -> str:
    """For who hears of a table before it is read: its corner says what it is."""
    return table.columns[0] or "a column an allocator"


def _alt(scenarios: list[JsonObject]) -> str:
    told = (f"{s['allocator']}: {percent(s['memory']['token_states'])} useful, {s['concurrency']['mean']:,.1f} running"
            for s in scenarios)
    return f"The pool over time, one panel an allocator. {'; '.join(told)}"
