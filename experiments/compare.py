"""`pagedsim compare`: one trace, several allocators, the same bytes: where every slot of the KV pool went."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from experiments import options as opt
from experiments.cache_options import add_cache, cache_json, cache_notes
from experiments.check_report import report_failures
from experiments.output import check_outputs, deliver, write_text
from experiments.progress import Advance, bars
from experiments.replicas import replicas_json
from experiments.report import print_report
from experiments.serving import Served, serve
from experiments.setup import Setup, prepare
from experiments.trace_options import add_trace
from experiments.version import VERSION
from sim.catalog import DEFAULT
from sim.run import Observer
from sim.stays import StayLog, Stays
from sim.timeline import Timeline
from workloads.later import Later

if TYPE_CHECKING:
    from experiments import animation, chrome_trace, compare_pictures, figures, measured, request_rows
else:
    animation, chrome_trace, compare_pictures, figures, measured, request_rows = map(Later, (
        "experiments.animation", "experiments.chrome_trace", "experiments.compare_pictures", "experiments.figures",
        "experiments.measured", "experiments.request_rows"))

EXAMPLES = """examples:
  pagedsim compare
  pagedsim compare trace.csv --model Llama-2-13b --gpu A100-40GB --plot pool.png
  pagedsim compare --allocator contiguous-max --allocator paged --plot pool.gif
  pagedsim compare trace.jsonl --model Llama-3.1-8B --gpu H100 --allocator paged --allocator paged-prefix --json -
  pagedsim compare chat.csv --model Llama-3.1-8B --gpu H100 --data-parallel-size 4 --router session-affinity
  pagedsim compare lengths.csv.gz --num-gpu-blocks-override 984 --max-model-len 2048 --saturate
"""
PIPE_COLUMNS, LEAST_COLUMNS = 110, 98                 # where there is no terminal to ask; lines wrap rather than lose digits


def main(argv: list[str]) -> int:
    """Entry of the command; returns the exit status."""
    options = parser().parse_args(argv)
    names = _allocators(options)
    moves = options.plot is not None and animation.wanted(options.plot)
    if moves:
        animation.check_animation(options.plot, names, options.data_parallel_size)
    elif options.plot is not None:
        figures.check_format(options.plot)
    check_outputs({"--plot": options.plot, "--html": options.html, "--requests": options.requests,
                   "--chrome-trace": options.chrome_trace, "--json": options.json},
                  [options.trace, options.warm_trace, options.step_time], inputs_are="what is read")
    started = time.perf_counter()
    setup = prepare(options)
    films = {name: animation.Film(setup.sim.block_size) for name in names} if moves else {}
    served, timelines, stays = _simulate(setup, names, options, films)
    runs = {one.name: one.run for one in served}
    setup.notes += cache_notes(runs)
    if options.chrome_trace is not None:
        traced = [one for name, run in runs.items() for one in chrome_trace.traced_runs(name, run, stays[name], timelines[name])]
        setup.notes += chrome_trace.write_chrome_trace(options.chrome_trace, traced, setup.trace.source)
    document = compare_json(setup, served, options.warm_up, stays)
    title = setup.trace.source if options.trace is None else Path(options.trace).name
    if options.plot is not None or options.html is not None:
        compare_pictures.draw(document, compare_pictures.Drawn(runs, timelines, films, title, options.plot, options.html, argv))
    if options.requests is not None:
        write_text(options.requests, lambda file: request_rows.write_requests(file, runs))
    deliver(document, options.json, options.quiet, lambda: print_report(document, setup.notes, _console()), setup.notes)
    if not options.quiet:
        print(f"{time.perf_counter() - started:.1f} s of work", file=sys.stderr)
    return report_failures("compare", document["crosscheck"])


def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    made = opt.OneLineParser("pagedsim compare", description=__doc__, epilog=EXAMPLES,
                             formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    for add in (add_trace, opt.add_sizing, opt.add_scheduler, opt.add_replicas, add_cache, opt.add_allocators, opt.add_measuring,
                opt.add_output):
        add(made)
    return made


def _console() -> Console:
    if not sys.stdout.isatty():
        return Console(width=PIPE_COLUMNS)
    return Console(width=max(LEAST_COLUMNS, Console().width))


def _allocators(options: argparse.Namespace) -> list[str]:
    if options.allocator:
        return list(dict.fromkeys(options.allocator))
    return [name for name in DEFAULT if name != "paged-prefix" or options.enable_prefix_caching]


# ---------------------------------------------------------------------- running
def _simulate(setup: Setup, names: list[str], options: argparse.Namespace, films: Mapping[str, animation.Film],
              ) -> tuple[list[Served], dict[str, list[Timeline]], dict[str, list[Stays]]]:
    """Run every scenario; and by allocator the timeline and the stays of each replica, where they are wanted."""
    replicas = range(setup.sim.data_parallel_size)
    timelines = {name: [Timeline() for _ in replicas] for name in names}
    logs = {name: [StayLog() for _ in replicas] for name in names}
    served, traces = [], options.chrome_trace is not None
    followed = traces or options.warm_up is not None
    with bars(options.quiet) as progress:
        for name in names:
            moving: list[Observer] = [films[name]] if name in films else []
            if not progress.disable:
                moving.append(Advance(progress, progress.add_task(name, total=len(setup.trace))))
            drawn = timelines[name] if options.plot is not None or options.html is not None or traces else None
            served.append(serve(setup, name, drawn, _watchers(moving, logs[name] if followed else [])))
    return served, timelines, {name: [log.stays() for log in logs[name]] for name in names if followed}


def _watchers(moving: Sequence[Observer], logs: list[StayLog]) -> Callable[[int], list[Observer]]:
    """The bar moves whichever replica is done; stays are each replica's own."""
    return lambda number: [*moving, *logs[number: number + 1]]


