"""Benchmark, apart from the tests: 20,000 lognormal requests handed over at once, 28,000 blocks, as vLLM's own scheduler
was recorded on them (its totals must come out exactly; it took 81 s without a model).

    python -m experiments.benchmark [REPEATS]
"""

from __future__ import annotations

import random
import statistics
import sys
import time

import numpy as np

from sim.config import SimConfig
from sim.engine import Engine
from sim.run import Run
from sim.scheduler_config import SchedulerConfig
from sim.step_time import ConstantStepTime
from workloads.request import Trace

RECORDED = {"steps": 18_355, "evicted": 1_468_942, "peak_running": 256, "peak_used_blocks": 21_754, "preemptions": 0}
CONFIG = SimConfig(num_blocks=28_000, max_model_len=131_072, step_time=ConstantStepTime(1),
                   scheduler=SchedulerConfig(max_num_seqs=256, max_num_batched_tokens=8192))


def lognormal_trace(requests: int = 20_000) -> Trace:
    """Prompts of mean 1,000 and outputs of mean 200 tokens, sigma 0.8, all at time 0; the same on every Python."""
    rng, sigma = random.Random(0), 0.8

    def draw(mean: int) -> int:
        return max(1, round(rng.lognormvariate(0, sigma) * mean / 2.718281828 ** (sigma**2 / 2)))
    rows = [(min(draw(1000), 16_000), min(draw(200), 4_000)) for _ in range(requests)]
    prompt, output = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Trace("20,000 lognormal requests at once", prompt, output, arrival_us=np.zeros(requests, np.int64))


def replay(trace: Trace) -> Run:
    """One run of ``paged-prefix`` under the recorded configuration."""
    return Engine(trace, CONFIG, "paged-prefix").run()


def totals(run: Run) -> dict[str, int]:
    """What `RECORDED` holds, of a run."""
    return {"steps": run.steps, "evicted": run.allocator.pool.evicted, "peak_running": run.ledger.peak_running,
            "peak_used_blocks": run.ledger.peak_used // CONFIG.block_size, "preemptions": run.preemptions}


def main() -> int:
    """Print the median of a few runs; 1 if the totals differ from the recorded ones."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    trace, seconds = lognormal_trace(), []
    for _ in range(repeats):
        started = time.perf_counter()
        run = replay(trace)
        seconds.append(time.perf_counter() - started)
        if totals(run) != RECORDED:
            print(f"totals differ: {totals(run)}, recorded {RECORDED}", file=sys.stderr)
            return 1
    median = statistics.median(seconds)
    print(f"{len(trace):,} requests, {run.steps:,} steps: median {median:.2f} s of {repeats} runs "
          f"({len(trace) / median:,.0f} requests/s, {run.steps / median:,.0f} steps/s), totals as recorded; "
          f"spread {min(seconds):.2f} to {max(seconds):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
