"""A draw is a distribution ready to be sampled: ``draw(rng, n)`` gives n whole numbers, tokens or microseconds.

In a table it is a number (always that), a table with a kind, or its short form in a string:

    system_tokens = 256
    turns = {kind = "geometric", mean = 4}
    think_s = "lognormal:mean=20,sigma=1"

Generators return floats in the unit of the table; `Rounded` makes whole numbers of the unit of the trace out of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from workloads.request import InputError, IntArray
from workloads.synth.keys import Number, display, pick, table_of, told

FloatArray: TypeAlias = NDArray[np.float64]
Raw: TypeAlias = Callable[[np.random.Generator, int], FloatArray]
MOST = 10_000_000.0                                    # tokens, or seconds: 115 days
MOST_PARTS = 100

Amount = Annotated[float, Number(0.0, MOST)]
Positive = Annotated[float, Number(0.0, MOST, above=True)]
PositiveOrNone = Annotated[float | None, Number(0.0, MOST, above=True)]
Sigma = Annotated[float, Number(0.0, 10.0)]


class Draw(Protocol):
    """A distribution of whole numbers."""

    def __call__(self, rng: np.random.Generator, n: int, /) -> IntArray:
        """int64, shape (n,)."""


@dataclass(frozen=True)
class Fixed:
    """Always the same whole number.

    >>> Fixed(7)(np.random.default_rng(0), 2)
    array([7, 7])
    """

    value: int

    def __call__(self, rng: np.random.Generator, n: int) -> IntArray:
        return np.full(n, self.value, dtype=np.int64)


@dataclass(frozen=True)
class Rounded:
    """A generator's floats times ``scale``, rounded half to even and never below ``least``."""

    raw: Raw
    scale: float
    least: int

    def __call__(self, rng: np.random.Generator, n: int) -> IntArray:
        return np.maximum(np.rint(self.raw(rng, n) * self.scale).astype(np.int64), self.least)


@dataclass(frozen=True)
class DrawKey:
    """Reads a draw. ``fixed`` is what a plain number may be; ``kinds`` may still grow when the key is made."""

    kinds: Mapping[str, Callable[..., Any]] = field(hash=False)
    fixed: Number
    scale: float
    least: int

    def read(self, value: object, where: str) -> Draw:
        """The draw, tried once on nothing, so that keys that do not go together are told before anything is drawn."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return Fixed(round(self.fixed.read(value, where) * self.scale))
        return Rounded(self.raw(value, where), self.scale, self.least)

    def raw(self, value: object, where: str) -> Raw:
        """The generator a table or a string describes, unrounded."""
        if not isinstance(value, (str, Mapping)):
            raise InputError(f"{where}: must be a number or a table with a kind, not {display(value)}")
        generator: Raw = pick(self.kinds, value, where)
        told(where, generator, np.random.default_rng(0), 0)
        return generator


@dataclass(frozen=True)
class PartsKey:
    """Reads the parts of a mixture: a list of tables, each a distribution with its weight."""

    part: DrawKey

    def read(self, value: object, where: str) -> tuple[tuple[float, Raw], ...]:
        """Weight and generator of each part."""
        if not isinstance(value, list) or not 1 <= len(value) <= MOST_PARTS:
            raise InputError(f"{where}: must be a list of 1 to {MOST_PARTS} tables, not {display(value)}")
        return tuple(self._part(one, f"{where}[{place}]") for place, one in enumerate(value))

    def _part(self, value: object, where: str) -> tuple[float, Raw]:
        table = table_of(value, where)
        if "weight" not in table:
            raise InputError(f"{where}: needs the key 'weight'")
        weight = Number(0.0, 1e12, above=True).read(table.pop("weight"), f"{where}.weight")
        return weight, self.part.raw(table, where)


def lognormal(
    rng: np.random.Generator,
    n: int,
    *,
    mean: PositiveOrNone = None,
    median: PositiveOrNone = None,
    sigma: Sigma,
    least: Amount = 0.0,
    most: Positive = MOST,
) -> FloatArray:
    """Lognormal, given by its mean or its median and the standard deviation of the logarithm.

    What falls outside ``least`` to ``most`` is put on the nearer limit; `mean` and `median` are those before.

    Raises
    ------
    ValueError
        Unless exactly one of mean and median is given, and least is at most `most`.

    >>> lognormal(np.random.default_rng(0), 2, median=50.0, sigma=0.0)
    array([50., 50.])
    """
    if (mean is None) == (median is None):
        raise ValueError("a lognormal needs its mean or its median, one of the two")
    check_order(least, most)
    centre = np.log(median) if median is not None else np.log(mean or 1.0) - sigma**2 / 2
    drawn: FloatArray = np.exp(centre + sigma * rng.standard_normal(n))
    return np.clip(drawn, least, most)


def check_order(least: float, most: float) -> None:
    """Raise where no number is from least to most."""
    if least > most:
        raise ValueError(f"least is {least:,} and most is {most:,}: nothing is between them")


def mix(rng: np.random.Generator, n: int, parts: tuple[tuple[float, Raw], ...]) -> FloatArray:
    """Each number from one of the parts, chosen by weight.

    >>> sorted(set(mix(np.random.default_rng(0), 50, ((3.0, Fixed(1)), (1.0, Fixed(9)))).tolist()))
    [1.0, 9.0]
    """
    shares = np.cumsum([weight for weight, _ in parts])
    chosen = np.searchsorted(shares, rng.random(n) * shares[-1], side="right")
    mixed = np.zeros(n)
    for number, (_, raw) in enumerate(parts):
        rows = np.flatnonzero(chosen == number)
        mixed[rows] = raw(rng, len(rows))
    return mixed
