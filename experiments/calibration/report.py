"""The result on a terminal: numbers of the fit, errors before and after, start-up lines, gauges over time, counters, notes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.step_time_file import METRICS
from workloads.messages import counted
from workloads.request import InputError

JsonObject = dict[str, Any]
LATENCIES = {"queue": "queue time", "e2e": "end-to-end time"}               # the others are known by their letters
PIPE_COLUMNS, LEAST_COLUMNS = 120, 90
MOST_CASES = 20
VERDICTS: dict[bool | None, str] = {True: "as printed", False: "NOT as printed"}
NAMES = {"bandwidth_efficiency": "share of the bandwidth", "flops_efficiency": "share of the peak FLOP/s",
         "overhead_us": "fixed time a step, us"}
GAUGES = {"running": "running requests", "waiting": "waiting requests", "usage_percent": "KV cache usage",
          "hit_percent": "prefix cache hit rate", "prompt_tokens_per_s": "prompt throughput",
          "generation_tokens_per_s": "generation throughput"}


def print_calibration(document: JsonObject, notes: Sequence[str]) -> None:
    """All sections that the document has, and these notes, to standard output."""
    if sys.stdout is None:
        raise InputError("standard output is closed")
    console = Console(width=PIPE_COLUMNS if not sys.stdout.isatty() else max(LEAST_COLUMNS, Console().width), highlight=False)
    for label, text in _header(document):
        console.print(Text.assemble((f"{label:<9}", "bold"), text), soft_wrap=True)
    for title, table in _tables(document):
        console.print()
        console.print(Text(title, "bold"))
        console.print(table)
    fit = document["fit"]
    if fit is not None:
        console.print()
        for line in _remarks(fit):
            console.print(Text(line), soft_wrap=True)
    if notes:
        console.print()
        for note in notes:
            console.print(Text.assemble(("note     ", "dim"), note), soft_wrap=True)


def _header(document: JsonObject) -> Iterator[tuple[str, str]]:
    yield "measured", f"{document['kind']}: {', '.join(document['measured'])}"
    if document["model"] is not None:
        gpu = "" if document["gpu"] is None else f" on {document['gpu']}"
        yield "server", f"{document['model']}{gpu}, {document['allocator']}"


def _tables(document: JsonObject) -> Iterator[tuple[str, Table]]:
    if document.get("startup"):
        yield "Start-up: printed and predicted", _seen_table(document["startup"])
    if document.get("page"):
        yield "The page" + (" and the simulation of the trace" if document["replayed"] else ""), _seen_table(document["page"])
    if document.get("over_time"):
        yield f"Over time: {counted(document['over_time']['compared'], 'line')}", _gauges(document["over_time"]["errors"])
    elif document.get("seen"):
        yield f"Periodic lines: {document['lines']:,}", _peaks(document["seen"])
    if document["fit"] is not None:
        yield "The roofline's numbers", _numbers(document["fit"]["numbers"])
        yield "Measured and predicted", _cases(document["fit"]["cases"])


def _table(*columns: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number == 0 else "right", overflow="fold")
    return made


def _numbers(numbers: JsonObject) -> Table:
    made = _table("", "default", "fitted", "+-", "")
    made.columns[4].justify = "left"
    for name, number in numbers.items():
        error = number["standard_error"]
        made.add_row(NAMES[name], f"{number['default']:.4g}", f"{number['fitted']:.4g}",
                     "-" if error is None else f"{error:.2g}", Text(number["remark"] or ""))
    return made


def _cases(cases: list[JsonObject]) -> Table:
    made = _table("", "", "measured", "before", "error", "fitted", "error")
    for case in cases[:MOST_CASES]:
        label = case["label"]
        for target in case["targets"]:
            metric = LATENCIES.get(target["metric"], target["metric"].upper())
            name = f"{metric} {target['statistic']}" + ("" if target["fitted"] else ", not fitted to")
            made.add_row(Text(label), name, _time(target["measured_s"]), _time(target["before_s"]),
                         f"{100 * target['error_before']:.1f} %", _time(target["after_s"]),
                         f"{100 * target['error_after']:.1f} %")
            label = ""
    if len(cases) > MOST_CASES:
        made.add_row(f"and {len(cases) - MOST_CASES:,} more (--json has them)")
    return made


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms" if seconds < 10 else f"{seconds:,.2f} s"


def _remarks(fit: JsonObject) -> Iterator[str]:
    for when, errors in (("before", fit["errors"]["before"]), ("after", fit["errors"]["after"])):
        means = ", ".join(f"{metric.upper()} {100 * errors[metric]:.2f} %" for metric in METRICS
                          if errors[metric] is not None)
        worst = errors["worst"]
        yield (f"mean error {when:<6}  {means}; worst: {worst['metric'].upper()} {100 * worst['error']:+.1f} % "
               f"({worst['case']})")


def _seen_table(lines: list[JsonObject]) -> Table:
    made = _table("", "seen", "predicted", "difference", "")
    made.columns[4].justify = "left"
    for line in lines:
        verdict = VERDICTS.get(line.get("agrees"), "")
        predicted, relative = line["predicted"], line["relative"]
        ours = "" if predicted is None else _number(predicted, line["unit"])
        made.add_row(line["name"], _number(line["seen"], line["unit"]), ours,
                     "" if relative is None else f"{100 * relative:+.2f} %", verdict)
    return made


def _number(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}" if abs(value) < 1 else f"{value:,.2f}"
    return f"{text} {unit}".strip() if unit != "x" else f"{value:.2f}x"


def _gauges(errors: JsonObject) -> Table:
    made = _table("", "seen, mean", "predicted, mean", "mean |error|", "bias", "")
    made.columns[5].justify = "left"
    for name, error in errors.items():
        made.add_row(GAUGES[name], f"{error['seen_mean']:,.1f}", f"{error['predicted_mean']:,.1f}",
                     f"{error['mean_absolute_error']:,.2f}", f"{error['bias']:+,.2f}", error["unit"])
    return made


def _peaks(seen: JsonObject) -> Table:
    made = _table("", "mean", "peak", "last")
    for name, values in seen.items():
        made.add_row(GAUGES[name], *(f"{values[key]:,.1f}" for key in ("mean", "peak", "last")))
    return made
