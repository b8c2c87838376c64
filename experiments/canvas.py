"""How figures of rows are drawn: same rows, same bytes; colours that colour-blind readers and print keep apart."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from experiments.figures import GREY, INK, SETTINGS, UNDATED
from experiments.output import replacing

COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#999999")
HATCHES = ("", "///", "xx", "\\\\\\", "..", "++", "")
MARKS = "osD^vP*"


@contextmanager
def canvas(path: str, title: str, across: int = 1, width: float = 5.2, height: float = 3.6, down: int = 1,
           ) -> Iterator[list[Any]]:
    """Axes in rows, to be drawn on in a with block that writes the file at its end.

    Parameters
    ----------
    path : str
        Ends in .png, .svg or .pdf.
    title : str
        Taken as plain text; none where empty.
    across, down : int
        How many axes in a row, and rows.
    width, height : float
        Inches of one.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        figure = Figure(figsize=(width * across, height * down), layout="constrained")
        if title:
            figure.suptitle(title, fontsize=9, color=INK)
        axes = figure.subplots(down, across, squeeze=False).ravel().tolist()
        for one in axes:
            one.spines[["top", "right"]].set_visible(False)
        yield axes
        with replacing(path) as name:
            figure.savefig(name, dpi=150, metadata=UNDATED[Path(path).suffix.lower()])


def stacked(axes: Any, bars: Mapping[str, Sequence[float | None]], parts: Sequence[str], unit: str) -> None:
    """One stacked bar a name, one colour and hatch a part, each part's number in it."""
    base = np.zeros(len(bars))
    for i, part in enumerate(parts):
        heights = np.array([values[i] or 0.0 for values in bars.values()])
        drawn = axes.bar(list(bars), heights, bottom=base, color=COLOURS[i], hatch=HATCHES[i], edgecolor="white", width=0.65,
                         label=part)
        axes.bar_label(drawn, [f"{h:.1f}" if h >= 3 else "" for h in heights], label_type="center", fontsize=8,
                       bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8})
        base += heights
    axes.set_ylabel(unit)
    axes.tick_params(axis="x", labelsize=8)


def legend_below(axes: Any, columns: int) -> None:
    """One legend under all axes of the figure."""
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def grouped(axes: Any, names: Sequence[str], groups: Mapping[str, Sequence[float | None]], unit: str) -> None:
    """For each name one bar a group side by side, with its number on top; None leaves a gap."""
    width = 0.8 / len(groups)
    for i, (group, values) in enumerate(groups.items()):
        places = np.arange(len(names)) + (i - (len(groups) - 1) / 2) * width
        drawn = axes.bar(places, [v or 0.0 for v in values], width, color=COLOURS[i], hatch=HATCHES[i], edgecolor="white",
                         label=group)
        axes.bar_label(drawn, ["" if v is None else f"{v:.4g}" for v in values], fontsize=7)
    axes.set_xticks(np.arange(len(names)), names, fontsize=8)
    axes.set_ylabel(unit)
    axes.legend(frameon=False, fontsize=8)


def lines(axes: Any, x: Sequence[float], series: Mapping[str, Sequence[float | None]], xlabel: str, ylabel: str) -> None:
    """One marked line a series."""
    for i, (name, values) in enumerate(series.items()):
        axes.plot(x, [np.nan if v is None else v for v in values], marker=MARKS[i % len(MARKS)], color=COLOURS[i % len(COLOURS)],
                  label=name, markersize=4, linewidth=1.4)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.legend(frameon=False, fontsize=8)


def missing(axes: Any, why: str) -> None:
    """A panel that cannot be drawn says why."""
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", color=GREY)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
