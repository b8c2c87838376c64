"""`pagedsim prefix`: what prefix caching gains: today, in a larger pool, by policy; and the bound of an endless cache."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from experiments import options as opt
from experiments.cache_options import add_cache
from experiments.check_report import report_failures
from experiments.figures import check_format
from experiments.html.page import write_page
from experiments.load import load_trace
from experiments.output import check_outputs, deliver
from experiments.prefix_caching.analysis import analyse
from experiments.prefix_caching.figure import plot_prefix
from experiments.prefix_caching.page import prefix_page
from experiments.prefix_caching.report import print_prefix
from experiments.prefix_caching.serving import run_checks
from experiments.progress import Bars, bars
from experiments.setup import Setup, size_up
from experiments.trace_options import add_trace
from sim.caching.stream import CONVENTIONS
from sim.catalog import EVICTION
from sim.sizing.hardware import GIB
from workloads.messages import show_path
from workloads.request import InputError, Trace

EXAMPLES = """examples:
  pagedsim prefix conversation_trace.jsonl --model Llama-3.1-8B --gpu H100
  pagedsim prefix conversation_trace.jsonl --model Llama-3.1-8B --gpu H100 --pool-gib 500 --plot prefix.png
  pagedsim prefix conversation_trace.jsonl --convention ceil --no-serving --json curve.json
  pagedsim prefix trace.jsonl --num-gpu-blocks-override 5000 --policy vllm --policy belady
  pagedsim prefix lengths.csv.gz --synth-prefix system:tokens=512
"""
LONG_MODEL, LONG_GPU, SHORT_CONTEXT = "Llama-3.1-8B", "H100-80GB", 4096
AN_ID = "with --convention ceil a block is an id of the trace"
NEEDS_CONTENT = ("has no prefix identity: sharing cannot be measured on it; --synth-prefix makes one up, as "
                 "--synth-prefix system:tokens=512")


def main(argv: list[str]) -> int:
    """Entry of the command; returns the exit status."""
    options = parser().parse_args(argv)
    if options.plot is not None:
        check_format(options.plot)
    check_outputs({"--plot": options.plot, "--html": options.html, "--json": options.json}, [options.trace, options.warm_trace])
    started = time.perf_counter()
    setup = _prepare(options)
    with bars(options.quiet) as progress:
        document = analyse(setup, options, _watch(progress))
    title = setup.trace.source if options.trace is None else Path(options.trace).name
    if options.plot is not None:
        plot_prefix(document, title, options.plot)
    if options.html is not None:
        write_page(options.html, prefix_page(document, title, argv))
    deliver(document, options.json, options.quiet, lambda: print_prefix(document), document["notes"])
    if not options.quiet:
        print(f"{time.perf_counter() - started:.1f} s of work", file=sys.stderr)
    return report_failures("prefix", run_checks(document))


def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    made = opt.OneLineParser("pagedsim prefix", description=__doc__, epilog=EXAMPLES,
                             formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add_trace(made)
    _add_view(made)
    for add in (opt.add_sizing, opt.add_scheduler, add_cache):
        add(made)
    group = made.add_argument_group("output")
    group.add_argument("--json", metavar="FILE", help="the result as JSON; - for standard output")
    group.add_argument("--plot", metavar="FILE", help="a picture: .png, .svg or .pdf")
    group.add_argument("--html", metavar="FILE", help="a page with all of it, for any browser, without a network")
    opt.add_quiet(group)
    made.set_defaults(tries_tiers=True, allocator=None, placement="buddy", page_size=None, block_size=None)
    return made


def _add_view(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("the cache")
    group.add_argument("--policy", action="append", choices=list(EVICTION), metavar="NAME",
                       help=f"replayed: one of {', '.join(EVICTION)}; may be repeated (default: all)")
    group.add_argument("--pool-blocks", type=opt.whole(1, 1 << 40), action="append", metavar="N", help="a size at which "
                       "policies are replayed and requests served; may be repeated (default: around today's pool)")
    group.add_argument("--pool-gib", type=opt.number(most=1e9), action="append", metavar="GIB", help="a size in GiB on a GPU")
    group.add_argument("--policy-block-size", type=opt.whole(1, 1 << 31), metavar="TOKENS",
                       help="blocks of the replays (default: --block-size, or the trace's ids where that would take long)")
    group.add_argument("--convention", choices=CONVENTIONS, default="full", help="full: whole blocks, as engines share them; "
                       "ceil: each id of the trace is a block, a last partial one too, as papers count (default full)")
    group.add_argument("--no-serving", action="store_true", help="only the cache view: skip the engine")
    group.add_argument("--saturate", action="store_true", help="serving view: all requests at time 0, memory alone limits")


# ---------------------------------------------------------------------- what is asked for
def _prepare(options: argparse.Namespace) -> Setup:
    """The trace, the pool and the block size of the cache view, which is the engine's unless ids are the blocks."""
    if not options.enable_prefix_caching:
        raise InputError("--no-enable-prefix-caching: the serving view shows both, with prefix caching and without")
    for name, value in (("--warm-trace", options.warm_trace), ("--host-cache-gib", options.host_cache_gib),
                        ("--host-bandwidth", options.host_bandwidth), ("--saturate", options.saturate or None)):
        if options.no_serving and value is not None:
            raise InputError(f"{name} is for the serving view, and --no-serving leaves it out")
    notes: list[str] = []
    trace = load_trace(options, notes)
    if trace.content is None:
        raise InputError(f"{show_path(trace.source)} {NEEDS_CONTENT}")
    options.view_block_size = _view_block_size(options, trace.content.span_tokens)
    if options.block_size is None:
        options.block_size = opt.BLOCK_SIZE
    if options.convention == "ceil" and options.policy_block_size not in (None, options.view_block_size):
        raise InputError(f"--policy-block-size {options.policy_block_size}: {AN_ID}, {options.view_block_size} tokens")
    _assume(options, trace, notes)
    setup = size_up(trace, options, notes)
    options.pool_blocks = _pools(options, setup.kv_bytes_per_token)
    return setup


