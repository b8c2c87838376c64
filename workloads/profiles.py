"""Named length profiles: how long prompts and outputs are, as quantile tables fitted to public traces.

A table holds the lengths at evenly spaced shares of the requests, the least first. A uniform number between two of
them is turned into a length by the straight line between the two entries (inverse transform sampling).

    share    0     0.25   0.5    0.75   1
    table    2     10     40     200    1980        u = 0.125 -> 6

The tables live in ``data/profiles.json`` beside where they come from. To make an entry anew::

    trace = drop_longer_than(read_trace("shared/traces/vllm-sosp23/..."), 2048)
    entry = fit_profile(trace, Origin(...))
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.request import IntArray, Trace

POINTS = 1001  # steps of 0.1 %: the deciles are entries, and the long tail keeps its mean
DECILES = tuple(range(10, 100, 10))


@dataclass(frozen=True)
class Origin:
    """Where a profile comes from: the data set, its licence, and the Python expression that makes the trace."""

    source: str
    licence: str
    made_by: str


@dataclass(frozen=True, eq=False)
class LengthProfile:
    """Lengths of prompts and outputs of one kind of traffic.

    Prompt and output are drawn independently of one another: only the two tables are stored, so a long prompt says
    nothing about its output, and a limit on their sum that the data obeyed (2048 in ``sharegpt``) need not hold.

    Parameters
    ----------
    name : str
    prompt_table, output_table : int64, shape (points,)
        Tokens at evenly spaced shares from 0 to 1; 2 entries or more, each at least 1, never decreasing.
    about : mapping
        Source, licence, number of requests, how it was made, and deciles to check against.

    Raises
    ------
    ValueError
        If a table is no such table.
    """

    name: str
    prompt_table: IntArray
    output_table: IntArray
    about: Mapping[str, Any]

    def __post_init__(self) -> None:
        for which, table in (("prompt", self.prompt_table), ("output", self.output_table)):
            if len(table) < 2 or int(table[0]) < 1 or np.any(np.diff(table) < 0):
                raise ValueError(f"the {which} table of profile {self.name!r} must rise from 1 or more over 2 entries")

    def sample(self, n: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Draw lengths of `n` requests: all prompts first, then all outputs.

        Returns
        -------
        prompt_tokens, output_tokens : int64, shape (n,)
            Each at least 1.

        Raises
        ------
        ValueError
            If `n` is negative.

        >>> prompt, output = profile("sharegpt").sample(4, np.random.default_rng(0))
        >>> prompt.dtype, len(output), bool(prompt.min() >= 1)
        (dtype('int64'), 4, True)
        """
        if n < 0:
            raise ValueError(f"cannot draw {n} requests")
        return draw(self.prompt_table, rng.random(n)), draw(self.output_table, rng.random(n))


def fit(lengths: IntArray, points: int = POINTS, interpolate: bool = False) -> IntArray:
    """The quantile table of lengths.

    Parameters
    ----------
    lengths : int64, shape (requests,)
        Tokens, not empty.
    points : int
        Entries of the table, 2 or more.
    interpolate : bool
        Whether a share between two requests gets a length between theirs, as percentiles are usually given: where there
        are few requests the next length may be some percent away.

    Returns
    -------
    int64, shape (points,)
        Entry ``i`` is the least length that at least ``i / (points - 1)`` of the requests do not exceed.

    Raises
    ------
    ValueError
        If there are no lengths or fewer than 2 points.

    >>> fit(np.array([5, 1, 3, 9]), points=5)
    array([1, 1, 3, 5, 9])
    """
    if len(lengths) == 0 or points < 2:
        raise ValueError(f"cannot fit {points} points to {len(lengths)} lengths")
    if interpolate:
        return np.rint(np.percentile(lengths, np.linspace(0, 100, points))).astype(np.int64)
    ranks = -(-np.arange(points) * len(lengths) // (points - 1))  # in integers: 0.3 x 100 is over 30 in floats
    return np.sort(lengths)[np.maximum(ranks - 1, 0)].astype(np.int64)


def fit_profile(trace: Trace, origin: Origin, points: int = POINTS, interpolate: bool = False) -> dict[str, Any]:
    """The entry of ``profiles.json`` for a trace; ``points`` and ``interpolate`` as in `fit`.

    ``check_deciles`` come from the lengths, not from the table, so that the table can be checked without the trace.

    Raises
    ------
    ValueError
        If the trace is empty.
    """
    columns = {"prompt": trace.prompt_tokens, "output": trace.output_tokens}
    return {
        "source": origin.source,
        "licence": origin.licence,
        "made_by": origin.made_by,
        "requests": len(trace),
        "means": {name: round(float(column.mean()), 2) for name, column in columns.items()},
        "check_deciles": {name: np.percentile(column, DECILES).tolist() for name, column in columns.items()},
        "tables": {name: fit(column, points, interpolate).tolist() for name, column in columns.items()},
    }


def profile(name: str) -> LengthProfile:
    """A length profile by name.

    Raises
    ------
    ValueError
        If there is none of that name; lists the names.

    >>> profile("azure-conv").about["requests"]
    19366
    """
    entries = _entries()
    if name not in entries:
        raise ValueError(f"unknown length profile {name!r}; the profiles are {', '.join(profile_names())}")
    entry = entries[name]
    tables = {which: np.array(table, dtype=np.int64) for which, table in entry["tables"].items()}
    about = {key: value for key, value in entry.items() if key != "tables"}
    return LengthProfile(name, tables["prompt"], tables["output"], about)


def profile_names() -> tuple[str, ...]:
    """The names there are, sorted.

    >>> profile_names()[:4]
    ('agent-coding', 'agent-magagent', 'alpaca-demo', 'apex-creation')
    """
    return tuple(sorted(_entries()))


@cache
def _entries() -> dict[str, Any]:
    """The data file, read once a process."""
    text = files("workloads").joinpath("data", "profiles.json").read_text(encoding="utf-8")
    entries: dict[str, Any] = json.loads(text)
    return entries


def draw(table: IntArray, uniform: NDArray[np.float64]) -> IntArray:
    """Lengths at shares from 0 to 1 of a quantile table, rounded half to even.

    >>> draw(np.array([2, 10, 40, 200, 1980]), np.array([0.125, 1.0]))
    array([   6, 1980])
    """
    shares = np.linspace(0, 1, len(table))
    return np.rint(np.interp(uniform, shares, table)).astype(np.int64)  # never below the least entry
