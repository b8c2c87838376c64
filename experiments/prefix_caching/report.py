"""What prefix caching gains, as a person reads it: the four answers, one table a view, and which number is which."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from experiments.check_report import verdict
from experiments.numbers import percent, show
from experiments.prefix_caching.serving import run_checks
from experiments.prefix_caching.serving_report import serving_tables
from experiments.prefix_caching.text import LEGEND, show_room
from experiments.prefix_caching.tiers import tier_tables
from experiments.shown import Line, TextTable, Titled, drawn
from workloads.messages import counted, dropped_lines, show_path
from workloads.request import InputError

JsonObject = dict[str, Any]
PIPE_COLUMNS, LEAST_COLUMNS = 110, 98


def print_prefix(document: JsonObject) -> None:
    """All sections, to standard output."""
    if sys.stdout is None:
        raise InputError("standard output is closed")
    width = PIPE_COLUMNS if not sys.stdout.isatty() else max(LEAST_COLUMNS, Console().width)
    console = Console(width=width, highlight=False)
    _lines(console, header(document))
    for title, table in tables(document):
        console.print()
        console.print(Text(title, "bold"))
        console.print(drawn(table))
    console.print()
    console.print(Text("Which number is which", "bold"))
    _lines(console, ((f"  {name}", text) for name, text in LEGEND.items()), "", 20)
    if document["notes"]:
        console.print()
        _lines(console, (("note", note) for note in document["notes"]), "yellow")
    if checks := run_checks(document):
        console.print()
        console.print(Text(verdict(checks), "green" if all(check["ok"] for check in checks) else "bold red"))


def _lines(console: Console, lines: Iterable[Line], style: str = "bold", width: int = 10) -> None:
    for label, text in lines:
        console.print(Text.assemble((f"{label:<{width}}", style), text), soft_wrap=True)


# ---------------------------------------------------------------------- the four answers
def header(document: JsonObject) -> Iterator[Line]:
    """The trace, the pool, and what was found, in a line each."""
    trace, config, capacity = document["trace"], document["config"], document["capacity"]
    yield "trace", show_path(trace["source"])
    yield "", f"{counted(trace['requests'], 'request')}, {trace['prompt_tokens']:,} prompt tokens"
    for line in dropped_lines(trace["dropped"]):
        yield "", line
    if config["model"] is not None:
        yield "model", config["model"] + (f" on {config['gpu']}" if config["gpu"] else "")
    yield "blocks", (f"of {document['block_size']:,} tokens, {'whole ones' if document['convention'] == 'full' else 'all ids'}; "
                     f"{document['accesses']:,} accesses to {document['unique_blocks']:,} different ones")
    yield "pool", f"{show_room(document['today'])} today; the engine's blocks have {capacity['block_size']:,} tokens"
    yield "today", _today(document)
    yield "larger", _larger(document["money"])
    yield "policy", _best(document)
    yield "bound", f"{percent(document['endless']['hit_rate_tokens'])} of tokens with a cache that never forgets"


def _today(document: JsonObject) -> str:
    text = f"{percent(document['today']['vllm']['hit_rate_tokens'])} of tokens found (cache view, vLLM's queue)"
    served = document["serving"]
    if served is None:
        return text
    first, without, cached = served["with"]["first_admissions"], served["without"], served["with"]
    refused = sum(cached["requests"]["rejected"].values())
    of = f" (without {counted(refused, 'request')} it refused)" if refused else ""
    return (f"{text}; {percent(first['hit_rate_tokens'])} in the serving view{of}, where caching runs "
            f"{cached['concurrency']['mean']:,.1f} requests at once instead of {without['concurrency']['mean']:,.1f}")


def _larger(money: JsonObject) -> str:
    more = money["next"]
    if more is None:
        return f"no gain in the cache view: {money['why_null']['next']}"
    if more["points"] < 0.05:
        return "no gain worth naming: less than 0.1 points"
    gib = "" if more["more_gib"] is None else f" = {show(more['more_gib'])} GiB"
    gpus = more["more_gpus"]
    cards = "" if gpus is None else (
        f", which fits into {gpus:,} more such {'GPU that holds' if gpus == 1 else 'GPUs that hold'} nothing else")
    return f"{more['points']:.1f} points more for {more['more_blocks']:,} more blocks{gib}{cards}"


def _best(document: JsonObject) -> str:
    """The best policy at the size nearest to today's pool, the bound apart."""
    rows = document["policies"]
    some = next(iter(rows.values()))
    if not some:
        return "no size to replay"
    at = min(range(len(some)), key=lambda i: abs(some[i]["blocks"] - document["today"]["blocks"]))
    hits = {name: of[at]["hit_blocks"] for name, of in rows.items() if name != "belady"}
    bound = f"; Belady's bound {percent(rows['belady'][at]['hit_rate_blocks'])}" if "belady" in rows else ""
    if not hits:
        return f"only the bound was asked for{bound}"
    most = max(hits.values())
    best = [name for name, n in hits.items() if n == most]
    names = " and ".join(best) if len(best) < len(hits) or len(hits) == 1 else "no policy finds more than another"
    rate = percent(rows[best[0]][at]["hit_rate_blocks"])
    return f"at {show_room(some[at])}: {names}, {rate} of blocks{bound}"


