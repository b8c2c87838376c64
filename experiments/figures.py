"""Figures: rows -> picture. Okabe and Ito's colours are safe for colour-blind readers; hatches keep the parts apart in print.

    +-- allocator ------+ +-- allocator ------+ +-- free cell --+
    | the pool in seven | |                   | |    legend     |
    | parts, stacked    | |                   | |               |
    +-------------------+ +-------------------+ +---------------+
    | running, waiting  | |                   |
    +-------------------+ +-------------------+
"""

from __future__ import annotations

import math
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.output import replacing
from experiments.parts import LABELS
from sim.memory.allocator import PARTS
from workloads.messages import show_path
from workloads.request import InputError, IntArray

STYLES = {
    "token_states": ("#0072B2", ""), "reserved": ("#56B4E9", "///"), "internal": ("#D55E00", "xx"),
    "cached": ("#009E73", ".."), "external": ("#E69F00", "\\\\\\"), "remainder": ("#CC79A7", "++"), "idle": ("#EDEDED", ""),
}
INK, GREY = "#333333", "#767676"
PANEL_INCHES = (4.6, 3.9)
BINS = 400
FORMATS = (".png", ".svg", ".pdf")
SETTINGS = {"svg.hashsalt": "pagedsim", "hatch.linewidth": 0.5, "font.size": 9, "text.parse_math": False}
UNDATED = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None},
           ".pdf": {"CreationDate": None, "Creator": None, "Producer": None}}


def check_format(path: str) -> None:
    """Raise InputError unless the file name ends in a format we draw."""
    if Path(path).suffix.lower() not in FORMATS:
        raise InputError(f"{show_path(path)}: a picture ends in {', '.join(FORMATS)}")


