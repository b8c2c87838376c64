"""The ways to share 12 GiB out, in the order in which they came: how many requests run, what they use, how fast they go.

    static batching      a batch is admitted together and ends together: FasterTransformer, Hugging Face
    contiguous           continuous batching, a reservation for each request: Orca's three
    guaranteed no evict  continuous batching, prompt and largest output reserved in blocks: TensorRT-LLM
    paged                continuous batching, blocks as they are needed: vLLM
    paged, shared        the same, and a common prefix is kept once

Every way gets the same bytes, the same requests and the same step-time model, so what differs is what memory and batching do.
Measured gains hold more than that (kernels, launch overheads, other models): those of others are quoted, not aimed at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from experiments.canvas import canvas, grouped
from experiments.paper import blocksize, setting
from experiments.paper.measures import SideBySide, finished_per_s, mean_running, opt13b_roofline, waiting_part, waste_of_pool
from experiments.paper.outcome import Outcome, Row, Table
from experiments.paper.setting import Lab
from sim.config import SimConfig
from sim.scheduler_config import SchedulerConfig
from workloads import transform
from workloads.request import ContentIds, Trace

TITLE = "Static, contiguous, reserved, paged and shared: the same 12 GiB"
SOURCE = "Kwon et al., SOSP 2023, abstract and section 6.2; vLLM blog, 20 June 2023"
STATIC, MAX, POW2, ORACLE = "static batching", "contiguous, maximum", "contiguous, power of two", "contiguous, oracle"
RESERVE, PAGED, SHARED = "guaranteed no evict", "paged", "paged, shared"
WAYS = {STATIC: "contiguous-max", MAX: "contiguous-max", POW2: "contiguous-pow2", ORACLE: "contiguous-oracle",
        RESERVE: "paged-reserve", PAGED: "paged", SHARED: "paged-prefix"}
PUBLISHED = {MAX: (2.7, 8.0), ORACLE: (1.7, 2.7), POW2: (2.0, 4.0)}   # vLLM's rate over theirs; the last: the abstract's
QUOTED = {"Hugging Face": (24.0, STATIC), "FasterTransformer": (22.0, STATIC), "TGI": (3.5, MAX)}   # "up to", and what it is like
MAX_TOKENS, OTHER_LIMITS = 1024, (512, 2048)           # what clients of the no-evict server ask for, or their output if longer
SYSTEM_TOKENS, SPAN = 512, 16
REQUESTS = 4000
PLAIN, PROMPTED = "ShareGPT", f"ShareGPT behind {SYSTEM_TOKENS} common tokens"


def configuration(way: str) -> SimConfig:
    """The paper's pool under one way; where blocks are read, the paper's kernel cost is tallied beside."""
    batching = "static" if way == STATIC else "continuous"
    scheduler = SchedulerConfig(max_num_seqs=None, max_num_batched_tokens=None, batching=batching)
    return setting.paper_config(opt13b_roofline(), saturate=True, scheduler=scheduler)


CONFIG = {way: configuration(way) for way in WAYS}


@dataclass(frozen=True)
class Point:
    """What one way came to.

    ``running`` counts requests that hold memory, ``computing`` the output tokens of a step: less where some have ended and wait
    for their batch. ``slowed`` is the rate if blocks are read as slowly as the paper measured.
    """

    running: float
    computing: float
    useful: float
    per_s: float
    slowed: float | None
    preemptions: int


def run(lab: Lab) -> Outcome:
    """Every way on the lengths as they are; then behind a common prompt, where the last can share."""
    trace, judged = waiting_part(lab, REQUESTS)
    traffic = {PLAIN: (trace, [way for way in WAYS if way != SHARED]), PROMPTED: (behind_common_prompt(trace), list(WAYS))}
    points = {name: {way: _point(lab, requests, way) for way in ways} for name, (requests, ways) in traffic.items()}
    data = {name: {"running": [p.running for p in found.values()], "per_s": [p.per_s for p in found.values()]}
            for name, found in points.items()}
    tables = [_table(name, found) for name, found in points.items()]
    return Outcome(rows(points[PLAIN], judged), data, [*tables, _limits(lab, trace, points[PLAIN][RESERVE])], [
        f"{len(trace):,} ShareGPT requests, all waiting from the start, {CONFIG[PAGED].usable_slots:,} slots of OPT-13B; "
        "requests/s are those that finish while others wait",
        f"step time of all: {opt13b_roofline().describe()}; last column: blocks read a quarter more slowly, as the paper "
        "measured (20 to 26 %). The published gains hold that cost, the judged rows here do not",
        "running: requests that hold memory; computing: output tokens a step, fewer in a static batch, where those that ended "
        "wait for the others",
        f"guaranteed no evict: clients ask for at most {MAX_TOKENS:,} tokens, an assumption; the trace has no limits",
        f"common prompt: {SYSTEM_TOKENS} tokens before every request, those over {setting.MAX_TOTAL_TOKENS:,} left out: "
        f"{len(traffic[PROMPTED][0]):,} requests",
        "24, 22 and 3.5 times are others' measurements on their machines, not targets: they hold kernels and software besides "
        "memory. Beside them stands what batching and memory alone come to here; TGI's router added requests to a running batch, "
        "so it is put beside contiguous reservations"])


def behind_common_prompt(trace: Trace) -> Trace:
    """The same requests, each behind the same tokens; what is over the limit then is left out."""
    longer = replace(trace, prompt_tokens=trace.prompt_tokens + SYSTEM_TOKENS)
    longer = transform.drop_longer_than(longer, setting.MAX_TOTAL_TOKENS)
    common, own = SYSTEM_TOKENS // SPAN, -(-(longer.prompt_tokens - SYSTEM_TOKENS) // SPAN)
    starts = np.concatenate(([0], np.cumsum(common + own))).astype(np.int64)
    ids = np.arange(starts[-1])                        # its place is an id that no other has; then the common ones
    ids[(starts[:-1, None] + np.arange(common)).ravel()] = np.tile(np.arange(common), len(longer))
    return replace(longer, content=ContentIds(ids, starts, SPAN))


def _point(lab: Lab, trace: Trace, way: str, limit: int = MAX_TOKENS) -> Point:
    in_blocks = way in (RESERVE, PAGED, SHARED)
    tally = SideBySide(CONFIG[way].step_time, {"slowed": blocksize.step_time(setting.BLOCK_SIZE)} if in_blocks else {})
    asked = replace(trace, max_tokens=np.maximum(trace.output_tokens, limit)) if way == RESERVE else trace
    run = lab.run(asked, replace(CONFIG[way], step_time=tally), WAYS[way], way)
    slowed = 1e6 * len(trace) / tally.total_us["slowed"] if tally.others else None
    computing = int(run.demand.output.sum()) / run.steps
    return Point(mean_running(run), computing, 100 - waste_of_pool(run), finished_per_s(run), slowed, run.preemptions)


def rows(points: dict[str, Point], judged: bool) -> list[Row]:
    """Paged over the others in requests a second; bounds as published."""
    paged = points[PAGED].per_s
    found = [Row(f"paged over {way}", None, paged / points[way].per_s, "x", least=least if judged else None,
                 most=most if judged else None, note=f"published: {least:g} to {most:g}")
             for way, (least, most) in PUBLISHED.items()]
    quoted = [Row(f"over {name}; ours: over {way}", times, paged / points[way].per_s, "x", note="measured by others, no target")
              for name, (times, way) in QUOTED.items()]
    slowed = points[PAGED].slowed
    return [*found, Row(f"paged over {ORACLE}, blocks read slower", None, slowed and slowed / points[ORACLE].per_s, "x",
                        note="kernel cost as published; no verdict"), *quoted]


def _table(name: str, points: dict[str, Point]) -> Table:
    columns = ["", "running", "computing", "useful, % of pool", "requests/s", "over static", "over contiguous",
               "preemptions", "blocks slower"]
    return Table(name, columns, [
        [way, p.running, p.computing, p.useful, p.per_s, p.per_s / points[STATIC].per_s, p.per_s / points[MAX].per_s,
         p.preemptions, p.slowed]
        for way, p in points.items()])


def _limits(lab: Lab, trace: Trace, assumed: Point) -> Table:
    """What hangs on the assumption about clients."""
    points = {MAX_TOKENS: assumed, **{limit: _point(lab, trace, RESERVE, limit) for limit in OTHER_LIMITS}}
    return Table(f"{RESERVE}, by what clients ask for", ["max_tokens", "running", "useful, % of pool", "requests/s"], [
        [f"{limit:,}", points[limit].running, points[limit].useful, points[limit].per_s] for limit in sorted(points)])


def plot(outcome: Outcome, path: str) -> None:
    """Running requests, and requests a second, by way; without and with a common prompt."""
    names = [way.replace(", ", ",\n").replace("static ", "static\n").replace("guaranteed ", "guaranteed\n") for way in WAYS]

    def both(measure: str, places: int) -> dict[str, list[float | None]]:
        made: dict[str, list[float | None]] = {}
        for traffic, found in outcome.data.items():
            rounded = [round(value, places) for value in found[measure]]
            made[traffic] = [*rounded, *[None] * (len(WAYS) - len(rounded))]
        return made

    with canvas(path, TITLE, across=2, width=6.4) as (left, right):
        grouped(left, names, both("running", 1), "requests running at once (mean)")
        grouped(right, names, both("per_s", 2), "requests/s")
        right.get_legend().remove()
        for one in (left, right):
            one.tick_params(axis="x", labelsize=7)
