"""Whole processes, one at a time and interleaved, so that a busy minute of the machine meets all of them."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.benchmarks.peers import last_line
from experiments.benchmarks.said import said

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One row of a table: a process to measure, or why there is none.

    Parameters
    ----------
    benchmark, system : str
        What is done, and by whom.
    command : tuple of str
        Arguments of the process, its program first.
    skipped : str, optional
        Why it is not run.
    count, of : int and str
        How many of what it gets through, as 20,000 requests.
    expected : dict, optional
        Recorded totals.
    once : bool
        Whether one run is enough: the points of a curve tell of each other.
    known : dict
        Columns that are not measured here, as of a recorded run.
    """

    benchmark: str
    system: str
    command: tuple[str, ...] = ()
    skipped: str | None = None
    count: int = 0
    of: str = "requests"
    expected: Row | None = None
    once: bool = False
    known: Row = field(default_factory=dict)


class Failed(RuntimeError):
    """A measured process ended with an error; the message is one line."""


def measure(job: Job) -> Row:
    """Run a job's process once: CPU and wall time in seconds, peak memory in MiB, and what it said.

    Raises
    ------
    Failed
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        started = time.perf_counter()
        process = subprocess.Popen(job.command, stdout=out, stderr=err, env=environment)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except KeyboardInterrupt:
            process.kill()
            process.wait()
            raise
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            raise Failed(f"{job.benchmark}, {job.system}: exit status {process.returncode}: {last_line(err.read())}")
        peak = usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
        return {"cpu_s": usage.ru_utime + usage.ru_stime, "wall_s": wall, "peak_mib": peak} | said(out.read())


def measure_all(jobs: Sequence[Job], repeats: int, tell: Callable[[str], None]) -> list[Row]:
    """Every job ``repeats`` times, all of them once before any of them twice; a row each, in the order given.

    Interrupted, it is done early: the rows tell of what was run until then.
    """
    runs: list[list[Row]] = [[] for _ in jobs]
    failed: dict[int, str] = {}
    interrupted = False
    try:
        for turn in range(repeats):
            for number, job in enumerate(jobs):
                if job.skipped is None and job.command and number not in failed and not (turn and job.once):
                    tell(f"{turn + 1} of {repeats}: {job.benchmark}: {job.system}")
                    try:
                        runs[number].append(measure(job))
                    except Failed as error:
                        failed[number] = str(error)
    except KeyboardInterrupt:
        interrupted = True
    rows = [row_of(job, runs[number], failed.get(number)) for number, job in enumerate(jobs)]
    return [row | {"interrupted": True} for row in rows] if interrupted else rows


def row_of(job: Job, runs: Sequence[Row], failed: str | None = None) -> Row:
    """Medians of a job's runs.

    >>> job = Job("scale", "pagedsim", ("python",), count=100, expected={"steps": 3})
    >>> ran = [{"cpu_s": s, "wall_s": 2.0, "peak_mib": 30.0, "totals": {"steps": 3}} for s in (1.0, 4.0, 2.0)]
    >>> row = row_of(job, ran)
    >>> row["cpu_s"], row["cpu_least_s"], row["cpu_most_s"], row["as_recorded"]
    (2.0, 1.0, 4.0, True)
    """
    row = {"benchmark": job.benchmark, "system": job.system, "skipped": failed or job.skipped, "failed": failed is not None,
           "count": job.count, "of": job.of, "runs": len(runs)} | job.known
    if not runs and job.command and row["skipped"] is None:
        row["skipped"] = "interrupted before it had ended once"
    if failed is not None or not runs:
        return row
    for name in ("cpu_s", "wall_s", "peak_mib", "work_cpu_s"):
        if all(name in run for run in runs):
            row[name] = statistics.median(run[name] for run in runs)
    row |= {"cpu_least_s": min(run["cpu_s"] for run in runs), "cpu_most_s": max(run["cpu_s"] for run in runs)}
    totals = [run.get("totals") for run in runs]
    same = all(one == totals[0] for one in totals)
    row["totals"] = totals[0]
    row["as_recorded"] = None if job.expected is None else same and totals[0] == job.expected
    return row
