"""The command line: one entry point, one module a command, loaded when it is asked for."""

from __future__ import annotations

import importlib
import os
import sys

from experiments.version import VERSION
from workloads.request import InputError

COMMANDS = {
    "compare": "replay a trace through contiguous and paged allocators and say where every slot went",
}
HELP = """usage: pagedsim COMMAND [options]

A discrete-event simulator of LLM KV-cache memory.

commands:
{commands}

  pagedsim COMMAND --help     options and examples
  pagedsim --version

example:
  pagedsim compare            the built-in chat workload through all allocators
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 done, 1 a check failed, 2 bad argument or input."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<12}{about}" for name, about in COMMANDS.items())), end="")
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(f"pagedsim {VERSION}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"pagedsim: error: unknown command {name!r}: one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        status: int = importlib.import_module(f"experiments.{name}").main(rest)
        sys.stdout.flush()
        return status
    except InputError as error:
        print(f"pagedsim {name}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:                            # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("pagedsim: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
