"""`pagedsim trace sample`: some of the requests at random."""

from __future__ import annotations

import numpy as np

from experiments import options as opt
from experiments.traces.making import add_sessions, add_source, check, command, finish, parser, read_trace
from workloads.messages import counted
from workloads.request import InputError
from workloads.transform import from_zero, sample

ABOUT = """Write some of the requests of a trace, drawn at random, in the order and at the times they had; where there are
sessions, whole ones. Times are counted from the first request that is left."""
EXAMPLES = """examples:
  pagedsim trace sample week.csv tenth.csv --fraction 0.1
  pagedsim trace sample conversation_trace.jsonl some.jsonl --requests 1000 --seed 7
"""


def main(argv: list[str]) -> int:
    """Entry of the subcommand; returns the exit status."""
    made = parser("sample", ABOUT, EXAMPLES)
    made.add_argument("trace", metavar="IN", help="the trace, or - for standard input")
    made.add_argument("out", metavar="OUT", help="the file to write, or - for standard output")
    how = made.add_mutually_exclusive_group(required=True)
    how.add_argument("--fraction", type=opt.number(0, 1), metavar="F", help="this share of the requests, or of the sessions")
    how.add_argument("--requests", type=opt.whole(1), metavar="N", help="N requests, or whole sessions of no more together")
    add_sessions(made, "whole where there are sessions")
    add_source(made)
    options = made.parse_args(argv)
    check(options, [options.trace])
    trace = read_trace(options, options.trace)
    there = trace.session is not None and bool((trace.session >= 0).any())
    whole = there and options.sessions != "split"
    some = sample(trace, np.random.default_rng(options.seed), options.requests, options.fraction, whole)
    if not len(some):
        raise InputError(f"--requests {options.requests}: the first session drawn has more requests: --sessions split, or more")
    done = f"{len(trace):,} -> {counted(len(some), 'request')}{', sessions whole' if whole else ''}, seed {options.seed}"
    return finish(options, from_zero(some), command("sample", argv, [options.trace, options.out]), [trace], done)
