"""Rows -> pictures: time and memory against the number of requests and of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.benchmarks.tables import CURVES, Row
from experiments.figures import INK, SETTINGS, STYLES, UNDATED
from experiments.output import replacing

INCHES = (8.4, 3.4)
PANELS = (("work_cpu_s", "replay (CPU s)", "#0072B2"), ("peak_mib", "peak memory (MiB)", "#D55E00"))


def draw_scale(rows: Sequence[Row], folder: str) -> list[str]:
    """One picture a curve, ``requests.png`` and ``blocks.png``; returns the files written. The same rows give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    written = []
    for name, axis in CURVES.items():
        chosen = [row for row in rows if row["benchmark"] == name and row["skipped"] is None]
        if len(chosen) < 2:
            continue
        path = str(Path(folder) / f"{name}.png")
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(SETTINGS)
            figure = Figure(figsize=INCHES, layout="constrained")
            for axes, (column, label, colour) in zip(figure.subplots(1, 2), PANELS, strict=True):
                _curve(axes, name, [(row[axis], row[column]) for row in chosen], label, colour)
            with replacing(path) as unfinished:
                figure.savefig(unfinished, dpi=110, metadata=UNDATED[".png"])
        written.append(path)
    return written


def _curve(axes: Any, name: str, points: list[tuple[int, float]], label: str, colour: str) -> None:
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    axes.loglog(*zip(*points, strict=True), marker="o", color=colour, linewidth=1.5, label="measured")
    if name == "requests" and label == PANELS[0][1]:
        (x, y), last = points[0], points[-1][0]
        axes.plot([x, last], [y, y * last / x], color=INK, linestyle=":", linewidth=1, label="in proportion to the first point")
        axes.legend(frameon=False, fontsize=8)
    axes.set(xlabel=name, ylabel=label, ylim=_room([y for _, y in points]))
    axes.grid(True, which="major", color=STYLES["idle"][0])
    axes.tick_params(axis="x", rotation=20)
    for side in (axes.xaxis, axes.yaxis):              # powers of ten would want formulas, and names are never read as such
        side.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        side.set_minor_formatter(NullFormatter())


def _room(values: list[float]) -> tuple[float, float]:
    """At least two decades, so that what hardly changes looks as if it hardly changed."""
    low, high = min(values) / 2, max(values) * 2
    return low, max(high, low * 100)
