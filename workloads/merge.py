"""Several traces as one: all at once, each from its own beginning, sorted by time.

    a   0     10          25      sessions 0, 1      ids 0 .. 99
    b   0  5        20            sessions 0, 1      ids 0 .. 49
        0 0 5 10    20    25      sessions 0 .. 3    ids 0 .. 149: what b shares, it shares with itself
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np

from workloads.reblock import dense, reblock
from workloads.request import COLUMNS, ContentIds, IntArray, Trace, in_order_of_appearance
from workloads.transform import take

NEUTRAL = {"session": -1, "think_us": -1, "priority": 0, "samples": 1, "beam_width": 1}
"""What a request has where its trace has no such column and another one has."""
HIGHEST = 1 << 62


def merge(traces: Sequence[Trace], shared_ids: bool = False) -> Trace:
    """All requests of several traces in order of time, those of one time in the order of the traces.

    Sessions stay apart. So do content ids unless they are `shared_ids`; spans of different length are cut to the common one.

    Parameters
    ----------
    traces : sequence of Trace
        At least one, all with times.
    shared_ids : bool
        Whether an id stands for the same tokens in all traces.

    Raises
    ------
    ValueError
        If there is no trace, one has no times, or shared ids stand for spans of different length.

    >>> one = Trace("a", np.array([3, 5]), np.ones(2, int), arrival_us=np.array([0, 9]))
    >>> two = Trace("b", np.array([7]), np.ones(1, int), arrival_us=np.array([4]), session=np.array([0]))
    >>> both = merge([one, two])
    >>> both.prompt_tokens.tolist(), both.session.tolist(), both.source
    ([3, 7, 5], [-1, 0, -1], 'a + b')
    """
    if not traces:
        raise ValueError("no trace to merge")
    for trace in traces:
        if trace.arrival_us is None:
            raise ValueError(f"{trace.source} has no arrival times")
    columns = {name: _column(traces, name) for name in COLUMNS}
    dropped: dict[str, int] = {}
    for trace in traces:
        for reason, count in trace.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    prompt, times = (np.concatenate([getattr(trace, name) for trace in traces]) for name in ("prompt_tokens", "arrival_us"))
    notes = tuple(dict.fromkeys(note for trace in traces for note in trace.notes))
    columns.pop("arrival_us")                          # not yet in order
    together = Trace(" + ".join(trace.source for trace in traces), prompt, content=_content(traces, shared_ids), dropped=dropped,
                     notes=notes, **columns)
    return _at(together, times)


def _at(trace: Trace, times: IntArray) -> Trace:
    """The requests in order of time."""
    order = np.argsort(times, kind="stable")
    return replace(take(trace, order), arrival_us=times[order])


def not_merged(traces: Sequence[Trace]) -> list[str]:
    """What a merged trace does not tell as its parts do, for people.

    >>> one = Trace("a", np.array([3]), np.ones(1, int), max_tokens=np.array([4]))
    >>> not_merged([one, Trace("b", np.array([3]), np.ones(1, int))])
    ['limits on outputs are left out: not all traces have them']
    """
    told = []
    if len({trace.max_tokens is None for trace in traces}) > 1:
        told.append("limits on outputs are left out: not all traces have them")
    if len({trace.content.cover_output for trace in traces if trace.content is not None}) > 1:
        told.append("ids go on over outputs in some traces only: elsewhere the id of a part at the end of a prompt is left out")
    return told


def _column(traces: Sequence[Trace], name: str) -> Any:
    """One column of all traces; None where none has it."""
    found = [getattr(trace, name) for trace in traces]
    missing = [column is None for column in found]
    if all(missing) or (name == "max_tokens" and any(missing)):
        return None
    filled = [np.full(len(trace), NEUTRAL[name]) if lacks else column
              for trace, column, lacks in zip(traces, found, missing, strict=True)]
    return np.concatenate(filled if name != "session" else _apart(filled))


def _apart(sessions: list[IntArray]) -> list[IntArray]:
    """Numbers no two traces have in common."""
    first, made = 0, []
    for numbers in map(in_order_of_appearance, sessions):
        made.append(np.where(numbers < 0, -1, numbers + first))
        first += int(numbers.max(initial=-1)) + 1
    return made


def _content(traces: Sequence[Trace], shared: bool) -> ContentIds | None:
    """All ids in spans of one length."""
    there = [trace.content for trace in traces if trace.content is not None]
    if not there:
        return None
    span, cover = gcd(*(content.span_tokens for content in there)), any(content.cover_output for content in there)
    if shared and any(content.span_tokens != span for content in there):
        sizes = ", ".join(str(content.span_tokens) for content in there)
        raise ValueError(f"ids stand for {sizes} tokens: they cannot be shared")
    flat, counts, first = [], [], 0
    for trace in traces:
        ids, count = _ids(reblock(trace, span), cover)
        if not shared:
            ids = (ids if int(ids.max(initial=0)) < HIGHEST - first else dense(ids)) + first
            first = int(ids.max(initial=first - 1)) + 1
        flat.append(ids)
        counts.append(count)
    starts = np.concatenate(([0], np.cumsum(np.concatenate(counts)))).astype(np.int64)
    return ContentIds(np.concatenate(flat), starts, span, cover)


def _ids(trace: Trace, cover_output: bool) -> tuple[IntArray, IntArray]:
    """The ids of a trace, and how many each request has.

    Where ids are to go on over outputs and here do not, the part of a span at the end would stand for outputs it does not know.
    """
    content = trace.content
    if content is None:
        return np.zeros(0, np.int64), np.zeros(len(trace), np.int64)
    counts = np.diff(content.starts)
    if content.cover_output or not cover_output:
        return content.ids, counts
    kept = np.minimum(counts, trace.prompt_tokens // content.span_tokens)
    within = np.arange(len(content.ids)) - np.repeat(content.starts[:-1], counts)
    return content.ids[within < np.repeat(kept, counts)], kept
