"""What a fit makes small: ln(predicted / measured) of all that was measured, computed once and weighed by its steadiness."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from experiments.calibration.cases import Case, Floats, log_ratios, simulate_case
from experiments.calibration.descent import Numbers, Residuals, cost_of
from experiments.step_time_file import EFFICIENCIES, with_numbers
from sim.config import SimConfig
from sim.step_time import RooflineStepTime

HAIR, STEADY = 1e-3, 3e-3                              # smooth residuals scatter by less than three hairs
AS_GOOD = 2.0


class Simulated:
    """ln(predicted / measured) of all cases as a function of the numbers."""

    def __init__(self, cases: Sequence[Case], sim: SimConfig, roofline: RooflineStepTime, allocator: str,
                 tell: Callable[[int], None]) -> None:
        self._cases, self._sim, self._roofline, self._allocator, self._tell = cases, sim, roofline, allocator, tell
        self._count = 0

    def __call__(self, numbers: Numbers) -> Floats:
        clock = with_numbers(self._roofline, numbers)
        ratios = [log_ratios(case.targets, simulate_case(case, self._sim, clock, self._allocator)) for case in self._cases]
        self._count += 1
        self._tell(self._count)
        return np.concatenate(ratios)


class Steadied:
    """Residuals that are computed once for each set of numbers, and count for less where they jump.

    Attributes
    ----------
    known : dict
        What was computed, by numbers.
    """

    def __init__(self, residuals: Residuals, weights: Floats | float = 1.0) -> None:
        self._residuals, self._weights = residuals, weights
        self._scale = np.sqrt(weights)
        self.known: dict[tuple[float, ...], Floats] = {}

    def __call__(self, numbers: Numbers) -> Floats:
        return self._raw(numbers) * self._scale

    def _raw(self, numbers: Numbers) -> Floats:
        key = tuple(numbers[name] for name in EFFICIENCIES)
        if key not in self.known:
            self.known[key] = self._residuals(numbers)
        return self.known[key]

    def as_good(self, found: Numbers, held: Sequence[str] = ()) -> list[Numbers]:
        """All numbers tried whose cost is at most twice as large, among those where the ``held`` ones are as found."""
        most = AS_GOOD * cost_of(self(found))
        tried = (dict(zip(EFFICIENCIES, key, strict=True)) for key in self.known)
        return [numbers for numbers in tried if all(numbers[name] == found[name] for name in held)
                and cost_of(self(numbers)) <= most]

    def steady_at(self, numbers: Numbers) -> None:
        """Measure the jumps around these numbers: the scatter of residuals when each number moves by 0.1 to 0.3 %.

        A smooth one scatters as little as the numbers move and keeps its weight, nearly; one that jumps by 1 % gets a twelfth.
        """
        near = [self._raw({**numbers, name: numbers[name] * (1 + sign * HAIR * (1 + place))})
                for place, name in enumerate(EFFICIENCIES) for sign in (1, -1)]
        steady = STEADY / np.sqrt(STEADY**2 + np.var(near, axis=0))
        self._scale = np.sqrt(self._weights) * steady
