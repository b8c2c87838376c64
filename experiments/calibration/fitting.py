"""The fit as a piece of the result: before, after, what is known of each number, and the file of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.calibration.cases import Case, Floats, mean_errors, rows_of, simulate_case, weights_of, worst_of
from experiments.calibration.fit import fit
from experiments.calibration.known import SAID
from experiments.calibration.residuals import Simulated
from experiments.setup import Setup
from experiments.step_time_file import EFFICIENCIES, METRICS, POOR, Provenance, step_time_text, with_numbers
from experiments.version import VERSION
from sim.step_time import RooflineStepTime
from workloads.request import InputError

JsonObject = dict[str, Any]
CLIENT = ("times to first token as a client measures them hold HTTP, tokenising and the network too, which are not modelled: the "
          "fit puts them into its numbers")


@dataclass(frozen=True, eq=False)
class Points:
    """Measured and predicted of one metric, in seconds, for a picture: before the fit and after it."""

    metric: str
    measured: Floats
    before: Floats
    after: Floats


def run_fit(setup: Setup, cases: Sequence[Case], allocator: str, quiet: bool, held: Mapping[str, str] | None = None,
            ) -> tuple[JsonObject, list[Points]]:
    """Fit, and say how far off every case is before and after; ``held`` numbers keep what they are, for the reason given.

    Raises
    ------
    InputError
        If there is nothing to fit to, or the step time is no roofline.
    """
    clock = setup.sim.step_time
    if not isinstance(clock, RooflineStepTime):
        raise InputError("the efficiencies of a roofline are fitted: it needs a --model and a --gpu of the catalogue, and no "
                         "constant step time")
    if not any(target.fitted for case in cases for target in case.targets):
        raise InputError("nothing is measured that could be fitted to: neither a TTFT nor a TPOT")
    default = {name: float(getattr(clock, name)) for name in EFFICIENCIES}
    before = [simulate_case(case, setup.sim, clock, allocator) for case in cases]
    made = fit(Simulated(cases, setup.sim, clock, allocator, _tell(quiet)), default, weights_of(cases), held)
    if not quiet and sys.stderr is not None and sys.stderr.isatty():
        print(file=sys.stderr)
    after = [simulate_case(case, setup.sim, with_numbers(clock, made.numbers), allocator) for case in cases]
    numbers = {name: {"default": default[name], "fitted": made.numbers[name], "standard_error": made.errors[name],
                      "edge": made.edges.get(name), "remark": made.remarks.get(name)} for name in EFFICIENCIES}
    document = {"numbers": numbers, "simulations": made.simulations,
                "errors": {"before": _errors(cases, before), "after": _errors(cases, after)},
                "cases": _cases(cases, before, after)}
    return document, _points(cases, before, after)


def _tell(quiet: bool) -> Callable[[int], None]:
    """Progress on a terminal; a simulation takes long enough to be worth a line."""
    def tell(count: int) -> None:
        print(f"\rfitting: {count} simulations of all cases", end="", file=sys.stderr, flush=True)

    def silent(count: int) -> None:
        """Nobody looks."""

    return silent if quiet or sys.stderr is None or not sys.stderr.isatty() else tell


def _errors(cases: Sequence[Case], latency: list[dict[str, Floats]]) -> JsonObject:
    rows = [rows_of(case, each) for case, each in zip(cases, latency, strict=True)]
    worst = worst_of(list(cases), latency)
    return {**mean_errors(rows), "worst": None if worst is None else asdict(worst)}


def _cases(cases: Sequence[Case], before: list[dict[str, Floats]], after: list[dict[str, Floats]]) -> list[JsonObject]:
    made = []
    for case, one, two in zip(cases, before, after, strict=True):
        targets = [{"metric": old.metric, "statistic": old.statistic, "fitted": old.fitted, "measured_s": old.measured_s,
                    "before_s": old.predicted_s, "after_s": new.predicted_s, "error_before": old.error, "error_after": new.error}
                   for old, new in zip(rows_of(case, one), rows_of(case, two), strict=True)]
        made.append({"label": case.label, "requests": len(case.trace), "most_in_flight": case.most_in_flight, "targets": targets})
    return made


def _points(cases: Sequence[Case], before: list[dict[str, Floats]], after: list[dict[str, Floats]]) -> list[Points]:
    found: dict[str, list[list[Floats]]] = {}
    for case, one, two in zip(cases, before, after, strict=True):
        for target in (target for target in case.targets if target.fitted):
            columns = [target.seconds, target.predicted(one), target.predicted(two)]
            for column, values in zip(found.setdefault(target.metric, [[], [], []]), columns, strict=True):
                column.append(values)
    return [Points(metric, *(np.concatenate(column) for column in found[metric])) for metric in METRICS if metric in found]


# ---------------------------------------------------------------------- the file
def file_of(document: JsonObject, setup: Setup, measured: Sequence[str], ranks: int) -> str:
    """What `--out` writes; ``ranks`` GPUs share each layer."""
    assert setup.model is not None and setup.gpu is not None
    numbers = {name: float(number["fitted"]) for name, number in document["numbers"].items()}
    errors = document["errors"]["after"]
    fitted: dict[str, str | int | float | list[str]] = {
        "model": setup.model.name, "gpu": setup.gpu.name, "tensor_parallel_size": ranks,
        "measured": list(measured), "pagedsim": VERSION}
    fitted |= {f"{metric}_error": errors[metric] for metric in METRICS if errors[metric] is not None}
    comments = ["efficiencies of a roofline, fitted by pagedsim calibrate; use: --step-time THIS_FILE",
                *fit_warnings(document),
                *(f"{name}: {number['remark']}" for name, number in document["numbers"].items() if number["remark"])]
    provenance: Provenance = fitted
    return step_time_text(numbers, provenance, comments)


def fit_warnings(document: JsonObject) -> Iterator[str]:
    """One line each: a number that ends at the edge of what is searched; numbers that do not describe what was measured."""
    edges = [f"{SAID[name].removesuffix(',')} ({name}) at {number['fitted']:g}, the {number['edge']} value that is tried"
             for name, number in document["numbers"].items() if number["edge"] is not None]
    if edges:
        yield f"warning: the fit ends at the edge of its search range: {'; '.join(edges)}"
    errors = document["errors"]["after"]
    poor = [f"{metric.upper()} {100 * errors[metric]:.0f} %" for metric in METRICS if (errors[metric] or 0) > POOR]
    if poor:
        yield (f"warning: after the fit the mean error is {' and '.join(poor)}: this roofline does not describe what was "
               "measured")


def fit_notes(cases: Sequence[Case]) -> list[str]:
    """What is to be said about the cases, each once, and about what a client sees."""
    notes = list(dict.fromkeys(note for case in cases for note in case.notes))
    ttft = any(target.metric == "ttft" for case in cases for target in case.targets)
    return [*notes, *([CLIENT] if ttft else [])]
