"""All that `prefix` finds, as one JSON-able object: the analysis first, then what was asked for besides."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from experiments.compare import config_json, trace_json
from experiments.prefix_caching import curves
from experiments.prefix_caching.money import money, prices
from experiments.prefix_caching.policies import default_sizes, replayed_stream, replays
from experiments.prefix_caching.serving import default_pools, serving
from experiments.prefix_caching.text import LEGEND
from experiments.prefix_caching.tiers import tiers
from experiments.setup import MOST_BLOCKS, Setup
from experiments.version import VERSION
from sim.catalog import EVICTION
from sim.sizing.hardware import GIB
from workloads.readers.rows import NO_TIMES
from workloads.request import InputError

JsonObject = dict[str, Any]
Watch = Callable[[str, int], Callable[[int], None]]


def analyse(setup: Setup, options: argparse.Namespace, watch: Watch) -> JsonObject:
    """The whole result; nothing in it depends on the wall clock.

    Parameters
    ----------
    setup : Setup
    options : Namespace
        Of `prefix.parser`, with ``pool_blocks`` the sizes asked for and ``view_block_size``, both of the cache view.
    watch : callable
        (label, requests to come) -> what is called with requests that are done.
    """
    size = options.view_block_size
    found = _view(setup, size, options.convention)
    gib = None if setup.kv_bytes_per_token is None else size * setup.kv_bytes_per_token / GIB
    today = setup.sim.usable_slots // size
    policies, replayed = _policies(setup, found, options, today, gib, watch)
    marks = {today, *options.pool_blocks, *(row["blocks"] for rows in policies.values() for row in rows)}
    at = curves.sizes(found.stream.count, marks)
    bare = replace(setup, sim=replace(setup.sim, host_memory=None))    # the tier asked for stands in the table of tiers
    served = None if options.no_serving else _serving(bare, options, watch)
    worth = money(found, today, prices(*_rate(setup, options), setup.model, setup.gpu, gib, _gpus(options)))
    document = {
        "schema": 1, "trace": trace_json(setup), "block_size": size, "accesses": int(found.stream.queries.sum()),
        "unique_blocks": curves.looked_up(found.stream), "endless": curves.endless(found), "lru": found.rows(found.lru, at, gib),
        "policies": policies, "serving": served,
        "vllm_curve": found.rows(found.vllm, at, gib), "today": _today(found, today, gib), "goals": curves.goals(found, gib),
        "block_sizes": curves.block_sizes(found.known, [*curves.BLOCK_SIZES, size, found.known.span_tokens]),
        "reuse": curves.reuse(found), "money": worth, "convention": options.convention, "policy_block_size": replayed,
        "span_tokens": found.known.span_tokens, "longest_shared_prefix": int(found.known.tokens.max()),
        "capacity": setup.capacity(), "tiers": tiers(bare, options, served, watch),
    }
    if setup.warm is not None:
        setup.notes.append(f"the serving view with caching begins warm: {len(setup.warm):,} requests of {setup.warm.source} "
                           "were there before; the cache view begins empty")
    notes = [*setup.notes, *_notes(document, setup.trace.closed_loop, bool(options.pool_blocks))]
    return {**document, "notes": notes, "legend": LEGEND, "config": _config(setup, options), "pagedsim": VERSION}


def _view(setup: Setup, size: int, convention: str) -> curves.View:
    try:
        return curves.view(setup.trace, size, convention)
    except ValueError as error:
        raise InputError(str(error)) from None
    except MemoryError:
        raise InputError(f"--block-size {size}: the blocks of {setup.trace.source} take more memory than there is") from None


def _policies(setup: Setup, found: curves.View, options: argparse.Namespace, today: int, gib: float | None, watch: Watch,
              ) -> tuple[dict[str, list[JsonObject]], int]:
    names = list(dict.fromkeys(options.policy or EVICTION))
    stream = replayed_stream(setup.trace, found.stream, len(names), options.convention, options.policy_block_size)
    wanted = options.pool_blocks or default_sizes(today, found.stream.count, len(names) * len(stream))
    rows = replays(setup.trace, stream, names, [curves.room(size, gib) for size in wanted if size], found.stream.block_size,
                   options.convention == "full", watch)
    return rows, stream.block_size


def _serving(setup: Setup, options: argparse.Namespace, watch: Watch) -> JsonObject:
    size = setup.sim.block_size
    gib = None if setup.kv_bytes_per_token is None else size * setup.kv_bytes_per_token / GIB
    asked = [blocks * options.view_block_size // size for blocks in options.pool_blocks]
    return serving(setup, asked or default_pools(setup), gib, watch)


def _today(found: curves.View, blocks: int, gib: float | None) -> JsonObject:
    return {**curves.room(blocks, gib), "lru": curves.rates(found.lru.at(blocks)), "vllm": curves.rates(found.vllm.at(blocks))}


def _gpus(options: argparse.Namespace) -> int:
    return int(options.tensor_parallel_size * options.pipeline_parallel_size)


def _rate(setup: Setup, options: argparse.Namespace) -> tuple[float | None, str]:
    """Requests a second, or why there is no such thing."""
    trace = setup.trace
    if options.saturate:
        return None, "all requests arrive at once: --saturate"
    if options.rate is None and options.synth_arrivals is None and NO_TIMES in trace.notes:
        return None, "the trace has no arrival times: --rate"
    if not trace.duration_s:
        return None, "all requests arrive at once: there is no rate"
    return len(trace) / trace.duration_s, ""


def _config(setup: Setup, options: argparse.Namespace) -> JsonObject:
    asked = {name: getattr(options, name) for name in ("convention", "policy", "pool_blocks", "policy_block_size", "no_serving")}
    warm = None if setup.warm is None else {"source": setup.warm.source, "requests": len(setup.warm)}
    return {**config_json(setup), **asked, "warm_start": warm}


# ---------------------------------------------------------------------- what has to be said
def _notes(document: JsonObject, closed_loop: bool, sizes_asked: bool) -> Iterator[str]:
    yield from _about_sharing(document)
    size, replayed = document["block_size"], document["policy_block_size"]
    if replayed > size:
        yield (f"policies are replayed with blocks of {replayed:,} tokens, as many as the same bytes hold, because "
               f"{document['accesses']:,} accesses would take long (--policy-block-size {size})")
    sizes = len(next(iter(document["policies"].values())))
    if not sizes_asked and sizes < 3 <= document["unique_blocks"]:
        yield f"policies are replayed at {sizes} of the usual sizes, because more would take long (--pool-blocks)"
    if closed_loop:
        yield "the cache view takes requests in the order of the trace; in the closed loop of the serving view it may be another"
    if document["serving"] is not None:
        yield from _about_serving(document["serving"])


def _about_sharing(document: JsonObject) -> Iterator[str]:
    size, bound = document["block_size"], document["endless"]
    longest, span = document["longest_shared_prefix"], document["span_tokens"]
    if not longest:
        yield "no prompt begins as an earlier one does: there is nothing for a prefix cache to find"
    elif not bound["hit_blocks"]:
        yield (f"zero hits: the shared prefix is shorter than a block: at most {longest:,} tokens are shared, and a block has "
               f"{size:,}")
    if document["block_sizes"][0]["block_size"] < span:
        yield (f"ids stand for {span:,} tokens: where prompts part inside such a span does not show, so hit rates of smaller "
               "blocks are lower bounds")


def _about_serving(served: JsonObject) -> Iterator[str]:
    requests = served["with"]["requests"]
    refused = sum(requests["rejected"].values())
    if refused:
        yield (f"the serving view refused {refused:,} of {requests['arrived']:,} requests, which do not fit the server "
               "(--model, --max-model-len); the cache view has them all")
    left_out = served["pools_left_out"]
    if left_out:
        yield (f"not served: pools of {', '.join(f'{n:,}' for n in left_out)} blocks; a request of max_model_len has to fit, and "
               f"{MOST_BLOCKS:,} blocks are the most")
