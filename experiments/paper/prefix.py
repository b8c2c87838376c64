"""The paper's shared prefix: LLaMA-13B translates, every prompt begins with the same one or five examples.

Published are the prefixes, 80 and 341 tokens, and the gains in throughput over Orca (Oracle), but not the lengths of sentences.
From the two prefixes an example is (341 - 80) / 4 = 65 tokens, labels included; a request is one more: 30 tokens of its own and
35 generated on average, lognormal. Requests wait at any time; throughput is counted over the time in which somebody is refused.

    Orca (Oracle)          [ prefix | own | output ] [ prefix | own | output ] ...     each keeps, and computes, its own prefix
    vLLM, shared prefix    [ prefix ] [ own | output ] [ own | output ] ...            kept once, computed once
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from experiments.canvas import canvas, grouped
from experiments.paper import setting
from experiments.paper.fig13 import lognormal
from experiments.paper.outcome import Outcome, Row, Table
from experiments.paper.setting import Lab
from sim.config import SimConfig
from sim.models.model_config import load_model
from sim.run import Run
from sim.sizing.hardware import find_gpu
from sim.sizing.weights import weight_bytes
from sim.step_time import RooflineStepTime, StepLoad, StepTime, roofline
from workloads import transform
from workloads.request import Trace
from workloads.synthetic import behind_one_prompt

TITLE = "Throughput with a shared prefix, LLaMA-13B, translation"
SOURCE = "Kwon et al., SOSP 2023, section 6.4 (gains only; the lengths of sentences are not published)"
PREFIX_TOKENS = {"1-shot": 80, "5-shot": 341}
PUBLISHED = {"1-shot": 1.67, "5-shot": 3.58}           # times the throughput of Orca (Oracle)
OWN_MEAN, OUTPUT_MEAN, SIGMA = 30, 35, 0.5             # tokens
REQUESTS, VARIANT_REQUESTS = 12_000, 6000              # many: those still running when the window ends are not counted
ORACLE, PAGED, SHARED = "Orca (Oracle)", "vLLM, no sharing", "vLLM, shared prefix"
BOTH = (ORACLE, SHARED)
ALLOCATOR = {ORACLE: "contiguous-oracle", PAGED: "paged", SHARED: "paged-prefix"}
ROUGHLY = 2.0                                          # within this factor either way
MODEL, GPU = load_model("LLaMA-13B"), find_gpu("A100-40GB")
STEP = roofline(MODEL, GPU, weight_bytes(MODEL), MODEL.kv_bytes_per_token())
CONFIG = replace(setting.paper_config(STEP, saturate=True), placement="buddy")
KERNEL_SLOWDOWN = 1.25                                 # published: 20 to 26 % slower than contiguous attention
SEQUENCE_US, FAST_PROMPTS = 100, 0.8                   # assumed in some rows of the table


@dataclass(frozen=True)
class WithSequenceCost:
    """A step takes ``us`` more for each sequence in it: scheduling, sampling, turning tokens into text."""

    step: StepTime
    us: int

    def duration_us(self, load: StepLoad) -> Any:
        return self.step.duration_us(load) + self.us * load.sequences

    def describe(self) -> str:
        """One line for people, with units."""
        return f"{self.step.describe()}, and {self.us / 1000:g} ms a sequence"


def workload(lab: Lab, shots: str, most: int, longer: float = 1.0) -> Trace:
    """Sentences behind that many examples."""
    rng = lab.rng()
    own, output = (lognormal(mean * longer, SIGMA, most, rng) for mean in (OWN_MEAN, OUTPUT_MEAN))
    return lab.part(transform.all_at_once(behind_one_prompt(own, output, PREFIX_TOKENS[shots])), None)


def run(lab: Lab) -> Outcome:
    """Three systems under both prefixes; then what the gains hang on."""
    runs = {shots: {system: lab.run(workload(lab, shots, REQUESTS), CONFIG, name, f"{shots} {system}")
                    for system, name in ALLOCATOR.items()} for shots in PREFIX_TOKENS}
    rates = {shots: {system: requests_per_s(run) for system, run in of.items()} for shots, of in runs.items()}
    ratios = {shots: of[SHARED] / of[ORACLE] for shots, of in rates.items()}
    judged = lab.limit is None
    return Outcome(rows(ratios, judged), {"rates": rates, "ratios": ratios}, [_anatomy(runs, rates), _variants(lab)], [
        f"lengths are ours: {OWN_MEAN} tokens of its own and {OUTPUT_MEAN} generated on average (lognormal, sigma {SIGMA:g}), "
        f"since an example takes (341 - 80) / 4 = 65 tokens; {min(lab.limit or REQUESTS, REQUESTS):,} requests; so "
        f"only direction, order and rough size (within a factor of {ROUGHLY:g}) are judged",
        f"{CONFIG.usable_slots:,} slots as for OPT-13B, whose token is as large; blocks of {CONFIG.block_size}: 80 and 336 "
        f"tokens can be shared; {STEP.describe()}",
        "gains are larger than published because here memory alone limits the batch: hundreds of short requests run at once when "
        "the prefix is kept once. Costs that grow with the batch, or a limit on it, bring the gains down to about the published "
        "ones (second table); which of them held there is not known"])


def rows(ratios: dict[str, float], judged: bool) -> list[Row]:
    """Rough size and direction of each gain, and their order."""
    made = [Row(f"{shots}, {PREFIX_TOKENS[shots]} tokens shared: gain over {ORACLE}", published, ratios[shots], "x",
                least=max(1.0, published / ROUGHLY) if judged else None, most=published * ROUGHLY if judged else None,
                note="direction and rough size") for shots, published in PUBLISHED.items()]
    one, five = PUBLISHED
    return [*made, Row("gain of 5-shot over that of 1-shot", PUBLISHED[five] / PUBLISHED[one], ratios[five] / ratios[one], "x",
                       least=1.0 if judged else None, note="order: more shared, more gained")]


def requests_per_s(run: Run) -> float:
    """Requests that ended in the window, over its length."""
    start, end = run.window_us
    ended = (run.log.finished_us > start) & (run.log.finished_us <= end)
    return float(ended.sum() / ((end - start) / 1e6))


# ---------------------------------------------------------------------- why
def _anatomy(runs: dict[str, dict[str, Run]], rates: dict[str, dict[str, float]]) -> Table:
    made: list[list[str | float | int | None]] = []
    for shots, of in runs.items():
        for system, run in of.items():
            computed = float((run.demand.prompt - run.log.hit_tokens).mean())
            made.append([f"{shots}, {system}", rates[shots][system], run.window.sequence_us / run.window.time_us,
                         run.ledger.total.time_us / run.steps / 1000, computed])
    return Table("Where the gain comes from", ["", "requests/s", "running on average", "ms a step", "prompt tokens computed"],
                 made)


def variants() -> dict[str, tuple[float, dict[str, SimConfig]]]:
    """One thing changed at a time: how much longer sentences are, and the configuration of both systems."""
    def timed(oracle: StepTime, shared: StepTime) -> tuple[float, dict[str, SimConfig]]:
        return 1.0, {ORACLE: replace(CONFIG, step_time=oracle), SHARED: replace(CONFIG, step_time=shared)}

    def at_most(n: int) -> tuple[float, dict[str, SimConfig]]:
        return 1.0, dict.fromkeys(BOTH, replace(CONFIG, scheduler=replace(CONFIG.scheduler, max_num_seqs=n)))
    fast, costly = replace(STEP, flops_efficiency=FAST_PROMPTS), WithSequenceCost(STEP, SEQUENCE_US)
    return {
        "nothing (fewer requests)": timed(STEP, STEP),
        "sentences half as long again": (1.5, dict.fromkeys(BOTH, CONFIG)),
        f"prompts at {FAST_PROMPTS:g} of the peak, not {STEP.flops_efficiency:g}": timed(fast, fast),
        f"paged attention reads K and V {KERNEL_SLOWDOWN:g} times slower": timed(STEP, slowed(STEP)),
        f"{SEQUENCE_US / 1000:g} ms a sequence and step": timed(costly, costly),
        "these three together": timed(WithSequenceCost(fast, SEQUENCE_US), WithSequenceCost(slowed(fast), SEQUENCE_US)),
        "at most 128 at once": at_most(128),
        "at most 64 at once": at_most(64),
    }


def slowed(step: RooflineStepTime) -> RooflineStepTime:
    """With a kernel that takes longer over K and V."""
    return replace(step, kv_bytes_per_token=round(step.kv_bytes_per_token * KERNEL_SLOWDOWN))


def _variants(lab: Lab) -> Table:
    made: list[list[str | float | int | None]] = [["published", *PUBLISHED.values()]]
    for changed, (longer, configs) in variants().items():
        gains = []
        for shots in PREFIX_TOKENS:
            trace = workload(lab, shots, VARIANT_REQUESTS, longer)
            rate = {system: requests_per_s(lab.run(trace, config, ALLOCATOR[system], f"{shots} {changed}"[:34]))
                    for system, config in configs.items()}
            gains.append(rate[SHARED] / rate[ORACLE])
        made.append([changed, *gains])
    return Table(f"What the gain over {ORACLE} hangs on: one thing changed at a time", ["changed", *PUBLISHED], made)


def plot(outcome: Outcome, path: str) -> None:
    """Left the gains, published beside ours; right what each system serves."""
    ratios, rates = outcome.data["ratios"], outcome.data["rates"]
    names = [f"{shots}\n{tokens} tokens shared" for shots, tokens in PREFIX_TOKENS.items()]
    with canvas(path, TITLE, across=2) as (left, right):
        grouped(left, names, {"published": list(PUBLISHED.values()), "pagedsim": [round(v, 2) for v in ratios.values()]},
                f"throughput, times that of {ORACLE}")
        left.axhline(1, color="#999999", linewidth=0.8)
        served = {system: [round(of[system], 1) for of in rates.values()] for system in ALLOCATOR}
        grouped(right, names, served, "requests a second")
        right.set_ylim(0, 1.25 * max(map(max, served.values())))
        left.set_title("gain from keeping the prefix once", fontsize=9)
        right.set_title("pagedsim: what each system serves", fontsize=9)
