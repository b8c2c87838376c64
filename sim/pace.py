"""The times of several engine steps in a row, without a row of numbers where they are all alike.

    |  20  |  20  |  20  |              EqualSteps(20, 3)
    | 20 | 21 | 21 | 22 |               UnequalSteps([20, 21, 21, 22])
    ^ 0    ^ 20   ^ 41                  offsets: from the start of the first step to the start of each
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple, Protocol

import numpy as np

from sim.step_time import ConstantStepTime, StepLoad, StepTime


class Pace(Protocol):
    """Steps in a row, all times in whole microseconds."""

    @property
    def steps(self) -> int:
        """How many."""
        ...

    @property
    def total_us(self) -> int:
        """From the start of the first step to the end of the last."""
        ...

    @property
    def ramp_us(self) -> int:
        """The sum of each step's duration times its number, counted from 0: what a level that rises by 1 a step adds up to."""
        ...

    @property
    def offsets(self) -> Sequence[int]:
        """From the start of the first step to the start of each."""
        ...

    def begun_before(self, time_us: int) -> int:
        """How many of the steps start less than ``time_us`` after the first."""
        ...

    def part(self, first: int, stop: int) -> Pace:
        """The steps from ``first`` up to and without ``stop``."""
        ...


class EqualSteps(NamedTuple):
    """``steps`` steps of ``us`` microseconds.

    >>> pace = EqualSteps(20, 3)
    >>> pace.steps, pace.total_us, pace.ramp_us, list(pace.offsets)
    (3, 60, 60, [0, 20, 40])
    >>> [pace.begun_before(us) for us in (0, 1, 20, 21, 99)], pace.part(1, 3).steps
    ([0, 1, 1, 2, 3], 2)
    """

    us: int
    steps: int

    @property
    def total_us(self) -> int:
        return self.us * self.steps

    @property
    def ramp_us(self) -> int:
        return self.us * (self.steps * (self.steps - 1) // 2)

    @property
    def offsets(self) -> Sequence[int]:
        return range(0, self.us * self.steps, self.us)

    def begun_before(self, time_us: int) -> int:
        return min(max(-(-time_us // self.us), 0), self.steps)

    def part(self, first: int, stop: int) -> EqualSteps:
        return EqualSteps(self.us, stop - first)


class UnequalSteps:
    """Steps with a duration each.

    >>> pace = UnequalSteps([20, 21, 21])
    >>> pace.steps, pace.total_us, pace.ramp_us, list(pace.offsets)
    (3, 62, 63, [0, 20, 41])
    >>> [pace.begun_before(us) for us in (0, 1, 20, 21, 99)], pace.part(1, 3).offsets
    ([0, 1, 1, 2, 3], [0, 21])
    """

    def __init__(self, durations_us: list[int]) -> None:
        self._durations = durations_us
        self.steps = len(durations_us)
        *self.offsets, self.total_us = accumulate(durations_us, initial=0)

    @property
    def ramp_us(self) -> int:
        return sum(map(mul, self._durations, range(self.steps)))

    def begun_before(self, time_us: int) -> int:
        return bisect_left(self.offsets, time_us)

    def part(self, first: int, stop: int) -> UnequalSteps:
        return UnequalSteps(self._durations[first:stop])


def decode_pace(step_time: StepTime, sequences: int, context: int, steps: int) -> Pace:
    """The times of decode steps of ``sequences`` sequences which in the first one have ``context`` computed tokens together.

    >>> decode_pace(ConstantStepTime(20), 4, 1000, 3)
    EqualSteps(us=20, steps=3)
    """
    if type(step_time) is ConstantStepTime:
        return EqualSteps(step_time.us, steps)
    tokens = np.full(steps, sequences)
    contexts = np.arange(context, context + sequences * steps, sequences)
    durations: list[int] = np.asarray(step_time.duration_us(StepLoad(tokens, tokens, contexts, contexts)), np.int64).tolist()
    return UnequalSteps(durations)
