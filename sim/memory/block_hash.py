"""Block hashes: what a full block contains, together with everything before it.

vLLM hashes a block's tokens with its parent's hash, so equal hash means equal whole prefix (rules 8-10 of docs/rules.md).
Here a hash is a dense integer, so that the prefix index of the pool is an array. A request's blocks are of two kinds:

    block         0    1    2  |  3    4    5 ...
    hash          12   13   40 |  907  908  909
                  shared: from |  private: a range of the request's own,
                  the trace's  |  found only by itself after a preemption
                  content ids  |

A content id that no other request of the trace begins with is private too: nobody else can ask for it. Content ids may stand
for spans longer or shorter than a block (512-token ids, 16-token blocks): block ``k`` is known when all its tokens are covered,
and its hash is (chain of the id its last token lies in, place inside that span).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.demand import Demand
from sim.entries import entries
from workloads.request import ContentIds, IntArray


def chain_ids(content: ContentIds) -> tuple[IntArray, int]:
    """Number the prefixes: equal numbers where the ids from the request's first on are equal.

    Returns
    -------
    chain : int64, shape (ids,)
        For each content id the number of the prefix that ends with it.
    count : int
        Numbers are in ``[0, count)``.

    Examples
    --------
    >>> ids = ContentIds(np.array([7, 8, 7, 9, 8]), np.array([0, 2, 4, 5]), 16)
    >>> chain_ids(ids)[0].tolist()           # the lone 8 of the last request has another prefix than 7, 8
    [0, 1, 0, 2, 3]
    """
    ids = content.ids
    parent = np.empty(len(ids), np.int64)
    parent[1:] = ids[:-1]
    first_of_request = content.starts[:-1][np.diff(content.starts) > 0]
    parent[first_of_request] = -1
    names, first, dense = np.unique(ids, return_index=True, return_inverse=True)
    if len(ids) and np.array_equal(parent[first][dense], parent):
        return dense.astype(np.int64), len(names)      # every id has one parent: ids name whole prefixes already
    known: dict[tuple[int, int], int] = {}
    chain = np.empty(len(ids), np.int64)
    node = -1
    for i, (content_id, root) in enumerate(zip(ids.tolist(), (parent == -1).tolist(), strict=True)):
        node = known.setdefault((-1 if root else node, content_id), len(known))
        chain[i] = node
    return chain, len(known)


class BlockHashes:
    """The hashes of every request's full blocks at one block size.

    Parameters
    ----------
    demand : Demand
        Lengths after truncation, and the trace's content ids if it has any.
    block_size : int
        Tokens a block.

    Attributes
    ----------
    count : int
        Hashes are integers in ``[0, count)``.
    shared_count : int
        Those below are shared, the others private.
    shared : int64, shape (requests,)
        How many blocks of each request have shared hashes; they are its first ones.
    private : int64, shape (requests,)
        The hash of a request's private block ``k`` is ``private + k``.
    """

    def __init__(self, demand: Demand, block_size: int) -> None:
        content = demand.content
        full = np.where(demand.too_long, 0, demand.end // block_size)
        if content is None:
            self.shared: IntArray = np.zeros(len(demand), np.int64)
            self._starts = self.shared
            self._chain = self._span_of = np.zeros(0, np.int64)
            self._per_span = 1
            self.shared_count = 0
            self._even = False
        else:
            tokens = demand.end + 1 if content.cover_output else demand.prompt
            self._chain, chains = chain_ids(content)
            several = np.bincount(self._chain, minlength=chains) > 1
            covered = np.minimum(_leading(several[self._chain], content.starts) * content.span_tokens, tokens)
            self._chain = (several.cumsum() - 1)[self._chain]          # the others are not looked at
            self.shared = covered // block_size
            self._starts = content.starts[:-1]
            longest = int(self.shared.max(initial=0))
            block = np.arange(longest, dtype=np.int64)
            self._span_of = ((block + 1) * block_size - 1) // content.span_tokens
            self._within = block - self._span_of * content.span_tokens // block_size
            self._per_span = -(-content.span_tokens // block_size)
            self.shared_count = int(np.count_nonzero(several)) * self._per_span
            self._even = content.span_tokens % block_size == 0
        own = np.maximum(full - self.shared, 0)
        self._first = self.shared_count + np.cumsum(own) - own
        self.private: IntArray = self._first - self.shared
        self.count = self.shared_count + int(own.sum())
        self._shared1, self._private1, self._starts1 = (entries(column) for column in (self.shared, self.private, self._starts))
        self._asked, self._hashes = -1, self._chain

    def span(self, request: int, start: int, stop: int) -> IntArray:
        """The hashes of blocks ``start`` to ``stop - 1`` of ``request``, shape (stop - start,)."""
        shared = self._shared1[request]
        base = self._private1[request]
        if start >= shared:
            return np.arange(base + start, base + stop)
        if request != self._asked:                     # whoever is looked up is asked for again when it is admitted
            self._asked, self._hashes = request, self._shared_hashes(request, shared)
        if stop <= shared:
            return self._hashes[start:stop]
        return np.concatenate((self._hashes[start:], np.arange(base + shared, base + stop)))

    def _shared_hashes(self, request: int, shared: int) -> IntArray:
        first = self._starts1[request]
        if self._even:                                 # no look-up for each block: a third of the time
            spans = self._chain[first:first - (-shared // self._per_span)] * self._per_span
            return (spans[:, None] + self._within[: self._per_span]).reshape(-1)[:shared]
        spans = self._chain[first + self._span_of[:shared]]
        return spans * self._per_span + self._within[:shared]

    def runs(self, counts: IntArray) -> tuple[IntArray, IntArray]:
        """The hashes of every request's first blocks as runs of consecutive numbers: one a span, and one of all private ones.

        Parameters
        ----------
        counts : int64, shape (requests,)
            Blocks of each request.

        Returns
        -------
        first, lengths : int64, shape (runs,)
            Run ``i`` is hashes ``first[i]`` to ``first[i] + lengths[i] - 1``; all runs together are all blocks in order.

        >>> content = ContentIds(np.array([7, 8, 7]), np.array([0, 2, 3]), 4)
        >>> from workloads.request import Trace
        >>> trace = Trace("two", np.array([8, 9]), np.array([1, 1]), content=content)
        >>> [column.tolist() for column in BlockHashes(Demand(trace, 100), 2).runs(np.array([3, 4]))]
        [[0, 2, 0, 4], [2, 1, 2, 2]]
        """
        opens = np.append(np.flatnonzero(np.diff(self._span_of, prepend=-1)), len(self._span_of))
        known = np.minimum(self.shared, counts)
        spans = np.searchsorted(opens[:-1], known)
        many = spans + (counts > known)
        request = np.repeat(np.arange(len(counts)), many)
        turn = np.arange(len(request)) - np.repeat(np.cumsum(many) - many, many)
        first = self.private[request] + known[request]
        lengths = counts[request] - known[request]
        shared = turn < spans[request]
        request, turn = request[shared], turn[shared]
        begin = opens[turn]
        first[shared] = self._chain[self._starts[request] + self._span_of[begin]] * self._per_span     # the place inside is 0
        lengths[shared] = np.minimum(opens[turn + 1], known[request]) - begin
        return first, lengths

    def at(self, requests: IntArray, blocks: IntArray) -> IntArray:
        """The hash of block ``blocks[i]`` of ``requests[i]``, shape (n,)."""
        hashes: IntArray = self.private[requests] + blocks
        if not self.shared_count:
            return hashes
        shared = blocks < self.shared[requests]
        if shared.any():
            b = blocks[shared]
            spans = self._chain[self._starts[requests[shared]] + self._span_of[b]]
            hashes[shared] = spans * self._per_span + self._within[b]
        return hashes

    def owners(self, hashes: IntArray) -> IntArray:
        """The requests whose private blocks these are, shape (n,)."""
        owner: IntArray = self._first.searchsorted(hashes, side="right") - 1
        return owner


def _leading(common: NDArray[np.bool_], starts: IntArray) -> IntArray:
    """How many ids of each request are common: its first ones, as whatever is before a common prefix is common.

    >>> _leading(np.array([True, False, True, False, False]), np.array([0, 2, 4, 5])).tolist()
    [1, 1, 0]
    """
    total = np.concatenate((np.zeros(1, np.int64), common.cumsum()))
    leading: IntArray = np.diff(total[starts])
    return leading
