"""Numbers as people read them: shares in per cent, and values of any size."""

from __future__ import annotations


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 1 in per cent; nothing rounds to 0 or 100 that is not.

    >>> percent(0.1234), percent(0.00001), percent(0.99999), percent(0.0), percent(None)
    ('12.3 %', '< 0.1 %', '> 99.9 %', '0.0 %', '-')
    """
    if share is None:
        return "-"
    least = 10.0 ** -digits
    if 0 < share < least / 200:
        return f"< {least:.{digits}f} %"
    if 1 - least / 200 < share < 1:
        return f"> {100 - least:.{digits}f} %"
    return f"{100 * share:.{digits}f} %"


def show(value: float | None, digits: int = 2) -> str:
    """A number with thousands apart; three significant digits below 1, fewer decimals the larger it is.

    >>> show(1234.5), show(52.977), show(0.001953125), show(None), show(0)
    ('1,234', '52.98', '0.00195', '-', '0')
    """
    if value is None:
        return "-"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.{digits}f}" if abs(value) >= 1 else f"{value:.3g}"
