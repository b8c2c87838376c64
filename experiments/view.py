"""`pagedsim view`: the interactive memory map: one trace, several allocators side by side on one clock, in one page."""

from __future__ import annotations

import argparse
import os
import sys
import time

from experiments import options as opt
from experiments.cache_options import add_cache
from experiments.html.page import data_block, provenance, render, write_page
from experiments.load import load_trace
from experiments.output import check_outputs, write_json
from experiments.progress import bars
from experiments.reading import unused
from experiments.setup import Setup, size_up
from experiments.trace_options import add_trace
from experiments.version import VERSION
from experiments.viewer.document import JsonObject, document
from experiments.viewer.legend import PARTS, WORDS
from experiments.viewer.recording import Recording, labels_of
from experiments.viewer.workload import MAX_MODEL_LEN, NUM_BLOCKS, RATE, REQUESTS, SYSTEM_PROMPTS, SYSTEM_TOKENS, small_workload
from workloads.messages import counted, show_path
from workloads.request import InputError, Trace

EXAMPLES = """examples:
  pagedsim view --html map.html
  pagedsim view trace.csv --num-gpu-blocks-override 129 --html map.html
  pagedsim view --allocator contiguous-pow2 --allocator paged --placement first-fit --html map.html
  pagedsim view trace.jsonl --model Llama-3.1-8B --gpu H100 --limit 500 --events 4000 --html map.html
"""
ABOUT = f"{__doc__} Without a trace it shows a small workload: {REQUESTS} requests behind {SYSTEM_PROMPTS} system prompts of " \
        f"{SYSTEM_TOKENS} tokens, {RATE:g} requests/s in bursts, through {NUM_BLOCKS - 1} blocks and the null block."
DEFAULT_ALLOCATORS = ("contiguous-max", "contiguous-oracle", "paged", "paged-prefix")
DEFAULT_EVENTS, LEAST_EVENTS, DEFAULT_FILE, HEAVY_BYTES = 2000, 10, "memory-map.html", 3_000_000


def main(argv: list[str]) -> int:
    """Entry of the command; returns the exit status."""
    options = parser().parse_args(argv)
    if options.pools > 1:
        raise InputError(f"--data-parallel-size {options.pools}: replicas are not drawn, view shows one pool")
    if options.html is None and options.json is None:
        options.html = DEFAULT_FILE
    check_outputs({"--html": options.html, "--json": options.json}, [options.trace, options.warm_trace, options.step_time],
                  inputs_are="what is read")
    started = time.perf_counter()
    setup = prepare(options)
    page, events, data = map_page(setup, _allocators(options), options, argv)
    size = _bytes(page)
    if size > HEAVY_BYTES:
        setup.notes.append(f"a page of {size / 1e6:.1f} MB: fewer --events, --limit or fewer allocators make it lighter")
    if options.html is not None:
        write_page(options.html, page)
    if options.json is not None:
        write_json(options.json, view_json(setup, data))
    if not options.quiet:
        if options.html is not None:
            print(f"wrote {show_path(options.html)}: {size / 1e6:.1f} MB, {events}, opens in any browser without a network",
                  file=sys.stderr if options.json == "-" else sys.stdout)
        for note in setup.notes:
            print(f"note: {note}", file=sys.stderr)
        print(f"{time.perf_counter() - started:.1f} s of work", file=sys.stderr)
    return 0


