"""The fit: the three numbers of a roofline that make simulated latencies most like the measured ones.

Least squares of ln(predicted / measured) over the logarithms of the numbers, by a damped Gauss-Newton method whose every
evaluation is a simulation of all cases. Its slopes are taken over ever smaller distances: a queue is smooth from afar only.

    a grid of starts -> the best two go downhill -> the better one -> what do the measurements say about each number?

A measurement that jumps when the numbers move a hair (the TTFT of a few requests: where in a step they arrive decides) tells
little; the jumps are measured, and it counts for less. What the measurements say about each number is judged in `known`. The
same input gives the same bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from experiments.calibration.cases import Floats
from experiments.calibration.descent import Numbers, Residuals, cost_of, descend, explored
from experiments.calibration.known import Fitted, judged
from experiments.calibration.residuals import Steadied
from experiments.step_time_file import EFFICIENCIES

GRID = ((0.25, 0.55, 0.9), (0.12, 0.45), (300.0, 4000.0))
SOLVED = 1e-9                                          # cost below which the measurements are met: 0.005 % each


def fit(residuals: Residuals, default: Numbers, weights: Floats | float = 1.0, held: Mapping[str, str] | None = None) -> Fitted:
    """The numbers with the smallest cost, and what is known about them.

    Parameters
    ----------
    residuals : Numbers -> float64, shape (measurements,)
        ln(predicted / measured).
    default : dict
        The numbers that are kept where the measurements say nothing.
    weights : float64, shape (measurements,), or float
    held : mapping of name to remark, optional
        Numbers that keep their defaults, and why.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> truth = {"bandwidth_efficiency": 0.6, "flops_efficiency": 0.4, "overhead_us": 2000.0}
    >>> def residuals(numbers):
    ...     return np.array([math.log(numbers[name] / truth[name]) for name in EFFICIENCIES])
    >>> made = fit(residuals, {"bandwidth_efficiency": 0.8, "flops_efficiency": 0.5, "overhead_us": 1000.0})
    >>> {name: round(value, 3) for name, value in made.numbers.items()} == truth
    True
    """
    wanted, held = Steadied(residuals, weights), held or {}
    free = [name for name in EFFICIENCIES if name not in held]
    grid = (values if name in free else (default[name],) for name, values in zip(EFFICIENCIES, GRID, strict=True))
    starts = [default, *(dict(zip(EFFICIENCIES, values, strict=True)) for values in itertools.product(*grid))]
    best = sorted(starts, key=lambda start: cost_of(wanted(start)))[:2]
    found = min((descend(wanted, start, free) for start in best), key=lambda numbers: cost_of(wanted(numbers)))
    if cost_of(wanted(found)) > SOLVED:
        wanted.steady_at(found)
        found = descend(wanted, explored(wanted, found, free), free)
    return judged(wanted, default, found, held)