# ---------------------------------------------------------------------- tables
def tables(document: JsonObject) -> Iterator[Titled]:
    """All of them, a part of the document after the other."""
    for made in TABLES:
        yield from made(document)


def _goals(document: JsonObject) -> Iterator[Titled]:
    if not document["goals"]:
        return
    made = TextTable(("of tokens", "vLLM's queue, blocks", "GiB", "LRU, blocks", "GiB"))
    for row in document["goals"]:
        cells = [cell for name in ("vllm", "lru") for cell in (f"{row[name]['blocks']:,}", show(row[name]["gib"]))]
        made.add_row(percent(row["hit_rate_tokens"]), *cells)
    yield "What a share of hits costs (cache view); the last row finds all there is", made


def _policies(document: JsonObject) -> Iterator[Titled]:
    """Where replays took other blocks than the curves, the curves stand beside them."""
    rows, size, replayed = document["policies"], document["block_size"], document["policy_block_size"]
    named = () if size == replayed else (("vLLM's\ncurve", "vllm_curve"), ("LRU\ncurve", "lru"))
    curves = {title: {row["blocks"]: row for row in document[name]} for title, name in named}
    made = TextTable(("blocks", "GiB", *curves, *rows))
    for i, at in enumerate(next(iter(rows.values()))):
        exact = (percent(curve[at["blocks"]]["hit_rate_blocks"]) if at["blocks"] in curve else "" for curve in curves.values())
        made.add_row(f"{at['blocks']:,}", show(at["gib"]), *exact, *(percent(of[i]["hit_rate_blocks"]) for of in rows.values()))
    beside = "" if size == replayed else f"; replayed with blocks of {replayed:,} tokens, the curves have {size:,}"
    yield f"Policies (cache view), hits of blocks{beside}", made


def _block_sizes(document: JsonObject) -> Iterator[Titled]:
    made = TextTable(("block size", "full blocks", "hit blocks", "of blocks", "of tokens", "less the last token", ""))
    for row in document["block_sizes"]:
        mark = "<- here" if row["block_size"] == document["block_size"] else ""
        shares = (row["hit_rate_blocks"], row["hit_rate_tokens"], row["last_token_rule"]["hit_rate_tokens"])
        made.add_row(f"{row['block_size']:,}", f"{row['query_blocks']:,}", f"{row['hit_blocks']:,}",
                     *(percent(share, 2) for share in shares), mark)
    yield "What the block size takes away: an endless cache, whole blocks; vLLM always computes a prompt's last token", made


def _money(document: JsonObject) -> Iterator[Titled]:
    money = document["money"]
    made = TextTable(("", "blocks", "GiB", "of tokens", "prefill tokens a day", "GPU-seconds a day"))
    names = (("today", "today's pool"), ("next", "10 points more, or all"), ("bound", "endless"))
    for key, name in names:
        row = money[key]
        if row is not None:
            made.add_row(name, f"{row['blocks']:,}", show(row["gib"]), percent(row["hit_rate_tokens"]),
                         show(row["tokens_per_day"]), show(row["gpu_seconds_per_day"]))
    yield f"What hits spare (cache view, vLLM's queue){_stated(money)}", made


def _stated(money: JsonObject) -> str:
    prefill = money["prefill"]
    rate = "" if money["requests_per_day"] is None else f"{money['requests_per_day']:,.0f} requests a day"
    speed = "" if prefill["flops_per_s"] is None else (f"prefill at {prefill['flops_per_s'] / 1e12:,.0f} TFLOP/s, "
                                                       f"{prefill['efficiency']:g} of the peak")
    missing = "; ".join(f"no {what}: {why}" for what, why in money["why_null"].items() if what != "next")
    return "".join(f"; {text}" for text in (rate, speed, missing) if text)


TABLES: tuple[Callable[[JsonObject], Iterator[Titled]], ...] = (
    _goals, _policies, serving_tables, tier_tables, _block_sizes, _money)
"""A part of the document -> titled tables; one line a part."""
