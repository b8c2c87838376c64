"""The difference between a replay and the recorded case, told as a person would want it.

    first difference: decision 15, step 6
    expected  step 6: evict block 8
    got       step 6: grow r0, blocks [13]
    before    step 6: preempt r1; step 6: evict block 12
    queue     before the step, 1 block: 13
"""

from __future__ import annotations

from typing import Any

from experiments.conformance.replay import ROW, SHOWN, Replay
from workloads.messages import counted
from workloads.request import InputError

AROUND = 3                                             # entries shown on either side of a difference
LENGTHS = {"preempt": 3, "evict": 3, "grow": 4, "finish": 3, "admit": 5, "resume": 5}
LATEST = 1 << 62
UNSAID = 100_000                                       # steps that are made where nothing says how many there are


def differences(made: Replay, result: dict[str, Any]) -> list[str]:
    """The first decision or row that differs, with what is around it; then totals that differ. Empty where nothing does.

    Raises
    ------
    InputError
        Where the recorded result is not of the form that the recorder writes.
    """
    told = _first(made, _events(result), _rows(result)) if made.keeps_steps else []
    return told + [line for name, got in finals(made).items() if name in result for line in _total(name, result[name], got)]


def last_step(result: dict[str, Any]) -> int:
    """The step behind which no replay is as recorded; a result that does not say how long it is has no very long one.

    >>> last_step({"steps": 30}), last_step({"steps": 30, "step_rows": [[7, 1, 0, 5, 9, 9, 0]]}), last_step({})
    (30, 8, 100000)
    """
    rows, names = result.get("step_rows"), result.get("step_columns", ROW)
    last = rows[-1] if isinstance(rows, list) and rows else None
    at = names.index("step") if isinstance(names, list | tuple) and "step" in names else 0
    found = [last[at] + 1] if isinstance(last, list) and len(last) > at and type(last[at]) is int else []
    found += [result["steps"]] if type(result.get("steps")) is int else []
    return min(found, default=UNSAID)


def missing(made: Replay, result: dict[str, Any]) -> list[str]:
    """What the recorder writes and this result does not have: it was not compared."""
    wanted = [*finals(made), *(("events", "step_rows") if made.keeps_steps else ())]
    if not made.keeps_steps:
        wanted.remove("final_free_queue")
    return [name for name in wanted if name not in result]


def finals(made: Replay) -> dict[str, Any]:
    """Outcome, totals, statistics and the free queue at the end, under the recorder's names."""
    pool = made.pool
    stats = made.scheduler.allocator.stats             # type: ignore[attr-defined]
    counts = (0,) * 6 if stats is None else (stats.requests, stats.query_tokens, stats.hit_tokens, stats.resumes,
                                             stats.resume_query_tokens, stats.resume_hit_tokens)
    names = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")
    return {"outcome": made.outcome, "stuck": made.stuck, "steps": made.steps, "preemptions": made.scheduler.preemptions,
            "blocks_evicted": pool.evicted, "peak_running": made.peak_running, "peak_used_blocks": made.peak_used,
            "prefix_cache": dict(zip(names, counts, strict=True)), "cached_tokens_at_admission": made.cached,
            "final_free_blocks": pool.free, "final_cached_blocks": int((pool.hash_of >= 0).sum()),
            "final_free_queue": pool.free_queue().tolist()}


# ---------------------------------------------------------------------- the recorded result
def _events(result: dict[str, Any]) -> list[list[Any]]:
    found = result.get("events", [])
    for i, event in enumerate(found if isinstance(found, list) else [found]):
        if not isinstance(event, list) or len(event) < LENGTHS.get(str(event[0]) if event else "", LATEST) \
                or type(event[1]) is not int:
            raise InputError(f"the result's event {i + 1} is none: {str(event)[:60]!r}")
    return list(found)


def _rows(result: dict[str, Any]) -> list[list[int]]:
    names, found = result.get("step_columns", list(ROW)), result.get("step_rows", [])
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(ROW):
        raise InputError(f"the result's step_columns are not {', '.join(ROW)}")
    order = [names.index(name) for name in ROW]
    for i, row in enumerate(found if isinstance(found, list) else [found]):
        if not isinstance(row, list) or len(row) != len(ROW) or any(type(value) is not int for value in row):
            raise InputError(f"the result's row {i + 1} is none: {str(row)[:60]!r}")
    return [[row[i] for i in order] for row in found]


