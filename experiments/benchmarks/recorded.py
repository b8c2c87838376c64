"""What vLLM 0.33's own scheduler, without a model, did with whole runs of 12,000 to 20,000 requests: our totals must be equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from experiments.benchmarks import traffic
from sim.config import SimConfig
from sim.engine import Engine
from sim.run import Run
from sim.scheduler_config import SchedulerConfig
from sim.step_time import ConstantStepTime
from workloads.request import Trace

Totals = dict[str, int | float]
LIMITS = {"block_size": 16, "max_num_batched_tokens": 8192, "max_num_seqs": 256, "max_model_len": 131_072}
NAMES = ("steps", "new_blocks", "touched", "preemptions", "evicted", "hit_rate", "peak_running", "peak_used_blocks")


@dataclass(frozen=True)
class Recorded:
    """One recorded run.

    Parameters
    ----------
    workload : str
        A name in WORKLOADS.
    num_blocks : int
        Null block included.
    totals : dict
        Counts under the recorder's names; ``hit_rate`` is a share of tokens, rounded to four digits.
    vllm_s : float
        Wall time it took when it was recorded, once, on a machine like the one that wrote the tables, but not in the same run.
    vllm_peak_mib : int
        Peak memory then.
    async_scheduling : bool
    """

    workload: str
    num_blocks: int
    totals: Totals
    vllm_s: float
    vllm_peak_mib: int
    async_scheduling: bool = False

    def config(self) -> dict[str, Any]:
        """The configuration under vLLM's names, as a case holds it."""
        return LIMITS | {"num_blocks": self.num_blocks, "async_scheduling": self.async_scheduling}


WORKLOADS: dict[str, Callable[..., Trace]] = {
    "lognormal": traffic.lognormal, "shared": traffic.shared, "mooncake": traffic.mooncake}


def _totals(*values: float) -> Totals:
    return dict(zip(NAMES, values, strict=True))


RECORDED = {
    "lognormal": Recorded("lognormal", 28_000, _totals(18_355, 1_515_773, 0, 0, 1_468_942, 0.0, 256, 21_754), 80.83, 2_027),
    "lognormal-async": Recorded("lognormal", 28_000, _totals(18_433, 1_515_773, 0, 0, 1_468_942, 0.0, 256, 21_811), 85.86, 2_024,
                                async_scheduling=True),
    "shared": Recorded("shared", 100_000, _totals(21_012, 3_700_182, 8_304_796, 0, 3_581_429, 0.7044, 190, 67_044), 119.11,
                       1_024),
    "shared-tight": Recorded("shared", 30_000, _totals(41_081, 5_913_026, 6_293_447, 350, 5_863_947, 0.5171, 135, 29_999), 142.68,
                             2_937),
    "mooncake": Recorded("mooncake", 100_000, _totals(34_017, 8_694_908, 698_556, 110, 8_583_511, 0.0685, 170, 99_999), 139.78,
                         1_874),
}


def replay(trace: Trace, recorded: Recorded) -> Run:
    """One run of ``paged-prefix`` under the recorded configuration; a step takes a microsecond, so arrivals are steps."""
    limits = SchedulerConfig(max_num_seqs=LIMITS["max_num_seqs"], max_num_batched_tokens=LIMITS["max_num_batched_tokens"],
                             async_scheduling=recorded.async_scheduling)
    config = SimConfig(recorded.num_blocks, LIMITS["block_size"], LIMITS["max_model_len"], scheduler=limits,
                       step_time=ConstantStepTime(1))
    return Engine(trace, config, "paged-prefix").run()


def totals(run: Run) -> Totals:
    """What `Recorded.totals` holds, of a run."""
    pool, stats = run.allocator.pool, run.allocator.stats  # type: ignore[attr-defined]
    return _totals(run.steps, pool.taken, pool.touched, run.preemptions, pool.evicted,
                   round(stats.hit_tokens / stats.query_tokens, 4), run.ledger.peak_running,
                   run.ledger.peak_used // LIMITS["block_size"])
