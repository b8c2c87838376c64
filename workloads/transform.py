"""Cuts and changes of a trace: pure functions from Trace to Trace that keep every column in step.

Arrival times are never rebased but by `from_zero`: after a cut the first may be later than 0. Where `whole` is asked for, a
session is kept or cut as one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.later import Later
from workloads.request import COLUMNS, IntArray, Trace, row_before
from workloads.units import first_units, if_all, if_first, units_of

if TYPE_CHECKING:
    from workloads import synthetic
else:
    synthetic = Later("workloads.synthetic")

TOO_LONG = "over_max_total_tokens"
WITH_SESSION = "session_of_one_over_max_total_tokens"


def drop_longer_than(trace: Trace, max_total_tokens: int, whole: bool = False) -> Trace:
    """Leave out requests whose prompt and output together are longer than a limit, and count them.

    Parameters
    ----------
    max_total_tokens : int
        Most tokens of prompt + output; such a request stays.
    whole : bool
        Whether the others of its session go with one that is too long.

    Returns
    -------
    Trace
        `dropped` gains "over_max_total_tokens" where there was one, and a reason of their own for those that go with it.

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
    short = trace.prompt_tokens + trace.output_tokens <= max_total_tokens
    keep = if_all(units_of(trace, whole), short)
    dropped = dict(trace.dropped)
    for reason, count in ((TOO_LONG, int((~short).sum())), (WITH_SESSION, int((short & ~keep).sum()))):
        if count:
            dropped[reason] = dropped.get(reason, 0) + count
    return replace(take(trace, np.flatnonzero(keep)), dropped=dropped)


def limit(trace: Trace, n: int, whole: bool = False) -> Trace:
    """The first `n` requests by arrival, or all if there are fewer. A limit drops nothing, so nothing is counted.

    With `whole` the first sessions that together have no more than `n` requests.

    Raises
    ------
    ValueError
        If `n` is negative.

    >>> len(limit(Trace("a", np.array([3, 5]), np.array([2, 1])), 1))
    1
    """
    if n < 0:
        raise ValueError(f"the limit must be 0 or more requests, not {n}")
    units = units_of(trace, whole)
    return take(trace, np.flatnonzero(first_units(units, np.arange(int(units.max(initial=-1)) + 1), n)))


def between(trace: Trace, start_us: int, stop_us: int | None, whole: bool = False) -> Trace:
    """The requests that arrive from `start_us` on and before `stop_us`; with `whole` the sessions that begin then.

    Raises
    ------
    ValueError
        If there are no times, or the stop is not after the start.

    >>> trace = Trace("a", np.array([3, 5, 7]), np.ones(3, int), arrival_us=np.array([0, 50, 90]))
    >>> between(trace, 50, 90).prompt_tokens.tolist(), between(trace, 50, None).arrival_us.tolist()
    ([5], [50, 90])
    """
    if trace.arrival_us is None:
        raise ValueError(f"{trace.source} has no arrival times")
    if stop_us is not None and stop_us <= start_us:
        raise ValueError(f"the time to stop must be after that to start: {stop_us} us is not after {start_us} us")
    keep = trace.arrival_us >= start_us
    if stop_us is not None:
        keep &= trace.arrival_us < stop_us
    return take(trace, np.flatnonzero(if_first(units_of(trace, whole), keep) if len(trace) else keep))


def sample(trace: Trace, rng: np.random.Generator, requests: int | None = None, fraction: float | None = None,
           whole: bool = False) -> Trace:
    """Some of the requests at random, in the order they had.

    Parameters
    ----------
    trace : Trace
    rng : numpy Generator
    requests, fraction : int or float, one of the two
        With `whole`: sessions in random order as long as they have no more requests together; or that share of the sessions, at
        least one.
    whole : bool
        Whether sessions are drawn, not requests.

    Raises
    ------
    ValueError
        If not one of the two is given, or it is out of range.

    >>> trace = Trace("a", np.arange(1, 9), np.arange(1, 9))
    >>> sample(trace, np.random.default_rng(0), requests=3).prompt_tokens.tolist()
    [3, 4, 5]
    """
    if (requests is None) == (fraction is None):
        raise ValueError("either a number of requests or a fraction is wanted")
    if (requests is not None and requests < 1) or (fraction is not None and not 0 < fraction <= 1):
        raise ValueError(f"at least 1 request or a fraction above 0 up to 1 is wanted, not {fraction or requests}")
    units = units_of(trace, whole)
    order = rng.permutation(int(units.max(initial=-1)) + 1)
    if fraction is not None:
        order = order[:max(1, round(fraction * len(order)))]
    return take(trace, np.flatnonzero(first_units(units, order, len(trace) if requests is None else requests)))


def from_zero(trace: Trace) -> Trace:
    """The same requests with times from the first arrival on.

    >>> from_zero(Trace("a", np.array([3, 5]), np.array([2, 1]), arrival_us=np.array([70, 90]))).arrival_us.tolist()
    [0, 20]
    """
    if trace.arrival_us is None or not len(trace):
        return trace
    return replace(trace, arrival_us=trace.arrival_us - trace.arrival_us[0])


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
    return replace(trace, arrival_us=synthetic.poisson_arrivals_us(len(trace), rate_per_s, rng))


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
    if trace.think_us is not None and trace.session is not None:      # whose predecessor is gone waits for nobody
        old, new = row_before(trace.session)[rows], row_before(trace.session[rows])
        kept = (new >= 0) & (rows[new] == old) if len(rows) else new >= 0
        taken["think_us"] = np.where(kept, trace.think_us[rows], -1)
    content = None if trace.content is None else trace.content.take(rows)
    if not timed:
        taken["arrival_us"] = None
    return replace(trace, prompt_tokens=trace.prompt_tokens[rows], content=content, **taken)
