"""The waiting queue: who is looked at next.

    fcfs       in order of arrival; whoever was preempted comes in front of all (rule 31 of docs/rules.md)
    priority   the smallest (priority, arrival) first; the preempted are queued like anybody (rule 29)
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from workloads.request import IntArray


class WaitingQueue(Protocol):
    """Requests that are not running, by row of the trace."""

    def add(self, request: int) -> None:
        """A request arrives."""
        ...

    def put_back(self, request: int) -> None:
        """A request was preempted."""
        ...

    def head(self) -> int:
        """The one to look at first."""
        ...

    def pop(self) -> int:
        """Take the head out."""
        ...

    def discard(self, request: int) -> None:
        """Take out a request that ended while it waited."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...


class ArrivalQueue:
    """First come, first served.

    >>> queue = ArrivalQueue()
    >>> queue.add(4); queue.add(5); queue.put_back(2); list(queue)
    [2, 4, 5]
    """

    def __init__(self) -> None:
        self._queue: deque[int] = deque()

    def add(self, request: int) -> None:
        self._queue.append(request)

    def put_back(self, request: int) -> None:
        self._queue.appendleft(request)

    def head(self) -> int:
        return self._queue[0]

    def pop(self) -> int:
        return self._queue.popleft()

    def discard(self, request: int) -> None:
        self._queue.remove(request)

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[int]:
        return iter(self._queue)


class PriorityQueue:
    """The most urgent first; of equals the one that arrived first, then the lower row of the trace.

    Parameters
    ----------
    urgency : int64, shape (requests,)
        Place of each request by (priority, arrival), there when it is added; equal places are equally urgent.

    >>> import numpy as np
    >>> queue = PriorityQueue(np.array([2, 0, 1]))
    >>> queue.add(0); queue.add(2); queue.add(1); queue.pop(), queue.head()
    (1, 2)
    """

    def __init__(self, urgency: IntArray) -> None:
        self._urgency = urgency
        self._heap: list[tuple[int, int]] = []

    def add(self, request: int) -> None:
        heapq.heappush(self._heap, (int(self._urgency[request]), request))

    def put_back(self, request: int) -> None:
        self.add(request)

    def head(self) -> int:
        return self._heap[0][1]

    def pop(self) -> int:
        return heapq.heappop(self._heap)[1]

    def discard(self, request: int) -> None:
        self._heap.remove((int(self._urgency[request]), request))
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[int]:
        return (request for _, request in sorted(self._heap))
