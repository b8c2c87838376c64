"""LLMServingSim: JSON lines with arrival times in nanoseconds and, as the project has them, the token ids themselves.

Prompt and output are known token by token, so what was generated can be found again. Without the token ids the lines are
Mooncake's with 16 tokens an id, and are read as such. Source: casys-kaist/LLMServingSim (MIT).
"""

from __future__ import annotations

import numpy as np

from workloads.messages import bad_value
from workloads.readers.common import Head, Reader, first_keys, score_columns
from workloads.readers.json_format import JsonRoles, json_reader
from workloads.readers.json_lines import json_rows
from workloads.readers.rows import Rows
from workloads.readers.source import Source
from workloads.readers.texts import SPAN_TOKENS, Chunks
from workloads.readers.values import ids_of, length_of, stamp_of

NANOSECONDS = -9
IDS = (("input_tok_ids", "input_toks"), ("output_tok_ids", "output_toks"))
TOKENS = ("input_toks", "output_toks", "arrival_time_ns")
_LENGTHS = json_reader("llmservingsim", "LLMServingSim: input_toks, output_toks, arrival_time_ns and token ids; or lengths and "
                       "hash_ids of 16 tokens",
                       JsonRoles(prompt=("input_length",), output=("output_length",), time=("timestamp",), ids=("hash_ids",),
                                 spans=(16,)), foreign=("chat_id", "session"))


def score(head: Head) -> int:
    """How well a file fits, of either kind."""
    return max(_LENGTHS.score(head), score_columns(head, TOKENS) if head.record is not None else 0)


def read(source: Source) -> Rows:
    """Read either kind; InputError for the first bad row."""
    return _tokens(source) if "input_toks" in first_keys(source) else _LENGTHS.read(source)


def _tokens(source: Source) -> Rows:
    stamps, prompt, output, chunks, known = [], [], [], Chunks(SPAN_TOKENS), None
    for place, row in json_rows(source):
        stamps.append(stamp_of(row, "arrival_time_ns", place, NANOSECONDS))
        prompt.append(length_of(row, "input_toks", place, int(source.options.strict)))
        output.append(length_of(row, "output_toks", place, int(source.options.strict)))
        known = tuple(pair for pair in IDS if pair[0] in row) if known is None else known
        tokens: list[int] = []
        for column, counted in known:
            ids = ids_of(row, column, place)
            if len(ids) != row[counted]:
                raise bad_value(place, column, f"{len(ids)} ids, but {counted} is {row[counted]}")
            tokens += ids
        chunks.add(tokens)
    content = chunks.content(cover_output=known == IDS) if known and known[0] == IDS[0] else None
    return Rows(source.path, np.array(prompt), np.array(output), [np.array(stamps, object)], content)


READER = Reader("llmservingsim", _LENGTHS.about, score, read)
