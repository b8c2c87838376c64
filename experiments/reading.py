"""How a command reads its trace: options, progress, and what was left out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from experiments import options as opt
from workloads.readers import ALIASES, READERS, ReadOptions, Rows, read_rows
from workloads.readers.packed import packed_bytes
from workloads.request import InputError

LONG_BYTES = 4 << 20                                   # below that a file is read before a bar could be seen


def add_reading(parser: Any) -> None:
    """Options of a trace file; ``parser`` is a parser or one of its groups."""
    parser.add_argument("--format", choices=[*READERS, *ALIASES], metavar="F",
                        help=f"the trace's format (default: found by content): {', '.join(READERS)}")
    parser.add_argument("--columns", type=columns, metavar="ROLE=NAME,...", help="a CSV of one's own: prompt=NAME,output=NAME"
                        "[,time=NAME[:s|ms|us|ns|iso],session=NAME,think=NAME[:s|ms|...],...]")
    parser.add_argument("--strict", action="store_true",
                        help="a row that would be dropped (no prompt or output token) is an error")
    parser.add_argument("--hash-block-size", type=opt.whole(1, 1 << 20), metavar="N",
                        help="tokens a hash id stands for, where the format does not say (default: what all rows agree on)")
    parser.add_argument("--incremental-turns", action="store_true",
                        help="later turns of a session give what they add, not the whole prompt (some Mooncake variants)")
    parser.add_argument("--window", type=window, metavar="START:STOP",
                        help="seconds to draw requests for, where a trace holds rates (ServeGen; default: its first busy 600 s)")
    parser.add_argument("--session-rate", type=opt.number(), metavar="R", help="sessions begun a second, where they have no "
                        "common clock (kv-cache-tester; default: all at once)")


def read_options(options: argparse.Namespace, **more: Any) -> ReadOptions:
    """What the command line says about reading."""
    return ReadOptions(options.strict, options.columns, options.hash_block_size, options.incremental_turns, options.seed,
                       options.window, options.session_rate, **more)


def read(options: argparse.Namespace, path: str | None = None) -> tuple[Rows, ReadOptions]:
    """The rows of the trace that was asked for, with a bar where it is long and somebody looks.

    Raises
    ------
    InputError
        As `read_rows`.
    """
    path = options.trace if path is None else path
    size = packed_bytes(path)
    if options.quiet or not sys.stderr.isatty() or (size is not None and size < LONG_BYTES):
        asked = read_options(options)
        return read_rows(path, options.format, asked), asked
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    shown = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*shown, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=size)
        asked = read_options(options, tick=lambda n: progress.advance(task, n))
        return read_rows(path, options.format, asked), asked


def unused(options: argparse.Namespace) -> None:
    """Refuse options about a file where none is read."""
    given = {"--format": options.format, "--columns": options.columns, "--strict": options.strict or None,
             "--hash-block-size": options.hash_block_size, "--incremental-turns": options.incremental_turns or None,
             "--window": options.window, "--session-rate": options.session_rate}
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} is for a trace file, and none was given")


def columns(text: str) -> Mapping[str, str]:
    """An argparse type: ROLE=NAME pairs with commas between them.

    >>> columns("prompt=in,output=out")
    {'prompt': 'in', 'output': 'out'}
    """
    made: dict[str, str] = {}
    for pair in text.split(","):
        role, sign, name = pair.partition("=")
        if not sign or not role.strip() or not name.strip() or role.strip() in made:
            raise argparse.ArgumentTypeError(f"ROLE=NAME pairs with commas between them are wanted, each role once, not {text!r}")
        made[role.strip()] = name.strip()
    return made


def window(text: str) -> tuple[float, float]:
    """An argparse type: two times in seconds.

    >>> window("0:600")
    (0.0, 600.0)
    """
    start, _, stop = text.partition(":")
    try:
        first, last = float(start), float(stop)
    except ValueError:
        raise argparse.ArgumentTypeError(f"START:STOP in seconds is wanted, not {text!r}") from None
    if not 0 <= first < last < 1e12:
        raise argparse.ArgumentTypeError(f"START:STOP in seconds, the first below the second, is wanted, not {text!r}")
    return first, last
