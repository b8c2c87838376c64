"""Estimates as people read them: as many digits as are known, and what changes from one scenario to another."""

from __future__ import annotations

from experiments.whatif.statistics import Estimate

MOST_DECIMALS, PLAIN_TO = 6, 1e7                       # beyond them numbers are written with an exponent
MOST_DIGITS, LEAST_DIGITS = 3, 2                       # significant ones: of what people compare; of the smaller of two


def rounded(made: Estimate) -> str:
    """An estimate with as many digits as its interval bears: two of the interval where it begins with 1, else one.

    At most three significant ones; an interval that would vanish then is written with one of its own. Without an interval as
    `plain` writes it; the whole part is never rounded away.

    >>> from experiments.whatif.statistics import estimate
    >>> rounded(Estimate(5, 0, 38.2417, 0.3, 0.3712, 0.95)), rounded(Estimate(5, 0, 1234.6, 20.0, 24.8, 0.95))
    ('38.2 ± 0.4', '1,235 ± 25')
    >>> rounded(estimate([0.0123456])), rounded(estimate([])), rounded(Estimate(5, 0, 0.5, 0.01, 0.0137, 0.95))
    ('0.0123', '-', '0.500 ± 0.014')
    """
    if made.mean is None:
        return "-"
    if not made.half:                                  # none, or the same value for every seed
        return plain(made.mean) + (" ± 0" if made.half == 0 else "")
    digits = _digits(made.half, 2 if _leading(made.half) == 1 else 1)
    digits = min(digits, _digits(made.mean, MOST_DIGITS)) if made.mean else digits
    vanishes = digits < _digits(made.half, 1)
    return f"{_written(made.mean, digits)} ± {plain(made.half, 1) if vanishes else _written(made.half, digits)}"


def plain(value: float, digits: int = 3) -> str:
    """A number to so many significant digits, without zeros at the end; its whole part is never rounded away.

    >>> [plain(v) for v in (0.0, 38.2417, 1234.56, 0.00123456, 3.0e-7, -12.0, 0.4, 61.0004)]
    ['0', '38.2', '1,235', '0.00123', '3e-07', '-12', '0.4', '61']
    """
    text = _written(value, _digits(value, digits))
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def alike(a: float, b: float) -> tuple[str, str]:
    """Two numbers to be compared, with the same decimals: three significant digits of the larger.

    Where that left the smaller fewer than two, three of each; whole numbers have no decimals.

    >>> alike(0.068234, 0.0904), alike(0.4, 7.9), alike(0, 412), alike(0.0402, 32.04)
    (('0.0682', '0.0904'), ('0.40', '7.90'), ('0', '412'), ('0.0402', '32.0'))
    """
    one, other = _decimals(a, b)
    return _written(a, one), _written(b, other)


def _decimals(a: float, b: float) -> tuple[int, int]:
    if float(a).is_integer() and float(b).is_integer():
        return 0, 0
    small, large = sorted((a, b), key=abs)
    both = _digits(large, MOST_DIGITS)
    if _digits(small, LEAST_DIGITS) <= both:
        return both, both
    return _digits(a, MOST_DIGITS), _digits(b, MOST_DIGITS)


def _leading(value: float) -> int:
    """The first digit once it is rounded to two."""
    return int(f"{abs(value):.1e}"[0])


def _digits(value: float, significant: int) -> int:
    """Decimals that show so many significant digits; 0 at least."""
    if not value:
        return 0
    return max(0, significant - 1 - int(f"{abs(value):.{significant - 1}e}".split("e")[1]))


def _written(value: float, decimals: int) -> str:
    if decimals > MOST_DECIMALS or abs(value) >= PLAIN_TO:
        return f"{value:.3g}"
    text = f"{value:,.{decimals}f}"
    return text[1:] if text.startswith("-") and not float(text.replace(",", "")) else text


def change(name: str, before: Estimate, after: Estimate, difference: Estimate, unit: str = "") -> str:
    """What a step of a scenario does to one measure, in a few words.

    Parameters
    ----------
    name : str
    before, after : Estimate
    difference : Estimate
        From `paired`; its interval is shown where there is one, and "uncertain" where it contains 0.
    unit : str
        Written behind the numbers.

    >>> from experiments.whatif.statistics import estimate, paired
    >>> print(change("concurrency", estimate([37, 38, 39]), estimate([60, 61, 62.2]), paired([37, 38, 39], [60, 61, 62.2])))
    concurrency 38.0 -> 61.1 (+23.1 ± 0.3)
    >>> print(change("queue p99", estimate([0.4]), estimate([7.9]), paired([0.4], [7.9]), "s"))
    queue p99 0.40 s -> 7.90 s (+7.50)
    >>> print(change("TTFT p99", estimate([2, 3, 4]), estimate([3, 2, 4.5]), paired([2, 3, 4], [3, 2, 4.5]), "s"))
    TTFT p99 3.00 s -> 3.17 s (uncertain: 0 ± 3)
    """
    behind = f" {unit}" if unit else ""
    if before.mean is None or after.mean is None:
        return f"{name} {_alone(before, behind)} -> {_alone(after, behind)}"
    one, other = alike(before.mean, after.mean)
    return f"{name} {one}{behind} -> {other}{behind}{_difference(difference, max(_decimals(before.mean, after.mean)))}"


def _alone(made: Estimate, behind: str) -> str:
    """A mean with nothing to compare it with."""
    return "-" if made.mean is None else f"{plain(made.mean)}{behind}"


def _difference(made: Estimate, decimals: int) -> str:
    """With its interval's digits; without one, with those of the ends."""
    if made.mean is None:
        return ""
    text = rounded(made) if made.half else _written(made.mean, decimals) + (" ± 0" if made.half == 0 else "")
    signed = text if text.startswith("-") or not float(text.split(" ")[0].replace(",", "")) else f"+{text}"
    if made.half is not None and made.half > 0 and abs(made.mean) <= made.half:
        return f" (uncertain: {signed})"
    return f" ({signed})"
