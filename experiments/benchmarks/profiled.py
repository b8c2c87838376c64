"""A command under the profiler from its first import on: ``python -m experiments.benchmarks.profiled FILE COMMAND ...``."""

from __future__ import annotations

import cProfile
import runpy
import sys


def main(path: str) -> None:
    """Run ``pagedsim`` with the arguments behind the file, and write the profile there."""
    profiler = cProfile.Profile()
    try:
        profiler.runcall(runpy.run_module, "experiments.cli", run_name="__main__")
    finally:
        profiler.dump_stats(path)


if __name__ == "__main__":
    _, file, *rest = sys.argv
    sys.argv = ["pagedsim", *rest]
    main(file)
