"""From arrivals and conversations to the order of the rows, their times, sessions and think times.

    open loop       a conversation begins at its arrival; its turns follow by think time        session = conversation
    closed loop     a user takes up every users-th conversation, one after the other            session = user

A row that waits for an answer has a think time; its ``arrival_us``, that of the row before plus the thinking, only orders it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.request import IntArray
from workloads.synth.arrivals import LATEST_US, Users
from workloads.synth.content import Pieces


@dataclass(frozen=True, eq=False)
class Rows:
    """Requests that have not been given times yet; those of one conversation stand one behind the other.

    Parameters
    ----------
    unit : int64, shape (rows,)
        Conversation of each row, from 0 on; a request without one is a unit of its own.
    own_tokens : int64, shape (rows,)
        Tokens of the prompt behind the pieces: all that was said before in this context, and what is new.
    pieces : Pieces
        What stands before each unit.
    stream : int64, shape (rows,) or None
        Context of each row: the conversation's, or in a tree that of one agent; None where every row has its own.
    think_us : int64, shape (rows,) or None
        From the end of the row before it, not looked at where a unit begins; None where every row is a unit.
    """

    unit: IntArray
    own_tokens: IntArray
    pieces: Pieces
    stream: IntArray | None = None
    think_us: IntArray | None = None


@dataclass(frozen=True, eq=False)
class Schedule:
    """The order in which rows arrive, and their columns in that order."""

    order: IntArray
    arrival_us: IntArray
    session: IntArray | None = None
    think_us: IntArray | None = None


def schedule(rows: Rows, arrivals: IntArray | Users) -> Schedule:
    """Put rows in order of arrival.

    Parameters
    ----------
    rows : Rows
    arrivals : int64, shape (units,), or Users
        When each unit begins, or who takes them up.

    Raises
    ------
    ValueError
        If the times do not fit in 62 bits.

    >>> unit, nothing = np.array([0, 0, 1]), Pieces(np.zeros((2, 0), np.int64), np.zeros(0, np.int64))
    >>> chat = schedule(Rows(unit, unit, nothing, unit, np.array([0, 7, 0])), np.array([0, 5]))
    >>> chat.order.tolist(), chat.arrival_us.tolist(), chat.session.tolist(), chat.think_us.tolist()
    ([0, 2, 1], [0, 5, 7], [0, 1, 0], [-1, -1, 7])
    """
    unit, think_us = rows.unit, rows.think_us
    if not isinstance(arrivals, Users) and think_us is None:
        return Schedule(np.arange(len(unit)), arrivals)
    begins = np.diff(unit, prepend=-1) != 0
    waits = np.zeros(len(unit), np.int64) if think_us is None else think_us
    if isinstance(arrivals, Users):
        chain, start = unit % len(arrivals.start_us), arrivals.start_us
        waits = np.where(begins, arrivals.think_us[unit], waits)
    else:
        chain, start = unit, arrivals
    if not float(waits.sum(dtype=np.float64)) + float(start.max(initial=0)) < LATEST_US:
        raise ValueError("the think times do not fit in 62 bits of microseconds")
    return _in_order(chain, start, waits)


def _in_order(chain: IntArray, start: IntArray, waits: IntArray) -> Schedule:
    """Rows of each chain one after the other, all by time; what comes at the same time stays in order."""
    grouped = np.argsort(chain, kind="stable")
    heads = np.diff(chain[grouped], prepend=-1) != 0
    waited = np.where(heads, 0, waits[grouped])
    sums = np.cumsum(waited)
    places = np.flatnonzero(heads)
    lengths = np.diff(np.append(places, len(chain)))
    arrival = start[chain[grouped]] + sums - np.repeat(sums[places], lengths)
    by_time = np.argsort(arrival, kind="stable")
    order = grouped[by_time]
    return Schedule(order, arrival[by_time], chain[order], np.where(heads, -1, waited)[by_time])
