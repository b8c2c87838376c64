"""Arrivals: who arrives when, as far as that is known.

Some requests arrive at their time in the trace. In a closed loop the others follow the request before them in their session:
its answer is read, and after the think time the next question arrives.

    r0   |=== answer ===|                                         arrives at its time
    r1                  '- think -|=== answer ===|                known when r0 has ended
    r2                                           '- think -x      rejected: the wait for r3 starts where r2 arrives
    r3                                                     '- think -|=== answer ===|

A client may also keep only so many requests in the server (`InFlight`): the next one in line goes when one has ended.

Everything is by instants: requests of one instant arrive in the order of their rows, wherever their times came from.
"""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np
from numpy.typing import NDArray

from sim.entries import entries
from sim.request_log import NEVER
from workloads.request import IntArray, Trace


class Arrivals:
    """The times of all arrivals; those of a closed loop become known one after the other.

    Parameters
    ----------
    trace : Trace
    served : bool, shape (requests,)
        Who is not rejected at arrival; only these are handed out by `due`.
    saturate : bool
        Everybody arrives at time 0; think times are not looked at.

    Attributes
    ----------
    arrival_us : int64, shape (requests,)
        When each request arrives, the rejected among them; ``NEVER`` (-1) where that is not known (yet).

    Examples
    --------
    >>> trace = Trace("loop", np.array([4, 9]), np.array([3, 1]), arrival_us=np.array([0, 0]), session=np.array([7, 7]),
    ...               think_us=np.array([-1, 20]))
    >>> arrivals = Arrivals(trace, np.array([True, True]))
    >>> arrivals.due(0), arrivals.next_us
    ([0], None)
    >>> arrivals.ended([0], 30)
    >>> arrivals.next_us, arrivals.due(50), arrivals.arrival_us.tolist()
    (50, [1], [0, 50])
    """

    def __init__(self, trace: Trace, served: NDArray[np.bool_], saturate: bool = False) -> None:
        n = len(trace)
        self.arrival_us: IntArray = np.zeros(n, np.int64) if saturate or trace.arrival_us is None else trace.arrival_us.copy()
        self._think_us: IntArray = np.full(n, -1, np.int64) if saturate or trace.think_us is None else trace.think_us
        follows = self._think_us >= 0
        self.arrival_us[follows] = NEVER
        self._served = served
        self._follower = _followers(trace, follows)
        first = np.flatnonzero(served & ~follows)
        order = first[self.arrival_us[first].argsort(kind="stable")]
        self._rows, self._times = entries(order), entries(self.arrival_us[order])
        self._at = 0                                   # of these so many are handed out
        self._later: list[tuple[int, int]] = []        # a heap of (time, row): those that follow others
        if self._follower:
            for request in np.flatnonzero(~served & ~follows).tolist():
                self._follow(request, int(self.arrival_us[request]))

    @property
    def next_us(self) -> int | None:
        """The earliest arrival known and not handed out; None: nobody comes unless somebody ends."""
        known = self._times[self._at] if self._at < len(self._times) else None
        if self._later and (known is None or self._later[0][0] < known):
            return self._later[0][0]
        return known

    @property
    def known(self) -> bool:
        """Whether all times are known from the start."""
        return not self._follower and not self._later

    def ahead(self, most: int) -> tuple[IntArray, IntArray]:
        """Rows and times of the next arrivals, ``most`` at most, which are not handed out; of times that are all known."""
        stop = self._at + most
        return np.asarray(self._rows[self._at:stop]), np.asarray(self._times[self._at:stop])

    def skip(self, requests: int) -> None:
        """So many of those `ahead` have been handed out."""
        self._at += requests

    def due(self, now_us: int) -> list[int]:
        """Hand out who has arrived up to now, by time and row."""
        rows = self._due_later(now_us) if self._later else []
        at, times = self._at, self._times
        while at < len(times) and times[at] <= now_us:
            rows.append(self._rows[at])
            at += 1
        if at > self._at:
            both = len(rows) > at - self._at
            self._at = at
            if both:
                rows.sort(key=lambda row: (self.arrival_us[row], row))
        return rows

    def _due_later(self, now_us: int) -> list[int]:
        rows = []
        while self._later and self._later[0][0] <= now_us:
            rows.append(heapq.heappop(self._later)[1])
        return rows

    def ended(self, requests: list[int], now_us: int) -> None:
        """These have their last token now: who follows them arrives after the think time."""
        if self._follower:
            for request in requests:
                self._follow(request, now_us)

    def _follow(self, request: int, since_us: int) -> None:
        """Whoever comes next is told its time; where it is rejected, the one after it waits from there."""
        while (follower := self._follower.get(request)) is not None:
            request, since_us = follower, since_us + int(self._think_us[follower])
            self.arrival_us[request] = since_us
            if self._served[request]:
                heapq.heappush(self._later, (since_us, request))
                return


