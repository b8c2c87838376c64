"""Prompts put together of pieces of any length, as content ids of spans of one length.

A piece is something whose tokens are the same wherever it stands: a system prompt, a document, an answer. What a prefix
cache can find is a whole prefix, so a span is known by the pieces up to its last token:

    pieces     [ system 20 tokens      ][ question 9 ]          a tree: equal beginnings are one path
    spans of 8 |   0    |   1    |   2    |  3(5 of 8)
    owned by     system   system   question   question          the piece in which the span ends owns its id

Another question after the same system prompt shares spans 0 and 1; span 2 holds tokens of both, so each has its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable

import numpy as np

from workloads.request import ContentIds


class PrefixTree:
    """Content ids of requests that are added one by one.

    Parameters
    ----------
    span_tokens : int
        Tokens an id stands for.

    Raises
    ------
    ValueError
        If it is below 1, or a piece has no tokens.

    Examples
    --------
    >>> tree = PrefixTree(8)
    >>> tree.add([("system", 20), ("question", 9)])
    >>> tree.add([("system", 20), ("other", 4)])
    >>> tree.content().ids.tolist(), tree.content().starts.tolist()
    ([0, 1, 3, 4, 0, 1, 5], [0, 4, 7])
    """

    def __init__(self, span_tokens: int) -> None:
        if span_tokens < 1:
            raise ValueError(f"span_tokens must be at least 1, not {span_tokens}")
        self.span_tokens = span_tokens
        self._known: dict[tuple[int, Hashable, int], int] = {}
        self._end = array("q")                         # tokens up to the end of a piece
        self._first_id = array("q")                    # ids of the spans that end in it; one more for a part at its end
        self._full = array("q")
        self._ids = 0
        self._path = array("q")                        # pieces of all requests, by number
        self._starts = array("q", [0])

    def add(self, pieces: Iterable[tuple[Hashable, int]]) -> None:
        """The next request: its pieces in order, each a name and its length in tokens."""
        node = -1
        for name, tokens in pieces:
            key = (node, name, tokens)
            found = self._known.get(key)
            node = self._grow(key) if found is None else found
            self._path.append(node)
        self._starts.append(len(self._path))

    def _grow(self, key: tuple[int, Hashable, int]) -> int:
        parent, name, tokens = key
        if tokens < 1:
            raise ValueError(f"piece {name!r} must have at least 1 token, not {tokens}")
        before = self._end[parent] if parent >= 0 else 0
        full = (before + tokens) // self.span_tokens - before // self.span_tokens
        node = self._known[key] = len(self._end)
        self._end.append(before + tokens)
        self._first_id.append(self._ids)
        self._full.append(full)
        self._ids += full + 1
        return node

    def content(self, cover_output: bool = False) -> ContentIds:
        """The ids of all requests added; with ``cover_output`` their last pieces are what they generated."""
        first, full, end = (np.array(column, np.int64) for column in (self._first_id, self._full, self._end))
        path, starts = np.array(self._path, np.int64), np.array(self._starts, np.int64)
        counts = full[path]
        last = starts[1:][np.diff(starts) > 0] - 1
        counts[last] += end[path[last]] % self.span_tokens > 0
        begins = np.concatenate(([0], np.cumsum(counts)))
        ids = np.repeat(first[path] - begins[:-1], counts) + np.arange(begins[-1])
        return ContentIds(ids, begins[starts], self.span_tokens, cover_output, local=True)
