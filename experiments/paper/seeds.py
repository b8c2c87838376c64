"""Every number of three articles that people size GPUs with, beside what the library computes; where they slip is marked.

Each line is a printed number and a function that computes it. A number is right if it is ours, exactly, or rounded to as many
decimals as are printed where the article rounds. Where an article is at odds with its own formula the printed number is shown
beside ours without a verdict, and the formula is held.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from experiments.canvas import COLOURS, canvas
from experiments.paper.outcome import Outcome, Row
from experiments.paper.setting import Lab
from sim import kv_formula as kv
from sim.models.model import ModelShape
from sim.models.model_config import load_model
from sim.sizing import rules
from sim.sizing.budget import Measured
from sim.sizing.cost import Request, monthly_cost
from sim.sizing.deployment import Deployment
from sim.sizing.hardware import GIB, Gpu
from sim.sizing.plan import plan
from sim.sizing.weights import nominal_bytes, weight_bytes, weight_format

TITLE = "The numbers of three articles on sizing GPUs"
SOURCE = "three articles on the memory of LLM servers, each number as printed"
KIB = 1024
TICKS = (-3, -1, 0, 1, 3, 10, 30, 100)                # %
SLIP, FLOAT_NOISE = "slip", 1e-9


@dataclass(frozen=True)
class Printed:
    """A printed number and how the library computes it; rounded to so many decimals, or exact."""

    label: str
    value: float
    unit: str
    ours: Callable[[], float]
    decimals: int | None = None
    note: str = ""

    def row(self) -> Row:
        """Half of the last printed digit is the tolerance of a rounded number; a slip gets no verdict."""
        rounding = 0.0 if self.decimals is None else 0.5 * 10.0**-self.decimals
        tolerance = None if self.note.startswith(SLIP) else rounding + FLOAT_NOISE
        return Row(self.label, self.value, float(self.ours()), self.unit, tolerance, note=self.note)


model = functools.cache(load_model)


def numbers() -> list[Printed]:
    """All of them, in the order of the articles' subjects."""
    return [*_tokens(), *_weights(), *_requests(), *_budgets()]


# ---------------------------------------------------------------------- KV bytes
def _tokens() -> list[Printed]:
    def kib(name: str) -> Callable[[], float]:
        return lambda: model(name).kv_bytes_per_token() / KIB

    def gib(name: str, tokens: int, requests: int = 1) -> Callable[[], float]:
        return lambda: requests * kv.blocks_for(tokens) * kv.kv_bytes_per_block(model(name).kv_bytes_per_token()) / GIB
    return [
        Printed("a token, 7B with a KV head for each head", 512, "KiB", kib("Llama-2-7B")),
        Printed("a token, 70B", 320, "KiB", kib("Llama-2-70B")),
        Printed("a token, 8B with 8 KV heads", 128, "KiB", kib("Llama-3-8B")),
        Printed("a token, 7B with one KV head", 16, "KiB", lambda: kv.kv_bytes_per_token(32, 1, 128, 2) / KIB),
        Printed("a token, Llama-3.1-8B", 131_072, "bytes", lambda: model("Llama-3.1-8B").kv_bytes_per_token()),
        Printed("a request of 4,096 tokens, 7B", 2, "GiB", gib("Llama-2-7B", 4096)),
        Printed("32 of them", 64, "GiB", gib("Llama-2-7B", 4096, 32)),
        Printed("128K, 8B", 16, "GiB", gib("Llama-3.1-8B", 131_072)),
        Printed("eight of them", 128, "GiB", gib("Llama-3.1-8B", 131_072, 8)),
        Printed("128K, 70B", 40, "GiB", gib("Llama-3.1-70B", 131_072)),
        Printed("four of them", 160, "GiB", gib("Llama-3.1-70B", 131_072, 4)),
        Printed("32K over 4K", 8, "x", lambda: gib("Llama-3.1-8B", 32_768)() / gib("Llama-3.1-8B", 4096)()),
        Printed("a sequence of LLaMA-13B, 2,048 tokens", 1.7, "GB", lambda: gib("LLaMA-13B", 2048)() * GIB / 1e9, 1),
        Printed("100 requests of 500 tokens over 5 of 10,000", 1, "x", lambda: _pool_tokens(100, 500) / _pool_tokens(5, 10_000)),
    ]


def _pool_tokens(requests: int, tokens: int) -> int:
    return requests * kv.blocks_for(tokens, 1)


# ---------------------------------------------------------------------- weights
def _weights() -> list[Printed]:
    def nominal(billions: float, bits: int, unit: float) -> Callable[[], float]:
        return lambda: nominal_bytes(billions * 1e9, bits) / unit
    made = [Printed(f"weights, {billions}B in {bits} bits", value, "GiB", nominal(billions, bits, GIB), 1)
            for billions, values in ((7, (13.0, 6.5, 3.3)), (13, (24.2, 12.1, 6.1)), (70, (130.4, 65.2, 32.6)))
            for bits, value in zip((16, 8, 4), values, strict=True)]
    made += [Printed(f"weights, {billions}B in 16 bits", value, "GB", nominal(billions, 16, 1e9))
             for billions, value in ((7, 14), (70, 140), (405, 810))]
    return [
        *made,
        Printed("weights, 70B in 4 bits", 35, "GB", nominal(70, 4, 1e9)),
        Printed("weights, Falcon-40B", 80, "GB", nominal(40, 16, 1e9), note="40e9 x 2 bytes"),
        Printed("weights, octocoder, predicted", 31, "GB", lambda: weight_bytes(model("octocoder")) / 1e9, 0),
        Printed("weights, octocoder, measured", 29, "GiB", lambda: weight_bytes(model("octocoder")) / GIB, 0,
                note="printed as GB: the tool that measured counts in 2**30"),
        Printed("4-bit weights in groups of 128, a parameter", 0.53, "bytes", lambda: float(weight_format("gptq").bits / 8), 2),
        Printed("scale and zero of a group, a weight", 0.5, "bits", _group_bits, 1,
                note=f"{SLIP}: said to be about 0.5; 16 + 16 bits for 128 weights"),
        Printed("the same by the formula, 32 / 128", 0.25, "bits", _group_bits, 2),
    ]


