"""Recorded cases of the real vLLM scheduler: from JSON to a trace, a configuration and an allocator.

A prompt is a list of [stream, n], the first n tokens of a named stream; the output of request r is the stream ``out:r``;
or it is a list of ``hash_ids``, each a span of ``hash_block`` tokens. Equal names are equal tokens. Only blocks that another
request could hold too get a content id; all others are the request's own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sim.demand import Demand
from sim.memory.grouped import GroupedAllocator, GroupKind
from sim.memory.paged import PagedAllocator
from sim.scheduler import Scheduler
from sim.scheduler_config import SchedulerConfig
from workloads.request import ContentIds, InputError, Trace

Case = dict[str, Any]
Span = tuple[Any, int, int]
KNOWN_GROUPS = {"full", "sliding", "chunked", "chunked_local"}


def read_case(path: str) -> Case:
    """A case file.

    Raises
    ------
    InputError
        One line: the file, and what cannot be used of it.
    """
    try:
        case = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: no valid JSON: {str(error)[:80]}") from None
    if not isinstance(case, dict) or not ("cases" in case or {"config", "requests"} <= set(case) or "runs" in case):
        raise InputError(f"{path}: no recorded case: config and requests (or cases with layers) are wanted")
    return case


def is_capacity(case: Case) -> bool:
    """Whether the file holds layouts for the planner rather than requests."""
    return isinstance(case.get("cases"), list)


# ---------------------------------------------------------------------- the trace
def to_trace(requests: list[dict[str, Any]], block_size: int, policy: str = "fcfs") -> tuple[list[str], Trace]:
    """Names in the order of the trace's rows, and the trace; an arrival step is a microsecond.

    Raises
    ------
    InputError
        If a request lacks a field or one makes no sense.

    >>> names, trace = to_trace([{"id": "a", "arrive": 0, "prompt": [["x", 40]], "output": 3}], 16)
    >>> names, trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    (['a'], [40], [3])
    """
    try:
        # of equal priority and arrival the smaller id, as text, is looked at first: rows are in that order
        rows = sorted(requests, key=lambda r: (r.get("arrive", 0), str(r["id"]) if policy == "priority" else ""))
        spans = [list(_spans(request)) for request in rows]
        prompts = [sum(n for _, _, n in own[:-1]) for own in spans]
        outputs = [own[-1][2] for own in spans]
        content = _content(rows, spans, block_size)
        priority = np.array([r.get("priority", 0) for r in rows], np.int64) if policy == "priority" else None
        return [str(r["id"]) for r in rows], Trace(
            "case", np.array(prompts, np.int64), np.array(outputs, np.int64), content=content, priority=priority,
            arrival_us=np.array([r.get("arrive", 0) for r in rows], np.int64))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"a request of the case cannot be used: {type(error).__name__}: {str(error)[:80]}") from None


def _spans(request: dict[str, Any]) -> Iterator[Span]:
    """(stream, first token, tokens) of the prompt, then of the output."""
    if "prompt" in request:
        for stream, tokens in request["prompt"]:
            yield stream, 0, int(tokens)
    else:
        left, size = int(request["input_length"]), int(request.get("hash_block", 512))
        for number in request["hash_ids"]:
            yield ("hash", number), 0, min(size, left)
            left -= min(size, left)
    yield f"out:{request['id']}", 0, int(request["output"])


def _content(rows: list[dict[str, Any]], spans: list[list[Span]], block_size: int) -> ContentIds:
    users = Counter(stream for own in spans for stream in {stream for stream, _, n in own if n})
    seen_again = any(users[own[-1][0]] > 1 for own in spans)
    ids: list[int] = []
    starts, known = [0], {}
    for request, own in zip(rows, spans, strict=True):
        salt = request.get("salt")
        parent = -1 if salt is None else known.setdefault(("salt", salt), len(known))
        for block in _blocks(own if seen_again else own[:-1], block_size):
            if any(users[stream] < 2 for stream, _, _ in block):
                break                                  # nobody else holds this block, nor any behind it
            parent = known.setdefault((parent, block), len(known))
            ids.append(parent)
        starts.append(len(ids))
    return ContentIds(np.array(ids, np.int64), np.array(starts, np.int64), block_size, cover_output=seen_again)


def _blocks(spans: list[Span], size: int) -> Iterator[tuple[Span, ...]]:
    """What each full block holds, as pieces of streams."""
    pieces: list[Span] = []
    room = size
    for stream, start, tokens in spans:
        while tokens >= room:
            yield (*pieces, (stream, start, room))
            start, tokens, pieces, room = start + room, tokens - room, [], size
        if tokens:
            pieces.append((stream, start, tokens))
            room -= tokens


# ---------------------------------------------------------------------- the scheduler and its allocator
def build(case: Case) -> tuple[list[str], Trace, Scheduler]:
    """Names, trace and a scheduler with its allocator, as the case configures them."""
    config = case["config"]
    try:
        policy = config.get("policy", "fcfs")
        names, trace = to_trace(case["requests"], config["block_size"], policy)
        demand = Demand(trace, config.get("max_model_len", 131_072), recorded=True)
        budget = config.get("max_num_batched_tokens", 8192)
        settings = SchedulerConfig(
            min(config.get("max_num_seqs", 256), budget), budget, config.get("enable_chunked_prefill", True),
            config.get("long_prefill_token_threshold", 0), config.get("reserve_full_isl", True), config.get("watermark", 0.0),
            policy, bool(config.get("async_scheduling", False)))
        allocator = _allocator(config, demand, budget * (2 if settings.async_scheduling else 1))
        return names, trace, Scheduler(demand, allocator, settings, config["num_blocks"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the case's config cannot be used: {type(error).__name__}: {str(error)[:80]}") from None


def _allocator(config: dict[str, Any], demand: Demand, in_flight: int) -> PagedAllocator | GroupedAllocator:
    groups = config.get("groups", [{"kind": "full"}])
    blocks, size, caching = config["num_blocks"], config["block_size"], config.get("enable_prefix_caching", True)
    other = {str(group["kind"]) for group in groups} - KNOWN_GROUPS
    if other:
        raise InputError(f"unknown kind of group: {', '.join(sorted(other))}")
    if [group["kind"] for group in groups] == ["full"]:
        return PagedAllocator(demand, blocks, size, caching)
    kinds = [GroupKind(group["kind"].removesuffix("_local"), group.get("window", group.get("chunk_size", group.get("chunk"))))
             for group in groups]
    return GroupedAllocator(demand, blocks, size, kinds, caching, in_flight)
