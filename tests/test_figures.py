"""Pictures: three formats, one to six panels, the same bytes, names as text; and the numbers that are drawn."""

from __future__ import annotations

import warnings

import matplotlib
import numpy as np
import pytest
from cli_run import lengths, run
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.figures import LABELS, STYLES, check_format, heading, layout, plot_pool, time_means, time_unit
from sim.memory.allocator import PARTS
from workloads.request import InputError

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def rows(panels, window_us=(0, 3_000_000)):
    """Made-up timelines of a pool of 100 slots over three seconds."""
    time = np.arange(0, 3_000_001, 50_000)
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.integers(0, 101, (len(time), 6)), axis=1)
    parts = np.diff(cuts, prepend=0, append=100)
    columns = {"time_us": time, **{part: parts[:, i] for i, part in enumerate(PARTS)},
               "running": rng.integers(1, 9, len(time)), "waiting": rng.integers(0, 99, len(time))}
    names = ("contiguous-max", "contiguous-pow2", "contiguous-oracle", "paged", "paged-prefix", "one more")
    return [{"allocator": name, "columns": columns, "capacity": 100, "window_us": window_us, "useful": 0.25, "concurrency": 3.5}
            for name in names[:panels]]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved."""
    figures, save = [], Figure.savefig

    def keep(self, *arguments, **options):
        figures.append(self)
        return save(self, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


# ---------------------------------------------------------------------- files
@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_formats_and_the_same_bytes_twice(tmp_path, suffix):
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None}):            # somebody's own settings do not matter
        plot_pool(rows(1), "a title", str(tmp_path / f"first{suffix}"))
    plot_pool(rows(1), "a title", str(tmp_path / f"second{suffix}"))
    first, second = (tmp_path / f"{name}{suffix}" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(MAGIC[suffix.lower()])
    assert len(list(tmp_path.iterdir())) == 2


def test_settings_of_others_are_left_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    plot_pool(rows(1), "a title", str(tmp_path / "p.png"))
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", ["a.gif", "a", "png", ".png", "a.png.gz"])
def test_other_formats_are_refused(name):
    with pytest.raises(InputError, match=r"a picture ends in \.png, \.svg, \.pdf"):
        check_format(name)


# ---------------------------------------------------------------------- layout
@pytest.mark.parametrize("panels", [1, 2, 3, 5])
def test_nothing_overlaps_or_leaves_the_picture(tmp_path, drawn, panels):
    plot_pool(rows(panels, (0, 2_000_000)), "a title", str(tmp_path / "p.png"))
    figure, whole = drawn[0], drawn[0].bbox
    renderer = FigureCanvasAgg(figure).get_renderer()
    found = [axes.get_tightbbox(renderer) for axes in figure.axes if axes.axison]
    assert len(found) == 3 * panels                                  # the pool, running, waiting
    title = figure._suptitle.get_window_extent(renderer)
    legend = next(a.get_legend().get_window_extent(renderer) for a in figure.axes if a.get_legend())
    for box in (*found, title, legend):
        assert whole.x0 - 1 <= box.x0 and box.x1 <= whole.x1 + 1 and whole.y0 - 1 <= box.y0 and box.y1 <= whole.y1 + 1
    tops = [found[i] for i in range(0, len(found), 3)]
    for i, box in enumerate([*tops, title, legend]):
        for other in [*tops, title, legend][i + 1:]:
            assert box.x1 <= other.x0 or other.x1 <= box.x0 or box.y1 <= other.y0 + 1 or other.y1 <= box.y0 + 1


def test_the_legend_has_a_free_cell():
    for panels in range(1, 12):
        down, across = layout(panels)
        assert panels < down * across <= panels + across


def test_the_legend_names_every_part_and_both_lines(tmp_path, drawn):
    plot_pool(rows(1), "a title", str(tmp_path / "p.png"))
    plot_pool(rows(1, (0, 2_000_000)), "a title", str(tmp_path / "p.png"))
    for figure, more in zip(drawn, ([], ["end of the measured window"]), strict=True):
        texts = [t.get_text() for t in figure.axes[-1].get_legend().get_texts()]
        assert texts[:7] == [LABELS[part] for part in reversed(PARTS)]
        assert texts[7:] == ["running sequences (left axis)", "waiting requests (right axis)", *more]


def test_last_digits_of_the_layout_are_not_drawn(tmp_path, drawn):
    """They depend on where the solver's terms lie in memory: the same picture would have other bytes in another process."""
    plot_pool(rows(3), "a", str(tmp_path / "p.png"))
    sides = [side for axes in drawn[0].axes for side in axes.get_position().bounds]
    assert len(sides) > 30 and all(abs(side - round(side, 6)) < 1e-12 for side in sides)


TITLES = (r"a_$b_\alpha^{2}$_c.csv", "two\nlines 100 % & <b>", "\udcff.csv", "漢字.csv", "x" * 400)


