"""What a search is for: the table [search] of a scenario, and promises such as ``ttft p99 <= 2 s``.

    largest = "rate"                           smallest = "pool"                    fewest = "gpus"
    keep = ["ttft p99 <= 2 s", "tpot mean <= 50 ms"]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.whatif.values import Scalar, check_once
from sim.measures import LATENCIES, STATISTICS
from workloads.messages import show
from workloads.request import InputError

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
GOALS = {"largest": ("rate", "speed", "max-num-seqs", "max-model-len"), "smallest": ("pool",), "fewest": ("gpus",)}
KEYS = ("keep", "from", "to", "resolution", "tensor-parallel-size", "data-parallel-size")
DEFAULT_RESOLUTION = 0.02
SPLITS = ([1, 2, 4, 8], [1, 2, 3, 4, 6, 8])
COUNTS = ("preemptions", "rejected", "unfinished")


@dataclass(frozen=True)
class Promise:
    """A metric that must not exceed a limit; ``metric`` is a column of the results, the limit in its unit.

    >>> str(Promise("ttft_p99_s", 2.0))
    'ttft p99 <= 2 s'
    """

    metric: str
    most: float

    def __str__(self) -> str:
        name, _, statistic = self.metric.removesuffix("_s").partition("_")
        return f"{name} {statistic} <= {self.most:g} s" if statistic else f"{name} <= {self.most:g}"


@dataclass(frozen=True)
class Search:
    """Look for the largest or smallest ``what`` that keeps all promises.

    Parameters
    ----------
    goal : str
        ``largest``, ``smallest`` or ``fewest``.
    what : str
    keep : tuple of Promise
    low, high : float or None
        Where it is looked for; None is found by doubling.
    resolution : float
        The bracket at the end is at most this share wide (whole numbers: or one apart).
    splits : mapping of option to values
        For GPUs: the parallel sizes that are tried.
    """

    goal: str
    what: str
    keep: tuple[Promise, ...]
    low: float | None = None
    high: float | None = None
    resolution: float = DEFAULT_RESOLUTION
    splits: Mapping[str, tuple[Scalar, ...]] | None = None


def read_promise(text: object) -> Promise:
    """A promise from text.

    Raises
    ------
    InputError
        That shows how it is written.

    >>> read_promise("queue p90 <= 500ms")
    Promise(metric='queue_p90_s', most=0.5)
    >>> read_promise("preemptions <= 0")
    Promise(metric='preemptions', most=0.0)
    """
    form = "METRIC STATISTIC <= TIME is wanted, as ttft p99 <= 2 s or queue mean <= 500ms"
    if not isinstance(text, str):
        raise InputError(f"keep: {form}, not {'nothing' if text is None else show(text)}")
    counted = re.fullmatch(rf"\s*({'|'.join(COUNTS)})\s*<=?\s*(\d+)\s*", text)
    if counted:
        return Promise(counted[1], float(counted[2]))
    match = re.fullmatch(r"\s*(\w+)[ _](\w+)\s*<=?\s*([\d.]+(?:[eE]-?\d+)?)\s*([a-z]+)\s*", text)
    if match is None:
        raise InputError(f"{form}, not {show(text)}")
    name, statistic, number, unit = match.groups()
    for word, known in ((name, LATENCIES), (statistic, STATISTICS), (unit, UNITS)):
        if word not in known:
            raise InputError(f"{show(word)} in {show(text)}: one of {', '.join(known)}")
    try:
        most = float(number) * UNITS[unit]
    except ValueError:
        raise InputError(f"{show(number)} in {show(text)} is no number") from None
    return Promise(f"{name}_{statistic}_s", most)


def read_search(table: Mapping[str, Any]) -> Search:
    """The table [search].

    Raises
    ------
    InputError

    >>> read_search({"largest": "rate", "keep": "ttft p99 <= 2 s"}).what
    'rate'
    """
    table = {key.replace("_", "-"): value for key, value in table.items()}
    goals = [goal for goal in GOALS if goal in table]
    if len(goals) != 1:
        raise InputError(f"one of {', '.join(f'{goal} = {show(what[0])}' for goal, what in GOALS.items())} is wanted")
    goal = goals[0]
    what = table.pop(goal)
    if what not in GOALS[goal]:
        raise InputError(f"{goal} = {show(what)}: one of {', '.join(GOALS[goal])}")
    unknown = [key for key in table if key not in KEYS]
    if unknown:
        raise InputError(f"unknown key {show(unknown[0])}; the keys are {', '.join(KEYS)}")
    keep = table.get("keep")
    promises = tuple(read_promise(one) for one in (keep if isinstance(keep, list) else [keep]))
    if not promises:
        raise InputError("keep is empty: there is nothing to keep")
    low, high = (_number(table, key) for key in ("from", "to"))
    if low is not None and high is not None and low >= high:
        raise InputError(f"from = {low:g} is not below to = {high:g}")
    resolution = _number(table, "resolution") or DEFAULT_RESOLUTION
    if resolution > 1:
        raise InputError(f"resolution = {resolution:g}: a share of the answer is wanted, as 0.02")
    return Search(goal, what, promises, low, high, resolution, _splits(table, goal))


def _number(table: Mapping[str, Any], key: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise InputError(f"{key}: a number above 0 is wanted, not {show(value)}")
    return float(value)


def _splits(table: Mapping[str, Any], goal: str) -> dict[str, tuple[Scalar, ...]] | None:
    names = ("tensor-parallel-size", "data-parallel-size")
    if goal != "fewest":
        wrong = next((name for name in names if name in table), None)
        if wrong:
            raise InputError(f"{wrong} is for fewest = 'gpus'")
        return None
    made = {name: table.get(name, default) for name, default in zip(names, SPLITS, strict=True)}
    for name, values in made.items():
        if not isinstance(values, list) or not values or any(type(value) is not int or value < 1 for value in values):
            raise InputError(f"{name}: a list of whole numbers from 1 is wanted, not {show(table[name])}")
        try:
            check_once(values)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return {name: tuple(values) for name, values in made.items()}