def _group_bits() -> float:
    return float(weight_format("awq", group_size=128).bits - 4)


# ---------------------------------------------------------------------- requests at once, traffic
def _requests() -> list[Printed]:
    left = (48e9 - nominal_bytes(7e9, 16)) / GIB - rules.FIXED_GIB
    memory = "the memory is not printed: a 48 GB card less the 7B's weights and 1 GiB"

    def at_once(name: str, dtype: str | None = None) -> Callable[[], float]:
        return lambda: math.floor(plan(Deployment(model(name), kv_cache_dtype=dtype, available_kv_gib=left,
                                                  max_model_len=4096)).report.max_concurrency)

    def month() -> Request:
        return Request(2000, 500, 0, 1)
    return [
        Printed("at once, 4,096 tokens, 7B", 15, "requests", at_once("Llama-2-7B"), note=memory),
        Printed("at once, 4,096 tokens, 8B", 61, "requests", at_once("Llama-3-8B"), note=memory),
        Printed("at once, 4,096 tokens, 7B with an 8-bit cache", 30, "requests", at_once("Llama-2-7B", "fp8"), note=memory),
        Printed("at once, 8,192 tokens, in 129,024", 15.75, "requests",
                lambda: kv.max_concurrency(129_024 // 16, 16, 8192), 2),
        Printed("1,000 requests a day, 2,000 tokens in: a month", 60, "M tokens",
                lambda: float(monthly_cost(month(), 1000).input_tokens / 10**6)),
        Printed("the same, 500 tokens out", 15, "M tokens", lambda: float(monthly_cost(month(), 1000).output_tokens / 10**6)),
    ]


# ---------------------------------------------------------------------- budgets
def _budgets() -> list[Printed]:
    def share(bytes_: float) -> float:
        return 100 * bytes_ / 40e9
    total = functools.partial(rules.total_gib, nominal_bytes(70e9, 4) / GIB, 40)
    return [
        Printed("A100-40GB, 13B: weights", 65, "%", lambda: share(nominal_bytes(13e9, 16))),
        Printed("A100-40GB, 13B: cache", 30, "%", lambda: share(12e9)),
        Printed("A100-40GB, 13B: the rest", 5, "%", lambda: share(40e9 - nominal_bytes(13e9, 16) - 12e9)),
        Printed("activations of 4,096 tokens in all layers, 7B", 3.69, "GiB", lambda: _activation(model("Llama-2-7B")), 2),
        Printed("total, 70B in 4 bits with 128K", 84.6, "GiB", total, 1, note=f"{SLIP}: its own formula gives 84.486"),
        Printed("the same by its formula, (weights + cache) x 1.15 + 1", 84.486, "GiB", total, 3),
        Printed("45 GB of weights on a 48 GB card: servers that start", 0, "", _starts),
    ]


def _activation(shape: ModelShape) -> float:
    assert shape.intermediate_size is not None
    return rules.all_layers_activation_gib(4096, shape.layers, shape.hidden_size, shape.intermediate_size)


def _starts() -> float:
    """22.5e9 parameters in 16 bits: at the default share of the card nothing is left for a cache."""
    card = Gpu("48GB", 48 * 10**9, 48)
    return float(plan(Deployment(model("Llama-2-13b"), card, measured=Measured(weights_gib=45e9 / GIB), max_model_len=4096)).fits)


CONFIG = numbers()


def run(lab: Lab) -> Outcome:
    """All of them; there is nothing to simulate."""
    made = [printed.row() for printed in CONFIG]
    slips = sum(row.note.startswith(SLIP) for row in made)
    return Outcome(made, notes=[
        f"{len(made) - slips} printed numbers are ours rounded as printed; {slips} are slips of the articles, shown without a "
        "verdict, and the line after each holds the article's formula"])


def plot(outcome: Outcome, path: str) -> None:
    """Each number's distance from ours in per cent; what rounding explains lies in its bar."""
    rows = [row for row in outcome.rows if row.published]
    away = [100 * ((row.published or 0) / row.ours - 1) if row.ours else 0.0 for row in rows]
    room = [100 * (row.tolerance or 0) / row.ours if row.ours else 0.0 for row in rows]
    colours = [COLOURS[2] if row.ok is None else COLOURS[0] if row.ok else "black" for row in rows]
    with canvas(path, TITLE, width=8.0, height=0.19 * len(rows) + 1.2) as (axes,):
        places = list(range(len(rows)))
        axes.barh(places, [2 * r for r in room], left=[-r for r in room], color="#DDDDDD", height=0.8,
                  label="rounding as printed")
        axes.scatter(away, places, c=colours, s=18, zorder=3)
        axes.set_yticks(places, [f"{row.label}: {row.published:g} {row.unit}" for row in rows], fontsize=7)
        axes.set(xlabel="printed number above ours (%)", ylim=(len(rows) - 0.4, -0.6))
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        axes.minorticks_off()
        axes.set_xlim(-5, 300)
        for place, row, percent in zip(places, rows, away, strict=True):
            if row.ok is None:
                axes.annotate(f"slip: ours {row.ours:.5g}", (percent, place), xytext=(-6, 0), textcoords="offset points",
                              ha="right", va="center", fontsize=7, color=COLOURS[2])
        axes.legend(frameon=False, fontsize=7, loc="lower right")
