"""Rows -> Markdown: what took how long, with ratios, and what was left out and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
HEAD = ("benchmark", "system", "runs", "CPU s", "least to most", "wall s", "CPU, ours = 1", "CPU µs each", "peak MiB", "totals")
SCALE_HEAD = ("requests", "blocks", "steps", "replay, CPU s", "CPU µs a request", "CPU µs a step", "peak MiB")
FLOOR = "one pass over the block ids in numpy, nothing else"
CURVES = {"requests": "count", "blocks": "num_blocks"}
MIB = 1 << 20


def markdown(document: dict[str, Any]) -> str:
    """All tables of a result, each under its heading."""
    rows = document["rows"]
    sections = [("Beside others", list(_compared(rows))), ("Scale", list(_scale(rows))),
                ("Where the time goes", list(_profile(document.get("profile"))))]
    parts = [f"### {title}\n\n" + "\n".join(lines) for title, lines in sections if lines]
    return "\n\n".join([_about(document), *parts]) + "\n"


def _about(document: dict[str, Any]) -> str:
    machine = document["machine"]
    return (f"pagedsim {document['pagedsim']}, {document['date']}; {machine['processors']} processors "
            f"({machine['architecture']}), Python {machine['python']}, "
            f"numpy {machine['numpy']}; medians of the runs; load average "
            f"{machine['load_before']:.1f} before, {machine['load_after']:.1f} after.")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 2) -> list[str]:
    """Lines of a Markdown table, its first columns to the left and the others to the right.

    >>> print("\\n".join(table(("name", "s"), [("a|b", "1.0")], left=1)))
    | name | s |
    | --- | ---: |
    | a\\|b | 1.0 |
    """
    ruler = [" --- " if i < left else " ---: " for i in range(len(head))]
    lines = [_line(head), f"|{'|'.join(ruler)}|"]
    return lines + [_line(row) for row in rows]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# ---------------------------------------------------------------------- side by side
def _compared(rows: Sequence[Row]) -> Iterator[str]:
    chosen = [row for row in rows if row["benchmark"] not in CURVES]
    if chosen:
        yield from table(HEAD, [_cells(row, _ours(row, rows)) for row in chosen])


def _ours(row: Row, rows: Sequence[Row]) -> Row:
    """The first row of the benchmark: ours."""
    return next(one for one in rows if one["benchmark"] == row["benchmark"])


def _cells(row: Row, ours: Row) -> tuple[str, ...]:
    begin = (row["benchmark"], row["system"], str(row["runs"]) if row["runs"] else "")
    if row["skipped"] is not None:
        return (*begin, *[""] * 6, f"{'failed' if row.get('failed') else 'skipped'}: {row['skipped']}")
    cpu = row.get("cpu_s")
    spread = f"{row['cpu_least_s']:.2f} to {row['cpu_most_s']:.2f}" if cpu is not None else ""
    work = row.get("work_cpu_s", cpu)
    each = work * 1e6 / row["count"] if work is not None and row["count"] else None
    return (*begin, number(cpu), spread, number(row.get("wall_s")), _ratio(row, ours), number(each), f"{row['peak_mib']:,.0f}",
            _totals(row))


def number(value: float | None) -> str:
    """Three digits of a time; nothing for None.

    >>> number(1234.5), number(80.83), number(0.0419), number(None)
    ('1,234', '80.8', '0.042', '')
    """
    if value is None:
        return ""
    digits = max(0, 3 - len(str(int(value)))) if value >= 1 else 3
    return f"{value:,.{digits}f}"


def _ratio(row: Row, ours: Row) -> str:
    """CPU over our CPU; nothing for what was measured elsewhere, as the times of a recording."""
    if row is ours or ours.get("cpu_s") is None or row.get("cpu_s") is None:
        return ""
    return f"{row['cpu_s'] / ours['cpu_s']:.2f}"


def _totals(row: Row) -> str:
    if row.get("as_recorded") is not None:
        return "as recorded" if row["as_recorded"] else "DIFFER"
    totals = row.get("totals") or {}
    return ", ".join(f"{name} {totals[name]:,}" for name in ("hits", "completed") if name in totals)


# ---------------------------------------------------------------------- scale
def _scale(rows: Sequence[Row]) -> Iterator[str]:
    for name in CURVES:
        chosen = [row for row in rows if row["benchmark"] == name]
        if not chosen:
            continue
        yield from table(SCALE_HEAD, [_scale_cells(row) for row in chosen], left=0)
        yield ""
        for slope in _slopes(name, chosen):
            yield from (slope, "")


def _scale_cells(row: Row) -> tuple[str, ...]:
    begin = (f"{row['count']:,}", f"{row['num_blocks']:,}")
    if row["skipped"] is not None:
        return (*begin, "", "", "", "", f"{'failed' if row['failed'] else 'skipped'}: {row['skipped']}")
    work, steps = row["work_cpu_s"], row["totals"]["steps"]
    return (*begin, f"{steps:,}", number(work), number(work * 1e6 / row["count"]), number(work * 1e6 / steps),
            f"{row['peak_mib']:,.0f}")


def _slopes(name: str, rows: Sequence[Row]) -> Iterator[str]:
    """Memory for each further request or block, between the two largest that ran."""
    ran = [row for row in rows if row["skipped"] is None]
    for before, after in list(pairwise(ran))[-1:]:
        more = after[CURVES[name]] - before[CURVES[name]]
        each = (after["peak_mib"] - before["peak_mib"]) * MIB / more
        yield (f"Memory: {each:,.0f} bytes for each further {name[:-1]}, from {before[CURVES[name]]:,} to "
               f"{after[CURVES[name]]:,} {name}.")


# ---------------------------------------------------------------------- the profile
def _profile(profile: dict[str, Any] | None) -> Iterator[str]:
    if profile is None:
        return
    whole = sum(profile["seconds"].values())
    shares = sorted(profile["seconds"].items(), key=lambda item: -item[1])
    yield f"`pagedsim compare TRACE {' '.join(profile['arguments'])}`, the requests of `dynamo`:"
    yield ""
    yield from table(("part", "share of the time"), [(part, f"{100 * spent / whole:.1f} %") for part, spent in shares], left=1)
