"""What the simulator is asked to serve: the trace's lengths after the server's own limits.

A prompt of ``max_model_len`` tokens or more is refused; an output stops when prompt + output reaches
``max_model_len`` (rules 28 and 34 of docs/rules.md). The last sampled token of a request is never computed,
so a request ends with ``prompt + output - 1`` token states.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.request import ContentIds, IntArray, Trace


class Demand:
    """Lengths of all requests as columns, output already cut.

    Parameters
    ----------
    trace : Trace
    max_model_len : int
        Longest prompt + output a sequence may reach, in tokens.
    recorded : bool
        As cases are recorded, from the scheduler alone: a prompt without room for an output token is served all the same, and
        requests of one priority and instant are equally urgent (a server gives each an arrival time of its own).

    Attributes
    ----------
    prompt, asked, output, end : int64, shape (requests,)
        Prompt tokens, output tokens of the trace and after truncation, token states at the end (``prompt + output - 1``).
    most : int64, shape (requests,)
        Token states at the end for all a server knows at admission: ``prompt + max_tokens - 1``, or what ``max_model_len``
        allows where that is less or ``max_tokens`` is not known.
    too_long : bool, shape (requests,)
        Requests refused at arrival because the prompt leaves no room for an output token.
    truncated : bool, shape (requests,)
        Requests served whose output is cut.
    session : int64, shape (requests,)
        Conversation numbers, -1 for none.
    urgency : int64, shape (requests,)
        Place by (priority, arrival, row); equal places are equally urgent.
    sequences : int64, shape (requests,), or None
        Sequences a request: samples or beams; None where every request has one.
    beams : bool, shape (requests,), or None
        Which requests are beam searches.
    content : ContentIds or None

    Examples
    --------
    >>> trace = Trace("two", np.array([5, 9]), np.array([9, 1]))
    >>> d = Demand(trace, max_model_len=8)
    >>> d.end.tolist(), d.too_long.tolist(), d.truncated.tolist()
    ([7, 9], [False, True], [True, False])
    """

    def __init__(self, trace: Trace, max_model_len: int, recorded: bool = False) -> None:
        if max_model_len < 2:
            raise ValueError(f"max_model_len must be at least 2 tokens, not {max_model_len}")
        self.max_model_len = max_model_len
        self.prompt: IntArray = np.ascontiguousarray(trace.prompt_tokens, np.int64)
        self.too_long = (self.prompt >= max_model_len) & (not recorded)
        room = np.maximum(max_model_len - self.prompt, 1)
        self.asked: IntArray = np.asarray(trace.output_tokens, np.int64)
        self.output: IntArray = np.minimum(self.asked, room)
        self.truncated = ~self.too_long & (self.output < self.asked)
        self.end: IntArray = self.prompt + self.output - 1
        self.most: IntArray = self.prompt + (room if trace.max_tokens is None else np.minimum(trace.max_tokens, room)) - 1
        self.session: IntArray = np.full(len(trace), -1, np.int64) if trace.session is None else trace.session
        self.content: ContentIds | None = trace.content
        self.urgency: IntArray = _urgency(trace, distinct=not recorded)
        self.sequences: IntArray | None = trace.sequences
        self.beams: NDArray[np.bool_] | None = None if trace.beam_width is None else trace.beam_width > 1

    def __len__(self) -> int:
        return len(self.prompt)


def _urgency(trace: Trace, distinct: bool) -> IntArray:
    """Dense places by (priority, arrival), of equal ones by row where ``distinct``: 0 is looked at first.

    >>> three = Trace("three", np.ones(3, int), np.ones(3, int), arrival_us=np.array([0, 0, 5]), priority=np.array([1, 1, 0]))
    >>> _urgency(three, distinct=True), _urgency(three, distinct=False)
    (array([1, 2, 0]), array([1, 1, 0]))
    """
    n = len(trace)
    columns = [np.zeros(n, np.int64) if column is None else column for column in (trace.priority, trace.arrival_us)]
    columns += [np.arange(n)] if distinct else []
    places: IntArray = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(n).astype(np.int64)
    return places
