"""The ledger: where every slot of the pool was, in slots x microseconds, exactly.

The state is constant between two events, so every integral is a sum of products of integers, kept in Python integers:
ten million blocks of 16 for a week overflow 64 bits. Each entry is checked as it is made: the seven parts add up to the
capacity, whatever the allocator says. Of steps made at once that are the sums over them and the last state; that every one of
them would pass by itself is a property of the tests (jumping equals stepping). Of stretches of free flow each step is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sim.memory.allocator import PARTS, SlotCounts
from workloads.request import IntArray


class BrokenInvariant(AssertionError):
    """The parts of the pool do not add up, or one is negative: a bug, with all terms in the message."""


@dataclass
class Integrals:
    """Sums over a stretch of time; differences of two of them are the sums between."""

    time_us: int = 0
    parts: list[int] = field(default_factory=lambda: [0] * len(PARTS))
    logical: int = 0
    physical: int = 0
    hole: int = 0
    running_us: Counter[int] = field(default_factory=Counter)

    def copy(self) -> Integrals:
        return Integrals(self.time_us, list(self.parts), self.logical, self.physical, self.hole, Counter(self.running_us))

    def __sub__(self, before: Integrals) -> Integrals:
        running = {n: us - before.running_us[n] for n, us in self.running_us.items()}
        return Integrals(self.time_us - before.time_us,
                         [a - b for a, b in zip(self.parts, before.parts, strict=True)],
                         self.logical - before.logical, self.physical - before.physical, self.hole - before.hole,
                         Counter({n: us for n, us in running.items() if us}))

    def together(self, others: Sequence[Integrals], running_us: Counter[int]) -> Integrals:
        """These sums and those of other pools over the same stretch, in which so many sequences ran in all of them together."""
        each = (self, *others)
        return Integrals(self.time_us, [sum(parts) for parts in zip(*(one.parts for one in each), strict=True)],
                         sum(one.logical for one in each), sum(one.physical for one in each), sum(one.hole for one in each),
                         running_us)

    @property
    def sequence_us(self) -> int:
        """Integral of the number of running sequences."""
        return sum(n * us for n, us in self.running_us.items())


class PoolState(NamedTuple):
    """One constant stretch: slot counts, slots of all block tables (shared ones once each), largest hole, running sequences."""

    counts: SlotCounts
    logical: int
    hole: int | None
    running: int


class Ledger:
    """Books every stretch of constant state.

    Parameters
    ----------
    capacity : int
        Slots of the pool.
    internal_allowed : int
        Slots of internal fragmentation a sequence may have: ``block_size - 1`` with paging.

    Attributes
    ----------
    total : Integrals
        Over the whole run so far.
    peak_running, peak_used : int
        Most sequences running at once; most slots in block tables or reservations, shared ones once.
    internal_excess : int
        Largest value over all events of internal slots - ``internal_allowed`` x running sequences.
    """

    def __init__(self, capacity: int, internal_allowed: int) -> None:
        self.capacity = capacity
        self.total = Integrals()
        self.peak_running = 0
        self.peak_used = 0
        self.internal_excess = -capacity
        self._allowed = internal_allowed
        self._last: PoolState | None = None

    def book(self, state: PoolState, duration_us: int) -> None:
        """One stretch of ``duration_us`` microseconds."""
        counts = state.counts
        if sum(counts) != self.capacity or min(counts) < 0:
            self._broken(counts, 1)
        total = self.total
        parts = total.parts
        for i, slots in enumerate(counts):
            if slots:
                parts[i] += slots * duration_us
        used = counts[0] + counts[1] + counts[2]
        total.logical += state.logical * duration_us
        total.physical += used * duration_us
        self._note(state, duration_us, used)

    def book_run(self, last: PoolState, sums: SlotCounts, logical: int, time_us: int) -> None:
        """Several stretches, ``time_us`` microseconds together: the sums over them, and the state of the last.

        In none of them more is used, or more of it internal fragmentation, than in the last.
        """
        counts = last.counts
        if sum(counts) != self.capacity or min(counts) < 0:
            self._broken(counts, 1)
        if sum(sums) != self.capacity * time_us or min(sums) < 0:
            self._broken(sums, time_us)
        total = self.total
        total.parts = [a + b for a, b in zip(total.parts, sums, strict=True)]
        total.logical += logical
        total.physical += sums[0] + sums[1] + sums[2]
        self._note(last, time_us, counts[0] + counts[1] + counts[2])

    def book_steps(self, counts: SlotCounts, logical: IntArray, running: IntArray, time_us: IntArray) -> None:
        """Several stretches of their own: counts of arrays, each of shape (stretches,); nowhere do addresses matter.

        Parameters
        ----------
        counts : SlotCounts
            Of int64 arrays; a number where it is the same in all of them.
        logical, running, time_us : int64, shape (stretches,)
            Together less than 2 ** 53 microseconds, and than 2 ** 62 slots x microseconds of the pool: whoever calls looks to it.
        """
        parts = np.stack(np.broadcast_arrays(*counts))
        wrong = (parts.sum(axis=0) != self.capacity) | (parts.min(axis=0) < 0)
        if wrong.any():
            self._broken(SlotCounts(*parts[:, int(wrong.argmax())].tolist()), 1)
        total, used = self.total, parts[:3].sum(axis=0)
        total.time_us += int(time_us.sum())
        total.parts = [a + b for a, b in zip(total.parts, (parts @ time_us).tolist(), strict=True)]
        total.logical += int(logical @ time_us)
        total.physical += int(used @ time_us)
        for n, us in enumerate(np.bincount(running, time_us).tolist()):
            if us:
                total.running_us[n] += int(us)
        self.peak_running = max(self.peak_running, int(running.max()))
        self.peak_used = max(self.peak_used, int(used.max()))
        self.internal_excess = max(self.internal_excess, int((counts.internal - self._allowed * running).max()))
        self._last = PoolState(SlotCounts(*parts[:, -1].tolist()), int(logical[-1]), None, int(running[-1]))

    def before(self, back_us: int) -> Integrals:
        """The sums ``back_us`` microseconds before the end of what was booked last; it lasted at least that long.

        >>> ledger = Ledger(10, 3)
        >>> ledger.book(PoolState(SlotCounts(4, 0, 0, 0, 0, 0, 6), 4, None, 1), 100)
        >>> ledger.before(30).time_us, ledger.before(30).parts[0]
        (70, 280)
        """
        if not back_us or self._last is None:
            return self.total.copy()
        counts, logical, hole, running = self._last
        return self.total - Integrals(back_us, [slots * back_us for slots in counts], logical * back_us,
                                      sum(counts[:3]) * back_us, (hole or 0) * back_us, Counter({running: back_us}))

    def _note(self, state: PoolState, duration_us: int, used: int) -> None:
        self._last = state
        total = self.total
        total.time_us += duration_us
        total.running_us[state.running] += duration_us
        if state.hole:
            total.hole += state.hole * duration_us
        if state.running > self.peak_running:
            self.peak_running = state.running
        if used > self.peak_used:
            self.peak_used = used
        excess = state.counts.internal - self._allowed * state.running
        if excess > self.internal_excess:
            self.internal_excess = excess

    def _broken(self, counts: SlotCounts, time_us: int) -> None:
        terms = ", ".join(f"{name} {slots}" for name, slots in zip(PARTS, counts, strict=True))
        unit = "slots" if time_us == 1 else f"slots for {time_us} us"
        raise BrokenInvariant(f"the pool has {self.capacity} {unit}, its parts add up to {sum(counts)}: {terms}")


def merged(ledgers: Sequence[Ledger], running_us: Counter[int]) -> Ledger:
    """The sums of several pools over the same time, in which so many sequences ran in all of them together.

    ``peak_used`` and ``internal_excess`` are those of one pool, the one where they were largest.
    """
    made = Ledger(sum(ledger.capacity for ledger in ledgers), 0)
    made.total = ledgers[0].total.together([ledger.total for ledger in ledgers[1:]], running_us)
    made.peak_running = max(running_us, default=0)
    made.peak_used = max(ledger.peak_used for ledger in ledgers)
    made.internal_excess = max(ledger.internal_excess for ledger in ledgers)
    return made
