"""Which figures of a sweep are worth drawing, and the rows they are drawn from.

    lines-*.png    concurrency, ttft and throughput over the first knob with several numbers, a line for every other setting
    heat.png       the first two knobs that vary, everything else as in the baseline
    pareto.png     concurrency against GiB of KV cache, where settings differ in these; a panel for each traffic

What is the same in all that is drawn, or what a slice is at, stands below each title.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.whatif.figures import Labels, plot_heat, plot_lines
from experiments.whatif.options import traffic_options
from experiments.whatif.outcome import Group, Outcome
from experiments.whatif.pareto import plot_pareto
from experiments.whatif.points import said, shown
from experiments.whatif.scenario import TRAFFIC

LINES = (("concurrency_mean", "running sequences, mean", "concurrency"), ("ttft_p99_s", "time to first token, p99, s", "ttft"),
         ("output_tokens_per_s", "output tokens a second", "throughput"))
HEAT = ("ttft_p99_s", "time to first token, p99, s")
PARETO = ("concurrency_mean", "running sequences, mean")
UNITS = {
    "rate": "requests a second", "speed": "times as recorded", "limit": "requests", "max-model-len": "tokens",
    "block-size": "tokens", "num-gpu-blocks-override": "blocks", "swap-blocks": "blocks", "tensor-parallel-size": "GPUs",
    "pipeline-parallel-size": "GPUs", "data-parallel-size": "replicas", "max-num-seqs": "sequences",
    "max-num-batched-tokens": "tokens a step", "long-prefill-token-threshold": "tokens", "max-total-tokens": "tokens",
    "max-output-tokens": "tokens", "gpu-memory-utilization": "share of the memory", "watermark": "share of the blocks",
    "available-kv-gib": "GiB", "host-cache-gib": "GiB", "swap-space": "GiB", "cpu-offload-gb": "GiB", "host-bandwidth": "GB/s",
    "think-time": "s", "resample": "s", "session-rate": "sessions a second", "samples": "sequences a request",
    "beam-width": "sequences a request"}
WORTH = 1.02                                           # the largest cache against the smallest, where the rest is rounding
MOST_OTHERS = 3                                        # values of a knob that are named beside the one that is shown


@dataclass(frozen=True)
class Drawn:
    """A figure that is there: the name of its file, what stands at it, and what was left out of it."""

    name: str
    labels: Labels
    left_out: list[str]

    @property
    def about(self) -> str:
        """What it shows, in words."""
        labels = self.labels
        shows = f"{labels.value}, by {labels.x}, and {labels.y}" if labels.value else f"{labels.y}, over {labels.x}"
        return "; ".join(filter(None, [shows, labels.held, *self.left_out]))

    def __str__(self) -> str:
        return f"{self.name}: {'; '.join(self.left_out)}" if self.left_out else self.name


def draw(outcome: Outcome, folder: str) -> list[Drawn]:
    """Draw what there is to be seen, into files of the folder."""
    varied = [knob.name for knob in outcome.scenario.knobs if len(knob.values) > 1]
    numeric = next((name for name in varied if all(_number(dict(group.knobs)[name]) for group in outcome.groups)), None)
    drawn = [] if numeric is None else _draw_lines(outcome, folder, numeric)
    if len(varied) > 1:
        x, y = varied[:2]
        labels = Labels(_title(outcome), _axis(x), _axis(y), HEAT[1], _held(outcome, [x, y]))
        left_out = plot_heat(heat_rows(outcome, x, y, HEAT[0]), os.path.join(folder, "heat.png"), labels)
        drawn.append(Drawn("heat.png", labels, left_out))
    rows = pareto_rows(outcome)
    gib = [row["x"] for row in rows]
    if gib and max(gib) > WORTH * min(gib):
        names = [name for name in _varying(outcome.groups, None) if not _arrives(name) and name != "allocator"]
        named = f"; labels are {', '.join(names)}" if names else ""
        labels = Labels(_title(outcome), "KV cache, GiB over all GPUs", PARETO[1], held=_held(outcome) + named)
        drawn.append(Drawn("pareto.png", labels, plot_pareto(rows, os.path.join(folder, "pareto.png"), labels)))
    return drawn


def _draw_lines(outcome: Outcome, folder: str, knob: str) -> list[Drawn]:
    drawn = []
    for metric, label, short in LINES:
        name = f"lines-{short}.png"
        series = ", ".join(_varying(outcome.groups, knob))
        labels = Labels(_title(outcome), _axis(knob), label, held=_held(outcome), series=series)
        drawn.append(Drawn(name, labels, plot_lines(line_rows(outcome, knob, metric), os.path.join(folder, name), labels)))
    return drawn


def line_rows(outcome: Outcome, knob: str, metric: str) -> list[dict[str, Any]]:
    """Every setting's mean and interval; series are the values of what else varies."""
    others = _varying(outcome.groups, knob)
    return [{"x": dict(group.knobs)[knob], "series": _values(group, others) or group.allocator,
             **_interval(outcome, group, metric)} for group in outcome.groups]


