"""Which processes belong to which benchmark: BENCHMARKS is the only list."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.benchmarks import child, traffic
from experiments.benchmarks.peers import PEERS
from experiments.benchmarks.processes import ROOT, Job
from experiments.benchmarks.recorded import RECORDED, WORKLOADS
from experiments.benchmarks.tables import FLOOR
from workloads.readers import read_trace
from workloads.request import Trace
from workloads.writers import write_trace

OURS = "pagedsim"
LRU_BLOCKS = 100_000
POOLS = {"dynamo": 4_096, "conversation": 65_536}
REQUESTS, MANY_REQUESTS = (10_000, 30_000, 100_000), (1_000_000, 10_000_000)
BLOCKS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
SCALE_BLOCKS, SCALE_REQUESTS = 20_000, 20_000
NO_TRACE = "no --mooncake FILE"


@dataclass(frozen=True)
class Plan:
    """What all benchmarks are made from.

    Parameters
    ----------
    folder : Path
        Where files go that are read by the processes.
    mooncake : str, optional
        Mooncake's conversation trace.
    peers : str, optional
        The folder of the peers' environments.
    absent : dict
        For each peer why it is left out, or None.
    large : bool
        Whether a million and ten million requests are wanted too.
    """

    folder: Path
    mooncake: str | None
    peers: str | None
    absent: dict[str, str | None]
    large: bool = False

    def ours(self, *arguments: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "experiments.benchmarks.child", *arguments)

    def peer(self, name: str, *arguments: str) -> tuple[str, ...]:
        """A driver under the peer's own Python; nothing where that is absent."""
        if self.absent[name] is not None or self.peers is None:
            return ()
        return (str(PEERS[name].python(self.peers)), *arguments)


# ---------------------------------------------------------------------- vLLM's recorded runs
def recorded_jobs(name: str, plan: Plan) -> list[Job]:
    """Our replay, an installed vLLM, and what vLLM took when it was recorded."""
    expected = RECORDED[name]
    file = () if expected.workload != "mooncake" else (plan.mooncake,) if plan.mooncake else None
    skipped = NO_TRACE if file is None else None
    count = 0 if file is None else len(WORKLOADS[expected.workload](*file))
    ours = Job(name, OURS, plan.ours("run", name, *(file or ())), skipped, count, expected=expected.totals)
    absent = skipped or plan.absent["vllm"]
    command: tuple[str, ...] = ()
    if absent is None:
        path = plan.folder / f"{name}.json"
        path.write_text(json.dumps(traffic.case(WORKLOADS[expected.workload](*(file or ())), expected.config())))
        command = plan.peer("vllm", str(ROOT / "tests" / "oracle" / "record.py"), "-o", str(plan.folder / "recorded"), str(path))
    known = {"wall_s": expected.vllm_s, "peak_mib": float(expected.vllm_peak_mib), "totals": expected.totals}
    vllm = PEERS["vllm"].title
    return [ours, Job(name, vllm, command, absent, count, once=True),
            Job(name, f"{vllm}, when recorded", count=count, known=known)]


# ---------------------------------------------------------------------- the same file for Dynamo and us
def replay_jobs(name: str, plan: Plan) -> list[Job]:
    """``pagedsim compare``, Dynamo's replay of the same Mooncake file, steps of 20 ms, and what cannot be undercut."""
    title, driver = PEERS["dynamo"].title, ("-m", "experiments.benchmarks.drivers.dynamo")
    names = (OURS, FLOOR, f"{title}, steps of 20 ms", f"{title}, its own step times")
    if name == "conversation" and plan.mooncake is None:
        return [Job(name, system, skipped=NO_TRACE) for system in names]
    path = str(plan.folder / f"{name}.jsonl")
    trace = traffic.poisson() if name == "dynamo" else read_trace(str(plan.mooncake))
    if name == "dynamo":
        write_mooncake(trace, path)
    else:
        path = str(plan.mooncake)
    blocks, count = str(POOLS[name]), len(trace)
    ours = compare_arguments(path, blocks)
    return [Job(name, OURS, plan.ours("compare", *ours), count=count), Job(name, FLOOR, plan.ours("floor", path), count=count),
            *(Job(name, system, plan.peer("dynamo", *driver, path, blocks, timing), plan.absent["dynamo"], count)
              for system, timing in zip(names[2:], ("fixed", "default"), strict=True))]


def compare_arguments(path: str, blocks: str) -> tuple[str, ...]:
    """What ``compare`` is told: the limits are 256 sequences and 8,192 tokens a step, a step takes 20 ms."""
    return (path, "--num-gpu-blocks-override", blocks, "--allocator", "paged-prefix", "--step-time", "constant:20ms", "-q")


def write_mooncake(trace: Trace, path: str) -> None:
    """A trace as a file that Dynamo reads too."""
    with open(path, "w", encoding="utf-8") as file:
        write_trace(trace, "mooncake", file)


# ---------------------------------------------------------------------- the cache view
def lru_jobs(name: str, plan: Plan) -> list[Job]:
    """An LRU cache over the block accesses of the shared requests: every size at once, and one size."""
    blocks = child.shared_accesses()
    path = plan.folder / "accesses.oracleGeneral"
    if plan.absent["libcachesim"] is None:
        _oracle_general(blocks).tofile(path)
    peer = plan.peer("libcachesim", "-m", "experiments.benchmarks.drivers.libcachesim", str(path), str(LRU_BLOCKS))
    made = [Job(name, f"{OURS}, exact curve of all sizes", plan.ours("curve", str(LRU_BLOCKS))),
            Job(name, f"{OURS}, replay of one size", plan.ours("lru", str(LRU_BLOCKS))),
            Job(name, f"{PEERS['libcachesim'].title}, LRU of one size", peer, plan.absent["libcachesim"])]
    return [replace(job, count=len(blocks), of="block accesses") for job in made]


def _oracle_general(blocks: np.ndarray) -> np.ndarray:
    """Second, object, size, next access, as libCacheSim reads them; LRU looks at none but the object."""
    rows = np.zeros(len(blocks), np.dtype([("s", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")]))
    rows["object"], rows["size"], rows["next"] = blocks + 1, 1, -2
    return rows


# ---------------------------------------------------------------------- scale
def request_scale_jobs(name: str, plan: Plan) -> list[Job]:
    """Ten thousand to a hundred thousand requests, or ten million."""
    counts = (*REQUESTS, *MANY_REQUESTS) if plan.large else REQUESTS
    return [_scale(name, plan, n, SCALE_BLOCKS) for n in counts]


def block_scale_jobs(name: str, plan: Plan) -> list[Job]:
    """A thousand to ten million blocks."""
    return [_scale(name, plan, SCALE_REQUESTS, blocks) for blocks in BLOCKS]


def _scale(name: str, plan: Plan, requests: int, blocks: int) -> Job:
    return Job(name, OURS, plan.ours("scale", str(requests), str(blocks)), count=requests, once=True,
               known={"num_blocks": blocks})


Make = Callable[[str, Plan], list[Job]]
BENCHMARKS: dict[str, Make] = {
    **dict.fromkeys(RECORDED, recorded_jobs), **dict.fromkeys(POOLS, replay_jobs), "lru": lru_jobs,
    "requests": request_scale_jobs, "blocks": block_scale_jobs}
