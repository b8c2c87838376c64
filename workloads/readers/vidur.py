"""Vidur and Etalon: CSV of prefill and decode lengths, with or without arrival times in seconds.

Times are decimal text such as 4.314579, read exactly. Rows of length files need not be independent requests: in
Etalon's sharegpt_8k neighbours are turns of one conversation, with nothing in the file that says so.
Source: microsoft/vidur (MIT), project-etalon/etalon (Apache-2.0).
"""

from __future__ import annotations

import numpy as np

from workloads.readers.common import Head, Reader, Rows, read_table, score_columns
from workloads.readers.csv_table import LENGTH, SECONDS, open_csv
from workloads.readers.source import Source
from workloads.request import Trace

LENGTHS = {"num_prefill_tokens": LENGTH, "num_decode_tokens": LENGTH}
TIME = "arrived_at"


def score(head: Head) -> int:
    """How well a file fits; the time is optional."""
    return score_columns(head, list(LENGTHS)) if head.record is None else 0


def read(source: Source) -> Trace:
    """Read a Vidur trace; with times, rows are sorted stably by them.

    Raises
    ------
    InputError
        For the first bad row, or a missing column.
    """
    table = open_csv(source)
    timed = TIME in table.header
    parts = read_table(table, {TIME: SECONDS, **LENGTHS} if timed else LENGTHS)
    prompt = np.concatenate(parts["num_prefill_tokens"])
    output = np.concatenate(parts["num_decode_tokens"])
    return Rows(prompt, output, parts[TIME] if timed else None, parts=parts).to_trace(source.path)


READER = Reader("vidur", "Vidur, Etalon: [arrived_at,]num_prefill_tokens,num_decode_tokens", score, read)
