"""The same traffic as it might have come about: a block bootstrap of a recorded trace.

The recording is cut into windows of equal length, as many are drawn with replacement, and laid one behind another:

    recorded   | a a   | b     | c c c |            drawn: 2 0 2        | c c c | a a   | c'c'c'|

Within a window everything stays in place, so bursts shorter than it survive; what goes on longer than a window does not.
Content ids of one window only stand for something that happened once: a second copy of the window gets its own, or copies would
find each other in the cache. Ids that more windows have, such as a system prompt's, stay.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workloads.request import ContentIds, IntArray, Trace, in_order_of_appearance
from workloads.transform import take

LEFT_OUT = "behind_the_last_window"
MOST_WINDOWS = 1_000_000
FRESH_FROM = 1 << 62                                   # ids of copies: no trace names anything so
LARGEST_ID = (1 << 63) - 1


def resample(trace: Trace, window_us: int, rng: np.random.Generator) -> Trace:
    """A trace of as many windows, drawn with replacement and laid one behind another.

    Windows begin at the first arrival. The last one counts where at least half of it lies before the last arrival; else its
    requests are left out and counted. Times are from the beginning of the first window drawn. Sessions of a second copy of a
    window are sessions of their own.

    Parameters
    ----------
    trace : Trace
        With times, and no closed loop: turns that wait for each other cannot be cut.
    window_us : int
        Microseconds, 1 or more.
    rng : numpy Generator

    Raises
    ------
    ValueError
        If the trace has no times or is a closed loop, or there are fewer than two windows or more than a million.

    >>> trace = Trace("a", np.array([3, 5, 7]), np.ones(3, int), arrival_us=np.array([10, 12, 25]))
    >>> twice = resample(trace, 10, np.random.default_rng(0))                # the second window twice
    >>> twice.prompt_tokens.tolist(), twice.arrival_us.tolist()
    ([7, 7], [5, 15])
    """
    _check(trace, window_us)
    assert trace.arrival_us is not None
    since_us = trace.arrival_us - trace.arrival_us[0]
    windows = _windows(trace, since_us, window_us)
    drawn = rng.integers(0, windows, windows)
    starts = np.searchsorted(since_us, np.arange(windows + 1) * window_us)
    counts = np.diff(starts)[drawn]
    place = np.repeat(np.arange(windows), counts)      # which of the windows laid down each request is in
    rows = np.repeat(starts[drawn] - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
    copy = _copies(drawn)[place]
    made = replace(take(trace, rows, timed=False), arrival_us=since_us[rows] + (place - drawn[place]) * window_us)
    left_out = len(trace) - int(starts[-1])
    return replace(
        made, dropped={**trace.dropped, **({LEFT_OUT: left_out} if left_out else {})},
        session=None if made.session is None else _sessions(made.session, copy),
        content=None if made.content is None else _content(made.content, copy, _once(trace, since_us // window_us)))


def _check(trace: Trace, window_us: int) -> None:
    if trace.arrival_us is None:
        raise ValueError(f"{trace.source} has no arrival times to resample by")
    if trace.closed_loop:
        raise ValueError(f"the turns of {trace.source} follow each other: windows would tear them apart")
    if window_us < 1:
        raise ValueError(f"a window must last 1 microsecond or longer, not {window_us}")


def _windows(trace: Trace, since_us: IntArray, window_us: int) -> int:
    span = int(since_us[-1]) if len(trace) else 0
    windows = span // window_us + (2 * (span % window_us) >= window_us)
    if windows < 2:
        raise ValueError(f"{trace.source} lasts {span / 1e6:,g} s: that is no two windows of {window_us / 1e6:,g} s")
    if windows > MOST_WINDOWS:
        raise ValueError(f"{trace.source} lasts {span / 1e6:,g} s: over {MOST_WINDOWS:,} windows of {window_us / 1e6:,g} s")
    return windows


def _copies(drawn: IntArray) -> IntArray:
    """How often each of the windows drawn was drawn before.

    >>> _copies(np.array([2, 0, 2, 2])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(drawn, kind="stable")
    first = np.searchsorted(drawn[order], drawn[order])
    copy = np.empty(len(drawn), np.int64)
    copy[order] = np.arange(len(drawn)) - first
    return copy


def _sessions(session: IntArray, copy: IntArray) -> IntArray:
    """A session goes on only in windows of the same copy; -1 stays for none."""
    dense = np.unique(session, return_inverse=True)[1].reshape(-1)
    apart = dense * (int(copy.max(initial=0)) + 1) + copy
    return in_order_of_appearance(np.where(session < 0, -1, apart))


def _content(content: ContentIds, copy: IntArray, once: IntArray) -> ContentIds:
    """The ids ``once`` of only one window, in order, get fresh ones in its later copies; ``copy`` is that of each request."""
    copies = np.repeat(copy, np.diff(content.starts))
    place = np.searchsorted(once, content.ids)
    new = (copies > 0) & (place < len(once))
    new[new] = once[place[new]] == content.ids[new]
    if not new.any():
        return content
    pairs = place[new] * (int(copies.max()) + 1) + copies[new]
    numbers, fresh = np.unique(pairs, return_inverse=True)
    ids, base, local = content.ids.copy(), max(FRESH_FROM, int(content.ids.max()) + 1), content.local
    if base > LARGEST_ID + 1 - len(numbers):             # no room above: number them all anew
        names, ids = np.unique(content.ids, return_inverse=True)
        ids, base, local = ids.reshape(-1).astype(np.int64), len(names), True
    ids[new] = base + fresh.reshape(-1)
    return replace(content, ids=ids, local=local)


def _once(trace: Trace, window: IntArray) -> IntArray:
    """Ids that all lie in one window, in order."""
    assert trace.content is not None
    names, which = np.unique(trace.content.ids, return_inverse=True)
    of_id = np.repeat(window, np.diff(trace.content.starts))
    first, last = np.full(len(names), LARGEST_ID), np.full(len(names), -1)
    np.minimum.at(first, which.reshape(-1), of_id)
    np.maximum.at(last, which.reshape(-1), of_id)
    once: IntArray = names[first == last]
    return once
