"""Lines, heat maps and frontiers: what is drawn, where nothing is, the same bytes; the frontier against brute force."""

from __future__ import annotations

import warnings

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from test_figures import MAGIC, TITLES, drawn  # noqa: F401

from experiments.canvas import COLOURS
from experiments.whatif.figures import MOST_SERIES, Labels, geometric, in_order, plot_heat, plot_lines, style
from experiments.whatif.pareto import pareto_front, plot_pareto

LABELS = Labels("a title", "GPU blocks", "running sequences", "running sequences, mean")
SIZES = (256, 512, 1024, 2048)


def band(x, series, mean, half=1.0):
    return {"x": x, "series": series, "mean": mean, "low": None if mean is None else mean - half,
            "high": None if mean is None else mean + half}


LINES = [band(x, name, (k + 1) * x / 100) for k, name in enumerate(("paged", "contiguous-max")) for x in SIZES]
CELLS = [{"x": x, "y": y, "mean": None if y > 16 * x else x / 100 + y, "failed": y > 16 * x} for x in SIZES for y in (1024, 8192)]
POINTS = [{"x": x, "mean": m, "low": m - 1, "high": m + 1, "label": f"{x} GiB", "series": s}
          for s, by in (("paged", 3), ("buddy", 2)) for x, m in ((5, 5 * by), (10, 8 * by), (40, 9 * by))]
PLOTS = {"lines": lambda path, labels=LABELS: plot_lines(LINES, path, labels),
         "heat": lambda path, labels=LABELS: plot_heat(CELLS, path, labels),
         "pareto": lambda path, labels=LABELS: plot_pareto(POINTS, path, labels)}


def png(tmp_path):
    return str(tmp_path / "p.png")


def texts(figure):
    return [t.get_text() for axes in figure.axes for t in axes.texts]


# ---------------------------------------------------------------------- all of them
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_the_same_bytes_twice(tmp_path, plot, suffix):
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None}):
        plot(str(tmp_path / f"first{suffix}"))
    plot(str(tmp_path / f"second{suffix}"))
    first, second = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("first", "second"))
    assert first == second and first.startswith(MAGIC[suffix])


@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_everything_is_inside(tmp_path, drawn, plot):  # noqa: F811
    assert plot(png(tmp_path)) == []
    figure, whole = drawn[0], drawn[0].bbox
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes] + [figure._suptitle.get_window_extent(renderer)]
    boxes += [legend.get_window_extent(renderer) for legend in figure.legends]
    for box in boxes:
        assert whole.x0 - 1 <= box.x0 and box.x1 <= whole.x1 + 1 and whole.y0 - 1 <= box.y0 and box.y1 <= whole.y1 + 1
    names = {axes.get_xlabel() for axes in figure.axes} | {axes.get_ylabel() for axes in figure.axes}
    assert {"GPU blocks", "running sequences"} <= names and figure._suptitle.get_text() == "a title"


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("plot", PLOTS.values(), ids=PLOTS)
def test_names_are_text(tmp_path, plot, title):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot(png(tmp_path), Labels(title, "a_$b$", "100 %"))
        odd = [{**row, "series": title, "label": title} for row in POINTS]
        plot_pareto(odd, png(tmp_path), LABELS)
        plot_lines([{**row, "x": title} for row in odd], png(tmp_path), LABELS)
        plot_heat([{"x": title, "y": title, "mean": None, "failed": title}], png(tmp_path), LABELS)


@pytest.mark.parametrize("empty", [[], [band(1, "a", None)]])
def test_nothing_to_draw(tmp_path, drawn, empty):  # noqa: F811
    plot_lines(empty, png(tmp_path), LABELS)
    plot_pareto(empty, png(tmp_path), LABELS)
    assert [texts(figure) for figure in drawn] == [["nothing to draw"]] * 2
    plot_heat([], png(tmp_path), LABELS)
    assert texts(drawn[2]) == ["nothing to draw"]


