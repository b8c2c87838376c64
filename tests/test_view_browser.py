"""The memory map in a real browser: controls, keys, numbers against the simulator's, hostile names, small and dark screens."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from browser import opened, too_faint
from cli_run import run
from small import config_of, trace_of
from test_view import SMALL, SMALL_CONFIG, WORKED, made
from viewed import names_of, seen

from experiments.cli import main
from experiments.html.page import data_block, provenance, render
from experiments.viewer.document import LaneLog, document
from experiments.viewer.legend import PARTS, WORDS
from experiments.viewer.wording import Names
from sim.engine import Engine

HOSTILE = "<script>document.title = 'hit'</script>"
LEDGER = """(lane) => [...document.querySelectorAll(`[data-lane="${lane}"] tbody tr`)].map((row) => row.cells[1].textContent)"""
DRAWN = """() => lanes.map((lane) => lane.data.frames.map((_, frame) => {
  const state = lane.go(frame);
  return [state.parts.map(Number), drawnParts(lane, state)];
}))"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """The map of the built-in workload, as a newcomer makes it."""
    path = tmp_path_factory.mktemp("view") / "map.html"
    assert main(["view", "--html", str(path), "-q"]) == 0
    return path


@pytest.fixture
def page(browser, page_file):
    with opened(browser, page_file) as page:
        yield page


def write(path, lanes, labels, words=("view",), source="by hand"):
    data = data_block("run", document(lanes, labels))
    path.write_text(render("view.html", title="Memory map", source_name=source, notes=[source], block_size=16, lanes="these",
                           parts=PARTS, words=WORDS, provenance=provenance(words), data=data))
    return path


def stop(page):
    return page.play.evaluate("shown.stop")


# ---------------------------------------------------------------------- numbers
def test_the_ledger_at_ten_random_times_is_the_simulators(page):
    rng = np.random.default_rng(3)
    for name in ("contiguous-max", "contiguous-oracle", "paged", "paged-prefix"):
        booked = seen(SMALL, SMALL_CONFIG, name).booked
        times = np.array(sorted(booked))
        for us in rng.integers(0, int(times[-1]), 10).tolist():
            page.play.fill("#seconds", f"{us / 1e6:.6f}")
            page.play.click("#goto button")
            expected = booked[int(times[np.searchsorted(times, us, side="right") - 1])]
            assert page.play.evaluate(LEDGER, name) == [f"{slots:,}" for slots in expected], (name, us)


WAYS = [("contiguous-max", "plain"), ("contiguous-oracle", "first-fit"), ("contiguous-oracle", "samples"), ("paged", "beams"),
        ("paged-prefix", "plain"), ("paged-prefix", "async"), ("paged-prefix", "swap"), ("paged-prefix", "samples"),
        ("paged-reserve", "plain"), ("token", "plain"), ("vattention", "plain")]


def test_what_is_drawn_adds_up_to_the_ledger_at_every_frame(browser, tmp_path):
    views = [seen(*made(allocator, way), allocator) for allocator, way in WAYS]
    path = write(tmp_path / "map.html", [(view.log, view.run) for view in views], names_of(SMALL))
    with opened(browser, path) as page:
        for (allocator, way), frames in zip(WAYS, page.play.evaluate(DRAWN), strict=True):
            assert len(frames) > 200
            assert [drawn for _, drawn in frames] == [ledger for ledger, _ in frames], (allocator, way)


def test_going_back_gives_the_same_as_going_on(page):
    there = page.play.evaluate("() => lanes.map((lane) => lane.data.frames.map((_, i) => JSON.stringify([...lane.go(i).rows])))")
    back = page.play.evaluate("""() => lanes.map((lane) => lane.data.frames.map((_, i) => i).reverse()
      .map((i) => JSON.stringify([...lane.go(i).rows])).reverse())""")
    assert there == back


# ---------------------------------------------------------------------- controls
def test_every_button_does_what_it_says(page):
    play = page.play
    last = play.evaluate("last")
    assert stop(page) == 0 and play.is_disabled("#back") and play.is_disabled("#first")
    play.click("#on")
    assert stop(page) == 1 and play.input_value("#slider") == "1" and "event 2 of" in page.text("#step")
    play.click("#back")
    assert stop(page) == 0
    play.click("#end")
    assert stop(page) == last and play.is_disabled("#on")
    play.click("#first")
    assert stop(page) == 0
    for kind, word in (("refuse", "refused"), ("preempt", "preempted"), ("evict", "evicted")):
        play.click(f"#{kind}")
        assert re.search(word, page.text("#live")), kind
        assert play.locator(f".lane.now .said li.{kind}").count() > 0
    play.fill("#seconds", "1.5")
    play.press("#seconds", "Enter")
    assert page.text("#time") == "1.500 s"
    play.evaluate("at('slider').value = 7; at('slider').dispatchEvent(new Event('input'))")
    assert stop(page) == 7 and "event 8 of" in play.get_attribute("#slider", "aria-valuetext")


def test_it_plays_and_pauses(page):
    play = page.play
    play.select_option("#speed", "60")
    play.click("#play")
    play.wait_for_function("shown.stop > 5")
    assert "Pause" in page.text("#play") and play.get_attribute("#play", "aria-pressed") == "true"
    play.click("#play")
    at = stop(page)
    assert "Play" in page.text("#play") and not play.evaluate("shown.playing")
    play.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert stop(page) == at
    play.click("#end")
    play.click("#play")                                # from the end it begins anew
    play.wait_for_function("shown.stop < 100")


def test_every_key_does_what_it_says(page):
    press = page.play.keyboard.press
    last = page.play.evaluate("last")
    for key, there in (("ArrowRight", 1), (".", 2), (",", 1), ("ArrowLeft", 0), ("End", last), ("Home", 0), ("ArrowLeft", 0)):
        press(key)
        assert stop(page) == there, key
    for key, kind in (("r", "refuse"), ("p", "preempt"), ("e", "evict")):
        press("Home")
        stops = page.play.evaluate(f"jumps.{kind}")
        for there in stops[:3]:
            press(key)
            assert stop(page) == there
        press(f"Shift+{key.upper()}")
        assert stop(page) == stops[1]
    press("End")
    press("e")
    assert page.text("#nothing") == page.text("#live") == "no further eviction" and stop(page) == last
    press("Space")
    page.play.wait_for_function("shown.playing")
    press("Space")
    assert not page.play.evaluate("shown.playing")


def test_keys_in_a_field_are_the_fields(page):
    page.play.focus("#seconds")
    page.play.keyboard.press("End")
    page.play.keyboard.type("e1")
    assert stop(page) == 0


def test_blocks_are_told_by_keyboard(page):
    play = page.play
    for _ in range(6):
        play.keyboard.press("e")
    canvas = play.locator('[data-lane="paged-prefix"] canvas.map')
    canvas.focus()
    detail = '[data-lane="paged-prefix"] .detail'
    here = stop(page)
    assert page.text(detail).startswith("Block 1, ref count ") and page.text("#live") == page.text(detail)
    assert re.search(r"place 1 in the block tables of r\d+ \(since [\d.]+ s\), r\d+ \(since", page.text(detail))
    assert re.search(r"Of 16 slots: 16 token states\. .* Block table of r\d+, \d+ tokens: 1, 2, 3, ", page.text(detail))
    columns = play.evaluate("gridOf(lanes[3], document.querySelectorAll('canvas.map')[3].clientWidth).columns")
    for key, block in (("ArrowRight", 2), ("ArrowDown", 2 + columns), ("ArrowLeft", 1 + columns), ("ArrowUp", 1), ("End", 96),
                       ("ArrowRight", 96), ("Home", 1)):
        play.keyboard.press(key)
        assert page.text(detail).startswith(f"Block {block}, "), key
    assert stop(page) == here and "arrow keys go from block to block" in canvas.get_attribute("aria-label")


def test_addresses_are_told_by_keyboard_and_pointer(page):
    play = page.play
    play.keyboard.press("r")
    play.locator('[data-lane="contiguous-max"] canvas.map').focus()
    detail = '[data-lane="contiguous-max"] .detail'
    assert re.fullmatch(r"Addresses 0 to 255: reserved for r\d+, admitted at [\d.]+ s: \d+ token states, .*", page.text(detail))
    play.keyboard.press("ArrowRight")
    second = page.text(detail)
    assert second.startswith("Addresses 256 to 511: ")
    play.locator('[data-lane="contiguous-max"] canvas.map').hover(position={"x": 100, "y": 75})
    assert page.text(detail).startswith("Addresses 512 to 767: ")
    play.mouse.move(1, 1)
    assert page.text(detail) == second


def test_the_list_of_events_leads_there(page):
    play = page.play
    lane = play.locator('[data-lane="paged"]')
    lane.locator("summary").click()
    button = lane.locator(".events button").first
    time, sentence = button.text_content().split(" s ", 1)
    button.click()
    assert page.text("#time") == f"{time} s" and sentence in lane.locator(".said").text_content()


# ---------------------------------------------------------------------- a newcomer's questions, from the page alone
def test_a_newcomers_questions_are_answered(page):
    play = page.play
    play.click("#refuse")
    assert "refused: needs 256 contiguous slots; 0 free, largest hole 0: too few in total (remainder)." in page.text("#live")
    play.click("#evict")
    queue, prefix = (page.text(f'[data-lane="paged-prefix"] [data-at="{part}"]') for part in ("queue", "shared"))
    assert re.match(r"Free queue \(\d+ blocks, handed out in this order\): \d+", queue)
    assert re.search(r"Next eviction: block \d+, (after \d+ other|the very next)", queue)
    assert re.match(r"Shared: 1, 2, 3 by r0, r\d+", prefix)
    play.click("#preempt")
    assert re.search(r"r\d+ preempted, as no block is left for the others: its \d+ blocks are given back", page.text("#live"))
    for word in ("internal fragmentation", "preempted", "evicted", "free queue", "ref count", "copy-on-write"):
        assert play.locator("dt", has_text=word).count() >= 1, word
    assert "play or pause" in page.text(".keys")
    assert re.search(r"Σ ⌈tokens ÷ 16⌉ = \d+ blocks in block tables", page.text('[data-lane="paged"] [data-at="moving"]'))


# ---------------------------------------------------------------------- what users name, and what is large
def test_names_that_are_scripts_show_as_text(browser, tmp_path):
    trace = replace(trace_of(WORKED), source=HOSTILE)
    labels = [HOSTILE, "</script><b>r1</b>"]
    log = LaneLog("paged", Names(labels))
    facts = Engine(trace, config_of(6, 4, 8, longest_jump=1), "paged", observers=[log]).run()
    path = write(tmp_path / "map.html", [(log, facts)], labels, ("view", HOSTILE), HOSTILE)
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
        assert page.play.title() == f"Memory map: {name}" and page.play.locator("img").count() == 0


def test_times_beyond_what_javascript_counts_are_exact(browser, tmp_path):
    late = 2**53 + 1
    view = seen(trace_of([(5, 3), (6, 1, late)]), config_of(6, 4, 8, longest_jump=1), "paged")
    with opened(browser, write(tmp_path / "map.html", [(view.log, view.run)], ["a", "b"])) as page:
        page.play.keyboard.press("End")
        assert page.text("#time") == "9,007,199,254.740994 s"


def test_a_large_pool_is_drawn_in_cells_of_several_blocks(browser, capsys, tmp_path):
    path = tmp_path / "map.html"
    assert run(capsys, "view", "--num-gpu-blocks-override", 5001, "--html", path, "-q", "--allocator", "token", "--allocator",
               "paged-prefix").status == 0
    with opened(browser, path) as page:
        page.play.keyboard.press("r")
        assert "each cell of the map is 5 blocks" in page.text('[data-lane="paged-prefix"] .notes')
        page.play.locator('[data-lane="paged-prefix"] canvas.map').focus()
        assert page.text('[data-lane="paged-prefix"] .detail').startswith("Blocks 1 to 5, slots: ")


def test_a_thinned_run_says_what_is_left_out(browser, capsys, tmp_path):
    path = tmp_path / "map.html"
    assert run(capsys, "view", "--events", 60, "--html", path, "-q", "--allocator", "paged").status == 0
    with opened(browser, path) as page:
        assert re.match(r"60 of \d+ moments are on this page", page.text(".notes"))
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
        assert too_faint(page) == []
        shown = page.play.evaluate("views.map(({ parts }) => [parts.map.clientWidth, parts.map.clientHeight])")
        assert all(wide > 200 and high > 100 for wide, high in shown)
        ground = page.play.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


def test_colours_follow_the_scheme(page):
    before = page.play.evaluate("shown.theme.colours['--paper']")
    page.play.emulate_media(color_scheme="dark")
    page.play.wait_for_function("shown.theme.colours['--paper'] !== '#ffffff'")
    assert before == "#ffffff"


def test_less_motion_where_that_is_asked_for(browser, page_file):
    with opened(browser, page_file, reduced_motion="reduce") as page:
        assert page.play.input_value("#speed") == "1"
