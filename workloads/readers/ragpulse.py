"""RAGPulse: JSON lines of retrieval requests, whose prompts are put together of components with ids of their own.

The sizes of the components lie in side files beside the trace (``1_sys_prompt.jsonl`` to ``5_web_search.jsonl``); without them,
or from a pipe, there is no prefix identity. The order in the prompt is taken to be that of the file: system prompt, passages,
history, web search, user input; 6 to 12 tokens of template that no component covers come last. Two weeks follow each other
in the file, both from time 0. Source: flashserve/RAGPulse (MIT).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from workloads.messages import Place, bad_value, complaint, show, show_path
from workloads.pieces import PrefixTree
from workloads.readers.common import Head, Reader, numbered, score_columns
from workloads.readers.json_lines import json_rows
from workloads.readers.rows import Rows
from workloads.readers.source import Source, beside, first_line, open_source
from workloads.readers.times import fine_stamp
from workloads.readers.values import ids_of, length_of, name_of

SPAN_TOKENS = 16
MOST_TOKENS = 1 << 29
SIDES = {"sys_prompt": ("1_sys_prompt.jsonl", "sys_prompt_id"), "passages_ids": ("2_passages.jsonl", "passage_id"),
         "history": ("3_history.jsonl", "history_id"), "web_search": ("5_web_search.jsonl", "web_search_id"),
         "user_input": ("4_user_input.jsonl", "user_input_id")}
TRACE = "0_trace.jsonl"
NEEDED = ("timestamp", "input_length", "output_length", "hash_ids", "session_id")
NO_SIDES = "the files with the sizes of components are not beside the trace: no prefix identity"
Sizes = Mapping[str, Mapping[int, int]]


def score(head: Head) -> int:
    """How well a file fits: ``hash_ids`` is an object; a side file is told by its two keys."""
    if head.record is None:
        return 0
    if any(name in head.columns for _, name in SIDES.values()) and "token_length" in head.columns:
        return score_columns(head, ("token_length",))
    return score_columns(head, NEEDED) + 1 if isinstance(head.record.get("hash_ids"), dict) else 0


def read(source: Source) -> Rows:
    """Read a RAGPulse trace and the side files beside it, also when one of these is named; InputError for the first bad row."""
    first = first_line(source)[1]
    if '"token_length"' in first and '"hash_ids"' not in first:
        path = beside(os.path.join(os.path.dirname(source.path), TRACE))
        if path is None:
            raise complaint(source.path, source.first.line, f"sizes of components of a RAGPulse trace, and no {TRACE} beside it")
        rows = read(open_source(path, source.options))
        note = f"{show_path(source.path)} has sizes of components: the trace beside it is read"
        return replace(rows, notes=(note, *rows.notes))
    sizes, total = _sizes(source), 0
    tree = PrefixTree(SPAN_TOKENS)
    stamps, prompt, output, sessions = [], [], [], []
    for place, row in json_rows(source):
        stamps.append(_seconds(place, row))
        prompt.append(length_of(row, "input_length", place, int(source.options.strict)))
        output.append(length_of(row, "output_length", place, int(source.options.strict)))
        sessions.append(name_of(row, "session_id", place))
        if sizes is not None:
            total += prompt[-1]
            if total > MOST_TOKENS:                    # memory goes by tokens here, not by bytes of the file
                raise bad_value(place, "input_length", f"{prompt[-1]}: over {MOST_TOKENS} tokens so far, too many to know all")
            tree.add(_pieces(place, row, sizes, prompt[-1], len(prompt)))
    return Rows(source.path, np.array(prompt), np.array(output), [np.array(stamps, object)],
                None if sizes is None else tree.content(), {"session": numbered(np.array(sessions, object))},
                notes=(NO_SIDES,) if sizes is None else ())


def _seconds(place: Place, row: Mapping[str, Any]) -> int:
    stamp = name_of(row, "timestamp", place)           # a text of whole seconds
    try:
        return fine_stamp(str(stamp))
    except ValueError as error:
        raise bad_value(place, "timestamp", f"{show(stamp)} {error}") from None


def _pieces(place: Place, row: Mapping[str, Any], sizes: Sizes, prompt_tokens: int, number: int) -> list[tuple[Any, int]]:
    """The components of a prompt in order, cut where it ends, and what no component covers."""
    parts = row.get("hash_ids")
    if not isinstance(parts, dict):
        raise bad_value(place, "hash_ids", f"{show(parts)} is not an object of lists of ids")
    pieces: list[tuple[Any, int]] = []
    left = prompt_tokens
    for part, lengths in sizes.items():
        for one in ids_of(parts, part, place) if part in parts else ():
            if one not in lengths:
                raise bad_value(place, "hash_ids", f"{part} {one} is not in {SIDES[part][0]}")
            tokens = min(lengths[one], left)
            left -= tokens
            if tokens:
                pieces.append(((part, one), tokens))
    return [*pieces, (("rest", number), left)] if left else pieces


def _sizes(source: Source) -> Sizes | None:
    """Tokens by component id, from the side files; None if one is not there."""
    folder = os.path.dirname(source.path)
    if not os.path.isfile(source.path):
        return None
    found: dict[str, dict[int, int]] = {}
    for part, (file, key) in SIDES.items():
        path = beside(os.path.join(folder, file))
        if path is None:
            return None
        found[part] = {}
        for place, row in json_rows(open_source(path)):
            one = ids_of({key: [row.get(key)]}, key, place)[0]
            if one in found[part]:
                raise bad_value(place, key, f"{one} stands there twice")
            found[part][one] = length_of(row, "token_length", place)
    return found


READER = Reader("ragpulse", "RAGPulse: JSON lines with hash_ids by component; sizes from the files beside it", score, read)
