"""The memory map in a real browser: what is in sight without scrolling, and where the focus goes."""

from __future__ import annotations

import itertools
import re

import pytest
from browser import opened
from viewed import built_in

FIRST_SCREEN = {"width": 1280, "height": 720}
CLIPPED = """() => {
  const clipped = [];
  for (let stop = 0; stop <= last; stop++) {
    show(stop, false);
    for (const { parts, root } of views) {
      const bottom = parts.box.getBoundingClientRect().bottom;
      for (const line of parts.said.querySelectorAll(".refuse, .preempt, .evict")) {
        if (line.getBoundingClientRect().bottom > bottom) clipped.push([root.dataset.lane, stop]);
      }
    }
  }
  return clipped;
}"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    return built_in(tmp_path_factory)


@pytest.fixture
def page(browser, page_file):
    with opened(browser, page_file) as page:
        page.play.set_viewport_size(FIRST_SCREEN)
        yield page


def bottom(page, selector):
    box = page.play.locator(selector).first.bounding_box()
    return box["y"] + box["height"]


# ---------------------------------------------------------------------- what happened
@pytest.mark.parametrize("width", [1280, 400])
def test_no_refusal_preemption_or_eviction_is_clipped(browser, page_file, width):
    with opened(browser, page_file, width) as page:
        assert page.play.evaluate(CLIPPED) == []


def test_refusals_preemptions_and_evictions_come_first_in_bold(page):
    order = page.play.evaluate('urgentFirst([["grow", 1], ["evict", 2], ["admit", 3], ["refuse", 4], ["preempt", 5]])')
    assert [text for _, text in order] == [4, 5, 2, 1, 3]
    page.play.keyboard.press("e")
    assert page.play.evaluate("getComputedStyle(document.querySelector('.said .evict')).fontWeight") == "600"
    assert page.play.evaluate("""() => Array.from({ length: last + 1 }, (_, stop) => {
      show(stop, false);
      return views.every(({ parts }) => [...parts.said.children].every((line, i, all) =>
        !i || !URGENT.includes(line.className) || URGENT.includes(all[i - 1].className)));
    }).every(Boolean)""")


def test_what_still_scrolls_is_reached_by_tab(page):
    page.play.keyboard.press("r")
    assert page.play.evaluate("views.map(({ parts }) => parts.box.tabIndex)") == [-1] * 4
    page.play.add_style_tag(content=".said { max-height: 20px }")
    page.play.evaluate("for (const view of views) view.parts.box.style.minHeight = ''")
    page.play.keyboard.press("r")
    assert page.play.evaluate("views.filter(({ parts }) => parts.box.tabIndex === 0).length") >= 1


# ---------------------------------------------------------------------- the first screen
@pytest.mark.parametrize("key", ["r", "p", "e"])
def test_controls_maps_and_what_happened_are_on_the_first_screen(page, key):
    page.play.keyboard.press(key)
    assert page.play.evaluate("scrollY") == 0 and page.play.locator("#controls").bounding_box()["y"] >= 0
    for view in range(4):
        assert page.play.evaluate(f"views[{view}].parts.map.getBoundingClientRect().bottom") < 720
        urgent = page.play.evaluate(f"[...views[{view}].parts.said.querySelectorAll('.refuse, .preempt, .evict')]"
                                    ".map((one) => one.getBoundingClientRect().bottom)")
        assert all(low < 720 for low in urgent)


@pytest.mark.parametrize("down", [0.05, 0.95])
def test_what_is_pointed_at_is_told_beside_it(page, down):
    page.play.keyboard.press("r")
    detail, box = page.play.locator('[data-lane="paged"] .detail'), page.play.locator('[data-lane="paged"] .map').bounding_box()
    assert detail.is_hidden()
    at = box["y"] + down * box["height"]
    page.play.mouse.move(box["x"] + 20, at)
    told = detail.bounding_box()
    assert detail.is_visible() and told["y"] + told["height"] < 720
    assert 0 < (told["y"] - at if down < 0.5 else at - told["y"] - told["height"]) < 40
    page.play.mouse.move(1, 1)
    assert detail.is_hidden()


def test_focus_tells_beside_the_map_and_escape_and_leaving_put_it_away(page):
    canvas, detail = page.play.locator('[data-lane="paged"] .map'), page.play.locator('[data-lane="paged"] .detail')
    page.play.keyboard.press("r")
    canvas.focus()
    assert detail.is_visible() and bottom(page, '[data-lane="paged"] .detail') < 720
    page.play.keyboard.press("Escape")
    assert detail.is_hidden()
    page.play.keyboard.press("ArrowRight")
    assert detail.is_visible()
    canvas.blur()
    assert detail.is_hidden()


# ---------------------------------------------------------------------- where the focus goes
def test_a_time_is_gone_to_and_the_keys_are_the_pages_again(page):
    page.play.fill("#seconds", "1.5")
    page.play.press("#seconds", "Enter")
    assert page.text("#time") == "1.500 s" and page.play.input_value("#seconds") == "1.500"
    here = page.play.evaluate("shown.stop")
    page.play.keyboard.press("r")
    assert page.play.evaluate("shown.stop") == page.play.evaluate(f"jumps.refuse.find((stop) => stop > {here})")
    assert page.text("#time") == page.play.input_value("#seconds") + " s"


@pytest.mark.parametrize(("time", "told", "there"), [
    ("-1", r"-1 s is before the first event, at [\d.]+ s", "0"), ("99", r"99 s is after the last event, at [\d.]+ s", "last"),
    ("", "no time is given", "3")])
def test_a_time_outside_of_the_run_says_so(page, time, told, there):
    for _ in range(3):
        page.play.keyboard.press(".")
    page.play.fill("#seconds", time)
    page.play.press("#seconds", "Enter")
    assert re.fullmatch(told, page.text("#nothing")) and page.play.evaluate(f"shown.stop === {there}")
    for key in ("End", "Home"):
        page.play.keyboard.press(key)
    assert page.text("#nothing") == ""


def test_the_outline_of_what_is_chosen_leaves_with_the_focus(page):
    image = "document.querySelectorAll('canvas.map')[2].toDataURL()"
    page.play.keyboard.press("r")
    plain = page.play.evaluate(image)
    canvas = page.play.locator("canvas.map").nth(2)
    canvas.click(position={"x": 100, "y": 50})
    page.play.mouse.move(1, 1)
    assert page.play.evaluate(image) != plain
    canvas.blur()
    assert page.play.evaluate(image) == plain


def test_an_entry_of_the_list_leads_to_the_map(page):
    lane = page.play.locator('[data-lane="paged"]')
    lane.locator("summary").click()
    lane.locator(".events button").nth(2).click()
    box = lane.locator(".map").bounding_box()
    controls = page.play.locator("#controls").bounding_box()
    assert controls["y"] + controls["height"] <= box["y"] and box["y"] + box["height"] < 720
    assert page.play.evaluate("document.activeElement.closest('.lane').dataset.lane") == "paged"
    page.play.keyboard.press("p")
    assert lane.locator(".said .preempt").count() == 1


def test_on_paper_there_are_no_controls_and_panels_stay_whole(page):
    page.play.emulate_media(media="print")
    assert page.play.locator("#controls button:visible, #controls input:visible, #controls select:visible").count() == 0
    assert page.play.evaluate("getComputedStyle(document.querySelector('.lane')).breakInside") == "avoid"
    boxes = [lane.bounding_box() for lane in page.play.locator(".lane").all()]
    assert all(one["y"] + one["height"] <= two["y"] for one, two in itertools.pairwise(boxes))
