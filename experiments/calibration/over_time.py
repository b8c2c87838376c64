"""Predicted beside seen at the instants of a server's log: the traffic replayed, the server's own gauges taken from the replay.

    log          t0 ----- t1 ----- t2 ----- t3            one line each
    simulation        |== first arrival = 0               where on the log's clock: given, or the best of one interval

A throughput is that of the interval before a line; the hit rate is that of the last 1,000 requests; the rest is what the engine
said after its last step before the line. All are compared as they are printed, to 0.1, and all at the same lines: those from the
first arrival to the simulated end, both included. Before and after there is nothing to compare with: such lines are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.calibration.cases import Floats
from experiments.calibration.server_log import Sample
from sim import gauges
from sim.config import SimConfig
from sim.gauges import simulate_gauges
from sim.run import Run
from workloads.request import IntArray, Trace

GAUGES = {"running": "requests", "waiting": "requests", "usage_percent": "% of the pool", "hit_percent": "%",
          "prompt_tokens_per_s": "tokens/s", "generation_tokens_per_s": "tokens/s"}
INTERVAL_S = 10.0                                      # vLLM's VLLM_LOG_STATS_INTERVAL; 5 in the first engine
CANDIDATES = 100                                       # places of the first arrival that are tried, over one interval
MOST_INSTANTS = 500_000                                # fewer places for a log of days: 10 million numbers are looked at


@dataclass(frozen=True)
class Replayed:
    """What was seen and predicted at each line that is compared.

    Parameters
    ----------
    time_s : float64, shape (lines,)
        Since the first arrival.
    seen, predicted : dict of gauge to float64, shape (lines,)
    offset_s : float
        The first arrival comes this long after the first periodic line of the log.
    searched : bool
        Whether the offset was looked for.
    interval_s : float
        Between two lines.
    before, after : int
        Lines before the first arrival and after the simulated end, which are not compared.
    early, late : int
        Those among them in which the server worked before, and in which it still had requests after.
    run : Run
    """

    time_s: Floats
    seen: dict[str, Floats]
    predicted: dict[str, Floats]
    offset_s: float
    searched: bool
    interval_s: float
    before: int
    after: int
    early: int
    late: int
    run: Run

    def errors(self) -> dict[str, dict[str, Any]]:
        """By gauge the means of |predicted - seen| and of predicted - seen, in the gauge's unit, and of what was seen."""
        made = {}
        for name, seen in self.seen.items():
            off = np.round(self.predicted[name] - seen, 6)
            made[name] = {"unit": GAUGES[name], "mean_absolute_error": float(np.abs(off).mean()), "bias": float(off.mean()),
                          "seen_mean": float(seen.mean()), "predicted_mean": float(self.predicted[name].mean())}
        return made


@dataclass(frozen=True)
class _Log:
    """Columns of a log's samples."""

    time_s: Floats
    seen: dict[str, Floats]
    interval_s: float

    @property
    def busy(self) -> NDArray[np.bool_]:
        """Which lines say that there was work."""
        return np.any([self.seen[name] > 0 for name in
                       ("running", "waiting", "generation_tokens_per_s", "prompt_tokens_per_s")], axis=0)

    @property
    def holding(self) -> NDArray[np.bool_]:
        """Which lines say that requests are in the server."""
        return (self.seen["running"] > 0) | (self.seen["waiting"] > 0)

    @property
    def first_busy(self) -> int | None:
        """The first line that says that there was work."""
        return int(self.busy.argmax()) if self.busy.any() else None


def columns(samples: Sequence[Sample]) -> _Log:
    """Times since the first line, what was seen, and the interval between lines (their median distance)."""
    seen = {name: np.array([getattr(sample, name) for sample in samples], np.float64) for name in GAUGES
            if all(getattr(sample, name) is not None for sample in samples)}
    if samples[0].time_s is None:
        return _Log(np.arange(len(samples)) * INTERVAL_S, seen, INTERVAL_S)
    time_s: Floats = np.array([sample.time_s for sample in samples], np.float64)
    gaps = np.diff(time_s)
    gaps = gaps[gaps >= 0.5]                           # several lines of one instant tell nothing
    interval = float(np.round(np.median(gaps), 1)) if len(gaps) else INTERVAL_S
    return _Log(time_s - time_s[0], seen, interval)


