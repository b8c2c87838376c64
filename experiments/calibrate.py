"""`pagedsim calibrate`: trust for your own server: predicted beside measured, and efficiencies fitted to what was measured."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import options as opt
from experiments.cache_options import add_cache
from experiments.calibration.described import given, words_of_log, words_of_page
from experiments.calibration.figure import check_drawable, plot_over_time, plot_points
from experiments.calibration.fitting import Points, file_of, fit_notes, fit_warnings, run_fit
from experiments.calibration.measured import BENCHMARK, LOG, TABLE, Measured, Read, open_measured, read_all
from experiments.calibration.page_watching import PAGE_HELD, page_case, page_fit_note, watch_page
from experiments.calibration.repeats import check_given_once, counted_once
from experiments.calibration.report import print_calibration
from experiments.calibration.watching import Watched, allocator_of, watch_log
from experiments.figures import check_format
from experiments.output import check_outputs, deliver, write_text
from experiments.reading import read, unused
from experiments.setup import Setup, size_up
from experiments.trace_options import add_handling
from experiments.version import VERSION
from workloads.messages import show_path
from workloads.request import InputError, Trace

EXAMPLES = """examples:
  pagedsim calibrate points.csv --model Llama-3.1-8B --gpu H100 --out efficiencies.toml --plot fit.png
  pagedsim calibrate rate-*.json --model Llama-3.1-8B --gpu H100 --out efficiencies.toml
  pagedsim compare trace.csv --model Llama-3.1-8B --gpu H100 --step-time efficiencies.toml
  pagedsim calibrate server.log --gpu H100                                         the start-up lines, and what we predict
  pagedsim calibrate server.log --trace served.jsonl --gpu H100 --step-time efficiencies.toml --plot gauges.png
  pagedsim calibrate metrics.txt --trace served.jsonl --gpu H100 --fit
