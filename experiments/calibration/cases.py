"""A measured operation point: the requests that were sent, and the latencies that came of it.

    Case      trace + most in flight  --simulate-->  TTFT and TPOT of each request
    Target    what was measured of them: each request's, or the mean or median of all

The error of a target is predicted / measured - 1; a fit makes the logarithms of that ratio small, so 20 % of 10 ms counts as
much as 20 % of 10 s, and each target as much as any other, however many requests are behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sim.config import SimConfig
from sim.engine import Engine
from sim.request_log import NEVER
from sim.run import Run, Stalled
from sim.step_time import StepTime
from workloads.request import InputError, Trace

Floats = NDArray[np.float64]
METRICS = ("ttft", "tpot")
STATISTICS = {"mean": np.mean, "median": np.median, "p99": lambda values: np.percentile(values, 99)}
EACH = "each"


@dataclass(frozen=True, eq=False)
class Target:
    """One measured thing.

    Parameters
    ----------
    metric : str
        ``ttft`` or ``tpot``.
    statistic : str
        A key of `STATISTICS`, or ``each``: one value a request, in the order of the trace.
    seconds : float64
        Shape (1,), or (requests,) with NaN for requests without one.
    fitted : bool
        Whether a fit goes by it; the others are shown beside.
    """

    metric: str
    statistic: str
    seconds: Floats
    fitted: bool = True

    def predicted(self, latency: dict[str, Floats]) -> Floats:
        """The same of simulated latencies, in seconds; NaN where there is none."""
        values = latency[self.metric]
        if self.statistic == EACH:
            return values
        known = values[~np.isnan(values)]
        return np.array([float(STATISTICS[self.statistic](known)) if len(known) else np.nan])


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
    """TTFT and TPOT of each request in seconds; NaN for a request that was not served, and for the TPOT of a single token."""
    log, output = run.log, run.demand.output
    done = log.finished_us != NEVER
    ttft = np.where(done, (log.first_token_us - run.arrival_us) / 1e6, np.nan)
    several = done & (output > 1)
    tpot = np.where(several, (log.finished_us - log.first_token_us) / np.maximum(output - 1, 1) / 1e6, np.nan)
    return {"ttft": ttft, "tpot": tpot}


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


def log_ratios(targets: tuple[Target, ...], latency: dict[str, Floats]) -> tuple[Floats, Floats]:
    """ln(predicted / measured) of all that is fitted, and the weight of each: those of one target add up to 1."""
    ratios, weights = [np.zeros(0)], [np.zeros(0)]
    for target in targets:
        if target.fitted:
            known = ~np.isnan(target.seconds)
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = np.log(np.maximum(target.predicted(latency), 1e-9) / target.seconds)[known]
            ratios.append(np.nan_to_num(ratio))
            weights.append(np.full(len(ratio), 1 / max(len(ratio), 1)))
    return np.concatenate(ratios), np.concatenate(weights)


# ---------------------------------------------------------------------- how far off
@dataclass(frozen=True)
class Row:
    """One target: measured and predicted in seconds (means of all requests where each is a target), and the mean of
    |predicted / measured - 1|."""

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
        predicted, known = target.predicted(latency), ~np.isnan(target.seconds)
        off = relative(target, latency)
        made.append(Row(target.metric, target.statistic, target.fitted, float(target.seconds[known].mean()),
                        float(np.nan_to_num(predicted[known]).mean()), float(np.abs(off).mean())))
    return made


def relative(target: Target, latency: dict[str, Floats]) -> Floats:
    """predicted / measured - 1 of what was measured."""
    known = ~np.isnan(target.seconds)
    return np.nan_to_num(target.predicted(latency)[known] / target.seconds[known] - 1, nan=-1.0)


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
                which = f"{case.label}, request {at}" if target.statistic == EACH else case.label
                found = float(size[at]), Worst(which, target.metric, float(off[at]))
    return None if found is None else found[1]
