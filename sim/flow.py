"""A stretch of free flow (`free_flow`) as columns: who computes what when, and who takes which blocks.

    row   begin  last   blocks
    0       0      3    [. . x]           rows 0 and 1 ran before, in running order; x is taken in the stretch
    1       0      8    [. x]
    2       2      9    [x x x x]         then arrivals as they are admitted: a whole prompt in a step, then a token a step
    3       5    (12)   [x x]             still runs when the stretch ends, after step 9

Within a step running sequences take their blocks first, in running order, then those that are admitted. A row stands behind all
that were admitted before it, so blocks are taken by step and row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sim.step_time import StepLoad
from workloads.request import IntArray


@dataclass(frozen=True, eq=False)
class Takes:
    """Blocks in the order in which they are taken, in runs for one block table each.

    Parameters
    ----------
    step, row, place, count : int64, shape (takes,)
        When, for whom, behind how many blocks of its own, and how many.
    """

    step: IntArray
    row: IntArray
    place: IntArray
    count: IntArray

    def by_step(self, steps: int) -> IntArray:
        """Blocks taken up to each of the first ``steps`` steps, itself included; shape (steps,)."""
        taken: IntArray = by_step(self.step, self.count, steps).cumsum()
        return taken

    def cut(self, steps: int) -> Takes:
        """Those in the first ``steps`` steps."""
        stop = int(self.step.searchsorted(steps))
        return Takes(self.step[:stop], self.row[:stop], self.place[:stop], self.count[:stop])


@dataclass(frozen=True, eq=False)
class Flow:
    """The ways of all sequences through a stretch.

    Parameters
    ----------
    handles : sequence of int
        Names inside the allocator of the first rows, of those that ran before.
    request : int64, shape (rows,)
    begin : int64, shape (rows,)
        The first step in which it computes tokens, in ascending order.
    before, chunk : int64, shape (rows,)
        Tokens computed before the stretch (0 of arrivals) and in that first step.
    end : int64, shape (rows,)
        Token states when it leaves.
    starts_us : int64, shape (steps + 1,)
        When each step starts, and when the last one ends.

    Examples
    --------
    One sequence has 7 of 9 tokens; a prompt of 6 arrives for the second step.

    >>> flow = Flow([0], *np.array([[4, 5], [0, 1], [7, 0], [1, 6], [9, 8]]), starts_us=np.arange(0, 50, 10))
    >>> flow.last.tolist(), flow.places.tolist(), flow.new_tokens.tolist(), flow.tokens.tolist()
    ([1, 3], [1, 2, 1, 1], [1, 7, 1, 1], [8, 15, 7, 8])
    >>> flow.admitted.tolist()
    [0, 1, 0, 0]
    >>> flow.cut(1).request.tolist(), flow.cut(2).computed.tolist()
    ([4], [9, 6])
    """

    handles: Sequence[int]
    request: IntArray
    begin: IntArray
    before: IntArray
    chunk: IntArray
    end: IntArray
    starts_us: IntArray

    @property
    def steps(self) -> int:
        """Steps of the stretch."""
        return len(self.starts_us) - 1

    @property
    def running(self) -> int:
        """Rows that ran before."""
        return len(self.handles)

    @cached_property
    def last(self) -> IntArray:
        """The step in which each row computes its last token, be it after the stretch."""
        return self.begin + self.end - self.before - self.chunk

    @cached_property
    def computed(self) -> IntArray:
        """Computed tokens of each row when it leaves, or when the stretch ends."""
        tokens: IntArray = np.minimum(self.end, self.before + self.chunk + self.steps - 1 - self.begin)
        return tokens

    # ------------------------------------------------------------------ by step, each of shape (steps,)
    def at_begin(self, values: IntArray) -> IntArray:
        """The sums of ``values``, one a row, over those that begin in each step."""
        return by_step(self.begin, values, self.steps)

    def left_before(self, values: IntArray) -> IntArray:
        """The sums of ``values`` over those that have left before each step."""
        left: IntArray = by_step(self.last + 1, values, self.steps).cumsum()
        return left

    def to_leave(self, values: IntArray) -> IntArray:
        """The sums of ``values`` over those that leave after each step and before the end of the stretch."""
        return int(values[self.last < self.steps].sum()) - self.left_before(values)

    @cached_property
    def admitted(self) -> IntArray:
        """Sequences admitted."""
        return by_step(self.begin[self.running:], np.ones(len(self.begin) - self.running, np.int64), self.steps)

    @cached_property
    def places(self) -> IntArray:
        """Sequences that run."""
        ones = np.ones_like(self.begin)
        return self.at_begin(ones).cumsum() - self.left_before(ones)

    @cached_property
    def new_tokens(self) -> IntArray:
        """Tokens computed in the step."""
        return self.places + self.at_begin(self.chunk - 1)

    @cached_property
    def tokens(self) -> IntArray:
        """Computed tokens of all that run, after the step."""
        return int(self.before.sum()) + self.new_tokens.cumsum() - self.left_before(self.end)

    @property
    def loads(self) -> StepLoad:
        """The steps as a step-time model sees them: a token attends to itself and to all before it."""
        prompts = self.at_begin(self.chunk * (self.chunk - 1) // 2)
        return StepLoad(self.new_tokens, self.places, self.tokens, self.tokens + prompts)

    def cut(self, steps: int) -> Flow:
        """The first ``steps`` steps; arrivals that would begin later are not of it."""
        rows = int(self.begin.searchsorted(steps))
        columns = {name: getattr(self, name)[:rows] for name in ("request", "begin", "before", "chunk", "end")}
        return replace(self, **columns, starts_us=self.starts_us[:steps + 1])


def by_step(step: IntArray, values: IntArray, steps: int) -> IntArray:
    """The sums of ``values`` at each of the first ``steps`` steps; exact below 2 ** 53.

    >>> by_step(np.array([0, 2, 2, 9]), np.array([5, 1, 1, 7]), 3).tolist()
    [5, 0, 2]
    """
    inside = step < steps
    return np.bincount(step[inside], values[inside], steps).astype(np.int64)


def takes_of(flow: Flow, size: int) -> Takes:
    """The blocks of ``size`` tokens that are taken: what the first step wants, then one whenever the last one is full.

    Examples
    --------
    Blocks of 4: the first row has 7 of 10 tokens, the second arrives in step 1 with 6 of 9.

    >>> flow = Flow([0], *np.array([[4, 5], [0, 1], [7, 0], [1, 6], [10, 9]]), starts_us=np.arange(10))
    >>> takes = takes_of(flow, 4)
    >>> [column.tolist() for column in (takes.step, takes.row, takes.place, takes.count)]
    [[1, 1, 4], [0, 1, 1], [2, 0, 2], [1, 2, 1]]
    """
    have = -(-flow.before // size)
    wanted = -(-(flow.before + flow.chunk) // size)    # blocks after its first step
    ready = flow.begin - flow.before - flow.chunk      # the step after which it would have no token, at one a step
    stop = np.minimum(-(-flow.end // size), -((ready + 1 - flow.steps) // size))
    single = np.maximum(stop - wanted, 0)
    row = np.arange(len(single))
    rows = np.concatenate((row, row.repeat(single)))
    more = np.arange(int(single.sum())) - (single.cumsum() - single - wanted).repeat(single)
    step = np.concatenate((flow.begin, more * size + 1 + ready.repeat(single)))
    place, count = np.concatenate((have, more)), np.concatenate((wanted - have, np.ones_like(more)))
    some = count.nonzero()[0]
    order = some[(step[some] * len(row) + rows[some]).argsort()]
    return Takes(step[order], rows[order], place[order], count[order])