"""
WARNING = "warning: "                                  # how notes begin that are said however quiet it is to be
NOT_ASKED = {"saturate": False, "placement": "buddy", "allocator": None, "page_size": None}


def main(argv: list[str]) -> int:
    """Entry of the command; returns the exit status."""
    options = parser().parse_args(argv)
    if options.plot is not None:
        check_format(options.plot)
    check_outputs({"--plot": options.plot, "--out": options.out, "--json": options.json},
                  [*options.measured, options.trace, options.warm_trace, options.step_time], inputs_are="what is read")
    if [*options.measured, options.trace].count("-") > 1:
        raise InputError("only one file comes from standard input")
    check_given_once(options.measured)
    notes: list[str] = []
    found = [open_measured(path) for path in options.measured]
    made = read_all(found, _lengths(options, found), options.seed)
    options = _described(made, argv, options, notes)
    document, setup, points, watched = _points(made, options, notes) if made.cases else _watched(made, options, notes)
    document["notes"] = list(dict.fromkeys(notes))
    if options.plot is not None:
        check_drawable(points, watched.replayed)
        title = ", ".join(Path(path).name for path in options.measured)
        if watched.replayed is not None:
            plot_over_time(watched.replayed, title, options.plot)
        else:
            plot_points(points, title, options.plot)
    if options.out is not None:
        if document["fit"] is None or setup is None:
            raise InputError("--out: nothing was fitted: a table or a benchmark result is, or a metrics page with --trace --fit")
        text = file_of(document["fit"], setup, options.measured, options.tensor_parallel_size)
        write_text(options.out, lambda file: print(text, end="", file=file))
    said = [note for note in document["notes"] if not note.startswith(WARNING)]
    deliver(document, options.json, options.quiet, lambda: print_calibration(document, said), said)
    _warn(document["notes"])
    return 0


def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    made = opt.OneLineParser("pagedsim calibrate", description=__doc__, epilog=EXAMPLES, allow_abbrev=False,
                             formatter_class=argparse.RawDescriptionHelpFormatter)
    made.set_defaults(**NOT_ASKED)
    made.add_argument("measured", nargs="+", metavar="MEASURED", help="a CSV of operation points (prompt_tokens, "
                      "output_tokens, ttft_ms, tpot_ms[, concurrency]), results of vllm bench serve --save-result, a server's "
                      "log, or a saved /metrics page; plain, gzip or zstd, - for standard input")
    group = made.add_argument_group("the traffic that was served")
    group.add_argument("--trace", metavar="TRACE", help="to be replayed beside a log or a metrics page; lengths for a "
                       "benchmark result without them")
    group.add_argument("--offset", type=opt.number(-1e9, 1e9, including=True), metavar="S", help="a log: the first arrival "
                       "comes S seconds after the first periodic line (default: looked for)")
    group.add_argument("--engine", type=opt.whole(0, 10**6), metavar="N", help="only engine N of a log or page of several")
    group.add_argument("--elapsed", type=opt.number(), metavar="S", help="a page: how long its counters have been counting")
    group.add_argument("--fit", action="store_true", help="a page: fit to the means of its histograms")
    add_handling(group)
    for add in (opt.add_sizing, opt.add_measured, opt.add_scheduler, add_cache):
        add(made)
    group = made.add_argument_group("output")
    group.add_argument("--out", metavar="FILE.toml", help="the fitted efficiencies, for --step-time FILE.toml of every command")
    group.add_argument("--json", metavar="FILE", help="everything as JSON; - for standard output")
    group.add_argument("--plot", metavar="FILE", help="measured against predicted, or gauges over time: .png, .svg or .pdf")
    opt.add_quiet(group)
    return made


def _lengths(options: argparse.Namespace, found: Sequence[Measured]) -> Trace | None:
    """The trace, where it is only asked for its lengths."""
    if options.trace is None:
        unused(options)
        return None
    if not all(each.kind in (TABLE, BENCHMARK) for each in found):
        return None
    if all(each.kind == TABLE for each in found):
        raise InputError("--trace is for a log, a metrics page, or a benchmark result without lengths: a table has its own")
    rows, asked = read(options)
    return rows.to_trace(asked)


def _described(made: Read, argv: list[str], options: argparse.Namespace, notes: list[str]) -> argparse.Namespace:
    """The options, with those that the log or the page stands for where they are not typed."""
    for name, holds in (("--offset", made.log is None), ("--elapsed", made.page is None), ("--fit", made.page is None),
                        ("--engine", bool(made.cases))):
        if holds and getattr(options, name[2:]) not in (None, False):
            raise InputError(f"{name} has no meaning for {'a log' if made.log else 'a page' if made.page else 'a fit'}")
    if made.cases:
        return options
    words = words_of_log(made.log, notes) if made.log is not None else []
    words = words_of_page(made.page, notes) if made.page is not None else words
    kept, typed = given(words, argv)
    if kept:
        notes.append(f"taken from {show_path(options.measured[0])}: {' '.join(kept)}")
    if typed:
        notes.append(f"typed, and so not taken from {show_path(options.measured[0])}: {' '.join(typed)}")
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return parser().parse_args([*kept, *argv])
    except SystemExit:
        raise InputError(f"{show_path(options.measured[0])}: its configuration cannot be used: {' '.join(kept)}") from None


def _warn(notes: Sequence[str]) -> None:
    """Those of the notes that are warnings, on standard error."""
    if sys.stderr is not None:
        for note in (note for note in notes if note.startswith(WARNING)):
            print(note, file=sys.stderr)


# ---------------------------------------------------------------------- the parts of the result
def _points(made: Read, options: argparse.Namespace, notes: list[str],
            ) -> tuple[dict[str, Any], Setup | None, list[Points], Watched]:
    if options.model is None or options.gpu is None:
        raise InputError("a fit needs the server that was measured: --model and --gpu of the catalogue")
    cases, repeated = counted_once(made.cases)
    longest = max(cases, key=lambda case: int((case.trace.prompt_tokens + case.trace.output_tokens).max()))
    setup = size_up(longest.trace, options, notes)
    notes += [*repeated, *fit_notes(cases)]
    fitted, points = run_fit(setup, cases, allocator_of(options), options.quiet)
    notes += fit_warnings(fitted)
    return _document("fit", options, setup) | {"fit": fitted}, setup, points, Watched({})


def _watched(made: Read, options: argparse.Namespace, notes: list[str],
             ) -> tuple[dict[str, Any], Setup | None, list[Points], Watched]:
    if made.log is not None:
        watched = watch_log(made.log, options, notes)
        return _document(LOG, options, watched.setup) | watched.document, watched.setup, [], watched
    assert made.page is not None
    watched = watch_page(made.page, options, notes)
    document = _document("metrics page", options, watched.setup) | watched.document
    if not options.fit:
        return document, watched.setup, [], watched
    if watched.setup is None:
        raise InputError("--fit needs --trace, the traffic behind the page")
    case = page_case(made.page, options, watched.setup)
    fitted, points = run_fit(watched.setup, [case], allocator_of(options), options.quiet, PAGE_HELD)
    notes += [page_fit_note(case, fitted), *fit_warnings(fitted)]
    return document | {"fit": fitted}, watched.setup, points, watched


def _document(kind: str, options: argparse.Namespace, setup: Setup | None) -> dict[str, Any]:
    """What every result says; nothing in it depends on the wall clock."""
    model, gpu = (options.model, options.gpu) if setup is None else \
        (setup.model and setup.model.name, setup.gpu and setup.gpu.name)
    return {"schema": 1, "pagedsim": VERSION, "kind": kind, "measured": list(options.measured), "model": model, "gpu": gpu,
            "allocator": allocator_of(options), "step_time": None if setup is None else setup.sim.step_time.describe(),
            "replayed": options.trace is not None and setup is not None, "capacity": None if setup is None else setup.capacity(),
            "fit": None}
