"""Host memory behind today's pool: hit rate and first token by its size, through the engine.

    GPU    [ today's pool: paged-prefix ]     evicted blocks move down, found ones are loaded again
    host   [ tier of some GiB a GPU     ]     every rank loads its own share of a block over its own link
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from experiments.cache_options import host_tier
from experiments.numbers import percent, show
from experiments.prefix_caching.serving import Watch, facts_of
from experiments.setup import Setup
from experiments.shown import TextTable, Titled
from sim.result import tier_counts
from sim.sizing.hardware import GIB

JsonObject = dict[str, Any]
TIMES = (1, 4, 16)
"""Sizes unless others are asked for, times today's pool."""


def tiers(setup: Setup, options: argparse.Namespace, served: JsonObject | None, watch: Watch) -> JsonObject | None:
    """Today's pool without and with tiers of several sizes; None where the bytes of a block are not known,
    nothing is served, or preempted requests are swapped (a tier and swapping do not go together).

    Parameters
    ----------
    setup : Setup
        Without a tier.
    options : Namespace
        ``host_cache_gib`` is the one size to try, if any.
    served : dict or None
        What `serving.serving` found: its run without a tier is not made again.
    """
    per_token = setup.kv_bytes_per_token
    if per_token is None or served is None or setup.sim.scheduler.swap_blocks is not None:
        return None
    pool_gib = (setup.sim.num_blocks - 1) * per_token * setup.sim.block_size / GIB
    asked = [options.host_cache_gib] if options.host_cache_gib else [pool_gib * times for times in TIMES]
    rows = [_row(0.0, 0, served["with"], None), *(_tier(setup, options, per_token, gib, watch) for gib in asked)]
    made = host_tier(options, per_token, pool_gib)
    return {"bandwidth_bytes_per_s": made.bytes_per_s, "bytes_per_block": made.bytes_per_block, "load_us_per_block":
            made.load_us(1000) / 1000, "rows": rows}


def _tier(setup: Setup, options: argparse.Namespace, per_token: int, gib: float, watch: Watch) -> JsonObject:
    memory = host_tier(options, per_token, gib)
    sized = replace(setup, sim=replace(setup.sim, host_memory=memory))
    run, found = facts_of(sized, "paged-prefix", setup.sim.num_blocks - 1, watch, f"paged-prefix, tier of {gib:,.2f} GiB")
    return _row(gib, memory.blocks, found, tier_counts(run))


def _row(gib: float, blocks: int, found: JsonObject, counts: JsonObject | None) -> JsonObject:
    kept = ("first_admissions", "resumes", "latency_s", "concurrency", "makespan_s", "crosscheck")
    return {"gib": gib, "blocks": blocks, **{name: found[name] for name in kept}, "counts": counts}


def tier_tables(document: JsonObject) -> Iterator[Titled]:
    """One table, a row a size; none where no tier was tried."""
    found = document["tiers"]
    if found is None:
        return
    made = TextTable(("GiB a GPU", "of tokens", "from host", "loading (s)", "TTFT, median (s)", "TTFT, p99 (s)", "whole run (s)"))
    for row in found["rows"]:
        counts, first, ttft = row["counts"], row["first_admissions"], row["latency_s"]["ttft"]
        from_host = 0 if counts is None else counts["host_hit_tokens"]
        made.add_row(show(row["gib"]), percent(first["hit_rate_tokens"]),
                     percent(from_host / first["query_tokens"] if first["query_tokens"] else 0.0),
                     f"{0 if counts is None else counts['load_us'] / 1e6:,.2f}", show(ttft["p50"]), show(ttft["p99"]),
                     f"{row['makespan_s']:,.1f}")
    yield (f"Host memory behind today's pool (serving view, first admissions): {found['bandwidth_bytes_per_s'] / 1e9:g} GB/s to "
           f"each GPU, {found['load_us_per_block']:,.1f} us a block of {found['bytes_per_block']:,} bytes", made)
