"""The request log: what happened to each request, kept apart from the ledger so that each can check the other.

The ledger integrates the pool; this log integrates requests. A token computed in a step that starts at ``s`` is held
until its sequence leaves at ``t``, so a stay contributes ``t x tokens - (sum of the starts)`` token-microseconds. With
``starts_us`` the running sum of all step starts, a stay of one token a step needs two look-ups; prefill chunks are
corrected one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from sim.entries import entries
from sim.flow import Flow
from workloads.request import IntArray

NEVER = -1
TIMES = ("admitted_us", "first_token_us", "finished_us")
COUNTS = ("hit_tokens", "preemptions", "residence_us")


class RequestLog:
    """Times in microseconds and counts, one entry a request; ``NEVER`` (-1) where it has not happened.

    Attributes
    ----------
    admitted_us, first_token_us, finished_us : int64, shape (requests,)
        First admission, end of the step that sampled the first token, end of the last step.
    hit_tokens : int64
        Tokens found cached at the first admission.
    preemptions : int64
    residence_us : int64
        Time as a running sequence, all stays together.
    token_us : list of int
        Integral of the request's computed tokens over its stays.
    """

    def __init__(self, n: int) -> None:
        self.admitted_us, self.first_token_us, self.finished_us = (np.full(n, NEVER, np.int64) for _ in range(3))
        self.hit_tokens, self.preemptions, self.residence_us = (np.zeros(n, np.int64) for _ in range(3))
        self.token_us = [0] * n
        self.starts_us = 0
        self._admitted, self._first_token, self._finished, self._hit, self._preempted, self._residence = (
            entries(getattr(self, name)) for name in (*TIMES, *COUNTS))
        self._since: dict[int, tuple[int, int]] = {}

    def step_started(self, now: int) -> None:
        """A step starts; for several at once, ``now`` is the sum of their starts."""
        self.starts_us += now

    def admit(self, request: int, now: int, hit: int, new: int) -> None:
        """Called before `step_started` of the step that admits."""
        if self._admitted[request] == NEVER:
            self._admitted[request] = now
            self._hit[request] = hit
        self._since[request] = (now, self.starts_us + now - (hit + new) * now)

    def uneven(self, request: int, now: int, new: int) -> None:
        """``new`` tokens, not one, were computed in the step starting ``now``."""
        since, base = self._since[request]
        self._since[request] = (since, base - (new - 1) * now)

    def sampled(self, request: int, now: int) -> None:
        """A token was sampled at the end of a prefill or recompute."""
        if self._first_token[request] == NEVER:
            self._first_token[request] = now

    def preempt(self, request: int, now: int, computed: int) -> None:
        self._preempted[request] += 1
        self._leave(request, now, computed)

    def finish(self, request: int, now: int, computed: int) -> bool:
        """Returns whether it was running; not so where it was preempted with its last token on the way (rule 37)."""
        self._finished[request] = now
        ran = request in self._since
        if ran:
            self._leave(request, now, computed)
        return ran

    def _leave(self, request: int, now: int, computed: int) -> None:
        since, base = self._since.pop(request)
        self._residence[request] += now - since
        self.token_us[request] += computed * now - (self.starts_us - base)

    def flow(self, flow: Flow) -> None:
        """A stretch of free flow: who is admitted in it, and who has its last token."""
        starts: list[int] = flow.starts_us.tolist()
        until = list(accumulate(starts, initial=self.starts_us))       # what `starts_us` is before each step
        come, gone = slice(flow.running, None), flow.last < flow.steps
        admitted = (column[come].tolist() for column in (flow.request, flow.begin, flow.chunk))
        ended = (column[gone].tolist() for column in (flow.request, flow.last, flow.end))
        for request, step, prompt in zip(*admitted, strict=True):
            self.starts_us = until[step]
            self.admit(request, starts[step], 0, prompt)
            self.sampled(request, starts[step + 1])
        for request, step, end in zip(*ended, strict=True):
            self.starts_us = until[step + 1]
            self.finish(request, starts[step + 1], end)
        self.starts_us = until[flow.steps]

    def close(self, now: int, running: list[tuple[int, int]]) -> None:
        """The run ends with these (request, computed tokens) still running: their stays count up to now."""
        for request, computed in running:
            self._leave(request, now, computed)

    # ------------------------------------------------------------------ several servers
    def part(self, rows: IntArray) -> RequestLog:
        """The entries of these requests."""
        made = RequestLog(0)
        for name in (*TIMES, *COUNTS):
            setattr(made, name, getattr(self, name)[rows])
        made.token_us = [self.token_us[row] for row in rows.tolist()]
        return made


def merged(logs: Sequence[RequestLog]) -> RequestLog:
    """One log of all requests, each of which is in one of ``logs`` at most."""
    made = RequestLog(0)
    for name in TIMES:
        setattr(made, name, np.maximum.reduce([getattr(log, name) for log in logs]))
    for name in COUNTS:
        setattr(made, name, np.add.reduce([getattr(log, name) for log in logs]))
    made.token_us = [sum(each) for each in zip(*(log.token_us for log in logs), strict=True)]
    return made
