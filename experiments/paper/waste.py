"""60 to 80 % of the KV memory wasted before paging, under 4 % after; and how the waste goes with the variance of output lengths.

Two measures, because the two claims mean two things. The 60 to 80 % are of the pool: whatever holds no token while requests are
refused. The 4 % are of the memory handed out: in paged blocks only the end of a last block is empty.

The second half asks what variance does at equal means: prompts of one length, lognormal outputs with exactly the same mean, from
all alike to a few very long ones. Who must reserve for the longest pays for variance; who hands out blocks does not.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from experiments.canvas import canvas, grouped, lines
from experiments.paper import fig2, setting
from experiments.paper.measures import mean_running, waiting_part, waste_of_allocated, waste_of_pool
from experiments.paper.outcome import Outcome, Row, Table
from experiments.paper.setting import SYSTEMS, Lab
from sim.run import Run
from sim.step_time import ConstantStepTime
from workloads.request import IntArray, Trace

TITLE = "Waste before and after paging, and what the variance of output lengths does"
SOURCE = "vLLM blog, 20 June 2023: 60 to 80 % wasted, under 4 % with vLLM; Kwon et al., SOSP 2023, Figure 2"
PUBLISHED = {label: 100 - (tokens or 0.0) for label, (tokens, *_) in fig2.PUBLISHED.items()}
TOLERANCE = 3.0                                        # points, as for Figure 2
BEFORE, MOST_WASTE = (60.0, 80.0), 4.0                 # per cent, the blog's
CONFIG = setting.paper_config(ConstantStepTime(20_000), saturate=True)
REQUESTS = 8000
PROMPT, OUTPUT_MEAN = 161, 338                         # tokens: ShareGPT's means, Figure 11
VARIATIONS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)        # standard deviation over mean, before lengths are cut
LONGEST_TOKENS = 4096                                  # more than OPT-13B takes: only the size of the pool is the paper's
VARIED_REQUESTS = 3000
PLACEMENT = "first-fit"                                # no rounding to powers of two: it would hide what variance does
WAYS = {"for the longest that comes": "contiguous-max", "for the next power of two": "contiguous-pow2",
        "for what will be used (oracle)": "contiguous-oracle", "nothing: blocks of 16": "paged"}
LONGEST, PAGED = "for the longest that comes", "nothing: blocks of 16"


def run(lab: Lab) -> Outcome:
    """The four systems on ShareGPT; then four ways to reserve on outputs of equal mean."""
    trace, judged = waiting_part(lab, REQUESTS)
    runs = {label: lab.run(trace, CONFIG, name, label) for label, name in SYSTEMS.items()}
    varied = {variation: _varied(lab, variation) for variation in VARIATIONS}
    waste = {way: [waste_of_pool(found[way]) for found in varied.values()] for way in WAYS}
    spread = [_spread(found[PAGED]) for found in varied.values()]
    data = {"systems": list(SYSTEMS), "pool": [waste_of_pool(r) for r in runs.values()],
            "allocated": [waste_of_allocated(r) for r in runs.values()], "spread": spread, "waste": waste}
    made = [*rows(runs, judged), *variance_rows(waste, [waste_of_allocated(found[PAGED]) for found in varied.values()],
                                                judged and lab.limit is None)]
    return Outcome(made, data, [_table(runs), _variance_table(varied, spread)], [
        f"{len(trace):,} ShareGPT requests, all waiting from the start; {CONFIG.usable_slots:,} slots; tolerance {TOLERANCE:g} "
        "points",
        "waste of the pool: all slots without a token while requests are refused, 100 % less the token states of Figure 2; waste "
        "of the allocated memory: of reservations or blocks in use only",
        f"variance: {PROMPT} prompt tokens, lognormal outputs with a mean of exactly {OUTPUT_MEAN}, cut where prompt and output "
        f"pass {LONGEST_TOKENS:,}; {PLACEMENT}, because a buddy allocator's rounding jumps with the length",
        "it is the longest request to come that grows with variance, and the reservation with it; where the reservation is fixed "
        "(last column), or lengths are cut at what it holds, more variance means a little less waste, not more"])


def rows(runs: dict[str, Run], judged: bool) -> list[Row]:
    """The pool's waste as in Figure 2, and the blog's bound."""
    found = [Row(f"{label}: waste of the pool", published, waste_of_pool(runs[label]), "%", TOLERANCE if judged else None)
             for label, published in PUBLISHED.items()]
    return [*found, Row("vLLM: waste of the allocated memory", None, waste_of_allocated(runs["vLLM"]), "%",
                        most=MOST_WASTE if judged else None, note=f"published: under {MOST_WASTE:g} %")]


def variance_rows(waste: dict[str, list[float]], paged: list[float], judged: bool) -> list[Row]:
    """The claim: reserving for the longest wastes more with every step of variance, paging stays where it is."""
    steps = [after - before for before, after in pairwise(waste[LONGEST])]
    return [Row("reserving for the longest: least rise of waste, one step of variance", None, min(steps), "points of the pool",
                least=0.0 if judged else None, note=f"from {waste[LONGEST][0]:.0f} % to {waste[LONGEST][-1]:.0f} %"),
            Row("blocks of 16: highest waste of the allocated memory, any variance", None, max(paged), "%",
                most=MOST_WASTE if judged else None)]


def outputs(mean: int, variation: float, most: int, n: int, rng: np.random.Generator) -> IntArray:
    """Lognormal lengths from 1 to ``most`` whose mean is ``mean`` exactly.

    Parameters
    ----------
    variation : float
        Standard deviation over mean of the lognormal before it is cut; 0: all alike.

    >>> outputs(10, 0.0, 50, 4, np.random.default_rng(0)).tolist()
    [10, 10, 10, 10]
    """
    sigma = math.sqrt(math.log1p(variation**2))
    shape = np.exp(sigma * rng.standard_normal(n))
    low, high = 0.0, float(most) / float(shape.min())
    for _ in range(100):                               # the scale whose cut lengths have the mean, from below
        middle = (low + high) / 2
        low, high = (middle, high) if _cut(shape * middle, most).sum() <= mean * n else (low, middle)
    return _cut(shape * low, most)                     # one more only where the last is rounded up: the sum is exact


def _cut(values: np.ndarray, most: int) -> IntArray:
    whole: IntArray = np.clip(np.rint(values), 1, most).astype(np.int64)
    return whole


def _varied(lab: Lab, variation: float) -> dict[str, Run]:
    """All ways on one set of outputs; and what a fixed reservation for everybody comes to."""
    n = min(VARIED_REQUESTS, lab.limit or VARIED_REQUESTS)
    output = outputs(OUTPUT_MEAN, variation, LONGEST_TOKENS - PROMPT, n, lab.rng())
    trace = Trace(f"outputs of variation {variation:g}", np.full(n, PROMPT, np.int64), output)
    config = replace(CONFIG, placement=PLACEMENT, max_model_len=PROMPT + int(output.max()))
    found = {way: lab.run(trace, config, name, f"variation {variation:g}, {name}") for way, name in WAYS.items()}
    fixed = replace(config, max_model_len=LONGEST_TOKENS)
    return {**found, "fixed": lab.run(trace, fixed, "contiguous-max", f"variation {variation:g}, fixed")}


def _spread(run: Run) -> float:
    """Standard deviation over mean of the lengths as they are."""
    output = run.demand.output
    return float(output.std() / output.mean())


def _table(runs: dict[str, Run]) -> Table:
    return Table("ShareGPT, two senses of waste", ["", "of the pool, %", "of the allocated, %", "running"], [
        [label, waste_of_pool(run), waste_of_allocated(run), mean_running(run)] for label, run in runs.items()])


def _variance_table(varied: dict[float, dict[str, Run]], spread: list[float]) -> Table:
    columns = ["variation", "longest request", *WAYS, f"{LONGEST_TOKENS:,} for everybody"]
    return Table("Waste of the pool, %, by the variation of output lengths at one mean; what is reserved", columns, [
        [f"{value:.2f}", found[PAGED].config.max_model_len, *(waste_of_pool(run) for run in found.values())]
        for value, found in zip(spread, varied.values(), strict=True)])


def _short(values: list[float]) -> list[float]:
    return [round(value, 1) for value in values]


def plot(outcome: Outcome, path: str) -> None:
    """Both senses of waste beside each other; and waste over variance."""
    data = outcome.data
    with canvas(path, TITLE, across=2) as (left, right):
        grouped(left, data["systems"], {"of the pool": _short(data["pool"]),
                                        "of the allocated memory": _short(data["allocated"])},
                "slots without a token (%)")
        left.axhspan(*BEFORE, color="#999999", alpha=0.2, linewidth=0, zorder=0)
        left.text(3.4, sum(BEFORE) / 2, f"{BEFORE[0]:g} to {BEFORE[1]:g} %: published,\nbefore paging", fontsize=8, ha="right",
                  va="center")
        left.set(ylim=(0, 100))
        left.legend(loc="upper right", ncols=2, frameon=False, fontsize=8)
        left.set_title("ShareGPT: before and after paging", fontsize=9)
        lines(right, data["spread"], data["waste"], "standard deviation / mean of the output lengths",
              "pool without a token (%)")
        right.legend(loc="upper left", title="room reserved", ncols=2, frameon=False, fontsize=8, title_fontsize=8)
        right.set(ylim=(0, 125), yticks=range(0, 101, 20))
        right.set_title(f"outputs of one mean ({OUTPUT_MEAN} tokens), more and more unlike", fontsize=9)
