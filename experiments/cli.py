"""The command line: one entry point, one module a command, loaded when it is asked for."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, Any

from experiments.version import VERSION
from workloads.later import Later

if TYPE_CHECKING:
    from workloads import messages, request
else:                                                  # and numpy with them, which --help and --version can do without
    messages, request = Later("workloads.messages"), Later("workloads.request")

COMMANDS = {
    "compare": "replay a trace through contiguous and paged allocators and say where every slot went",
    "view": "the interactive memory map: every block of the pool, moment by moment, in one HTML page",
    "prefix": "what prefix caching gains: hit rate against pool size, by policy, the bound, and the money",
    "plan": "size a deployment without traffic: does it fit, how many at once, what would it take",
    "calibrate": "your own server: predicted beside measured, and efficiencies fitted to what was measured",
    "trace": "look at request traces, and make, convert, cut, scale, merge and sample them",
    "reproduce": "a published figure or claim, our number beside it, the difference, the picture",
    "sweep": "a grid of scenarios, resumable, on one machine or a Dask cluster: answers, capacity, intervals",
    "quiz": "exercises on fragmentation, paging, sharing, eviction and preemption, with worked answers",
    "conform": "replay cases recorded from a real vLLM scheduler and compare decision by decision",
}
THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")   # those that OpenBLAS looks at
HELP = """usage: pagedsim COMMAND [options]

A discrete-event simulator of LLM KV-cache memory.

commands:
{commands}

  pagedsim COMMAND --help     options and examples
  pagedsim --version

examples:
  pagedsim compare                                  the built-in chat workload through all allocators
  pagedsim plan --model Llama-3.1-8B --gpu H100     what fits on the card
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 done, 1 a check failed, 2 bad argument or input."""
    arguments = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")   # a file name may hold what the terminal cannot show
    try:
        status = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except request.InputError as error:
        print(f"{_command(arguments)}: error: {messages.printable(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:                            # the reader of our output has gone: not a failed check
        _drop_output()
        return 2
    except OSError as error:                           # files are handled where they are written: this is our output
        _drop_output()
        print(f"pagedsim: error: cannot write to standard output: {error.strerror}", file=sys.stderr)
        return 2
    except MemoryError:
        print(f"{_command(arguments)}: error: this takes more memory than there is", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pagedsim: interrupted", file=sys.stderr)
        return 130


def _command(arguments: list[str]) -> str:
    """The command that complains, with its subcommand, as its parser names it."""
    return " ".join(["pagedsim", *arguments[: 2 if arguments[0] == "trace" else 1]])


def _run(arguments: list[str]) -> int:
    name, *rest = arguments or [""]
    if name in ("-h", "--help", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<12}{about}" for name, about in COMMANDS.items())), end="")
        return 0
    if name == "--version":
        print(f"pagedsim {VERSION}")
        return 0
    if name not in COMMANDS:
        problem = f"unknown command {name!r}" if arguments else "no command"
        print(f"pagedsim: error: {problem}: one of {', '.join(COMMANDS)} (see pagedsim --help)", file=sys.stderr)
        return 2
    status: int = _loaded(name).main(rest)
    return status


def _loaded(name: str) -> Any:
    """The module of a command. Where the process began for it, settings of the whole process are made; no program around us's.

    OpenBLAS starts a thread a processor as numpy is loaded, and they wait by keeping busy, which takes half as much CPU time
    as loading numpy. Matrices are small here; and long sums cut into as many pieces as there are processors have other last
    digits on another machine. So it is told to have one thread, unless the user has decided on it.

    What is loaded stays: no garbage collection need look through it, in the middle of the work or when the process ends.
    """
    begun = "numpy" not in sys.modules
    if begun and not any(variable in os.environ for variable in THREADS):
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
    module = importlib.import_module(f"experiments.{name}")
    if begun:
        gc.freeze()
    return module


def _drop_output() -> None:
    """What is still buffered goes nowhere, so that leaving does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
