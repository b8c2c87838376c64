"""A metrics page beside the simulation of its traffic, and what follows from the page alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.calibration.cases import latencies
from experiments.calibration.metrics_page import Engine
from sim.request_log import NEVER
from sim.result import prefix_cache
from sim.run import Run

TIMES = {"ttft": "mean time to first token", "tpot": "mean time per output token", "itl": "mean time between tokens",
         "queue": "mean time in the queue", "e2e": "mean end-to-end time"}


@dataclass(frozen=True)
class PageLine:
    """One number of the page and, where there is a simulation, ours."""

    name: str
    unit: str
    seen: float
    predicted: float | None = None

    def json(self) -> dict[str, Any]:
        """As it goes into the result."""
        known = self.predicted is not None
        return {"name": self.name, "unit": self.unit, "seen": self.seen, "predicted": self.predicted,
                "difference": None if self.predicted is None else self.predicted - self.seen,
                "relative": None if not known or not self.seen else self.predicted / self.seen - 1}  # type: ignore[operator]


def page_lines(engine: Engine, run: Run | None, slots: int | None, elapsed_s: float | None) -> list[PageLine]:
    """Counters, means and gauges of a page.

    Parameters
    ----------
    engine : Engine
    run : Run or None
        The same traffic, simulated.
    slots : int or None
        Tokens the pool holds, where it is known.
    elapsed_s : float or None
        How long the counters have been counting.
    """
    return [*_counters(engine, run), *_times(engine, run), *_derived(engine, slots, elapsed_s)]


def _counters(engine: Engine, run: Run | None) -> Iterator[PageLine]:
    ours = {} if run is None else _totals(run)
    for key, name, unit in (("succeeded", "requests completed", ""), ("prompt_tokens", "prompt tokens", "tokens"),
                            ("generation_tokens", "generated tokens", "tokens"), ("preemptions", "preemptions", "")):
        if key in engine.values:
            yield PageLine(name, unit, engine.values[key], ours.get(key))
    queries = engine.values.get("query_tokens")
    if queries:
        yield PageLine("prefix cache hit rate", "% of tokens", 100 * engine.values.get("hit_tokens", 0.0) / queries,
                       ours.get("hit_percent"))


def _totals(run: Run) -> dict[str, float]:
    done = run.log.finished_us != NEVER
    cache = prefix_cache(run)
    return {"succeeded": float(done.sum()), "prompt_tokens": float(run.demand.prompt[done].sum()),
            "generation_tokens": float(run.demand.output[done].sum()), "preemptions": float(run.preemptions),
            "hit_percent": 0.0 if cache is None else 100 * cache["hit_rate"]}


def _times(engine: Engine, run: Run | None) -> Iterator[PageLine]:
    ours = {} if run is None else latencies(run)
    for key, name in TIMES.items():
        mean = engine.totals[key].mean if key in engine.totals else None
        known = ours[key][~np.isnan(ours[key])] if key in ours else ()
        if mean is not None:
            yield PageLine(name, "s", mean, float(np.mean(known)) if len(known) else None)


def _derived(engine: Engine, slots: int | None, elapsed_s: float | None) -> Iterator[PageLine]:
    running, usage = engine.values.get("running"), engine.values.get("usage")
    for key, name in (("running", "running at this moment"), ("waiting", "waiting at this moment")):
        if key in engine.values:
            yield PageLine(name, "requests", engine.values[key])
    if usage is not None:
        yield PageLine("KV cache usage at this moment", "% of the pool", 100 * usage)
        if slots is not None:
            yield PageLine("tokens held at this moment", "tokens", usage * slots)
            if running:
                yield PageLine("tokens held by each running request", "tokens", usage * slots / running)
    if elapsed_s is not None and "e2e" in engine.totals:
        yield PageLine("requests in the server on average (Little)", "requests", engine.totals["e2e"].sum / elapsed_s)
        if "queue" in engine.totals:
            yield PageLine("requests in the queue on average (Little)", "requests", engine.totals["queue"].sum / elapsed_s)
