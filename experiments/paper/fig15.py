"""Figure 15: memory saved by sharing, in parallel sampling and in beam search.

    saved = 1 - slots of referenced blocks / slots of all block tables, both integrated over time

What a request saves does not depend on the others as long as nobody waits or is preempted and every step takes the same time.
So all requests start at once, in a pool that holds them all: the numbers are those of any rate of arrivals without a queue.

Samples share their prompt. What beams share besides depends on which of them survive, and that on the model: here a survivor
draws a new parent with one stated probability a token (`SchedulerConfig.beam_turnover`), fitted once on what two beams save.
Savings grow with the beams, so the ends of a published range over 2, 4 and 6 are taken for those of 2 and of 6.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from experiments.canvas import canvas, grouped
from experiments.paper import fig13, setting
from experiments.paper.outcome import Outcome, Row, Table
from experiments.paper.setting import Lab
from sim.config import SimConfig
from sim.step_time import ConstantStepTime
from workloads import transform
from workloads.request import Trace

TITLE = "Memory saved by sharing between samples and between beams (Figure 15)"
SOURCE = "Kwon et al., SOSP 2023, Figure 15 and its text; vLLM blog 2023-06-20"
SIZES = (2, 4, 6)
SAMPLES, BEAMS = "parallel sampling", "beam search"
COLUMN = {SAMPLES: "samples", BEAMS: "beam_width"}
PUBLISHED: dict[str, dict[str, tuple[float | None, ...]]] = {      # % saved with 2, 4 and 6; of ShareGPT the range only
    "ShareGPT": {SAMPLES: (16.2, None, 30.5), BEAMS: (44.3, None, 66.3)},
    "Alpaca": {SAMPLES: (6.09, 8.53, 9.79), BEAMS: (37.56, 53.13, 55.16)},
}
BLOG_UP_TO = 55.0                                      # %
TURNOVER = {"ShareGPT": 0.02545, "Alpaca": 0.1587}     # what fit() finds for two beams and seed 0, on MOST[BEAMS] requests
MOST = {SAMPLES: 10_000, BEAMS: 600}                   # requests; beams are followed token by token
VARIANT_REQUESTS = 100
UPPER_TURNOVER = 0.01827                               # what fit() finds for six, on VARIANT_REQUESTS of ShareGPT
CONFIG = setting.paper_config(ConstantStepTime(20_000))


def run(lab: Lab) -> Outcome:
    """Samples and beams of both data sets; then other rules for survivors."""
    traces = {"ShareGPT": lab.sharegpt(MOST[SAMPLES]), "Alpaca": lab.part(fig13.alpaca(MOST[BEAMS], lab.rng()), None)}
    ours = {dataset: {kind: [saving(lab, trace, kind, size, TURNOVER[dataset]) for size in SIZES] for kind in COLUMN}
            for dataset, trace in traces.items()}
    whole = lab.is_paper()
    return Outcome(rows(ours, whole), {"ours": ours}, [_rules(lab, traces["ShareGPT"])], [
        f"ShareGPT: {len(traces['ShareGPT']):,} requests in parallel sampling, the first of them, at most {MOST[BEAMS]:,}, in "
        f"beam search; blocks of {CONFIG.block_size}; nobody waits, nobody is preempted; of ShareGPT a range is published, whose "
        "ends are taken for those of 2 and of 6",
        f"beams: a survivor draws a new parent with probability {TURNOVER['ShareGPT']:g} a token (Alpaca: "
        f"{TURNOVER['Alpaca']:g}), fitted on what 2 beams save; what 4 and 6 save is predicted and gets no verdict",
        "no one probability meets both ends of the published range: fitted on 2 beams, 6 save more than published, and fitted on "
        "6, 2 save less. Of many beams the published system keeps more apart than this rule",
        f"Alpaca's lengths are not published: lognormal ones with the published means, no verdict. The blog's 'up to "
        f"{BLOG_UP_TO:g} %' is Alpaca with 6 beams; longer prompts save more"])


def rows(ours: dict[str, dict[str, list[float]]], whole: bool) -> list[Row]:
    """All savings beside the published ones; only parallel sampling on ShareGPT is judged, by the published range."""
    made = []
    for dataset, kinds in PUBLISHED.items():
        for kind, published in kinds.items():
            known = [value for value in published if value is not None]
            least, most = min(known), max(known)
            judged = whole and (dataset, kind) == ("ShareGPT", SAMPLES)
            for size, value, mine in zip(SIZES, published, ours[dataset][kind], strict=True):
                made.append(Row(f"{dataset}, {kind}, {size}", value, mine, "% saved", least=least if judged else None,
                                most=most if judged else None, note=_note(kind, size, (least, most), mine)))
    best = ours["Alpaca"][BEAMS][-1]
    return [*made, Row("the blog's 'up to': Alpaca, 6 beams", BLOG_UP_TO, best, "% saved", note="a prediction")]


def _note(kind: str, size: int, bounds: tuple[float, float], mine: float) -> str:
    if kind == SAMPLES:
        return ""
    if size == SIZES[0]:
        return "fitted on this number, with seed 0"
    away = max(bounds[0] - mine, mine - bounds[1], 0.0)
    where = f"{away:.1f} points outside" if away else "inside"
    return f"predicted; {where} the published range, {bounds[0]:g} to {bounds[1]:g}"


# ---------------------------------------------------------------------- one number
def saving(lab: Lab, trace: Trace, kind: str, size: int, turnover: float = 1.0) -> float:
    """Per cent of the slots that a block table of its own for every sequence would take.

    Raises
    ------
    ValueError
        If somebody waited or was preempted: then the number would be one of that queue.
    """
    several = with_sequences(transform.limit(trace, MOST[kind]), kind, size)
    run = lab.run(several, config(several, turnover, lab.seed), "paged", f"{size} {kind}")
    if run.preemptions or np.any(run.log.admitted_us != run.arrival_us):
        raise ValueError("requests waited or were preempted: the pool does not hold them all")
    return 100 * (1 - run.window.physical / run.window.logical)


def with_sequences(trace: Trace, kind: str, size: int) -> Trace:
    """So many samples, or beams, of every request; all arrive at once."""
    counts = np.full(len(trace), size)
    several = replace(trace, samples=counts) if kind == SAMPLES else replace(trace, beam_width=counts)
    return transform.all_at_once(several)


def config(trace: Trace, turnover: float, seed: int) -> SimConfig:
    """A pool that holds every sequence by itself, and the rule for survivors."""
    assert trace.sequences is not None
    blocks = int((-(-(trace.prompt_tokens + trace.output_tokens) // CONFIG.block_size) * trace.sequences).sum())
    return replace(CONFIG, num_blocks=blocks + 1, scheduler=replace(CONFIG.scheduler, beam_turnover=turnover, beam_seed=seed))


def fit(lab: Lab, trace: Trace, target: float, size: int = 2, halvings: int = 12) -> float:
    """The turnover at which beams save ``target`` per cent, by halving an interval of its logarithm.

    Raises
    ------
    ValueError
        If no turnover saves as little, or as much.
    """
    low, high = 1e-4, 1.0
    ends = [saving(lab, trace, BEAMS, size, turnover) for turnover in (low, high)]
    if not ends[0] <= target <= ends[1]:
        raise ValueError(f"{size} beams save from {ends[0]:.1f} to {ends[1]:.1f} %, whatever the turnover; not {target:g} %")
    for _ in range(halvings):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if saving(lab, trace, BEAMS, size, middle) < target else (low, middle)
    return math.sqrt(low * high)


def _rules(lab: Lab, trace: Trace) -> Table:
    """Other ways to spend one parameter."""
    part, fitted = transform.limit(trace, VARIANT_REQUESTS), TURNOVER["ShareGPT"]
    rules = {
        "the same probability for each survivor, fitted on 6 beams": (UPPER_TURNOVER,) * 3,
        "as many draws a step however many beams, fitted on 2": tuple(fitted * SIZES[0] / size for size in SIZES),
        "every survivor draws after every token": (1.0,) * 3,
    }
    made: list[list[str | float | int | None]] = [["published", *PUBLISHED["ShareGPT"][BEAMS]]]
    for name, turnovers in rules.items():
        made.append([name, *(saving(lab, part, BEAMS, size, turnover) for size, turnover in zip(SIZES, turnovers, strict=True))])
    return Table(f"Rules for survivors: % saved by beams, first {len(part)} requests of ShareGPT",
                 ["rule", *(f"{size} beams" for size in SIZES)], made)


def plot(outcome: Outcome, path: str) -> None:
    """Bars in the paper's form, published beside ours; of a published range its ends are drawn."""
    with canvas(path, TITLE, across=2) as axes:
        for one, (dataset, kinds) in zip(axes, PUBLISHED.items(), strict=True):
            mine = outcome.data["ours"][dataset]
            names = [f"{size} samples" for size in SIZES]
            names += [f"{size} beams\n{'fitted' if size == SIZES[0] else 'predicted'}" for size in SIZES]
            grouped(one, names, {"published": [v for kind in kinds for v in kinds[kind]],
                                 "pagedsim": [round(v, 1) for kind in kinds for v in mine[kind]]}, "memory saved (%)")
            one.axvline(2.5, color="#999999", linewidth=0.6)
            one.tick_params(axis="x", labelsize=7)
            one.set_ylim(0, 80)
            one.set_title(f"{dataset}: samples share the prompt, beams more", fontsize=9)
            one.legend(frameon=False, fontsize=8, loc="upper left")
        axes[1].plot([-0.5, 2.5], [BLOG_UP_TO] * 2, color="#999999", linewidth=0.8, linestyle="--")   # bars stand right of it
        axes[1].text(-0.45, BLOG_UP_TO + 1, f"the blog's 'up to {BLOG_UP_TO:g} %'", fontsize=8)
