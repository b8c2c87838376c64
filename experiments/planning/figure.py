"""A picture of one GPU's memory: weights, activations, overhead, KV cache, what utilisation leaves out, and its limit."""

from __future__ import annotations

from typing import Any

from experiments.canvas import canvas
from experiments.figures import INK
from workloads.request import InputError

OVER = "over the limit"
COLOURS = {"weights": ("#0072B2", ""), "activation peak": ("#E69F00", "\\\\\\"), "non-torch": ("#CC79A7", "++"),
           "CUDA graphs": ("#D55E00", "xx"), "KV cache": ("#009E73", ".."), "not used": ("#EDEDED", "")}
RED = "#B3261E"


def plot_budget(made: dict[str, Any], path: str) -> None:
    """Draw the budget of a plan, in GiB.

    Raises
    ------
    InputError
        If the plan has no budget to draw, or the file cannot be written.
    """
    if not made["budget"]:
        raise InputError("--plot: the pool was given, so there is no budget to draw")
    with canvas(path, "", width=9, height=3.0) as (axes,):
        draw_budget(axes, made)


def draw_budget(axes: Any, made: dict[str, Any]) -> None:
    """One bar, part behind part, what goes over the limit hatched on its lower half; the limit and the whole memory as lines."""
    usable, gpu = usable_gib(made), made["gpu"]
    start = 0.0
    for name, gib in parts(made):
        told = f"{name}, {gib:.2f} GiB"
        if name == OVER:
            axes.barh([-0.2], [gib], 0.4, [usable], color="white", hatch="////", edgecolor=RED, label=told)
        else:
            colour, hatch = COLOURS[name]
            axes.barh([0], [gib], left=[start], color=colour, hatch=hatch, edgecolor="white", label=told)
            start += gib
    for name, gib, line in (("usable", usable, ":"), ("memory", gpu["memory_gib"], "--")):
        axes.axvline(gib, ymax=0.68, color=INK, linestyle=line, linewidth=1.2, label=f"{name}, {gib:.2f} GiB")
    axes.set(yticks=[], xlabel="GiB of one GPU", ylim=(-0.6, 0.9))
    found = "does not fit" if made["refusal"] is not None else \
        f"{made['max_concurrency']:.2f} requests of {made['max_model_len']:,} tokens at once"
    axes.set_title(f"{made['model']['name']} on {gpu['count']} x {gpu['name']}: {found}", fontsize=9, loc="left")
    axes.legend(loc="upper left", ncols=4, frameon=False, fontsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)


def usable_gib(made: dict[str, Any]) -> float:
    """What utilisation lets a server take of the card, in GiB."""
    return next(float(term["gib"]) for term in made["budget"] if term["name"] == "usable")


def parts(made: dict[str, Any]) -> list[tuple[str, float]]:
    """The parts of the card in GiB, in order: they add up to its memory, or go over its limit."""
    terms = {term["name"]: term["gib"] for term in made["budget"]}
    kept = {name: gib for name, gib in terms.items() if name in COLOURS and gib > 0}
    available = made["available_kv_gib"]
    if available < 0:
        return [*kept.items(), (OVER, -available)]
    unused = made["gpu"]["memory_gib"] - sum(kept.values()) - available
    return [*kept.items(), ("KV cache", available), *([("not used", unused)] if unused > 0 else [])]