class InFlight(Arrivals):
    """A client with at most ``most`` requests in the server, as ``vllm bench serve --max-concurrency``.

    Requests stand in line by their times in the trace and go when that time has come and one of the places is free; then they
    arrive, so a time to first token counts from there. Whoever is rejected takes no place.

    Parameters
    ----------
    trace : Trace
        No closed loop: ValueError.
    served : bool, shape (requests,)
    most : int
        Places, 1 or more.
    saturate : bool
        As of `Arrivals`.

    Examples
    --------
    >>> trace = Trace("three", np.array([4, 9, 2]), np.array([3, 1, 1]), arrival_us=np.array([0, 0, 70]))
    >>> client = InFlight(trace, np.ones(3, bool), most=1)
    >>> client.due(0), client.next_us
    ([0], None)
    >>> client.ended([0], 50)
    >>> client.due(50)
    [1]
    >>> client.ended([1], 60)
    >>> client.next_us, client.arrival_us.tolist()
    (70, [0, 50, 70])
    """

    def __init__(self, trace: Trace, served: NDArray[np.bool_], most: int, saturate: bool = False) -> None:
        super().__init__(trace, served, saturate)
        if self._follower:
            raise ValueError("requests that follow each other, and a limit on those in flight: one of them")
        self._line = deque(zip(self._times, self._rows, strict=True))
        self._at = len(self._times)
        self.arrival_us[served] = NEVER
        for _ in range(most):
            self._go(0)

    def ended(self, requests: list[int], now_us: int) -> None:
        """As many places are free now as requests ended."""
        for _ in requests:
            self._go(now_us)

    def _go(self, now_us: int) -> None:
        """A place is free: it is for the next in line."""
        if self._line:
            time, row = self._line.popleft()
            self.arrival_us[row] = max(time, now_us)
            heapq.heappush(self._later, (max(time, now_us), row))


def arrivals_of(trace: Trace, served: NDArray[np.bool_], saturate: bool = False, most_in_flight: int | None = None) -> Arrivals:
    """The arrivals of a trace, by a client that keeps at most so many requests in the server where there is a limit."""
    return Arrivals(trace, served, saturate) if most_in_flight is None else InFlight(trace, served, most_in_flight, saturate)


def _followers(trace: Trace, follows: NDArray[np.bool_]) -> dict[int, int]:
    """For each request that another one waits for, that other: the next row of its session.

    >>> trace = Trace("three", np.ones(4, int), np.ones(4, int), session=np.array([2, 5, 2, 2]))
    >>> _followers(trace, np.array([False, False, True, True]))
    {0: 2, 2: 3}
    """
    if not follows.any():
        return {}
    assert trace.session is not None
    rows = np.argsort(trace.session, kind="stable")
    after = rows[1:]
    waits = follows[after]                             # then the row before is of the same session: `Trace` checks that
    return dict(zip(rows[:-1][waits].tolist(), after[waits].tolist(), strict=True))
