"""`pagedsim trace scale`: the same requests, arriving faster or slower."""

from __future__ import annotations

from experiments import options as opt
from experiments.traces.making import add_source, check, command, finish, parser, read_trace
from workloads.messages import counted
from workloads.request import InputError, Trace
from workloads.scaling import scale_times, speed_for

ABOUT = """Write a trace with all arrival times divided by the same number, rounded half to even to a microsecond. People think as
long as before, unless --think-times is given: then think times are divided as well."""
EXAMPLES = """examples:
  pagedsim trace scale week.csv twice.csv --speed 2
  pagedsim trace scale week.csv four.csv --rate 4
"""


def main(argv: list[str]) -> int:
    """Entry of the subcommand; returns the exit status."""
    made = parser("scale", ABOUT, EXAMPLES)
    made.add_argument("trace", metavar="IN", help="the trace, or - for standard input")
    made.add_argument("out", metavar="OUT", help="the file to write, or - for standard output")
    how = made.add_mutually_exclusive_group(required=True)
    how.add_argument("--rate", dest="mean_rate", type=opt.decimal, metavar="R",
                     help="to a mean of R requests a second from the first to the last arrival")
    how.add_argument("--speed", type=opt.decimal, metavar="X", help="X times as fast")
    made.add_argument("--think-times", action="store_true", help="divide think times as well")
    add_source(made)
    options = made.parse_args(argv)
    check(options, [options.trace])
    trace = read_trace(options, options.trace)
    try:
        speed = options.speed or speed_for(trace, options.mean_rate)
        scaled = scale_times(trace, speed, options.think_times)
    except ValueError as error:
        raise InputError(f"{'--speed' if options.speed else '--rate'}: {error}") from None
    done = (f"{counted(len(trace), 'request')} at {float(speed):,.6g} times the speed: {trace.duration_s:,.6g} -> "
            f"{scaled.duration_s:,.6g} s{_think(trace, options.think_times)}")
    return finish(options, scaled, command("scale", argv, [options.trace, options.out]), [trace], done)


def _think(trace: Trace, too: bool) -> str:
    if not trace.closed_loop:
        return ""
    return "; think times are divided too" if too else "; think times stay as they are"


