"""Values of a knob: a list, or a range written as a table.

    rate = [1, 2, 4]
    rate = {from = 1, to = 4, step = 0.5}                        every half
    max-model-len = {from = 4096, to = 65536, steps = 5, scale = "log"}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from workloads.messages import show
from workloads.request import InputError

MOST_VALUES = 10_000
MOST = 1e18
DIGITS = 6                                             # significant ones of a value on a logarithmic range
RANGE = ("from", "to", "step", "steps", "scale")
Scalar = bool | int | float | str


def read_values(value: object) -> tuple[Scalar, ...]:
    """The values a knob takes, in the order they are written, each once.

    Parameters
    ----------
    value : object
        From TOML: a list of booleans, numbers or strings, or a range.

    Raises
    ------
    InputError
        If there is none, one comes twice, or the range makes no sense; names the value, not the knob.

    >>> read_values([1, 2.5, "auto"]), read_values({"from": 0.1, "to": 0.5, "step": 0.1})
    ((1, 2.5, 'auto'), (0.1, 0.2, 0.3, 0.4, 0.5))
    >>> read_values({"from": 1000, "to": 8000, "steps": 4, "scale": "log"})
    (1000, 2000, 4000, 8000)
    """
    if isinstance(value, Mapping):
        values: Sequence[Any] = _range(value)
    elif isinstance(value, list):
        values = value
    else:
        raise InputError("a list such as [1, 2, 4] or a range such as {from = 1, to = 4, step = 1} is wanted, not "
                         f"{show(value)}")
    if not values:
        raise InputError("there is no value")
    for one in values:
        check_scalar(one)
    check_once(values)
    return tuple(values)


def check_scalar(value: object) -> None:
    """Raise InputError unless this is a boolean, a finite number or a string."""
    if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"a number, a text or true or false is wanted, not {show(value)}")


def same(a: object, b: object) -> bool:
    """Whether two values of a knob are one: 1 and 1.0 are, 1 and true are not.

    >>> same(1, 1.0), same(1, True)
    (True, False)
    """
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def check_once(values: Iterable[Scalar]) -> None:
    """Raise InputError, naming the value, if one is there twice.

    >>> check_once([1, True, 2, 1.0])
    Traceback (most recent call last):
    ...
    workloads.request.InputError: 1.0 comes twice
    """
    seen: set[tuple[bool, Scalar]] = set()
    for one in values:
        told = (isinstance(one, bool), one)            # as `same` tells them apart
        if told in seen:
            raise InputError(f"{show(one)} comes twice")
        seen.add(told)


def _range(table: Mapping[str, Any]) -> list[int | float]:
    unknown = [key for key in table if key not in RANGE]
    if unknown:
        raise InputError(f"unknown key {show(unknown[0])} in a range; the keys are {', '.join(RANGE)}")
    for key in ("from", "to", "step", "steps"):
        if key in table and (isinstance(table[key], bool) or not isinstance(table[key], int | float)
                             or not -MOST <= table[key] <= MOST):     # nor nan; a larger whole number is no float
            raise InputError(f"{key} of a range must be a number up to {MOST:g}, not {show(table[key])}")
    if "from" not in table or "to" not in table or ("step" in table) == ("steps" in table):
        raise InputError("a range needs from, to, and either step or steps")
    if table.get("scale", "linear") not in ("linear", "log"):
        raise InputError(f"scale of a range must be linear or log, not {show(table['scale'])}")
    return _stepped(table) if "step" in table else _spread(table)


def _stepped(table: Mapping[str, Any]) -> list[int | float]:
    """Exactly, in fractions of the decimal numbers: 0.1 + 0.1 + 0.1 is 0.3."""
    first, last, step = (Fraction(str(table[key])) for key in ("from", "to", "step"))
    if "scale" in table:
        raise InputError("a range with a step has no scale: steps is for that")
    if step == 0 or (last - first) / step < 0:
        raise InputError(f"a step of {show(table['step'])} does not lead from {show(table['from'])} to {show(table['to'])}")
    count = (last - first) // step + 1
    _check_count(count)
    whole = all(isinstance(table[key], int) for key in ("from", "step"))
    return [int(first + i * step) if whole else float(first + i * step) for i in range(count)]


def _spread(table: Mapping[str, Any]) -> list[int | float]:
    """``steps`` values from the first to the last, evenly or by equal factors; whole ones between whole ends."""
    first, last, steps = table["from"], table["to"], table["steps"]
    if not isinstance(steps, int) or steps < 2:
        raise InputError(f"steps of a range must be a whole number from 2, not {show(steps)}")
    _check_count(steps)
    whole = isinstance(first, int) and isinstance(last, int)
    if table.get("scale") == "log":
        if first <= 0 or last <= 0:
            raise InputError(f"a logarithmic range has ends above 0, not {show(min(first, last))}")
        factor = last / first
        values = [float(f"{first * factor ** (i / (steps - 1)):.{DIGITS}g}") for i in range(steps)]
    else:
        start, span = Fraction(str(first)), Fraction(str(last)) - Fraction(str(first))
        values = [float(start + span * i / (steps - 1)) for i in range(steps)]
    values[0], values[-1] = first, last
    rounded: list[int | float] = [round(value) if whole else value for value in values]
    return list(dict.fromkeys(rounded))


def _check_count(count: int) -> None:
    if count > MOST_VALUES:
        raise InputError(f"a range of {count:,} values is too long: at most {MOST_VALUES:,}")