def _view_block_size(options: argparse.Namespace, span: int) -> int:
    if options.convention == "full":
        return int(options.block_size or opt.BLOCK_SIZE)
    if options.block_size not in (None, span):
        raise InputError(f"--block-size {options.block_size}: {AN_ID}, {span} tokens")
    return span


def _assume(options: argparse.Namespace, trace: Trace, notes: list[str]) -> None:
    """Where nothing is said of the server: one that can serve the trace."""
    said = (options.model, options.gpu, options.num_gpu_blocks_override, options.available_kv_gib, options.max_model_len)
    longest = int((trace.prompt_tokens + trace.output_tokens).max())
    if longest > SHORT_CONTEXT and all(value is None for value in said):
        options.model, options.gpu = LONG_MODEL, LONG_GPU
        notes.append(f"no --model and requests of up to {longest:,} tokens: {LONG_MODEL} on {LONG_GPU} is assumed")


def _pools(options: argparse.Namespace, kv_bytes_per_token: int | None) -> list[int]:
    """Sizes asked for, in blocks of the cache view."""
    made = list(options.pool_blocks or ())
    if options.pool_gib:
        if kv_bytes_per_token is None:
            raise InputError("--pool-gib: the bytes of a token are not known without a --model; --pool-blocks needs none")
        made += [max(1, int(gib * GIB) // (kv_bytes_per_token * options.view_block_size)) for gib in options.pool_gib]
    return sorted(set(made))


def _watch(progress: Bars) -> Any:
    def watch(label: str, total: int) -> Any:
        if progress.disable:
            return lambda n: None
        task = progress.add_task(label, total=total)
        return lambda n: progress.advance(task, n)
    return watch
