"""Recorded cases of the real vLLM scheduler: from JSON to a trace and a scheduler with its allocator.

A prompt is a list of [stream, n], the first n tokens of a named stream; the output of request r is the stream ``out:r``;
or it is a list of ``hash_ids``, each a span of ``hash_block`` equal tokens; or ``prompt_token_ids``. Equal names are equal
tokens. Only blocks that another request could hold too get a content id; all others are the request's own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.conformance.config import CaseConfig
from sim.demand import Demand
from sim.memory.grouped import GroupedAllocator, GroupKind
from sim.memory.paged import PagedAllocator
from sim.scheduler import Scheduler
from sim.scheduler_config import SchedulerConfig
from workloads.messages import json_failed, reading_failed, show_path
from workloads.request import ContentIds, InputError, Trace
from workloads.whole_file import bytes_of

Case = dict[str, Any]
Span = tuple[Any, int, int]                            # stream, first token, tokens
MOST_TOKENS = 1 << 26                                  # of one request; more would exhaust our memory
MOST_STEP = 1 << 53
LARGEST_MIB = 256                                      # of a file


def read_case(path: str) -> Case:
    """A case file.

    Raises
    ------
    InputError
        One line: the file, and what cannot be used of it.
    """
    try:
        case = json.loads(bytes_of(path, LARGEST_MIB).decode("utf-8-sig"))
    except InputError:                                 # too long, and says so
        raise
    except OSError as error:
        raise reading_failed(path, error) from None
    except (ValueError, RecursionError) as error:
        raise json_failed(path, error) from None
    if not isinstance(case, dict) or not ("cases" in case or {"config", "requests"} <= set(case) or "runs" in case):
        raise InputError(f"{show_path(path)}: no recorded case: config and requests (or cases with layers) are wanted")
    return case


def is_capacity(case: Case) -> bool:
    """Whether the file holds layouts for the planner rather than requests."""
    return isinstance(case.get("cases"), list)


# ---------------------------------------------------------------------- the trace
def to_trace(requests: Any, block_size: int, policy: str = "fcfs") -> tuple[list[str], Trace]:
    """Names in the order of the trace's rows, and the trace; an arrival step is a microsecond.

    Raises
    ------
    InputError
        If a request lacks a field, or one makes no sense; names the request.

    >>> names, trace = to_trace([{"id": "a", "arrive": 0, "prompt": [["x", 40]], "output": 3}], 16)
    >>> names, trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    (['a'], [40], [3])
    """
    if not isinstance(requests, list):
        raise InputError("the case's requests are no list")
    named = [_named(request, i) for i, request in enumerate(requests)]
    twice = [name for name, n in Counter(name for name, _ in named).items() if n > 1]
    if twice:
        raise InputError(f"request {twice[0][:40]!r} of the case is there more than once")
    arrive = {name: _number(name, request, "arrive", 0, 0) for name, request in named}
    # of equal priority and arrival the smaller id, as text, is looked at first: rows are in that order
    rows = sorted(named, key=lambda row: (arrive[row[0]], row[0] if policy == "priority" else ""))
    spans = [_spans(name, request) for name, request in rows]
    urgency = [_number(name, request, "priority", 0, -MOST_STEP) for name, request in rows]
    return [name for name, _ in rows], Trace(
        "case", _column([sum(n for _, _, n in own[:-1]) for own in spans]), _column([own[-1][2] for own in spans]),
        content=_content([request for _, request in rows], spans, block_size),
        priority=_column(urgency) if policy == "priority" else None, arrival_us=_column([arrive[name] for name, _ in rows]))


def _named(request: Any, i: int) -> tuple[str, dict[str, Any]]:
    if not isinstance(request, dict):
        raise InputError(f"request {i} of the case is no object")
    return str(request.get("id", f"r{i}")), request


def _number(name: str, request: dict[str, Any], key: str, default: int, least: int, most: int = MOST_STEP) -> int:
    value = request.get(key, default)
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"request {name[:40]!r} of the case: {key} {str(value)[:40]!r} is no whole number from {least} to "
                         f"{most}")
    return value


def _column(values: list[int]) -> Any:
    return np.array(values, np.int64)


def _spans(name: str, request: dict[str, Any]) -> list[Span]:
    """The prompt's, then that of the output."""
    try:
        if "prompt" in request:
            found = [(str(stream), 0, tokens) for stream, tokens in request["prompt"]]
        elif "prompt_token_ids" in request:
            found = [(("token", int(token)), 0, 1) for token in request["prompt_token_ids"]]
        else:
            found = _hash_spans(name, request)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"request {name[:40]!r} of the case: its prompt cannot be used: {type(error).__name__} {error}"[:200]
                         ) from None
    wrong = next((tokens for _, _, tokens in found if type(tokens) is not int or not 0 <= tokens <= MOST_TOKENS), None)
    total = 0 if wrong is not None else sum(tokens for _, _, tokens in found)
    if wrong is not None or not 1 <= total <= MOST_TOKENS:
        raise InputError(f"request {name[:40]!r} of the case: a prompt of {str(wrong or total)[:40]} tokens cannot be used: "
                         f"1 to {MOST_TOKENS:,} are wanted")
    output = _number(name, {"output": request.get("output", request.get("output_length", 1))}, "output", 1, 1, MOST_TOKENS)
    return [*found, (f"out:{name}", 0, output)]