# ---------------------------------------------------------------------- the first difference
def _first(made: Replay, events: list[list[Any]], rows: list[list[int]]) -> list[str]:
    """The earlier one of the first decision and the first row that differ."""
    event, row = _place(events, made.events), _place(rows, made.rows)
    step_of_event = _step(events[event:event + 1] + made.events[event:event + 1], 1)
    step_of_row = _step(rows[row:row + 1] + made.rows[row:row + 1], 0)
    if step_of_event == step_of_row == LATEST:
        return []
    if step_of_event <= step_of_row:
        want, got = (_event(known[event:event + 1]) for known in (events, made.events))
        before = "; ".join(_event([one]) for one in made.events[max(0, event - AROUND):event]) or "nothing"
        return [f"first difference: decision {event + 1}, step {step_of_event}", f"expected  {want}", f"got       {got}",
                f"before    {before}", _queue(made, step_of_event)]
    told = _row_difference(rows[row:row + 1], made.rows[row:row + 1])
    return [f"first difference: row of step {step_of_row}, all decisions of it as recorded", *told, _queue(made, step_of_row)]


def _place(want: list[Any], got: list[Any]) -> int:
    """Where two lists begin to differ, perhaps behind the end of one."""
    shorter = min(len(want), len(got))
    return next((i for i in range(shorter) if not _same(want[i], got[i])), shorter)


def _same(want: Any, got: Any) -> bool:
    """Equal, and whole numbers equal only whole numbers."""
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(_same, want, got))
    return bool(want == got) and isinstance(want, bool) == isinstance(got, bool) and not isinstance(want, float)


def _step(entries: list[list[Any]], place: int) -> int:
    return min((entry[place] for entry in entries), default=LATEST)


def _event(one: list[list[Any]]) -> str:
    if not one:
        return "no further decision: it ends here"
    kind, step, who, *rest = one[0]
    if kind in ("admit", "resume"):
        table = f", blocks {rest[2]}" if len(rest) > 2 else ""
        return f"step {step}: {kind} {who}, {rest[0]} tokens cached, {rest[1]} scheduled{table}"
    if kind == "evict":
        return f"step {step}: evict block {who}"
    return f"step {step}: {kind} {who}{f', blocks {rest[0]}' if rest else ''}"


def _row_difference(want: list[list[int]], got: list[list[int]]) -> list[str]:
    if not want or not got:
        return [f"expected  {'a row' if want else 'no such step: it ends before'}",
                f"got       {'a row' if got else 'no such step: it ends before'}"]
    return [f"{name}: expected {w}, got {g}" for name, w, g in zip(ROW, want[0], got[0], strict=True) if w != g]


def _queue(made: Replay, step: int) -> str:
    """The free queue as it was before the step."""
    before = [i for i, row in enumerate(made.rows) if row[0] < step]
    if not before:
        return "queue     before the step, as at the start: 1, 2, 3, ..."
    front, end, length = made.queues[before[-1]]
    shown = ", ".join(map(str, front))
    if length > SHOWN:
        rest = end[-(length - SHOWN):] if length < 2 * SHOWN else end
        shown += (" ... " if length > 2 * SHOWN else ", ") + ", ".join(map(str, rest))
    return f"queue     before the step, {counted(length, 'block')}: {shown or 'none'}"


# ---------------------------------------------------------------------- totals
def _total(name: str, want: Any, got: Any) -> list[str]:
    if want == got:
        return []
    if isinstance(want, dict) and isinstance(got, dict):
        names = sorted(key for key in want.keys() | got.keys() if want.get(key) != got.get(key))
        told = [f"{name}, {key}: expected {want.get(key, 'nothing')}, got {got.get(key, 'nothing')}" for key in names[:AROUND]]
        return told + ([f"{name}: {len(names) - AROUND} more"] if len(names) > AROUND else [])
    if isinstance(want, list) and isinstance(got, list):
        place = _place(want, got)
        around = slice(max(0, place - AROUND), place + AROUND + 1)
        return [f"{name}: place {place} of {len(want)} differs ({len(got)} got): expected ... {_plain(want[around])} ..., "
                f"got ... {_plain(got[around])} ..."]
    return [f"{name}: expected {str(want)[:80]}, got {got}"]


def _plain(values: list[Any]) -> str:
    return ", ".join(str(value)[:40] for value in values) or "nothing"
