"""What the scheduler hands to the server: one step, or the promise of many alike; and the plan that becomes of a promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sim.memory.allocator import Refusal
from sim.step_time import StepLoad
from workloads.request import IntArray


@dataclass
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
    """Steps that are planned and not made: when each starts, how long it takes, and the computed tokens after it."""

    run: DecodeRun
    starts_us: IntArray
    durations_us: IntArray
    computed: IntArray
    waiting: int

    def part(self, steps: slice) -> Jump:
        """Some of the steps."""
        starts = self.starts_us[steps]
        return Jump(self.run._replace(steps=len(starts)), starts, self.durations_us[steps], self.computed[steps], self.waiting)

    @property
    def end_us(self) -> int:
        return int(self.starts_us[-1] + self.durations_us[-1])
