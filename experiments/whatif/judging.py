"""Whether a value keeps its promises: what is judged, and on what rows.

A value keeps a promise if the metric's upper confidence bound over the seeds is at most the limit (with one seed: the metric
itself), and no more requests are rejected or left unfinished than in the grid's own run of the same seed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.whatif.search_spec import Search
from experiments.whatif.simulate import METRICS
from experiments.whatif.statistics import estimate
from experiments.whatif.store import DONE, LOST, Row
from experiments.whatif.values import Scalar
from sim.memory.allocator import PARTS

SPARED = ("rejected", "unfinished")
TOO_LITTLE = {"num-gpu-blocks-override": "larger_than_pool", "max-num-seqs": "more_sequences_than_max_num_seqs",
              "max-model-len": "prompt_not_below_max_model_len"}
"""Option -> why requests are rejected where it is too small."""
OF_POOL = (*PARTS, "useful_of_allocated", "kv_usage_mean")
"""Metrics that change with the size of the pool even where nothing that happens does."""
JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """One value that was tried: whether it keeps every promise, what each metric came to, why not, and what it is in hardware.

    ``lost``: it could not be run here (no memory, a worker that vanished), which says nothing of the promises.
    """

    settings: Mapping[str, Scalar]
    kept: bool
    metrics: Mapping[str, tuple[float, float]]
    why: str = ""
    lost: bool = False
    gpus: int | None = None
    kv_gib: float | None = None

    def json(self) -> JsonObject:
        """Metrics as mean and upper bound."""
        return {"settings": dict(self.settings), "gpus": self.gpus, "kv_gib": self.kv_gib, "kept": self.kept,
                "why": self.why or None,
                "metrics": {name: {"mean": mean, "upper": upper} for name, (mean, upper) in self.metrics.items()}}


def spared(rows: Sequence[Row]) -> dict[str, list[int] | None]:
    """How many requests each seed rejects or leaves whatever is searched for; None where the grid's own points do not run."""
    ran = all(row["status"] == DONE for row in rows)
    return {name: [row[name] for row in rows] if ran else None for name in SPARED}


def nearest(search: Search, tried: Sequence[Verdict]) -> Verdict | None:
    """Of values that all break a promise, the one that is nearest to keeping all: that one says most about why.

    >>> from experiments.whatif.search_spec import read_search
    >>> tried = [Verdict({"pool": n}, False, {"queue_p99_s": (q, q)}, "") for n, q in ((1, 9.0), (2, 3.0), (4, 3.0), (8, 5.0))]
    >>> nearest(read_search({"smallest": "pool", "keep": "queue p99 <= 1 s"}), [*tried, Verdict({}, False, {})]).settings
    {'pool': 2}
    """
    def distance(verdict: Verdict) -> tuple[int, float]:
        measured = [(verdict.metrics[promise.metric][1], promise.most) for promise in search.keep
                    if promise.metric in verdict.metrics]
        over = [(upper - most) / (most or 1) for upper, most in measured]
        return len(search.keep) - len(over), max(over, default=math.inf)
    return min(tried, key=distance, default=None)


def same_run(option: str, rows: Sequence[Row], others: Sequence[Row]) -> bool:
    """Whether two values of an option brought about the same runs, seed by seed, rejecting nobody whom more of it may serve."""
    what = [name for name in METRICS if name not in OF_POOL]
    return all(row["status"] == other["status"] == DONE and all(row[name] == other[name] for name in what)
               and not _rejected(other).get(TOO_LITTLE.get(option, "")) for row, other in zip(rows, others, strict=True))


def _rejected(row: Row) -> dict[str, int]:
    """Reason -> requests."""
    rejected: dict[str, int] = json.loads(row["result"])["scenarios"][0]["requests"]["rejected"]
    return rejected


def judge(search: Search, settings: Mapping[str, Scalar], rows: Sequence[Row], confidence: float,
          excused: Mapping[str, Sequence[int] | None]) -> Verdict:
    """Whether the rows of one setting, a row a seed, keep every promise; ``excused`` requests of a seed count for nothing."""
    failed = next((row for row in rows if row["status"] != DONE), None)
    if failed is not None:
        return Verdict(settings, False, {}, str(failed["error"]), lost=failed["status"] == LOST)
    given = {promise.metric for promise in search.keep}
    metrics: dict[str, tuple[float, float]] = {}
    reasons = []
    for name in SPARED:
        allowed = excused[name]
        more = max(row[name] - known for row, known in zip(rows, allowed or [0] * len(rows), strict=True))
        if more > 0 and name not in given:
            reasons.append(f"{more:,} {name}" if allowed is None else f"{more:,} more {name} than without the search")
    for promise in search.keep:
        values = [row[promise.metric] for row in rows]
        if any(value is None for value in values):
            reasons.append(f"{promise}: nothing was measured")
            continue
        found = estimate(values, confidence)
        assert found.mean is not None
        mean, bound = found.mean, found.below(confidence)
        upper = mean if bound is None else bound
        metrics[promise.metric] = (mean, upper)
        if upper > promise.most:
            reasons.append(f"{promise} is broken: {mean:.4g}" + (f", at most {upper:.4g}" if len(values) > 1 else ""))
    return Verdict(settings, not reasons, metrics, "; ".join(reasons), gpus=rows[0].get("gpus"), kv_gib=rows[0].get("kv_gib"))
