"""One measured piece of work in a process of its own: ``python -m experiments.benchmarks.child TASK ARGUMENTS``.

What a task does not need is not loaded, so that ``compare`` starts as the command does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from experiments import cli
from experiments.benchmarks.said import say
from workloads.later import Later

if TYPE_CHECKING:
    from experiments.benchmarks import recorded, traffic
    from sim import config, engine
    from sim.caching import curve as curves
    from sim.caching import policies, stream
    from sim.caching import replay as replays
    from workloads import readers
else:
    recorded, traffic, config, engine, curves, policies, replays, stream, readers = map(Later, (
        "experiments.benchmarks.recorded", "experiments.benchmarks.traffic", "sim.config", "sim.engine", "sim.caching.curve",
        "sim.caching.policies", "sim.caching.replay", "sim.caching.stream", "workloads.readers"))

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
    trace = traffic.azure(int(requests))
    server, make = config.SimConfig(int(blocks), BLOCK_SIZE, max_model_len=15_872), engine.Engine
    made, seconds = _timed(lambda: make(trace, server, "paged-prefix").run())
    return {"totals": {"steps": made.steps, "preemptions": made.preemptions}, "work_cpu_s": seconds}


def floor(path: str) -> Said:
    """One pass over the block ids of a trace and nothing else: each request's go from a queue into its table and back again."""
    import numpy as np
    trace = readers.read_trace(path)
    counts = (-(-(trace.prompt_tokens + trace.output_tokens - 1) // BLOCK_SIZE)).tolist()
    longest = max(counts)
    queue, table = np.arange(sum(counts) + longest), np.zeros(longest, np.int64)

    def passed() -> int:
        at = 0
        for n in counts:
            table[:n] = queue[at:at + n]
            queue[at:at + n] = table[:n]
            at += n
        return at
    blocks, seconds = _timed(passed)
    return {"totals": {"blocks": blocks}, "work_cpu_s": seconds}


def curve(size: str) -> Said:
    """Hits of an LRU cache of every size at once, and those of one size."""
    import numpy as np
    asked = stream.accesses(traffic.shared(), BLOCK_SIZE)
    every, hits_of, distances = np.ones(len(asked), np.bool_), curves.lru_hits, curves.reuse_distances
    hits, seconds = _timed(lambda: hits_of(asked, distances(asked), every))
    return {"totals": {"hits": int(hits[min(int(size), asked.count)])}, "work_cpu_s": seconds}


def lru(size: str) -> Said:
    """Hits of an LRU cache of one size, as `pagedsim prefix --policy lru` replays it."""
    asked = stream.accesses(traffic.shared(), BLOCK_SIZE)
    replay, make = replays.replay, policies.Lru
    made, seconds = _timed(lambda: replay(asked, make(int(size), asked)))
    return {"totals": {"hits": made.found}, "work_cpu_s": seconds}


def shared_accesses() -> Any:
    """The block accesses of `traffic.shared` in order, for whoever else is to replay them; shape (accesses,)."""
    return stream.accesses(traffic.shared(), BLOCK_SIZE).blocks


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    return work(), time.process_time() - started


TASKS: dict[str, Callable[..., Said]] = {task.__name__: task for task in (compare, run, scale, floor, curve, lru)}

if __name__ == "__main__":
    say(TASKS[sys.argv[1]](*sys.argv[2:]))
