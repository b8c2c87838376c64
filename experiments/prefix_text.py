"""Numbers as people read them, and which number is which."""

from __future__ import annotations

from typing import Any

LEGEND = {
    "of blocks": "full blocks found of those looked up: how papers on traces count",
    "of tokens": "prompt tokens of the found blocks of all prompt tokens: how vLLM counts",
    "cache view": "one request at a time in the order of the trace; nobody runs beside it, so nobody else pins blocks",
    "serving view": "the engine: requests wait, run side by side, pin their blocks and are preempted",
    "LRU": "a request uses its blocks head first, so heads leave before tails",
    "vLLM's queue": "a request gives its blocks back tail first, so tails leave before heads",
    "first admissions": "what vLLM's log line 'Prefix cache hit rate' counts, there over the last 1,000 requests: of tokens",
    "resumes": "requests back from a preemption: they find their own blocks, which is no sharing; not in vLLM's line",
    "other request": "found blocks that a request outside of the session had computed",
    "same session": "found blocks that an earlier turn had computed",
    "slots saved": "slots that block tables name more than once: 1 - physical / logical",
}
"""Which number is which; in the JSON as well."""


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


def show_room(size: dict[str, Any]) -> str:
    """Blocks, and GiB where known.

    >>> show_room({"blocks": 4096, "gib": 8.0}), show_room({"blocks": 1, "gib": None})
    ('4,096 blocks = 8 GiB', '1 block')
    """
    gib = "" if size["gib"] is None else f" = {show(size['gib'])} GiB"
    return f"{size['blocks']:,} block{'s' * (size['blocks'] != 1)}{gib}"
