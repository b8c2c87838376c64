"""Figure 2: where the KV memory goes under Orca's three reservations and under vLLM.

Requests wait at any time, so memory alone decides how many run: all arrive at once in random order, and the averages cover the
time in which somebody is refused. Whatever is neither token, reservation nor internal fragmentation is "external and others".
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.canvas import canvas, legend_below, stacked
from experiments.paper import setting
from experiments.paper.outcome import Outcome, Row, Table, mean_absolute_difference
from experiments.paper.setting import SYSTEMS, Lab, PrefillStepTime
from sim.config import SimConfig
from sim.step_time import ConstantStepTime
from workloads import transform
from workloads.request import Trace

TITLE = "Where the KV memory goes: Orca's three reservations and vLLM (Figure 2)"
SOURCE = "Kwon et al., SOSP 2023, Figure 2"
PUBLISHED: dict[str, tuple[float | None, ...]] = {     # the four columns
    "Orca (Max)": (20.4, 13.3, 57.3, 8.9), "Orca (Pow2)": (26.8, 17.9, 13.6, 41.6),
    "Orca (Oracle)": (38.2, 25.2, None, 36.6), "vLLM": (96.3, None, None, None),
}
COLUMNS = ("token states", "reservation", "internal fragmentation", "external fragmentation & others")
MEAN_TOLERANCE, MAX_TOLERANCE, ANY_TOLERANCE = 1.0, 0.8, 3.0
CONFIG = setting.paper_config(ConstantStepTime(20_000), saturate=True)
VARIANT_REQUESTS = 12_000
SAMPLES, SAMPLE_REQUESTS = 12, 2_400                   # what Orca (Pow2) serves in an hour: 9.8 at once, 338 steps of 45 ms
BARELY_RATE = 0.62                                     # requests/s that Orca (Pow2) can only just serve
UNUSED = "pool: the rest left unused"
BY_THE_WAY = ("Orca (Pow2)", "Orca (Oracle)")          # the two with differences around one point and above


def run(lab: Lab) -> Outcome:
    """All four systems on the whole trace; then what moves the two that fragment externally."""
    trace = lab.part(lab.sharegpt(), None)
    waiting = transform.all_at_once(trace)
    ours = {label: columns(setting.shares(lab.run(waiting, CONFIG, name, label))) for label, name in SYSTEMS.items()}
    return Outcome(rows(ours, lab.is_whole(trace)), {"ours": ours}, [_variants(lab, trace), _samples(lab)], [
        f"{len(trace):,} requests, all waiting from the start, in random order; {CONFIG.usable_slots:,} slots",
        "Orca's reservations sit in a buddy allocator; what it rounds up, its refused holes and the rest of the pool that is too "
        "small for the next request are 'external and others'",
        "Orca (Oracle), reservation: prompts are computed in one step here, so a request spends its whole life growing. Where "
        "computing a prompt takes as long as 20 decode steps, reservation and others come out as published",
        "Orca (Pow2), token states and others: the published numbers lie between a pool that is never without refused requests "
        f"(here) and either arrivals at {BARELY_RATE:g} requests/s, which it can only just serve, or a pool used only as far as "
        f"whole reservations of {CONFIG.max_model_len:,} reach; samples of {SAMPLE_REQUESTS:,} requests, an hour's, move by some "
        "two points besides (last table)"])


def columns(parts: dict[str, float]) -> list[float]:
    """The paper's four columns from the seven parts; per cent of the pool."""
    others = sum(parts[name] for name in ("external", "remainder", "idle", "cached"))
    return [parts["token_states"], parts["reserved"], parts["internal"], others]


def rows(ours: dict[str, list[float]], whole: bool) -> list[Row]:
    """The twelve published numbers and the mean of their differences; a part of the trace gets no verdict."""
    found = []
    for label, published in PUBLISHED.items():
        tolerance = MAX_TOLERANCE if label == "Orca (Max)" else ANY_TOLERANCE
        found += [Row(f"{label}: {name}", value, mine, "% of pool", tolerance if whole else None)
                  for name, value, mine in zip(COLUMNS, published, ours[label], strict=True) if value is not None]
    mean = mean_absolute_difference(found)
    return [*found, Row("mean absolute difference", None, mean, "points", most=MEAN_TOLERANCE if whole else None)]


