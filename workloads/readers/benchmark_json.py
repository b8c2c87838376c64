"""Lengths out of benchmark files: what vLLM's ``bench serve`` saved, ShareGPT conversations, or objects with two lengths.

vLLM (``--save-result --save-detailed``): one object with ``input_lens``, ``output_lens`` and, from some version on,
``start_times`` in seconds. ShareGPT: an array of conversations; as vLLM's ``--dataset-name sharegpt`` does, the first turn is
the prompt and the second its answer. The file has texts, so tokens are estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from workloads.messages import Place, bad_value, missing_column, show, show_names
from workloads.readers.common import Head, Reader, score_columns
from workloads.readers.json_document import array_items, document
from workloads.readers.json_lines import json_rows
from workloads.readers.rows import NOT_READ, Rows
from workloads.readers.source import Source
from workloads.readers.texts import BYTES_A_TOKEN, ESTIMATE, SPAN_TOKENS, Chunks, tokens_of_text
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
        if column is None and name == "start_times":
            continue
        if name in found and not isinstance(column, list):
            raise bad_value(place, name, f"{show(column)} is not a list")
        if name not in found and name != "start_times":
            raise missing_column(place, name, list(found))
    prompts, outputs, starts = columns["input_lens"] or [], columns["output_lens"] or [], columns["start_times"]
    for name in ("output_lens", "start_times"):
        found_of = columns[name] or []
        if len(found_of) != len(prompts) and (found_of or name == "output_lens"):
            raise bad_value(place, name, f"{len(found_of)} entries, but {len(prompts)} of input_lens")
    strict = int(source.options.strict)

    def entries(name: str, column: Sequence[Any], read: Callable[..., int], more: int) -> list[int]:
        return [read({name: one}, name, place._replace(within=f"entry {i}"), more) for i, one in enumerate(column)]

    lengths = [np.array(entries(name, column, length_of, strict), np.int64)
               for name, column in (("input_lens", prompts), ("output_lens", outputs))]
    stamps = np.array(entries("start_times", starts or (), stamp_of, 0), object)
    if not prompts:
        raise bad_value(place, "input_lens", "no request in it")
    return Rows(source.path, lengths[0], lengths[1], [stamps] if starts else None)


def _read_sharegpt(source: Source) -> Rows:
    """Read ShareGPT conversations."""
    prompt, output, chunks, skipped = [], [], Chunks(BYTES_A_TOKEN * SPAN_TOKENS), 0
    for place, row in _objects(source):
        turns = row.get("conversations", row.get("conversation"))
        if not isinstance(turns, list):
            raise bad_value(place, "conversations", f"{show(turns)} is not a list of turns")
        if len(turns) < 2:
            if source.options.strict:
                raise bad_value(place, "conversations", f"{len(turns)} turns: a conversation of fewer than two is left out, "
                                "unless --strict is asked for as here")
            skipped += 1
            continue
        asked, answer = (_said(place, turn) for turn in turns[:2])
        prompt.append(tokens_of_text(asked, "conversations", place, source.options.strict))
        output.append(tokens_of_text(answer, "conversations", place, source.options.strict))
        chunks.add(asked.encode("utf-8", "replace"))
    if not prompt:
        raise bad_value(Place(source.path, source.first.line), "conversations", "no conversation of two turns")
    return Rows(source.path, np.array(prompt), np.array(output), None, chunks.content(cover_output=False),
                notes=(ESTIMATE, f"{FIRST_TURN}{skipped}"))


def _objects(source: Source) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Of an array, or one a line."""
    return array_items(source) if source.first.data.lstrip().startswith(b"[") else json_rows(source)


def _said(place: Place, turn: Any) -> str:
    if not isinstance(turn, dict):
        raise bad_value(place, "conversations", f"{show(turn)} is not a turn")
    return text_of(turn, "value" if "value" in turn else "content", place)


def _pair(keys: Iterable[str]) -> tuple[str, str] | None:
    there = set(keys)
    return next((pair for pair in PAIRS if there.issuperset(pair)), None)


def _read_lengths(source: Source) -> Rows:
    """Read objects with two lengths, in an array or one a line."""
    pair, columns, unread = None, ([], []), []  # type: tuple[str, str] | None, tuple[list[int], list[int]], list[str]
    for place, row in _objects(source):
        if pair is None:
            pair = _pair(row)
            if pair is None:
                raise missing_column(place, PAIRS[0][0], list(row))
            unread = [name for name in row if name not in pair]
        for name, column in zip(pair, columns, strict=True):
            column.append(length_of(row, name, place, int(source.options.strict)))
    if not columns[0]:
        raise bad_value(Place(source.path, source.first.line), PAIRS[0][0], "no request in it")
    return Rows(source.path, np.array(columns[0]), np.array(columns[1]),
                notes=(NOT_READ.format("keys", show_names(unread)),) if unread else ())


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
