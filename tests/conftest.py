"""Property tests draw the same examples in every run; PAGEDSIM_LONG=N draws N times as many, at random. And the browser."""

import pytest
from browser import chromium
from hypothesis import settings
from small import LONG

settings.register_profile("pagedsim", derandomize=LONG == 1, deadline=None)
settings.load_profile("pagedsim")

collect_ignore_glob = ["oracle/*", "mutation/*"]       # for maintainers, with an installed vLLM, or mutmut


@pytest.fixture(scope="module")                        # Playwright holds an event loop that others must not meet
def browser():
    """Chromium; skipped where there is none (`tests/browser.py`)."""
    with chromium() as made:
        yield made
