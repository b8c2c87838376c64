"""The memory map in a real browser: hostile names, large pools, long runs, small and dark screens."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from browser import opened, too_faint
from cli_run import run
from small import config_of, trace_of
from viewed import WORKED, built_in, seen, written

from experiments.viewer.document import LaneLog
from experiments.viewer.wording import Names
from sim.engine import Engine

HOSTILE = "<script>document.title = 'hit'</script>"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    return built_in(tmp_path_factory)


# ---------------------------------------------------------------------- what users name, and what is large
def test_names_that_are_scripts_show_as_text(browser, tmp_path):
    trace = replace(trace_of(WORKED), source=HOSTILE)
    labels = [HOSTILE, "</script><b>r1</b>"]
    log = LaneLog("paged", Names(labels))
    facts = Engine(trace, config_of(6, 4, 8, longest_jump=1), "paged", observers=[log]).run()
    path = written(tmp_path / "map.html", [(log, facts)], labels, ("view", HOSTILE), HOSTILE)
    with opened(browser, path) as page:
        for _ in range(2):
            page.play.keyboard.press("ArrowRight")
        assert page.play.title() == "Memory map" and page.play.locator("main b").count() == 0
        assert HOSTILE in page.text('[data-at="said"]') and HOSTILE in page.text('[data-at="running"]')
        page.play.locator("canvas.map").focus()
        assert HOSTILE in page.text(".detail") and HOSTILE in page.text("main p") and "<script>" in page.text("footer code")
        assert page.play.locator("script").count() == 2


def test_a_file_whose_name_is_markup_shows_as_text(browser, capsys, tmp_path):
    name = "<img src=x onerror=alert(1)>.csv"
    (tmp_path / name).write_text("prompt_tokens,output_tokens\n20,5\n30,6\n")
    page_file = tmp_path / "map.html"
    assert run(capsys, "view", tmp_path / name, "--num-gpu-blocks-override", 40, "--html", page_file, "-q").status == 0
    with opened(browser, page_file) as page:
        assert page.play.title() == f"Memory map: {name}: 2 requests" and page.play.locator("img").count() == 0


def test_times_beyond_what_javascript_counts_are_exact(browser, tmp_path):
    late = 2**53 + 1
    view = seen(trace_of([(5, 3), (6, 1, late)]), config_of(6, 4, 8, longest_jump=1), "paged")
    with opened(browser, written(tmp_path / "map.html", [(view.log, view.run)], ["a", "b"])) as page:
        page.play.keyboard.press("End")
        assert page.text("#time") == "9,007,199,254.740994 s"


def test_a_large_pool_is_drawn_in_cells_of_several_blocks(browser, capsys, tmp_path):
    path = tmp_path / "map.html"
    assert run(capsys, "view", "--num-gpu-blocks-override", 5001, "--html", path, "-q", "--allocator", "token", "--allocator",
               "paged-prefix").status == 0
    with opened(browser, path) as page:
        page.play.keyboard.press("r")
        assert "each cell of the map is 5 blocks" in page.text('[data-lane="paged-prefix"] .notes')
        assert "Under paged-prefix each cell of the map is 5 blocks in a row" in page.text("#extent")
        assert "each cell of the map is 5 blocks" in page.play.get_attribute('[data-lane="paged-prefix"] .map', "aria-label")
        page.play.locator('[data-lane="paged-prefix"] canvas.map').focus()
        assert page.text('[data-lane="paged-prefix"] .detail').startswith("Blocks 1 to 5, slots: ")


def test_a_thinned_run_says_what_is_left_out(browser, capsys, tmp_path):
    path = tmp_path / "map.html"
    assert run(capsys, "view", "--events", 60, "--html", path, "-q", "--allocator", "paged").status == 0
    with opened(browser, path) as page:
        assert re.match(r"60 of \d+ moments are on this page", page.text(".notes"))
        assert re.match(r"Thinned: 60 of \d+ events \(--events 60\), those around refusals", page.text("#extent"))
        assert re.search(r"; 60 of \d+ moments are on this page$", page.play.get_attribute("canvas.map", "aria-label"))
        page.play.keyboard.press("ArrowRight")
        while not page.play.locator(".said .soft", has_text="left out").count():
            page.play.keyboard.press("ArrowRight")
        assert re.search(r"\(\d+ moments? before this one left out\)", page.text(".said"))


# ---------------------------------------------------------------------- screens
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits_the_screen_and_can_be_read(browser, page_file, scheme, width):
    with opened(browser, page_file, width, scheme) as page:
        for _ in range(5):
            page.play.keyboard.press("p")
        page.play.locator('[data-lane="paged"] summary').click()
        assert page.play.evaluate("document.documentElement.scrollWidth") <= width
        assert too_faint(page) == [] and page.play.locator("#step").is_visible()
        shown = page.play.evaluate("views.map(({ parts }) => [parts.map.clientWidth, parts.map.clientHeight])")
        assert all(wide > 200 and high > 100 for wide, high in shown)
        ground = page.play.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


def test_colours_follow_the_scheme(browser, page_file):
    with opened(browser, page_file) as page:
        assert page.play.evaluate("shown.theme.colours['--paper']") == "#ffffff"
        page.play.emulate_media(color_scheme="dark")
        page.play.wait_for_function("shown.theme.colours['--paper'] !== '#ffffff'")


def test_less_motion_where_that_is_asked_for(browser, page_file):
    with opened(browser, page_file, reduced_motion="reduce") as page:
        assert page.play.input_value("#speed") == "1"
