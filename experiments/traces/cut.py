"""`pagedsim trace cut`: a part of a trace, by time, length or number."""

from __future__ import annotations

from experiments import options as opt
from experiments.traces.making import add_sessions, add_source, check, command, finish, parser, read_trace
from workloads import transform
from workloads.messages import counted
from workloads.request import InputError, Trace
from workloads.units import torn

ABOUT = """Write a part of a trace: the requests of some time, no longer than so much, the first so many; in this order. A session
that is kept whole belongs to the time in which it begins, goes as a whole where one of its requests is too long, and is among
the first ones where it fits in as a whole. Times are counted from the first request that is left."""
EXAMPLES = """examples:
  pagedsim trace cut week.csv hour.csv --from 3600 --to 7200
  pagedsim trace cut week.csv short.csv.gz --max-total-tokens 2048 --limit 1000
"""


def main(argv: list[str]) -> int:
    """Entry of the subcommand; returns the exit status."""
    made = parser("cut", ABOUT, EXAMPLES)
    made.add_argument("trace", metavar="IN", help="the trace, or - for standard input")
    made.add_argument("out", metavar="OUT", help="the file to write, or - for standard output")
    made.add_argument("--from", dest="start", type=opt.number(0, 1e12, including=True), metavar="S",
                      help="from S seconds after the first request on")
    made.add_argument("--to", dest="stop", type=opt.number(0, 1e12), metavar="S", help="up to S seconds, that instant left out")
    made.add_argument("--max-total-tokens", type=opt.whole(2), metavar="N", help="no requests with prompt + output > N")
    made.add_argument("--limit", type=opt.whole(1), metavar="N", help="no more than the first N requests")
    add_sessions(made, "whole where requests wait for the answer before them")
    add_source(made)
    options = made.parse_args(argv)
    check(options, [options.trace])
    trace = read_trace(options, options.trace)
    whole = options.sessions == "whole" or (options.sessions is None and trace.closed_loop)
    part, steps = cut(trace, options.start, options.stop, options.max_total_tokens, options.limit, whole)
    told = "; ".join([*steps, *_sessions(trace, part, whole)])
    done = f"{len(trace):,} -> {counted(len(part), 'request')}{': ' if told else ''}{told}"
    return finish(options, transform.from_zero(part), command("cut", argv, [options.trace, options.out]), [trace], done)


def cut(trace: Trace, start_s: float | None, stop_s: float | None, longest: int | None, most: int | None, whole: bool,
        ) -> tuple[Trace, list[str]]:
    """The part of a trace, and how many are left after each step, for people."""
    steps = []
    if start_s is not None or stop_s is not None:
        try:
            trace = transform.between(trace, round((start_s or 0) * 1e6), None if stop_s is None else round(stop_s * 1e6), whole)
        except ValueError as error:
            raise InputError(f"--from and --to: {error}") from None
        until = "on" if stop_s is None else f"to {stop_s:,g} s"
        steps.append(f"{len(trace):,} from {start_s or 0:,g} s {until}")
    if longest is not None:
        trace = transform.drop_longer_than(trace, longest, whole)
        steps.append(f"{len(trace):,} of at most {longest:,} tokens")
    if most is not None:
        trace = transform.limit(trace, most, whole)
        steps.append(f"the first {len(trace):,}")
    return trace, steps


def _sessions(trace: Trace, part: Trace, whole: bool) -> list[str]:
    if trace.session is None or not (trace.session >= 0).any():
        return []
    return ["sessions whole" if whole else f"{torn(trace, part):,} sessions cut in two"]
