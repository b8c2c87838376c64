"""What prefix caching gains, in one picture; a panel that cannot be drawn says why.

    +-- hit rate against memory --+ +-- reuse of blocks ----------+
    | both curves, policies,      | | other blocks used between   |
    | the bound, today's pool     | | two uses, powers of two     |
    +-----------------------------+ +-----------------------------+
    +-- serving: hits by origin --+ +-- block size ---------------+
    | stacked, by pool            | | the bound, whole blocks     |
    +-----------------------------+ +-----------------------------+
"""

from __future__ import annotations

from typing import Any

from experiments.canvas import COLOURS, MARKS, canvas, missing, stacked
from experiments.figures import GREY, INK, heading
from experiments.numbers import show

JsonObject = dict[str, Any]
WIDTH, HEIGHT = 5.6, 3.9
ORIGINS = {"other_request": "another request", "same_session": "same session", "own_after_preemption": "own, after preemption"}


def plot_prefix(document: JsonObject, title: str, path: str) -> None:
    """Draw what `analysis.analyse` found. The same document gives the same bytes.

    Parameters
    ----------
    document : dict
    title : str
        Taken as plain text.
    path : str
        Ends in .png, .svg or .pdf.
    """
    with canvas(path, heading(title, 110), across=2, width=WIDTH, height=HEIGHT, down=2) as (one, two, three, four):
        _curves(one, document)
        _reuse(two, document)
        _origins(three, document["serving"])
        _block_sizes(four, document)


# ---------------------------------------------------------------------- hit rate against memory
def _curves(axes: Any, document: JsonObject) -> None:
    axes.set_title("Cache view: hits of blocks by size (one request at a time)", fontsize=9.5)
    if not document["lru"]:
        return missing(axes, "no prompt fills a block")
    known = document["today"]["gib"] is not None
    unit = "gib" if known else "blocks"
    for name, label, colour, style in (("lru", "LRU, exact", COLOURS[0], "-"),
                                       ("vllm_curve", "vLLM's queue, exact", COLOURS[2], "--")):
        rows = document[name]
        axes.plot([row[unit] for row in rows], [100 * row["hit_rate_blocks"] for row in rows], color=colour, linestyle=style,
                  linewidth=1.5, label=label, drawstyle="steps-post")
    _points(axes, document, unit)
    bound = 100 * document["endless"]["hit_rate_blocks"]
    axes.axhline(bound, color=INK, linestyle="-.", linewidth=1, label=f"endless: {bound:.1f} %")
    top = max(1.0, 1.9 * bound)
    if document["today"]["blocks"]:
        axes.axvline(document["today"][unit], 0, max(0.3, 1.3 * bound / top), color=GREY, linestyle=":", linewidth=1.4,
                     label="today's pool")
    axes.set_xscale("log")
    low, high = document["lru"][0][unit], max(document["lru"][-1][unit], 1.2 * document["today"][unit])
    axes.set(xlim=(max(low, high / 1e5), high), ylim=(0, top), ylabel="hits (% of full blocks)",
             xlabel="cache (GiB on a GPU)" if known else "cache (blocks)")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_yticks([tick for tick in axes.get_yticks() if tick <= max(1.0, 1.3 * bound)])
    points = f"points: policies, replayed with blocks of {document['policy_block_size']:,} tokens"
    axes.legend(frameon=False, fontsize=7, loc="upper left", ncols=3, title=points, title_fontsize=7.5, alignment="left")
    if known:
        _blocks_above(axes, document)


def _blocks_above(axes: Any, document: JsonObject) -> None:
    """A second scale on top: the same sizes in blocks."""
    last = document["lru"][-1]
    each = last["gib"] / last["blocks"]
    above = axes.secondary_xaxis("top", functions=(lambda gib: gib / each, lambda blocks: blocks * each))
    above.set_xlabel(f"blocks of {document['block_size']:,} tokens", fontsize=8)
    above.xaxis.set_major_formatter("{x:,.0f}")
    above.tick_params(labelsize=7)


def _points(axes: Any, document: JsonObject, unit: str) -> None:
    """Replayed policies; the two that have a curve are left to it."""
    others = {name: rows for name, rows in document["policies"].items() if name not in ("vllm", "lru")}
    for i, (name, rows) in enumerate(others.items()):
        axes.plot([row[unit] for row in rows], [100 * row["hit_rate_blocks"] for row in rows], MARKS[i % len(MARKS)],
                  color=COLOURS[(1, 3, 4, 5, 6)[i % 5]] if name != "belady" else INK, markersize=4, label=name,
                  fillstyle="full" if name != "belady" else "none")


