"""What memory buys: a metric against GiB, the frontier of what nothing beats, and labels that do not cover each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.canvas import canvas, missing
from experiments.figures import GREY, INK, heading
from experiments.whatif.figures import HEAD_COLUMNS, MOST_SERIES, Labels, clip_at_0, head_left, style

Row = Mapping[str, Any]
Box = tuple[float, ...]                                # left, bottom, right, top in pixels
MOST_LABELS = 24                                       # of a panel
MOST_PANELS, PANELS_ACROSS = 9, 3
ANCHORS = ((6, 6, "left", "bottom"), (6, -6, "left", "top"), (-6, 6, "right", "bottom"), (-6, -6, "right", "top"),
           (0, 9, "center", "bottom"), (0, -9, "center", "top"), (9, 0, "left", "center"), (-9, 0, "right", "center"))


def pareto_front(points: Sequence[tuple[float, float]], larger_is_better: bool = True) -> list[int]:
    """The points that no other beats: none has at most its cost and at least its value, and one of them better.

    Parameters
    ----------
    points : sequence of (cost, value)
        Cost is better when smaller.
    larger_is_better : bool
        Of the value; False for latencies.

    Returns
    -------
    list of int
        Places in ``points``, by cost and then as given; equal points are all on the front, or none is.

    >>> pareto_front([(10, 38), (20, 61), (20, 40), (40, 61), (10, 38)])
    [0, 4, 1]
    >>> pareto_front([(10, 2.0), (20, 0.5), (30, 0.9)], larger_is_better=False)
    [0, 1]
    """
    sign = -1 if larger_is_better else 1
    order = sorted(range(len(points)), key=lambda i: (points[i][0], sign * points[i][1]))
    front: list[int] = []
    for i in order:
        better = not front or sign * points[i][1] < sign * points[front[-1]][1]
        if better or points[i] == points[front[-1]]:
            front.append(i)
    return front


def plot_pareto(rows: Sequence[Row], path: str, labels: Labels, larger_is_better: bool = True) -> list[str]:
    """A metric against memory, with its frontier; points are labelled where there is room. The same rows give the same bytes.

    Parameters
    ----------
    rows : sequence of dict
        ``x`` (GiB), ``mean``, ``low`` and ``high`` where known, ``label``, ``series`` for colours, and ``panel`` where not all
        can be compared: each panel has its own frontier. Rows without a mean are left out.
    path : str
        Ends in .png, .svg or .pdf.
    labels : Labels
    larger_is_better : bool

    Returns
    -------
    list of str
        Notes: rows without a value, panels and labels without room, series that share a style.
    """
    known = [row for row in rows if row["mean"] is not None and row["x"] is not None]
    notes = [f"{len(rows) - len(known)} of {len(rows)} have no value and are not drawn"] if len(known) < len(rows) else []
    panels: dict[str, list[Row]] = {}
    for row in known:
        panels.setdefault(str(row.get("panel", "")), []).append(row)
    chosen = _spread(list(panels))
    notes += [f"{len(chosen)} of {len(panels)} panels are drawn, from the first to the last"] if len(chosen) < len(panels) else []
    across = max(1, min(PANELS_ACROSS, len(chosen)))
    width, height = (7.2, 4.6) if across == 1 else (4.4, 3.8)
    head = labels.head(HEAD_COLUMNS if across == 1 else int(9 * width * across))
    with canvas(path, "\n".join([head, *notes]), across, width, height, -(-len(chosen) // across) or 1) as axes:
        if known:
            return notes + _draw(axes, [panels[name] for name in chosen], labels, larger_is_better)
        axes[0].set(xlabel=labels.x, ylabel=labels.y)
        missing(axes[0], "nothing to draw")
    return notes


def _draw(axes: list[Any], panels: list[list[Row]], labels: Labels, larger_is_better: bool) -> list[str]:
    """All panels; returns what has no room."""
    names = list(dict.fromkeys(str(row.get("series", "")) for rows in panels for row in rows))
    fronts = [_panel(one, rows, labels, names, larger_is_better) for one, rows in zip(axes, panels, strict=False)]
    for one in axes[len(panels):]:
        one.set_visible(False)
    notes = _legend(axes[0].figure, axes[:len(panels)], names)
    axes[0].figure.draw_without_rendering()
    hidden = sum(_label(one, rows, front) for one, rows, front in zip(axes, panels, fronts, strict=False))
    return notes + ([f"{hidden} labels have no room"] if hidden else [])


def _spread(panels: list[str]) -> list[str]:
    """At most `MOST_PANELS`, the first, the last, and others evenly between."""
    if len(panels) <= MOST_PANELS:
        return panels
    return [panels[round(i * (len(panels) - 1) / (MOST_PANELS - 1))] for i in range(MOST_PANELS)]


def _panel(axes: Any, rows: list[Row], labels: Labels, names: list[str], larger_is_better: bool) -> list[int]:
    """What can be compared, and its frontier; returns that."""
    axes.set(xlabel=labels.x, ylabel=labels.y)
    if rows[0].get("panel"):
        axes.set_title(heading(str(rows[0]["panel"]), 50), fontsize=9)
    front = pareto_front([(row["x"], row["mean"]) for row in rows], larger_is_better)
    _frontier(axes, [rows[i] for i in front])
    _points(axes, rows, names)
    axes.margins(0.12, 0.14)
    clip_at_0(axes, [row["x"] for row in rows], [row["mean"] for row in rows])
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.grid(color="#ECECEC", linewidth=0.6)
    axes.set_axisbelow(True)
    return front


def _legend(figure: Any, panels: list[Any], names: list[str]) -> list[str]:
    """Each name once, whichever panel it is in."""
    named = {name: handle for axes in panels for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    head_left(figure)
    figure.legend(list(named.values()), list(named), loc="outside right upper", frameon=False, fontsize=8)
    if len(names) <= MOST_SERIES:
        return []
    return [f"{len(names)} series are too many to tell apart: the first {MOST_SERIES} are named"]


def _frontier(axes: Any, rows: list[Row]) -> None:
    """What so much memory reaches at best: steps up (or down) at each point, on to the right edge."""
    axes.step([row["x"] for row in rows], [row["mean"] for row in rows], where="post", color=INK, linewidth=1.1, linestyle="--",
              label="frontier", zorder=1)
    axes.plot([row["x"] for row in rows], [row["mean"] for row in rows], "o", markersize=11, markerfacecolor="none",
              markeredgecolor=INK, markeredgewidth=0.9, zorder=2)


def _points(axes: Any, rows: list[Row], names: list[str]) -> None:
    for i, name in enumerate(names):
        mine = [row for row in rows if str(row.get("series", "")) == name]
        if not mine:
            continue
        mean = np.array([row["mean"] for row in mine], float)
        ends = [[row["mean"] if row.get(k) is None else row[k] for row in mine] for k in ("low", "high")]
        drawn = {**style(i), "linestyle": "none"}
        axes.errorbar([row["x"] for row in mine], mean, np.abs(np.array(ends, float) - mean), **drawn, elinewidth=0.9, capsize=2,
                      markersize=5, label=heading(name, 34) if name and i < MOST_SERIES else None, zorder=3)


# ---------------------------------------------------------------------- labels
def _label(axes: Any, rows: list[Row], front: list[int]) -> int:
    """Write labels, those of the frontier first, each where it covers nothing; returns how many found no room."""
    renderer = axes.figure._get_renderer()
    spots = axes.transData.transform([(row["x"], row["mean"]) for row in rows])
    reach = 4 * axes.figure.dpi / 72
    marks = [(x - reach, y - reach, x + reach, y + reach) for x, y in spots]
    for (x, y), (on, up) in pairwise(spots[front].tolist()):           # the steps of the frontier
        marks += [(x, y - 1, on, y + 1), (on - 1, min(y, up), on + 1, max(y, up))]
    written: list[Box] = []
    order = [*front, *(i for i in range(len(rows)) if i not in set(front))]
    wanted = [i for i in order if rows[i].get("label")]
    for i in wanted[:MOST_LABELS]:
        colour = INK if i in front else GREY
        box = _place(axes, rows[i], colour, [*marks, *written], renderer)
        if box is None and i in front:                 # rather over a mark than not at all
            box = _place(axes, rows[i], colour, written, renderer)
        if box is not None:
            written.append(box)
    return len(wanted) - len(written)


def _place(axes: Any, row: Row, colour: str, taken: list[Box], renderer: Any) -> Box | None:
    """The first anchor around the point where the label covers nothing and stays inside; None, and no label, if there is none."""
    edge = axes.bbox.extents.tolist()
    for dx, dy, across, along in ANCHORS:
        text = axes.annotate(heading(str(row["label"]), 30), (row["x"], row["mean"]), (dx, dy), textcoords="offset points",
                             fontsize=7, color=colour, ha=across, va=along, zorder=4)
        text.set_in_layout(False)
        box = text.get_window_extent(renderer).extents.tolist()
        inside = edge[0] <= box[0] and edge[1] <= box[1] and box[2] <= edge[2] and box[3] <= edge[3]
        if inside and not any(_meet(box, other) for other in taken):
            return tuple(box)
        text.remove()
    return None


def _meet(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
