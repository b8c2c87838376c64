"""How long people think and tools run: distributions in seconds, drawn as whole microseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np

from workloads.synth.draws import MOST, Amount, Draw, DrawKey, FloatArray, PartsKey, Positive, Raw, check_order, lognormal, mix
from workloads.synth.keys import Number

SECONDS: dict[str, Callable[..., FloatArray]] = {}
_KEY = DrawKey(SECONDS, Number(0.0, MOST), 1e6, 0)

Seconds = Annotated[Draw, _KEY]
Parts = Annotated[tuple[tuple[float, Raw], ...], PartsKey(_KEY)]


def constant(rng: np.random.Generator, n: int, *, value: Amount) -> FloatArray:
    """Always ``value`` seconds.

    >>> constant(np.random.default_rng(0), 2, value=0.5)
    array([0.5, 0.5])
    """
    return np.full(n, float(value))


def uniform(rng: np.random.Generator, n: int, *, least: Amount, most: Amount) -> FloatArray:
    """Evenly between ``least`` and ``most``.

    >>> bool((uniform(np.random.default_rng(0), 9, least=2.0, most=3.0) >= 2).all())
    True
    """
    check_order(least, most)
    return rng.uniform(least, most, n)


def exponential(rng: np.random.Generator, n: int, *, mean: Positive, most: Positive = MOST) -> FloatArray:
    """Exponential; what is longer than ``most`` takes `most`.

    >>> bool((exponential(np.random.default_rng(0), 99, mean=2.0, most=3.0) <= 3).all())
    True
    """
    return np.minimum(rng.exponential(mean, n), most)


def mixture(rng: np.random.Generator, n: int, *, of: Parts) -> FloatArray:
    """Each from one of several distributions, chosen by weight.

    >>> mixture(np.random.default_rng(0), 1, of=((1.0, lambda rng, n: np.full(n, 7.0)),))
    array([7.])
    """
    return mix(rng, n, of)


SECONDS.update({
    "constant": constant,
    "uniform": uniform,
    "exponential": exponential,
    "lognormal": lognormal,
    "mixture": mixture,
})
