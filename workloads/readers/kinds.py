"""What a CSV column may hold: how to read many of its fields at once, and one by its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.readers import fast_fields, times, values
from workloads.readers.fast_fields import Fields

Part = NDArray[Any]


def _never(fields: Fields) -> None:
    """No fast way."""


def whole_numbers(found: Sequence[Any]) -> Part:
    """A column of int64."""
    return np.array(found, np.int64)


def objects(found: Sequence[Any]) -> Part:
    """A column of Python objects, arrays among them."""
    column = np.empty(len(found), object)
    column[:] = found
    return column


@dataclass(frozen=True)
class Kind:
    """What a column holds.

    Parameters
    ----------
    fast : Fields -> int64 array or None
        Many fields at once; None if one is not plain.
    slow : str -> value
        One field by its text; ValueError with the reason.
    pack : values -> array
        What a block's values become.
    """

    fast: Callable[[Fields], Part | None]
    slow: Callable[[str], Any]
    pack: Callable[[Sequence[Any]], Part] = whole_numbers


def length(least: int = 0) -> Kind:
    """Token counts of at least ``least``."""
    return Kind(partial(fast_fields.lengths, least=least), partial(values.length_of_text, least=least))


def time_in(unit_exponent: int) -> Kind:
    """Numbers of 10**unit_exponent seconds; as nanoseconds where these hold them, else in units of 1e-40 s."""
    return Kind(partial(fast_fields.nanoseconds, unit_exponent=unit_exponent),
                partial(times.fine_stamp, unit_exponent=unit_exponent), objects)


def optional(kind: Kind) -> Kind:
    """The same, but a field may be empty: -1."""
    return Kind(kind.fast, lambda text: kind.slow(text) if text else -1, kind.pack)


CALENDAR_TIME = Kind(fast_fields.iso_ns, times.iso_ns)
COUNT = Kind(_never, values.count_of_text)
PRIORITY = Kind(_never, values.priority_of_text)
WHOLE = Kind(fast_fields.whole, values.whole_of_text)
TEXT = Kind(_never, str, objects)
IDS = Kind(_never, values.ids_of_text, objects)
UNITS = {"s": time_in(0), "ms": time_in(-3), "us": time_in(-6), "ns": time_in(-9), "iso": CALENDAR_TIME}
"""How a time may be written: by unit, or as a calendar time."""
