"""Mooncake's JSON lines: times in whole milliseconds, hash_ids of prompts, session_id, and delay for think times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

from workloads.readers.mooncake import SPANS
from workloads.request import ContentIds, Trace, in_order_of_appearance
from workloads.writers.common import Change, Writer, from_the_first, left_out, milliseconds, moved, one_line
from workloads.writers.prompt_ids import Row, ceil_ids, lists

LOST = ("max_tokens", "priority", "samples", "beam_width")
TOLD = 512                                             # what other readers take for granted


def changes(trace: Trace) -> tuple[Change, ...]:
    """Columns left out, what milliseconds move, and what becomes of ids."""
    made = [*from_the_first(trace), *left_out(trace, "mooncake", LOST)]
    if trace.arrival_us is not None:
        made += moved(trace.arrival_us, "arrival_us", "times")
    made += _thinking(trace)
    if trace.content is not None:
        content, more = ceil_ids(trace, trace.content.span_tokens)
        made += [*more, *_span(trace, content)]
    return tuple(made)


def _thinking(trace: Trace) -> Iterator[Change]:
    if trace.think_us is None:
        return
    if trace.closed_loop:
        yield from moved(trace.think_us, "think_us", "think times")
    else:
        yield Change("think_us", "nobody waits for an answer: no think times are written", False)


def _span(trace: Trace, content: ContentIds) -> Iterator[Change]:
    """The format carries no block size: what will be taken for it."""
    span, counts = content.span_tokens, content.starts[1:] - content.starts[:-1]
    found = next((one for one in SPANS if bool((-(-trace.prompt_tokens // one) == counts).all())), None)
    if found != span:
        taken = "none is found in it" if found is None else f"{found} would be found in it"
        yield Change("content", f"mooncake carries no block size, and {taken}: read it with --hash-block-size {span}", True)
    elif span != TOLD:
        yield Change(None, f"mooncake carries no block size: readers that take {TOLD} have to be told {span}", False)


def write(trace: Trace, file: IO[str], comments: Sequence[str] = ()) -> None:
    """One object a request; the first says what made it."""
    rows = _rows(trace)
    for number, row in enumerate(rows):
        if number == 0 and trace.made_by is not None:
            row["made_by"] = one_line(trace.made_by)
        file.write(json.dumps(row) + "\n")


def _rows(trace: Trace) -> Iterator[Row]:
    columns: dict[str, Any] = {}
    if trace.arrival_us is not None:
        columns["timestamp"] = milliseconds(trace.arrival_us).tolist()
    columns |= {"input_length": trace.prompt_tokens.tolist(), "output_length": trace.output_tokens.tolist()}
    if trace.content is not None:
        columns["hash_ids"] = lists(ceil_ids(trace, trace.content.span_tokens)[0])
    if trace.session is not None:                      # null, not left out: the first row says which keys there are
        columns["session_id"] = (None if one < 0 else one for one in in_order_of_appearance(trace.session).tolist())
    waits = [-1] * len(trace) if trace.think_us is None else milliseconds(trace.think_us).tolist()
    for delay, values in zip(waits, zip(*columns.values(), strict=True), strict=True):
        yield dict(zip(columns, values, strict=True)) | ({"delay": delay} if delay >= 0 else {})


WRITER = Writer("mooncake", ".jsonl", "times and think times to the millisecond, sessions, prefix identity of prompts", changes,
                write)
