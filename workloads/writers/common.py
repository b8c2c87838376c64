"""What writers share: the Writer record, and how a change is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

import numpy as np

from workloads.readers.times import to_us
from workloads.request import IntArray, Trace

ABOUT = {"max_tokens": "limits on outputs", "session": "sessions", "think_us": "think times", "priority": "priorities",
         "samples": "samples of a prompt", "beam_width": "beam widths", "content": "prefix identity"}
LONGEST_HEADER = 4000                                  # characters: a file is not its history


class Change(NamedTuple):
    """One thing a file will not tell as the trace does.

    ``column`` is that of Trace which differs when the file is read again, ``made_by``, or None where none does;
    ``lost`` says whether anything is gone, not only written in another way.
    """

    column: str | None
    text: str
    lost: bool


@dataclass(frozen=True)
class Writer:
    """One format.

    Parameters
    ----------
    name : str
        What users type; a name of `readers.READERS`.
    suffix : str
        How names of such files end, where that is enough to choose the format.
    about : str
        What it holds, for people.
    changes : Trace -> tuple of Change
    write : (Trace, text file handle, comments) -> None
    needs : tuple of str
        Columns without which it is no such file.
    """

    name: str
    suffix: str | None
    about: str
    changes: Callable[[Trace], tuple[Change, ...]]
    write: Callable[[Trace, IO[str], Sequence[str]], None]
    needs: tuple[str, ...] = ()


def left_out(trace: Trace, format: str, columns: Sequence[str]) -> Iterator[Change]:
    """Changes for the columns a format has no place for."""
    for column in columns:
        if getattr(trace, column) is None:
            continue
        count = says(trace, column)
        text = f"{format} has no place for {ABOUT[column]}: {count:,} of {len(trace):,} requests have them"
        yield Change(column, text, count > 0)


def says(trace: Trace, column: str) -> int:
    """Of how many requests a column that is there tells anything: nobody waits where all think times are -1.

    >>> says(Trace("a", np.array([5, 6]), np.array([9, 9]), samples=np.array([1, 4])), "samples")
    1
    """
    if column == "content":
        assert trace.content is not None
        return int((np.diff(trace.content.starts) > 0).sum())
    values = getattr(trace, column)
    if column == "priority":                           # all alike is what a missing column says
        return len(values) if len(np.unique(values)) > 1 else 0
    return int((values > {"session": -1, "think_us": -1, "samples": 1, "beam_width": 1, "max_tokens": 0}[column]).sum())


def from_the_first(trace: Trace) -> Iterator[Change]:
    """The change every format makes to times: readers count them from the first."""
    if trace.arrival_us is not None and trace.arrival_us[0] > 0:
        later = int(trace.arrival_us[0]) / 1e6
        yield Change("arrival_us", f"times are counted from the first request, which arrives after {later:,g} s", True)


def milliseconds(times_us: IntArray) -> IntArray:
    """Whole milliseconds, rounded half to even; -1 stays for none.

    >>> milliseconds(np.array([-1, 500, 1500, 1501])).tolist()
    [-1, 0, 2, 2]
    """
    return to_us(times_us, 1000)


def moved(times_us: IntArray, column: str, what: str) -> Iterator[Change]:
    """The change where times are written in milliseconds."""
    moves = np.abs(np.where(times_us < 0, 0, milliseconds(times_us) * 1000 - times_us))
    if count := int((moves > 0).sum()):
        text = f"{what} are in milliseconds: {count:,} of {len(moves):,} move, by {int(moves.max())} us at most"
        yield Change(column, text, True)


def one_line(text: str) -> str:
    """A text that fits on one line of a file: what cannot be printed is escaped, what is too long ends in dots.

    >>> one_line("two\\nlines")
    'two\\\\nlines'
    """
    text = text if text.isprintable() else "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= LONGEST_HEADER else text[:LONGEST_HEADER] + " ..."
