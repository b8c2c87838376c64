"""Cross-checks as a person reads them: a line each, both numbers and a verdict; those of replicas added up."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape

from experiments.replicas import together
from experiments.shown import TextTable

JsonObject = dict[str, Any]
TITLE = "Cross-checks"


class CheckLine(NamedTuple):
    """One check in text."""

    scenario: str
    name: str
    simulated: str
    sign: str
    analytic: str
    ok: bool


def check_lines(checks: list[JsonObject]) -> list[CheckLine]:
    """All of them; those of replicas that are ok are one.

    >>> check = {"scenario": "paged", "name": "a = b", "simulated": 1000, "analytic": 1000, "exact": True, "ok": True}
    >>> check_lines([check])
    [CheckLine(scenario='paged', name='a = b', simulated='1,000', sign='=', analytic='1,000', ok=True)]
    """
    return [CheckLine(c["scenario"], c["name"], f"{c['simulated']:,}", "=" if c["exact"] else "<=", f"{c['analytic']:,}", c["ok"])
            for c in together(checks)]


def check_table(checks: list[JsonObject], first: str = "allocator") -> TextTable:
    """All of them for a page; ``first`` says what the scenarios are."""
    made = TextTable((first, "check", "simulated", "", "analytic", ""), frozenset({0, 1}))
    for *cells, ok in check_lines(checks):
        made.add_row(*cells, "ok" if ok else "FAILED")
    return made


def meaning(checks: list[JsonObject]) -> str:
    """What stands to the left and to the right."""
    added = "; those of each replica added up" if len(together(checks)) < len(checks) else ""
    return f"simulated against analytic{added}"


def verdict(checks: list[JsonObject]) -> str:
    """Of all together.

    >>> verdict([{"ok": True}, {"ok": False}])
    '1 of 2 cross-checks FAILED'
    """
    failed = sum(not c["ok"] for c in checks)
    return f"{failed} of {len(checks)} cross-checks FAILED" if failed else f"all {len(checks)} cross-checks ok"


def report_failures(command: str, checks: list[JsonObject]) -> int:
    """Name each that failed, on standard error; returns the exit status, 1 where one did."""
    failed = [check for check in checks if not check["ok"]]
    for c in failed:
        of = f"replica {c['replica']}: " if "replica" in c else ""
        print(f"pagedsim {command}: cross-check failed: {c['scenario']}: {of}{c['name']}: {c['simulated']} against "
              f"{c['analytic']}", file=sys.stderr)
    return 1 if failed else 0


def print_checks(checks: list[JsonObject], console: Console) -> None:
    """In columns as wide as they have to be."""
    console.print(f"[bold]{TITLE}[/]: {meaning(checks)}")
    lines = check_lines(checks)
    scenario, name, left, sign, right = (max(map(len, column)) for column in zip(*(line[:5] for line in lines), strict=True))
    for line in lines:
        text = (f"  {line.scenario:<{scenario}}  {line.name:<{name}}  {line.simulated:>{left}} {line.sign:^{sign}} "
                f"{line.analytic:>{right}}  ")
        console.print(escape(text) + ("[green]ok[/]" if line.ok else "[bold red]FAILED[/]"), soft_wrap=True, highlight=False)
    style = "green" if all(line.ok for line in lines) else "bold red"
    console.print(f"[{style}]{verdict(checks)}[/]", highlight=False)
