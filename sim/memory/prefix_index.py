"""The prefix index: which block holds the content with a given block hash.

Block hashes are dense integers (see `block_hash`), so the index is an array and the longest cached prefix is one gather and one
search. An evicted hash is not taken out of the index: an entry counts only while the block it names still has the hash.

    hash       0   1   2   3                block      1   2   3   4
    index    [ 3 | 1 | 0 | 2 ]              hash_of  [ 1 | 7 | 0 | . ]      1 and 0 are found; 3 is not, as 2 holds 7 now
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workloads.request import IntArray

BlockIds = IntArray

NO_HASH = -1


class PrefixIndex:
    """The hashes of blocks, and those that are found by their hash.

    Parameters
    ----------
    num_blocks : int
    num_hashes : int
        Hashes below are found by the index.

    Attributes
    ----------
    hash_of : int64, shape (num_blocks,)
        -1 where a block has no hash. Whoever reads it sees what holders have put off too (`put_off`).
    """

    def __init__(self, num_blocks: int, num_hashes: int) -> None:
        self._hash_of: IntArray = np.full(num_blocks, NO_HASH, np.int64)
        self._put_off: Callable[[], None] | None = None
        self._index: IntArray = np.zeros(num_hashes, np.int64)         # 0 is the null block, which never has a hash
        self._copies: dict[int, list[int]] = {}
        self._has_copies = np.zeros(num_blocks, bool)

    @property
    def hash_of(self) -> IntArray:
        """The hash of every block."""
        if self._put_off is not None:
            self._put_off()
        return self._hash_of

    # ------------------------------------------------------------------ looking up
    def find(self, hashes: IntArray) -> BlockIds:
        """The block of each hash, NO_HASH where there is none (rule 6)."""
        blocks = self._index[hashes]
        blocks[self._hash_of[blocks] != hashes] = NO_HASH
        return blocks

    def lookup(self, hashes: IntArray) -> BlockIds:
        """The blocks that hold the longest findable prefix of ``hashes`` (rules 6 and 11)."""
        blocks = self._index[hashes]
        return self.leading(blocks, hashes)

    def leading(self, blocks: BlockIds, hashes: IntArray) -> BlockIds:
        """Those of ``blocks`` before the first that does not hold the hash beside it."""
        first = (self._hash_of[blocks] != hashes).tobytes().find(1)
        return blocks if first < 0 else blocks[:first]

    # ------------------------------------------------------------------ writing down
    def mark(self, blocks: BlockIds, hashes: IntArray) -> None:
        """Full blocks get hashes that no index knows."""
        self._hash_of[blocks] = hashes

    def put_off(self, mark: Callable[[], None]) -> None:
        """A holder will `mark` the full blocks of a table when it gives them back, and in ``mark()`` those of all tables.

        While a block is held nobody looks for a hash that no index knows. ``mark()`` is called before anybody reads `hash_of`.
        """
        self._put_off = mark

    def written(self, blocks: BlockIds) -> IntArray:
        """The hashes of blocks as far as they are written, which those of blocks that are free always are."""
        return self._hash_of[blocks]

    def cache(self, blocks: BlockIds, hashes: IntArray, distinct: bool = False) -> None:
        """Make full blocks findable, in this order; one whose hash is there already is kept beside the first (rule 6).

        ``distinct``: no two of the hashes are equal. That saves a look at all of them where none is there already.
        """
        there = self._index[hashes]
        new = self._hash_of[there] != hashes
        self._hash_of[blocks] = hashes
        if new.tobytes().count(1) == len(new):
            if distinct:
                self._index[hashes] = blocks
                return
            self._index[hashes[::-1]] = blocks[::-1]            # of equal ones the first stays: it is written last
        else:
            self._index[hashes[new][::-1]] = blocks[new][::-1]
        copy = self._index[hashes] != blocks
        if copy.tobytes().find(1) >= 0:
            self._note_copies(blocks[copy], hashes[copy])

    def _note_copies(self, blocks: BlockIds, hashes: IntArray) -> None:
        for block, content in zip(blocks.tolist(), hashes.tolist(), strict=True):
            self._copies.setdefault(content, []).append(block)
            self._has_copies[[block, self._index[content]]] = True

    def _forget(self, blocks: BlockIds) -> None:
        """These have no hash any more."""
        if self._copies and np.count_nonzero(self._has_copies[blocks]):
            self._forget_copies(blocks)
        self._hash_of[blocks] = NO_HASH

    def _forget_copies(self, blocks: BlockIds) -> None:
        """Evict one by one where a hash may stand for several blocks: the oldest of those left is found next."""
        several = blocks[self._has_copies[blocks]]
        self._has_copies[several] = False
        for block, content in zip(several.tolist(), self._hash_of[several].tolist(), strict=True):
            others = self._copies.get(content)
            if others is None:
                continue
            if self._index[content] == block:
                self._index[content] = others.pop(0)
            else:
                others.remove(block)
            if not others:
                del self._copies[content]
