"""What `pagedsim compare` draws: the pool over time as a picture, as a moving one, or inside a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.animation import Film, animate
from experiments.figures import plot_pool
from experiments.html.compare_page import compare_page
from experiments.html.page import write_page
from sim.run import Run
from sim.timeline import Timeline


@dataclass(frozen=True)
class Drawn:
    """What is drawn of, and where to.

    Parameters
    ----------
    runs, timelines, films : mapping by allocator
        Films where ``plot`` moves.
    title : str
        Name of the trace.
    plot, html : str or None
        Files; nothing is drawn where there is none.
    words : sequence of str
        Of the command line behind ``compare``.
    """

    runs: Mapping[str, Run]
    timelines: Mapping[str, Sequence[Timeline]]
    films: Mapping[str, Film]
    title: str
    plot: str | None
    html: str | None
    words: Sequence[str]


def draw(document: dict[str, Any], drawn: Drawn) -> None:
    """Write what was asked for; ``document`` is what ``--json`` writes."""
    def still(path: str) -> None:
        plot_pool([_panel(scenario, drawn) for scenario in document["scenarios"]], drawn.title, path)
    if drawn.films and drawn.plot is not None:
        animate(dict(drawn.films), drawn.title, drawn.plot)
    elif drawn.plot is not None:
        still(drawn.plot)
    if drawn.html is not None:
        write_page(drawn.html, compare_page(document, drawn.title, still, drawn.words))


def _panel(scenario: dict[str, Any], drawn: Drawn) -> dict[str, Any]:
    name = scenario["allocator"]
    return {"allocator": name, "columns": [each.columns() for each in drawn.timelines[name]],
            "capacity": drawn.runs[name].ledger.capacity, "window_us": scenario["window_us"],
            "useful": scenario["memory"]["token_states"], "concurrency": scenario["concurrency"]["mean"]}
