"""Azure LLM inference traces: CSV with calendar times, no prefix identity.

2023: CRLF, no zone, always seven digits after the point (100 ns). 2024: the same header, LF, +00:00, up to six digits.
Source: Azure/AzurePublicDataset (CC-BY-4.0); Patel et al., Splitwise, ISCA 2024.
"""

from __future__ import annotations

import numpy as np

from workloads.readers.common import Head, Reader, Rows, score_columns
from workloads.readers.csv_table import CALENDAR_TIME, LENGTH, open_csv
from workloads.readers.source import Source
from workloads.request import Trace

COLUMNS = {"TIMESTAMP": CALENDAR_TIME, "ContextTokens": LENGTH, "GeneratedTokens": LENGTH}


def score(head: Head) -> int:
    """How well a file fits."""
    return score_columns(head, list(COLUMNS)) if head.record is None else 0


def read(source: Source) -> Trace:
    """Read an Azure trace; rows are sorted stably by time.

    Raises
    ------
    InputError
        For the first bad row, or a missing column.
    """
    parts = open_csv(source).read(COLUMNS)
    prompt = np.concatenate(parts["ContextTokens"])
    output = np.concatenate(parts["GeneratedTokens"])
    return Rows(prompt, output, parts["TIMESTAMP"]).to_trace(source.path)


READER = Reader("azure", "Azure 2023 and 2024: TIMESTAMP,ContextTokens,GeneratedTokens", score, read)
