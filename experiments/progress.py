"""Progress bars on stderr, counted in requests; nothing where nobody looks."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sim.run import Observer


def bars(quiet: bool) -> Progress:
    """Bars to be used in a with block; disabled when ``quiet`` or stderr is no terminal."""
    columns = (TextColumn("{task.description:<18}"), BarColumn(), TextColumn("{task.completed:,.0f}/{task.total:,.0f} requests"),
               TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=quiet or not sys.stderr.isatty())


class Advance(Observer):
    """Moves a progress bar by the requests that finished."""

    def __init__(self, progress: Progress, task: Any) -> None:
        self._progress, self._task = progress, task

    def updated(self, now_us: int, finished: list[int]) -> None:
        if finished:
            self._progress.advance(self._task, len(finished))
