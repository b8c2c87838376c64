"""The bound: what a cache that never forgets finds, at any block size, out of one pass over the trace.

A request's *known prefix* is the longest beginning of its prompt that an earlier request had, in tokens. Every block size
follows from it: whole blocks of the known prefix are hits, whatever lies between their edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.caching.stream import COLD, Mask, accesses, by_block, identity, last_access, leading_run
from workloads.request import IntArray, Trace


@dataclass(frozen=True)
class Hits:
    """Hits beside what was looked up. A share has to say which it is: of blocks, or of prompt tokens."""

    query_tokens: int
    hit_tokens: int
    query_blocks: int
    hit_blocks: int

    @property
    def of_tokens(self) -> float:
        """Token-weighted hit rate; 0 where nothing was looked up."""
        return self.hit_tokens / self.query_tokens if self.query_tokens else 0.0

    @property
    def of_blocks(self) -> float:
        """Block-weighted hit rate; 0 where there was no block."""
        return self.hit_blocks / self.query_blocks if self.query_blocks else 0.0


@dataclass(frozen=True, eq=False)
class Known:
    """What earlier requests had of each prompt.

    Parameters
    ----------
    prompt_tokens : int64, shape (requests,)
    tokens : int64, shape (requests,)
        Length of the known prefix.
    ids, known_ids : int64, shape (requests,)
        Content ids of the prompt, and how many of them, from the first on, were there before (a last partial one too).
    span_tokens : int
        Tokens an id stands for.
    """

    prompt_tokens: IntArray
    tokens: IntArray
    ids: IntArray
    known_ids: IntArray
    span_tokens: int

    def full(self, block_size: int, last_token_rule: bool = False) -> Hits:
        """Hits of whole blocks.

        Parameters
        ----------
        block_size : int
            Tokens a block, 1 or more.
        last_token_rule : bool
            As vLLM (rule 11 of docs/rules.md): the last token of a prompt is always computed, so at most P - 1 tokens, rounded
            down to whole blocks, are hits.

        >>> known = Known(np.array([64, 65]), np.array([64, 64]), np.array([4, 5]), np.array([4, 4]), 16)
        >>> known.full(16).hit_tokens, known.full(16, last_token_rule=True).hit_tokens
        (128, 112)
        """
        if block_size < 1:
            raise ValueError(f"the block size must be at least 1 token, not {block_size}")
        tokens = np.minimum(self.tokens, self.prompt_tokens - 1) if last_token_rule else self.tokens
        found = int((tokens // block_size).sum())
        return Hits(int(self.prompt_tokens.sum()), found * block_size, int((self.prompt_tokens // block_size).sum()), found)

    def ceil(self) -> Hits:
        """Hits of content ids, each a block, a last partial one as well: how papers on traces count.

        >>> Known(np.array([40]), np.array([35]), np.array([3]), np.array([3]), 16).ceil()
        Hits(query_tokens=40, hit_tokens=40, query_blocks=3, hit_blocks=3)
        """
        tokens = np.minimum(self.known_ids * self.span_tokens, self.prompt_tokens)
        return Hits(int(self.prompt_tokens.sum()), int(tokens.sum()), int(self.ids.sum()), int(self.known_ids.sum()))


def known_prefixes(trace: Trace) -> Known:
    """The known prefix of every request, requests in order of the trace.

    A partial id stands for the tokens its request has: the ids (1, 2) of a prompt of 700 tokens and of one of 1,024 share 700.

    Raises
    ------
    ValueError
        If the trace has no prefix identity.

    >>> from workloads.request import ContentIds
    >>> content = ContentIds(np.array([1, 2, 1, 2, 1, 3]), np.array([0, 2, 4, 6]), 512)
    >>> known_prefixes(Trace("three", np.array([700, 1024, 600]), np.ones(3, int), content=content)).tokens
    array([  0, 700, 512])
    """
    content = identity(trace)
    span = content.span_tokens
    stream = accesses(trace, span, "ceil")
    ids = leading_run(stream, last_access(stream) != COLD)
    counts = np.diff(stream.starts)
    place = np.arange(len(stream)) - np.repeat(stream.starts[:-1], counts)
    written = trace.prompt_tokens + trace.output_tokens - 1 if content.cover_output else trace.prompt_tokens
    stands_for = np.clip(np.repeat(written, counts) - place * span, 0, span)
    order, first = by_block(stream)
    longest = np.empty(len(stream), np.int64)
    longest[order] = _most_before(stands_for[order], first, span)
    tokens = np.zeros(len(trace), np.int64)
    some = ids > 0
    tokens[some] = (ids[some] - 1) * span + longest[stream.starts[:-1][some] + ids[some] - 1]
    return Known(trace.prompt_tokens, np.minimum(tokens, trace.prompt_tokens), stream.queries, ids, span)


def _most_before(values: IntArray, first: Mask, top: int) -> IntArray:
    """Largest of the values before each in its group, 0 for a group's first; values are 0..top, groups begin at ``first``.

    >>> _most_before(np.array([3, 1, 2, 5]), np.array([True, False, False, True]), 9).tolist()
    [0, 3, 3, 0]
    """
    lift = np.cumsum(first) * (top + 1)
    so_far = np.maximum.accumulate(values + lift) - lift
    return np.where(first, 0, np.append(0, so_far[:-1]))
