"""Two pictures: measured against predicted latencies of a fit, and a server's gauges over time beside the replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.calibration.fitting import Points
from experiments.calibration.over_time import GAUGES, Replayed
from experiments.calibration.report import GAUGES as NAMES
from experiments.canvas import COLOURS, canvas
from experiments.figures import GREY, INK, heading, time_unit
from workloads.request import InputError

TITLES = {"ttft": "Time to first token", "tpot": "Time per output token", "itl": "Time between tokens"}
MOST_POINTS = 5000                                     # of each metric; of more every k-th


def plot_points(points: Sequence[Points], title: str, path: str) -> None:
    """One panel a metric, logarithmic, with the diagonal on which predicted is measured. The same points give the same bytes."""
    with canvas(path, heading(title, 60 * len(points)), across=len(points), width=4.6, height=4.2) as panels:
        for axes, each in zip(panels, points, strict=True):
            stride = -(-len(each.measured) // MOST_POINTS)
            series = ((each.before, "before", COLOURS[3], "x"), (each.after, "fitted", COLOURS[0], "o"))
            for values, label, colour, mark in series:
                axes.plot(1e3 * each.measured[::stride], 1e3 * values[::stride], mark, color=colour, markersize=4,
                          fillstyle="none", linestyle="none", label=label)
            ends = [1e3 * float(f(v[v > 0])) for f in (np.min, np.max) for v in [np.concatenate((each.measured, each.after))]]
            axes.plot(ends, ends, color=GREY, linestyle="--", linewidth=1, label="predicted = measured")
            axes.set(xscale="log", yscale="log", xlabel="measured (ms)", ylabel="predicted (ms)")
            _plain_ticks(axes, [*ends, *(1e3 * each.before[each.before > 0])])
            axes.set_title(TITLES[each.metric], fontsize=9.5)
            axes.legend(frameon=False, fontsize=8)


def _plain_ticks(axes: Any, values: Sequence[float]) -> None:
    """Numbers as they are, some in every decade; more where there is less than one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    narrow = max(values) < 8 * min(values)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8) if narrow else (1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())


def plot_over_time(made: Replayed, title: str, path: str) -> None:
    """One panel a gauge: what the log said and what the replay would have made it say."""
    unit, us = time_unit(float(made.time_s[-1] - made.time_s[0]) * 1e6 + 1)
    with canvas(path, heading(title, 120), across=2, width=5.4, height=2.4, down=-(-len(made.seen) // 2)) as panels:
        for axes, (name, seen) in zip(panels, made.seen.items(), strict=False):
            time = made.time_s * 1e6 / us
            axes.plot(time, seen, color=INK, linewidth=1.2, marker=".", markersize=3, label="seen")
            axes.plot(time, made.predicted[name], color=COLOURS[2], linewidth=1.2, linestyle="--", label="predicted")
            axes.set_title(NAMES[name], fontsize=9.5)
            axes.set(xlabel=f"time since the first arrival ({unit})", ylabel=GAUGES[name])
            axes.set_ylim(0, 1.08 * max(1.0, float(seen.max()), float(made.predicted[name].max())))
            axes.legend(frameon=False, fontsize=8)
        for axes in panels[len(made.seen):]:
            axes.axis("off")


def check_drawable(points: Sequence[Any], replayed: Replayed | None) -> None:
    """Raise InputError where there is nothing to draw."""
    if not points and replayed is None:
        raise InputError("--plot: there is nothing to draw: a fit, or a server's log with the --trace that it served, is drawn")
