"""The running set: one column a sequence, in order of admission, as one integer matrix.

    request    17   19   20   24      row of the trace
    handle      3    0    4    1      its name inside the allocator
    computed  310   12  512   64      tokens whose K and V exist
    target    300   40  500   64      tokens to compute before the next one is sampled: below it the sequence is prefilling
    end       400   55  900  130      token states at the end (prompt + output - 1)
    member      0    0    1    0      which of its request's sequences it is
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from workloads.request import IntArray

FIELDS = 6
UNLIMITED = 1 << 62


class Batch:
    """Columns of the running sequences; views of one matrix, so that a removal is one array operation.

    Whoever writes into the columns himself calls `changed`.
    """

    def __init__(self) -> None:
        self.n = 0
        self._until, self._exact = UNLIMITED, True         # at most the tokens of `until_end`; equal to it where exact
        self._matrix = np.zeros((FIELDS, 64), np.int64)
        self._view()

    def _view(self) -> None:
        live = self._matrix[:, : self.n]
        self.request: IntArray
        self.handle: IntArray
        self.computed: IntArray
        self.target: IntArray
        self.end: IntArray
        self.member: IntArray
        self.request, self.handle, self.computed, self.target, self.end, self.member = live

    def __len__(self) -> int:
        return self.n

    def append(self, row: tuple[int, int, int, int, int, int]) -> None:
        """Add a sequence behind all others: request, handle, computed, target, end, member."""
        if self.n == self._matrix.shape[1]:
            self._matrix = np.concatenate((self._matrix, np.zeros_like(self._matrix)), axis=1)
        self._matrix[:, self.n] = row
        self.n += 1
        self._view()
        left = row[4] - max(row[2], row[3])
        if left < self._until:
            self._until = left

    def insert(self, place: int, rows: list[tuple[int, int, int, int, int, int]]) -> None:
        """Add sequences before ``place``."""
        for row in rows:
            self.append(row)
        live = self._matrix[:, : self.n]
        moved = len(rows)
        live[:, place:] = np.roll(live[:, place:], moved, axis=1)

    # ------------------------------------------------------------------ tokens
    def grow(self, tokens: int) -> None:
        """Each sequence computes so many tokens; none of them is prefilling."""
        self.computed += tokens
        self._until -= tokens

    def grow_behind(self, tokens: int) -> None:
        """The last sequence computes so many tokens, all before it one each; none of those is prefilling."""
        self.computed += 1
        self.computed[-1] += tokens - 1
        self._until -= 1
        self._exact = False

    def compute(self, new: IntArray) -> None:
        """Each sequence computes its ``new`` tokens: of those behind the target one at most."""
        self.computed += new
        self._until -= 1
        self._exact = False

    def changed(self) -> None:
        """Columns were written."""
        self._until, self._exact = 0, False

    def may_have_ended(self) -> bool:
        """Whether a sequence may have its last token; false where that is known without looking."""
        return self._until <= 0

    def until_end(self) -> int:
        """The decode steps after which the first sequence has its last token; nobody is prefilling."""
        if not self._exact or self._until <= 0:
            self._until = int(np.minimum.reduce(self.end - self.computed)) if self.n else UNLIMITED
            self._exact = True
        return self._until

    def remove(self, places: IntArray) -> None:
        """Take out the sequences at ``places``; the others keep their order."""
        # Those between two that go move up: for one of 40 sequences 1 us, a mask over the matrix takes 15.
        gone: list[int] = places.tolist()
        if len(gone) > 1:
            gone.sort()
        live, to = self._matrix, gone[0]
        gone.append(self.n)
        for place, following in pairwise(gone):
            if stay := following - place - 1:
                live[:, to:to + stay] = live[:, place + 1:following]
                to += stay
        self.n = to
        self._view()
        self._exact = False
