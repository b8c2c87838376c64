"""``python -m experiments.benchmarks``: run the benchmarks beside the peers there are, and write the tables and figures."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from experiments import options as opt
from experiments.benchmarks import profiling, traffic
from experiments.benchmarks.figures import draw_scale
from experiments.benchmarks.jobs import BENCHMARKS, POOLS, Plan, compare_arguments, write_mooncake
from experiments.benchmarks.pages import check_pages, write_pages
from experiments.benchmarks.peers import reasons
from experiments.benchmarks.processes import ROOT, Row, measure_all
from experiments.benchmarks.tables import markdown
from experiments.output import check_outputs, write_json
from experiments.version import VERSION
from workloads.messages import reading_failed
from workloads.request import InputError
from workloads.whole_file import bytes_of

LARGEST_MIB = 64                                       # of a result that is read back
PROFILE = "profile"
NAMES = (*BENCHMARKS, PROFILE)
WANTED = {"benchmark", "system", "skipped", "count", "runs"}
EXAMPLES = f"""benchmarks: {', '.join(NAMES)}

examples:
  python -m experiments.benchmarks lognormal --repeats 5
  python -m experiments.benchmarks --peers .peers --install --mooncake conversation_trace.jsonl --docs
  python -m experiments.benchmarks requests --large --json large.json
  python -m experiments.benchmarks --from docs/benchmarks/results.json

CPU time counts: a busy machine stretches wall time. Run it from a checkout; nothing of it belongs to the tests.
Ctrl-C ends it early, with the rows of what was run until then.
"""


def main(argv: list[str]) -> int:
    """Entry of the command; 1 if totals differ from recorded ones, peers disagree, or a process failed; 130 if interrupted."""
    options = parser().parse_args(argv)
    try:
        _check(options)
        document = run(options) if options.read is None else _read(options.read)
    except (InputError, OSError, ValueError) as error:
        print(f"experiments.benchmarks: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("experiments.benchmarks: interrupted before anything was measured", file=sys.stderr)
        return 130
    early = any(row.get("interrupted") for row in document["rows"])
    if options.json is not None:
        write_json(options.json, document)
    if options.docs and not early:
        write_pages(document, ROOT)
    if options.plot is not None:
        draw_scale(document["rows"], options.plot)
    if options.json != "-":
        print(markdown(document), end="")
    wrong = problems(document["rows"])
    for line in wrong:
        print(f"experiments.benchmarks: {line}", file=sys.stderr)
    if early:
        print(f"experiments.benchmarks: interrupted: the rows are of what was run until then"
              f"{'; no page was written' if options.docs else ''}", file=sys.stderr)
    return 130 if early else 1 if wrong else 0


def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    made = opt.OneLineParser("experiments.benchmarks", description=__doc__, epilog=EXAMPLES, allow_abbrev=False,
                             formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("names", nargs="*", metavar="NAMES", type=_name, default=[], help="which benchmarks; all by default")
    made.add_argument("--repeats", type=opt.whole(1, 1000), default=3, metavar="N", help="runs of each (3); of scale one")
    made.add_argument("--peers", metavar="DIR", help="folder with a virtual environment for each peer: libcachesim, dynamo, vllm")
    made.add_argument("--install", action="store_true", help="make there those that are absent, from PyPI; vllm takes 3 GB")
    made.add_argument("--mooncake", metavar="FILE", help="Mooncake's conversation_trace.jsonl, for mooncake and conversation")
    made.add_argument("--large", action="store_true", help="a million and ten million requests too (docs/speed.md)")
    made.add_argument("--from", dest="read", metavar="FILE", help="run nothing: tables and figures of a result that was written")
    made.add_argument("--json", metavar="FILE", help="all rows as JSON; - for standard output")
    made.add_argument("--plot", metavar="DIR", help="the figures of scale, drawn from the rows")
    made.add_argument("--docs", action="store_true", help="rewrite docs/speed.md, docs/benchmarks and the README's line on speed")
    made.add_argument("-q", "--quiet", action="store_true", help="do not say on stderr what is being run")
    return made


def _name(text: str) -> str:
    if text not in NAMES:
        raise argparse.ArgumentTypeError(f"unknown benchmark {text!r}: one of {', '.join(NAMES)}")
    return text


def _check(options: argparse.Namespace) -> None:
    """What cannot be written is said before the work, not after it."""
    if options.names and (options.docs or options.read is not None):
        raise InputError(f"{'--docs' if options.docs else '--from'} is for all benchmarks: no names beside it")
    if options.install and options.peers is None:
        raise InputError("--install wants --peers DIR, the folder to install into")
    check_outputs({"--json": options.json}, [options.mooncake, options.read])
    if options.docs:
        check_pages(ROOT)
    if options.plot is not None and not Path(options.plot).is_dir():
        raise InputError(f"--plot {options.plot}: no folder of that name")


def _read(path: str) -> dict[str, Any]:
    try:
        document = json.loads(bytes_of(path, LARGEST_MIB))
    except InputError:                                 # too long, and says so
        raise
    except OSError as error:
        raise reading_failed(path, error) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: no JSON: {error}") from error
    whole = isinstance(document, dict) and {"machine", "repeats", "pagedsim", "date"} <= set(document)
    rows = document.get("rows") if whole else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and set(row) >= WANTED for row in rows):
        raise InputError(f"{path}: no result of the benchmarks")
    return dict(document)


# ---------------------------------------------------------------------- running
def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run what is asked for; all rows as one document."""
    names, load = options.names or list(NAMES), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(Path(folder), options.mooncake, options.peers, reasons(options.peers, options.install), options.large)
        profile = _profiled(Path(folder)) if PROFILE in names else None
        jobs = [job for name in dict.fromkeys(names) if name != PROFILE for job in BENCHMARKS[name](name, plan)]
        rows = measure_all(jobs, options.repeats, lambda line: None if options.quiet else print(line, file=sys.stderr))
    machine = {"processors": os.cpu_count(), "architecture": platform.machine(), "python": platform.python_version(),
               "numpy": np.__version__, "load_before": round(load, 2), "load_after": round(os.getloadavg()[0], 2)}
    return {"schema": 1, "pagedsim": VERSION, "date": datetime.date.today().isoformat(), "machine": machine,
            "repeats": options.repeats, "rows": rows, "profile": profile}


def _profiled(folder: Path) -> dict[str, Any]:
    path = str(folder / "profiled.jsonl")
    write_mooncake(traffic.poisson(), path)
    return profiling.profile(compare_arguments(path, str(POOLS["dynamo"])), str(folder / "profile"))


def problems(rows: list[Row]) -> list[str]:
    """What must not be: totals that are not the recorded ones, caches of one size that disagree, processes that failed.

    >>> problems([{"benchmark": "lru", "system": name, "totals": {"hits": hits}} for name, hits in (("a", 5), ("b", 6))])
    ['lru: b counts 6 hits, a 5']
    """
    found: list[str] = []
    first: dict[str, tuple[str, int]] = {}
    for row in rows:
        where = f"{row['benchmark']}: {row['system']}"
        if row.get("failed"):
            found.append(row["skipped"])
        if row.get("as_recorded") is False:
            found.append(f"{where}: totals differ from those recorded: {row['totals']}")
        hits = (row.get("totals") or {}).get("hits")
        system, expected = first.setdefault(row["benchmark"], (row["system"], hits)) if hits is not None else (None, None)
        if hits != expected:
            found.append(f"{where} counts {hits:,} hits, {system} {expected:,}")
        if row["benchmark"] == "lru" and hits is None and row.get("runs"):
            found.append(f"{where} says no hits")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
