"""Sharing against defragmenting: n requests on one system prompt, what paging saves and what keeping the prompt once saves.

    reserved contiguously   [ system | own | output | ... never used ... ]     n times
    paged                   [ system | own | output ]                          n times       saved: what was reserved in vain
    paged, shared           [ system ] once, [ own | output ] n times                        saved: n - 1 system prompts

All n requests run at once, are equally long (the means of ShareGPT) and the pool holds them all; slots are averages over their
life. Sharing saves (n - 1) x whole blocks of the system prompt exactly; so against reservations of the maximum it saves more
than paging does where the system prompt fills about half of what is not the request's own.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from experiments.canvas import canvas, lines
from experiments.paper import setting
from experiments.paper.outcome import Outcome, Row, Table
from experiments.paper.setting import SYSTEMS, Lab
from sim.sizing.hardware import GIB
from sim.step_time import ConstantStepTime
from workloads import transform
from workloads.synthetic import behind_one_prompt

TITLE = "One system prompt: what sharing saves, and what removing fragmentation saves"
SOURCE = "the claim that with a long system prompt sharing saves more than removing fragmentation; no number is published"
OWN_TOKENS, OUTPUT_TOKENS = 161, 338                   # ShareGPT's means
PREFIXES = tuple(range(0, 1537, 128))
COUNTS = (2, 3, 5, 10, 20, 50, 100, 200)
REQUESTS = 100                                         # of the first picture
PAGED, SHARED = "vLLM", "vLLM, shared prompt"
ALLOCATOR = {**SYSTEMS, SHARED: "paged-prefix"}
RESERVING = [label for label in SYSTEMS if label != PAGED]
CONFIG = replace(setting.paper_config(ConstantStepTime(20_000)), placement="first-fit")
STEP = CONFIG.block_size
FRONTIERS, MOST_DOUBLINGS = ("o-", "s--", "D:"), 4
Slots = dict[str, Fraction]                             # of each system, averaged over time


def run(lab: Lab) -> Outcome:
    """Slots of each system for every prefix length and count; where sharing overtakes defragmenting."""
    counts = [n for n in COUNTS if lab.limit is None or n <= max(lab.limit, COUNTS[0])]
    tell = lab.progress("prefix lengths x requests", len(PREFIXES) * len(counts))
    held: dict[int, dict[int, Slots]] = {n: {} for n in counts}
    for n in counts:
        for prefix in PREFIXES:
            held[n][prefix] = {system: slots(lab, system, n, prefix) for system in ALLOCATOR}
            tell(1)
    overtaken = {label: [overtakes(lab, label, n) for n in counts] for label in RESERVING}
    shown = max(n for n in counts if n <= REQUESTS)
    data = {"held": _floats(held), "overtaken": overtaken, "counts": counts, "shown": shown}
    return Outcome(rows(held, overtaken, counts, shown), data,
                   [_memory_table(held[shown], shown), _overtaken_table(overtaken, counts)], [
        f"every request: {OWN_TOKENS} tokens of its own and {OUTPUT_TOKENS} generated, at most {CONFIG.max_model_len:,} with the "
        f"system prompt; blocks of {STEP}; all run at once; slots averaged over their life, {_token_bytes():,} bytes each",
        "removing fragmentation: slots reserved contiguously less slots in blocks; reservations lie end to end, so only what is "
        "inside them counts. Sharing: slots in blocks less the same with the system prompt kept once",
        "the claim holds for long prompts against reservations of the maximum, and for most prompts against a server that "
        "guesses the output within a factor of two: there is less left to remove",
    ])


def slots(lab: Lab, system: str, n: int, prefix: int) -> Fraction:
    """Slots held on average while ``n`` requests on one system prompt of ``prefix`` tokens run at once."""
    trace = transform.all_at_once(behind_one_prompt(np.full(n, OWN_TOKENS), np.full(n, OUTPUT_TOKENS), prefix))
    config = replace(CONFIG, num_blocks=n * CONFIG.max_model_len // CONFIG.block_size + 1)
    run = replace(lab, progress=lambda text, total: lambda done: None).run(trace, config, ALLOCATOR[system])
    return Fraction(run.window.physical, run.window.time_us)


def saved_by(held: Slots, label: str) -> tuple[Fraction, Fraction]:
    """Slots saved by removing that system's fragmentation, and by sharing."""
    return held[label] - held[PAGED], held[PAGED] - held[SHARED]


