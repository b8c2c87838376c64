"""Spans of time in as few lanes as can hold them side by side."""

from __future__ import annotations

import heapq

import numpy as np

from workloads.request import IntArray

NO_LANE = -1


def lanes(start_us: IntArray, end_us: IntArray, most: int | None = None) -> IntArray:
    """The lane of each span: the lowest that is free when it starts. As many are used as spans overlap at most.

    Parameters
    ----------
    start_us, end_us : int64, shape (spans,)
        In order of their starts; a lane is free again at the end of its span.
    most : int, optional
        Lanes there are; a span that finds none is left out.

    Returns
    -------
    int64, shape (spans,)
        From 0 on; ``NO_LANE`` (-1) for a span left out.

    >>> lanes(np.array([0, 1, 5, 6]), np.array([5, 9, 7, 8])).tolist()
    [0, 1, 0, 2]
    >>> lanes(np.array([0, 1, 5, 6]), np.array([5, 9, 7, 8]), most=1).tolist()
    [0, -1, 0, -1]
    """
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    made, found = 0, []
    for start, end in zip(start_us.tolist(), end_us.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        elif most is None or made < most:
            lane, made = made, made + 1
        else:
            found.append(NO_LANE)
            continue
        heapq.heappush(busy, (end, lane))
        found.append(lane)
    return np.array(found, np.int64)
