"""Mooncake: JSON lines with milliseconds and the prompt's prefix identity in spans of 512 tokens.

    {"timestamp": 27482, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 2353]}
                                                                     512 512 76 tokens: the last span may be partial

Ids cover the prompt only, one id a started span. Equal ids stand for equal tokens and, since they are chained, for an
equal prefix before them. Source: kvcache-ai/Mooncake (Apache-2.0), FAST'25.
"""

from __future__ import annotations

from array import array

import numpy as np

from workloads.readers.common import Head, Reader, Rows, score_columns
from workloads.readers.json_lines import json_rows
from workloads.readers.messages import Place, bad_value
from workloads.readers.source import Source
from workloads.readers.values import ids_of, length_of, stamp_of
from workloads.request import ContentIds, Trace

SPAN_TOKENS = 512
MILLISECONDS = -3
KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
FOREIGN = ("chat_id",)  # Qwen-Bailian: the same keys, but seconds and spans of 16


def score(head: Head) -> int:
    """How well a file fits."""
    return score_columns(head, KEYS, FOREIGN) if head.record is not None else 0


def read(source: Source) -> Trace:
    """Read a Mooncake trace; rows are sorted stably by time, rows of one stamp stay in file order.

    Raises
    ------
    InputError
        For the first bad row: a missing key, a wrong type, or ids that do not cover the prompt.
    """
    stamps: list[int] = []
    prompt, output, starts, flat = array("q"), array("q"), array("q", [0]), array("q")
    for place, row in json_rows(source):
        stamps.append(stamp_of(row, "timestamp", place, MILLISECONDS))
        prompt.append(length_of(row, "input_length", place))
        output.append(length_of(row, "output_length", place))
        ids = ids_of(row, "hash_ids", place)
        _check_cover(place, len(ids), prompt[-1])
        flat.extend(ids)
        starts.append(len(flat))
    columns = [np.array(column, dtype=np.int64) for column in (prompt, output, flat, starts)]
    content = ContentIds(columns[2], columns[3], SPAN_TOKENS)
    return Rows(columns[0], columns[1], [np.array(stamps, dtype=object)], content).to_trace(source.path)


def _check_cover(place: Place, ids: int, prompt_tokens: int) -> None:
    needed = -(-prompt_tokens // SPAN_TOKENS)
    if ids != needed:
        problem = f"{ids} ids, but input_length {prompt_tokens} takes {needed} of {SPAN_TOKENS} tokens each"
        raise bad_value(place, "hash_ids", problem)


READER = Reader("mooncake", "Mooncake: JSON lines, timestamp in ms, hash_ids of 512 tokens", score, read)