def test_infinite_and_equal_values(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (0.0, 5.0, -3.0):
            plot_lines([band(1, "a", value, 0), band(2, "a", value, 0)], png(tmp_path), LABELS)
            plot_heat([{"x": 1, "y": 1, "mean": value}], png(tmp_path), LABELS)
            plot_pareto([{"x": 1, "mean": value, "label": "only"}], png(tmp_path), LABELS)


# ---------------------------------------------------------------------- axes
@pytest.mark.parametrize(("values", "log"), [
    (SIZES, True), ((1, 2, 4), True), ((1, 10, 100), True), ((1, 2, 5, 10, 20, 50), True), ((0.5, 1, 2, 4), True),
    ((1, 2, 3, 4, 5), False), ((0, 1, 10, 100), False), ((1, 100), False), ((-1, 1, 10), False), ((10, 11, 12.1), False),
    ((1, 1, 1), False), ((), False), ((2, 4, 6, 8), False),
])
def test_knobs_that_step_by_factors(values, log):
    with np.errstate(all="raise"):
        assert geometric(values) == log


def test_the_axis_of_a_knob(tmp_path, drawn):  # noqa: F811
    plot_lines(LINES, png(tmp_path), LABELS)
    plot_lines([band(x, "a", 1.0) for x in (1, 2, 3)], png(tmp_path), LABELS)
    plot_lines([band(x, "a", 1.0) for x in ("H100", "A100", "H100 x 2")], png(tmp_path), LABELS)
    log, linear, names = (figure.axes[0] for figure in drawn)
    assert (log.get_xscale(), linear.get_xscale(), names.get_xscale()) == ("log", "linear", "linear")
    assert [t.get_text() for t in log.get_xticklabels()] == ["256", "512", "1,024", "2,048"]
    assert [t.get_text() for t in names.get_xticklabels()] == ["H100", "A100", "H100 x 2"]
    assert names.get_xticks().tolist() == [0, 1, 2]


def test_order_of_knobs():
    assert in_order([512, 256, 512]) == [256, 512] and in_order(["b", "a", "b"]) == ["b", "a"]
    assert in_order([True, 0.5]) == [True, 0.5]


# ---------------------------------------------------------------------- lines
def test_lines_and_their_bands(tmp_path, drawn):  # noqa: F811
    plot_lines(LINES, png(tmp_path), LABELS)
    axes = drawn[0].axes[0]
    found = {c.get_label(): c for c in axes.containers}
    assert list(found) == ["paged", "contiguous-max"]
    assert found["contiguous-max"].lines[0].get_xydata().tolist() == [[x, x / 50] for x in SIZES]
    spans = [segment[:, 1].tolist() for segment in found["paged"].lines[2][0].get_segments()]
    assert np.allclose(spans, [[x / 100 - 1, x / 100 + 1] for x in SIZES])
    assert len(axes.collections) >= 2 and axes.get_ylim()[0] <= 2.56 - 1


def test_rows_in_any_order_make_one_line(tmp_path, drawn):  # noqa: F811
    plot_lines(LINES[::-1], png(tmp_path), LABELS)
    found = {c.get_label(): c.lines[0].get_xdata().tolist() for c in drawn[0].axes[0].containers}
    assert found == {"paged": list(SIZES), "contiguous-max": list(SIZES)}


def test_a_gap_is_marked_and_named(tmp_path, drawn):  # noqa: F811
    plot_lines([band(256, "a", None), band(512, "a", 2.0), band(1024, "a", 3.0)], png(tmp_path), LABELS)
    axes = drawn[0].axes[0]
    crosses = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert [line.get_xdata().tolist() for line in crosses] == [[256.0]]
    assert [t.get_text() for t in drawn[0].legends[0].get_texts()] == ["a", "does not fit"]
    assert np.isnan(axes.containers[0].lines[0].get_ydata().astype(float)).tolist() == [True, False, False]


def test_a_line_without_intervals_and_a_single_point(tmp_path, drawn):  # noqa: F811
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_lines([{"x": 5, "series": "a", "mean": 2.0}], png(tmp_path), LABELS)
    assert drawn[0].axes[0].containers[0].lines[0].get_xydata().tolist() == [[5.0, 2.0]]


def test_no_axis_goes_below_0_where_no_value_can(tmp_path, drawn):  # noqa: F811
    plot_lines([band(0.1, "a", 1.0, 3.0), band(8, "a", 2.0, 3.0)], png(tmp_path), LABELS)
    plot_lines([band("a", "s", 1.0), band("b", "s", 2.0)], png(tmp_path), LABELS)
    plot_pareto([{"x": x, "mean": m, "low": m - 9, "high": m + 9, "label": "", "series": "s"} for x, m in ((1, 2.0), (40, 8.0))],
                png(tmp_path), LABELS)
    plot_pareto([{"x": x, "mean": m, "label": "", "series": "s"} for x, m in ((1, -2.0), (40, 8.0))], png(tmp_path), LABELS)
    corners = [(figure.axes[0].get_xlim()[0], figure.axes[0].get_ylim()[0]) for figure in drawn]
    assert corners[0] == corners[2] == (0, 0)
    assert corners[1][0] < 0 and corners[3][1] < -2    # names stand one step apart from 0 on; a value below 0 is shown


def test_values_far_from_0_do_not_begin_there(tmp_path, drawn):  # noqa: F811
    plot_lines([band(1, "a", 100.0), band(2, "a", 110.0)], png(tmp_path), LABELS)
    plot_lines([band(1, "a", 10.0), band(2, "a", 110.0)], png(tmp_path), LABELS)
    plot_lines([band(1, "a", 0.2), band(2, "a", 5.0)], png(tmp_path), LABELS)
    plot_lines([band(1, "a", -0.2), band(2, "a", 5.0)], png(tmp_path), LABELS)
    bottoms = [figure.axes[0].get_ylim()[0] for figure in drawn]
    assert bottoms[0] > 90 and bottoms[1:3] == [0, 0] and bottoms[3] < -1.2


def test_too_many_series(tmp_path, drawn):  # noqa: F811
    rows = [band(x, f"series {i:02d}", float(i)) for i in range(MOST_SERIES + 3) for x in (1, 2)]
    assert plot_lines(rows, png(tmp_path), LABELS) == ["33 series are too many to tell apart: the first 30 are drawn"]
    legend = drawn[0].legends[0]
    assert len(legend.get_texts()) == MOST_SERIES and "33 series" in legend.get_title().get_text()
    assert plot_lines(rows[:2 * MOST_SERIES], png(tmp_path), LABELS) == []


def test_styles_differ():
    """By colour and mark alone, since dashes do not show where a line is short."""
    made = [(style(i)["color"], style(i)["marker"]) for i in range(MOST_SERIES)]
    assert MOST_SERIES >= 30 and len(set(made)) == MOST_SERIES and {colour for colour, _ in made} <= set(COLOURS)


def test_a_legend_of_thirty_is_whole_and_covers_nothing(tmp_path, drawn):  # noqa: F811
    rows = [band(x, f"fp8, {i}, 0.9", float(i)) for i in range(30) for x in (1, 2)]
    labels = Labels("a title", "x", "y", held="at " + "a word " * 30, series=
                    "kv-cache-dtype, max-num-seqs, gpu-memory-utilization")
    plot_lines(rows, png(tmp_path), labels)
    figure = drawn[0]
    renderer = FigureCanvasAgg(figure).get_renderer()
    legend, axes, head = (one.get_window_extent(renderer) for one in (figure.legends[0], figure.axes[0], figure._suptitle))
    assert legend.x0 >= axes.x1 and legend.x0 >= head.x1 and head.y0 >= axes.y1
    assert figure.bbox.y0 <= legend.y0 and legend.y1 <= figure.bbox.y1 and legend.x1 <= figure.bbox.x1 + 1
    assert figure.legends[0].get_title().get_text().replace("\n", " ") == labels.series
    plot_lines(rows[:20], png(tmp_path), labels)
    areas = [sum(isinstance(one, PolyCollection) for one in figure.axes[0].collections) for figure in drawn]
    assert areas == [0, 10]                            # of thirty series bars alone


def test_what_is_held_stands_below_the_title(tmp_path, drawn):  # noqa: F811
    held = Labels("a title", "x", "y", "value", held="at rate 2 (also run: 4), paged-prefix")
    for plot in PLOTS.values():
        plot(png(tmp_path), held)
    assert [figure._suptitle.get_text().replace("\n", " ") for figure in drawn] == ["a title " + held.held] * 3


# ---------------------------------------------------------------------- heat map
def test_cells_hold_their_numbers(tmp_path, drawn):  # noqa: F811
    plot_heat([{"x": x, "y": y, "mean": x + y / 4} for y in (3, 1) for x in (10, 20)], png(tmp_path), LABELS)
    axes = drawn[0].axes[0]
    found = {t.get_position(): t.get_text() for t in axes.texts}
    assert found == {(0, 0): "10.2", (1, 0): "20.2", (0, 1): "10.8", (1, 1): "20.8"}
    assert axes.collections[0].get_array().reshape(2, 2).tolist() == [[10.25, 20.25], [10.75, 20.75]]
    assert axes.collections[0].get_coordinates()[:, :, 1].tolist() == [[-0.5] * 3, [0.5] * 3, [1.5] * 3]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["1", "3"] and drawn[0].axes[1].get_ylabel() == LABELS.value


def test_failed_cells_are_hatched_and_named(tmp_path, drawn):  # noqa: F811
    plot_heat([{"x": "a", "y": "b", "mean": 1.0}, {"x": "c", "y": "b", "mean": None, "failed": True},
               {"x": "d", "y": "b", "mean": None, "failed": "no such GPU"}], png(tmp_path), LABELS)
    axes = drawn[0].axes[0]
    assert texts(drawn[0]) == ["1", "does not\nfit", "no such GPU"]
    assert [(p.get_x(), p.get_hatch()) for p in axes.patches] == [(0.5, "////"), (1.5, "////")]


def test_all_cells_failed(tmp_path, drawn):  # noqa: F811
    plot_heat([{"x": 1, "y": y, "mean": None, "failed": True} for y in (1, 2)], png(tmp_path), LABELS)
    assert texts(drawn[0]) == ["does not\nfit"] * 2 and len(drawn[0].axes) == 1


def test_numbers_can_be_read_on_their_colour(tmp_path, drawn):  # noqa: F811
    plot_heat([{"x": i, "y": 1, "mean": float(i)} for i in range(12)], png(tmp_path), LABELS)
    axes = drawn[0].axes[0]
    mesh = axes.collections[0]
    for text, value in zip(axes.texts, range(12), strict=True):
        light, dark = sorted((luminance(to_hex(mesh.cmap(mesh.norm(value)))), luminance(to_hex(text.get_color()))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 3


def luminance(colour):
    """Relative luminance of WCAG 2."""
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_too_many_cells_have_no_numbers(tmp_path, drawn):  # noqa: F811
    rows = [{"x": x, "y": y, "mean": float(x * y)} for x in range(20) for y in range(13)]
    assert plot_heat(rows, png(tmp_path), LABELS) == ["260 cells are too many for numbers in them"] and texts(drawn[0]) == []


# ---------------------------------------------------------------------- frontier
def beats(a, b, larger):
    value = a[1] >= b[1] if larger else a[1] <= b[1]
    return a[0] <= b[0] and value and a != b


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=25), st.booleans())
def test_the_front_is_what_nothing_beats(points, larger):
    front = pareto_front(points, larger)
    assert sorted(front) == [i for i, p in enumerate(points) if not any(beats(q, p, larger) for q in points)]
    assert [points[i][0] for i in front] == sorted(points[i][0] for i in front)


def test_the_front_by_hand():
    assert pareto_front([(10, 38), (20, 61), (20, 40), (40, 61), (10, 38)]) == [0, 4, 1]
    assert pareto_front([(10, 5), (20, 3), (30, 4)], larger_is_better=False) == [0, 1] and pareto_front([]) == []


def test_the_frontier_is_drawn(tmp_path, drawn):  # noqa: F811
    assert plot_pareto(POINTS, png(tmp_path), LABELS) == []
    axes = drawn[0].axes[0]
    steps = next(line for line in axes.lines if line.get_label() == "frontier")
    assert steps.get_xydata().tolist() == [[5, 15], [10, 24], [40, 27]] and steps.get_drawstyle() == "steps-post"
    plot_pareto(POINTS, png(tmp_path), LABELS, larger_is_better=False)
    steps = next(line for line in drawn[1].axes[0].lines if line.get_label() == "frontier")
    assert steps.get_xydata().tolist() == [[5, 10]]


def test_each_traffic_has_its_own_panel_and_frontier(tmp_path, drawn):  # noqa: F811
    """At rate 4 all points lie above those at rate 1: in one picture rate 1 would have no frontier."""
    rows = [{"x": x, "mean": mean, "series": s, "panel": panel, "label": ""} for s, panel, x, mean in (
        ("paged", "rate 1", 10, 5.0), ("paged", "rate 1", 20, 6.0), ("buddy", "rate 1", 20, 4.0),
        ("paged", "rate 4", 10, 15.0), ("buddy", "rate 4", 20, 14.0), ("buddy", "rate 4", 30, 16.0))]
    assert plot_pareto(rows, png(tmp_path), LABELS) == []
    one, four = drawn[0].axes
    steps = [next(line for line in axes.lines if line.get_label() == "frontier").get_xydata().tolist() for axes in (one, four)]
    assert steps == [[[10, 5], [20, 6]], [[10, 15], [30, 16]]]
    assert [axes.get_title() for axes in (one, four)] == ["rate 1", "rate 4"]
    colours = [{c.get_label(): c.lines[0].get_color() for c in axes.containers} for axes in (one, four)]
    assert colours[0] == colours[1] and len(set(colours[0].values())) == 2
    assert [t.get_text() for t in drawn[0].legends[0].get_texts()] == ["frontier", "paged", "buddy"]


def test_too_many_panels(tmp_path, drawn):  # noqa: F811
    rows = [{"x": x, "mean": float(x), "panel": f"rate {r}"} for r in range(1, 21) for x in (1, 2)]
    note = "9 of 20 panels are drawn, from the first to the last"
    assert plot_pareto(rows, png(tmp_path), LABELS) == [note] and drawn[0]._suptitle.get_text().endswith(note)
    assert [axes.get_title() for axes in drawn[0].axes] == [f"rate {r}" for r in (1, 3, 6, 8, 11, 13, 15, 18, 20)]
    plot_pareto(rows[:8], png(tmp_path), LABELS)                        # four: the last two places stay empty
    assert [axes.get_visible() for axes in drawn[1].axes] == [True] * 4 + [False] * 2


def test_labels_do_not_cover_each_other(tmp_path, drawn):  # noqa: F811
    rng = np.random.default_rng(1)
    rows = [{"x": float(x), "mean": float(y), "label": f"point {i}, long name", "series": "abc"[i % 3]}
            for i, (x, y) in enumerate(rng.uniform(0, 50, (60, 2)))]
    notes = plot_pareto(rows, png(tmp_path), LABELS)
    figure = drawn[0]
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [t.get_window_extent(renderer) for t in figure.axes[0].texts]
    assert len(boxes) >= 15 and f"{60 - len(boxes)} labels have no room" in notes
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1:])
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
    named = {t.get_text() for t in figure.axes[0].texts}
    best = [rows[i] for i in pareto_front([(r["x"], r["mean"]) for r in rows])]
    assert len(best) >= 4 and all(row["label"] in named for row in best)


def test_points_without_a_value_are_counted(tmp_path):
    rows = [*POINTS, {"x": None, "mean": 3.0}, {"x": 4, "mean": None}]
    assert plot_pareto(rows, png(tmp_path), LABELS) == ["2 of 8 have no value and are not drawn"]


def test_points_without_series_labels_or_intervals(tmp_path, drawn):  # noqa: F811
    assert plot_pareto([{"x": 1, "mean": 2.0}, {"x": 2, "mean": 3.0}], png(tmp_path), LABELS) == []
    assert [t.get_text() for t in drawn[0].legends[0].get_texts()] == ["frontier"] and texts(drawn[0]) == []
