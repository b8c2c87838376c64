"""What the scheduler hands to the server: one step, or the promise of many alike; and the plan that becomes of a promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sim.memory.allocator import Refusal
from sim.pace import Pace
from sim.step_time import StepLoad
from workloads.request import IntArray


@dataclass(slots=True)
class Step:
    """What one schedule() decided.

    ``admitted`` holds (request, cached tokens, new tokens, resumed, handle); ``preempted`` (request, computed tokens
    lost); ``uneven`` (request, new tokens) of running sequences that computed anything but one token; ``sampling``
    the requests whose last known token is computed in this step and that waited for that (prefill or recompute ends);
    ``swapped_in`` (request, tokens) that came back from the host; ``loaded_blocks`` are found prefix blocks that a host tier
    sends to the GPU in this step.
    """

    new_tokens: int = 0
    sequences: int = 0
    context_tokens: int = 0
    attention_pairs: int = 0
    loaded_blocks: int = 0
    admitted: list[tuple[int, int, int, bool, int]] = field(default_factory=list)
    preempted: list[tuple[int, int]] = field(default_factory=list)
    uneven: list[tuple[int, int]] = field(default_factory=list)
    sampling: list[int] = field(default_factory=list)
    swapped_in: list[tuple[int, int]] = field(default_factory=list)

    @property
    def load(self) -> StepLoad:
        """The step as a step-time model sees it."""
        return StepLoad(self.new_tokens, self.sequences, self.context_tokens, self.attention_pairs)


class DecodeRun(NamedTuple):
    """The next ``steps`` steps only let the running sequences grow by one token each; fewer than 2 gain nothing.

    ``open``: an arrival meanwhile could be admitted, so the run must end at the next one. ``refused``: see `Scheduler`.
    """

    steps: int
    open: bool = False
    refused: Refusal | None = None


NO_RUN = DecodeRun(0)


class Jump(NamedTuple):
    """Steps that are planned and not made.

    ``sequences`` grow by a token a step, and have ``context`` computed tokens together in the first one, beside ``kept`` of those
    that have ended and stay; ``waiting`` requests stood in the queue when it was planned.
    """

    run: DecodeRun
    start_us: int
    pace: Pace
    sequences: int
    context: int
    kept: int
    waiting: int

    def part(self, first: int, stop: int) -> Jump:
        """The steps from ``first`` up to and without ``stop``."""
        pace = self.pace.part(first, stop)
        before_us = self.pace.offsets[first] if first else 0
        return self._replace(run=self.run._replace(steps=stop - first), start_us=self.start_us + before_us, pace=pace,
                             context=self.context + first * self.sequences)

    @property
    def end_us(self) -> int:
        return self.start_us + self.pace.total_us

    @property
    def starts_us(self) -> IntArray:
        """When each step starts, shape (steps,)."""
        return self.start_us + np.array(self.pace.offsets, np.int64)
