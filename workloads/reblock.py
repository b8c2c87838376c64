"""Prefix identity in spans of another length.

    ids of 512     [      7      |     8 (76 tokens)    ]       prompt of 588 tokens
    ids of 16      [224 225 .. 255 | 256 257 258 259 260]       7 x 32 + 0 .. 31, then as many as there are tokens

Shorter spans that divide the old ones are exact. Longer ones are known by all ids they hold, so what prompts share inside
of one is no longer seen.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np

from workloads.request import ContentIds, InputError, IntArray, Trace

MOST_IDS = 100_000_000
HIGHEST = 1 << 62


def reblock(trace: Trace, span_tokens: int) -> Trace:
    """The same requests with ids of ``span_tokens`` tokens each.

    Parameters
    ----------
    trace : Trace
    span_tokens : int
        1 or more. Exact where it divides the trace's span.

    Raises
    ------
    ValueError
        If the span is below 1.
    InputError
        If there would be more than 100 million ids.

    >>> trace = Trace("a", np.array([40]), np.array([2]), content=ContentIds(np.array([7, 8]), np.array([0, 2]), 32))
    >>> reblock(trace, 16).content.ids.tolist(), reblock(trace, 64).content.ids.tolist()
    ([14, 15, 16], [0])
    """
    if span_tokens < 1:
        raise ValueError(f"span_tokens must be at least 1, not {span_tokens}")
    if trace.content is None or trace.content.span_tokens == span_tokens:
        return trace
    tokens = tokens_with_place(trace)
    common = _split(trace.content, tokens, gcd(trace.content.span_tokens, span_tokens))
    return replace(trace, content=_joined(common, tokens, span_tokens))


def tokens_with_place(trace: Trace) -> IntArray:
    """Tokens of each request that ids can stand for: those of the prompt, and of the output where ids cover it."""
    assert trace.content is not None
    return trace.prompt_tokens + trace.output_tokens if trace.content.cover_output else trace.prompt_tokens


def dense(ids: IntArray) -> IntArray:
    """The same ids as numbers from 0 on, in order of size.

    >>> dense(np.array([9, 4, 9])).tolist()
    [1, 0, 1]
    """
    return np.unique(ids, return_inverse=True)[1].astype(np.int64)


def _split(content: ContentIds, tokens: IntArray, span: int) -> ContentIds:
    """Each id becomes several, the last of a request as many as there are tokens."""
    times = content.span_tokens // span
    if times == 1:
        return content
    counts = -(-np.minimum(np.diff(content.starts) * content.span_tokens, tokens) // span)
    if (total := float(counts.sum(dtype=np.float64))) > MOST_IDS:
        raise InputError(f"{total:,.0f} ids of {span} tokens are more than {MOST_IDS:,}")
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    ids = content.ids if int(content.ids.max(initial=0)) < HIGHEST // times else dense(content.ids)
    flat = ids[np.repeat(content.starts[:-1], counts) + within // times] * times + within % times
    return ContentIds(flat, starts, span, content.cover_output)


def _joined(content: ContentIds, tokens: IntArray, span: int) -> ContentIds:
    """Several ids become one; those left over at the end only where nothing comes behind them."""
    times = span // content.span_tokens
    if times == 1:
        return content
    have = np.diff(content.starts)
    counts = have // times + ((have % times > 0) & (have * content.span_tokens >= tokens))
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    within = np.arange(len(content.ids)) - np.repeat(content.starts[:-1], have)
    place = np.repeat(starts[:-1], have) + within // times
    kept = within // times < np.repeat(counts, have)
    groups = np.full((int(starts[-1]), times), -1, np.int64)
    groups[place[kept], (within % times)[kept]] = content.ids[kept]
    return ContentIds(_named(groups), starts, span, content.cover_output)


def _named(groups: IntArray) -> IntArray:
    """Numbers of rows, equal for equal rows, in order of appearance."""
    if not len(groups):
        return np.zeros(0, np.int64)
    _, first, which = np.unique(groups, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[which.reshape(-1)]
