"""Options of the trace that a command replays: how it is read, what is made up for it, and how it is cut."""

from __future__ import annotations

import argparse
from typing import Any

from experiments import options as opt
from experiments.reading import add_reading
from workloads.readers.values import MOST_SEQUENCES


def add_trace(parser: argparse.ArgumentParser) -> None:
    """The trace, how it is read, completed and cut."""
    group = parser.add_argument_group("trace")
    group.add_argument("trace", nargs="?", help="trace file, plain, gzip or zstd, - for standard input, or a folder of ServeGen "
                       "or kv-cache-tester; without one, the built-in chat workload")
    add_handling(group)


def add_handling(group: Any) -> None:
    """How a trace is read, completed and cut; ``group`` is a group of a parser's arguments."""
    add_reading(group)
    group.add_argument("--synth-prefix", metavar="KIND:KEY=VALUE,...", help="make up prefix identity where the trace has none, "
                       "as system:tokens=512 (docs/synthetic.md)")
    group.add_argument("--synth-output", metavar="KIND:KEY=VALUE,...", help="make up output lengths, as profile:name=sharegpt or "
                       "constant:value=200")
    group.add_argument("--synth-arrivals", metavar="KIND:KEY=VALUE,...", help="make up arrival times, as "
                       "gamma:rate=2,burstiness=0.5")
    group.add_argument("--rate", type=opt.number(), metavar="R", help="requests a second, for traces without times and the "
                       "built-in workload (default 2)")
    group.add_argument("--limit", type=opt.whole(1), metavar="N", help="only the first N requests")
    group.add_argument("--shuffle", action="store_true", help="put the requests in random order, arrival times stay (seeded)")
    group.add_argument("--max-total-tokens", type=opt.whole(2), metavar="N", help="drop requests with prompt + output > N")
    group.add_argument("--max-output-tokens", type=opt.whole(1), metavar="N", help="max_tokens of every request, at least its "
                       "output (what paged-reserve goes by; default: not known)")
    group.add_argument("--think-time", type=opt.number(0, 1e6, including=True), metavar="S", help="closed loop: each later turn "
                       "of a session arrives S seconds after the answer before it")
    group.add_argument("--open-loop", action="store_true", help="every request at its recorded time")
    group.add_argument("--speed", type=opt.decimal, metavar="X", help="requests arrive X times as fast as recorded; people think "
                       "as long as before")
    group.add_argument("--resample", type=opt.decimal, metavar="SECONDS", help="cut the recording into windows of so many "
                       "seconds and lay as many one behind another, drawn with replacement (seeded)")
    several = group.add_mutually_exclusive_group()
    several.add_argument("--samples", "-n", type=opt.whole(1, MOST_SEQUENCES), metavar="N",
                         help="outputs sampled in parallel for each prompt (default 1)")
    several.add_argument("--beam-width", type=opt.whole(1, MOST_SEQUENCES), metavar="K",
                         help="beams of a beam search (default 1: none)")
    group.add_argument("--beam-turnover", type=opt.number(0, 1), metavar="X", help="probability that a beam draws a parent among "
                       "all beams after a token, instead of going on by itself (default 1)")
    group.add_argument("--seed", type=opt.whole(0), default=0, metavar="N", help="seed of everything random (default 0)")
