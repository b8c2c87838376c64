"""`pagedsim trace convert`: a trace in another format, and what is lost on the way."""

from __future__ import annotations

from experiments.traces.making import add_rate, add_source, check, command, finish, format_of, parser, read_trace
from workloads.messages import counted, show_path

ABOUT = """Write a trace in another format. What that cannot hold is said, one line each; with --strict nothing is written
then."""
EXAMPLES = """examples:
  pagedsim trace convert conversation_trace.jsonl trace.csv.gz
  pagedsim trace convert week.csv week.jsonl --to mooncake --strict
  pagedsim trace convert conversation_trace.jsonl - --to azure | head
"""


def main(argv: list[str]) -> int:
    """Entry of the subcommand; returns the exit status."""
    made = parser("convert", ABOUT, EXAMPLES, "--to")
    made.add_argument("trace", metavar="IN", help="the trace, - for standard input, or a folder of ServeGen or kv-cache-tester")
    made.add_argument("out", metavar="OUT", help="the file to write, packed where it ends in .gz or .zst; - for standard output")
    add_rate(made)
    add_source(made)
    options = made.parse_args(argv)
    check(options, [options.trace])
    trace = read_trace(options, options.trace)
    done = f"{counted(len(trace), 'request')} in {show_path(options.out)} ({format_of(options.out, options.to)})"
    return finish(options, trace, command("convert", argv, [options.trace, options.out]), [trace], done)
