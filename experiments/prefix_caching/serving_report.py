"""The serving view as a table: a column without caching, and one a pool with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from experiments.numbers import percent, show
from experiments.shown import TextTable, Titled

JsonObject = dict[str, Any]
Row = tuple[str, Callable[[JsonObject], str]]


def serving_tables(document: JsonObject) -> Iterator[Titled]:
    """One table, or none where the engine did not run."""
    served = document["serving"]
    if served is None:
        return
    runs = [served["without"], *served["pools"]]
    made = TextTable(("", *(_title(run, served["without"]["blocks"]) for run in runs)))
    for title, rows in _sections(runs):
        made.add_section(title)
        for label, value in rows:
            made.add_row(label, *(value(run) for run in runs))
    clock = served["step_time"].split(" (")[0]
    yield f"Serving view: the engine with blocks of {served['block_size']:,} tokens; step time {clock}", made


def _title(run: JsonObject, today: int) -> str:
    name = "no caching" if run["allocator"] == "paged" else "caching"
    pool = "today's pool" if run["blocks"] == today else f"{run['blocks'] / today:.3g} x today's"
    return f"{name}\n{pool}\n{run['blocks']:,} blocks" + ("" if run["gib"] is None else f"\n{show(run['gib'])} GiB")


def _sections(runs: list[JsonObject]) -> Iterator[tuple[str, list[Row]]]:
    first, again = _of("first_admissions"), _of("resumes")
    yield "First admissions: hits", [
        ("of tokens (vLLM's log line)", first(lambda s: percent(s["hit_rate_tokens"]))),
        ("of blocks", first(lambda s: percent(s["hit_rate_blocks"]))),
        ("tokens from another request", first(lambda s: f"{s['hit_tokens_by_origin']['other_request']:,}")),
        ("tokens from the same session", first(lambda s: f"{s['hit_tokens_by_origin']['same_session']:,}")),
    ]
    yield "Resumes, no sharing: hits", [
        ("resumes", again(lambda s: f"{s['admissions']:,}")),
        ("of tokens", again(lambda s: percent(s["hit_rate_tokens"]))),
        ("tokens of their own", again(lambda s: f"{s['hit_tokens_by_origin']['own_after_preemption']:,}")),
    ]
    if all(run["prefill_tokens"] for run in runs):
        yield "Prefill tokens", [
            ("of prompts", lambda run: f"{run['prefill_tokens']['prompts']:,}"),
            ("lost by preemption", lambda run: f"{run['prefill_tokens']['lost_by_preemption']:,}"),
            ("found, not computed", lambda run: f"{found(run['prefill_tokens']):,}"),
            ("computed", lambda run: f"{run['prefill_tokens']['computed']:,}"),
        ]
    yield "Service", _service()


def _service() -> list[Row]:
    return [
        ("running at once, mean", lambda run: f"{run['concurrency']['mean']:,.2f}"),
        ("waiting, mean (s)", lambda run: show(run["latency_s"]["queue"]["mean"])),
        ("first token, median (s)", lambda run: show(run["latency_s"]["ttft"]["p50"])),
        ("first token, p99 (s)", lambda run: show(run["latency_s"]["ttft"]["p99"])),
        ("preemptions", lambda run: f"{run['requests']['preemptions']:,}"),
        ("completed", lambda run: f"{run['requests']['completed']:,}"),
        ("slots saved by sharing", lambda run: percent(run["sharing"]["saved_share"])),
        ("blocks evicted", lambda run: "-" if run["evicted_blocks"] is None else f"{run['evicted_blocks']:,}"),
        ("whole run (s)", lambda run: f"{run['makespan_s']:,.1f}"),
    ]


def found(prefill: JsonObject) -> int:
    """Tokens that did not have to be computed."""
    return int(prefill["found_first"] + prefill["found_by_resumes"])


def _of(part: str) -> Callable[[Callable[[JsonObject], str]], Callable[[JsonObject], str]]:
    """A cell of a part that is None without caching."""
    return lambda value: lambda run: "-" if run[part] is None else value(run[part])