# ---------------------------------------------------------------------- results
def compare_json(setup: Setup, served: list[Served], warm_up: str | None, stays: Mapping[str, list[Stays]]) -> dict[str, Any]:
    """The whole result as one object (docs/reference.md), and ``measured`` in each scenario if there is a warm-up rule.

    Nothing in it depends on the wall clock. ``stays`` are looked at for ``measured`` only: those of each replica, by allocator.
    """
    runs = {one.name: one.run for one in served}
    behind = {one.name: {} if warm_up is None else {"measured": measured.measured_json(one.run, stays[one.name], warm_up)}
              for one in served}
    return {
        "schema": 1,
        "pagedsim": VERSION,
        "trace": trace_json(setup),
        "config": config_json(setup) | cache_json(setup.sim, setup.warm, runs) | replicas_json(setup.sim, setup.gpus),
        "capacity": setup.capacity(),
        "scenarios": [one.scenario() | behind[one.name] for one in served],
        "crosscheck": [check for one in served for check in one.checks()],
    }


def trace_json(setup: Setup) -> dict[str, Any]:
    """The ``trace`` object of the JSON."""
    trace = setup.trace
    return {"source": trace.source, "requests": len(trace), "dropped": dict(trace.dropped),
            "prompt_tokens": int(trace.prompt_tokens.sum()), "output_tokens": int(trace.output_tokens.sum()),
            "duration_s": trace.duration_s}


def config_json(setup: Setup) -> dict[str, Any]:
    """The ``config`` object of the JSON: all that was asked for and assumed."""
    sim, scheduler, several = setup.sim, setup.sim.scheduler, setup.trace.sequences
    return {
        **setup.asked, "trace_format": setup.trace.format,
        "sequences": len(setup.trace) if several is None else int(several.sum()),
        "model": setup.model and setup.model.name, "gpu": setup.gpu and setup.gpu.describe(),
        "max_num_seqs": scheduler.max_num_seqs, "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "enable_chunked_prefill": scheduler.enable_chunked_prefill,
        "long_prefill_token_threshold": scheduler.long_prefill_token_threshold, "watermark": scheduler.watermark,
        "placement": sim.placement, "page_slots": sim.page_slots, "step_time": sim.step_time.describe(), "saturate": sim.saturate,
        "closed_loop": setup.trace.closed_loop,
        "batching": scheduler.batching, "async_scheduling": scheduler.async_scheduling, "scheduling_policy": scheduler.policy,
        "preemption_mode": "recompute" if scheduler.swap_blocks is None else "swap", "swap_blocks": scheduler.swap_blocks,
        "beam_turnover": scheduler.beam_turnover, "vllm_version": setup.version, "notes": setup.notes,
    }
