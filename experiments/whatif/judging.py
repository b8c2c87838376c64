"""Whether a value keeps its promises: what is judged, and on what rows.

A value keeps a promise if the metric's upper confidence bound over the seeds is at most the limit (with one seed: the metric
itself), and no more requests are rejected or left unfinished than in the grid's own run of the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.statistics import estimate
from experiments.whatif.search_spec import Search
from experiments.whatif.simulate import METRICS
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


def spared(rows: Sequence[Row]) -> dict[str, list[int]]:
    """How many requests each seed rejects or leaves whatever is searched for; none where the grid's own point does not run."""
    return {name: [row[name] if row["status"] == DONE else 0 for row in rows] for name in SPARED}


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
          excused: Mapping[str, Sequence[int]]) -> Verdict:
    """Whether the rows of one setting, a row a seed, keep every promise; ``excused`` requests of a seed count for nothing."""
    failed = next((row for row in rows if row["status"] != DONE), None)
    if failed is not None:
        return Verdict(settings, False, {}, str(failed["error"]), failed["status"] == LOST)
    given = {promise.metric for promise in search.keep}
    metrics: dict[str, tuple[float, float]] = {}
    reasons = []
    for name in SPARED:
        more = max(row[name] - allowed for row, allowed in zip(rows, excused[name], strict=True))
        if more > 0 and name not in given:
            reasons.append(f"{more:,} more {name} than without the search")
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
    return Verdict(settings, not reasons, metrics, "; ".join(reasons), False, rows[0].get("gpus"), rows[0].get("kv_gib"))
