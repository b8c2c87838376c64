"""Qwen-Bailian's JSON lines: seconds, 16 tokens an id, and turns that name the one before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from workloads.request import IntArray, Trace
from workloads.writers.common import Change, Writer, from_the_first, left_out, one_line
from workloads.writers.prompt_ids import Row, ceil_ids, lists

SPAN_TOKENS = 16
LOST = ("max_tokens", "think_us", "priority", "samples", "beam_width")


def changes(trace: Trace) -> tuple[Change, ...]:
    """Columns left out, requests that become conversations, and what becomes of ids."""
    return (*from_the_first(trace), *left_out(trace, "qwen", LOST), *_sessions(trace), *ceil_ids(trace, SPAN_TOKENS)[1])


def _sessions(trace: Trace) -> Iterator[Change]:
    alone = len(trace) if trace.session is None else int((trace.session < 0).sum())
    if alone:
        text = f"qwen has only conversations: {alone:,} requests without a session become one each"
        yield Change("session", text, alone < len(trace))


def turns(session: IntArray) -> tuple[IntArray, IntArray]:
    """Of each row the row before it in its session (-1: none), and which turn it is, from 1 on.

    >>> [column.tolist() for column in turns(np.array([7, -1, 7, 3, 7, -1]))]
    [[-1, -1, 0, -1, 2, -1], [1, 1, 2, 1, 3, 1]]
    """
    before, turn = np.full(len(session), -1, np.int64), np.ones(len(session), np.int64)
    last: dict[int, int] = {}
    for row, number in enumerate(session.tolist()):
        if number >= 0 and number in last:
            before[row], turn[row] = last[number], turn[last[number]] + 1
        last[number] = row
    return before, turn


def write(trace: Trace, file: IO[str], comments: Sequence[str] = ()) -> None:
    """One object a request; the first says what made it."""
    for number, row in enumerate(_rows(trace)):
        made_by = f', "made_by": {json.dumps(one_line(trace.made_by))}' if number == 0 and trace.made_by is not None else ""
        us = row.pop("us")
        stamp = f"{us // 10**6}.{us % 10**6:06d}"      # a float would not hold every microsecond
        file.write(f'{{"timestamp": {stamp}, {json.dumps(row)[1:-1]}{made_by}}}\n')


def _rows(trace: Trace) -> Iterator[Row]:
    assert trace.arrival_us is not None
    before, turn = turns(np.full(len(trace), -1, np.int64) if trace.session is None else trace.session)
    columns = (trace.arrival_us.tolist(), before.tolist(), turn.tolist(), trace.prompt_tokens.tolist(),
               trace.output_tokens.tolist(), lists(ceil_ids(trace, SPAN_TOKENS)[0]))
    for number, (us, parent, place, prompt, output, ids) in enumerate(zip(*columns, strict=True)):
        yield {"us": us, "chat_id": number, "parent_chat_id": parent, "turn": place, "type": "text", "input_length": prompt,
               "output_length": output, "hash_ids": ids}


WRITER = Writer("qwen", None, "times to the microsecond, sessions, prefix identity of prompts in spans of 16 tokens", changes,
                write, ("arrival_us", "content"))
