"""One measured piece of work in a process of its own: ``python -m experiments.benchmarks.child TASK ARGUMENTS``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments import cli
from experiments.benchmarks import recorded, traffic
from experiments.benchmarks.said import say
from sim.caching.curve import lru_hits, reuse_distances
from sim.caching.policies import Lru
from sim.caching.replay import replay
from sim.caching.stream import accesses
from sim.config import SimConfig
from sim.engine import Engine

BLOCK_SIZE = 16
Said = dict[str, Any]


def compare(*arguments: str) -> Said:
    """The whole command ``pagedsim compare``, cross-checks and report included."""
    if cli.main(["compare", *arguments]) != 0:
        raise SystemExit(f"pagedsim compare {' '.join(arguments)} failed")
    return {}


def run(name: str, *file: str) -> Said:
    """One recorded run; ``work_cpu_s`` is the replay without making the trace."""
    expected = recorded.RECORDED[name]
    trace = recorded.WORKLOADS[expected.workload](*file)
    made, seconds = _timed(lambda: recorded.replay(trace, expected))
    return {"totals": recorded.totals(made), "work_cpu_s": seconds}


def scale(requests: str, blocks: str) -> Said:
    """Many requests, or a large pool: ``paged-prefix`` under 256 sequences and 8,192 tokens a step of 20 ms."""
    trace = traffic.poisson(int(requests), ids=False)
    config = SimConfig(int(blocks), BLOCK_SIZE, max_model_len=8_192)
    made, seconds = _timed(lambda: Engine(trace, config, "paged-prefix").run())
    return {"totals": {"steps": made.steps, "preemptions": made.preemptions}, "work_cpu_s": seconds}


def curve(size: str) -> Said:
    """Hits of an LRU cache of every size at once, and those of one size."""
    stream = accesses(traffic.shared(), BLOCK_SIZE)
    every = np.ones(len(stream), np.bool_)
    hits, seconds = _timed(lambda: lru_hits(stream, reuse_distances(stream), every))
    return {"totals": {"hits": int(hits[min(int(size), stream.count)])}, "work_cpu_s": seconds}


def lru(size: str) -> Said:
    """Hits of an LRU cache of one size, as `pagedsim prefix --policy lru` replays it."""
    stream = accesses(traffic.shared(), BLOCK_SIZE)
    made, seconds = _timed(lambda: replay(stream, Lru(int(size), stream)))
    return {"totals": {"hits": made.found}, "work_cpu_s": seconds}


def shared_accesses() -> Any:
    """The block accesses of `traffic.shared` in order, for whoever else is to replay them; shape (accesses,)."""
    return accesses(traffic.shared(), BLOCK_SIZE).blocks


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    return work(), time.process_time() - started


TASKS: dict[str, Callable[..., Said]] = {task.__name__: task for task in (compare, run, scale, curve, lru)}

if __name__ == "__main__":
    say(TASKS[sys.argv[1]](*sys.argv[2:]))
