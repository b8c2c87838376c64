"""A trace in one picture; a panel that cannot be drawn says why.

    +-- lengths -----------+ +-- arrivals ----------+
    | cumulative shares    | | requests a second    |
    +----------------------+ +----------------------+
    +-- ideal hit ratio ---+ +-- reuse distances ---+
    | by block size        | | in powers of two     |
    +----------------------+ +----------------------+
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.canvas import COLOURS, MARKS, canvas, missing
from experiments.figures import GREY, INK, heading, time_unit
from workloads.request import Trace

JsonObject = dict[str, Any]
BINS = 120
WIDTH, HEIGHT = 5.2, 3.2


def plot_trace(trace: Trace, found: JsonObject, title: str, path: str) -> None:
    """Draw a trace. The same trace gives the same bytes.

    Parameters
    ----------
    trace : Trace
    found : dict
        What `info.info` says of it.
    title : str
        Taken as plain text.
    path : str
        Ends in .png, .svg or .pdf.
    """
    with canvas(path, heading(title, 110), across=2, width=WIDTH, height=HEIGHT, down=2) as (one, two, three, four):
        _lengths(one, trace)
        _arrivals(two, trace, found["arrivals"])
        _ideal(three, found["content"])
        _reuse(four, found["content"])


def _lengths(axes: Any, trace: Trace) -> None:
    shares = np.linspace(0, 100, 1001)
    for values, name, colour, style in ((trace.prompt_tokens, "prompt", COLOURS[0], "-"),
                                        (trace.output_tokens, "output", COLOURS[2], "--")):
        axes.plot(np.percentile(values, shares), shares, color=colour, linestyle=style,
                  label=f"{name}: median {np.median(values):,.0f}, mean {values.mean():,.0f}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter("")
    both = np.concatenate((trace.prompt_tokens, trace.output_tokens))
    axes.set(xlim=_decades(int(both.min()), int(both.max())), ylim=(0, 132), yticks=range(0, 101, 20), xlabel="tokens",
             ylabel="requests up to that length (%)")
    axes.set_title("Lengths", fontsize=9.5)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.grid(alpha=0.25, linewidth=0.5)


def _decades(least: int, most: int) -> tuple[float, float]:
    """The whole decades around a range, at least one, so that both ends have a label; and a little room.

    >>> _decades(3, 5), _decades(10, 1000)
    ((0.9, 11.0), (9.0, 1100.0))
    """
    low, high = len(str(least)) - 1, len(str(max(most - 1, least)))
    return 0.9 * 10**low, round(1.1 * 10**high, 6)


def _arrivals(axes: Any, trace: Trace, times: JsonObject | None) -> None:
    axes.set_title("Arrivals", fontsize=9.5)
    if trace.arrival_us is None or times is None:
        return missing(axes, "no arrival times")
    if times["rate_per_s"] is None:
        return missing(axes, "all at once")
    since = trace.arrival_us - trace.arrival_us[0]
    counts, edges = np.histogram(since, bins=min(BINS, max(10, len(trace) // 8)), range=(0, float(since[-1])))
    width_s = float(edges[1]) / 1e6
    unit, us = time_unit(float(since[-1]))
    axes.stairs(counts / width_s, edges / us, color=COLOURS[0], fill=True, alpha=0.5)
    axes.axhline(times["rate_per_s"], color=INK, linestyle="--", linewidth=1,
                 label=f"mean {times['rate_per_s']:,.3g} a second; gaps vary by {times['cv_of_gaps']:.2f} of their mean")
    axes.set(xlabel=f"time ({unit}), each step {width_s:,.3g} s", ylabel="requests a second", xlim=(0, edges[-1] / us),
             ylim=(0, 1.25 * counts.max() / width_s))
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def _ideal(axes: Any, content: JsonObject | None) -> None:
    axes.set_title("Hit ratio of an endless prefix cache", fontsize=9.5)
    if content is None:
        return missing(axes, "no prefix identity: sharing cannot be measured")
    sizes = [row["block_size"] for row in content["ideal"]]
    for i, (key, name) in enumerate((("hit_rate_tokens", "of prompt tokens"), ("hit_rate_blocks", "of full blocks"))):
        axes.plot(sizes, [100 * row[key] for row in content["ideal"]], marker=MARKS[i], markersize=4, linewidth=1.4,
                  color=COLOURS[(0, 2)[i]], linestyle=("-", "--")[i], label=name)
    axes.axvline(content["span_tokens"], color=GREY, linestyle=":", linewidth=1)
    axes.annotate("one id", (content["span_tokens"], 0.02), xycoords=("data", "axes fraction"), fontsize=8, color=GREY,
                  ha="right", va="bottom", rotation=90)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    top = max(100 * max(row["hit_rate_tokens"], row["hit_rate_blocks"]) for row in content["ideal"])
    axes.set(ylim=(0, max(1.0, 1.3 * top)), xlabel="block size (tokens)", ylabel="hits (%)")
    axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=2)


def _reuse(axes: Any, content: JsonObject | None) -> None:
    axes.set_title("Reuse of blocks", fontsize=9.5)
    if content is None:
        return missing(axes, "no prefix identity")
    reuse = content["reuse"]
    if not reuse["accesses"]:
        return missing(axes, f"no prompt fills a block of {reuse['block_size']:,} tokens")
    shares = [100 * row["accesses"] / reuse["accesses"] for row in reuse["histogram"]]
    axes.bar(range(len(shares)), shares, width=0.9, color=COLOURS[4])
    axes.bar([len(shares) + 0.5], [100 * reuse["cold"] / reuse["accesses"]], width=0.9, color="#BBBBBB", hatch="///",
             edgecolor="white")
    every = max(1, len(shares) // 6)
    labels = {i: f"{reuse['histogram'][i]['least']:,}" for i in range(0, len(shares), every)}
    if every > 1 and len(shares) - 1 - max(labels) < every - 1:
        labels.pop(max(labels))                        # room for the label of the grey bar
    axes.set_xticks([*labels, len(shares) + 0.5], [*labels.values(), "first\nuse"], fontsize=8)
    axes.set(xlabel=f"other {reuse['block_size']:,}-token blocks used since, at least", ylabel="block accesses (%)")
