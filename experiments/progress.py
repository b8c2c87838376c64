"""Progress bars on stderr, counted in requests; nothing where nobody looks."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from sim.flow import Flow
from sim.memory.flowing import Flowed
from sim.run import Observer

if TYPE_CHECKING:
    from rich.progress import Progress


Bars: TypeAlias = Union["Progress", "NoBars"]


class NoBars:
    """Stands for bars that nobody would see."""

    disable = True

    def add_task(self, description: str, total: float | None = None) -> int:
        return 0

    def advance(self, task: Any, advance: float = 1) -> None:
        pass


def bars(quiet: bool) -> AbstractContextManager[Bars]:
    """Bars to be used in a with block; disabled when ``quiet`` or stderr is no terminal."""
    if quiet or not sys.stderr.isatty():
        return nullcontext(NoBars())
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    columns = (TextColumn("{task.description:<18}"), BarColumn(), TextColumn("{task.completed:,.0f}/{task.total:,.0f} requests"),
               TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True))


class Advance(Observer):
    """Moves a progress bar by the requests that finished."""

    follows_flow = True

    def __init__(self, progress: Bars, task: Any) -> None:
        self._progress, self._task = progress, task

    def updated(self, now_us: int, finished: list[int]) -> None:
        if finished:
            self._progress.advance(self._task, len(finished))

    def flowed(self, flow: Flow, flowed: Flowed) -> None:
        self._progress.advance(self._task, int((flow.last < flow.steps).sum()))