def heat_rows(outcome: Outcome, x: str, y: str, metric: str) -> list[dict[str, Any]]:
    """The settings that are the baseline's but for two knobs."""
    base = outcome.baseline.settings()
    cells = [group for group in outcome.groups
             if all(value == base[name] for name, value in group.settings().items() if name not in (x, y))]
    return [{"x": _shown(dict(group.knobs)[x]), "y": _shown(dict(group.knobs)[y]), **_interval(outcome, group, metric)}
            for group in cells]


def pareto_rows(outcome: Outcome) -> list[dict[str, Any]]:
    """Every setting whose GiB are known; a panel for each traffic, since only under the same one concurrency can be compared."""
    names = _varying(outcome.groups, None)
    arrives = [name for name in names if _arrives(name)]
    others = [name for name in names if name not in arrives and name != "allocator"]
    made = []
    for group in outcome.groups:
        gib = outcome.estimate(group, "kv_gib")
        if group.done and gib is not None:
            settings = group.settings()
            made.append({"x": gib.mean, "label": _values(group, others), "series": group.allocator,
                         "panel": ", ".join(said(name, settings[name]) for name in arrives),
                         **_interval(outcome, group, PARETO[0])})
    return made


def _interval(outcome: Outcome, group: Group, metric: str) -> dict[str, Any]:
    one = outcome.estimate(group, metric) if group.done else None
    if one is None:
        return {"mean": None, "low": None, "high": None, "failed": None if group.done else "does not run"}
    return {"mean": one.mean, "low": one.low, "high": one.high}


# ---------------------------------------------------------------------- words
def _held(outcome: Outcome, drawn: Sequence[str] | None = None) -> str:
    """What is the same in all that is drawn; with ``drawn`` knobs of a slice, what of everything else the slice is at."""
    base, names = outcome.baseline.settings(), _varying(outcome.groups, None)
    fixed = [name for name in base if name not in (names if drawn is None else drawn)]
    seeds = len(outcome.scenario.seeds)
    over = f"means over {seeds} seeds" + (f", {100 * outcome.scenario.confidence:g} % intervals" if drawn is None else "")
    told = ", ".join(_at(outcome, name, base[name]) for name in fixed)
    return "; ".join(filter(None, [f"at {told}" if told else "", over if seeds > 1 else "one seed"]))


def _at(outcome: Outcome, name: str, value: Any) -> str:
    """A setting, and what else it was run at."""
    others = [one for one in dict.fromkeys(group.settings()[name] for group in outcome.groups) if one != value]
    also = ", ".join(map(shown, others)) if len(others) <= MOST_OTHERS else f"{len(others):,} other values"
    return (value if name == "allocator" else said(name, value)) + (f" (also run: {also})" if others else "")


def _arrives(name: str) -> bool:
    """Whether a knob says what arrives."""
    return name.startswith(f"{TRAFFIC}.") or name in traffic_options()


def _varying(groups: Sequence[Group], but: str | None) -> list[str]:
    return [name for name in groups[0].settings() if name != but and len({str(one.settings()[name]) for one in groups}) > 1]


def _values(group: Group, names: Sequence[str]) -> str:
    settings = group.settings()
    return ", ".join(shown(settings[name]) for name in names)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _axis(knob: str) -> str:
    return f"{knob}, {UNITS[knob]}" if knob in UNITS else knob


def _shown(value: Any) -> Any:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _title(outcome: Outcome) -> str:
    options = outcome.scenario.options
    server = (str(options[name]) for name in ("model", "gpu") if name in options)
    return ", ".join([os.path.basename(outcome.scenario.path), *server])
