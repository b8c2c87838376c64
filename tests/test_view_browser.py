"""The memory map in a real browser: every control and key, and its numbers against the simulator's."""

from __future__ import annotations

import re

import numpy as np
import pytest
from browser import opened
from viewed import SMALL, SMALL_CONFIG, built_in, made, names_of, seen, written

LEDGER = """(lane) => [...document.querySelectorAll(`[data-lane="${lane}"] tbody tr`)].map((row) => row.cells[1].textContent)"""
DRAWN = """() => lanes.map((lane) => lane.data.frames.map((_, frame) => {
  const state = lane.go(frame);
  return [state.parts.map(Number), drawnParts(lane, state)];
}))"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    return built_in(tmp_path_factory)


@pytest.fixture
def page(browser, page_file):
    with opened(browser, page_file) as page:
        yield page


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


DRAWN_RUNS = [("contiguous-max", "plain"), ("contiguous-oracle", "first-fit"), ("contiguous-oracle", "samples"),
              ("paged", "beams"), ("paged", "static"), ("paged-prefix", "plain"), ("paged-prefix", "async"),
              ("paged-prefix", "swap"), ("paged-prefix", "samples"), ("paged-reserve", "plain"), ("token", "plain"),
              ("vattention", "plain")]


def test_what_is_drawn_adds_up_to_the_ledger_at_every_frame(browser, tmp_path):
    views = [seen(*made(way), allocator) for allocator, way in DRAWN_RUNS]
    path = written(tmp_path / "map.html", [(view.log, view.run) for view in views], names_of(SMALL))
    with opened(browser, path) as page:
        for (allocator, way), frames in zip(DRAWN_RUNS, page.play.evaluate(DRAWN), strict=True):
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
    assert re.search(r", findable by prefix lookups\. Of 16 slots: 16 token states\. Place 1 in the block tables of r\d+ \(since "
                     r"[\d.]+ s\), r\d+ \([\d.]+ s\).* Block table of r\d+, \d+ tokens: 1, 2, 3, ", page.text(detail))
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
    assert re.search(r"r\d+ preempted, as no block is left for the others: "
                     r"its \d+ blocks [\d, to]+ are given back", page.text("#live"))
    for word in ("internal fragmentation", "preempted", "evicted", "free queue", "ref count", "copy-on-write"):
        assert play.locator("dt", has_text=word).count() >= 1, word
    assert "play or pause" in page.text(".keys")
    assert re.search(r"Σ ⌈tokens ÷ 16⌉ = \d+ blocks in block tables", page.text('[data-lane="paged"] [data-at="moving"]'))
