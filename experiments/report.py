"""The comparison as a person reads it: a header, one table with a column an allocator, one line a cross-check.

Everything fits a terminal of 100 columns (five allocators) and reads the same through a pipe; numbers carry units.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from experiments.check_report import print_checks
from experiments.numbers import percent
from experiments.parts import LABELS
from experiments.replicas import replica_table, router_line
from experiments.shown import Line, TextTable, drawn
from sim.kv_formula import log_lines
from sim.memory.allocator import PARTS
from sim.sizing.versions import NEWEST
from workloads.later import Later
from workloads.messages import counted, dropped_lines, reason_in_words, show_path

if TYPE_CHECKING:
    from experiments import measured
else:
    measured = Later("experiments.measured")

JsonObject = dict[str, Any]
Row = tuple[str, Callable[[JsonObject], str]]

def print_report(document: JsonObject, notes: list[str], console: Console) -> None:
    """Header, the table of all scenarios, what was not served, and the cross-checks."""
    for label, text in header(document):
        _print_line(console, label, text)
    for note in notes:
        _print_line(console, "note", note, "yellow")
    for table in tables(document["scenarios"]):
        console.print()
        console.print(drawn(table, narrow=True))
    for label, text in remarks(document["scenarios"]):
        _print_line(console, label, text, "yellow")
    console.print()
    print_checks(document["crosscheck"], console)


def _print_line(console: Console, label: str, text: str, style: str = "bold") -> None:
    """``label`` in a column of its own; what follows is not broken inside words, so that paths stay whole."""
    parts = textwrap.wrap(text, max(20, console.width - 8), break_long_words=False, break_on_hyphens=False)
    for i, part in enumerate(parts):
        console.print(Text.assemble((f"{label if i == 0 else '':<8}", style), part), soft_wrap=True)


# ---------------------------------------------------------------------- header
def header(document: JsonObject) -> Iterator[Line]:
    """The trace, the model, the pool with its start-up lines, and the engine."""
    trace, capacity, config = document["trace"], document["capacity"], document["config"]
    yield "trace", show_path(trace["source"]) + (f" ({config['trace_format']})" if config["trace_format"] else "")
    yield "", (f"{counted(trace['requests'], 'request')}, {trace['prompt_tokens']:,} prompt + {trace['output_tokens']:,} output "
               f"tokens, arriving {_over(trace['duration_s'])}")
    if config["sequences"] > trace["requests"]:
        yield "", f"{config['sequences']:,} sequences (samples or beams); these output tokens are a sequence's"
    for line in dropped_lines(trace["dropped"]):
        yield "", line
    if config["model"] is not None:
        yield "model", str(config["model"]) + (f" on {config['gpu']}" if config["gpu"] else "")
    if (line := router_line(config)) is not None:
        yield "router", line
    yield "pool", _pool(capacity)
    for line in log_lines(capacity["num_blocks"], capacity["block_size"], capacity["max_model_len"]):
        yield "", line
    yield "engine", (f"max_num_seqs {_limit(config['max_num_seqs'])}, max_num_batched_tokens "
                     f"{_limit(config['max_num_batched_tokens'])}, placement {config['placement']}, "
                     f"{'asynchronous' if config['async_scheduling'] else 'synchronous'} scheduling")
    other = [f"rules of vLLM {config['vllm_version']}"] if config["vllm_version"] != str(NEWEST) else []
    other += [f"policy {config['scheduling_policy']}"] if config["scheduling_policy"] != "fcfs" else []
    other += ["static batching"] if config["batching"] == "static" else []
    other += [f"preemption by swap to {config['swap_blocks']:,} host blocks"] if config["swap_blocks"] is not None else []
    other += [f"{config['samples']} samples a request"] if (config["samples"] or 1) > 1 else []
    other += [f"{config['beam_width']} beams a request"] if (config["beam_width"] or 1) > 1 else []
    other += [f"turnover {config['beam_turnover']:g}"] if config["beam_turnover"] < 1 else []
    other += [f"at most {config['max_output_tokens']:,} output tokens known at admission"] if config["max_output_tokens"] else []
    other += [f"pages of {config['page_size']} = {config['page_slots']:,} slots"] if config["page_size"] else []
    if other:
        yield "", ", ".join(other)
    yield "", f"step time {config['step_time']}"


def _pool(capacity: JsonObject) -> str:
    blocks, size, per_token = capacity["num_blocks"], capacity["block_size"], capacity["kv_bytes_per_token"]
    gib = 0.0 if per_token is None else blocks * size * per_token / 2**30
    memory = "" if per_token is None else f" = {gib:,.2f} GiB at {per_token:,} bytes a token"
    return f"{blocks:,} blocks of {size:,} slots{memory}; {capacity['usable_slots']:,} slots to manage"


def _over(seconds: float) -> str:
    return f"over {seconds:,.1f} s" if seconds else "all at once"


def _limit(value: int | None) -> str:
    return "unlimited" if value is None else f"{value:,}"


# ---------------------------------------------------------------------- the tables
def tables(scenarios: list[JsonObject]) -> Iterator[TextTable]:
    """A column an allocator; then the replicas, and what is measured behind a warm-up, where there are any."""
    table = TextTable(("", *(s["allocator"] for s in scenarios)))
    for title, rows in _sections(scenarios):
        table.add_section(title)
        for label, value in rows:
            table.add_row(label, *(value(s) for s in scenarios))
    yield from filter(None, (table, replica_table(scenarios)))
    if _is_measured(scenarios):
        yield from filter(None, (measured.measured_table(scenarios),))


def _is_measured(scenarios: list[JsonObject]) -> bool:
    return any("measured" in scenario for scenario in scenarios)


def _sections(scenarios: list[JsonObject]) -> Iterator[tuple[str, list[Row]]]:
    yield "KV pool, mean share of slots", _pool_rows(scenarios)
    yield "Sequences running at once", [
        ("mean", lambda s: f"{s['concurrency']['mean']:,.2f}"),
        ("median", lambda s: f"{s['concurrency']['p50']:,}"),
        ("p99", lambda s: f"{s['concurrency']['p99']:,}"),
        ("peak", lambda s: f"{s['concurrency']['peak']:,}"),
    ]
    yield "Time", _time_rows()
    yield "Requests", [
        ("completed", lambda s: f"{s['requests']['completed']:,}"),
        ("rejected at arrival", lambda s: f"{sum(s['requests']['rejected'].values()):,}"),
        ("truncated at max_model_len", lambda s: f"{s['requests']['truncated']:,}"),
        ("preemptions", lambda s: f"{s['requests']['preemptions']:,}"),
    ]
    if any(s["prefix_cache"] for s in scenarios):
        yield "Prefix cache", _prefix_rows()
    if any(s["sharing"] and (s["prefix_cache"] or s["sharing"]["saved_share"]) for s in scenarios):
        yield "Sharing of blocks", [
            ("slots saved", lambda s: "-" if s["sharing"] is None else percent(s["sharing"]["saved_share"])),
            ("blocks copied on write", lambda s: "-" if s["sharing"] is None else f"{s['sharing']['copies']:,}"),
        ]


def _pool_rows(scenarios: list[JsonObject]) -> list[Row]:
    rows: list[Row] = [(LABELS[p], lambda s, p=p: percent(s["memory"][p])) for p in PARTS]
    rows.append(("useful part of allocated", lambda s: percent(s["memory"]["useful_of_allocated"])))
    if any(s["memory"]["largest_hole_mean"] is not None for s in scenarios):
        rows.append(("largest hole, mean (slots)", lambda s: _optional(s["memory"]["largest_hole_mean"], ",.0f")))
    if any((s["window_us"][1] - s["window_us"][0]) / 1e6 != s["makespan_s"] for s in scenarios):
        rows += [("measured from (s)", lambda s: f"{s['window_us'][0] / 1e6:,.1f}"),
                 ("measured to (s)", lambda s: f"{s['window_us'][1] / 1e6:,.1f}")]
    return rows


def _time_rows() -> list[Row]:
    return [
        ("waiting, mean (s)", lambda s: _optional(s["latency_s"]["queue"]["mean"], ",.2f")),
        ("waiting, p99 (s)", lambda s: _optional(s["latency_s"]["queue"]["p99"], ",.2f")),
        ("first token, median (s)", lambda s: _optional(s["latency_s"]["ttft"]["p50"], ",.2f")),
        ("per output token, mean (ms)", lambda s: _optional(s["latency_s"]["tpot"]["mean"], ",.1f", 1000)),
        ("output tokens a second", lambda s: f"{s['throughput']['output_tokens_per_s']:,.1f}"),
        ("whole run (s)", lambda s: f"{s['makespan_s']:,.1f}"),
    ]


def _prefix_rows() -> list[Row]:
    return [
        ("hit rate, first admissions", lambda s: _hits(s, lambda p: percent(p["hit_rate"]))),
        ("hit tokens, first admissions", lambda s: _hits(s, lambda p: f"{p['hit_tokens']:,}")),
        ("hit tokens, resumed", lambda s: _hits(s, lambda p: f"{p['resume_hit_tokens']:,}")),
        ("evicted blocks", lambda s: _hits(s, lambda p: f"{p['evicted_blocks']:,}")),
    ]


def _hits(scenario: JsonObject, show: Callable[[JsonObject], str]) -> str:
    return "-" if scenario["prefix_cache"] is None else show(scenario["prefix_cache"])


def _optional(value: float | None, form: str, times: float = 1) -> str:
    return "-" if value is None else format(value * times, form)


# ---------------------------------------------------------------------- what is to be said besides
def remarks(scenarios: list[JsonObject]) -> Iterator[Line]:
    """What was not served, and warnings of what is measured."""
    yield from _not_served(scenarios)
    if _is_measured(scenarios):
        yield from (("warning", line) for line in measured.measured_warnings(scenarios))


def _not_served(scenarios: list[JsonObject]) -> Iterator[Line]:
    """Rejections and truncations in words; allocators that share one are named together."""
    said: dict[str, list[str]] = {}
    for s in scenarios:
        requests = s["requests"]
        of_all = f"of {counted(requests['arrived'], 'request')}"
        texts = [f"{n:,} {of_all} rejected at arrival: {reason_in_words(reason)}" for reason, n in requests["rejected"].items()]
        if requests["truncated"]:
            texts.append(f"{requests['truncated']:,} {of_all} truncated: their output stopped at max_model_len")
        if requests["unfinished"]:
            texts.append(f"{requests['unfinished']:,} {of_all} unfinished")
        for text in texts:
            said.setdefault(text, []).append(s["allocator"])
    for text, names in said.items():
        yield "note", text + ("" if len(names) == len(scenarios) else f" ({', '.join(names)})")
    if len({str(s["requests"]["rejected"]) for s in scenarios}) > 1:
        yield "note", "the allocators did not serve the same requests: compare with care"
