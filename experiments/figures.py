"""Figures: rows -> picture. Colours are Okabe and Ito's, safe for colour-blind readers; hatches keep them apart in print."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.output import replacing
from sim.allocator import PARTS
from workloads.request import InputError, IntArray

COLOURS = {
    "token_states": ("#0072B2", ""), "reserved": ("#56B4E9", "//"), "internal": ("#D55E00", "xx"),
    "cached": ("#009E73", ".."), "external": ("#E69F00", "\\\\"), "remainder": ("#CC79A7", "++"), "idle": ("#EDEDED", ""),
}
LABELS = {
    "token_states": "token states (useful)", "reserved": "reserved, will be filled", "internal": "internal fragmentation",
    "cached": "cached, free to take", "external": "external fragmentation", "remainder": "remainder (head needs more)",
    "idle": "idle (nobody is refused)",
}
BINS = 400
FORMATS = (".png", ".svg", ".pdf")


def check_format(path: str) -> None:
    """Raise InputError unless the file name ends in a format we draw."""
    if not path.lower().endswith(FORMATS):
        raise InputError(f"{path}: a picture ends in {', '.join(FORMATS)}")


def time_means(columns: dict[str, IntArray], bins: int = BINS) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Time-weighted means of sampled columns over equal stretches of time.

    Returns
    -------
    time_us : float64, shape (bins + 1,)
        Edges.
    means : dict of float64, shape (bins,)
        Between two samples a column is taken to change linearly.
    """
    time = columns["time_us"].astype(float)
    edges = np.linspace(time[0], max(time[-1], time[0] + 1), bins + 1)
    means = {}
    for name, values in columns.items():
        area = np.concatenate(([0.0], np.cumsum(np.diff(time) * (values[1:] + values[:-1]) / 2)))
        means[name] = np.diff(np.interp(edges, time, area)) / np.diff(edges)
    return edges, means


def time_unit(span_us: float) -> tuple[str, float]:
    """A unit in which a span reads well, and its microseconds."""
    for name, us in (("hours", 3600e6), ("minutes", 60e6), ("seconds", 1e6)):
        if span_us >= 3 * us:
            return name, us
    return "milliseconds", 1e3


def plot_pool(rows: list[dict[str, Any]], title: str, path: str) -> None:
    """One panel an allocator: the pool over time in seven parts, running and waiting requests beneath.

    Parameters
    ----------
    rows : list of dict
        ``allocator`` (name), ``columns`` (of a `Timeline`), ``capacity`` (slots), ``useful`` (mean share of the pool) and
        ``concurrency`` (mean).
    title : str
    path : str
        Ends in .png, .svg or .pdf.
    """
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "pagedsim", "hatch.linewidth": 0.4, "font.size": 9, "text.parse_math": False})
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    across = min(3, len(rows) + 1)
    down = math.ceil((len(rows) + 1) / across)
    figure = pyplot.figure(figsize=(4.6 * across, 3.9 * down + 0.4), layout="constrained")
    figure.suptitle(title, fontsize=10)
    cells = figure.add_gridspec(down, across)
    for i, row in enumerate(rows):
        pair = cells[i // across, i % across].subgridspec(2, 1, height_ratios=(3, 1), hspace=0.05)
        top = figure.add_subplot(pair[0])
        _panel(top, figure.add_subplot(pair[1], sharex=top), row, first=i % across == 0)
    legend = figure.add_subplot(cells[len(rows) // across, len(rows) % across])
    legend.axis("off")
    handles: list[Any] = [Patch(facecolor=COLOURS[p][0], hatch=COLOURS[p][1], edgecolor="#333333", linewidth=0.5, label=LABELS[p])
                          for p in PARTS]
    handles += [pyplot.Line2D([], [], color="black", label="running sequences"),
                pyplot.Line2D([], [], color="#999999", linestyle="--", label="waiting requests (right axis)")]
    legend.legend(handles=handles[::1], loc="center left", frameon=False, title="slots of the KV pool", alignment="left")
    with replacing(path) as name:
        figure.savefig(name, dpi=130, metadata={"Date": None} if path.lower().endswith(".svg") else None)
    pyplot.close(figure)


def _panel(top: Any, bottom: Any, row: dict[str, Any], first: bool) -> None:
    edges, means = time_means(row["columns"])
    unit, us = time_unit(edges[-1] - edges[0])
    time = edges / us
    floor = np.zeros(len(time) - 1)
    for part in PARTS:
        share = 100 * means[part] / row["capacity"]
        colour, hatch = COLOURS[part]
        top.stairs(floor + share, time, baseline=floor, fill=True, facecolor=colour, edgecolor="#333333", hatch=hatch, linewidth=0)
        floor = floor + share
    top.set(ylim=(0, 100), xlim=(time[0], time[-1]))
    top.tick_params(labelbottom=False)
    top.set_title(f"{row['allocator']}: {100 * row['useful']:.1f} % useful, {row['concurrency']:.1f} running", fontsize=9)
    bottom.stairs(means["running"], time, color="black", baseline=None)
    bottom.set_ylim(0, max(1.0, 1.1 * float(means["running"].max())))
    waiting = bottom.twinx()
    waiting.stairs(means["waiting"], time, color="#999999", linestyle="--", baseline=None)
    waiting.set_ylim(0, max(1.0, 1.1 * float(means["waiting"].max())))
    waiting.tick_params(labelsize=7, colors="#777777")
    bottom.set_xlabel(f"time ({unit})")
    if first:
        top.set_ylabel("share of the pool (%)")
        bottom.set_ylabel("running")