def replay(samples: Sequence[Sample], trace: Trace, sim: SimConfig, allocator: str, options: Any) -> Replayed | None:
    """Serve the trace and take the gauges at the lines of the log; None if no line falls into the time it takes.

    Parameters
    ----------
    samples : sequence of Sample
        Of one engine.
    trace : Trace
        With arrival times from 0.
    sim : SimConfig
    allocator : str
        ``paged`` or ``paged-prefix``.
    options : ReplayOptions
    """
    log = columns(samples)
    offsets = _offsets(log, options.offset_s)
    if offsets is None:
        return None
    instants = _instants(log, offsets)
    order = np.argsort(instants, kind="stable")
    table = np.zeros((len(instants), len(gauges.FIELDS)), np.int64)
    run, table[order] = simulate_gauges(trace, sim, allocator, instants[order], options.warm)
    at, before = table.reshape(2, len(offsets), len(samples), -1)
    blocks = sim.num_blocks - 1
    end_s = float(max(run.log.finished_us.max(), 0)) / 1e6
    found = []
    for offset, now, then in zip(offsets.tolist(), at, before, strict=True):
        time_s, predicted = log.time_s - offset, _predicted(now, then, log.interval_s, blocks, options.whole_prompts)
        rows = (time_s >= 0) & (time_s <= end_s)
        if rows.any():
            outside = {"before": time_s < 0, "after": time_s > end_s, "early": log.busy & (time_s < 0),
                       "late": log.holding & (time_s > end_s)}
            made = Replayed(time_s[rows], {name: values[rows] for name, values in log.seen.items()},
                            {name: predicted[name][rows] for name in log.seen}, offset, options.offset_s is None,
                            log.interval_s, run=run, **{name: int(lines.sum()) for name, lines in outside.items()})
            found.append((_mismatch(log, predicted), made))
    return min(found, key=lambda each: each[0])[1] if found else None


@dataclass(frozen=True)
class ReplayOptions:
    """How the two clocks meet, and how a version counts.

    ``offset_s``: see `Replayed`; None: looked for. ``whole_prompts``: the log counts prompt tokens that were found cached too.
    """

    offset_s: float | None = None
    whole_prompts: bool = False
    warm: Trace | None = None


def _offsets(log: _Log, given: float | None) -> Floats | None:
    """Where the first arrival may be: as given, or within the interval before the first line with work."""
    if given is not None:
        return np.array([given])
    first = log.first_busy
    if first is None:
        return None
    count = min(CANDIDATES, max(2, MOST_INSTANTS // len(log.time_s)))
    tried: Floats = log.time_s[first] - np.arange(count) * (log.interval_s / count)
    return tried


def _instants(log: _Log, offsets: Floats) -> IntArray:
    """On the clock of the simulation: every line for every offset, and then one interval before each."""
    at = log.time_s[None, :] - offsets[:, None]
    return np.rint(np.concatenate((at.ravel(), (at - log.interval_s).ravel())) * 1e6).astype(np.int64)


def _predicted(at: IntArray, before: IntArray, interval_s: float, blocks: int, whole_prompts: bool) -> dict[str, Floats]:
    """The gauges as a server prints them."""
    prompt = gauges.PROMPT if whole_prompts else gauges.COMPUTED
    made = (at - before) / interval_s
    return {
        "running": at[:, gauges.RUNNING].astype(float), "waiting": at[:, gauges.WAITING].astype(float),
        "usage_percent": np.round(100 * at[:, gauges.USED] / max(blocks, 1), 1),
        "hit_percent": np.round(100 * at[:, gauges.HITS] / np.maximum(at[:, gauges.QUERIES], 1), 1),
        "prompt_tokens_per_s": np.round(made[:, prompt], 1), "generation_tokens_per_s": np.round(made[:, gauges.GENERATED], 1),
    }


def _mismatch(log: _Log, predicted: dict[str, Floats]) -> float:
    """How badly the clocks meet: errors of running requests and generated tokens, as shares of what was seen.

    At all lines, those before and after the simulation among them, so that every offset is judged by the same.
    """
    return sum(float(np.abs(predicted[name] - log.seen[name]).sum()) / max(float(log.seen[name].sum()), 1.0)
               for name in ("running", "generation_tokens_per_s"))