def _hash_spans(name: str, request: dict[str, Any]) -> list[Span]:
    left, size = _number(name, request, "input_length", -1, 1, MOST_TOKENS), _number(name, request, "hash_block", 512, 1)
    found: list[Span] = []
    for number in request["hash_ids"]:
        if left:
            found.append((("hash", int(number)), 0, min(size, left)))
            left -= min(size, left)
    if left:
        raise InputError(f"request {name[:40]!r} of the case: its hash_ids leave {left:,} tokens uncovered")
    return found


def _content(rows: list[dict[str, Any]], spans: list[list[Span]], block_size: int) -> ContentIds:
    users = Counter(stream for own in spans for stream in {stream for stream, _, n in own if n})
    seen_again = any(users[own[-1][0]] > 1 for own in spans)
    ids: list[int] = []
    starts, known = [0], {}
    for request, own in zip(rows, spans, strict=True):
        salt = request.get("salt") or None             # an empty one is none
        parent = -1 if salt is None else known.setdefault(("salt", str(salt)), len(known))
        for block in _blocks(own if seen_again else own[:-1], block_size):
            if any(users[stream] < 2 for stream, _, _ in block):
                break                                  # nobody else holds this block, nor any behind it
            parent = known.setdefault((parent, block), len(known))
            ids.append(parent)
        starts.append(len(ids))
    return ContentIds(_column(ids), _column(starts), block_size, cover_output=seen_again)


def _blocks(spans: list[Span], size: int) -> Iterator[tuple[Span, ...]]:
    """What each full block holds, as pieces of streams; of equal tokens only how many."""
    pieces: list[Span] = []
    room = size
    for stream, start, tokens in spans:
        alike = isinstance(stream, tuple)
        while tokens:
            n = min(tokens, room)
            if alike and pieces and pieces[-1][0] == stream:
                pieces[-1] = (stream, 0, pieces[-1][2] + n)
            else:
                pieces.append((stream, 0 if alike else start, n))
            start, tokens, room = start + n, tokens - n, room - n
            if not room:
                yield tuple(pieces)
                pieces, room = [], size


# ---------------------------------------------------------------------- the scheduler and its allocator
def build(case: Case, config: CaseConfig) -> tuple[list[str], Trace, Scheduler]:
    """Names, trace and a scheduler with its allocator, as the case configures them."""
    names, trace = to_trace(case["requests"], config.block_size, config.policy)
    budget = config.max_num_batched_tokens
    try:
        demand = Demand(trace, config.max_model_len, recorded=True)
        settings = SchedulerConfig(
            min(config.max_num_seqs, budget), budget, config.enable_chunked_prefill, config.long_prefill_token_threshold,
            config.reserve_full_isl, config.watermark, config.policy, config.async_scheduling)
        allocator = _allocator(config, demand, budget * (2 if config.async_scheduling else 1))
    except ValueError as error:
        raise InputError(f"the case's config cannot be used: {str(error)[:120]}") from None
    return names, trace, Scheduler(demand, allocator, settings, config.num_blocks, config.block_size)


def _allocator(config: CaseConfig, demand: Demand, in_flight: int) -> PagedAllocator | GroupedAllocator:
    kinds = config.kinds()
    if kinds == [("full", None)]:
        return PagedAllocator(demand, config.num_blocks, config.block_size, config.enable_prefix_caching)
    return GroupedAllocator(demand, config.num_blocks, config.block_size, [GroupKind(*kind) for kind in kinds],
                            config.enable_prefix_caching, in_flight)
