"""The page of `pagedsim plan --html`: what its report prints, and a GPU's memory in a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from experiments.check_report import check_table, verdict
from experiments.html.page import provenance, render
from experiments.html.pictures import drawn_picture
from experiments.planning.figure import parts, plot_budget, usable_gib
from experiments.planning.report import header, tables, thumb_and_cost
from experiments.shown import grouped

JsonObject = dict[str, Any]


def plan_page(made: JsonObject, words: Sequence[str]) -> str:
    """The text of the page.

    Parameters
    ----------
    made : dict
        What ``--json`` writes.
    words : sequence of str
        Of the command line behind ``plan``.
    """
    on = "" if made["gpu"] is None else f" on {made['gpu']['count']} x {made['gpu']['name']}"
    name = "a given pool" if made["model"] is None else made["model"]["name"]
    checks = made["crosscheck"]
    return render("plan.html", title=f"Memory plan: {name}{on}", header=grouped(header(made)), fits=made["refusal"] is None,
                  picture=_picture(made), tables=list(tables(made)), besides=grouped(thumb_and_cost(made)),
                  warnings=[("warning", line) for line in made["warnings"]], notes=[("note", line) for line in made["notes"]],
                  checks=check_table(checks, "of"), checked=bool(checks), verdict=verdict(checks),
                  failed=not all(check["ok"] for check in checks), provenance=provenance(["plan", *words]))


def _picture(made: JsonObject) -> Markup | None:
    """None where the pool was given and there is no budget to draw."""
    if not made["budget"]:
        return None
    told = ", ".join(f"{name} {gib:,.2f} GiB" for name, gib in parts(made))
    return drawn_picture(lambda path: plot_budget(made, path),
                         f"The memory of one GPU, {usable_gib(made):,.2f} GiB of it usable: {told}")
