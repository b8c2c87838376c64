"""What is kept or cut as one: a session, or a request without one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.request import IntArray, Trace, in_order_of_appearance

Mask = NDArray[np.bool_]


def units_of(trace: Trace, whole: bool = True) -> IntArray:
    """The unit of each request, numbered from 0 on in order of appearance.

    Parameters
    ----------
    trace : Trace
    whole : bool
        Whether sessions are units; else every request is one.

    >>> one = np.ones(4, int)
    >>> units_of(Trace("a", one, one, session=np.array([5, -1, 5, -1]))).tolist()
    [0, 1, 0, 2]
    """
    rows = np.arange(len(trace))
    if not whole or trace.session is None:
        return rows
    numbers = in_order_of_appearance(trace.session)
    return in_order_of_appearance(np.where(numbers < 0, len(trace) + rows, numbers))


def if_first(units: IntArray, keep: Mask) -> Mask:
    """The units whose first request is kept.

    >>> if_first(np.array([0, 1, 0, 1]), np.array([True, False, False, True])).tolist()
    [True, False, True, False]
    """
    begun: Mask = keep[np.unique(units, return_index=True)[1]]
    return begun[units]


def if_all(units: IntArray, keep: Mask) -> Mask:
    """The units of which every request is kept.

    >>> if_all(np.array([0, 1, 0, 1]), np.array([True, True, False, True])).tolist()
    [False, True, False, True]
    """
    whole: Mask = np.bincount(units, ~keep) == 0
    return whole[units]


def first_units(units: IntArray, order: IntArray, requests: int) -> Mask:
    """The units that come first in an order and together have no more than so many requests.

    >>> first_units(np.array([0, 1, 0, 2]), np.array([1, 0, 2]), 3).tolist()
    [True, True, True, False]
    """
    sizes = np.bincount(units)
    chosen = np.zeros(len(sizes), bool)
    chosen[order[np.cumsum(sizes[order]) <= requests]] = True
    return chosen[units]


def torn(before: Trace, after: Trace) -> int:
    """Sessions of which a cut kept some requests, not all; ``after`` has the session numbers of ``before``."""
    if before.session is None or after.session is None:
        return 0
    numbers, left = np.unique(after.session[after.session >= 0], return_counts=True)
    known, had = np.unique(before.session, return_counts=True)
    return int((had[np.searchsorted(known, numbers)] > left).sum())
