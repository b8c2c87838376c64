"""A real browser for tests of pages: Chromium without a window, through Playwright. The fixture is `conftest.browser`.

Where there is none, tests that want one are skipped; with PAGEDSIM_BROWSER=required they fail instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync")


def missing(reason):
    """No browser: the test is skipped, or fails where one is required."""
    if os.environ.get("PAGEDSIM_BROWSER") == "required":
        pytest.fail(f"PAGEDSIM_BROWSER=required, and {reason}")
    pytest.skip(reason)


@contextmanager
def chromium():
    """The browser, for as long as the block runs."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing(f"there is no {', '.join(NAMES)}")
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Page:
    """A file opened in a browser: everything it complains of and asks the network for is noted.

    Attributes
    ----------
    play : playwright Page
    complaints, requests : list of str
        Console messages and uncaught errors; addresses besides the file's own.
    """

    def __init__(self, context, path):
        self.play = context.new_page()
        self.complaints, self.requests = [], []
        self.play.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.play.on("pageerror", lambda error: self.complaints.append(str(error)))
        address = path.resolve().as_uri()
        self.play.on("request", lambda asked: asked.url in (address, "data:,") or self.requests.append(asked.url))
        self.play.goto(address)

    def text(self, selector):
        return self.play.locator(selector).first.text_content()


@contextmanager
def opened(browser, path, width=1280, scheme="light", **more) -> Iterator[Page]:
    """A page from disk, without a network; it must have had no complaints and asked for nothing when the block ends."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, **more)
    try:
        page = Page(context, path)
        yield page
        assert (page.complaints, page.requests) == ([], [])
    finally:
        context.close()


CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).slice(0, 3).map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92
                                                                               : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor, [, , , alpha = 1] = numbers(colour);
      if (alpha === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const one of document.body.querySelectorAll("*")) {
    const words = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!words || !one.checkVisibility() || one.disabled || ["SCRIPT", "STYLE", "OPTION"].includes(one.tagName)) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${one.tagName} ${one.textContent.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""
"""Script: what is written in too little contrast for WCAG AA, 4.5 to 1."""


def too_faint(page):
    """Texts of the page whose contrast is below 4.5 to 1."""
    return page.play.evaluate(CONTRAST)
