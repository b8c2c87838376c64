"""`pagedsim trace`: look at traces, and make other ones of them. One module a subcommand, loaded when it is asked for."""

from __future__ import annotations

import importlib
import sys

SUBCOMMANDS = {
    "info": "what a trace holds: counts, lengths, arrivals, burstiness, what prompts share, a picture",
    "convert": "another format, and what is lost on the way",
    "synth": "made out of a recipe",
    "cut": "a part of one, by time, length or number",
    "scale": "the same requests, faster or slower",
    "merge": "several at once",
    "sample": "some of the requests at random",
}
"""A name here is a module ``experiments.traces.<name>`` with ``main(argv) -> exit status``."""
HELP = """usage: pagedsim trace SUBCOMMAND [options]

Look at request traces, and make other ones of them.

subcommands:
{subcommands}

  pagedsim trace SUBCOMMAND --help     options and examples

examples:
  pagedsim trace info conversation_trace.jsonl --plot trace.png
  pagedsim trace synth chat.toml chat.csv.gz
  pagedsim trace convert conversation_trace.jsonl trace.csv.gz
"""


def main(argv: list[str]) -> int:
    """Hand on to a subcommand; returns its exit status."""
    name, *rest = argv or [""]
    if name in ("-h", "--help", "help"):
        print(HELP.format(subcommands="\n".join(f"  {name:<12}{about}" for name, about in SUBCOMMANDS.items())), end="")
        return 0
    if name not in SUBCOMMANDS:
        problem = f"unknown subcommand {name!r}" if argv else "no subcommand"
        print(f"pagedsim trace: error: {problem}: one of {', '.join(SUBCOMMANDS)} (see pagedsim trace --help)", file=sys.stderr)
        return 2
    status: int = importlib.import_module(f"experiments.traces.{name}").main(rest)
    return status