def time_means(columns: dict[str, IntArray], bins: int = BINS, span_us: tuple[int, int] | None = None,
               ) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Time-weighted means of sampled columns over equal stretches of time.

    Returns
    -------
    time_us : float64, shape (bins + 1,)
        Edges.
    means : dict of float64, shape (bins,)
        Between two samples a column is taken to change linearly. A stretch in which nobody runs is constant. Over another
        ``span_us`` than that of the samples, what is first and last is so before and after them.

    Examples
    --------
    >>> edges, means = time_means({"time_us": np.array([0, 4]), "running": np.array([2, 8])}, bins=2)
    >>> edges.tolist(), means["running"].tolist()
    ([0.0, 2.0, 4.0], [3.5, 6.5])
    """
    time = columns["time_us"].astype(float)
    start, end = (time[0], time[-1]) if span_us is None else span_us
    edges = np.linspace(start, max(end, start + 1), bins + 1)
    asleep = np.flatnonzero(columns["running"][:-1] == 0)      # held up to the next sample
    rows = np.sort(np.concatenate((np.arange(len(time)), asleep)), kind="stable")
    points = time[rows + np.append(False, rows[1:] == rows[:-1])]
    times = np.union1d(points, edges)
    means = {}
    for name in columns:
        values = columns[name][rows].astype(float)
        before, after = (_values_at(times, points, values, side) for side in ("left", "right"))
        area = np.append(0.0, np.cumsum(np.diff(times) * (after[:-1] + before[1:]) / 2))
        means[name] = np.diff(area[np.searchsorted(times, edges)]) / np.diff(edges)
    return edges, means


def sums_of_means(columns: list[dict[str, IntArray]]) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """The `time_means` of several replicas, added up."""
    times = np.concatenate([own["time_us"] for own in columns])
    made = [time_means(own, span_us=(int(times.min()), int(times.max()))) for own in columns if len(own["time_us"])]
    return made[0][0], {name: np.add.reduce([means[name] for _, means in made]) for name in made[0][1]}


def _values_at(times: NDArray[np.float64], points: NDArray[np.float64], values: NDArray[np.float64], side: str,
               ) -> NDArray[np.float64]:
    """Linear interpolation where ``points`` may repeat: the value before (left) or after (right) a step."""
    within = np.interp(times, points, values)
    at = np.searchsorted(points, times, side)          # first or one past the last of equal points
    here = np.clip(at if side == "left" else at - 1, 0, len(points) - 1)
    return np.where(points[here] == times, values[here], within)


def time_unit(span_us: float) -> tuple[str, float]:
    """A unit in which a span reads well, and its microseconds.

    >>> time_unit(7e6)
    ('seconds', 1000000.0)
    """
    for name, us in (("hours", 3600e6), ("minutes", 60e6), ("seconds", 1e6)):
        if span_us >= 3 * us:
            return name, us
    return "milliseconds", 1e3


def layout(panels: int) -> tuple[int, int]:
    """Rows and columns of a grid with at least one cell more than panels, for the legend.

    >>> [layout(n) for n in (1, 2, 3, 4, 5, 6)]
    [(1, 2), (1, 3), (2, 2), (2, 3), (2, 3), (3, 3)]
    """
    across = 2 if panels in (1, 3) else 3
    return math.ceil((panels + 1) / across), across


def heading(title: str, columns: int) -> str:
    """A title in lines of at most ``columns`` letters; a word too long for one is cut in its middle.

    >>> print(heading("a_very_long_file_name.jsonl", 16))
    a_very_...jsonl
    """
    half = columns // 2 - 1
    words = (w if len(w) <= columns else f"{w[:half]}...{w[-half + 2:]}" for w in show_path(title).split(" "))
    return textwrap.fill(" ".join(words), columns, break_long_words=False, break_on_hyphens=False)


def plot_pool(rows: list[dict[str, Any]], title: str, path: str) -> None:
    """One panel an allocator: the pool over time in seven parts, running and waiting requests beneath.

    The same rows give the same bytes, whatever a matplotlibrc says.

    Parameters
    ----------
    rows : list of dict
        ``allocator`` (name), ``columns`` (of a `Timeline`; or a list of them, one a replica, whose pools are drawn as one),
        ``capacity`` (slots of all), ``window_us`` (start and end of what is measured), ``useful`` (mean share of the pool in
        it) and ``concurrency`` (mean).
    title : str
        Taken as plain text.
    path : str
        Ends in .png, .svg or .pdf.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        down, across = layout(len(rows))
        width, height = PANEL_INCHES
        figure = Figure(figsize=(width * across, height * down + 0.4), layout="constrained")
        figure.get_layout_engine().set(h_pad=0.05, w_pad=0.06)  # type: ignore[union-attr]
        figure.suptitle(heading(title, int(11 * width * across)), fontsize=10)
        cells = figure.add_gridspec(down, across)
        windowed = [_panel(figure, cells[i // across, i % across], row) for i, row in enumerate(rows)]
        _legend(figure.add_subplot(cells[len(rows) // across, len(rows) % across]), any(windowed))
        settle(figure)
        with replacing(path) as name:
            figure.savefig(name, dpi=150, metadata=UNDATED[Path(path).suffix.lower()])


def settle(figure: Any) -> None:
    """Lay out now, to a millionth: the solver goes through its terms by their addresses in memory, which shows in last digits."""
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position([round(side, 6) for side in axes.get_position().bounds])


def _panel(figure: Any, cell: Any, row: dict[str, Any]) -> bool:
    """Draw one allocator; whether the end of the measured window is marked."""
    pair = cell.subgridspec(2, 1, height_ratios=(3, 1), hspace=0.05)
    top = figure.add_subplot(pair[0])
    bottom = figure.add_subplot(pair[1], sharex=top)
    columns = row["columns"] if isinstance(row["columns"], list) else [row["columns"]]
    pools = "the pool" if len(columns) == 1 else f"{len(columns)} pools"
    top.set(ylim=(0, 100), ylabel=f"slots of {pools} (%)")
    top.set_title(f"{row['allocator']}: {100 * row['useful']:.1f} % useful, {row['concurrency']:.1f} running", fontsize=9.5)
    top.tick_params(labelbottom=False)
    last = max((int(own["time_us"][-1]) for own in columns if len(own["time_us"])), default=None)
    if last is None:
        top.text(0.5, 0.5, "no request was served", transform=top.transAxes, ha="center")
        return False
    edges, means = sums_of_means(columns)
    unit, us = time_unit(edges[-1] - edges[0])
    time = edges / us
    top.set_xlim(time[0], time[-1])
    bottom.set_xlabel(f"time ({unit})")
    _stack(top, time, means, row["capacity"])
    _requests(bottom, time, means)
    end = row["window_us"][1]
    marked = bool(end < last)
    if marked:
        for axes in (top, bottom):
            axes.axvline(end / us, color="black", linestyle=":", linewidth=1.2)
    return marked


def _stack(axes: Any, time: NDArray[np.float64], means: dict[str, NDArray[np.float64]], capacity: int) -> None:
    floor = np.zeros(len(time))
    for part in PARTS:
        ceiling = floor + 100 / capacity * np.append(means[part], means[part][-1])
        colour, hatch = STYLES[part]
        if means[part].any():
            area = axes.fill_between(time, floor, ceiling, step="post", facecolor=colour, edgecolor=INK, hatch=hatch, linewidth=0)
            area.set_label(part)
            area.set_in_layout(False)
        floor = ceiling


def _requests(axes: Any, time: NDArray[np.float64], means: dict[str, NDArray[np.float64]]) -> None:
    """Running sequences on the left axis, waiting requests on the right one."""
    waiting = axes.twinx()
    for side, name, colour, style in ((waiting, "waiting", GREY, "--"), (axes, "running", "black", "-")):
        side.step(time, np.append(means[name], means[name][-1]), where="post", color=colour, linestyle=style, linewidth=1)
        side.set_ylim(0, max(1.0, 1.1 * float(means[name].max())))
        side.set_ylabel(name, color=colour)
        side.locator_params(axis="y", nbins=4, integer=True)
    waiting.tick_params(labelsize=8, colors=GREY)
    axes.set_zorder(waiting.get_zorder() + 1)          # the black line on top
    axes.patch.set_visible(False)


def _legend(axes: Any, windowed: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    axes.axis("off")
    handles: list[Any] = [Patch(facecolor=STYLES[p][0], hatch=STYLES[p][1], edgecolor=INK, linewidth=0.5, label=LABELS[p])
                          for p in reversed(PARTS)]
    handles += [Line2D([], [], color="black", label="running sequences (left axis)"),
                Line2D([], [], color=GREY, linestyle="--", label="waiting requests (right axis)")]
    if windowed:
        handles.append(Line2D([], [], color="black", linestyle=":", label="end of the measured window"))
    axes.legend(handles=handles, loc="center", frameon=False, title="slots of the KV pool, as stacked", alignment="left",
                handlelength=2.6, handleheight=1.3, fontsize=10, title_fontsize=10)
