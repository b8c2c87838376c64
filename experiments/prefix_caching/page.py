"""The page of `pagedsim prefix --html`: what its report prints, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.check_report import check_table, meaning, verdict
from experiments.html.page import provenance, render
from experiments.html.pictures import drawn_picture
from experiments.numbers import percent
from experiments.prefix_caching.figure import plot_prefix
from experiments.prefix_caching.report import header, tables
from experiments.prefix_caching.serving import run_checks
from experiments.prefix_caching.text import LEGEND, show_room
from experiments.shown import grouped
from workloads.messages import show_path

JsonObject = dict[str, Any]


def prefix_page(document: JsonObject, title: str, words: Sequence[str]) -> str:
    """The text of the page.

    Parameters
    ----------
    document : dict
        What ``--json`` writes.
    title : str
        Name of the trace.
    words : sequence of str
        Of the command line behind ``prefix``.
    """
    checks = run_checks(document)
    return render(
        "prefix.html", title=f"What prefix caching gains: {show_path(title)}", header=grouped(header(document)),
        notes=[("note", note) for note in document["notes"]],
        picture=drawn_picture(lambda path: plot_prefix(document, title, path), _alt(document)), tables=list(tables(document)),
        legend=grouped(LEGEND.items()), checks=check_table(checks, "run"), verdict=verdict(checks), meaning=meaning(checks),
        failed=not all(check["ok"] for check in checks), checked=bool(checks), provenance=provenance(["prefix", *words]))


def _alt(document: JsonObject) -> str:
    today = document["today"]
    return (f"Hit rate against the size of the pool: vLLM's queue finds {percent(today['vllm']['hit_rate_tokens'])} of tokens "
            f"in today's {show_room(today)}, a cache that never forgets {percent(document['endless']['hit_rate_tokens'])}. "
            "Beside it reuse of blocks, hits by origin, and hits by block size")
