"""What several experiments measure alike: waste in two senses, requests a second, and the step time of the paper's server.

    the pool        [ token states | reserved | internal ][ cached | external | remainder | idle ]
    allocated       <---------- allocated -------------->
    waste of the allocated memory   (reserved + internal) / allocated              what vLLM's "under 4 %" means
    waste of the pool               everything but token states, while requests are refused      what Figure 2 shows
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.paper import setting
from experiments.paper.setting import Lab
from sim.request_log import NEVER
from sim.run import Run
from sim.sizing.hardware import find_gpu
from sim.sizing.weights import weight_bytes
from sim.step_time import RooflineStepTime, StepLoad, StepTime, roofline
from workloads.request import Trace

GPU = "A100-40GB"


def waste_of_allocated(run: Run) -> float:
    """Per cent of the memory handed out to requests that holds no token, over the run's window."""
    token_states, reserved, internal = run.window.parts[:3]
    return 100 * (reserved + internal) / (token_states + reserved + internal)


def waste_of_pool(run: Run) -> float:
    """Per cent of the pool that holds no token, over the run's window."""
    return 100 - 100 * run.window.parts[0] / sum(run.window.parts)


def mean_running(run: Run) -> float:
    """Requests running at once, over the run's window."""
    return run.window.sequence_us / run.window.time_us


def finished_per_s(run: Run) -> float:
    """Requests that finished in the run's window, a second."""
    start, end = run.window_us
    finished = run.log.finished_us
    return 1e6 * int(((finished != NEVER) & (finished > start) & (finished <= end)).sum()) / (end - start)


def waiting_part(lab: Lab, most: int) -> tuple[Trace, bool]:
    """So many requests of the ShareGPT lengths, and whether they are what the published numbers may be judged by."""
    everything = lab.sharegpt()
    part = lab.part(everything, most)
    return part, lab.is_whole(everything) and len(part) == most


def opt13b_roofline() -> RooflineStepTime:
    """OPT-13B on its A100, every sequence's K and V read at the full share of the bandwidth.

    >>> opt13b_roofline().duration_us(StepLoad(40, 40, 15_000, 15_000))
    31543
    """
    model = setting.opt13b()
    return roofline(model, find_gpu(GPU), weight_bytes(model), model.kv_bytes_per_token())


@dataclass(frozen=True)
class SideBySide:
    """A step-time model; and what others would have taken for the same steps.

    Where all requests wait from the start, who runs with whom does not depend on how long a step takes: one replay then
    serves any number of step-time models.
    """

    main: StepTime
    others: dict[str, StepTime]
    total_us: dict[str, int] = field(default_factory=dict)

    def duration_us(self, load: StepLoad) -> Any:
        for name, model in self.others.items():
            self.total_us[name] = self.total_us.get(name, 0) + int(np.sum(model.duration_us(load)))
        return self.main.duration_us(load)

    def describe(self) -> str:
        """One line for people, with units."""
        return self.main.describe()
