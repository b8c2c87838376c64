"""A picture of one GPU's memory: weights, activations, overhead, KV cache, and what utilisation leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.figures import INK, SETTINGS, UNDATED
from experiments.output import replacing
from workloads.request import InputError

COLOURS = {"weights": ("#0072B2", ""), "activation peak": ("#E69F00", "\\\\\\"), "non-torch": ("#CC79A7", "++"),
           "CUDA graphs": ("#D55E00", "xx"), "KV cache": ("#009E73", ".."), "not used": ("#EDEDED", "")}


def plot_budget(made: dict[str, Any], path: str) -> None:
    """Draw the budget of a plan, in GiB.

    Raises
    ------
    InputError
        If the plan has no budget to draw, or the file cannot be written.
    """
    if not made["budget"]:
        raise InputError("--plot: the pool was given, so there is no budget to draw")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = parts(made)
    with matplotlib.rc_context(SETTINGS):
        figure, axes = pyplot.subplots(figsize=(9, 3.0), layout="constrained")
        start = 0.0
        for name, gib in rows:
            colour, hatch = COLOURS[name]
            axes.barh([0], [gib], left=[start], color=colour, hatch=hatch, edgecolor="white", label=f"{name}, {gib:.2f} GiB")
            start += gib
        gpu = made["gpu"]
        axes.axvline(gpu["memory_gib"], color=INK, linestyle="--", linewidth=1)
        axes.set(yticks=[], xlabel="GiB of one GPU", ylim=(-0.6, 0.9))
        title = (f"{made['model']['name']} on {gpu['count']} x {gpu['name']}: {made['max_concurrency']:.2f} requests of "
                 f"{made['max_model_len']:,} tokens at once")
        axes.set_title(title, fontsize=9, loc="left")
        axes.legend(loc="upper left", ncols=3, frameon=False, fontsize=8)
        axes.spines[["top", "right", "left"]].set_visible(False)
        with replacing(path) as name:
            figure.savefig(name, dpi=150, metadata=UNDATED[Path(path).suffix.lower()])
        pyplot.close(figure)


def parts(made: dict[str, Any]) -> list[tuple[str, float]]:
    """The parts of the card in GiB, in order; they add up to its memory unless it is overfull."""
    terms = {term["name"]: term["gib"] for term in made["budget"]}
    kept = {name: gib for name, gib in terms.items() if name in COLOURS and gib > 0}
    available = max(made["available_kv_gib"], 0.0)
    unused = made["gpu"]["memory_gib"] - sum(kept.values()) - available
    return [*kept.items(), ("KV cache", available), *([("not used", unused)] if unused > 0 else [])]
