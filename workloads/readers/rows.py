"""The rows of a file in file order, as columns, and how they become a Trace.

    Rows      every row, zero lengths and all, as the file has them         what `trace info` counts
    Trace     without rows that ask for nothing, sorted by time, from 0     what is replayed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workloads.later import Later
from workloads.messages import counted, reasons_in_words, show_path
from workloads.readers.read_options import ReadOptions
from workloads.readers.times import join_stamps, since_first_us
from workloads.request import ContentIds, InputError, IntArray, Trace, first_of_sessions

if TYPE_CHECKING:
    from workloads import synthetic
else:
    synthetic = Later("workloads.synthetic")

EVERY_ROW = slice(None)
NO_OUTPUT = "no output lengths: every request generates 1 token; use --synth-output"
SORTED = "the rows were not in order of time: sorted, rows of one time in the order of the file"
NOT_READ = "{} that are not read: {}"
NO_TIMES = "no arrival times: they have to be drawn; use --rate"
NO_CONTENT = "no prefix identity: sharing cannot be measured; use --synth-prefix"
NO_GENERATED = "no identity of generated tokens: only prompts can be found again"


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a file in file order, zero lengths included.

    Parameters
    ----------
    path : str
        The file, as the user named it.
    prompt_tokens : int64, shape (rows,)
    output_tokens : int64, shape (rows,), or None
        None where the format has none.
    stamps : list of arrays, together of shape (rows,), or None
        See `times.join_stamps`.
    content : ContentIds or None
        As in Trace.
    besides : mapping of a column of Trace to int64, shape (rows,)
        ``session``, ``think_us``, ``priority``, ``max_tokens``, ``samples``, ``beam_width``.
    clocks : int64, shape (rows,), or None
        The clock on which each row's time counts, where these have no common start; None: all on one.
    notes : tuple of str
        What the reader has to say.
    made_by : str or None
        The command that made the file, if it says so.
    format : str or None
        What it was read as.
    """

    path: str
    prompt_tokens: IntArray
    output_tokens: IntArray | None
    stamps: Sequence[NDArray[Any]] | None = None
    content: ContentIds | None = None
    besides: Mapping[str, IntArray] = field(default_factory=dict)
    clocks: IntArray | None = None
    notes: tuple[str, ...] = ()
    made_by: str | None = None
    format: str | None = None

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def arrivals_us(self, options: ReadOptions | None = None) -> IntArray | None:
        """Microseconds since the least stamp of all rows, in file order; None where there are none."""
        return None if self.stamps is None else self._arrivals(EVERY_ROW, options or ReadOptions())

    def to_trace(self, options: ReadOptions | None = None) -> Trace:
        """Leave out rows with a zero length, sort stably by time, and count time from the least stamp kept.

        Raises
        ------
        InputError
            If no row is left, or the columns contradict one another.
        """
        options = ReadOptions() if options is None else options
        output = np.ones(len(self), np.int64) if self.output_tokens is None else self.output_tokens
        rows, dropped = self._kept(output)
        if options.strict and dropped:                 # drawn rows; readers refuse those of a file where they stand
            raise InputError(f"{show_path(self.path)}: --strict: {sum(dropped.values()):,} of {counted(len(self), 'row')} "
                             "have no token: " + reasons_in_words(dropped))
        notes, arrival_us = [*self.notes, *self._cannot_show()], None
        if self.stamps is not None:
            arrival_us = self._arrivals(rows, options)
            if np.any(arrival_us[1:] < arrival_us[:-1]):
                order = np.argsort(arrival_us, kind="stable")
                rows, arrival_us = order if isinstance(rows, slice) else rows[order], arrival_us[order]
                if self.clocks is None:
                    notes.append(SORTED)
        besides = {name: column[rows] for name, column in self.besides.items()}
        if "think_us" in besides:
            besides["think_us"] = np.where(first_of_sessions(besides["session"]), -1, besides["think_us"])
        content = self.content if isinstance(rows, slice) or self.content is None else self.content.take(rows)
        try:
            return Trace(self.path, self.prompt_tokens[rows], output[rows], arrival_us, content=content, dropped=dropped,
                         notes=tuple(notes), made_by=self.made_by, format=self.format, **besides)
        except ValueError as error:
            raise InputError(f"{show_path(self.path)}: {error}") from None

    def _kept(self, output: IntArray) -> tuple[IntArray | slice, dict[str, int]]:
        """Rows that ask for something: all of them (and then no column is copied) or their numbers."""
        no_prompt = self.prompt_tokens == 0
        no_output = (output == 0) & ~no_prompt         # a row is counted once
        counts = {"zero_prompt": int(no_prompt.sum()), "zero_output": int(no_output.sum())}
        dropped = {reason: count for reason, count in counts.items() if count}
        if not dropped:
            return EVERY_ROW, {}
        rows = np.flatnonzero(~(no_prompt | no_output))
        if len(rows) == 0:
            raise InputError(f"{show_path(self.path)}: no request is left of {counted(len(no_prompt), 'row')}: "
                             + reasons_in_words(dropped))
        return rows, dropped

    def _arrivals(self, rows: IntArray | slice, options: ReadOptions) -> IntArray:
        assert self.stamps is not None
        stamps, units_per_us = join_stamps(self.stamps)
        arrival_us = since_first_us(stamps[rows], units_per_us)
        if self.clocks is not None and options.session_rate_per_s is not None:
            numbers, place = np.unique(self.clocks[rows], return_inverse=True)
            rng = np.random.default_rng(options.seed)
            arrival_us = arrival_us + synthetic.poisson_arrivals_us(len(numbers), options.session_rate_per_s, rng)[place]
        return arrival_us

    def _cannot_show(self) -> list[str]:
        """What is not in the file, and what to do about it."""
        sessions = "session" in self.besides
        missing = {NO_OUTPUT: self.output_tokens is None, NO_TIMES: self.stamps is None, NO_CONTENT: self.content is None,
                   NO_GENERATED: sessions and self.content is not None and not self.content.cover_output}
        return [note for note, holds in missing.items() if holds]
