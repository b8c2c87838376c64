"""The comparison as a person reads it: one table an answer, units on every number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sim.allocator import PARTS
from sim.kv_formula import log_lines

PART_LABELS = {
    "token_states": "token states (useful)", "reserved": "reserved, will be filled", "internal": "internal fragmentation",
    "cached": "cached, free to take", "external": "external fragmentation", "remainder": "remainder", "idle": "idle",
}
Row = tuple[str, Callable[[dict[str, Any]], str]]


def print_report(document: dict[str, Any], notes: list[str], console: Console) -> None:
    """Header, the table of all scenarios, and the cross-checks."""
    _print_header(document, console)
    for note in notes:
        console.print(f"[yellow]note:[/] {escape(note)}")
    console.print(_table(document["scenarios"]))
    _print_rejections(document["scenarios"], console)
    _print_checks(document["crosscheck"], console)


def _print_header(document: dict[str, Any], console: Console) -> None:
    trace, capacity, config = document["trace"], document["capacity"], document["config"]
    dropped = "".join(f", {n:,} dropped ({reason})" for reason, n in trace["dropped"].items())
    console.print(f"[bold]trace[/]  {escape(trace['source'])}: {trace['requests']:,} requests{dropped}, "
                  f"{trace['prompt_tokens']:,} prompt + {trace['output_tokens']:,} output tokens in {trace['duration_s']:,.1f} s")
    per_token = capacity["kv_bytes_per_token"]
    size = "" if per_token is None else (f" = {capacity['num_blocks'] * capacity['block_size'] * per_token / 2**30:,.2f} GiB "
                                         f"at {per_token:,} bytes a token")
    console.print(f"[bold]pool[/]   {capacity['num_blocks']:,} blocks of {capacity['block_size']} slots{size}; "
                  f"{capacity['usable_slots']:,} slots usable; max_model_len {capacity['max_model_len']:,}")
    if per_token is not None:
        console.print(f"[bold]model[/]  {escape(str(config['model']))}" + (f" on {escape(config['gpu'])}" if config["gpu"] else ""))
    for line in log_lines(capacity["num_blocks"], capacity["block_size"], capacity["max_model_len"]):
        console.print(f"       {line}")
    seqs, budget = config["max_num_seqs"], config["max_num_batched_tokens"]
    console.print(f"[bold]engine[/] max_num_seqs {_limit(seqs)}, max_num_batched_tokens {_limit(budget)}, "
                  f"step time {escape(config['step_time'])}, placement {config['placement']}, synchronous scheduling")


def _limit(value: int | None) -> str:
    return "unlimited" if value is None else f"{value:,}"


def _table(scenarios: list[dict[str, Any]]) -> Table:
    table = Table(title="Where the slots of the KV pool went (time-weighted)", title_justify="left", show_edge=False)
    table.add_column("")
    for s in scenarios:
        table.add_column(s["allocator"], justify="right")
    for section in _sections(scenarios):
        for label, value in section:
            table.add_row(label, *(value(s) for s in scenarios))
        table.add_section()
    return table


def _sections(scenarios: list[dict[str, Any]]) -> list[list[Row]]:
    shares = [(PART_LABELS[p], lambda s, p=p: _percent(s["memory"][p])) for p in PARTS]
    shares.append(("useful part of what is allocated", lambda s: _percent(s["memory"]["useful_of_allocated"])))
    if any(s["memory"]["largest_hole_mean"] is not None for s in scenarios):
        shares.append(("largest hole, mean (slots)", lambda s: _optional(s["memory"]["largest_hole_mean"], ",.0f")))
    running: list[Row] = [
        ("running at once, mean", lambda s: f"{s['concurrency']['mean']:,.2f}"),
        ("running at once, p50 / p99 / peak",
         lambda s: " / ".join(f"{s['concurrency'][k]:,}" for k in ("p50", "p99", "peak"))),
        ("waiting for admission, mean (s)", lambda s: _optional(s["latency_s"]["queue"]["mean"], ",.2f")),
        ("waiting for admission, p99 (s)", lambda s: _optional(s["latency_s"]["queue"]["p99"], ",.2f")),
        ("time to first token, p50 (s)", lambda s: _optional(s["latency_s"]["ttft"]["p50"], ",.2f")),
        ("time per output token, mean (ms)", lambda s: _optional(s["latency_s"]["tpot"]["mean"], ",.1f", 1000)),
        ("output tokens per second", lambda s: f"{s['throughput']['output_tokens_per_s']:,.1f}"),
        ("makespan (s)", lambda s: f"{s['makespan_s']:,.1f}"),
    ]
    served: list[Row] = [
        ("completed", lambda s: f"{s['requests']['completed']:,}"),
        ("rejected", lambda s: f"{sum(s['requests']['rejected'].values()):,}"),
        ("truncated at max_model_len", lambda s: f"{s['requests']['truncated']:,}"),
        ("preemptions", lambda s: f"{s['requests']['preemptions']:,}"),
    ]
    prefix: list[Row] = [
        ("prefix hit rate, first admissions (tokens)", lambda s: _hits(s, lambda p: _percent(p["hit_rate"]))),
        ("  prompt tokens not computed", lambda s: _hits(s, lambda p: f"{p['hit_tokens']:,}")),
        ("  found again after a preemption (tokens)", lambda s: _hits(s, lambda p: f"{p['resume_hit_tokens']:,}")),
        ("blocks evicted", lambda s: _hits(s, lambda p: f"{p['evicted_blocks']:,}")),
        ("memory saved by sharing", lambda s: "-" if s["sharing"] is None else _percent(s["sharing"]["saved_share"])),
    ]
    return [shares, running, served, prefix if any(s["prefix_cache"] for s in scenarios) else []]


def _hits(scenario: dict[str, Any], show: Callable[[dict[str, Any]], str]) -> str:
    return "-" if scenario["prefix_cache"] is None else show(scenario["prefix_cache"])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _optional(value: float | None, form: str, times: float = 1) -> str:
    return "-" if value is None else format(value * times, form)


def _print_rejections(scenarios: list[dict[str, Any]], console: Console) -> None:
    for s in scenarios:
        for reason, n in s["requests"]["rejected"].items():
            console.print(f"[yellow]{s['allocator']}[/] rejected {n:,} requests at arrival: {reason.replace('_', ' ')}")
    if len({str(s["requests"]["rejected"]) for s in scenarios}) > 1:
        console.print("[yellow]note:[/] the allocators did not serve the same requests: compare with care")


def _print_checks(checks: list[dict[str, Any]], console: Console) -> None:
    failed = sum(not c["ok"] for c in checks)
    table = Table(title="Cross-checks", title_justify="left", show_edge=False)
    for heading, justify in (("", "left"), ("allocator", "left"), ("simulated", "right"), ("", "left"), ("analytic", "right"),
                             ("", "left")):
        table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for c in checks:
        table.add_row(escape(c["name"]), c["scenario"], f"{c['simulated']:,}", "=" if c["exact"] else "<=", f"{c['analytic']:,}",
                      "[green]ok[/]" if c["ok"] else "[bold red]FAILED[/]")
    console.print(table)
    verdict = f"[bold red]{failed} of {len(checks)} cross-checks FAILED[/]" if failed else f"[green]all {len(checks)} cross-checks ok[/]"
    console.print(verdict)
