"""LMCache agent traces: JSON lines of agents at work, as the project has them (texts) or with lengths and ids.

The project's: ``timestamp`` in microseconds since 1970, ``input`` and ``output`` as texts, ``session_id``. Without the texts:
``timestamp`` in ms, ``session``, lengths, ``hash_ids`` of 16 tokens. Source: LMCache/lmcache-agent-trace (Apache-2.0).
"""

from __future__ import annotations

import numpy as np

from workloads.readers.common import Head, Reader, first_keys, numbered, score_columns
from workloads.readers.json_format import JsonRoles, json_reader
from workloads.readers.json_lines import json_rows
from workloads.readers.rows import Rows
from workloads.readers.source import Source
from workloads.readers.texts import BYTES_A_TOKEN, ESTIMATE, SPAN_TOKENS, Chunks, tokens_of_text
from workloads.readers.values import name_of, stamp_of, text_of

MICROSECONDS = -6
TEXTS = ("timestamp", "input", "output", "session_id")
_LENGTHS = json_reader("lmcache-agent", "LMCache agents: timestamp, session, lengths and hash_ids of 16 tokens; or input "
                       "and output as texts",
                       JsonRoles(prompt=("input_length",), output=("output_length",), time=("timestamp",), ids=("hash_ids",),
                                 spans=(16,), session=("session",)))


def score(head: Head) -> int:
    """How well a file fits, of either kind."""
    return max(_LENGTHS.score(head), score_columns(head, TEXTS) if head.record is not None else 0)


def read(source: Source) -> Rows:
    """Read either kind; InputError for the first bad row."""
    keys = first_keys(source)
    return _texts(source) if "input" in keys and "input_length" not in keys else _LENGTHS.read(source)


def _texts(source: Source) -> Rows:
    stamps, prompt, output, sessions, chunks = [], [], [], [], Chunks(BYTES_A_TOKEN * SPAN_TOKENS)
    for place, row in json_rows(source):
        stamps.append(stamp_of(row, "timestamp", place, MICROSECONDS))
        asked, answer = text_of(row, "input", place), text_of(row, "output", place)
        prompt.append(tokens_of_text(asked, "input", place, source.options.strict))
        output.append(tokens_of_text(answer, "output", place, source.options.strict))
        sessions.append(name_of(row, "session_id", place))
        chunks.add(asked.encode("utf-8", "replace"))
    return Rows(source.path, np.array(prompt), np.array(output), [np.array(stamps, object)], chunks.content(cover_output=False),
                {"session": numbered(np.array(sessions, object))}, notes=(ESTIMATE,))


READER = Reader("lmcache-agent", _LENGTHS.about, score, read)
