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
from experiments.step_time_file import EFFICIENCIES, with_numbers
from sim.config import SimConfig
from sim.step_time import RooflineStepTime

BOUNDS = {"bandwidth_efficiency": (0.005, 4.0), "flops_efficiency": (0.002, 4.0), "overhead_us": (1.0, 1e7)}
GRID = ((0.25, 0.55, 0.9), (0.12, 0.45), (300.0, 4000.0))
GIVEN_UP_FIRST = ("overhead_us", "flops_efficiency")
STEPS, LONGEST_STEP = (0.05, 0.01), 1.0                # in logarithms: 5 %, 1 %, and a factor of e
WIDE = 0.2                                             # over which it is judged what the measurements say: jumps fade there
ITERATIONS, ATTEMPTS = 8, 4
HAIR, STEADY = 1e-3, 3e-3                              # smooth residuals scatter by less than three hairs
AS_GOOD = 2.0
SOLVED = 1e-9                                          # cost below which the measurements are met: 0.005 % each
EXPLORED, MOST_ROUNDS = (0.3, 0.1, 0.03, 0.01), 3
NO_EFFECT, ALIKE = 1e-3, 0.02                          # of a unit change in the logarithm; sine of the angle between effects
PART = 0.2                                             # who takes part in a trade: the share of a unit change
Numbers = dict[str, float]
Residuals = Callable[[Numbers], Floats]


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


def cost_of(residuals: Floats) -> float:
    """Half the sum of squares.

    >>> cost_of(np.array([1.0, 2.0]))
    2.5
    """
    return float(residuals @ residuals) / 2


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
    found = min((_descend(wanted, start, EFFICIENCIES) for start in best), key=lambda numbers: cost_of(wanted(numbers)))
    if cost_of(wanted(found)) > SOLVED:
        wanted.steady_at(found)
        found = _descend(wanted, _explored(wanted, found, EFFICIENCIES), EFFICIENCIES)
    return _judged(wanted, default, found)


# ---------------------------------------------------------------------- downhill
def _descend(residuals: Residuals, start: Numbers, free: Sequence[str]) -> Numbers:
    """Downhill with slopes over each of `STEPS`."""
    for step in STEPS:
        start = _downhill(residuals, start, free, step)
    return start


def _explored(residuals: Residuals, numbers: Numbers, free: Sequence[str]) -> Numbers:
    """Ever smaller steps along the axes of the valley, the flattest first, as long as they go down.

    Where queues make the ground rough, slopes end in the first hole; the valley is longer than that.
    """
    effects = jacobian(residuals, numbers, free)
    axes = np.linalg.eigh(effects.T @ effects)[1].T
    for length in EXPLORED:
        for _ in range(MOST_ROUNDS):
            tried = [_moved(numbers, free, sign * length * axis) for axis in axes for sign in (1, -1)]
            best = min(tried, key=lambda each: cost_of(residuals(each)))
            if cost_of(residuals(best)) >= cost_of(residuals(numbers)):
                break
            numbers = best
    return numbers


def _downhill(residuals: Residuals, start: Numbers, free: Sequence[str], width: float) -> Numbers:
    """Levenberg's method with Marquardt's scaling over the logarithms of the ``free`` numbers, within `BOUNDS`."""
    numbers, damping = start, 1e-3
    for _ in range(ITERATIONS):
        before = residuals(numbers)
        effects = jacobian(residuals, numbers, free, width)
        pull = effects.T @ before
        movable = np.array([not _leaves(numbers[name], name, -slope) for name, slope in zip(free, pull, strict=True)])
        if not movable.any() or not len(before):
            break
        better = None
        for _ in range(ATTEMPTS):
            step = np.zeros(len(free))
            step[movable] = _step(effects[:, movable], pull[movable], damping)
            tried = _moved(numbers, free, step)
            if cost_of(residuals(tried)) < cost_of(before):
                better, damping = tried, max(damping / 10, 1e-9)
                break
            damping = min(damping * 10, 1e6)
        if better is None:
            break
        numbers = better
        if np.abs(step).max() < 1e-5 or cost_of(residuals(numbers)) < 1e-13:
            break
    return numbers


def jacobian(residuals: Residuals, numbers: Numbers, free: Sequence[str], width: float = STEPS[0]) -> Floats:
    """Change of each residual with the logarithm of each number, by central differences; shape (residuals, numbers)."""
    columns = []
    for name in free:
        ends = [residuals({**numbers, name: numbers[name] * math.exp(sign * width)}) for sign in (-1, 1)]
        columns.append((ends[1] - ends[0]) / (2 * width))
    return np.stack(columns, axis=1)


def _step(effects: Floats, pull: Floats, damping: float) -> Floats:
    normal = effects.T @ effects
    scale = np.diag(normal) + 1e-9 * max(float(np.trace(normal)), 1e-30)
    step: Floats = -np.linalg.solve(normal + damping * np.diag(scale) + np.diag(np.full(len(scale), 1e-30)), pull)
    return np.clip(step, -LONGEST_STEP, LONGEST_STEP)


def _moved(numbers: Numbers, free: Sequence[str], step: Floats) -> Numbers:
    moved = dict(numbers)
    for name, by in zip(free, step.tolist(), strict=True):
        low, high = BOUNDS[name]
        moved[name] = min(max(numbers[name] * math.exp(by), low), high)
    return moved


def _leaves(value: float, name: str, direction: float) -> bool:
    low, high = BOUNDS[name]
    return (value <= low and direction < 0) or (value >= high and direction > 0)


# ---------------------------------------------------------------------- what is known
def _judged(residuals: Steadied, default: Numbers, found: Numbers) -> Fitted:
    """Numbers that the measurements say nothing about go back to their defaults; the rest gets its standard errors."""
    remarks: dict[str, str] = {}
    free = list(EFFICIENCIES)
    effects = jacobian(residuals, found, free, WIDE)
    for name, column in zip(EFFICIENCIES, effects.T, strict=True):
        if np.linalg.norm(column) < NO_EFFECT:
            free.remove(name)
            found = _without(residuals, default, found, name, remarks)
    while free and (culprit := _alike(jacobian(residuals, found, free, WIDE), free)):
        free.remove(culprit)
        remarks[culprit] = ("cannot be told apart from the others by these measurements: it keeps its default; more lengths, or "
                            "more requests at once, would tell")
        found = {**found, culprit: default[culprit]}
        found = _descend(residuals, found, free) if free else found
    for name in free:
        low, high = BOUNDS[name]
        if found[name] <= low * (1 + 1e-9) or found[name] >= high * (1 - 1e-9):
            remarks[name] = "at the bound of what is tried: this roofline does not describe these measurements"
        elif name != "overhead_us" and found[name] > 1:
            remarks[name] = ("above 1: more than the data sheet's peak; is the model, its quantisation, the GPU or the number of "
                             "GPUs another one?")
    errors = _uncertain(residuals, found, free)
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
