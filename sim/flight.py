"""Asynchronous scheduling: steps that are scheduled before the output of the one before is known (rules 35-37 of docs/rules.md).

    schedule 0, schedule 1 | output 0, schedule 2 | output 1, schedule 3 | ...

A sequence is scheduled for its next token unseen. `Flight` remembers, by request, what is on its way: tokens computed in
steps whose output has not come back, and what of it belongs to a stay that was preempted meanwhile. A token on its way is
delivered all the same; it may even be the last, and then the request ends in the waiting queue.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from workloads.request import IntArray


class Sent(NamedTuple):
    """One step on its way, in scheduling order: requests, tokens of each, and whether it samples a token."""

    requests: IntArray
    new: IntArray
    samples: IntArray


class Flight:
    """What is on its way, for ``requests`` requests.

    Attributes
    ----------
    tokens : int64, shape (requests,)
        Tokens in steps whose output has not come back.
    stale : int64, shape (requests,)
        How many of them were scheduled before a preemption.
    """

    DEPTH = 2

    def __init__(self, requests: int) -> None:
        self.tokens: IntArray = np.zeros(requests, np.int64)
        self.stale: IntArray = np.zeros(requests, np.int64)
        self.findable: IntArray = np.zeros(requests, np.int64)
        self._sent: deque[Sent] = deque()

    def send(self, requests: IntArray, new: IntArray, samples: IntArray) -> None:
        """A step was scheduled; an empty one takes a place too."""
        self.tokens[requests] += new
        self._sent.append(Sent(requests, new, samples))

    @property
    def full(self) -> bool:
        """Whether the oldest output must come back before another step is scheduled."""
        return len(self._sent) >= self.DEPTH or not len(self._sent[-1].requests)

    def __len__(self) -> int:
        return len(self._sent)

    def land(self) -> list[tuple[int, bool, bool]]:
        """The oldest output comes back: (request, whether it brings a token, whether the stay was preempted since)."""
        sent = self._sent.popleft()
        self.tokens[sent.requests] -= sent.new
        was_stale = self.stale[sent.requests] > 0
        self.stale[sent.requests[was_stale]] -= sent.new[was_stale]
        return list(zip(sent.requests.tolist(), (sent.samples > 0).tolist(), was_stale.tolist(), strict=True))

    def preempted(self, request: int) -> bool:
        """What is on its way for this request belongs to an old stay; returns whether something is."""
        self.stale[request] = self.tokens[request]
        return bool(self.tokens[request])
