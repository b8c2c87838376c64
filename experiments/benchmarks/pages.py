"""The pages that hold measured numbers: what lies between their markers is written by the command alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.benchmarks.figures import draw_scale
from experiments.benchmarks.tables import FLOOR, markdown, number
from experiments.output import write_json, write_text

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
RESULTS = Path("docs") / "benchmarks" / "results.json"


def write_pages(document: dict[str, Any], root: Path) -> None:
    """Rewrite ``docs/speed.md``, its rows and figures, and the measured lines of the README of a checkout."""
    folder = root / RESULTS.parent
    folder.mkdir(exist_ok=True)
    write_json(str(root / RESULTS), document)
    draw_scale(document["rows"], str(folder))
    for path, text in zip(_pages(root), (markdown(document), summary(document)), strict=True):
        page = between(path.read_text(encoding="utf-8"), text)
        write_text(str(path), lambda file, page=page: file.write(page) and None)  # type: ignore[misc]


def check_pages(root: Path) -> None:
    """ValueError that names the page if one has no place for what was measured."""
    for path in _pages(root):
        if not path.exists():
            raise ValueError(f"{path}: no such page: --docs is for a checkout")
        between(path.read_text(encoding="utf-8"), "")


def _pages(root: Path) -> tuple[Path, Path]:
    return root / "docs" / "speed.md", root / "README.md"


def between(page: str, text: str) -> str:
    """The page with ``text`` between its markers.

    Raises
    ------
    ValueError
        If it has none.

    >>> between(f"a\\n{BEGIN}\\nold\\n{END}\\nb\\n", "new\\n").splitlines()
    ['a', '<!-- measured: begin -->', 'new', '<!-- measured: end -->', 'b']
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"a page without {BEGIN} and {END}, once each")
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{text.strip()}\n{END}{rest.split(END)[1]}"


def summary(document: dict[str, Any]) -> str:
    """The README's lines: ours, and each other system of the same benchmark, in CPU seconds."""
    rows = [row for row in document["rows"] if row["skipped"] is None and row["system"] != FLOOR]
    lines = []
    for name in ("lognormal", "dynamo", "conversation"):
        own = [row for row in rows if row["benchmark"] == name]
        if own and "cpu_s" in own[0]:
            lines.append(f"- `{name}`, {own[0]['count']:,} requests: " + "; ".join(_took(row) for row in own) + ".")
    return "\n".join(lines)


def _took(row: dict[str, Any]) -> str:
    if "cpu_s" in row:
        return f"{row['system']} {number(row['cpu_s'])} s of CPU, {row['peak_mib']:,.0f} MiB"
    return f"{row['system']} {number(row['wall_s'])} s of wall time, {row['peak_mib']:,.0f} MiB"
