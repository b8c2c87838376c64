"""Our own table: every column a trace has, in whole numbers. It holds any trace; `readers.own_table` reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from workloads.request import ContentIds, IntArray, Trace, in_order_of_appearance
from workloads.writers.common import Change, Writer, from_the_first, one_line

COLUMNS = ("arrival_us", "prompt_tokens", "output_tokens", "max_tokens", "session", "think_us", "priority", "samples",
           "beam_width")
AT_ONCE = 1 << 16                                      # rows: the texts of a large trace need not be there together


def changes(trace: Trace) -> tuple[Change, ...]:
    """Only where times begin."""
    return tuple(from_the_first(trace))


def write(trace: Trace, file: IO[str], comments: Sequence[str] = ()) -> None:
    """Comments, a header, and one line a request; sessions are numbered in order of appearance."""
    if trace.made_by is not None:
        file.write(f"# made by: {one_line(trace.made_by)}\n")
    if trace.content is not None:
        over = ", over prompt and output" if trace.content.cover_output else ""
        file.write(f"# hash_ids: {trace.content.span_tokens} tokens each{over}\n")
    for comment in comments:
        file.write(f"# {one_line(comment)}\n")
    names = [name for name in COLUMNS if getattr(trace, name) is not None]
    file.write(",".join([*names, *(["hash_ids"] if trace.content is not None else [])]) + "\n")
    columns = [_column(trace, name) for name in names]
    for start in range(0, len(trace), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        texts: list[Iterator[str]] = [_texts(column[rows], name) for column, name in zip(columns, names, strict=True)]
        if trace.content is not None:
            texts.append(_ids(trace.content, range(len(trace))[rows]))
        file.writelines(",".join(row) + "\n" for row in zip(*texts, strict=True))


def _column(trace: Trace, name: str) -> IntArray:
    column: IntArray = getattr(trace, name)
    return in_order_of_appearance(column) if name == "session" else column


def _texts(column: IntArray, name: str) -> Iterator[str]:
    """A session that is none is an empty field: its name would be -1."""
    return ("" if name == "session" and value < 0 else str(value) for value in column.tolist())


def _ids(content: ContentIds, rows: range) -> Iterator[str]:
    starts = content.starts[rows.start:rows.stop + 1]
    for ids in np.split(content.ids[starts[0]:starts[-1]], starts[1:-1] - starts[0]):
        yield " ".join(map(str, ids.tolist()))


WRITER = Writer("csv", ".csv", "everything a trace has, in microseconds; comments say what made it", changes, write)