def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    made = opt.OneLineParser("pagedsim view", description=ABOUT, epilog=EXAMPLES,
                             formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    for add in (add_trace, opt.add_sizing, opt.add_scheduler, add_cache):
        add(made)
    opt.add_allocators(made, DEFAULT_ALLOCATORS)
    group = made.add_argument_group("output")
    group.add_argument("--html", metavar="FILE", help=f"the page (default {DEFAULT_FILE}, unless --json is given)")
    group.add_argument("--json", metavar="FILE", help="what the page draws as JSON; - for standard output")
    group.add_argument("--events", type=opt.whole(LEAST_EVENTS), default=DEFAULT_EVENTS, metavar="N",
                       help="most events on the page's clock, common to all allocators; longer runs are thinned around "
                       "interesting ones, further where the page "
                       f"would come to {HEAVY_BYTES // 10**6} MB, and say so (default {DEFAULT_EVENTS:,})")
    group.add_argument("--data-parallel-size", "-dp", dest="pools", type=opt.whole(1), default=1, metavar="N",
                       help="1 and no other: replicas are not drawn")
    opt.add_quiet(group)
    return made


def prepare(options: argparse.Namespace) -> Setup:
    """The trace and the pool; without a trace a small workload, in a pool whose blocks can be told apart."""
    notes: list[str] = []
    if options.trace is not None:
        return size_up(load_trace(options, notes), options, notes)
    unused(options)
    trace = load_trace(options, notes, _small(options))
    if options.model is None and options.num_gpu_blocks_override is None:
        options.num_gpu_blocks_override = NUM_BLOCKS
        notes.append(f"no trace, no --model: {trace.source} in a pool of {NUM_BLOCKS} blocks")
        if options.max_model_len is None:
            options.max_model_len = MAX_MODEL_LEN
    return size_up(trace, options, notes)


def _small(options: argparse.Namespace) -> Trace:
    try:
        return small_workload(options.seed, options.rate or RATE, options.saturate)
    except InputError as error:
        raise InputError(f"--rate {options.rate:g}: {error}") from None


def _allocators(options: argparse.Namespace) -> list[str]:
    names = options.allocator or [name for name in DEFAULT_ALLOCATORS
                                  if name != "paged-prefix" or options.enable_prefix_caching]
    return list(dict.fromkeys(names))


def map_page(setup: Setup, allocators: list[str], options: argparse.Namespace, words: list[str],
             ) -> tuple[str, str, JsonObject]:
    """The text of the page, how many events it has, and what its script reads; fewer events than asked for where it would be
    heavier than `HEAVY_BYTES`.

    Parameters
    ----------
    setup : Setup
    allocators : list of str
    options : Namespace
        ``events`` and ``quiet``.
    words : list of str
        Of the command line behind ``view``.
    """
    with bars(options.quiet) as progress:
        recording = Recording(setup, allocators, progress)
        most, why = options.events, f"--events {options.events:,}"
        while True:
            lanes, told = recording.lanes(most, why)
            data = document(lanes, labels_of(setup.trace), setup.kv_bytes_per_token, told if " of " in told else "")
            page = _page(setup, data, options, words)
            size = _bytes(page)
            if size <= HEAVY_BYTES or most == LEAST_EVENTS:
                return page, told, data
            shown = min(most, recording.events)
            most = max(LEAST_EVENTS, min(shown - 1, int(0.95 * shown * HEAVY_BYTES / size)))
            why = f"a page is held under {HEAVY_BYTES / 1e6:g} MB"


def view_json(setup: Setup, data: JsonObject) -> JsonObject:
    """What the page draws, as one object."""
    return {"schema": 1, "pagedsim": VERSION, "trace": {"source": setup.trace.source, "requests": len(setup.trace)},
            "block_size": setup.sim.block_size, "notes": setup.notes, **data}


def _page(setup: Setup, data: JsonObject, options: argparse.Namespace, words: list[str]) -> str:
    source = setup.trace.source if options.trace is None else os.path.basename(options.trace)
    arrive = counted(len(setup.trace), "request")
    named = source if f"({arrive}," in source else f"{source}: {arrive}"           # the built-in one says how many itself
    return render("view.html", title=f"Memory map: {named}", traffic=named, notes=setup.notes, block_size=setup.sim.block_size,
                  lanes=_listed([lane["name"] for lane in data["lanes"]]), parts=PARTS, words=WORDS,
                  provenance=provenance(["view", *words]),
                  data=data_block("run", data))


def _bytes(page: str) -> int:
    return len(page.encode("utf-8", "backslashreplace"))


def _listed(names: list[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
