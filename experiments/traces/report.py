"""What a trace holds, as a person reads it: lengths, arrivals, sessions, sharing, reuse; then what it cannot show."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.numbers import percent
from workloads.messages import counted, dropped_lines, show_path
from workloads.request import InputError

JsonObject = dict[str, Any]
PIPE_COLUMNS, LEAST_COLUMNS = 110, 90
BAR = 40


def print_info(found: JsonObject) -> None:
    """All sections, to standard output."""
    if sys.stdout is None:
        raise InputError("standard output is closed")
    console = Console(width=PIPE_COLUMNS if not sys.stdout.isatty() else max(LEAST_COLUMNS, Console().width), highlight=False)
    _lines(console, _header(found))
    for title, table in _tables(found):
        console.print()
        console.print(Text(title, "bold"))
        console.print(table)
    if found["notes"]:
        console.print()
        _lines(console, (("note", note) for note in found["notes"]), "yellow")


def _lines(console: Console, lines: Iterator[tuple[str, str]], style: str = "bold") -> None:
    for label, text in lines:
        console.print(Text.assemble((f"{label:<10}", style), text), soft_wrap=True)


def show(value: float | None) -> str:
    """A number for people: whole ones whole, others with two digits, or three significant ones below 1.

    >>> show(1234.0), show(2.5), show(0.01234), show(None)
    ('1,234', '2.50', '0.0123', '-')
    """
    if value is None:
        return "-"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"


# ---------------------------------------------------------------------- lines
def _header(found: JsonObject) -> Iterator[tuple[str, str]]:
    trace, lengths = found["trace"], found["lengths"]
    yield "trace", show_path(trace["source"]) + (f" ({trace['format']})" if trace["format"] else "")
    if trace["made_by"]:
        yield "made by", show_path(trace["made_by"])
    over = f" over {trace['duration_s']:,.1f} s" if trace["duration_s"] else ""
    yield "", f"{counted(trace['requests'], 'request')}{over}"
    for line in dropped_lines(trace["dropped"]):
        yield "", line
    yield from _rows(found)
    correlation = lengths["spearman"]
    together = "" if correlation is None else f"; rank correlation of prompt and output {correlation:+.3f}"
    yield "tokens", f"{lengths['kv_tokens']:,} of KV cache when each has ended (P + O - 1){together}"
    if found["arrivals"]:
        yield from _arrivals(found["arrivals"])
    if found["sessions"]:
        yield from _sessions(found["sessions"])
    yield from _columns(found["columns"])


def _rows(found: JsonObject) -> Iterator[tuple[str, str]]:
    """The rows of the file, where they are not all requests."""
    rows = found["rows"]
    if rows["count"] != found["trace"]["requests"]:
        told = "; ".join(f"{name} {' / '.join(show(round(rows[f'{name}_tokens'][key], 2)) for key in ('mean', 'p50', 'p99'))}"
                         for name in ("prompt", "output") if rows[f"{name}_tokens"])
        yield "rows", f"{rows['count']:,} in the file, zero lengths and all; mean / median / p99 of {told}"
        over = "" if not rows["rate_per_s"] else f"over {rows['duration_s']:,.1f} s, {show(rows['rate_per_s'])} a second; "
        ratio = rows["hit_ratio_of_ids"]
        found_ids = "" if ratio is None else f"{100 * ratio:.2f} % of their ids were there before"
        if over or found_ids:
            yield "", (over + found_ids).removesuffix("; ")


def _arrivals(times: JsonObject) -> Iterator[tuple[str, str]]:
    if times["rate_per_s"] is None:
        yield "arrivals", "all at once"
        return
    yield "arrivals", (f"{show(times['rate_per_s'])} a second, one each {show(times['mean_gap_s'])} s; gaps vary by "
                       f"{times['cv_of_gaps']:.2f} of their mean (Poisson: 1)")
    dispersion = ", ".join(f"{show(v)} in {w}" for w, v in times["dispersion"].items() if v is not None)
    if dispersion:
        yield "", f"variance over mean of counts {dispersion} (Poisson: 1)"
    yield "", "peak a second " + ", ".join(f"{show(v)} in {w}" for w, v in times["peak_per_s"].items())
    if times["equal_stamps_share"]:
        yield "", (f"{100 * times['equal_stamps_share']:.1f} % have the stamp of the one before; "
                   f"{times['stamps']:,} distinct stamps, up to {times['most_at_one_stamp']:,} requests on one")


def _sessions(sessions: JsonObject) -> Iterator[tuple[str, str]]:
    turns, think = sessions["turns"], sessions["think_s"]
    yield "sessions", (f"{sessions['count']:,} of {show(turns['mean'])} turns (median {show(turns['p50'])}, most "
                       f"{turns['max']:,}); {sessions['requests_without']:,} requests without")
    if think:
        yield "", (f"{100 * sessions['closed_loop_share']:.1f} % of the requests wait for the answer before them, and then "
                   f"{show(think['mean'])} s (median {show(think['p50'])} s)")


def _columns(columns: JsonObject) -> Iterator[tuple[str, str]]:
    for name in ("max_tokens", "samples", "beam_width"):
        if columns[name]:
            yield name, f"mean {show(columns[name]['mean'])}, from {columns[name]['min']:,} to {columns[name]['max']:,}"
    if columns["priorities"]:
        found = columns["priorities"]
        yield "priority", f"{found['distinct']:,} different, from {found['most_urgent']:,} (urgent) to {found['least_urgent']:,}"


# ---------------------------------------------------------------------- tables
def _tables(found: JsonObject) -> Iterator[tuple[str, Table]]:
    yield "Lengths in tokens", _lengths(found["lengths"])
    if found["content"]:
        content = found["content"]
        yield f"What an endless prefix cache finds: {_ids(content)}", _ideal(content)
        if content["reuse"]["accesses"]:
            size = content["reuse"]["block_size"]
            yield f"Other blocks used between two uses of a {size:,}-token block: an LRU cache of more blocks hits", _reuse(
                content["reuse"])


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    return table


def _lengths(lengths: JsonObject) -> Table:
    names = ("prompt_tokens", "output_tokens", "total_tokens")
    table = _table("", "prompt", "output", "both")
    table.columns[0].justify = "left"
    for statistic in lengths["prompt_tokens"]:
        label = {"total": "sum", "p50": "median"}.get(statistic, statistic)
        table.add_row(label, *(show(round(lengths[name][statistic], 2)) for name in names))
    return table


def _ids(content: JsonObject) -> str:
    return f"{content['ids']:,} ids of {content['span_tokens']:,} tokens, {content['unique_ids']:,} different"


def _ideal(content: JsonObject) -> Table:
    table = _table("block size", "full blocks", "hit blocks", "of blocks", "of prompt tokens", "less the last token")
    for row in content["ideal"]:
        table.add_row(f"{row['block_size']:,}", f"{row['query_blocks']:,}", f"{row['hit_blocks']:,}",
                      percent(row["hit_rate_blocks"], 2), percent(row["hit_rate_tokens"], 2),
                      percent(row["last_token_rule"]["hit_rate_tokens"], 2))
    ids = content["ideal_ids"]
    table.add_row("each id", f"{ids['query_blocks']:,}", f"{ids['hit_blocks']:,}", percent(ids["hit_rate_blocks"], 2),
                  percent(ids["hit_rate_tokens"], 2), "-")
    return table


def _reuse(reuse: JsonObject) -> Table:
    table = _table("blocks", "tokens", "accesses", "share", "")
    table.columns[-1].justify = "left"
    rows = [(f"{r['least']:,}" if r["least"] == r["most"] else f"{r['least']:,} - {r['most']:,}",
             f"from {r['least'] * reuse['block_size']:,}", r["accesses"]) for r in reuse["histogram"]]
    rows.append(("first use", "", reuse["cold"]))
    most = max(n for _, _, n in rows)
    for label, tokens, n in rows:
        table.add_row(label, tokens, f"{n:,}", percent(n / reuse["accesses"], 2), "#" * round(BAR * n / most))
    return table
