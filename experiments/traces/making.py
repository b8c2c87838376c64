"""What the commands that make traces share: how they read, what they say, and how they write."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments import options as opt
from experiments.load import generator
from experiments.output import check_outputs, write_text
from experiments.reading import add_reading, read
from workloads.messages import counted, reason_in_words, show_path
from workloads.readers.rows import NO_TIMES
from workloads.request import InputError, Trace
from workloads.transform import with_poisson_arrivals
from workloads.writers import WRITERS, changes, write_trace
from workloads.writers.common import one_line

PACKED = (".gz", ".zst")
LONGEST_HISTORY = 2000                                 # characters of the commands before this one


def parser(name: str, about: str, examples: str, format_option: str = "--output-format") -> argparse.ArgumentParser:
    """A parser with what all have; positional arguments and options of the command are added to it."""
    made = opt.OneLineParser(f"pagedsim trace {name}", description=about, epilog=examples,
                             formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    writing = made.add_argument_group("writing")
    suffixes = ", ".join(f"{one.name} for {one.suffix}" for one in WRITERS.values() if one.suffix)
    writing.add_argument(format_option, dest="to", choices=list(WRITERS), metavar="F",
                         help=f"the format to write: {', '.join(WRITERS)} (default: by the name, {suffixes})")
    opt.add_quiet(writing)
    return made


def add_source(made: argparse.ArgumentParser) -> None:
    """How traces are read, and what is drawn."""
    group = made.add_argument_group("reading")
    add_reading(group)
    group.add_argument("--seed", type=opt.whole(0), default=0, metavar="N", help="seed of everything random (default 0)")


def add_rate(made: argparse.ArgumentParser) -> None:
    """Arrival times for traces without."""
    made.add_argument("--rate", type=opt.number(), metavar="R", help="Poisson arrivals at R requests a second for a trace "
                      "without times")


def add_sessions(made: Any, default: str) -> None:
    """Whether sessions are torn."""
    made.add_argument("--sessions", choices=("whole", "split"), help="keep or cut sessions whole, or go by single requests "
                      f"(default: {default})")


def format_of(path: str, asked: str | None) -> str:
    """The format to write: the one asked for, or by the end of the name; our own table for standard output.

    >>> format_of("a.jsonl.gz", None), format_of("-", None), format_of("a.csv", "azure")
    ('mooncake', 'csv', 'azure')
    """
    if asked is not None:
        return asked
    name = path.lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    for writer in WRITERS.values():
        if path == "-" or (writer.suffix is not None and name.endswith(writer.suffix)):
            return writer.name
    known = ", ".join(writer.suffix for writer in WRITERS.values() if writer.suffix)
    raise InputError(f"{show_path(path)}: the name ends in none of {known}, so the format has to be said: {', '.join(WRITERS)}")


def check(options: argparse.Namespace, inputs: Sequence[str]) -> None:
    """What can be known to fail before the work."""
    format_of(options.out, options.to)
    check_outputs({"the output": options.out}, inputs, to_stdout=("the output",))


def read_trace(options: argparse.Namespace, path: str, number: int = 0) -> Trace:
    """A trace as the options say; with ``--rate``, times for one that has none."""
    rows, asked = read(options, path)
    trace = rows.to_trace(asked)
    rate = getattr(options, "rate", None)
    if rate is None or trace.arrival_us is not None:
        return trace
    notes = (*(note for note in trace.notes if note != NO_TIMES), f"Poisson arrivals at {rate:g} requests/s, seed {options.seed}")
    return replace(with_poisson_arrivals(trace, rate, generator(options.seed, "arrivals", number)), notes=notes)


def command(name: str, argv: Sequence[str], files: Sequence[str]) -> str:
    """The command as it was typed, of files only their names.

    >>> command("cut", ["/data/my week.csv", "b.csv", "--limit", "3"], ["/data/my week.csv", "b.csv"])
    "pagedsim trace cut 'my week.csv' b.csv --limit 3"
    """
    words = [os.path.basename(os.path.normpath(word)) if word in files and word != "-" else word for word in argv]
    return one_line(shlex.join(["pagedsim", "trace", name, *words]))


def finish(options: argparse.Namespace, trace: Trace, made_by: str, before: Sequence[Trace], done: str,
           lost: Sequence[str] = (), comments: Sequence[str] = ()) -> int:
    """Write the trace, say what is lost and what was done; returns the exit status.

    Parameters
    ----------
    options : Namespace
        ``out``, ``to``, ``strict`` and ``quiet`` among them.
    trace : Trace
        What is written.
    made_by : str
        This command; those that made its inputs go before it.
    before : sequence of Trace
        The inputs, for their history, what was left out of them and their notes.
    done : str
        One line for people.
    lost : sequence of str
        What is lost already.
    comments : sequence of str
        For the head of the file, where the format has comments.
    """
    if not len(trace):
        raise InputError(f"{show_path(trace.source)}: no request is left")
    format = format_of(options.out, options.to)
    found = changes(trace, format)
    losses = [*lost, *(change.text for change in found if change.lost)]
    if losses and options.strict:
        raise InputError(f"--strict: {losses[0]}" + (f" (and {len(losses) - 1} more losses)" if len(losses) > 1 else ""))
    for one in before:
        losses += [f"{counted(count, 'row')} of {one_line(one.source)} left out: {reason_in_words(reason)}"
                   for reason, count in one.dropped.items()]
    notes = dict.fromkeys([note for one in before for note in one.notes] + [c.text for c in found if not c.lost])
    _write(replace(trace, made_by=_history(before, made_by)), format, options.out, comments)
    for kind, texts in (("lost", losses), ("note", () if options.quiet else notes)):
        for text in texts:
            print(f"{kind}: {text}", file=sys.stderr)
    if not options.quiet:
        print(done, file=sys.stderr if options.out == "-" else sys.stdout)
    return 0


def _history(before: Sequence[Trace], made_by: str) -> str:
    """The commands that make the trace, one after the other, as a shell runs them."""
    earlier = [one.made_by for one in before if one.made_by is not None]
    together = " && ".join([*dict.fromkeys(earlier), made_by])
    return together if len(together) <= LONGEST_HISTORY else made_by


def _write(trace: Trace, format: str, path: str, comments: Sequence[str]) -> None:
    if path != "-":
        write_text(path, lambda file: write_trace(trace, format, file, comments))
    elif sys.stdout is None:
        raise InputError("standard output is closed")
    else:
        write_trace(trace, format, sys.stdout, comments)
