"""Block size, 1 to 256 tokens: small ones waste nothing and read slowly, large ones read fast and waste. Why 16?

The pool is the same 12 GiB whatever the block size, and memory alone limits. A step takes the roofline's time, with one
assumption about small blocks: attention reads K and V in blocks and loses the time of COST_TOKENS tokens at each,

    time to read K and V  x  (1 + COST_TOKENS / block size)

COST_TOKENS = 4 makes blocks of 16 a quarter slower than contiguous K and V: the paper measured 20 to 26 % (section 7.1). That
all of it goes with the number of blocks is an assumption, not a measurement. The table of costs shows what hangs on it: at no
cost, small blocks would do best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.canvas import COLOURS, canvas, lines
from experiments.paper import fig13, setting
from experiments.paper.measures import (
    SideBySide,
    finished_per_s,
    mean_running,
    opt13b_roofline,
    waiting_part,
    waste_of_allocated,
    waste_of_pool,
)
from experiments.paper.outcome import Outcome, Row, Table
from experiments.paper.setting import Lab
from sim.step_time import RooflineStepTime
from workloads.request import Trace

TITLE = "Block size: waste and throughput, OPT-13B"
SOURCE = "Kwon et al., SOSP 2023, section 7.2; vLLM blog, 20 June 2023 (under 4 % wasted)"
PUBLISHED = {"ShareGPT": (16, 128), "Alpaca": (16, 32)}   # the sizes that did best, section 7.2
MOST_WASTE = 4.0                                       # per cent, the blog's bound
DEFAULT = 16
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COST_TOKENS, COSTS = 4.0, (0.0, 1.0, 2.0, 4.0, 8.0)
REQUESTS = {"ShareGPT": 4000, "Alpaca": 8000}
FLAT = 0.95                                            # of the best throughput counts as as good
PREFIXES = (80, 341)                                   # tokens of the paper's shared prompts, section 6.4
COLUMNS = ["block size", "waste of the allocated, %", "waste of the pool, %", "empty slots a request", "(B - 1) / 2",
           "running", "requests/s", "of the best, %", "preemptions"]


def step_time(block_size: int, cost_tokens: float = COST_TOKENS) -> RooflineStepTime:
    """The roofline, reading K and V in blocks.

    >>> step_time(16).kv_bytes_per_token / step_time(16, 0.0).kv_bytes_per_token
    1.25
    """
    whole = opt13b_roofline()
    return replace(whole, kv_bytes_per_token=round(whole.kv_bytes_per_token * (1 + cost_tokens / block_size)))


CONFIG = {size: setting.paper_config(step_time(size), saturate=True, block_size=size) for size in SIZES}


@dataclass(frozen=True)
class Point:
    """What one block size came to; ``per_s`` requests finished a second under each cost."""

    allocated: float
    pool: float
    empty: float
    running: float
    finished: float
    preemptions: int
    per_s: dict[str, float]


def run(lab: Lab) -> Outcome:
    """Both data sets through all sizes."""
    sharegpt, judged = waiting_part(lab, REQUESTS["ShareGPT"])
    traces = {"ShareGPT": sharegpt, "Alpaca": lab.part(fig13.alpaca(REQUESTS["Alpaca"], lab.rng()), None)}
    points = {name: {size: _point(lab, trace, size, name) for size in SIZES} for name, trace in traces.items()}
    data = {"sizes": list(SIZES), "waste": {name: [p.allocated for p in found.values()] for name, found in points.items()},
            "finished_per_s": {name: [p.finished for p in found.values()] for name, found in points.items()}}
    made = [_table(name, found) for name, found in points.items()]
    return Outcome(rows(points, judged), data, [*made, _costs(points["ShareGPT"]), _sharable()], [
        f"12 GiB whatever the block size: {CONFIG[16].usable_slots:,} slots in blocks of 16, {CONFIG[256].usable_slots:,} in "
        f"blocks of 256; {len(sharegpt):,} ShareGPT and {len(traces['Alpaca']):,} Alpaca requests, all waiting from the start",
        "waste of the allocated memory: slots of blocks in use that hold no token, what vLLM's 'under 4 %' means; waste of the "
        "pool counts free blocks besides, too few for the next request",
        f"assumption, not measured: reading K and V takes (1 + {COST_TOKENS:g} / block size) times as long: a quarter more at "
        "16, where the paper measured 20 to 26 % over a contiguous kernel",
        "Alpaca's lengths are fitted to their published means: no verdict. A full pool preempts; the tokens computed again "
        "favour large blocks, most of all where requests are short"])


def _point(lab: Lab, trace: Trace, size: int, name: str) -> Point:
    tally = SideBySide(CONFIG[size].step_time, {f"{cost:g}": step_time(size, cost) for cost in COSTS})
    run = lab.run(trace, replace(CONFIG[size], step_time=tally), "paged", f"{name}, blocks of {size}")
    empty = sum(run.window.parts[1:3]) / run.window.sequence_us
    return Point(waste_of_allocated(run), waste_of_pool(run), empty, mean_running(run), finished_per_s(run), run.preemptions,
                 {cost: 1e6 * len(trace) / total for cost, total in tally.total_us.items()})


def rows(points: dict[str, dict[int, Point]], judged: bool) -> list[Row]:
    """The blog's bound at 16, the best sizes, and how 16 does."""
    found = [Row(f"{name}: waste, blocks of {DEFAULT}", None, of[DEFAULT].allocated, "% of the allocated",
                 most=MOST_WASTE if judged and name == "ShareGPT" else None, note=f"published: under {MOST_WASTE:g} %")
             for name, of in points.items()]
    for name, of in points.items():
        speed = {size: p.finished for size, p in of.items()}
        best = max(speed, key=speed.__getitem__)
        flat = [size for size in SIZES if speed[size] >= FLAT * speed[best]]
        least, most = PUBLISHED[name] if judged and name == "ShareGPT" else (None, None)
        said = f"published: {PUBLISHED[name][0]} to {PUBLISHED[name][1]}"
        found += [Row(f"{name}: fastest block size", None, best, "tokens", least=least, most=most, note=said),
                  Row(f"{name}: smallest within {100 * (1 - FLAT):.0f} % of it", None, flat[0], "tokens", note="default: 16"),
                  Row(f"{name}: throughput, blocks of {DEFAULT}", None, 100 * speed[DEFAULT] / speed[best], "% of the best",
                      least=100 * FLAT if least is not None else None, note="the bound is ours")]
    return found


