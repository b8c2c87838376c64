"""A table in words, for the line that says what a trace is."""

from __future__ import annotations

from collections.abc import Mapping

from workloads.messages import show

LONGEST = 120                                          # characters of one part


def words(value: object) -> str:
    """A description as people would write it, never longer than a line can hold.

    >>> words({"kind": "gamma", "rate": 2.0, "burstiness": 0.5})
    'gamma (rate 2, burstiness 0.5)'
    >>> words("poisson:rate=3")
    'poisson:rate=3'
    """
    text = _words(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        keys = ", ".join(f"{name} {_words(one)}" for name, one in value.items() if name != "kind")
        return f"{value.get('kind', '')} ({keys})".strip() if keys else str(value.get("kind", ""))
    if isinstance(value, list):
        return "[" + ", ".join(_words(one) for one in value) + "]"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) and value.isprintable() else show(value)
