"""Progress bars on stderr, counted in requests; nothing where nobody looks."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def bars(quiet: bool) -> Progress:
    """Bars to be used in a with block; disabled when ``quiet`` or stderr is no terminal."""
    columns = (TextColumn("{task.description:<18}"), BarColumn(), TextColumn("{task.completed:,.0f}/{task.total:,.0f} requests"),
               TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=quiet or not sys.stderr.isatty())
