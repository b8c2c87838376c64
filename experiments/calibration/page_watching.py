"""A server's metrics page as a piece of the result: what it says, beside its traffic simulated, and a fit to its means."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.calibration.cases import Case, Target
from experiments.calibration.metrics_page import Engine, MetricsPage
from experiments.calibration.page_lines import TIMES, page_lines
from experiments.calibration.watching import ONE_ENGINE, Watched, allocator_of, rejected, served_by
from experiments.setup import Setup
from experiments.step_time_file import METRICS
from sim.engine import Engine as Simulation
from workloads.messages import show_path
from workloads.request import InputError, Trace

APART = 0.05                                           # of a page's totals: a trace that is further off is other traffic
PAGE_HELD = {"overhead_us": "kept: the means of a metrics page cannot tell three numbers"}


def watch_page(page: MetricsPage, options: argparse.Namespace, notes: list[str]) -> Watched:
    """Counters and means, beside the simulation where there is a trace; InputError as `watch_log`."""
    if options.engine is not None:
        page = page.of_engine(options.engine)
    notes += page.notes
    together = page.together()
    if len(page.engines) > 1:
        notes.append(f"{len(page.engines)} engines: sums of all, and the mean of their usage; --engine N shows one")
        if options.trace is not None:
            raise InputError(f"{show_path(page.path)}: numbers of {len(page.engines)} engines: {ONE_ENGINE}")
    slots = _slots(together)
    setup = run = None
    if options.trace is not None:
        blocks = together.pool.get("num_gpu_blocks", "")
        seen = int(blocks) if blocks.isdigit() and len(blocks) < 13 and int(blocks) > 0 else None
        setup = served_by(options, seen, show_path(page.path), notes)
        run = Simulation(setup.trace, setup.sim, allocator_of(options), warm=setup.warm).run()
        notes += _other_traffic(together, setup.trace)
        rejected(run, notes)
    if options.elapsed is None and "e2e" in together.totals:
        notes.append("--elapsed S, the seconds the counters have been counting, gives the mean number of requests in the server")
    lines = page_lines(together, run, slots, options.elapsed)
    return Watched({"page": [line.json() for line in lines], "engines": list(page.engines), "models": list(page.models),
                    "pool": dict(together.pool)}, setup)


def _slots(engine: Engine) -> int | None:
    blocks, size = (engine.pool.get(name, "") for name in ("num_gpu_blocks", "block_size"))
    known = blocks.isdigit() and size.isdigit() and len(blocks) < 13 and len(size) < 7 and int(blocks) > 0
    return (int(blocks) - 1) * int(size) if known else None


def _other_traffic(engine: Engine, trace: Trace) -> Iterator[str]:
    """A warning where the totals of a page are further than `APART` from the trace's."""
    totals = (("succeeded", "requests completed", len(trace)), ("prompt_tokens", "prompt tokens", int(trace.prompt_tokens.sum())),
              ("generation_tokens", "generated tokens", int(trace.output_tokens.sum())))
    off = [f"{seen:,.0f} {name} on the page, {ours:,} in the trace" + (f" ({100 * (ours / seen - 1):+.3g} %)" if seen else "")
           for key, name, ours in totals if (seen := engine.values.get(key)) is not None and abs(ours - seen) > APART * seen]
    if off:
        yield (f"warning: does this trace belong to this page? More than {100 * APART:g} % apart are {'; '.join(off)}: the page "
               "counts since the server started, and the trace should be all that it served")


def page_case(page: MetricsPage, options: argparse.Namespace, setup: Setup) -> Case:
    """The means of a page's histograms as targets: a fit goes by `METRICS`, the others are shown beside.

    Raises
    ------
    InputError
        If no histogram that could be fitted to has counted.
    """
    engine = (page if options.engine is None else page.of_engine(options.engine)).together()
    targets = tuple(Target(metric, "mean", np.array([mean]), metric in METRICS) for metric in TIMES
                    if metric in engine.totals and (mean := engine.totals[metric].mean))
    if not any(target.fitted for target in targets):
        raise InputError(f"{show_path(page.path)}: --fit: no histogram of times to first token, per output token or between "
                         "tokens has counted")
    return Case(show_path(page.path), setup.trace, targets)


def page_fit_note(case: Case, fitted: dict[str, Any]) -> str:
    """What such a fit cannot tell.

    Parameters
    ----------
    case : Case
    fitted : dict
        The document of the fit.
    """
    means = [TIMES[target.metric] for target in case.targets if target.fitted]
    kept = fitted["numbers"]["overhead_us"]["fitted"]
    alike = "" if len(means) < 3 else "; the last two tell nearly the same, so +- holds little more than how they disagree"
    return (f"fitted to what the page has of latencies, {', '.join(means)}, which cannot tell three numbers: the overhead of a "
            f"step is not fitted and stays at {kept:,g} us; --step-time FILE.toml sets another{alike}")