# ---------------------------------------------------------------------- the other panels
def _reuse(axes: Any, document: JsonObject) -> None:
    axes.set_title("Reuse: other blocks used between two uses of one", fontsize=9.5)
    reuse = document["reuse"]
    if not reuse["lookups"]:
        return missing(axes, "no prompt fills a block")
    rows = reuse["histogram"]
    shares = [100 * row["lookups"] / reuse["lookups"] for row in rows]
    axes.bar(range(len(rows)), shares, width=0.9, color=COLOURS[4])
    axes.bar([len(rows) + 0.5], [100 * reuse["first_uses"] / reuse["lookups"]], width=0.9, color="#BBBBBB", hatch="///",
             edgecolor="white")
    every = max(1, -(-len(rows) // 6))
    labels = {i: f"{rows[i]['least']:,}" for i in range(0, len(rows), every) if len(rows) - i >= every or every == 1}
    axes.set_xticks([*labels, len(rows) + 0.5], [*labels.values(), "first\nuse"], fontsize=8)
    reached = sum(row["most"] < document["today"]["blocks"] for row in rows)
    axes.axvline(reached - 0.5, color=GREY, linestyle=":", linewidth=1.4)
    axes.annotate(" today's pool", (reached - 0.5, 0.97), xycoords=("data", "axes fraction"), fontsize=8, color=GREY, va="top",
                  ha="left" if reached < len(rows) / 2 else "right")
    axes.set(xlabel=f"other {document['block_size']:,}-token blocks, at least", ylabel="lookups (%)")


def _origins(axes: Any, serving: JsonObject | None) -> None:
    axes.set_title("Serving view: where hits came from", fontsize=9.5)
    if serving is None:
        return missing(axes, "the engine did not run (--no-serving)")
    today = serving["with"]["blocks"]
    bars = {_bar(run, today): [_share(run, origin) for origin in ORIGINS] for run in serving["pools"]}
    stacked(axes, bars, list(ORIGINS.values()), "% of all tokens looked up, resumes too")
    top = max(sum(values) for values in bars.values())
    for i, run in enumerate(serving["pools"]):
        first = run["first_admissions"]["hit_rate_tokens"]
        axes.annotate(f"first admissions {100 * first:.1f} %", (i, sum(bars[_bar(run, today)])), ha="center", va="bottom",
                      fontsize=7.5, xytext=(0, 2), textcoords="offset points")
    axes.set_ylim(0, max(1.0, 1.35 * top))
    axes.legend(frameon=False, fontsize=7.5, loc="upper left", ncols=3)


def _bar(run: JsonObject, today: int) -> str:
    name = "today's pool" if run["blocks"] == today else f"{run['blocks'] / today:.3g} x today's"
    return name + (f"\n{run['blocks']:,} blocks" if run["gib"] is None else f"\n{show(run['gib'])} GiB")


def _share(run: JsonObject, origin: str) -> float:
    parts = (run["first_admissions"], run["resumes"])
    asked = sum(part["query_tokens"] for part in parts)
    return 100 * sum(part["hit_tokens_by_origin"][origin] for part in parts) / asked if asked else 0.0


def _block_sizes(axes: Any, document: JsonObject) -> None:
    axes.set_title("Block size: what an endless cache finds", fontsize=9.5)
    rows = document["block_sizes"]
    sizes = [row["block_size"] for row in rows]
    series = (("of tokens", lambda row: row["hit_rate_tokens"]), ("of full blocks", lambda row: row["hit_rate_blocks"]),
              ("of tokens, less the last one", lambda row: row["last_token_rule"]["hit_rate_tokens"]))
    for i, (label, value) in enumerate(series):
        axes.plot(sizes, [100 * value(row) for row in rows], marker=MARKS[i], markersize=3.5, linewidth=1.3,
                  color=COLOURS[(0, 2, 4)[i]], linestyle=("-", "--", ":")[i], label=label)
    here, one = document["block_size"], document["span_tokens"]
    for size, label in {one: "one id", here: "here" if here != one else "here, one id"}.items():
        axes.axvline(size, color=GREY, linestyle=":", linewidth=1)
        axes.annotate(label, (size, 0.03), xycoords=("data", "axes fraction"), fontsize=8, color=GREY, ha="right",
                      rotation=90)
    axes.set_xscale("log", base=2)
    axes.set_xticks([2**k for k in range(0, 12, 1)], [f"{2**k:,}" for k in range(0, 12, 1)], fontsize=8)
    axes.minorticks_off()
    top = 100 * max(max(row["hit_rate_tokens"], row["hit_rate_blocks"]) for row in rows)
    axes.set(ylim=(0, max(1.0, 1.3 * top)), xlabel="block size (tokens)", ylabel="hits (%)")
    axes.legend(frameon=False, fontsize=7.5, loc="upper right", ncols=2)
