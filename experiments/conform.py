"""`pagedsim conform`: replay cases recorded from a real vLLM scheduler and compare decision by decision."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments import options as opt
from experiments.conformance import capacity
from experiments.conformance.cases import Case, is_capacity, read_case
from experiments.conformance.diff import differences, last_step, missing
from experiments.conformance.replay import Replay
from experiments.output import check_writable, write_json
from experiments.progress import bars
from workloads.messages import printable, show, show_path
from workloads.request import InputError

EXAMPLES = """examples:
  pagedsim conform tests/data/golden/*.json
  pagedsim conform --totals tests/data/golden/large.json --run 0 REQUESTS.json

A case holds requests, a configuration and what vLLM's scheduler decided (tests/data/golden has some; tests/oracle says how
to record more, and what the requests of a large run are). Files whose cases hold layers are checked through the planner.
"""
LONGEST_JUMP = 1024
JsonObject = dict[str, Any]


def main(argv: list[str]) -> int:
    """Entry of the command; returns the exit status: 1 on any difference."""
    options = parser().parse_args(argv)
    if options.json not in (None, "-"):
        check_writable(options.json)
    started = time.perf_counter()
    found = list(_totals(options) if options.totals is not None else _cases(options))
    if options.json is not None:
        write_json(options.json, {"schema": 1, "ok": all(entry["ok"] for entry in found), "cases": found})
    _print(found, "runs" if options.totals else "cases", options)
    if not options.quiet and any("error" not in entry for entry in found):
        print(f"{time.perf_counter() - started:.1f} s of work", file=sys.stderr)
    return 2 if any("error" in entry for entry in found) else 0 if all(entry["ok"] for entry in found) else 1


def _print(found: list[JsonObject], things: str, options: argparse.Namespace) -> None:
    for entry in found:
        if "error" in entry:
            print(f"pagedsim conform: error: {printable(entry['error'])}", file=sys.stderr)
        elif entry.get("not_compared") and not options.quiet:
            print(f"note: {entry['name']}: not recorded, so not compared: {', '.join(entry['not_compared'])}", file=sys.stderr)
    compared = [entry for entry in found if "error" not in entry]
    if options.json == "-" or not compared:
        return
    for entry in compared:
        if not entry["ok"]:
            print("\n".join([f"DIFFERS {entry['name']}", *(f"  {line}" for line in entry["difference"])]))
    right = sum(entry["ok"] for entry in compared)
    print(f"{right} of {len(compared)} {things} as recorded, "
          f"{sum(entry['decisions'] for entry in compared):,} decisions compared")


def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    made = opt.OneLineParser("pagedsim conform", description=__doc__, epilog=EXAMPLES, allow_abbrev=False,
                             formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("cases", nargs="+", metavar="CASE.json", help="recorded cases; with --totals one file of requests")
    made.add_argument("--totals", metavar="LARGE.json", help="compare the totals of a large run only")
    made.add_argument("--run", type=opt.whole(0), metavar="K", help="which of its runs, counted from 0")
    made.add_argument("--jump", action="store_true", help="make stretches of decode steps at once, as compare does")
    made.add_argument("--json", metavar="FILE", help="the result as JSON; - for standard output")
    opt.add_quiet(made)
    return made


# ---------------------------------------------------------------------- cases
def _cases(options: argparse.Namespace) -> Iterator[JsonObject]:
    if options.run is not None:
        raise InputError("--run is for --totals")
    left_out = []
    for path in options.cases:
        try:
            case = read_case(path)
            if "runs" in case:
                name = show_path(path)
                left_out.append(f"{name}: totals of large runs are for --totals {name} --run K REQUESTS.json")
            elif is_capacity(case):
                yield from _layouts(path, case)
            else:
                yield _case(path, case, options.jump)
        except InputError as error:                    # one file that cannot be used does not hide the others
            yield {"name": Path(path).stem, "ok": False, "error": " ".join(str(error).split())}
    if len(left_out) == len(options.cases):
        raise InputError(left_out[0])
    for line in left_out:
        print(f"note: {line}", file=sys.stderr)


def _case(path: str, case: Case, jump: bool) -> JsonObject:
    if not isinstance(case.get("result"), dict):
        raise InputError(f"{show_path(path)}: no result to compare with")
    try:
        made = Replay(case, LONGEST_JUMP if jump else 1, last=last_step(case["result"])).run()
        difference = differences(made, case["result"])
    except InputError as error:
        raise InputError(f"{show_path(path)}: {error}") from None
    left_out = missing(made, case["result"])
    return {"name": Path(path).stem, "ok": not difference, "decisions": len(made.events) + len(made.rows),
            "difference": difference, "not_compared": left_out}


def _layouts(path: str, case: Case) -> Iterator[JsonObject]:
    if not case["cases"]:
        raise InputError(f"{show_path(path)}: no layouts in it")
    for number, layout in enumerate(case["cases"]):
        try:
            difference = capacity.check(layout)
            name = f"{Path(path).stem}: {str(layout.get('name', number))[:200]}"
        except InputError as error:
            raise InputError(f"{show_path(path)}: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise InputError(f"{show_path(path)}: layout {number} cannot be used: {type(error).__name__} {str(error)[:200]}"
                             ) from None
        yield {"name": name, "ok": not difference, "decisions": 5, "difference": difference}


# ---------------------------------------------------------------------- totals of large runs
def _totals(options: argparse.Namespace) -> Iterator[JsonObject]:
    runs = read_case(options.totals).get("runs")
    if options.run is None or len(options.cases) != 1:
        raise InputError("--totals LARGE.json wants --run K and one file of requests")
    if not isinstance(runs, list) or options.run >= len(runs):
        raise InputError(f"{show_path(options.totals)}: no run {options.run}: "
                         f"{len(runs) if isinstance(runs, list) else 'no'} runs, counted from 0")
    recorded, requests = runs[options.run], read_case(options.cases[0]).get("requests")
    if not isinstance(requests, list):
        raise InputError(f"{show_path(options.cases[0])}: no requests in it")
    expected, config = (recorded.get(name) if isinstance(recorded, dict) else None for name in ("totals", "config"))
    if not isinstance(expected, dict) or not expected or not isinstance(config, dict):
        raise InputError(f"{show_path(options.totals)}: run {options.run} has no config, or no totals to compare with")
    with bars(options.quiet) as progress:
        task = progress.add_task(f"run {options.run}", total=len(requests))
        case = {"config": {**config, "detail": "totals"}, "requests": requests}
        made = Replay(case, LONGEST_JUMP, lambda n: progress.advance(task, n)).run()
    ours = totals(made)
    unknown = sorted(expected.keys() - ours.keys())
    if unknown:
        raise InputError(f"{show_path(options.totals)}: run {options.run} has a total that is not known: {show(unknown[0])}")
    difference = [f"{name}: expected {want}, got {ours[name]}" for name, want in expected.items() if want != ours[name]]
    yield {"name": f"run {options.run}, {recorded.get('workload', '')}", "ok": not difference, "decisions": len(expected),
           "difference": difference, "not_compared": [name for name in ours if name not in expected], "totals": ours}


def totals(made: Replay) -> JsonObject:
    """The totals of a run, under the names of large.json."""
    pool, trace, stats = made.pool, made.trace, made.scheduler.allocator.stats  # type: ignore[attr-defined]
    query, hits = (stats.query_tokens, stats.hit_tokens) if stats else (0, 0)  # first admissions: vLLM's usual hit rate
    return {"requests": len(trace), "input_tokens": int(trace.prompt_tokens.sum()),
            "output_tokens": int(trace.output_tokens.sum()), "steps": made.steps, "new_blocks": pool.taken,
            "touched": pool.touched, "preemptions": made.scheduler.preemptions, "evicted": pool.evicted,
            "hit_rate": round(hits / query, 4) if query else 0.0, "peak_running": made.peak_running,
            "peak_used_blocks": made.peak_used, "outcome": made.outcome}
