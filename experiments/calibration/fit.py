"""The fit: the three numbers of a roofline that make simulated latencies most like the measured ones.

Least squares of ln(predicted / measured) over the logarithms of the numbers, by a damped Gauss-Newton method whose every
evaluation is a simulation of all cases. Its slopes are taken over ever smaller distances: a queue is smooth from afar only.

    a grid of starts -> the best two go downhill -> the better one -> what do the measurements say about each number?

A measurement that jumps when the numbers move a hair (the TTFT of a few requests: where in a step they arrive decides) tells
little; the jumps are measured, and it counts for less. A number that changes nothing keeps its default. Two that can be traded
for each other cannot both be known: then the overhead keeps its default, and if that is not enough the FLOPs efficiency. The
same input gives the same bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.calibration.cases import Case, Floats, log_ratios, simulate_case
from experiments.calibration.descent import BOUNDS, Numbers, Residuals, cost_of, descend, explored, jacobian
from experiments.step_time_file import EFFICIENCIES, with_numbers
from sim.config import SimConfig
from sim.step_time import RooflineStepTime

GRID = ((0.25, 0.55, 0.9), (0.12, 0.45), (300.0, 4000.0))
GIVEN_UP_FIRST = ("overhead_us", "flops_efficiency")
WIDE = 0.2                                             # over which it is judged what the measurements say: jumps fade there
HAIR, STEADY = 1e-3, 3e-3                              # smooth residuals scatter by less than three hairs
AS_GOOD = 2.0
SOLVED = 1e-9                                          # cost below which the measurements are met: 0.005 % each
NO_EFFECT, ALIKE = 1e-3, 0.02                          # of a unit change in the logarithm; sine of the angle between effects
SAID = {"overhead_us": "the fixed time of a step, us,", "flops_efficiency": "the share of the peak FLOP/s",
        "bandwidth_efficiency": "the share of the bandwidth"}
PART = 0.2                                             # who takes part in a trade: the share of a unit change


@dataclass(frozen=True)
class Fitted:
    """What came of it.

    Parameters
    ----------
    numbers : dict
        By name in `EFFICIENCIES`.
    errors : dict
        How far off each number may be: one standard error, or the distance of the furthest numbers tried that are nearly as good
        (at most twice the cost), whichever is larger; None where it is not known or was not fitted.
    remarks : dict
        What is to be said about a number, where there is something.
    cost : float
        Half the weighted sum of squares.
    simulations : int
        Evaluations of all cases.
    """

    numbers: Numbers
    errors: dict[str, float | None]
    remarks: dict[str, str] = field(default_factory=dict)
    cost: float = 0.0
    simulations: int = 0


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

    def as_good(self, found: Numbers) -> list[Numbers]:
        """All numbers tried whose cost is at most twice as large."""
        most = AS_GOOD * cost_of(self(found))
        return [dict(zip(EFFICIENCIES, key, strict=True)) for key, ratios in self.known.items()
                if cost_of(ratios * self._scale) <= most]

    def steady_at(self, numbers: Numbers) -> None:
        """Measure the jumps around these numbers: the scatter of residuals when each number moves by 0.1 to 0.3 %.

        A smooth one scatters as little as the numbers move and keeps its weight, nearly; one that jumps by 1 % gets a twelfth.
        """
        near = [self._raw({**numbers, name: numbers[name] * (1 + sign * HAIR * (1 + place))})
                for place, name in enumerate(EFFICIENCIES) for sign in (1, -1)]
        steady = STEADY / np.sqrt(STEADY**2 + np.var(near, axis=0))
        self._scale = np.sqrt(self._weights) * steady


def fit(residuals: Residuals, default: Numbers, weights: Floats | float = 1.0) -> Fitted:
    """The numbers with the smallest cost, and what is known about them.

    Parameters
    ----------
    residuals : Numbers -> float64, shape (measurements,)
        ln(predicted / measured).
    default : dict
        The numbers that are kept where the measurements say nothing.
    weights : float64, shape (measurements,), or float

    Examples
    --------
    >>> truth = {"bandwidth_efficiency": 0.6, "flops_efficiency": 0.4, "overhead_us": 2000.0}
    >>> def residuals(numbers):
    ...     return np.array([math.log(numbers[name] / truth[name]) for name in EFFICIENCIES])
    >>> made = fit(residuals, {"bandwidth_efficiency": 0.8, "flops_efficiency": 0.5, "overhead_us": 1000.0})
    >>> {name: round(value, 3) for name, value in made.numbers.items()} == truth
    True
    """
    wanted = Steadied(residuals, weights)
    starts = [default, *(dict(zip(EFFICIENCIES, values, strict=True)) for values in itertools.product(*GRID))]
    best = sorted(starts, key=lambda start: cost_of(wanted(start)))[:2]
    found = min((descend(wanted, start, EFFICIENCIES) for start in best), key=lambda numbers: cost_of(wanted(numbers)))
    if cost_of(wanted(found)) > SOLVED:
        wanted.steady_at(found)
        found = descend(wanted, explored(wanted, found, EFFICIENCIES), EFFICIENCIES)
    return _judged(wanted, default, found)


# ---------------------------------------------------------------------- what is known
def _judged(residuals: Steadied, default: Numbers, found: Numbers) -> Fitted:
    """Numbers that the measurements say nothing about go back to their defaults; the rest gets its standard errors."""
    remarks: dict[str, str] = {}
    free, traded = list(EFFICIENCIES), []
    effects = jacobian(residuals, found, free, WIDE)
    for name, column in zip(EFFICIENCIES, effects.T, strict=True):
        if np.linalg.norm(column) < NO_EFFECT:
            free.remove(name)
            found = _without(residuals, default, found, name, remarks)
    while free and (culprit := _alike(jacobian(residuals, found, free, WIDE), free)):
        free.remove(culprit)
        traded.append(f"{SAID[culprit]} is {default[culprit]:g}")
        remarks[culprit] = ("cannot be told apart from the others by these measurements: it keeps its default; more lengths, or "
                            "more requests at once, would tell")
        found = {**found, culprit: default[culprit]}
        found = descend(residuals, found, free) if free else found
    for name in free:
        low, high = BOUNDS[name]
        if found[name] <= low * (1 + 1e-9) or found[name] >= high * (1 - 1e-9):
            remarks[name] = "at the bound of what is tried: this roofline does not describe these measurements"
        elif name != "overhead_us" and found[name] > 1:
            remarks[name] = ("above 1: more than the data sheet's peak; is the model, its quantisation, the GPU or the number of "
                             "GPUs another one?")
    errors: dict[str, float | None] = dict.fromkeys(EFFICIENCIES) if traded else _uncertain(residuals, found, free)
    for name in free if traded else ():                # how far off it is depends on a number that nobody measured
        remarks.setdefault(name, f"if {' and '.join(traded)}")
    for name, error in errors.items():
        if error is not None and error > found[name]:
            remarks.setdefault(name, "hardly known: it may be off by more than itself")
    return Fitted(found, errors, remarks, cost_of(residuals(found)), len(residuals.known))


def _without(residuals: Residuals, default: Numbers, found: Numbers, name: str, remarks: dict[str, str]) -> Numbers:
    """A number without effect near what was found: the default, if that has none either."""
    plain = {**found, name: default[name]}
    if cost_of(residuals(plain)) <= cost_of(residuals(found)) * (1 + 1e-6) + 1e-9:
        remarks[name] = "not identified: nothing that was measured depends on it, so it keeps its default"
        return plain
    remarks[name] = "only bounded: this or any larger value fits as well" if name != "overhead_us" \
        else "only bounded: this or any smaller value fits as well"
    return found


def _alike(effects: Floats, free: Sequence[str]) -> str | None:
    """Who is to be given up, where there are too few measurements or two numbers do the same; None if none."""
    if len(free) < 2:
        return None
    unit = effects / np.maximum(np.linalg.norm(effects, axis=0), 1e-30)
    _, sizes, axes = np.linalg.svd(unit, full_matrices=True)
    if len(effects) >= len(free) and sizes[-1] >= ALIKE:
        return None
    traded = [name for name, part in zip(free, axes[-1], strict=True) if abs(part) > PART]
    return next((name for name in GIVEN_UP_FIRST if name in traded), None)


def _uncertain(residuals: Steadied, found: Numbers, free: Sequence[str]) -> dict[str, float | None]:
    """See `Fitted.errors`; the standard error is the usual one or White's (each residual with its own variance), the larger."""
    errors: dict[str, float | None] = dict.fromkeys(EFFICIENCIES)
    left = residuals(found)
    if not free or len(left) <= len(free):
        return errors
    effects = jacobian(residuals, found, free, WIDE)
    inverse = np.linalg.pinv(effects.T @ effects)
    scatter = (effects * left[:, None] ** 2).T @ effects * (len(left) / (len(left) - len(free)))
    usual = np.diag(inverse) * float(left @ left) / (len(left) - len(free))
    variance = np.maximum(np.diag(inverse @ scatter @ inverse), usual)
    others = residuals.as_good(found)
    return errors | {name: max(found[name] * math.sqrt(max(float(v), 0.0)), *(abs(other[name] - found[name]) for other in others))
                     for name, v in zip(free, variance, strict=True)}