def overtakes(lab: Lab, label: str, n: int) -> int | None:
    """The shortest system prompt, in whole blocks of tokens, with which sharing saves more; None: none that fits does."""
    def more(blocks: int) -> bool:
        prefix = blocks * STEP
        fragmentation, sharing = saved_by({system: slots(lab, system, n, prefix) for system in (label, PAGED, SHARED)}, label)
        return sharing > fragmentation
    low, high = 0, (CONFIG.max_model_len - OWN_TOKENS - OUTPUT_TOKENS) // STEP
    if not more(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if more(middle) else (middle, high)
    return high * STEP


def _floats(held: dict[int, dict[int, Slots]]) -> dict[int, dict[int, dict[str, float]]]:
    return {n: {prefix: {system: float(slots) for system, slots in of.items()} for prefix, of in row.items()}
            for n, row in held.items()}


# ---------------------------------------------------------------------- rows
def rows(held: dict[int, dict[int, Slots]], overtaken: dict[str, list[int | None]], counts: list[int], shown: int) -> list[Row]:
    """No number is published: a check against the formula, then where sharing overtakes."""
    worst = max(abs(saved_by(of, PAGED)[1] - (n - 1) * (prefix // STEP) * STEP) for n in counts for prefix, of in held[n].items())
    made = [Row("sharing saves (n - 1) x prompt in whole blocks: off by at most", None, float(worst), "slots", most=0.0,
                note="the ledger against the formula")]
    for label in RESERVING:
        at = overtaken[label][counts.index(shown)]
        made.append(Row(f"{shown} requests: sharing saves more than paging {label} from", None, at, "tokens"))
    return made


def _memory_table(held: dict[int, Slots], n: int) -> Table:
    made: list[list[str | float | int | None]] = []
    for prefix, of in held.items():
        fragmentation, sharing = saved_by(of, "Orca (Max)")
        made.append([prefix, *(gib(of[system]) for system in ALLOCATOR), gib(fragmentation), gib(sharing)])
    columns = ["tokens", *ALLOCATOR, "saved by paging (of Max)", "saved by sharing"]
    return Table(f"{n} requests on one system prompt, GiB", columns, made)


def _overtaken_table(overtaken: dict[str, list[int | None]], counts: list[int]) -> Table:
    made: list[list[str | float | int | None]] = [[label, *found] for label, found in overtaken.items()]
    return Table("The shortest system prompt, in tokens, from which sharing saves more than removing fragmentation",
                 ["fragmentation of", *(f"{n} requests" for n in counts)], made)


def gib(held: float | Fraction) -> float:
    """Slots in GiB.

    >>> gib(1310.72)
    1.0
    """
    return float(held * _token_bytes() / GIB)


def _token_bytes() -> int:
    return setting.opt13b().kv_bytes_per_token()


# ---------------------------------------------------------------------- picture
def plot(outcome: Outcome, path: str) -> None:
    """Left memory against prefix length; right the map, with the frontier of each reserving system."""
    held, counts, shown = outcome.data["held"], outcome.data["counts"], outcome.data["shown"]
    with canvas(path, TITLE, across=2) as (left, right):
        series = {system: [gib(of[system]) for of in held[shown].values()] for system in ALLOCATOR}
        lines(left, PREFIXES, series, "tokens of the system prompt", f"memory of {shown} requests (GiB)")
        left.set_ylim(bottom=0)
        left.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False)
        _map(right, held, counts, outcome.data["overtaken"])


def _map(axes: Any, held: dict[int, dict[int, dict[str, float]]], counts: list[int],
         overtaken: dict[str, list[int | None]]) -> None:
    """Colour: slots saved by sharing over slots saved by paging Orca (Max); lines: where the two are equal."""
    ratios = np.array([[(of[PAGED] - of[SHARED]) / (of["Orca (Max)"] - of[PAGED]) for of in held[n].values()] for n in counts])
    half = (PREFIXES[1] - PREFIXES[0]) / 2
    edges = np.array([*PREFIXES, PREFIXES[-1] + 2 * half]) - half
    rows_at = np.arange(len(counts) + 1) - 0.5
    mesh = axes.pcolormesh(edges, rows_at, np.log2(np.maximum(ratios, 2.0**-MOST_DOUBLINGS)), cmap="PuOr", vmin=-MOST_DOUBLINGS,
                           vmax=MOST_DOUBLINGS)
    bar = axes.figure.colorbar(mesh, ax=axes, ticks=range(-MOST_DOUBLINGS, MOST_DOUBLINGS + 1, 2))
    bar.ax.set_yticklabels(["1/16", "1/4", "1", "4", "16"])
    bar.set_label("saved by sharing / by paging Orca (Max)", fontsize=8)
    for label, style in zip(RESERVING, FRONTIERS, strict=True):
        at = [(tokens, y) for y, tokens in enumerate(overtaken[label]) if tokens is not None]
        axes.plot([x for x, _ in at], [y for _, y in at], style, color="black", linewidth=1.3, markersize=3,
                  label=label)
    axes.set_yticks(np.arange(len(counts)), [str(n) for n in counts])
    axes.set(xlabel="tokens of the system prompt", ylabel="requests at once", xlim=(edges[0], edges[-1]))
    for text, place in (("paging saves more", 600), ("sharing saves more", 1150)):
        axes.text(place, len(counts) - 1, text, fontsize=8, ha="center", va="center", color="black")
    axes.set_title("which saves more memory, paging or sharing?", fontsize=9)
    axes.legend(title="sharing and paging save the same, against", title_fontsize=8, fontsize=8, loc="upper center",
                bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False, columnspacing=1)
