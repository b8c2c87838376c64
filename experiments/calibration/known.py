"""What the measurements say about each fitted number, and how far off it may be.

    changes nothing               keeps its default, or is only bounded
    can be traded for another     held at its default (the overhead, else the FLOPs efficiency), and the others fitted again
    ends at the edge              held there
    the others                    one standard error of the problem without those that are held

A number that is held has no error of its own, and the others have one that holds only while it is as it is held: where they
would follow it, that is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.calibration.cases import Floats
from experiments.calibration.descent import BOUNDS, Numbers, Residuals, cost_of, descend, jacobian
from experiments.calibration.residuals import Steadied
from experiments.step_time_file import EFFICIENCIES

GIVEN_UP_FIRST = ("overhead_us", "flops_efficiency")
WIDE = 0.2                                             # over which it is judged what the measurements say: jumps fade there
NO_EFFECT, ALIKE = 1e-3, 0.02                          # of a unit change in the logarithm; sine of the angle between effects
PART = 0.2                                             # who takes part in a trade: the share of a unit change
FOLLOWS = 0.02                                         # a number depends on a held one if a factor of e there moves it by 2 %
SAID = {"overhead_us": "the fixed time of a step, us,", "flops_efficiency": "the share of the peak FLOP/s",
        "bandwidth_efficiency": "the share of the bandwidth"}
UNTOLD = ("cannot be told apart from the others by these measurements: it keeps its default; more lengths, or more requests at "
          "once, would tell")
AT_EDGE = "at the {} value that is tried, {:g}: this roofline does not describe these measurements"
ABOVE_1 = "above 1: more than the data sheet's peak; is the model, its quantisation, the GPU or the number of GPUs another one?"
NONE_LEFT = "no +-: no more measurements than numbers, so nothing is left over to judge by"


@dataclass(frozen=True)
class Fitted:
    """What came of it.

    Parameters
    ----------
    numbers : dict
        By name in `EFFICIENCIES`.
    errors : dict
        How far off each number may be while those that are held are right: one standard error, or the distance of the furthest
        numbers tried that are nearly as good (at most twice the cost), whichever is larger; None where it is not known or the
        number was held.
    remarks : dict
        What is to be said about a number, where there is something.
    cost : float
        Half the weighted sum of squares.
    simulations : int
        Evaluations of all cases.
    edges : dict
        "smallest" or "largest" of each number that ended at this edge of `BOUNDS`.
    """

    numbers: Numbers
    errors: dict[str, float | None]
    remarks: dict[str, str] = field(default_factory=dict)
    cost: float = 0.0
    simulations: int = 0
    edges: dict[str, str] = field(default_factory=dict)


def judged(residuals: Steadied, default: Numbers, found: Numbers, held: Mapping[str, str]) -> Fitted:
    """Numbers that the measurements say nothing about go back to their defaults; the rest gets its errors.

    Parameters
    ----------
    residuals : Steadied
    default, found : dict
        By name in `EFFICIENCIES`.
    held : mapping of name to remark
        Numbers that were not to be fitted, and why.
    """
    remarks = dict(held)
    found, free, given_up = _told(residuals, default, found, remarks)
    edges = {name: edge for name in EFFICIENCIES if name in free or found[name] != default[name]
             if (edge := edge_of(name, found[name]))}
    for name in free:
        if name in edges:
            remarks[name] = AT_EDGE.format(edges[name], found[name])
        elif name != "overhead_us" and found[name] > 1:
            remarks[name] = ABOVE_1
    known = [name for name in free if name not in edges]
    fixed = [*held, *given_up, *(name for name in free if name in edges)]
    errors = uncertain(residuals, found, known, fixed)
    for name, about in _about(residuals, found, known, fixed, errors).items():
        remarks[name] = "; ".join([*([remarks[name]] if name in remarks else []), *about])
    return Fitted(found, dict.fromkeys(EFFICIENCIES) | errors, remarks, cost_of(residuals(found)), len(residuals.known), edges)


def edge_of(name: str, value: float) -> str | None:
    """Which edge of its range in `BOUNDS` a number is at; None if at neither.

    >>> edge_of("flops_efficiency", 4.0), edge_of("overhead_us", 1.0), edge_of("overhead_us", 2.0)
    ('largest', 'smallest', None)
    """
    low, high = BOUNDS[name]
    return "smallest" if value <= low * (1 + 1e-9) else "largest" if value >= high * (1 - 1e-9) else None


# ---------------------------------------------------------------------- what is given up
def _told(residuals: Steadied, default: Numbers, found: Numbers, remarks: dict[str, str],
          ) -> tuple[Numbers, list[str], list[str]]:
    """The numbers, which of them the measurements tell, and which had to be given up; who is no longer free gets its remark."""
    free, given_up = [name for name in EFFICIENCIES if name not in remarks], []
    while free:
        effects = jacobian(residuals, found, free, WIDE)
        idle = next((name for name, column in zip(free, effects.T, strict=True) if np.linalg.norm(column) < NO_EFFECT), None)
        culprit = _alike(effects, free) if idle is None else None
        if idle is not None:
            free.remove(idle)
            found = _without(residuals, default, found, idle, remarks)
        elif culprit is not None:
            free.remove(culprit)
            given_up.append(culprit)
            remarks[culprit] = UNTOLD
            found = {**found, culprit: default[culprit]}
            found = descend(residuals, found, free) if free else found
        else:
            break
    return found, free, given_up


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


# ---------------------------------------------------------------------- how far off
def uncertain(residuals: Steadied, found: Numbers, free: Sequence[str], held: Sequence[str] = ()) -> dict[str, float | None]:
    """`Fitted.errors` of the ``free`` numbers, the ``held`` ones being as they are; None where nothing is left over.

    The standard error is the usual one or White's (each residual with its own variance), the larger.
    """
    left = residuals(found)
    if not free or len(left) <= len(free):
        return dict.fromkeys(free)
    effects = jacobian(residuals, found, free, WIDE)
    inverse = np.linalg.pinv(effects.T @ effects)
    spare = len(left) - len(free)
    scatter = (effects * left[:, None] ** 2).T @ effects * (len(left) / spare)
    variance = np.maximum(np.diag(inverse @ scatter @ inverse), np.diag(inverse) * float(left @ left) / spare)
    others = residuals.as_good(found, held)
    return {name: max(found[name] * math.sqrt(max(float(v), 0.0)), *(abs(other[name] - found[name]) for other in others))
            for name, v in zip(free, variance, strict=True)}


def _about(residuals: Steadied, found: Numbers, free: Sequence[str], held: Sequence[str], errors: Mapping[str, float | None],
           ) -> dict[str, list[str]]:
    """What is to be said about each error: on what it rests, that it is large, why there is none."""
    made = {}
    for name, moves in zip(free, _follow(residuals, found, free, held), strict=True):
        error = errors[name]
        rests = [f"{SAID[other]} is {found[other]:g}" for other, by in zip(held, moves, strict=True) if abs(by) > FOLLOWS]
        about = [f"if {' and '.join(rests)}"] if rests else []
        about += [NONE_LEFT] if error is None else []
        about += ["hardly known: it may be off by more than itself"] if error is not None and error > found[name] else []
        if about:
            made[name] = about
    return made


def _follow(residuals: Steadied, found: Numbers, free: Sequence[str], held: Sequence[str]) -> Floats:
    """How far each free number would move (in logarithms) if a held one moved by a factor of e; shape (free, held)."""
    if not free or not held:
        return np.zeros((len(free), len(held)))
    effects = jacobian(residuals, found, [*free, *held], WIDE)
    moves: Floats = -np.linalg.pinv(effects[:, :len(free)]) @ effects[:, len(free):]
    return moves