def _table(name: str, points: dict[int, Point]) -> Table:
    best = max(p.finished for p in points.values())
    return Table(f"{name}, by block size", COLUMNS, [
        [str(size), p.allocated, p.pool, p.empty, (size - 1) / 2, p.running, p.finished, 100 * p.finished / best, p.preemptions]
        for size, p in points.items()])


def _costs(points: dict[int, Point]) -> Table:
    """Other assumptions about small blocks, for the same schedules."""
    made: list[list[str | float | int | None]] = []
    for cost in points[DEFAULT].per_s:
        speed = [p.per_s[cost] for p in points.values()]
        made.append([cost, *(100 * value / max(speed) for value in speed)])
    return Table("ShareGPT, throughput as % of the best size, by what a block is assumed to cost",
                 ["tokens", *map(str, SIZES)], made)


def _sharable() -> Table:
    """Only full blocks are shared: why not larger ones."""
    return Table("Share of a common prefix that lies in full blocks, %", ["prefix", *map(str, SIZES)], [
        [f"{tokens} tokens", *(100 * (tokens // size * size) / tokens for size in SIZES)] for tokens in PREFIXES])


def plot(outcome: Outcome, path: str) -> None:
    """Waste and throughput over block size."""
    sizes = outcome.data["sizes"]
    speed = {name: [100 * v / max(values) for v in values] for name, values in outcome.data["finished_per_s"].items()}
    with canvas(path, TITLE, across=2) as (left, right):
        lines(left, sizes, outcome.data["waste"], "block size (tokens)", "allocated memory without a token (%)")
        left.axhline(MOST_WASTE, color="#767676", linewidth=0.8, linestyle="--")
        left.text(1, MOST_WASTE + 1, "vLLM's claim: under 4 %", fontsize=8, color="#767676")
        left.set_title("waste: small blocks waste least", fontsize=9)
        lines(right, sizes, speed, "block size (tokens)", "requests/s (% of the best size)")
        for i, (name, (least, most)) in enumerate(PUBLISHED.items()):
            right.plot([least, most], [6 + 6 * i] * 2, color=COLOURS[i], linewidth=4, solid_capstyle="butt")
            right.text(least / 1.15, 6 + 6 * i, f"best as published, {name}", fontsize=7, color=COLOURS[i], va="center",
                       ha="right")
        right.set(ylim=(0, 105))
        right.set_title(f"speed: reading a block costs {COST_TOKENS:g} tokens more (assumed)", fontsize=9)
        for one in (left, right):
            one.set_xscale("log", base=2)
            one.set_xticks(sizes, [str(size) for size in sizes])
            one.axvline(DEFAULT, color="#767676", linewidth=0.8, linestyle=":")
