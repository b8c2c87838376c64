"""What every format shares: the Reader record, telling formats apart by content, and turning rows into a Trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.readers.csv_table import COUNT, PRIORITY, CsvTable, Kind, header_of
from workloads.readers.json_lines import parse_object
from workloads.readers.messages import Place, show_path
from workloads.readers.source import Source, first_line
from workloads.readers.times import join_stamps, since_first_us
from workloads.request import ContentIds, InputError, IntArray, Trace

SEQUENCES = {"priority": PRIORITY, "samples": COUNT, "beam_width": COUNT}
"""Columns that a table of ours may have besides; they become those of Trace."""

CERTAIN = 100  # a score from here on: the file has every column the format needs
LIKELY = 50  # from here on: so near that its complaint about a missing column helps


@dataclass(frozen=True)
class Head:
    """The beginning of a file: column names of a CSV header, or the first object of JSON lines."""

    columns: tuple[str, ...]
    record: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Reader:
    """One trace format.

    Parameters
    ----------
    name : str
        What users type.
    about : str
        One line for people.
    score : Head -> int
        How well the beginning of a file fits; see `score_columns`.
    read : Source -> Trace
        Reads the file; raises InputError.
    """

    name: str
    about: str
    score: Callable[[Head], int]
    read: Callable[[Source], Trace]


def head_of(source: Source) -> Head:
    """What the first line says about the format.

    Raises
    ------
    InputError
        If it begins like JSON and is not, or is malformed CSV.
    """
    line, text, _ = first_line(source)
    if not text.lstrip().startswith(("{", "[")):
        return Head(header_of(source)[1])
    record = parse_object(Place(source.path, line), text)
    return Head(tuple(record), record)


def score_columns(head: Head, needed: Sequence[str], foreign: Sequence[str] = ()) -> int:
    """How well the columns fit: CERTAIN + their number if all are there, else below CERTAIN by the share that is.

    A format that needs more columns wins over one that needs fewer. Columns in `foreign` belong to another format.

    >>> score_columns(Head(("a", "b", "c")), ["a", "b"]), score_columns(Head(("a", "c")), ["a", "b"])
    (102, 50)
    """
    if any(name in head.columns for name in foreign):
        return 0
    there = sum(name in head.columns for name in needed)
    return CERTAIN + there if there == len(needed) else CERTAIN * there // len(needed)


def read_table(table: CsvTable, kinds: Mapping[str, Kind]) -> dict[str, list[NDArray[Any]]]:
    """The named columns and those of `SEQUENCES` that are there, as `CsvTable.read`."""
    return table.read({**kinds, **{name: kind for name, kind in SEQUENCES.items() if name in table.header}})


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a file in file order, zero lengths included.

    Parameters
    ----------
    prompt_tokens, output_tokens : int64, shape (rows,)
    stamps : list of arrays, together of shape (rows,), or None
        See `times.join_stamps`.
    content : ContentIds or None
        As in Trace.
    parts : mapping of column to its arrays
        What `read_table` gave; those of `SEQUENCES` are taken from it.
    """

    prompt_tokens: IntArray
    output_tokens: IntArray
    stamps: Sequence[NDArray[Any]] | None = None
    content: ContentIds | None = None
    parts: Mapping[str, Sequence[NDArray[Any]]] = field(default_factory=dict)

    def to_trace(self, path: str) -> Trace:
        """Leave out rows with a zero length, sort stably by time, and count time from the least stamp kept.

        Raises
        ------
        InputError
            If no row is left, or a row asks for several samples and several beams.
        """
        besides: dict[str, Any] = {name: np.concatenate(self.parts[name]) for name in SEQUENCES if name in self.parts}
        if len(besides.keys() - {"priority"}) == 2 and np.any((besides["samples"] > 1) & (besides["beam_width"] > 1)):
            raise InputError(f"{show_path(path)}: a request has several samples or several beams, not both")
        no_prompt = self.prompt_tokens == 0
        no_output = (self.output_tokens == 0) & ~no_prompt  # a row is counted once
        counts = {"zero_prompt": int(no_prompt.sum()), "zero_output": int(no_output.sum())}
        dropped = {reason: count for reason, count in counts.items() if count}
        rows = np.flatnonzero(~(no_prompt | no_output))
        if len(rows) == 0:
            left_out = ", ".join(f"{n} {reason}" for reason, n in dropped.items())
            raise InputError(f"{show_path(path)}: no request is left of {len(no_prompt)} rows, dropped: {left_out}")
        arrival_us = None
        if self.stamps is not None:
            stamps, units_per_us = join_stamps(self.stamps)
            rows = rows[np.argsort(stamps[rows], kind="stable")]
            arrival_us = since_first_us(stamps[rows], units_per_us)
        return Trace(
            source=path,
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            arrival_us=arrival_us,
            content=None if self.content is None else self.content.take(rows),
            dropped=dropped,
            **{name: column[rows] for name, column in besides.items()},
        )
