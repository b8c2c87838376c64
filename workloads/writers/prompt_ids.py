"""Ids as Mooncake and Qwen-Bailian have them: of prompts alone, one for each span begun, none twice in a request.

    prompt 1,100   ids of 512, the output too   [0, 1, 2, 3]
                   in the file                  [0, 1, 2]        what covers the output only is gone
    prompt 1,100   ids of full blocks only      [0, 1]
                   in the file                  [0, 1, 900]      an id nobody else has for the part
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from workloads.reblock import dense, reblock
from workloads.request import ContentIds, IntArray, Trace
from workloads.writers.common import Change

Row = dict[str, Any]
HIGHEST = 1 << 62


def ceil_ids(trace: Trace, span_tokens: int) -> tuple[ContentIds, list[Change]]:
    """The ids a file will have, and what that changes.

    Parameters
    ----------
    trace : Trace
        With prefix identity.
    span_tokens : int
        Tokens an id stands for in the file.
    """
    assert trace.content is not None
    own, content = trace.content, reblock(trace, span_tokens).content
    assert content is not None
    changes = [] if own.span_tokens == span_tokens else [_other_span(own.span_tokens, span_tokens)]
    need, have = -(-trace.prompt_tokens // span_tokens), np.diff(content.starts)
    if own.cover_output or bool((have > need).any()):
        over = int(np.maximum(have - need, 0).sum())
        changes.append(Change("content", f"only prompts have ids there: {over:,} ids of outputs are left out", True))
    if short := int((have < need).sum()):
        fresh = int(np.maximum(need - have, 0).sum())
        changes.append(Change("content", f"every span of a prompt has an id there: {short:,} prompts are not covered to their "
                              f"end, and get {fresh:,} ids that nobody else has", True))
    made = _filled(content, need)
    if twice := _twice(made):
        changes.append(Change("content", f"no id stands twice in a request there, as in {twice:,}: ids are given anew, one a "
                              "prefix, so equal tokens behind other tokens are not known as equal", True))
        made = _chained(made)
    return made, changes


def lists(content: ContentIds) -> Iterator[list[int]]:
    """The ids of each request."""
    return (ids.tolist() for ids in np.split(content.ids, content.starts[1:-1]))


def _other_span(own: int, span: int) -> Change:
    if own % span == 0:
        return Change("content", f"ids of {own} tokens become {own // span} of {span} each, exactly", False)
    return Change("content", f"ids of {own} tokens become ids of {span}: what prompts share inside of one is not seen", True)


def _filled(content: ContentIds, need: IntArray) -> ContentIds:
    """As many ids as are needed: the first of each request, then fresh ones."""
    kept = np.minimum(np.diff(content.starts), need)
    starts = np.concatenate(([0], np.cumsum(need))).astype(np.int64)
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], need)
    known = within < np.repeat(kept, need)
    source = content.ids if known.all() or int(content.ids.max(initial=0)) < HIGHEST else dense(content.ids)
    ids = np.empty(int(starts[-1]), np.int64)
    ids[known] = source[(np.repeat(content.starts[:-1], need) + within)[known]]
    if not known.all():
        ids[~known] = int(source.max(initial=-1)) + 1 + np.arange(int((~known).sum()))
    return ContentIds(ids, starts, content.span_tokens)


def _twice(content: ContentIds) -> int:
    """Requests that have an id twice."""
    rows = np.repeat(np.arange(len(content.starts) - 1), np.diff(content.starts))
    order = np.lexsort((content.ids, rows))
    ids, rows = content.ids[order], rows[order]
    return len(np.unique(rows[1:][(ids[1:] == ids[:-1]) & (rows[1:] == rows[:-1])]))


def _chained(content: ContentIds) -> ContentIds:
    """Ids that name whole prefixes."""
    known: dict[tuple[int, int], int] = {}
    ids = []
    for request in lists(content):
        node = -1
        for one in request:
            node = known.setdefault((node, one), len(known))
            ids.append(node)
    return ContentIds(np.array(ids, np.int64), content.starts, content.span_tokens)
