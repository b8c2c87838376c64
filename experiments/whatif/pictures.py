"""Which figures of a sweep are worth drawing, and the rows they are drawn from.

    lines-*.png    concurrency, ttft and throughput over the first knob with several numbers, a line for every other setting
    heat.png       the first two knobs that vary, everything else as in the baseline
    pareto.png     concurrency against GiB of KV cache, where settings differ in these
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from experiments.pareto import plot_pareto
from experiments.sweep_figures import Labels, plot_heat, plot_lines
from experiments.whatif.outcome import Group, Outcome
from experiments.whatif.points import said

LINES = (("concurrency_mean", "running sequences, mean", "concurrency"), ("ttft_p99_s", "time to first token, p99, s", "ttft"),
         ("output_tokens_per_s", "output tokens a second", "throughput"))
HEAT = ("ttft_p99_s", "time to first token, p99, s")
UNITS = {"rate": "requests a second", "speed": "times as recorded", "max-model-len": "tokens", "block-size": "tokens",
         "num-gpu-blocks-override": "blocks", "tensor-parallel-size": "GPUs", "data-parallel-size": "replicas"}
WORTH = 1.02                                           # the largest cache against the smallest, where the rest is rounding
PARETO = ("concurrency_mean", "running sequences, mean")


def draw(outcome: Outcome, folder: str) -> list[str]:
    """Draw what there is to be seen; returns the names of the files."""
    varied = [knob.name for knob in outcome.scenario.knobs if len(knob.values) > 1]
    drawn = []
    numeric = next((name for name in varied if all(_number(dict(group.knobs)[name]) for group in outcome.groups)), None)
    if numeric is not None:
        for metric, label, short in LINES:
            name = f"lines-{short}.png"
            labels = Labels(_title(outcome), _axis(numeric), label)
            plot_lines(line_rows(outcome, numeric, metric), os.path.join(folder, name), labels)
            drawn.append(name)
    if len(varied) > 1:
        plot_heat(heat_rows(outcome, varied[0], varied[1], HEAT[0]), os.path.join(folder, "heat.png"),
                  Labels(_title(outcome), _axis(varied[0]), _axis(varied[1]), HEAT[1]))
        drawn.append("heat.png")
    rows = pareto_rows(outcome)
    gib = [row["x"] for row in rows]
    if gib and max(gib) > WORTH * min(gib):
        plot_pareto(rows, os.path.join(folder, "pareto.png"), Labels(_title(outcome), "KV cache, GiB over all GPUs", PARETO[1]))
        drawn.append("pareto.png")
    return drawn


def line_rows(outcome: Outcome, knob: str, metric: str) -> list[dict[str, Any]]:
    """Every setting's mean and interval; series are what else varies."""
    others = _varying(outcome.groups, knob)
    return [{"x": dict(group.knobs)[knob], "series": _name(group, others), **_interval(outcome, group, metric)}
            for group in outcome.groups]


def heat_rows(outcome: Outcome, x: str, y: str, metric: str) -> list[dict[str, Any]]:
    """The settings that are the baseline's but for two knobs."""
    base = outcome.baseline.settings()
    cells = [group for group in outcome.groups
             if all(value == base[name] for name, value in group.settings().items() if name not in (x, y))]
    return [{"x": _shown(dict(group.knobs)[x]), "y": _shown(dict(group.knobs)[y]), **_interval(outcome, group, metric)}
            for group in cells]


def pareto_rows(outcome: Outcome) -> list[dict[str, Any]]:
    """Every setting whose GiB are known; labels say what varies."""
    names = _varying(outcome.groups, None)
    made = []
    for group in outcome.groups:
        gib = outcome.estimate(group, "kv_gib")
        if group.done and gib is not None:
            made.append({"x": gib.mean, "label": _name(group, names), "series": group.allocator,
                         **_interval(outcome, group, PARETO[0])})
    return made


def _interval(outcome: Outcome, group: Group, metric: str) -> dict[str, Any]:
    one = outcome.estimate(group, metric) if group.done else None
    if one is None:
        return {"mean": None, "low": None, "high": None, "failed": None if group.done else "does not run"}
    return {"mean": one.mean, "low": one.low, "high": one.high}


def _varying(groups: Sequence[Group], but: str | None) -> list[str]:
    return [name for name in groups[0].settings() if name != but and len({str(one.settings()[name]) for one in groups}) > 1]


def _name(group: Group, names: Sequence[str]) -> str:
    settings = group.settings()
    return ", ".join(settings[name] if name == "allocator" else said(name, settings[name]) for name in names) or group.allocator


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _axis(knob: str) -> str:
    return f"{knob}, {UNITS[knob]}" if knob in UNITS else knob


def _shown(value: Any) -> Any:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _title(outcome: Outcome) -> str:
    return os.path.basename(outcome.scenario.path)
