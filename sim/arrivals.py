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
        times, starts = np.unique(self.arrival_us[first], return_index=True)
        self._instants: list[int] = times.tolist()     # a heap of the keys of `_rows`
        rows, ends = first.tolist(), [*starts[1:].tolist(), len(first)]
        self._rows = {time: rows[start:end] for time, start, end in zip(self._instants, starts.tolist(), ends[:len(starts)],
                                                                        strict=True)}
        if self._follower:
            for request in np.flatnonzero(~served & ~follows).tolist():
                self._follow(request, int(self.arrival_us[request]))

    @property
    def next_us(self) -> int | None:
        """The earliest arrival known and not handed out; None: nobody comes unless somebody ends."""
        return self._instants[0] if self._instants else None

    def due(self, now_us: int) -> list[int]:
        """Hand out who has arrived up to now, by time and row."""
        rows: list[int] = []
        while self._instants and self._instants[0] <= now_us:
            rows += sorted(self._rows.pop(heapq.heappop(self._instants)))
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
                self._expect(request, since_us)
                return

    def _expect(self, request: int, time_us: int) -> None:
        rows = self._rows.get(time_us)
        if rows is None:
            heapq.heappush(self._instants, time_us)
            rows = self._rows[time_us] = []
        rows.append(request)


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
        self._line = deque((time, row) for time in sorted(self._instants) for row in self._rows[time])
        self._instants.clear()
        self._rows.clear()
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
            self._expect(row, max(time, now_us))


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
