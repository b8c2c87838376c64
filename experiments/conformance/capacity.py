"""Layouts of layers that vLLM's own planner sized (``tests/data/golden/capacity.json``), and how ours differs.

A case gives ``layers`` (kind, how many, fields), bytes and limits; the planner's blocks, groups, tokens and concurrency
must be those recorded, to the digit.
"""

from __future__ import annotations

import math
from typing import Any

from sim.models.layer_cache import LayerCache, RequestLimits
from sim.models.layer_groups import Group, group_layers
from sim.models.model_config import MOST_LAYERS
from sim.sizing.startup import Rank, Report, report
from workloads.messages import show
from workloads.request import InputError

GROUP_NAMES = {"full": "FullAttentionSpec", "sliding": "SlidingWindowSpec", "chunked": "ChunkedLocalAttentionSpec",
               "state": "MambaSpec", "latent": "MLAAttentionSpec", "mixed": "UniformTypeKVCacheSpecs"}
STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "int8": 1, "uint8": 1}
OPTIONS = {"bs", "no_hybrid", "override", "async", "dcp", "mamba_cache_mode", "pp"}


def check(case: dict[str, Any]) -> list[str]:
    """What differs from the record, a line each; empty where all is equal.

    Raises
    ------
    InputError
        If the case has a kind or an option that is not known.
    """
    groups, made = solve(case)
    if made.starts == ("error" in case):
        return ["starts, where vLLM refuses" if made.starts else "refused, where vLLM starts"]
    if "error" in case:
        error = case["error"]
        ours = {"needed_gib": round(made.needed_bytes / (1 << 30), 2), "estimated_max_len": made.longest}
        return [f"{name}: {ours[name]} against {error[name]}" for name in ours if error.get(name) not in (None, ours[name])]
    ours = {"num_blocks": made.num_blocks, "groups": [describe(group) for group in groups],
            "kv_cache_size_tokens": made.kv_tokens, "max_concurrency": made.max_concurrency,
            "logged": f"{made.max_concurrency:.2f}x"}
    return [f"{name}: {value} against {case[name]}" for name, value in ours.items() if name in case and value != case[name]]


def solve(case: dict[str, Any]) -> tuple[list[Group], Report]:
    """The groups and the report of a case."""
    options = case.get("options", {})
    unknown = set(options) - OPTIONS
    if unknown:
        raise InputError(f"{case.get('name')}: unknown option {', '.join(sorted(unknown))}")
    layers = sum(count for _, count, _ in case["layers"])
    if layers > MOST_LAYERS:
        raise InputError(f"{show(case.get('name'))}: {show(layers)} layers, more than {MOST_LAYERS}")
    caches = [cache for kind, count, fields in case["layers"] for cache in [_cache(kind, fields, case)] * count]
    groups = group_layers(caches, keep_windows=not options.get("no_hybrid"))
    batches = max(2 if options.get("async") else 1, len(options.get("pp", [1])))      # each stage works on a batch of its own
    limits = RequestLimits(case["max_model_len"], case["max_num_batched_tokens"] * batches,
                           options.get("dcp", 1), options.get("mamba_cache_mode", "none"))
    return groups, report(groups, _ranks(case), limits, num_gpu_blocks_override=options.get("override"))


def describe(group: Group) -> list[Any]:
    """A group as it is recorded: class name, layers, block size, bytes of a page."""
    first = group.caches[0]
    if len(set(group.caches)) > 1:
        return [GROUP_NAMES["mixed"], len(group.layers), first.block_size, group.block_bytes()]
    name = GROUP_NAMES["latent" if first.latent else first.kind]
    return [name, len(group.layers), first.block_size, first.page_bytes]


def _cache(kind: str, fields: dict[str, Any], case: dict[str, Any]) -> LayerCache:
    padded, size = fields.get("page_size_padded"), fields["block_size"]
    if kind == "mamba":
        state = sum(math.prod(shape) * STATE_BYTES[dtype.removeprefix("torch.")]
                    for shape, dtype in zip(fields["shapes"], fields["dtypes"], strict=True))
        return LayerCache("state", size, state_bytes=state, speculative_blocks=fields.get("num_speculative_blocks", 0),
                          checkpoint_blocks=fields.get("num_prefill_checkpoint_blocks", 0),
                          padded_bytes=None if padded == state else padded)
    heads, width = fields["num_kv_heads"], fields["head_size"]
    values = 0 if kind == "mla" else fields.get("head_size_v", width)
    row = heads * (width + values) * fields.get("dtype_bytes", case["dtype_bytes"])
    reach = fields.get("sliding_window" if kind == "sliding" else "attention_chunk_size")
    if kind not in ("full", "sliding", "chunked", "mla"):
        raise InputError(f"{show(case.get('name'))}: unknown kind of layer {show(kind)}")
    return LayerCache("full" if kind == "mla" else kind, size, row, reach if kind in ("sliding", "chunked") else None,
                      padded_bytes=padded, latent=kind == "mla", heads=(heads, width, values))


def _ranks(case: dict[str, Any]) -> list[Rank]:
    given = case["available_bytes"]
    stages = case.get("options", {}).get("pp")
    if stages is None:                                 # all layers on every rank
        return [Rank(memory) for memory in (given if isinstance(given, list) else [given])]
    memory = given if isinstance(given, list) else [given] * len(stages)
    starts = [sum(stages[:i]) for i in range(len(stages))]
    return [Rank(bytes_, range(start, start + count)) for bytes_, start, count in zip(memory, starts, stages, strict=True)]
