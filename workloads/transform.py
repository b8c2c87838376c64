"""Cuts and changes of a trace: pure functions from Trace to Trace that keep every column in step.

Arrival times are never rebased: after a cut the first may be later than 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from workloads.request import COLUMNS, IntArray, Trace, first_of_sessions
from workloads.synthetic import poisson_arrivals_us

TOO_LONG = "over_max_total_tokens"


def drop_longer_than(trace: Trace, max_total_tokens: int) -> Trace:
    """Leave out requests whose prompt and output together are longer than a limit, and count them.

    Parameters
    ----------
    max_total_tokens : int
        Most tokens of prompt + output; such a request stays.

    Returns
    -------
    Trace
        `dropped` gains "over_max_total_tokens" where there was one.

    Raises
    ------
    ValueError
        If the limit is below 1.

    >>> trace = Trace("a", np.array([3, 5]), np.array([2, 1]))
    >>> drop_longer_than(trace, 5).dropped
    {'over_max_total_tokens': 1}
    """
    if max_total_tokens < 1:
        raise ValueError(f"the most tokens of a request must be 1 or more, not {max_total_tokens}")
    keep = trace.prompt_tokens + trace.output_tokens <= max_total_tokens
    count = len(trace) - int(keep.sum())
    dropped = dict(trace.dropped)
    if count:
        dropped[TOO_LONG] = dropped.get(TOO_LONG, 0) + count
    return replace(take(trace, np.flatnonzero(keep)), dropped=dropped)


def limit(trace: Trace, n: int) -> Trace:
    """The first `n` requests by arrival, or all if there are fewer. A limit drops nothing, so nothing is counted.

    Raises
    ------
    ValueError
        If `n` is negative.

    >>> len(limit(Trace("a", np.array([3, 5]), np.array([2, 1])), 1))
    1
    """
    if n < 0:
        raise ValueError(f"the limit must be 0 or more requests, not {n}")
    return take(trace, np.arange(min(n, len(trace))))


def shuffle(trace: Trace, rng: np.random.Generator) -> Trace:
    """Deal the requests out anew over the same arrival times.

    >>> trace = Trace("a", np.arange(1, 9), np.arange(1, 9), arrival_us=np.arange(8))
    >>> mixed = shuffle(trace, np.random.default_rng(0))
    >>> mixed.arrival_us.tolist() == list(range(8)), sorted(mixed.prompt_tokens.tolist()) == list(range(1, 9))
    (True, True)
    """
    mixed = take(trace, rng.permutation(len(trace)), timed=False)
    return replace(mixed, arrival_us=trace.arrival_us)


def with_poisson_arrivals(trace: Trace, rate_per_s: float, rng: np.random.Generator) -> Trace:
    """The same requests in the same order at Poisson arrival times, the first at 0.

    Raises
    ------
    ValueError
        As `synthetic.poisson_arrivals_us`.

    >>> trace = Trace("a", np.array([3, 5]), np.array([2, 1]))
    >>> int(with_poisson_arrivals(trace, 2.0, np.random.default_rng(0)).arrival_us[0])
    0
    """
    return replace(trace, arrival_us=poisson_arrivals_us(len(trace), rate_per_s, rng))


def all_at_once(trace: Trace) -> Trace:
    """The same requests in the same order, all arriving at 0; nobody waits for an answer.

    >>> all_at_once(Trace("a", np.array([3, 5]), np.array([2, 1]))).arrival_us
    array([0, 0])
    """
    return replace(trace, arrival_us=np.zeros(len(trace), dtype=np.int64), think_us=None)


def take(trace: Trace, rows: IntArray, timed: bool = True) -> Trace:
    """The requests `rows` with all their columns, in that order; without times unless `timed`.

    Raises
    ------
    ValueError
        If `timed` and the order goes back in time.

    >>> take(Trace("a", np.array([3, 5]), np.array([2, 1])), np.array([1])).prompt_tokens
    array([5])
    """

    columns = {name: getattr(trace, name) for name in COLUMNS if timed or name != "arrival_us"}
    taken: dict[str, Any] = {name: column[rows] for name, column in columns.items() if column is not None}
    if "think_us" in taken:                            # whoever comes first now waits for nobody
        taken["think_us"] = np.where(first_of_sessions(taken["session"]), -1, taken["think_us"])
    content = None if trace.content is None else trace.content.take(rows)
    if not timed:
        taken["arrival_us"] = None
    return replace(trace, prompt_tokens=trace.prompt_tokens[rows], content=content, **taken)
