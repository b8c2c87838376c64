"""Lengths out of benchmark files: what vLLM's ``bench serve`` saved, ShareGPT conversations, or objects with two lengths.

vLLM (``--save-result --save-detailed``): one object with ``input_lens``, ``output_lens`` and, from some version on,
``start_times`` in seconds. ShareGPT: an array of conversations; as vLLM's ``--dataset-name sharegpt`` does, the first turn is
the prompt and the second its answer. The file has texts, so tokens are estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from workloads.messages import Place, bad_value, missing_column, show
from workloads.readers.common import Head, Reader, score_columns
from workloads.readers.json_document import array_items, document
from workloads.readers.json_lines import json_rows
from workloads.readers.rows import Rows
from workloads.readers.source import Source
from workloads.readers.texts import BYTES_A_TOKEN, ESTIMATE, SPAN_TOKENS, Chunks, estimated_tokens
from workloads.readers.values import length_of, stamp_of, text_of

PAIRS = (("prompt_len", "output_len"), ("prompt_tokens", "output_tokens"), ("input_len", "output_len"),
         ("input_tokens", "output_tokens"), ("input_length", "output_length"), ("num_prefill_tokens", "num_decode_tokens"),
         ("prompt_tokens", "completion_tokens"))
FIRST_TURN = "of each conversation the first turn and its answer are taken; those with fewer than two turns are skipped: "


def _read_result(source: Source) -> Rows:
    """Read a saved result of vLLM's benchmark."""
    found, place = document(source), Place(source.path, source.first.line)
    columns = {name: found.get(name) for name in ("input_lens", "output_lens", "start_times")}
    for name, column in columns.items():
        if name in found and not isinstance(column, list):
            raise bad_value(place, name, f"{show(column)} is not a list")
        if name not in found and name != "start_times":
            raise missing_column(place, name, list(found))
    prompts, outputs, starts = columns["input_lens"] or [], columns["output_lens"] or [], columns["start_times"]
    if len(prompts) != len(outputs) or (starts and len(starts) != len(prompts)):
        raise bad_value(place, "input_lens", f"{len(prompts)} entries, but {len(outputs)} output_lens")
    strict = int(source.options.strict)
    lengths = [np.array([length_of({name: one}, name, place, strict) for one in column], np.int64)
               for name, column in (("input_lens", prompts), ("output_lens", outputs))]
    stamps = np.array([stamp_of({"start_times": one}, "start_times", place, 0) for one in starts or ()], object)
    if not prompts:
        raise bad_value(place, "input_lens", "no request in it")
    return Rows(source.path, lengths[0], lengths[1], [stamps] if starts else None)


def _read_sharegpt(source: Source) -> Rows:
    """Read ShareGPT conversations."""
    prompt, output, chunks, skipped = [], [], Chunks(BYTES_A_TOKEN * SPAN_TOKENS), 0
    for place, row in array_items(source):
        turns = row.get("conversations", row.get("conversation"))
        if not isinstance(turns, list):
            raise bad_value(place, "conversations", f"{show(turns)} is not a list of turns")
        if len(turns) < 2:
            skipped += 1
            continue
        asked, answer = (_said(place, turn) for turn in turns[:2])
        prompt.append(estimated_tokens(asked))
        output.append(estimated_tokens(answer))
        chunks.add(asked.encode("utf-8", "replace"))
    if not prompt:
        raise bad_value(Place(source.path, source.first.line), "conversations", "no conversation of two turns")
    return Rows(source.path, np.array(prompt), np.array(output), None, chunks.content(cover_output=False),
                notes=(ESTIMATE, f"{FIRST_TURN}{skipped}"))


def _said(place: Place, turn: Any) -> str:
    if not isinstance(turn, dict):
        raise bad_value(place, "conversations", f"{show(turn)} is not a turn")
    return text_of(turn, "value" if "value" in turn else "content", place)


def _pair(keys: Iterable[str]) -> tuple[str, str] | None:
    there = set(keys)
    return next((pair for pair in PAIRS if there.issuperset(pair)), None)


def _read_lengths(source: Source) -> Rows:
    """Read objects with two lengths, in an array or one a line."""
    is_array = source.first.data.lstrip().startswith(b"[")
    pair, columns = None, ([], [])  # type: tuple[str, str] | None, tuple[list[int], list[int]]
    for place, row in array_items(source) if is_array else json_rows(source):
        pair = pair or _pair(row)
        if pair is None:
            raise missing_column(place, PAIRS[0][0], list(row))
        for name, column in zip(pair, columns, strict=True):
            column.append(length_of(row, name, place, int(source.options.strict)))
    if not columns[0]:
        raise bad_value(Place(source.path, source.first.line), PAIRS[0][0], "no request in it")
    return Rows(source.path, np.array(columns[0]), np.array(columns[1]))


def _by_keys(*needed: str) -> Any:
    return lambda head: score_columns(Head(tuple(head.keys)), needed) if head.keys else 0


def _score_lengths(head: Head) -> int:
    record: Mapping[str, Any] | None = head.record
    return 0 if _pair(head.keys if record is None else record) is None else LEAST


LEAST = 101  # any format that knows more of the keys is meant instead
VLLM_RESULT = Reader("vllm-bench", "vLLM bench serve --save-detailed: input_lens, output_lens, start_times",
                     _by_keys("input_lens", "output_lens"), _read_result)
SHAREGPT = Reader("sharegpt", "ShareGPT conversations: an array; first turns, tokens by the length of the text",
                  _by_keys("conversations"), _read_sharegpt)
JSON_LENGTHS = Reader("json-lengths", "JSON objects with two lengths, as prompt_len and output_len, in an array or one a line",
                      _score_lengths, _read_lengths)
