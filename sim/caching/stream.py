"""Which blocks prompts look up, one after another, and how far back each was used: all that a cache of any size needs to know.

    request 0   7 8 9          accesses   7 8 9 | 7 8 4 | 7 8 9      a request's blocks head first
    request 1   7 8 4          distance   . . . | 2 2 . | 2 2 3      distinct other blocks since the last access
    request 2   7 8 9                                                . first access: cold, no cache helps

**A cache of C blocks with the least recently used one leaving hits exactly the accesses with a distance below C**, so one
pass gives the hit rate of every size. A hit serves only behind hits of all blocks before it in the prompt. Head first that is
no further condition: who used a block used the whole prefix before it, so distances never fall along a request.

Two ways to cut prompts into blocks are in use, and their hit rates differ:

- ``full``: floor(P / block) whole blocks, as engines share them (`block_hash`); an id may stand for more or fewer tokens;
- ``ceil``: every content id of the trace is a block, a last partial one as well, as papers on traces count.

Blocks have numbers in ``[0, count)``: equal number, equal whole prefix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.demand import Demand
from sim.memory.block_hash import BlockHashes, chain_ids
from workloads.request import ContentIds, IntArray, Trace

SmallInts: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]

CONVENTIONS = ("full", "ceil")
COLD = -1
UNLIMITED = 1 << 62                                    # max_model_len: nothing is cut


@dataclass(frozen=True, eq=False)
class Accesses:
    """The blocks of all requests in order of the trace, each request's head first.

    Parameters
    ----------
    blocks : int32, shape (accesses,)
        Block numbers in ``[0, count)``; no request has one twice.
    starts : int64, shape (requests + 1,)
        Request ``r`` owns ``blocks[starts[r]:starts[r + 1]]``.
    queries : int64, shape (requests,)
        That many of a request's accesses, from its head, are its prompt's and looked up. The others, where ids cover the output,
        are filled by generation: they take room and can be found later.
    count : int
        Distinct blocks.
    block_size : int
        Tokens a block.
    """

    blocks: SmallInts
    starts: IntArray
    queries: IntArray
    count: int
    block_size: int

    def __len__(self) -> int:
        return len(self.blocks)

    def leading(self, most: IntArray | None = None) -> Mask:
        """Which accesses are among the first ``most`` of their request (int64, shape (requests,)); by default its queries.

        >>> Accesses(np.zeros(5, np.int32), np.array([0, 3, 5]), np.array([2, 2]), 3, 16).leading().tolist()
        [True, True, False, True, True]
        """
        edges = np.zeros(len(self) + 1, np.int8)
        counts = self.queries if most is None else np.minimum(most, np.diff(self.starts))
        some = counts > 0
        edges[self.starts[:-1][some]] = 1
        edges[(self.starts[:-1] + counts)[some]] -= 1  # where the next request begins at once, the two cancel: still inside
        return np.cumsum(edges[:-1], dtype=np.int8).astype(np.bool_)


def accesses(trace: Trace, block_size: int, convention: str = "full", generated: bool = False) -> Accesses:
    """The block accesses of a trace.

    Parameters
    ----------
    trace : Trace
        With content.
    block_size : int
        Tokens a block; for ``ceil`` the trace's own ``span_tokens``.
    convention : str
        ``full`` or ``ceil``, see above. With ``full``, whole prompt blocks without identity are accesses too, each of a block
        of its own.
    generated : bool
        Whether full blocks that generation fills are accesses even where the ids do not cover the output: they take room, as in
        an engine, and nobody finds them. With ``full`` only.

    Raises
    ------
    ValueError
        If the trace has no prefix identity, or the block size or the convention does not fit; names the value.

    >>> content = ContentIds(np.array([7, 8, 9, 7, 8]), np.array([0, 3, 5]), 16)
    >>> trace = Trace("two", np.array([40, 20]), np.array([1, 1]), content=content)
    >>> accesses(trace, 16, "ceil").blocks.tolist(), accesses(trace, 16).blocks.tolist(), accesses(trace, 8).blocks.tolist()
    ([0, 1, 2, 0, 1], [0, 1, 0], [0, 1, 2, 3, 4, 0, 1])
    """
    content = identity(trace)
    if block_size < 1:
        raise ValueError(f"the block size must be at least 1 token, not {block_size}")
    if convention not in CONVENTIONS:
        raise ValueError(f"unknown convention {convention!r}: one of {', '.join(CONVENTIONS)}")
    if convention == "full":
        return _full(trace, block_size, generated or content.cover_output)
    if block_size != content.span_tokens:
        raise ValueError(f"with ceil a block is an id of the trace, {content.span_tokens} tokens, not {block_size}")
    chain, count = chain_ids(content)
    queries = np.diff(content.starts)
    if content.cover_output:
        queries = np.minimum(queries, -(-trace.prompt_tokens // block_size))
    return Accesses(chain.astype(np.int32), content.starts, queries, count, block_size)


def identity(trace: Trace) -> ContentIds:
    """The content of a trace, or a ValueError that names the trace."""
    if trace.content is None:
        raise ValueError(f"{trace.source} has no prefix identity: sharing cannot be measured on it")
    return trace.content


def _full(trace: Trace, block_size: int, generated: bool) -> Accesses:
    demand = Demand(trace, UNLIMITED)
    hashes = BlockHashes(demand, block_size)
    queries = demand.prompt // block_size
    counts = demand.end // block_size if generated else queries
    first, lengths = hashes.runs(counts)
    # run by run, not block by block: what takes 0.63 s for the 11.8 million blocks of the benchmark `lru` takes 0.09 s
    runs = np.bincount(first, minlength=hashes.count + 1).astype(np.int32)     # that a block lies in; 32 bits for the room
    runs -= np.bincount(first + lengths, minlength=len(runs))
    used = np.cumsum(runs, out=runs) > 0
    number = np.cumsum(used, out=runs)                 # from 1 on; all blocks of a run are used: it stays a run
    starts = np.append(0, np.cumsum(counts))
    before = np.cumsum(lengths) - lengths
    blocks = np.arange(starts[-1], dtype=np.int32)
    blocks += np.repeat((number[first] - 1 - before).astype(np.int32), lengths)
    return Accesses(blocks, starts, queries, int(np.count_nonzero(used)), block_size)


def by_block(stream: Accesses) -> tuple[IntArray, Mask]:
    """The accesses sorted by block, a block's in order of time, and which of them is its block's first.

    >>> by_block(Accesses(np.array([1, 0, 1], np.int32), np.array([0, 3]), np.array([3]), 2, 16))
    (array([1, 0, 2]), array([ True,  True, False]))
    """
    bits = max(len(stream) - 1, 1).bit_length()
    keys = stream.blocks.astype(np.int64)              # (block, time) in one integer: sorts several times faster than argsort
    keys <<= bits
    keys |= np.arange(len(stream))
    keys.sort()
    block = keys >> bits
    keys &= (1 << bits) - 1
    return keys, np.append(True, block[1:] != block[:-1])[:len(keys)]


def last_access(stream: Accesses) -> SmallInts:
    """For each access the place of the access before it to the same block; COLD for none.

    >>> last_access(Accesses(np.array([1, 0, 1], np.int32), np.array([0, 3]), np.array([3]), 2, 16)).tolist()
    [-1, -1, 0]
    """
    order, first = by_block(stream)
    before = np.full(len(stream), COLD, np.int32)
    before[order[1:][~first[1:]]] = order[:-1][~first[1:]]
    return before


def next_query(stream: Accesses) -> IntArray:
    """For each access the place of the next lookup of the same block; the length of the stream for none.

    >>> next_query(Accesses(np.array([1, 0, 1, 1], np.int32), np.array([0, 3, 4]), np.array([2, 1]), 2, 16)).tolist()
    [3, 4, 3, 4]
    """
    order, first = by_block(stream)
    never = len(stream)
    due = np.append(np.where(stream.leading()[order], order, never), never)
    last = np.append(np.flatnonzero(first)[1:], never)             # where the next block's accesses begin
    block = np.cumsum(first) - 1
    after = np.empty(never, np.int64)
    # within a block times rise, so the next lookup is the least of those behind; blocks are kept apart by lifting them
    lift = (len(last) - block) * (never + 1)
    lifted = np.minimum.accumulate((due[:-1] - lift)[::-1])[::-1] + lift
    follows = np.arange(1, never + 1)
    inside = follows < last[block]
    after[order] = np.where(inside, np.append(lifted, never)[follows], never)
    return np.minimum(after, never)


def leading_run(stream: Accesses, hit: Mask) -> IntArray:
    """How many of each request's queries are hits before the first that is not; shape (requests,).

    >>> leading_run(Accesses(np.zeros(4, np.int32), np.array([0, 3, 4]), np.array([3, 1]), 1, 16), np.array([1, 0, 1, 1], bool))
    array([1, 1])
    """
    misses = np.append(np.flatnonzero(~hit), len(stream))
    begin = stream.starts[:-1]
    run: IntArray = np.minimum(misses[np.searchsorted(misses, begin)] - begin, stream.queries)
    return run
