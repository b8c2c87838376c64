"""What several seeds say: means with confidence intervals, one-sided bounds, paired differences.

Runs with different seeds are independent, so the mean of a measure over n seeds lies within t x s / sqrt(n) of the true one, with
Student's t of n - 1 degrees of freedom. Two scenarios under the same seeds see the same traffic (common random numbers): their
difference is taken seed by seed, and what the traffic did to both falls out.

The t distribution is the finite sum of Abramowitz and Stegun, 26.7.3 and 26.7.4, for whole degrees of freedom; its quantile is
found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import mean, stdev  # exact, and rounded once

Value = float | int | None


# ---------------------------------------------------------------------- Student's t
def t_within(t: float, degrees: int) -> float:
    """Probability that Student's t lies between ``-t`` and ``t`` (Abramowitz and Stegun 26.7.3, 26.7.4).

    Parameters
    ----------
    t : float
        0 or more.
    degrees : int
        Degrees of freedom, 1 or more.

    >>> t_within(1.0, 1), round(t_within(2.228138852, 10), 9)
    (0.5, 0.95)
    """
    return _within(math.atan(t / math.sqrt(degrees)), degrees)


def _within(angle: float, degrees: int) -> float:
    sine, squared = math.sin(angle), math.cos(angle) ** 2
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(degrees // 2):
        total += term
        term *= squared * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@lru_cache(maxsize=1024)
def t_quantile(probability: float, degrees: int) -> float:
    """The value that Student's t does not exceed with this probability.

    Parameters
    ----------
    probability : float
        Between 0 and 1, one-sided: 0.975 gives the factor of a 95 % interval.
    degrees : int
        Degrees of freedom, 1 or more.

    Raises
    ------
    ValueError
        If one is out of range.

    >>> round(t_quantile(0.975, 4), 3), round(t_quantile(0.05, 10), 3)
    (2.776, -1.812)
    """
    if not 0 < probability < 1 or degrees < 1:
        raise ValueError("a probability between 0 and 1 and at least 1 degree of freedom are wanted, not "
                         f"{probability} and {degrees}")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    wanted, low, high = 2 * probability - 1, 0.0, math.pi / 2
    for _ in range(60):                                # of the angle, whose tangent is t / sqrt(degrees)
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < wanted else (low, middle)
    return math.tan((low + high) / 2) * math.sqrt(degrees)


# ---------------------------------------------------------------------- estimates
@dataclass(frozen=True)
class Estimate:
    """What some seeds say about a measure.

    Parameters
    ----------
    n, missing : int
        Seeds with a value, and without.
    mean : float or None
        None where no seed has a value.
    deviation : float or None
        Of the sample, over n - 1; None below two values.
    half : float or None
        Half the width of the confidence interval; None below two values.
    confidence : float
    """

    n: int
    missing: int
    mean: float | None
    deviation: float | None
    half: float | None
    confidence: float

    @property
    def low(self) -> float | None:
        """Lower end of the interval."""
        return None if self.half is None or self.mean is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        """Upper end of the interval."""
        return None if self.half is None or self.mean is None else self.mean + self.half

    def below(self, confidence: float = 0.95) -> float | None:
        """The one-sided bound: with this confidence the true mean is below it; None below two values.

        For an objective "at most X": it is met where this is at most X.

        >>> round(estimate([1.0, 2.0, 3.0]).below(), 3)           # 2 + 2.920 x 1 / sqrt(3)
        3.686
        """
        reach = self._reach(confidence)
        return None if reach is None or self.mean is None else self.mean + reach

    def above(self, confidence: float = 0.95) -> float | None:
        """The same from below: with this confidence the true mean is above it.

        >>> round(estimate([1.0, 2.0, 3.0]).above(), 3)
        0.314
        """
        reach = self._reach(confidence)
        return None if reach is None or self.mean is None else self.mean - reach

    def _reach(self, confidence: float) -> float | None:
        if self.deviation is None:
            return None
        return t_quantile(confidence, self.n - 1) * self.deviation / math.sqrt(self.n)


def estimate(values: Iterable[Value], confidence: float = 0.95) -> Estimate:
    """Mean and Student-t confidence interval of one value a seed.

    Parameters
    ----------
    values : iterable of number or None
        None, or NaN, where a seed has no such measure; it is left out and counted.
    confidence : float
        Of the two-sided interval.

    Raises
    ------
    ValueError
        If the confidence is not between 0 and 1, or a value is infinite.

    >>> made = estimate([37.9, 38.6, 38.1, None])
    >>> made.n, made.missing, round(made.mean, 2), round(made.half, 2)
    (3, 1, 38.2, 0.9)
    >>> estimate([5]).mean, estimate([5]).half, estimate([]).mean
    (5.0, None, None)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence must be between 0 and 1, not {confidence}")
    given = list(values)
    known = [float(v) for v in given if v is not None and not math.isnan(v)]
    if any(map(math.isinf, known)):
        raise ValueError("a value is infinite")
    n, missing = len(known), len(given) - len(known)
    if n < 2:
        return Estimate(n, missing, known[0] if known else None, None, None, confidence)
    deviation = stdev(known)
    half = t_quantile((1 + confidence) / 2, n - 1) * deviation / math.sqrt(n)
    return Estimate(n, missing, mean(known), deviation, half, confidence)


def paired(before: Sequence[Value], after: Sequence[Value], confidence: float = 0.95) -> Estimate:
    """The difference ``after - before``, seed by seed, of two scenarios that ran with the same seeds.

    A seed in which either has no value is left out and counted as missing.

    Raises
    ------
    ValueError
        If the two have different numbers of seeds.

    >>> made = paired([10, 20, 30], [11, 22, 33])
    >>> made.mean, made.deviation, paired([10, None], [11, 5]).missing
    (2.0, 1.0, 1)
    """
    pairs = zip(before, after, strict=True)
    return estimate([None if a is None or b is None else b - a for a, b in pairs], confidence)
