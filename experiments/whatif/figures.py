"""Figures of many runs: lines with confidence bands, and a heat map of two knobs. Rows -> picture; `pareto` has the frontier.

    concurrency |        .-o paged              max_num_seqs 256 | 38  | 61  | 61  |
                |   .-o-'                                    128 | 38  | 60  |/////| does not fit
                | o'  ,-x contiguous-max                      64 | 37  | 41  |/////|
                +----------------- GPU blocks                    +-----+-----+-----+ GPU blocks

Rows are plain: dicts with ``x``, ``series`` or ``y``, ``mean``, and ``low`` and ``high`` where there is an interval. A mean that
is None is a gap; ``failed`` says why in a few words, or just that it did.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.canvas import COLOURS, MARKS, canvas, missing
from experiments.figures import GREY, INK, heading
from experiments.whatif.rounding import plain

Row = Mapping[str, Any]
ORDER = (0, 2, 4, 3, 5, 1, 6)                          # colours, the most different ones first
DASHES = ("-", "--", ":", "-.")
MOST_SERIES = 30                                       # of 49 styles: more entries of a legend nobody looks up
MOST_BANDS = 10                                        # series; above it intervals are bars alone, since areas cover each other
HEAD_COLUMNS, LEGEND_COLUMNS = 60, 34                  # letters; the head of a figure with a legend beside it
MOST_TICKS = 9
MOST_CELLS_WITH_NUMBERS = 240
GEOMETRIC_FROM = 4                                     # times the smallest value that the largest must be for a log axis
FAILED = "does not fit"
PALE = "#F2F2F2"


@dataclass(frozen=True)
class Labels:
    """What stands at a figure: its title and axes, the metric where that is no axis, what is ``held`` the same in all that is
    drawn, and what the names of ``series`` are values of."""

    title: str
    x: str
    y: str
    value: str = ""
    held: str = ""
    series: str = ""

    def head(self, columns: int) -> str:
        """Title, and below it what is held, in lines of at most so many letters."""
        return "\n".join(heading(text, columns) for text in (self.title, self.held) if text)


def geometric(values: Iterable[float]) -> bool:
    """Whether a knob's values step by factors, so that a log axis shows them evenly.

    >>> geometric([256, 512, 1024, 2048]), geometric([1, 2, 3, 4, 5]), geometric([0, 1, 10, 100]), geometric([1, 2, 5, 10])
    (True, False, False, True)
    """
    known = sorted(set(values))
    if len(known) < 3 or known[0] <= 0 or known[-1] < GEOMETRIC_FROM * known[0]:
        return False
    steps, factors = np.diff(known), np.diff(np.log(known))
    return bool(steps.max() / steps.min() > factors.max() / factors.min())


def in_order(values: Iterable[Any]) -> list[Any]:
    """Distinct values: numbers by size; where there are others, all as they appear.

    >>> in_order([4, 1, 4]), in_order(["paged", 4, "max", "paged"])
    ([1, 4], ['paged', 4, 'max'])
    """
    distinct = list(dict.fromkeys(values))
    return sorted(distinct) if all(map(_is_number, distinct)) else distinct


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def style(i: int) -> dict[str, Any]:
    """Colour, mark and dashes of the i-th series: 49 pairs of colour and mark, since with each turn the marks shift by one."""
    turn = i // len(ORDER)
    return {"color": COLOURS[ORDER[i % len(ORDER)]], "marker": MARKS[(i + turn) % len(MARKS)],
            "linestyle": DASHES[turn % len(DASHES)]}


# ---------------------------------------------------------------------- lines
def plot_lines(rows: Sequence[Row], path: str, labels: Labels) -> list[str]:
    """One line a series over a knob, each with its confidence band. The same rows give the same bytes.

    Parameters
    ----------
    rows : sequence of dict
        ``x`` (a number, or a name), ``series``, ``mean``, ``low``, ``high``; ``failed`` marks the place on the axis.
    path : str
        Ends in .png, .svg or .pdf.
    labels : Labels

    Returns
    -------
    list of str
        Notes: which series were left out, since only so many can be told apart.
    """
    names = list(dict.fromkeys(str(row["series"]) for row in rows))
    shown, notes = names[:MOST_SERIES], _left_out(names)
    with canvas(path, labels.head(HEAD_COLUMNS), width=7.2, height=max(4.2, 1.2 + 0.17 * _legend_lines(shown))) as (axes,):
        axes.set(xlabel=labels.x, ylabel=labels.y)
        if not any(row["mean"] is not None for row in rows):
            missing(axes, "nothing to draw")
            return notes
        places = _x_axis(axes, in_order(row["x"] for row in rows))
        for i, name in enumerate(shown):
            mine = {row["x"]: row for row in rows if str(row["series"]) == name}
            _line(axes, [(places[x], mine[x]) for x in places if x in mine], name, style(i),
                  len(shown) <= MOST_BANDS)
        _y_axis(axes, [row for row in rows if str(row["series"]) in shown])
        clip_at_0(axes, places.values(), [row["mean"] for row in rows if row["mean"] is not None])
        _legend(axes, any(row["mean"] is None for row in rows), [labels.series, *notes])
    return notes


def head_left(figure: Any) -> None:
    """Move the head to the left edge, since the legend stands on the right."""
    figure.suptitle(figure.get_suptitle(), x=0.01, ha="left", fontsize=9, color=INK)


def _left_out(names: list[str]) -> list[str]:
    if len(names) <= MOST_SERIES:
        return []
    return [f"{len(names)} series are too many to tell apart: the first {MOST_SERIES} are drawn"]


def _legend_lines(names: list[str]) -> int:
    return sum(heading(name, LEGEND_COLUMNS).count("\n") + 1 for name in names)


def _x_axis(axes: Any, values: list[Any]) -> dict[Any, float]:
    """The place of each value; numbers where they are, names one step apart."""
    if not all(map(_is_number, values)):
        axes.set_xticks(range(len(values)), [heading(str(v), 18) for v in values], fontsize=8,
                        rotation=30 if len(values) > 6 else 0, ha="right" if len(values) > 6 else "center")
        return {v: float(i) for i, v in enumerate(values)}
    if geometric(values):
        axes.set_xscale("log")
        axes.minorticks_off()
    if len(values) <= MOST_TICKS:
        axes.set_xticks(values, [plain(v) for v in values])
    else:
        axes.xaxis.set_major_formatter("{x:,g}")
    return {v: float(v) for v in values}


def _line(axes: Any, points: list[tuple[float, Row]], name: str, drawn: dict[str, Any], band: bool) -> None:
    x = [place for place, _ in points]
    mean, low, high = ([math.nan if row.get(k) is None else row[k] for _, row in points] for k in ("mean", "low", "high"))
    if band:
        axes.fill_between(x, low, high, color=drawn["color"], alpha=0.18, linewidth=0)
    ends = np.array([[m - a, b - m] for m, a, b in zip(mean, low, high, strict=True)]).T.reshape(2, len(x))
    axes.errorbar(x, mean, np.abs(ends), **drawn, label=name, markersize=4.5, linewidth=1.5, elinewidth=0.9, capsize=2)
    failed = [place for place, row in points if row["mean"] is None]
    if failed:
        axes.plot(failed, [0.0] * len(failed), "x", color=drawn["color"], transform=axes.get_xaxis_transform(), clip_on=False,
                  markersize=7, markeredgewidth=2)


def _y_axis(axes: Any, rows: list[Row]) -> None:
    """From 0, unless a mean lies below, or all that is drawn far above."""
    ends = [row[k] for row in rows for k in ("low", "mean", "high") if row.get(k) is not None]
    least = min(row["mean"] for row in rows if row["mean"] is not None)
    if least >= 0 and (min(ends) < 0.6 * max(ends) or max(ends) == 0):
        axes.set_ylim(bottom=0)                        # an interval may reach below where no value can
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(axis="y", color="#E3E3E3", linewidth=0.6)
    axes.set_axisbelow(True)


def clip_at_0(axes: Any, x: Iterable[float], y: Iterable[float]) -> None:
    """No axis goes below 0 where no point does: neither the margin nor an interval, which may reach where no value can."""
    if axes.get_xlim()[0] < 0 < min(x):
        axes.set_xlim(left=0)
    if axes.get_ylim()[0] < 0 <= min(y):
        axes.set_ylim(bottom=0)


def _legend(axes: Any, gaps: bool, title: list[str]) -> None:
    from matplotlib.lines import Line2D

    head_left(axes.figure)
    handles, names = axes.get_legend_handles_labels()
    if gaps:
        handles, names = [*handles, Line2D([], [], color=GREY, marker="x", linestyle="", markeredgewidth=2)], [*names, FAILED]
    axes.figure.legend(handles, [heading(name, LEGEND_COLUMNS) for name in names], loc="outside right upper", frameon=False,
                       fontsize=8, handlelength=3.5, alignment="left", title_fontsize=8,
                       title="\n".join(heading(line, LEGEND_COLUMNS) for line in title if line) or None)


# ---------------------------------------------------------------------- heat map
def plot_heat(rows: Sequence[Row], path: str, labels: Labels) -> list[str]:
    """One metric over two knobs, its number in each cell; what failed is hatched and named. The same rows give the same bytes.

    Parameters
    ----------
    rows : sequence of dict
        ``x``, ``y`` (numbers or names), ``mean``; ``failed`` where there is none: True, or why in a few words.
    path : str
        Ends in .png, .svg or .pdf.
    labels : Labels
        ``value`` names the metric.

    Returns
    -------
    list of str
        Notes: that there are too many cells for numbers.
    """
    x, y = in_order(row["x"] for row in rows), in_order(row["y"] for row in rows)
    many = len(x) * len(y) > MOST_CELLS_WITH_NUMBERS
    width, height = min(16.0, 2.6 + 0.85 * max(3, len(x))), min(12.0, 1.5 + 0.5 * max(3, len(y)))
    with canvas(path, labels.head(int(11 * width)), width=width, height=height) as (axes,):
        axes.set(xlabel=labels.x, ylabel=labels.y)
        known = [row["mean"] for row in rows if row["mean"] is not None]
        if not rows:
            missing(axes, "nothing to draw")
            return []
        table = np.full((len(y), len(x)), np.nan)
        for row in rows:
            table[y.index(row["y"]), x.index(row["x"])] = math.nan if row["mean"] is None else row["mean"]
        shade = _shades(axes, table, labels.value) if known else None
        for row in rows:
            _cell(axes, row, (x.index(row["x"]), y.index(row["y"])), shade, not many)
        for ticks, values in ((axes.set_xticks, x), (axes.set_yticks, y)):
            ticks(range(len(values)), [plain(v) if _is_number(v) else heading(str(v), 18) for v in values], fontsize=8)
        axes.set(xlim=(-0.5, len(x) - 0.5), ylim=(-0.5, len(y) - 0.5))
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return [f"{len(x) * len(y):,} cells are too many for numbers in them"] if many else []


def _shades(axes: Any, table: Any, name: str) -> Callable[[float], Any]:
    """Colour the cells; returns the colour of a value."""
    down, across = table.shape
    image = axes.pcolormesh(np.arange(across + 1) - 0.5, np.arange(down + 1) - 0.5, np.ma.masked_invalid(table), cmap="cividis",
                            edgecolors="white", linewidth=1.2)
    axes.figure.colorbar(image, ax=axes, label=name, pad=0.02, format="{x:,g}")
    return lambda value: image.cmap(image.norm(value))


def _cell(axes: Any, row: Row, place: tuple[int, int], shade: Callable[[float], Any] | None, numbers: bool) -> None:
    from matplotlib.patches import Rectangle

    if row["mean"] is None or shade is None:
        corner = (place[0] - 0.5, place[1] - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, facecolor=PALE, edgecolor=GREY, hatch="////", linewidth=0))
        why = row.get("failed")
        text = heading(textwrap.shorten(why, 40, placeholder=" ...") if isinstance(why, str) else FAILED, 11)
        more = {"fontsize": 7, "color": INK, "bbox": {"facecolor": PALE, "edgecolor": "none", "pad": 1.0}}
    else:
        dark = float(np.dot(shade(row["mean"])[:3], (0.3, 0.59, 0.11))) < 0.52
        text, more = plain(row["mean"]), {"fontsize": 8, "color": "white" if dark else INK}
    if numbers:
        axes.text(*place, text, ha="center", va="center", **more)