def variants(lab: Lab, trace: Trace) -> dict[str, tuple[Trace, SimConfig]]:
    """Arrivals, pool shape, admission order, placement and prefill time, one changed at a time."""
    real_time = replace(CONFIG, saturate=False, step_time=ConstantStepTime(45_000))
    whole_reservations = CONFIG.usable_slots // CONFIG.max_model_len * CONFIG.max_model_len
    part = lab.part(trace, VARIANT_REQUESTS)
    waiting = transform.all_at_once(part)
    timed = transform.with_poisson_arrivals(part, 2.0, lab.rng())
    in_file_order = transform.all_at_once(lab.part(lab.in_file_order(), VARIANT_REQUESTS))
    return {
        "nothing (a part of the trace)": (waiting, CONFIG),
        "arrivals: 2 requests/s, 45 ms a step": (timed, real_time),
        f"arrivals: {BARELY_RATE:g} requests/s, 45 ms a step": (
            transform.with_poisson_arrivals(part, BARELY_RATE, lab.rng()), real_time),
        "pool: 16,384 slots, a power of two": (waiting, replace(CONFIG, num_blocks=1025)),
        "pool: 12,288 slots": (waiting, replace(CONFIG, num_blocks=769)),
        f"{UNUSED}: {whole_reservations:,} slots used": (
            waiting, replace(CONFIG, num_blocks=whole_reservations // CONFIG.block_size + 1)),
        "admission: in the order of the file": (in_file_order, CONFIG),
        "placement: first fit, no buddies": (waiting, replace(CONFIG, placement="first-fit")),
        "prefill: as long as 5 decode steps": (waiting, replace(CONFIG, step_time=PrefillStepTime(20_000, 80_000))),
        "prefill: as long as 20 decode steps": (waiting, replace(CONFIG, step_time=PrefillStepTime(20_000, 380_000))),
    }


def of_the_whole(parts: list[float], used: float) -> list[float]:
    """Shares of a pool as shares of one of which only ``used`` is used; the rest is others'.

    >>> of_the_whole([50.0, 20.0, 10.0, 20.0], 0.5)
    [25.0, 10.0, 5.0, 60.0]
    """
    scaled = [used * part for part in parts[:3]]
    return [*scaled, 100 - sum(scaled)]


def _variants(lab: Lab, trace: Trace) -> Table:
    made: list[list[str | float | int | None]] = []
    for label in BY_THE_WAY:
        made.append([f"{label}, published", *PUBLISHED[label]])
        for changed, (requests, config) in variants(lab, trace).items():
            run = lab.run(requests, config, SYSTEMS[label], f"{label} {changed}"[:34])
            used = config.usable_slots / CONFIG.usable_slots if changed.startswith(UNUSED) else 1.0
            made.append([f"{label}, {changed}", *of_the_whole(columns(setting.shares(run)), used)])
    return Table("What moves the shares, % of pool: one thing changed at a time", ["changed", *COLUMNS], made)


def _samples(lab: Lab) -> Table:
    """The spread between samples of the requests that an hour serves."""
    trace, made = lab.in_file_order(), []
    for label in BY_THE_WAY:
        found = []
        for sample in range(SAMPLES):
            part = lab.part(transform.shuffle(trace, np.random.default_rng((lab.seed, sample))), SAMPLE_REQUESTS)
            run = lab.run(transform.all_at_once(part), CONFIG, SYSTEMS[label], f"{label}, sample {sample + 1}")
            found.append(columns(setting.shares(run)))
        made += [[f"{label}, {name} of {SAMPLES}", *map(float, pick(np.array(found), axis=0))]
                 for name, pick in (("least", np.min), ("mean", np.mean), ("most", np.max))]
    return Table(f"Samples of {SAMPLE_REQUESTS:,} requests, % of pool", ["sample", *COLUMNS], made)


def plot(outcome: Outcome, path: str) -> None:
    """Stacked bars in the paper's form: published beside ours."""
    with canvas(path, TITLE, across=2) as (left, right):
        stacked(left, PUBLISHED, COLUMNS, "KV cache usage (%)")
        stacked(right, outcome.data["ours"], COLUMNS, "")
        left.set_title("published", fontsize=9)
        right.set_title("pagedsim", fontsize=9)
        legend_below(right, 4)
