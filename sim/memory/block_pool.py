"""The block pool: who holds each block, which are free and in what order, and which can be found again.

The pool owns three facts and nothing else changes them:

* ``ref`` - how many block tables hold a block;
* the **free queue** - blocks with ref count 0 in the order they will be handed out;
* the **prefix index** - which block holds the content with a given block hash (`prefix_index` keeps it).

The free queue is vLLM's (rules 2-5 of docs/rules.md; `free_queue` keeps it). ``take`` pops at the front; a freed block without a
hash goes to the front, one with a hash to the end, so it is evicted as late as possible:

    front                                                   end
    [ partly filled, freed last ... | never used ... | cached, freed first ... cached, freed last ]
      ^ take(n)                                        ^ evicted when the blocks before it are gone

Older versions of vLLM put every freed block at the end, hashed or not (``split_freed=False``).

Block ids are 64-bit where they index arrays: numpy converts all others first, which for some ten blocks takes five times as long
as the look-up itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from sim.memory.free_queue import FreeQueue
from sim.memory.prefix_index import NO_HASH, BlockIds, PrefixIndex
from workloads.request import IntArray

# An array is compared with another array in half the time that a Python number takes (0.5 and 1.0 us for 75 blocks), and the
# ones of its bytes are counted in a quarter of count_nonzero's (0.15 and 0.6 us).
ZERO, ONE, NONE = np.array(0, np.int32), np.array(1, np.int32), np.array(NO_HASH)


class BlockPool(PrefixIndex):
    """All blocks of one device, block 0 being the null block that is never handed out.

    Parameters
    ----------
    num_blocks : int
        vLLM's ``num_gpu_blocks``, null block included; ``num_blocks - 1`` are usable.
    num_hashes : int
        Block hashes below are found by the index; those from here on belong to one request each, which remembers itself where
        its blocks lay (`mark`).
    caching : bool, optional
        Whether blocks may have hashes at all; by default if any can be found.
    split_freed : bool
        Freed blocks without a hash go to the front of the free queue; if false (vLLM up to 0.23) all go to its end.

    Attributes
    ----------
    ref : int32, shape (num_blocks,)
    cached_free : int
        Blocks in the free queue that have a hash.
    evicted, taken, touched : int
        Counters.

    Raises
    ------
    ValueError
        If there is not even the null block.

    Examples
    --------
    >>> pool = BlockPool(num_blocks=5, num_hashes=10)
    >>> table = pool.take(3)
    >>> pool.cache(table[:2], np.array([7, 8]))
    >>> pool.release(table)
    >>> pool.free_queue().tolist()          # block 3 has no hash, block 4 was never used, then the tail first
    [3, 4, 2, 1]
    >>> pool.lookup(np.array([7, 8, 9])).tolist()
    [1, 2]
    """

    def __init__(self, num_blocks: int, num_hashes: int = 0, split_freed: bool = True, caching: bool | None = None) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks must be at least 1, the null block, not {num_blocks}")
        super().__init__(num_blocks, num_hashes)
        self.num_blocks = num_blocks
        self.caching = num_hashes > 0 if caching is None else caching
        self.split_freed = split_freed
        self.ref = np.zeros(num_blocks, np.int32)
        self.cached_free = 0
        self.start_counting()
        self._watchers: list[Callable[[BlockIds], None]] = []
        self._queue = FreeQueue(num_blocks)

    def start_counting(self) -> None:
        """Counters of evicted, taken and touched blocks begin at 0 now."""
        self.evicted = self.taken = self.touched = 0

    @property
    def free(self) -> int:
        """Blocks in the free queue."""
        return self._queue.free

    def free_queue(self) -> BlockIds:
        """They in the order they will be handed out (a copy, for tests and reports)."""
        return self._queue.order()

    # ------------------------------------------------------------------ the operations on blocks
    def take(self, n: int) -> BlockIds:
        """Pop ``n`` blocks from the front of the free queue, evicting those still cached (rules 2 and 3).

        Raises
        ------
        ValueError
            If fewer than ``n`` blocks are free: the caller asks `free` first.
        """
        free = self._queue.free
        if n > free:
            raise ValueError(f"asked for {n} blocks with {free} free")
        blocks = self._queue.pop(n)
        self.ref[blocks] = 1
        unhashed = free - self.cached_free
        self.taken += n
        if not self.split_freed:
            self._evict(blocks[self._hash_of[blocks] != NO_HASH])
        elif n > unhashed:                             # all without a hash are in front of all that have one
            self._evict(blocks[unhashed:] if unhashed else blocks)
        return blocks

    def evicted_of_next(self, n: int) -> list[bool]:
        """Which of the next ``n`` blocks will be evicted when they are taken."""
        if self.split_freed:
            unhashed = min(n, self.free - self.cached_free)
            return [False] * unhashed + [True] * (n - unhashed)
        flags: list[bool] = (self._hash_of[self._queue.first(n)] != NO_HASH).tolist()
        return flags

    def lying_free(self, blocks: BlockIds) -> int:
        """How many of these blocks are held by nobody."""
        return (self.ref[blocks] == ZERO).tobytes().count(1) if len(blocks) else 0

    def touch(self, blocks: BlockIds) -> None:
        """Hold blocks once more: found by a lookup, those with ref count 0 leave the free queue (rule 4); or of a fork."""
        held = self.ref[blocks]
        if len(blocks) and not held[held.argmin()]:    # a look at each takes three times as long
            free = blocks[held == ZERO]
            self._queue.unlink(free)
            self.cached_free -= len(free)
        self.touched += len(blocks)
        self.ref[blocks] = held + 1

    def leave(self, blocks: BlockIds) -> None:
        """Each entry is one holder of a shared block that goes on in a copy; ValueError if no other would be left."""
        np.subtract.at(self.ref, blocks, 1)
        if np.count_nonzero(self.ref[blocks] < 1):
            raise ValueError(f"nobody is left to hold block {int(blocks[self.ref[blocks].argmin()])}")

    def release(self, table: BlockIds, hashed: int | None = None) -> None:
        """Give back the blocks of one block table, walking it from its end (rule 5).

        A caller who knows it says that the first ``hashed`` have a hash and the others none; that saves looking at each.

        Raises
        ------
        ValueError
            On a double free: a block of the table is held by nobody.
        """
        walk = table[::-1].copy()                      # writing through a reversed view takes three times as long
        n = len(walk)
        bare = n if not self.caching else None if hashed is None else n - hashed
        held = self.ref[walk]
        last = held == ONE
        alone = last.tobytes()
        freed = alone.count(1)
        if freed == n:
            self.ref[walk] = 0
        else:
            fewest = held.argmin()
            if not held[fewest]:
                raise ValueError(f"double free of block {int(walk[fewest])}")
            self.ref[walk] = held - 1
            walk = walk[:freed] if alone.find(0) == freed else walk[last]      # usually the front of a table is shared
            bare = None if bare is None else alone.count(1, 0, bare)
        if bare is None:
            walk, bare = self._bare_first(walk)
        self.cached_free += freed - bare
        front = bare if self.split_freed else 0
        self._queue.append(walk[front:])
        self._queue.push_front(walk[:front])

    def _bare_first(self, walk: BlockIds) -> tuple[BlockIds, int]:
        """Freed blocks, those without a hash in front where that matters, and how many those are."""
        hashed = self._hash_of[walk] != NONE
        flags = hashed.tobytes()
        bare = flags.count(0)
        if self.split_freed and flags.find(1) not in (bare, -1):               # they are usually: the end of a table
            walk = np.concatenate((walk[~hashed], walk[hashed]))
        return walk, bare

    def flow(self, tables: BlockIds, where: IntArray, leaving: Iterable[tuple[int, int, int, int]]) -> NDArray[np.bool_]:
        """Many takes and releases in turn, of blocks that nobody else holds; `settle` says what they hold in the end.

        Parameters
        ----------
        tables : int64
            Block tables one behind the other; what is taken is written into them.
        where : int64, shape (taken,)
            The places in ``tables`` of all blocks that are taken, in order.
        leaving : iterable of (taken, first, full, stop)
            So many blocks have been taken when the table at places ``first`` to ``stop - 1`` is given back, of which those before
            ``full`` are full.

        Returns
        -------
        bool array, shape (taken,)
            Which blocks were evicted when they were taken.
        """
        queue, evicted, at = self._queue, np.zeros(len(where), np.bool_), 0
        for taken, first, full, stop in (*leaving, (len(where), 0, 0, 0)):
            if taken > at:
                lost = at + queue.free - self.cached_free
                if lost < taken:
                    evicted[lost:taken] = True
                    self.cached_free -= taken - lost
                tables[where[at:taken]] = queue.pop(taken - at)
                at = taken
            walk, hashed = tables[first:stop][::-1].copy(), full - first if self.caching else 0
            bare = stop - first - hashed if self.split_freed else 0
            queue.append(walk[bare:])
            queue.push_front(walk[:bare])
            self.cached_free += hashed
        self.taken += at
        self.evicted += int(np.count_nonzero(evicted))
        return evicted

    def settle(self, blocks: BlockIds, ref: int, hashes: IntArray | int) -> None:
        """What blocks hold after a `flow`, and how many tables hold them: what is said last of a block counts."""
        self.ref[blocks] = ref
        self._hash_of[blocks] = hashes

    # ------------------------------------------------------------------ eviction
    @property
    def watched(self) -> bool:
        """Whether anybody wants to be told of evictions."""
        return bool(self._watchers)

    def watch(self, seen: Callable[[BlockIds], None]) -> None:
        """Call ``seen`` with the ids of the blocks evicted, in order, if there are any; `written` still has their hashes."""
        self._watchers.append(seen)

    def _evict(self, blocks: BlockIds) -> None:
        n = len(blocks)
        if not n:
            return
        self.evicted += n
        self.cached_free -= n
        for seen in self._watchers:
            seen(blocks)
        self._forget(blocks)
