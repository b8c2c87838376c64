"""Downhill over the logarithms of the three numbers, within bounds: Gauss-Newton with damping, and a walk along the valley."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from experiments.calibration.cases import Floats

BOUNDS = {"bandwidth_efficiency": (0.005, 4.0), "flops_efficiency": (0.002, 4.0), "overhead_us": (1.0, 1e7)}
STEPS, LONGEST_STEP = (0.05, 0.01), 1.0                # in logarithms: 5 %, 1 %, and a factor of e
ITERATIONS, ATTEMPTS = 8, 4
EXPLORED, MOST_ROUNDS = (0.3, 0.1, 0.03, 0.01), 3
Numbers = dict[str, float]
Residuals = Callable[[Numbers], Floats]


def cost_of(residuals: Floats) -> float:
    """Half the sum of squares.

    >>> cost_of(np.array([1.0, 2.0]))
    2.5
    """
    return float(residuals @ residuals) / 2


def descend(residuals: Residuals, start: Numbers, free: Sequence[str]) -> Numbers:
    """Downhill with slopes over each of `STEPS`."""
    for step in STEPS:
        start = _downhill(residuals, start, free, step)
    return start


def explored(residuals: Residuals, numbers: Numbers, free: Sequence[str]) -> Numbers:
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
