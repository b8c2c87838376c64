"""What a person may say about how a trace is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


def _nobody(_: int) -> None:
    """Progress that nobody looks at."""


@dataclass(frozen=True)
class ReadOptions:
    """How a file is read.

    Parameters
    ----------
    strict : bool
        A row that would be dropped is an error.
    columns : mapping of role to column, or None
        For a table of one's own: see `own_table`.
    span_tokens : int or None
        Tokens a hash id stands for, where the format does not say; None: what all rows agree on.
    incremental : bool
        Later turns of a session give what they add, not their whole prompt.
    seed : int
        Where a format holds distributions, or sessions without a common clock.
    window_s : pair of float or None
        The time to make requests for, where a format holds rates (ServeGen), in seconds.
    session_rate_per_s : float or None
        How many sessions begin in a second, where they have no common clock; None: all at once.
    tick : int -> None
        Told the bytes read, for a progress bar.
    """

    strict: bool = False
    columns: Mapping[str, str] | None = None
    span_tokens: int | None = None
    incremental: bool = False
    seed: int = 0
    window_s: tuple[float, float] | None = None
    session_rate_per_s: float | None = None
    tick: Callable[[int], None] = field(default=_nobody, compare=False)