@pytest.mark.parametrize("title", TITLES)
def test_titles_are_text(tmp_path, drawn, title):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_pool(rows(1), title, str(tmp_path / "p.png"))
        warnings.filterwarnings("ignore", "Glyph .* missing")        # by our own measuring
        found, whole = drawn[0]._suptitle.get_window_extent(FigureCanvasAgg(drawn[0]).get_renderer()), drawn[0].bbox
    assert whole.x0 <= found.x0
    assert found.x1 <= whole.x1
    if title.isprintable() and len(title) < 100:
        assert drawn[0]._suptitle.get_text() == title


def test_headings():
    assert heading("short.csv", 40) == "short.csv"
    assert heading("one two three four", 9) == "one two\nthree\nfour"
    assert max(map(len, heading("a" * 300 + " b", 50).split("\n"))) <= 50


# ---------------------------------------------------------------------- colours
def luminance(colour):
    red, green, blue = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_parts_differ_in_print():
    """Parts that may touch differ in grey or in their hatch."""
    assert list(STYLES) == list(LABELS) == list(PARTS)
    styles = list(STYLES.values())
    for i, (colour, hatch) in enumerate(styles):
        for other, other_hatch in styles[i + 1:]:
            assert hatch != other_hatch or abs(luminance(colour) - luminance(other)) > 0.3


# ---------------------------------------------------------------------- the numbers that are drawn
def test_means_keep_the_area():
    rng = np.random.default_rng(1)
    time = np.sort(rng.integers(0, 10_000, 500))
    columns = {"time_us": time, "running": rng.integers(1, 50, 500), "idle": rng.integers(0, 50, 500)}
    for bins in (1, 7, 400):
        edges, means = time_means(columns, bins)
        assert (edges[0], edges[-1], len(means["idle"])) == (time[0], time[-1], bins)
        for name in ("running", "idle"):
            area = float(((columns[name][1:] + columns[name][:-1]) / 2 * np.diff(time)).sum())
            assert float((means[name] * np.diff(edges)).sum()) == pytest.approx(area)


def test_a_jump_is_a_slope_and_a_step_is_a_step():
    columns = {"time_us": np.array([0, 40, 40, 80]), "running": np.array([1, 1, 2, 2]), "token_states": np.array([0, 40, 8, 8])}
    _, means = time_means(columns, 4)
    assert means["token_states"].tolist() == [10, 30, 8, 8]
    assert means["running"].tolist() == [1, 1, 2, 2]


def test_nobody_running_is_flat():
    """Sampled when it begins; it ends with the next sample, when a step begins."""
    columns = {"time_us": np.array([0, 10, 10, 40, 50]), "running": np.array([3, 3, 0, 1, 1]),
               "waiting": np.array([0, 0, 0, 0, 0]), "token_states": np.array([9, 9, 0, 5, 5])}
    _, means = time_means(columns, 5)
    assert means["token_states"].tolist() == [9, 0, 0, 0, 5]
    assert means["running"].tolist() == [3, 0, 0, 0, 1]
    assert means["waiting"].tolist() == [0, 0, 0, 0, 0]


def test_one_sample_is_drawn(tmp_path):
    columns = {name: np.array([7]) for name in ("time_us", *PARTS, "running", "waiting")}
    plot_pool([{**rows(1)[0], "columns": columns, "capacity": 49}], "one", str(tmp_path / "p.png"))
    assert image.imread(tmp_path / "p.png").shape[2] == 4


def test_units_of_time():
    assert [time_unit(us)[0] for us in (1, 2.9e6, 3e6, 179e6, 181e6, 10_801e6)] == [
        "milliseconds", "milliseconds", "seconds", "seconds", "minutes", "hours"]


# ---------------------------------------------------------------------- from the command line
def test_from_the_command_line(capsys, tmp_path, drawn):
    trace = lengths(tmp_path, [(60, 30), (90, 40), (30, 20)], "a_$b_c$.csv")
    asked = ["contiguous-oracle", "paged"]
    said = run(capsys, "compare", trace, "--num-gpu-blocks-override", 18, "--saturate", "--plot", tmp_path / "p.svg", "-q",
               "--allocator", asked[0], "--allocator", asked[1])
    assert (said.status, said.err) == (0, "")
    assert drawn[0]._suptitle.get_text() == "a_$b_c$.csv"
    panels = [axes.get_title() for axes in drawn[0].axes if axes.get_title()]
    assert [title.split(":")[0] for title in panels] == asked
    pool = drawn[0].axes[0]
    assert pool.get_ylim() == (0, 100)
    assert {area.get_label() for area in pool.collections} <= set(PARTS)
    highest = max(float(area.get_paths()[0].vertices[:, 1].max()) for area in pool.collections)
    assert highest == pytest.approx(100)


def test_an_allocator_that_served_nobody_says_so(capsys, tmp_path, drawn):
    trace = lengths(tmp_path, [(60, 30)])
    said = run(capsys, "compare", trace, "--num-gpu-blocks-override", 7, "--allocator", "contiguous-max", "--allocator", "paged",
               "--plot", tmp_path / "p.png", "-q")
    assert (said.status, said.err) == (0, "")                        # 96 slots: 64 + 32, the reservation of 96 rounds to 128
    assert [[text.get_text() for text in axes.texts] for axes in drawn[0].axes[:2]] == [["no request was served"], []]
    assert len(drawn[0].axes[2].collections) > 0
