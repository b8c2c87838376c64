"""`pagedsim conform`: replay cases recorded from a real vLLM scheduler and compare decision by decision."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments import capacity_case
from experiments import options as opt
from experiments.case_replay import ROW, Replay
from experiments.cases import Case, is_capacity, read_case
from experiments.output import check_writable, write_json
from experiments.progress import bars
from workloads.readers.messages import show_path
from workloads.request import InputError

EXAMPLES = """examples:
  pagedsim conform golden/*.json
  pagedsim conform --totals golden/large.json --run 0 lognormal.json

A case holds requests, a configuration and what vLLM's scheduler decided (tests/data/golden has some; tests/oracle says how
to record more). Files whose cases hold layers are checked through the planner.
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
    broken = [entry for entry in found if "error" in entry]
    found = [entry for entry in found if "error" not in entry]
    for entry in broken:
        print(f"pagedsim conform: error: {entry['error']}", file=sys.stderr)
    if not found:
        return 2
    ok = not broken and all(entry["ok"] for entry in found)
    if options.json is not None:
        write_json(options.json, {"schema": 1, "ok": ok, "cases": found})
    if options.json != "-":
        for entry in found:
            if not entry["ok"]:
                print("\n".join([f"DIFFERS {entry['name']}", *(f"  {line}" for line in entry["difference"])]))
        right = sum(entry["ok"] for entry in found)
        print(f"{right} of {len(found)} {'runs' if options.totals else 'cases'} as recorded, "
              f"{sum(entry['decisions'] for entry in found):,} decisions compared")
    if not options.quiet:
        print(f"{time.perf_counter() - started:.1f} s of work", file=sys.stderr)
    return 2 if broken else 0 if ok else 1


def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    made = opt.OneLineParser("pagedsim conform", description=__doc__, epilog=EXAMPLES, allow_abbrev=False,
                             formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("cases", nargs="+", metavar="CASE.json", help="recorded cases; with --totals one file of requests")
    made.add_argument("--totals", metavar="LARGE.json", help="compare the totals of a large run only")
    made.add_argument("--run", type=opt.whole(0), metavar="K", help="which of its runs, counted from 0")
    made.add_argument("--jump", action="store_true", help="make stretches of decode steps at once, as compare does")
    made.add_argument("--json", metavar="FILE", help="the result as JSON; - for standard output")
    made.add_argument("-q", "--quiet", action="store_true", help="no timing on stderr")
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
            yield {"error": " ".join(str(error).split())}
    if len(left_out) == len(options.cases):
        raise InputError(left_out[0])
    for line in left_out:
        print(f"note: {line}", file=sys.stderr)


def _case(path: str, case: Case, jump: bool) -> JsonObject:
    if not isinstance(case.get("result"), dict):
        raise InputError(f"{show_path(path)}: no result to compare with")
    try:
        made = Replay(case, LONGEST_JUMP if jump else 1).run()
        difference = first_difference(made, case)
    except InputError as error:
        raise InputError(f"{show_path(path)}: {error}") from None
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(f"{show_path(path)}: the result cannot be read: {type(error).__name__} {error}") from None
    return {"name": Path(path).stem, "ok": not difference, "decisions": len(made.events) + len(made.rows),
            "difference": difference}


def _layouts(path: str, case: Case) -> Iterator[JsonObject]:
    for number, layout in enumerate(case["cases"]):
        try:
            difference = capacity_case.check(layout)
            name = f"{Path(path).stem}: {layout.get('name', number)}"
        except InputError as error:
            raise InputError(f"{show_path(path)}: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{show_path(path)}: layout {number} cannot be used: {type(error).__name__} {error}") from None
        yield {"name": name, "ok": not difference, "decisions": 5, "difference": difference}


def first_difference(made: Replay, case: Case) -> list[str]:
    """The first decision that differs, told with what is around it; then totals that differ. Empty where nothing does."""
    result = case["result"]
    told = _first_event(made, result["events"]) or _first_row(made, result["step_rows"])
    return told + [f"{name}: expected {want}, got {got}" for name, want, got in _finals(made, case) if want != got]


def _first_event(made: Replay, expected: list[list[Any]]) -> list[str]:
    got = made.events
    for i in range(max(len(expected), len(got))):
        want, ours = (events[i] if i < len(events) else None for events in (expected, got))
        if want != ours:
            step = min(event[1] for event in (want, ours) if event is not None)
            return [f"first difference: decision {i + 1}, step {step}", f"expected  {_event(want)}", f"got       {_event(ours)}",
                    f"before    {'; '.join(_event(event) for event in got[max(0, i - 3):i]) or 'nothing'}", _queue(made, step)]
    return []


def _first_row(made: Replay, expected: list[list[int]]) -> list[str]:
    for i in range(max(len(expected), len(made.rows))):
        want, ours = (rows[i] if i < len(rows) else None for rows in (expected, made.rows))
        if want != ours:
            step = (want or ours or [0])[0]
            return [f"first difference: row of step {step}", f"expected  {_row(want)}", f"got       {_row(ours)}",
                    _queue(made, step)]
    return []


def _event(event: list[Any] | None) -> str:
    if event is None:
        return "no further decision"
    kind, step, who, *rest = event
    if kind in ("admit", "resume"):
        table = f", blocks {rest[2]}" if len(rest) > 2 else ""
        return f"step {step}: {kind} {who}, {rest[0]} tokens cached, {rest[1]} scheduled{table}"
    if kind == "evict":
        return f"step {step}: evict block {who}"
    return f"step {step}: {kind} {who}{f', blocks {rest[0]}' if rest else ''}"


def _row(row: list[int] | None) -> str:
    return "no such step" if row is None else ", ".join(f"{name} {value}" for name, value in zip(ROW, row, strict=True))


def _queue(made: Replay, step: int) -> str:
    """The free queue around the difference: as it was before the step."""
    before = [i for i, row in enumerate(made.rows) if row[0] < step]
    if not before:
        return "queue     as at the start: 1, 2, 3, ..."
    front, end = made.queues[before[-1]]
    return f"queue     before the step: {front} ... {end}"


def _finals(made: Replay, case: Case) -> Iterator[tuple[str, Any, Any]]:
    result, pool = case["result"], made.pool
    stats = made.scheduler.allocator.stats             # type: ignore[attr-defined]
    ours = {"outcome": made.outcome, "stuck": made.stuck, "steps": made.steps, "preemptions": made.scheduler.preemptions,
            "blocks_evicted": pool.evicted, "peak_running": made.peak_running, "peak_used_blocks": made.peak_used,
            "cached_tokens_at_admission": made.cached, "final_free_blocks": pool.free,
            "final_cached_blocks": int((pool.hash_of >= 0).sum()), "final_free_queue": pool.free_queue().tolist()}
    if stats is not None:
        ours["prefix_cache"] = {"requests": stats.requests, "queries": stats.query_tokens, "hits": stats.hit_tokens,
                                "preempted_requests": stats.resumes, "preempted_queries": stats.resume_query_tokens,
                                "preempted_hits": stats.resume_hit_tokens}
    for name, value in ours.items():
        if name in result:
            yield name, result[name], value


# ---------------------------------------------------------------------- totals of large runs
def _totals(options: argparse.Namespace) -> Iterator[JsonObject]:
    runs = read_case(options.totals).get("runs")
    if options.run is None or len(options.cases) != 1:
        raise InputError("--totals LARGE.json wants --run K and one file of requests")
    if not isinstance(runs, list) or options.run >= len(runs):
        raise InputError(f"{show_path(options.totals)}: no run {options.run}: "
                         f"{len(runs) if isinstance(runs, list) else 'no'} runs, counted from 0")
    recorded, requests = runs[options.run], read_case(options.cases[0])
    case = {"config": {**recorded["config"], "detail": "totals"}, "requests": requests["requests"]}
    with bars(options.quiet) as progress:
        task = progress.add_task(f"run {options.run}", total=len(requests["requests"]))
        made = Replay(case, LONGEST_JUMP, lambda n: progress.advance(task, n)).run()
    ours = totals(made)
    difference = [f"{name}: expected {want}, got {ours[name]}" for name, want in recorded["totals"].items()
                  if name in ours and want != ours[name]]
    yield {"name": f"run {options.run}, {recorded.get('workload', '')}", "ok": not difference, "decisions": len(ours),
           "difference": difference, "totals": ours}


def totals(made: Replay) -> JsonObject:
    """The totals of a run, under the names of large.json."""
    pool, trace, stats = made.pool, made.trace, made.scheduler.allocator.stats  # type: ignore[attr-defined]
    query, hits = (stats.query_tokens, stats.hit_tokens) if stats else (0, 0)  # first admissions: vLLM's usual hit rate
    return {"requests": len(trace), "input_tokens": int(trace.prompt_tokens.sum()),
            "output_tokens": int(trace.output_tokens.sum()), "steps": made.steps, "new_blocks": pool.taken,
            "touched": pool.touched, "preemptions": made.scheduler.preemptions, "evicted": pool.evicted,
            "hit_rate": round(hits / query, 4) if query else 0.0, "peak_running": made.peak_running,
            "peak_used_blocks": made.peak_used, "outcome": made.outcome}
