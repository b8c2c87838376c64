"""How long prompts and outputs are: distributions of whole numbers of 1 or more, and how the two go together.

The same kinds say how many turns a chat has or how many documents a prompt gets: wherever a whole number is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import numpy as np

from workloads import profiles
from workloads.request import IntArray
from workloads.synth.draws import (
    MOST,
    Draw,
    DrawKey,
    FloatArray,
    PartsKey,
    Raw,
    check_order,
    lognormal,
    mix,
)
from workloads.synth.keys import MOST_TOKENS, Exponent, Number, Word, table_of

LENGTHS: dict[str, Callable[..., FloatArray]] = {}
_KEY = DrawKey(LENGTHS, Number(1, MOST_TOKENS, whole=True), 1.0, 1)

Tokens = Annotated[Draw, _KEY]
TokensOrNone = Annotated[Draw, DrawKey(LENGTHS, Number(0, MOST_TOKENS, whole=True), 1.0, 0)]
Parts = Annotated[tuple[tuple[float, Raw], ...], PartsKey(_KEY)]
LeastOrNone = Annotated[int, Number(0, MOST_TOKENS, whole=True)]
Least = Annotated[int, Number(1, MOST_TOKENS, whole=True)]
Mean = Annotated[float, Number(1.0, MOST)]
Name = Annotated[str, Word(profiles.profile_names)]
Column = Annotated[str, Word(lambda: ("prompt", "output"))]


def constant(rng: np.random.Generator, n: int, *, value: LeastOrNone) -> FloatArray:
    """Always ``value``.

    >>> constant(np.random.default_rng(0), 2, value=5)
    array([5., 5.])
    """
    return np.full(n, float(value))


def uniform(rng: np.random.Generator, n: int, *, least: LeastOrNone, most: Least) -> FloatArray:
    """Each whole number from ``least`` to ``most`` equally often.

    >>> sorted(set(uniform(np.random.default_rng(0), 99, least=2, most=4).tolist()))
    [2.0, 3.0, 4.0]
    """
    check_order(least, most)
    return rng.integers(least, most, n, endpoint=True).astype(np.float64)


def geometric(rng: np.random.Generator, n: int, *, mean: Mean, most: Least = MOST_TOKENS) -> FloatArray:
    """One, and one more with the same chance after each; more than ``most`` are `most`.

    >>> geometric(np.random.default_rng(0), 2, mean=1.0)
    array([1., 1.])
    """
    return np.minimum(rng.geometric(1.0 / mean, n), most).astype(np.float64)


def zipf(rng: np.random.Generator, n: int, *, exponent: Exponent, least: Least = 1, most: Least) -> FloatArray:
    """``x`` from ``least`` to ``most`` with a chance proportional to ``x ** -exponent``.

    >>> zipf(np.random.default_rng(0), 2, exponent=1.2, least=8, most=8)
    array([8., 8.])
    """
    check_order(least, most)
    return zipf_numbers(rng, n, exponent, least, most).astype(np.float64)


def profile(rng: np.random.Generator, n: int, *, name: Name, column: Column = "prompt") -> FloatArray:
    """Lengths of a public trace out of its quantile table, the prompts' or the outputs'.

    >>> bool(profile(np.random.default_rng(0), 9, name="sharegpt").min() >= 1)
    True
    """
    one = profiles.profile(name)
    return profiles.draw(one.output_table if column == "output" else one.prompt_table, rng.random(n)).astype(np.float64)


def mixture(rng: np.random.Generator, n: int, *, of: Parts) -> FloatArray:
    """Each length from one of several distributions, chosen by weight.

    >>> mixture(np.random.default_rng(0), 1, of=((1.0, lambda rng, n: np.full(n, 7.0)),))
    array([7.])
    """
    return mix(rng, n, of)


def of_outputs(value: object) -> object:
    """A description in which profiles mean their outputs where they do not say.

    >>> of_outputs({"kind": "profile", "name": "sharegpt"})
    {'kind': 'profile', 'name': 'sharegpt', 'column': 'output'}
    """
    if isinstance(value, list):
        return [of_outputs(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    column = {"column": "output"} if value.get("kind") == "profile" and "column" not in value else {}
    return {name: of_outputs(one) for name, one in value.items()} | column


class OutputKey(DrawKey):
    """Reads the lengths of outputs."""

    def read(self, value: object, where: str) -> Draw:
        """The draw; profiles mean their outputs."""
        return super().read(of_outputs(table_of(value, where)) if isinstance(value, str) else of_outputs(value), where)


OUTPUT = OutputKey(LENGTHS, _KEY.fixed, 1.0, 1)
Outputs = Annotated[Draw, OUTPUT]

LENGTHS.update({
    "constant": constant,
    "uniform": uniform,
    "geometric": geometric,
    "lognormal": lognormal,
    "zipf": zipf,
    "profile": profile,
    "mixture": mixture,
})


def zipf_numbers(rng: np.random.Generator, n: int, exponent: float, least: int, most: int) -> IntArray:
    """Whole numbers by Zipf's law; an exponent of 0 makes all equally likely.

    >>> zipf_numbers(np.random.default_rng(0), 2, 20.0, 1, 1000)
    array([1, 1])
    """
    sums = np.cumsum((np.arange(least, most + 1) / least) ** -exponent)
    places = np.searchsorted(sums, rng.random(n) * sums[-1], side="right").astype(np.int64)
    numbers: IntArray = np.minimum(places, most - least) + least
    return numbers


def correlate(rng: np.random.Generator, prompt: IntArray, output: IntArray, correlation: float) -> IntArray:
    """The same outputs dealt out anew, so that their ranks go with the ranks of the prompts.

    A Gaussian copula: prompts are turned into normal scores, mixed with noise, and the k-th least output goes to the k-th
    least sum. Both marginals stay what they are, to the last request; equal lengths are put in a random order.

    Parameters
    ----------
    prompt, output : int64, shape (requests,)
    correlation : float
        Spearman's rank correlation, -1 to 1, of lengths that are all different; equal ones bring it nearer to 0.

    Raises
    ------
    ValueError
        If the correlation is not from -1 to 1.

    >>> correlate(np.random.default_rng(0), np.array([3, 1, 2]), np.array([10, 20, 30]), -1.0)
    array([10, 30, 20])
    """
    if not -1 <= correlation <= 1:
        raise ValueError(f"a correlation is from -1 to 1, not {correlation}")
    # of normals with that Spearman correlation; the sine of 30 degrees is not quite a half
    pearson = correlation if abs(correlation) == 1 else 2 * np.sin(np.pi * correlation / 6)
    scores = np.empty(len(prompt))
    scores[np.lexsort((rng.random(len(prompt)), prompt))] = np.sort(rng.standard_normal(len(prompt)))
    mixed = pearson * scores + np.sqrt(max(1 - pearson**2, 0.0)) * rng.standard_normal(len(prompt))
    dealt = np.empty_like(output)
    dealt[np.argsort(mixed, kind="stable")] = np.sort(output)
    return dealt
