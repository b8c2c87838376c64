"""Property tests draw the same examples in every run; PAGEDSIM_LONG=N draws N times as many, at random. One browser for all."""

import pytest
from browser import chromium
from hypothesis import settings
from small import LONG

settings.register_profile("pagedsim", derandomize=LONG == 1, deadline=None)
settings.load_profile("pagedsim")

collect_ignore_glob = ["oracle/*"]                     # for maintainers, with an installed vLLM: the product never imports it


@pytest.fixture(scope="session")
def browser():
    """Chromium; skipped where there is none (`tests/browser.py`)."""
    with chromium() as made:
        yield made
