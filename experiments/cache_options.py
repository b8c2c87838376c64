"""What a prefix cache begins with and what lies behind it: options, notes and JSON of a warm start and a tier in host memory."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from experiments import options as opt
from experiments.output import real
from experiments.reading import read
from sim import kv_formula
from sim.catalog import CACHING
from sim.config import HostMemory, SimConfig
from sim.result import tier_counts
from sim.run import Run
from sim.sizing.hardware import GIB
from sim.warm import check_warm
from workloads.messages import show_path
from workloads.request import InputError, Trace

DEFAULT_GB_PER_S = 25.0                                # a PCIe 4.0 x16 link as it is reached; 31.5 by the standard


def add_cache(parser: argparse.ArgumentParser) -> None:
    """The tier in host memory and the warm start of ``paged-prefix``."""
    parser.set_defaults(tries_tiers=False)             # `prefix` tries several tiers by itself, over the same link
    group = parser.add_argument_group("prefix cache (paged-prefix)")
    group.add_argument("--host-cache-gib", type=opt.number(0, 1e9, including=True), metavar="GIB",
                       help="host memory a GPU to which evicted blocks move and from which they are loaded (default: none)")
    group.add_argument("--host-bandwidth", type=opt.number(1e-3, 1e6, including=True), metavar="GBPS",
                       help=f"GB/s (10^9 bytes) from host to each GPU (default {DEFAULT_GB_PER_S:g}: PCIe 4.0 x16 as reached)")
    group.add_argument("--warm-trace", metavar="FILE", help="an earlier trace, its requests served one after another: what they "
                       "left in the cache is there at the start (content ids of one kind with those of TRACE)")


def host_memory(options: argparse.Namespace, per_token: int | None, notes: list[str]) -> HostMemory | None:
    """The tier that was asked for; ``per_token`` are the bytes of a token on one GPU.

    Raises
    ------
    InputError
        Where there is no use for it, or its blocks have no size.
    """
    if options.host_cache_gib is None:
        if options.host_bandwidth is not None and not options.tries_tiers:
            raise InputError("--host-bandwidth is for --host-cache-gib")
        return None
    _refuse_without_cache(options, "--host-cache-gib")
    if options.preemption_mode == "swap":
        raise InputError("--host-cache-gib and --preemption-mode swap do not go together")
    if per_token is None:
        raise InputError("--host-cache-gib without a --model: the bytes of a block are not known")
    memory = host_tier(options, per_token, options.host_cache_gib)
    if options.host_cache_gib and not memory.blocks:
        raise InputError(f"--host-cache-gib {options.host_cache_gib:g}: a block takes {memory.bytes_per_block:,} bytes")
    notes.append(f"behind paged-prefix {memory.blocks:,} blocks of host memory, {memory.bytes_per_block:,} bytes each on every "
                 f"GPU, loaded at {memory.bytes_per_s / 1e9:g} GB/s = {memory.load_us(1000) / 1000:,.1f} us a block; moving "
                 "down is free, loading overlaps with nothing")
    return memory


def host_tier(options: argparse.Namespace, per_token: int, gib: float) -> HostMemory:
    """A tier of ``gib`` GiB a GPU behind the link that the options say; ``per_token`` bytes a token on a GPU."""
    block_bytes = kv_formula.kv_bytes_per_block(per_token, options.block_size)
    rate = DEFAULT_GB_PER_S if options.host_bandwidth is None else options.host_bandwidth
    return HostMemory(int(gib * GIB) // block_bytes, block_bytes, max(1, round(rate * 1e9)))


def warm_trace(options: argparse.Namespace, trace: Trace) -> Trace | None:
    """The earlier trace, read as the trace itself is.

    Raises
    ------
    InputError
        If it cannot be read, or its ids name other blocks than the trace's.
    """
    if options.warm_trace is None:
        return None
    _refuse_without_cache(options, "--warm-trace")
    if options.trace is None:
        raise InputError("--warm-trace is for a trace file, and none was given")
    if options.warm_trace == "-":
        raise InputError("--warm-trace -: only the trace itself comes from standard input")
    if options.synth_prefix is not None:
        raise InputError("--warm-trace and --synth-prefix do not go together: ids that are made up name nothing in another file")
    rows, asked = read(options, options.warm_trace)
    warm = rows.to_trace(asked)
    try:
        check_warm(trace, warm)
    except ValueError as error:
        raise InputError(f"--warm-trace: {error}") from None
    if real(options.warm_trace) != real(options.trace):
        _refuse_local(trace, warm)
    return warm


def _refuse_without_cache(options: argparse.Namespace, name: str) -> None:
    if not (set(CACHING) & set(options.allocator) if options.allocator else options.enable_prefix_caching):
        raise InputError(f"{name} is for {', '.join(CACHING)}, which is not among the allocators")


def _refuse_local(*traces: Trace) -> None:
    """Ids numbered while reading are equal in two files by accident only."""
    for trace in traces:
        if trace.content is not None and trace.content.local:
            raise InputError(f"--warm-trace: the ids of {show_path(trace.source)} are numbered as it is read and name nothing in "
                             "another file")


# ---------------------------------------------------------------------- what came of it
def cache_notes(runs: Mapping[str, Run]) -> Iterator[str]:
    """What people should know of each run that began warm or had a tier."""
    for name, run in runs.items():
        if run.warm is not None:
            skipped = f" ({run.warm.skipped:,} could not be)" if run.warm.skipped else ""
            behind = f" and {run.warm.host_blocks:,} on the host" if run.config.tier_blocks else ""
            yield (f"{name} began warm: {run.warm.served:,} earlier requests served{skipped}, {run.warm.cached_blocks:,} blocks "
                   f"cached{behind}")
        counts = tier_counts(run)
        if counts is not None:
            host = counts["host_hit_tokens"] + counts["resume_host_hit_tokens"]
            every = host + counts["gpu_hit_tokens"] + counts["resume_gpu_hit_tokens"]
            yield (f"{name}: {host:,} of {every:,} hit tokens, resumes included, came from host memory: "
                   f"{counts['loaded_blocks']:,} blocks loaded in {counts['load_us'] / 1e6:,.3f} s; "
                   f"{counts['copied_down']:,} moved down, {counts['dropped_from_host']:,} dropped there")


def cache_json(sim: SimConfig, warm: Trace | None, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Further entries of ``config``: none, unless a tier or a warm start was asked for."""
    made: dict[str, Any] = {}
    if sim.host_memory is not None:
        counts = {name: tier_counts(run) for name, run in runs.items()}
        made["host_cache"] = {**asdict(sim.host_memory), "counts": {n: c for n, c in counts.items() if c is not None}}
    if warm is not None:
        left = {name: run.warm._asdict() for name, run in runs.items() if run.warm is not None}
        made["warm_start"] = {"source": warm.source, "requests": len(warm), "left": left}
    return made
