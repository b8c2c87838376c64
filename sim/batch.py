"""The running set: one column a sequence, in order of admission, as one integer matrix.

    request    17   19   20   24      row of the trace
    handle      3    0    4    1      its name inside the allocator
    ends      690  843  988  688      what the decode clock will show when it has its last token
    target    300   40  500   64      tokens to compute before the next one is sampled: below it the sequence is prefilling
    end       400   55  900   64      token states at the end (prompt + output - 1)
    member      0    0    1    0      which of its request's sequences it is

The decode clock counts steps. Whoever computes a token in a step keeps its ``ends``, so a step in which everybody does changes
one number: the computed tokens of a sequence are ``end - (ends - clock)``.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.block_calendar import BlockCalendar, Some
from sim.entries import entries
from sim.memory.allocator import Decoding, Due
from workloads.request import IntArray

REQUEST, HANDLE, ENDS, TARGET, END, MEMBER = range(6)
FIELDS = 6
UNLIMITED = 1 << 62


class Batch:
    """Columns of the running sequences; those that are views may be written, by whoever then calls `changed`.

    Attributes
    ----------
    clock : int
        Decode steps so far.
    """

    def __init__(self) -> None:
        self.n = 0
        self.clock = 0
        self._first_end, self._exact = UNLIMITED, True     # nobody ends before; somebody does then where exact
        self._calendar: BlockCalendar | None = None        # made when it is asked for
        self._matrix = np.zeros((FIELDS, 64), np.int64)
        self._at = entries(self._matrix)               # by field and place

    def __len__(self) -> int:
        return self.n

    # ------------------------------------------------------------------ columns
    def _column(self, field: int) -> IntArray:
        column: IntArray = self._matrix[field, : self.n]
        return column

    @property
    def request(self) -> IntArray:
        """A view."""
        return self._column(REQUEST)

    @property
    def handle(self) -> IntArray:
        """A view."""
        return self._column(HANDLE)

    @property
    def target(self) -> IntArray:
        """A view."""
        return self._column(TARGET)

    @property
    def end(self) -> IntArray:
        """A view."""
        return self._column(END)

    @property
    def member(self) -> IntArray:
        """A view."""
        return self._column(MEMBER)

    @property
    def computed(self) -> IntArray:
        """Tokens whose K and V exist (a copy)."""
        tokens = self._column(END) - self._column(ENDS)
        tokens += self.clock
        return tokens

    # ------------------------------------------------------------------ who runs
    def append(self, row: tuple[int, int, int, int, int, int]) -> None:
        """Add a sequence behind all others: request, handle, computed, target, end, member."""
        last = self.n
        if last == self._matrix.shape[1]:
            self._widen()
        request, handle, computed, target, end, member = row
        at, ends = self._at, self.clock + end - computed
        # Six entries one by one take an eighth of the time of one column from a tuple.
        at[REQUEST, last], at[HANDLE, last], at[ENDS, last] = request, handle, ends
        at[TARGET, last], at[END, last], at[MEMBER, last] = target, end, member
        self.n = last + 1
        self._first_end = min(self._first_end, ends - max(target - computed, 0))
        if self._calendar is not None and computed >= target:
            self._calendar.add(handle, ends - end)

    def _widen(self) -> None:
        self._matrix = np.concatenate((self._matrix, np.zeros_like(self._matrix)), axis=1)
        self._at = entries(self._matrix)

    def insert(self, place: int, rows: list[tuple[int, int, int, int, int, int]]) -> None:
        """Add sequences before ``place``."""
        self._calendar = None
        for row in rows:
            self.append(row)
        live = self._matrix[:, : self.n]
        live[:, place:] = np.roll(live[:, place:], len(rows), axis=1)

    def remove(self, places: list[int]) -> None:
        """Take out the sequences at ``places``; the others keep their order."""
        # Those between two that go move up: for one of 40 sequences 1 us, a mask over the matrix takes 15.
        gone = sorted(places)
        if self._calendar is not None:
            for place in gone:
                if self.decodes(place):
                    self._calendar.strike(self._at[HANDLE, place], self._full_at(place))
        live, to = self._matrix, gone[0]
        gone.append(self.n)
        for place, following in pairwise(gone):
            if stay := following - place - 1:
                live[:, to:to + stay] = live[:, place + 1:following]
                to += stay
        self.n = to
        self._exact = False

    def move_on(self, steps: int, stays: NDArray[np.bool_], come: IntArray) -> None:
        """So many steps, after which who does not stay is gone and others are behind.

        Parameters
        ----------
        steps : int
        stays : bool, shape (sequences,)
        come : int64, shape (5, n)
            Columns of those behind: request, handle, computed, target, end.
        """
        request, handle, computed, target, end = come
        self.clock += steps
        more = np.stack((request, handle, self.clock + end - computed, target, end, np.zeros_like(end)))
        kept = self._matrix[:, :self.n][:, stays]
        self.n = kept.shape[1] + more.shape[1]
        while self.n > self._matrix.shape[1]:
            self._widen()
        self._matrix[:, :self.n] = np.concatenate((kept, more), axis=1)
        self.changed()

    def row(self, place: int) -> tuple[int, int, int, int]:
        """Request, handle, computed tokens and target of one sequence."""
        at = self._at
        return at[REQUEST, place], at[HANDLE, place], at[END, place] - at[ENDS, place] + self.clock, at[TARGET, place]

    def decodes(self, place: int) -> bool:
        """Whether that sequence is not prefilling."""
        at = self._at
        return at[END, place] - at[ENDS, place] + self.clock >= at[TARGET, place]

    def _full_at(self, place: int) -> int:
        """What the clock shows, a whole number of blocks before or behind, when the last block of this sequence is full."""
        return self._at[ENDS, place] - self._at[END, place]

    # ------------------------------------------------------------------ tokens
    def grow(self, steps: int) -> None:
        """Each sequence computes a token in each of so many steps; none of them is prefilling."""
        self.clock += steps

    def grow_behind(self, tokens: int) -> None:
        """The last sequence, which is prefilling, computes so many tokens, all before it one each."""
        self.clock += 1
        last = self.n - 1
        self._at[ENDS, last] -= tokens - 1
        self._exact = False
        if self._calendar is not None and self.decodes(last):
            self._calendar.add(self._at[HANDLE, last], self._full_at(last))

    def compute(self, new: IntArray) -> None:
        """Each sequence computes its ``new`` tokens: of those behind the target one at most."""
        self.clock += 1
        ends = self._column(ENDS)
        ends -= new - 1
        self._exact, self._calendar = False, None

    def grow_some(self, places: IntArray, steps: int) -> None:
        """The sequences at ``places`` compute a token in each of so many steps, the others none."""
        self.clock += steps
        ends = self._column(ENDS)
        ends += steps
        ends[places] -= steps
        self.changed()

    def changed(self) -> None:
        """Columns were written."""
        self._first_end, self._exact, self._calendar = self.clock, False, None

    # ------------------------------------------------------------------ what comes next
    def may_have_ended(self) -> bool:
        """Whether a sequence may have its last token; false where that is known without looking."""
        return self._first_end <= self.clock

    def ended(self) -> list[int]:
        """Places of those that have their last token."""
        # One after the other, as it is mostly one: argmin takes 0.15 us, a comparison with all of them 0.5.
        ends, places, behind = self._column(ENDS), [], 0
        while behind < self.n:
            place = behind + int(ends[behind:].argmin())
            if self._at[ENDS, place] != self.clock:
                break
            places.append(place)
            behind = place + 1
        return places

    def until_end(self) -> int:
        """The decode steps after which the first sequence has its last token; nobody is prefilling."""
        if not self._exact:
            self._first_end = self._at[ENDS, int(self._column(ENDS).argmin())] if self.n else UNLIMITED
            self._exact = True
        return self._first_end - self.clock

    def due(self, size: int, steps: int) -> Due:
        """See `Decoding`: of all that are not prefilling."""
        return self._calendar_for(size).due(self.clock, steps)

    def _calendar_for(self, size: int) -> BlockCalendar:
        calendar = self._calendar
        if calendar is None or calendar.size != size:
            calendar = self._calendar = BlockCalendar(size)
            decoding = (self.computed >= self.target).nonzero()[0]
            for handle, computed in zip(self.handle[decoding].tolist(), self.computed[decoding].tolist(), strict=True):
                calendar.add(handle, self.clock - computed)
        return calendar

    def first(self, n: int) -> Decoding:
        """The first ``n`` sequences, of which none is prefilling."""
        return self if n == self.n else Front(self, n)


class Front:
    """The first ``n`` sequences of a batch, see `Batch.first`."""

    def __init__(self, batch: Batch, n: int) -> None:
        self._batch, self._n = batch, n

    def __len__(self) -> int:
        return self._n

    @property
    def handle(self) -> IntArray:
        return self._batch.handle[: self._n]

    @property
    def computed(self) -> IntArray:
        return self._batch.computed[: self._n]

    def due(self, size: int, steps: int) -> Due:
        """See `Decoding`. Whoever is not prefilling is of the first, unless several chunks are on their way."""
        calendar = self._batch._calendar_for(size)
        if calendar.members == self._n:
            return calendar.due(self._batch.clock, steps)
        return Some(self.handle, self.computed).due(size, steps)
