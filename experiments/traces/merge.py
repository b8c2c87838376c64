"""`pagedsim trace merge`: several traces at once."""

from __future__ import annotations

from experiments.traces.making import add_rate, add_source, check, command, finish, parser, read_trace
from workloads.merge import merge, not_merged
from workloads.messages import counted, show_path
from workloads.request import InputError

ABOUT = """Write several traces as one, all from their beginnings on, sorted by time; what comes at the same time, in the order of
the files. Sessions and content ids stay apart; spans of different length are cut to the longest that divides all."""
EXAMPLES = """examples:
  pagedsim trace merge chat.csv agents.csv both.csv
  pagedsim trace merge lengths.csv week.csv - --rate 2 | pagedsim trace info -
"""


def main(argv: list[str]) -> int:
    """Entry of the subcommand; returns the exit status."""
    made = parser("merge", ABOUT, EXAMPLES)
    made.add_argument("files", nargs="+", metavar="IN IN... OUT", help="the traces, and last the file to write, or - for "
                      "standard output")
    made.add_argument("--shared-ids", action="store_true", help="an id stands for the same tokens in all traces")
    add_rate(made)
    add_source(made)
    options = made.parse_intermixed_args(argv)
    *inputs, options.out = options.files
    if len(inputs) < 2:
        made.error("two traces and the file to write are wanted")
    if inputs.count("-") > 1:
        made.error("standard input can be read once")
    check(options, inputs)
    traces = [read_trace(options, path, number) for number, path in enumerate(inputs)]
    for trace in traces:
        if trace.arrival_us is None:
            raise InputError(f"{show_path(trace.source)} has no arrival times: --rate R draws them")
    try:
        merged = merge(traces, options.shared_ids)
    except ValueError as error:
        raise InputError(f"--shared-ids: {error}") from None
    sizes = " + ".join(f"{len(trace):,}" for trace in traces)
    done = f"{sizes} -> {counted(len(merged), 'request')} over {merged.duration_s:,.6g} s"
    return finish(options, merged, command("merge", argv, options.files), traces, done, not_merged(traces))
