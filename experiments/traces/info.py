"""`pagedsim trace info`: what a trace holds: lengths, arrivals, burstiness, what prompts share, and what it cannot show."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments import options as opt
from experiments.figures import check_format
from experiments.load import built_in
from experiments.output import check_outputs, deliver
from experiments.reading import add_reading, read, unused
from experiments.traces import statistics
from experiments.traces.figure import plot_trace
from experiments.traces.report import print_info
from experiments.version import VERSION
from workloads.messages import counted, show_path
from workloads.readers import Rows
from workloads.request import InputError, Trace

EXAMPLES = """examples:
  pagedsim trace info
  pagedsim trace info conversation_trace.jsonl --plot trace.png
  pagedsim trace info trace.csv.gz --json - | python3 -m json.tool
  pagedsim trace info conversation_trace.jsonl --block-size 16 --block-size 1024
"""


def main(argv: list[str]) -> int:
    """Entry of the subcommand; returns the exit status."""
    options = parser().parse_args(argv)
    if options.plot is not None:
        check_format(options.plot)
    check_outputs({"--plot": options.plot, "--json": options.json}, [options.trace])
    rows, trace = _read_or_make(options)
    found = info(trace, options.block_size or statistics.BLOCK_SIZES, rows)
    if options.plot is not None:
        title = trace.source if options.trace is None else f"{Path(options.trace).name}: {counted(len(trace), 'request')}"
        plot_trace(trace, found, title, options.plot)
    deliver(found, options.json, options.quiet, lambda: print_info(found), found["notes"])
    return 0


def parser() -> argparse.ArgumentParser:
    """All options of the subcommand."""
    made = opt.OneLineParser("pagedsim trace info", description=__doc__, epilog=EXAMPLES,
                             formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    made.add_argument("trace", nargs="?", metavar="TRACE", help="trace file, plain, gzip or zstd, - for standard "
                      "input, or a folder of ServeGen or kv-cache-tester; without one, the built-in chat workload")
    add_reading(made)
    made.add_argument("--block-size", type=opt.whole(1, 1 << 31), action="append", metavar="N", help="a block size to give the "
                      f"ideal hit ratio for; may be repeated (default: {', '.join(map(str, statistics.BLOCK_SIZES))}); the "
                      "trace's own is always there")
    made.add_argument("--seed", type=opt.whole(0), default=0, metavar="N", help="seed of everything random (default 0)")
    made.add_argument("--plot", metavar="FILE", help="a picture: .png, .svg or .pdf")
    made.add_argument("--json", metavar="FILE", help="the result as JSON; - for standard output")
    opt.add_quiet(made)
    return made


def _read_or_make(options: argparse.Namespace) -> tuple[Rows | None, Trace]:
    """The rows and the trace of a file, or the built-in chat workload as `compare` replays it."""
    if options.trace is None:
        unused(options)
        return None, built_in(options.seed)
    rows, asked = read(options)
    return rows, rows.to_trace(asked)


def info(trace: Trace, block_sizes: Sequence[int] = statistics.BLOCK_SIZES, rows: Rows | None = None) -> dict[str, Any]:
    """What a trace holds, as one JSON-able object.

    Parameters
    ----------
    trace : Trace
        With at least one request.
    block_sizes : sequence of int
        Tokens a block, for the ideal hit ratio; the trace's own span is always there.
    rows : Rows or None
        What the file holds before rows of no length are left out; None where that is the trace.

    Returns
    -------
    dict
        ``trace`` as in `compare`'s JSON, then ``rows``, ``lengths``, ``arrivals``, ``sessions``, ``columns`` and ``content`` of
        `statistics`, None for what the trace does not have, and ``notes`` that say so.

    >>> import numpy as np
    >>> found = info(Trace("two", np.array([5, 9]), np.array([9, 1])))
    >>> found["lengths"]["prompt_tokens"]["p50"], found["arrivals"], found["content"]
    (7.0, None, None)
    """
    if not len(trace):
        raise InputError(f"{show_path(trace.source)}: there is no request")
    found = {
        "schema": 1, "pagedsim": VERSION,
        "trace": {"source": trace.source, "requests": len(trace), "dropped": dict(trace.dropped),
                  "prompt_tokens": int(trace.prompt_tokens.sum()), "output_tokens": int(trace.output_tokens.sum()),
                  "duration_s": trace.duration_s, "made_by": trace.made_by, "format": trace.format},
        "rows": statistics.rows(trace if rows is None else rows), "lengths": statistics.lengths(trace),
        "arrivals": statistics.arrivals(trace), "sessions": statistics.sessions(trace),
        "columns": statistics.columns(trace), "content": statistics.content(trace, block_sizes),
    }
    own = (note for note in _notes(found) if not any(note.split(":")[0] in said for said in trace.notes))
    return {**found, "notes": [*trace.notes, *own]}


def _notes(found: dict[str, Any]) -> Iterator[str]:
    """What the trace cannot show, and what its numbers do not mean."""
    times, content, sessions = found["arrivals"], found["content"], found["sessions"]
    if times is None:
        yield "no arrival times: no rate and no burstiness; a replay draws them with --rate"
    elif times["equal_stamps_share"] >= 0.5 and times["stamps"] > 1:
        yield (f"coarse time stamps: {times['stamps']:,} distinct ones, up to {times['most_at_one_stamp']:,} requests on one; "
               f"shorter windows than {times['duration_s'] / (times['stamps'] - 1):,.3g} s tell of the stamps, not the traffic")
    if sessions is None:
        yield "no sessions: turns of a conversation cannot be told apart from other requests"
    elif sessions["closed_loop_share"]:
        yield (f"closed loop: {100 * sessions['closed_loop_share']:.1f} % of the requests wait for the answer before them, so "
               "rate and gaps are those planned, and a replay has its own")
    if content is None:
        yield "no prefix identity: sharing cannot be measured; use --synth-prefix"
    else:
        yield from _content_notes(content, found["trace"]["prompt_tokens"])


def _content_notes(content: dict[str, Any], prompt_tokens: int) -> Iterator[str]:
    span, known = content["span_tokens"], content["prompt_tokens_with_ids"]
    if not content["cover_output"]:
        yield "outputs have no ids: generated blocks cannot be shared"
    if known < prompt_tokens:
        yield f"ids cover {known:,} of {prompt_tokens:,} prompt tokens: the others count as never seen"
    if any(row["block_size"] < span for row in content["ideal"]):
        yield (f"ids stand for {span} tokens: where prompts part inside such a span does not show, so hit ratios of smaller "
               "blocks are lower bounds")
