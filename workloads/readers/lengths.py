"""Lengths only: CSV with prompt_tokens,output_tokens; no times, no prefix identity. Row order is kept.

`priority`, `samples` and `beam_width` may stand beside them (as in Vidur's tables, which have times).
"""

from __future__ import annotations

import numpy as np

from workloads.readers.common import Head, Reader, Rows, read_table, score_columns
from workloads.readers.csv_table import LENGTH, open_csv
from workloads.readers.source import Source
from workloads.request import Trace

COLUMNS = {"prompt_tokens": LENGTH, "output_tokens": LENGTH}


def score(head: Head) -> int:
    """How well a file fits."""
    return score_columns(head, list(COLUMNS)) if head.record is None else 0


def read(source: Source) -> Trace:
    """Read a table of lengths.

    Raises
    ------
    InputError
        For the first bad row, or a missing column.
    """
    parts = read_table(open_csv(source), COLUMNS)
    prompt, output = (np.concatenate(parts[name]) for name in COLUMNS)
    return Rows(prompt, output, parts=parts).to_trace(source.path)


READER = Reader("lengths", "lengths only: prompt_tokens,output_tokens", score, read)
