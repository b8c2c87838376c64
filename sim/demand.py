"""What the simulator is asked to serve: the trace's lengths after the server's own limits.

A prompt of ``max_model_len`` tokens or more is refused; an output stops when prompt + output reaches
``max_model_len`` (rules 28 and 34 of docs/rules.md). The last sampled token of a request is never computed,
so a request ends with ``prompt + output - 1`` token states.
"""

from __future__ import annotations

from copy import copy

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
        As cases are recorded, from the scheduler alone: a prompt without room for an output token is served all the same.

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
    priority : int64, shape (requests,)
        The trace's priorities numbered from 0, the most urgent; equal ones alike.
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
        self.priority: IntArray = _dense(np.zeros(len(trace), np.int64) if trace.priority is None else trace.priority)
        self.sequences: IntArray | None = trace.sequences
        self.beams: NDArray[np.bool_] | None = None if trace.beam_width is None else trace.beam_width > 1

    def __len__(self) -> int:
        return len(self.prompt)

    def part(self, rows: IntArray) -> Demand:
        """The lengths of some requests; who they share contents with is not known any more.

        >>> Demand(Trace("two", np.array([5, 9]), np.array([9, 1])), max_model_len=64).part(np.array([1])).end.tolist()
        [9]
        """
        made = copy(self)
        made.content = None
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                setattr(made, name, column[rows])
        return made


def _dense(values: IntArray) -> IntArray:
    """Places of the values by size, equal ones alike.

    >>> _dense(np.array([7, -2, 7])).tolist()
    [1, 0, 1]
    """
    return np.unique(values, return_inverse=True)[1].reshape(len(values)).astype(np.int64)
