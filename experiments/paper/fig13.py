"""Figure 13: how many requests OPT-13B batches on average, ShareGPT at 2 requests a second and Alpaca at 30.

One step time for all four systems, fixed beforehand by Little's law: vLLM keeps up with the traffic, so its batch is arrival
rate x residence, and published 30.42 = 2 requests/s x 337.99 steps x 45.0 ms. vLLM's own number is therefore an input as much
as a result. Orca's three are saturated at this rate: memory decides, whatever the step takes, and their numbers are predictions.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from experiments.canvas import canvas, grouped
from experiments.paper import setting
from experiments.paper.outcome import Outcome, Row
from experiments.paper.setting import SYSTEMS, Lab
from sim.config import SimConfig
from sim.step_time import ConstantStepTime
from workloads import transform
from workloads.request import IntArray, Trace

TITLE = "Average number of batched requests, OPT-13B (Figure 13)"
SOURCE = "Kwon et al., SOSP 2023, Figures 11 and 13"
RATE = {"ShareGPT": 2.0, "Alpaca": 30.0}               # requests a second
PUBLISHED = {"ShareGPT": {"Orca (Max)": 7.00, "Orca (Pow2)": 9.81, "Orca (Oracle)": 13.62, "vLLM": 30.42},
             "Alpaca": {"Orca (Max)": 7.00, "Orca (Pow2)": 43.24, "Orca (Oracle)": 72.75, "vLLM": 132.44}}
OUTPUT_MEAN = {"ShareGPT": 337.99, "Alpaca": 58.45}    # tokens, Figure 11
ALPACA_PROMPT_MEAN, ALPACA_SIGMAS = 19.31, (0.5, 0.9)
HOUR_S = 3600
RELATIVE_TOLERANCE = 0.10


def step_us(dataset: str) -> int:
    """The step time by Little's law from vLLM's published batch.

    >>> step_us("ShareGPT")
    45001
    """
    return round(1e6 * PUBLISHED[dataset]["vLLM"] / (RATE[dataset] * OUTPUT_MEAN[dataset]))


def config(dataset: str) -> SimConfig:
    """The paper's pool with that step time."""
    return setting.paper_config(ConstantStepTime(step_us(dataset)))


CONFIG = {dataset: config(dataset) for dataset in RATE}


def run(lab: Lab) -> Outcome:
    """An hour of either traffic through all four systems."""
    sharegpt = lab.sharegpt(round(RATE["ShareGPT"] * HOUR_S))
    traces = {"ShareGPT": transform.with_poisson_arrivals(sharegpt, RATE["ShareGPT"], lab.rng()),
              "Alpaca": lab.part(alpaca(round(RATE["Alpaca"] * HOUR_S), lab.rng()), None)}
    whole = lab.is_paper()
    rows, ours = [], {}
    for dataset, trace in traces.items():
        ours[dataset] = {label: _mean_batch(lab, trace, dataset, label) for label in SYSTEMS}
        judged = dataset == "ShareGPT" and whole
        rows += [Row(f"{dataset}: {label}", published, ours[dataset][label], "requests",
                     RELATIVE_TOLERANCE * published if judged else None,
                     note="the step time is taken from this number" if label == "vLLM" else "")
                 for label, published in PUBLISHED[dataset].items()]
    return Outcome(rows, {"ours": ours}, notes=[
        f"{len(sharegpt):,} ShareGPT requests, Poisson arrivals at 2 requests/s; every step takes "
        f"{step_us('ShareGPT') / 1000:.1f} ms, by Little's law from vLLM's published batch; tolerance 10 %",
        "averages run from the first arrival to the last end: who cannot keep up (Orca) serves the hour's requests for longer "
        "than an hour, as full as before",
        f"Alpaca's lengths are not published: lognormal ones with the published means {ALPACA_PROMPT_MEAN} and "
        f"{OUTPUT_MEAN['Alpaca']}, sigma {ALPACA_SIGMAS[0]} and {ALPACA_SIGMAS[1]}; step {step_us('Alpaca') / 1000:.1f} ms the "
        "same way; no verdict"])


def _mean_batch(lab: Lab, trace: Trace, dataset: str, label: str) -> float:
    """Mean number of running requests from the first arrival to the last end."""
    run = lab.run(trace, CONFIG[dataset], SYSTEMS[label], f"{dataset} {label}")
    return run.window.sequence_us / run.window.time_us


def alpaca(n: int, rng: np.random.Generator) -> Trace:
    """Lognormal lengths with the published means, Poisson arrivals."""
    prompt = lognormal(ALPACA_PROMPT_MEAN, ALPACA_SIGMAS[0], n, rng)
    output = lognormal(OUTPUT_MEAN["Alpaca"], ALPACA_SIGMAS[1], n, rng)
    trace = transform.drop_longer_than(Trace("Alpaca, fitted to its means", prompt, output), setting.MAX_TOTAL_TOKENS)
    return transform.with_poisson_arrivals(replace(trace, dropped={}), RATE["Alpaca"], rng)


def lognormal(mean: float, sigma: float, n: int, rng: np.random.Generator) -> IntArray:
    """Whole numbers from 1 up with this mean, before rounding."""
    values = rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, n)
    return np.maximum(np.rint(values), 1).astype(np.int64)


def plot(outcome: Outcome, path: str) -> None:
    """Bars in the paper's form, published beside ours."""
    with canvas(path, TITLE, across=2) as axes:
        for one, (dataset, published) in zip(axes, PUBLISHED.items(), strict=True):
            mine = outcome.data["ours"][dataset]
            grouped(one, list(published), {"published": list(published.values()), "pagedsim": list(mine.values())},
                    "batched requests")
            one.set_title(f"{dataset}, {RATE[dataset]:g} requests/s", fontsize=9)
