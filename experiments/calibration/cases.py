"""A measured operation point: the requests that were sent, and the latencies that came of it.

    Case      trace + most in flight  --simulate-->  TTFT and TPOT of each request, mean time between tokens
    Target    what was measured of them: a mean or a median of all, or means of groups of like requests

The error of a target is predicted / measured - 1; a fit makes the logarithms of that ratio small, so 20 % of 10 ms counts as
much as 20 % of 10 s, and each target as much as any other, however many requests are behind it. Single requests are no
targets: where in a step a request arrives moves its TTFT by up to a step, and a little less time a step moves all that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.step_time_file import METRICS
from sim.config import SimConfig
from sim.engine import Engine
from sim.request_log import NEVER
from sim.run import Run, Stalled
from sim.step_time import StepTime
from workloads.request import InputError, IntArray, Trace

Floats = NDArray[np.float64]
STATISTICS: dict[str, Callable[[Floats], Any]] = {"mean": np.mean, "median": np.median,
                                                  "p99": lambda values: np.percentile(values, 99)}
BY_PROMPT, BY_TIME = "mean by prompt length", "mean by time"
MOST_GROUPS, LEAST_IN_GROUP = 10, 8


@dataclass(frozen=True, eq=False)
class Target:
    """One measured thing.

    Parameters
    ----------
    metric : str
        A key of `latencies`.
    statistic : str
        A key of `STATISTICS`; or for people, with ``group``.
    seconds : float64
        Shape (1,), or (groups,) for the means of groups.
    fitted : bool
        Whether a fit goes by it; the others are shown beside.
    group : int64, shape (requests,), optional
        The group of each request, -1 for none.
    """

    metric: str
    statistic: str
    seconds: Floats
    fitted: bool = True
    group: IntArray | None = None

    def predicted(self, latency: dict[str, Floats]) -> Floats:
        """The same of simulated latencies, in seconds; NaN where there is none."""
        values = latency[self.metric]
        if self.group is not None:
            return group_means(values, self.group, len(self.seconds))
        known = values[~np.isnan(values)]
        return np.array([float(STATISTICS[self.statistic](known)) if len(known) else np.nan])


def group_means(values: Floats, group: IntArray, groups: int) -> Floats:
    """The mean of each group; those without a value, or without a group (-1), do not count. NaN for nobody.

    >>> group_means(np.array([1.0, 3.0, np.nan, 5.0]), np.array([0, 0, 1, 1]), 3).tolist()
    [2.0, 5.0, nan]
    """
    counted = ~np.isnan(values) & (group >= 0)
    sums = np.bincount(group[counted], values[counted], groups)
    with np.errstate(invalid="ignore"):
        return sums / np.bincount(group[counted], minlength=groups)


def groups_of(key: IntArray, counted: NDArray[np.bool_]) -> tuple[IntArray, int]:
    """Up to 10 groups of as many requests with like keys, 8 at least; the group of each request, and how many there are.

    >>> groups_of(np.arange(40)[::-1], np.ones(40, bool))[0][::8].tolist()
    [4, 3, 2, 1, 0]
    """
    group = np.full(len(key), -1, np.int64)
    rows = np.flatnonzero(counted)
    rows = rows[np.argsort(key[rows], kind="stable")]
    groups = max(1, min(MOST_GROUPS, len(rows) // LEAST_IN_GROUP))
    group[rows] = np.arange(len(rows)) * groups // max(len(rows), 1)
    return group, groups


@dataclass(frozen=True, eq=False)
class Case:
    """One run of a benchmark, or one row of a table.

    Parameters
    ----------
    label : str
        For people.
    trace : Trace
        With arrival times.
    targets : tuple of Target
    most_in_flight : int, optional
        The client's limit.
    notes : tuple of str
    """

    label: str
    trace: Trace
    targets: tuple[Target, ...]
    most_in_flight: int | None = None
    notes: tuple[str, ...] = field(default=())


def latencies(run: Run) -> dict[str, Floats]:
    """What came of a run, in seconds: ``ttft``, ``tpot``, ``queue`` and ``e2e`` of each request, and ``itl``, one mean of all.

    NaN for a request that was not served, and for the TPOT of a single token. The mean time between tokens counts every gap
    once, as a server's histogram does: a long answer weighs more than a short one, which in the mean TPOT it does not.
    """
    log, gaps = run.log, run.demand.output - 1
    done = log.finished_us != NEVER
    several = done & (gaps > 0)
    decoding = np.where(several, (log.finished_us - log.first_token_us) / 1e6, np.nan)
    itl = decoding[several].sum() / gaps[several].sum() if several.any() else np.nan
    since = {name: np.where(done, (times - run.arrival_us) / 1e6, np.nan)
             for name, times in (("ttft", log.first_token_us), ("queue", log.admitted_us), ("e2e", log.finished_us))}
    return {**since, "tpot": decoding / np.maximum(gaps, 1), "itl": np.array([itl])}


def simulate_case(case: Case, sim: SimConfig, clock: StepTime, allocator: str) -> dict[str, Floats]:
    """The case's requests served by a server of this step time: `latencies`.

    Raises
    ------
    InputError
        If a request could not be served at all: the server that was measured is another one.
    """
    config = replace(sim, step_time=clock, most_in_flight=case.most_in_flight)
    try:
        run = Engine(case.trace, config, allocator).run()
    except Stalled as error:
        raise InputError(f"{case.label}: {error}") from None
    rejected = int((run.verdict != 0).sum())
    if rejected:
        raise InputError(f"{case.label}: {rejected} of {len(case.trace)} requests do not fit the server of these options "
                         f"(max_model_len {sim.max_model_len:,}, {sim.num_blocks:,} blocks): not the one that was measured")
    return latencies(run)


def log_ratios(targets: tuple[Target, ...], latency: dict[str, Floats]) -> Floats:
    """ln(predicted / measured) of all that is fitted."""
    return np.concatenate([np.zeros(0), *(np.log(np.maximum(np.nan_to_num(target.predicted(latency)), 1e-9) / target.seconds)
                                          for target in targets if target.fitted)])


def weights_of(cases: Sequence[Case]) -> Floats:
    """The weight of each of `log_ratios`: those of one target add up to 1."""
    sizes = [len(target.seconds) for case in cases for target in case.targets if target.fitted]
    return np.concatenate([np.full(size, 1 / size) for size in sizes])


# ---------------------------------------------------------------------- how far off
@dataclass(frozen=True)
class Row:
    """One target: measured and predicted in seconds (the means over groups), and the mean of |predicted / measured - 1|."""

    metric: str
    statistic: str
    fitted: bool
    measured_s: float
    predicted_s: float
    error: float


@dataclass(frozen=True)
class Worst:
    """The one number that is furthest off, with its sign."""

    case: str
    metric: str
    error: float


def rows_of(case: Case, latency: dict[str, Floats]) -> list[Row]:
    """Every target of a case beside what was simulated."""
    made = []
    for target in case.targets:
        predicted = np.nan_to_num(target.predicted(latency))
        made.append(Row(target.metric, target.statistic, target.fitted, float(target.seconds.mean()), float(predicted.mean()),
                        float(np.abs(relative(target, latency)).mean())))
    return made


def relative(target: Target, latency: dict[str, Floats]) -> Floats:
    """predicted / measured - 1 of what was measured."""
    return np.nan_to_num(target.predicted(latency)) / target.seconds - 1


def mean_errors(rows: list[list[Row]]) -> dict[str, float | None]:
    """By metric the mean error of all that is fitted; None where it was not measured."""
    found = {metric: [row.error for case in rows for row in case if row.metric == metric and row.fitted] for metric in METRICS}
    return {metric: float(np.mean(errors)) if errors else None for metric, errors in found.items()}


def worst_of(cases: list[Case], all_latencies: list[dict[str, Floats]]) -> Worst | None:
    """The first of those that are furthest off, in ratio: half counts as much as twice."""
    found: tuple[float, Worst] | None = None
    for case, latency in zip(cases, all_latencies, strict=True):
        for target in (target for target in case.targets if target.fitted):
            off = relative(target, latency)
            size = np.abs(np.log(np.maximum(1 + off, 1e-9)))
            at = int(size.argmax())
            if found is None or size[at] > found[0]:
                several = f", group {at + 1} of {len(off)}" if len(off) > 1 else ""
                which = f"{case.label}: {target.statistic}{several}"
                found = float(size[at]), Worst(which, target.metric, float(off[at]))
    return None if found is None else found[1]
