"""The trace: what arrives, when, how long it is and what it shares.

A trace is a handful of numpy columns with one entry a request, in order of arrival. Prefix identity, where a format
has it, is one ragged array of *content ids*: an id stands for the tokens of one span of ``span_tokens`` tokens, and
equal ids stand for equal tokens.

    request      0            1               2
    block_ids    [7, 8, 9]    [7, 8, 12, 4]   []          flat: 7 8 9 7 8 12 4, starts: 0 3 7 7
                  ^^^^         ^^^^
                  the same first 2 x span_tokens tokens: these blocks can be shared

This module imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]


class InputError(ValueError):
    """An input that cannot be used. The message is one line: file, line, column and value where there are such."""


@dataclass(frozen=True, eq=False)
class ContentIds:
    """Prefix identity of all requests as one ragged array.

    Parameters
    ----------
    ids : int64, shape (total,)
        Content ids of all requests, one request behind the other; 0 or more.
    starts : int64, shape (requests + 1,)
        Request ``r`` owns ``ids[starts[r]:starts[r + 1]]``.
    span_tokens : int
        Tokens an id stands for (512 in Mooncake traces). The last id of a request may stand for fewer tokens.
    cover_output : bool
        Whether the ids go on over the generated tokens, so that a later prompt can contain them.
    local : bool
        Whether the ids were numbered as the trace was read or made: then they name nothing in another trace.
    """

    ids: IntArray
    starts: IntArray
    span_tokens: int
    cover_output: bool = False
    local: bool = False

    def __post_init__(self) -> None:
        if self.span_tokens < 1:
            raise ValueError(f"span_tokens must be at least 1, not {self.span_tokens}")
        if len(self.starts) == 0 or self.starts[0] != 0 or self.starts[-1] != len(self.ids):
            raise ValueError("starts must begin with 0 and end with the number of ids")
        if np.any(np.diff(self.starts) < 0):
            raise ValueError("starts must not decrease")
        if len(self.ids) and int(self.ids.min()) < 0:
            raise ValueError(f"a content id is negative: {int(self.ids.min())}")

    def same(self, other: ContentIds) -> bool:
        """Whether all requests have the same ids of the same spans."""
        return (self.span_tokens == other.span_tokens and self.cover_output == other.cover_output
                and np.array_equal(self.starts, other.starts) and np.array_equal(self.ids, other.ids))

    def take(self, rows: IntArray) -> ContentIds:
        """The ids of the requests ``rows``, in that order."""
        counts = np.diff(self.starts)[rows]
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
        flat = self.ids[np.repeat(self.starts[:-1][rows], counts) + within]
        return ContentIds(flat, starts, self.span_tokens, self.cover_output, self.local)


COLUMNS = ("output_tokens", "arrival_us", "max_tokens", "session", "priority", "samples", "beam_width", "think_us")
"""Columns of a `Trace` besides ``prompt_tokens``; all but the first may be missing."""


LONGEST_THINK_US = 10**14


def first_of_sessions(session: IntArray) -> NDArray[np.bool_]:
    """Which rows have no row of their session before them; rows without a session (-1) are all first.

    >>> first_of_sessions(np.array([4, -1, 4, -1, 2])).tolist()
    [True, True, False, True, True]
    """
    return row_before(session) < 0


def row_before(session: IntArray) -> IntArray:
    """For each row the row of its session before it; -1 for none, and for rows without a session.

    >>> row_before(np.array([4, -1, 4, -1, 2, 4])).tolist()
    [-1, -1, 0, -1, -1, 2]
    """
    order = np.argsort(session, kind="stable")
    same = (session[order][1:] == session[order][:-1]) & (session[order][1:] >= 0)
    before = np.full(len(session), -1, np.int64)
    before[order[1:][same]] = order[:-1][same]
    return before


def in_order_of_appearance(session: IntArray) -> IntArray:
    """The same sessions numbered from 0 on as they appear: their numbers are names and mean nothing; -1 stays for none.

    >>> in_order_of_appearance(np.array([7, -1, 3, 7])).tolist()
    [0, -1, 1, 0]
    """
    names, first, which = np.unique(session, return_index=True, return_inverse=True)
    first = np.where(names < 0, -1, first)             # none comes before all
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(names)) - int((names < 0).any())
    numbers: IntArray = rank[which.reshape(-1)]
    return numbers


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival, as columns of equal length.

    Parameters
    ----------
    source : str
        Where it came from, for people: a file name or the name of a generator.
    prompt_tokens, output_tokens : int64, shape (requests,)
        Lengths in tokens, each at least 1.
    arrival_us : int64, shape (requests,) or None
        Microseconds since the first arrival, rounded half to even, never decreasing; None where the format has no times.
    max_tokens : int64, shape (requests,) or None
        The limit the client asked for, where known (tokens); at least the output, which came of it.
    session : int64, shape (requests,) or None
        Equal numbers belong to one conversation; -1 for none.
    think_us : int64, shape (requests,) or None
        Closed loop: microseconds from the end of the session's request before this one (the row before with the same
        number) to this one's arrival; -1 where a request arrives at its ``arrival_us``, as the first of a session does.
        ``arrival_us`` of the others only orders the rows.
    priority : int64, shape (requests,) or None
        Smaller is more urgent, as vLLM's; None: all alike.
    samples : int64, shape (requests,) or None
        Outputs sampled in parallel for each prompt (``n``), at least 1; all share the prompt.
    beam_width : int64, shape (requests,) or None
        Beams kept by a beam search; 1 for none.
    content : ContentIds or None
        Prefix identity; None where the format has none, and then nothing can be shared.
    dropped : mapping of reason to count
        Rows the reader or a cut left out.
    notes : tuple of str
        What people should know: what the format cannot show, what was assumed, that rows were sorted.
    made_by : str or None
        The command that made it, where one of ours did.
    format : str or None
        The format it was read as.

    Raises
    ------
    ValueError
        If the columns do not fit together or a length is below 1.
    """

    source: str
    prompt_tokens: IntArray
    output_tokens: IntArray
    arrival_us: IntArray | None = None
    max_tokens: IntArray | None = None
    session: IntArray | None = None
    content: ContentIds | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    priority: IntArray | None = None
    samples: IntArray | None = None
    beam_width: IntArray | None = None
    think_us: IntArray | None = None
    notes: tuple[str, ...] = ()
    made_by: str | None = None
    format: str | None = None

    def __post_init__(self) -> None:
        n = len(self.prompt_tokens)
        for name in COLUMNS:
            column = getattr(self, name)
            if column is not None and len(column) != n:
                raise ValueError(f"{name} has {len(column)} entries for {n} requests")
        if self.content is not None and len(self.content.starts) != n + 1:
            raise ValueError(f"content has {len(self.content.starts) - 1} entries for {n} requests")
        for name in ("prompt_tokens", "output_tokens"):
            column = getattr(self, name)
            if n and int(column.min()) < 1:
                raise ValueError(f"{name} must be at least 1, not {int(column.min())}")
        if self.max_tokens is not None and np.any(self.max_tokens < self.output_tokens):
            row = int((self.max_tokens < self.output_tokens).argmax())
            raise ValueError(f"request {row} generates {self.output_tokens[row]} tokens, more than its max_tokens "
                             f"{self.max_tokens[row]} (the longest output: {self.output_tokens.max()})")
        for name in ("samples", "beam_width"):
            column = getattr(self, name)
            if column is not None and n and int(column.min()) < 1:
                raise ValueError(f"{name} must be at least 1, not {int(column.min())}")
        if self.samples is not None and self.beam_width is not None and np.any((self.samples > 1) & (self.beam_width > 1)):
            raise ValueError("a request has several samples or several beams, not both")
        if self.arrival_us is not None and n and (self.arrival_us[0] < 0 or np.any(self.arrival_us[1:] < self.arrival_us[:-1])):
            raise ValueError("arrival_us must start at 0 or later and not decrease")
        if self.think_us is not None:
            self._check_think(self.think_us)

    def _check_think(self, think_us: IntArray) -> None:
        if len(think_us) and int(think_us.min()) < -1:
            raise ValueError(f"think_us must be -1 or more, not {int(think_us.min())}")
        if len(think_us) and int(think_us.max()) > LONGEST_THINK_US:
            raise ValueError(f"think_us must be at most {LONGEST_THINK_US} (three years), not {int(think_us.max())}")
        if self.session is None or np.any(think_us[first_of_sessions(self.session)] >= 0):
            raise ValueError("a request waits for the one before it in its session, and there is none")

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def sequences(self) -> IntArray | None:
        """Sequences a request, samples or beams; None where every request has one.

        >>> Trace("two", np.array([5, 9]), np.array([9, 1]), samples=np.array([1, 4])).sequences
        array([1, 4])
        """
        columns = [column for column in (self.samples, self.beam_width) if column is not None]
        if not columns:
            return None
        most: IntArray = np.maximum.reduce(columns)
        return most if len(most) and int(most.max()) > 1 else None

    @property
    def closed_loop(self) -> bool:
        """Whether a request waits for the answer before it.

        >>> Trace("one", np.array([5]), np.array([9])).closed_loop
        False
        """
        return self.think_us is not None and bool(np.any(self.think_us >= 0))

    def differences(self, other: Trace) -> list[str]:
        """Names of the columns that differ, times to the microsecond; where it came from does not count.

        Sessions are the same where the same requests belong together, whatever their numbers.

        >>> a = Trace("a", np.array([5]), np.array([9]))
        >>> a.differences(Trace("b", np.array([5]), np.array([8]), session=np.array([3])))
        ['output_tokens', 'session']
        """
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in ("prompt_tokens", *COLUMNS)]
        different = [name for name, one, two in pairs
                     if (one is None) != (two is None) or (one is not None and not _equal(name, one, two))]
        one, two = self.content, other.content
        if (one is None) != (two is None) or (one is not None and two is not None and not one.same(two)):
            different.append("content")
        return different

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last; 0 where there are no times."""
        if self.arrival_us is None or len(self) == 0:
            return 0.0
        return float(self.arrival_us[-1] - self.arrival_us[0]) / 1e6


def _equal(name: str, one: IntArray, two: IntArray) -> bool:
    if name == "session":
        one, two = in_order_of_appearance(one), in_order_of_appearance(two)
    return np.array_equal(one, two)
