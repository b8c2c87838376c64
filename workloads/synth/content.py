"""Content ids of many requests at once: a shared path of pieces, then a stream of tokens of one's own.

    path            [ system 20 ][ document 3 9 ]              pieces, the same tokens wherever they stand
    row 0           [ path 29               |  own 14 ]        stream 0
    row 1           [ path 29               |  own 14 | 21 ]   stream 0 goes on: the next turn of the chat
    row 2           [ path 29               |  own  5 ]        stream 1

Only whole spans of a path can be shared, and the span in which the path ends belongs to the stream. Rows of one stream share
what they have in common; a span that is filled only in part has an id of its own in every row. `pieces.PrefixTree` makes
the same ids one request at a time; here a million requests are a handful of array operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.request import ContentIds, InputError, IntArray

MOST_IDS = 100_000_000                                 # 0.8 GB, and while they are made two or three times that


@dataclass(frozen=True, eq=False)
class Pieces:
    """What stands before the own tokens of each of n requests or conversations.

    Parameters
    ----------
    table : int64, shape (n, levels)
        Pieces by number, in the order of the prompt; -1 behind the last, where others have more.
    tokens : int64, shape (pieces,)
        Length of each; a piece of 0 tokens keeps apart what follows it, as a cache salt does.
    """

    table: IntArray
    tokens: IntArray

    def salted(self, salt: IntArray) -> Pieces:
        """The same behind a salt for each: equal tokens under another salt are not the same."""
        table = np.column_stack((len(self.tokens) + salt, self.table))
        return Pieces(table, np.concatenate((self.tokens, np.zeros(int(salt.max(initial=-1)) + 1, np.int64))))


@dataclass(frozen=True, eq=False)
class Paths:
    """The different paths there are: ids of whole spans, tokens of each, and the one of each request."""

    spans: ContentIds
    tokens: IntArray
    which: IntArray


def no_pieces(n: int) -> Pieces:
    """Nothing before the own tokens of n requests.

    >>> no_pieces(3).table.shape
    (3, 0)
    """
    return Pieces(np.zeros((n, 0), np.int64), np.zeros(0, np.int64))


def paths_of(pieces: Pieces, span_tokens: int, longest: int | None = None) -> Paths:
    """Walk all requests down the tree of their pieces, one level at a time; what is behind ``longest`` tokens is left out.

    Raises
    ------
    InputError
        If the different paths have more than 100 million spans.

    >>> paths = paths_of(Pieces(np.array([[0, 1], [0, 2], [0, 1]]), np.array([20, 9, 30])), 8)
    >>> paths.which.tolist(), paths.tokens.tolist(), paths.spans.ids.tolist(), paths.spans.starts.tolist()
    ([0, 1, 0], [29, 50], [0, 1, 2, 0, 1, 3, 4, 5, 6], [0, 3, 9])
    """
    node = np.zeros(len(pieces.table), np.int64)
    end, ids = np.zeros(1, np.int64), 0                # tokens up to the end of each node of this level; ids given out
    counts = begins = np.zeros((1, 0), np.int64)       # of each level on the path to each node: its spans, the first's id
    tokens = np.concatenate(([0], pieces.tokens))
    for level in range(pieces.table.shape[1]):
        keys, node = np.unique(node * len(tokens) + pieces.table[:, level] + 1, return_inverse=True)
        parent, piece = np.divmod(keys, len(tokens))
        grown = end[parent] + tokens[piece]
        grown = grown if longest is None else np.minimum(grown, longest)
        spans, end = grown // span_tokens - end[parent] // span_tokens, grown
        counts = np.column_stack((counts[parent], spans))
        begins = np.column_stack((begins[parent], ids + np.cumsum(spans) - spans))
        ids += int(spans.sum())
    _refuse_too_many(counts, span_tokens)
    starts = np.concatenate(([0], np.cumsum(counts.sum(axis=1)))).astype(np.int64)
    return Paths(ContentIds(_runs(begins.ravel(), counts.ravel()), starts, span_tokens), end, node)


def contents(paths: Paths, prompt_tokens: IntArray, answer_tokens: IntArray | None = None,
             stream: IntArray | None = None) -> ContentIds:
    """The ids of all rows: of the path of each, then of its stream.

    Parameters
    ----------
    paths : Paths
        One for each row. A prompt that is no longer than its path shares what it has without its last token.
    prompt_tokens : int64, shape (rows,)
        Whole prompts, the path included.
    answer_tokens : int64, shape (rows,) or None
        Where given, the ids go on over the answers.
    stream : int64, shape (rows,) or None
        Rows with the same number hold the same tokens behind the same path, as far as both reach; None: all differ.

    Raises
    ------
    InputError
        If there would be more than 100 million ids.

    >>> paths = paths_of(Pieces(np.array([[0], [0]]), np.array([20])), 8)
    >>> ids = contents(paths, np.array([30, 45]), stream=np.array([0, 0]))
    >>> ids.ids.tolist(), ids.starts.tolist()
    ([0, 1, 2, 5, 0, 1, 2, 3, 4, 6], [0, 4, 10])
    """
    span, which = paths.spans.span_tokens, paths.which
    shared = np.minimum(paths.tokens[which], prompt_tokens - 1) // span
    last = prompt_tokens if answer_tokens is None else prompt_tokens + answer_tokens
    full, part = last // span - shared, np.minimum(last % span, 1)
    counts = np.column_stack((shared, full, part))
    _refuse_too_many(counts, span)
    own, own_part = _own_ids(np.arange(len(last)) if stream is None else stream, full, part)
    known = len(paths.spans.ids) and int(paths.spans.ids.max()) + 1
    first = np.column_stack((paths.spans.starts[which], known + own, known + own_part))
    ids = _runs(first.ravel(), counts.ravel())
    in_path = np.repeat(np.tile([True, False, False], len(last)), counts.ravel())
    ids[in_path] = paths.spans.ids[ids[in_path]]
    starts = np.concatenate(([0], np.cumsum(counts.sum(axis=1)))).astype(np.int64)
    return ContentIds(ids, starts, span, answer_tokens is not None, local=True)


def _own_ids(stream: IntArray, full: IntArray, part: IntArray) -> tuple[IntArray, IntArray]:
    """Of each row the id of its stream's first span, and that of its own last one, filled in part."""
    longest = np.zeros(int(stream.max(initial=-1)) + 1, np.int64)
    np.maximum.at(longest, stream, full)
    parts = np.bincount(stream, part, len(longest)).astype(np.int64)
    base = np.cumsum(longest + parts) - longest - parts
    order = np.argsort(stream, kind="stable")
    rank = np.empty_like(part)
    rank[order] = np.cumsum(part[order]) - part[order]
    return base[stream], (base + longest - np.cumsum(parts) + parts)[stream] + rank


def _runs(first: IntArray, counts: IntArray) -> IntArray:
    """Runs of numbers that go up by one, each from its first."""
    ends = np.cumsum(counts)
    numbers: IntArray = np.repeat(first - ends + counts, counts)
    numbers += np.arange(len(numbers))
    return numbers


def _refuse_too_many(counts: IntArray, span_tokens: int) -> None:
    ids = float(counts.sum(dtype=np.float64))
    if ids > MOST_IDS:
        raise InputError(f"{ids:,.0f} content ids of {span_tokens} tokens for {len(counts):,} prompts are more than "
                         f"{MOST_IDS:,}: fewer requests, or a larger span_tokens")
