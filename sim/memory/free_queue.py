"""The free queue: blocks with ref count 0 in the order they will be handed out, as a log with stale places.

    front                                                   end
    [ partly filled, freed last ... | never used ... | cached, freed first ... cached, freed last ]
      ^ pop(n)                                         ^ evicted when the blocks before it are gone

A block that is hit while it waits in the middle of the queue is not unlinked: its place in the log goes stale (``_place[block]``
no longer points there) and is skipped when it reaches the front. Up to the next stale place a run of blocks is one slice.
"""

from __future__ import annotations

import numpy as np

from sim.entries import entries
from workloads.request import IntArray

NOT_FREE = -1
AHEAD = 2048


class FreeQueue:
    """Blocks 1 to ``num_blocks - 1``, all of them in it at first.

    Attributes
    ----------
    free : int
        Blocks in the queue.

    Examples
    --------
    >>> queue = FreeQueue(6)
    >>> queue.pop(2).tolist(), queue.free
    ([1, 2], 3)
    >>> queue.append(np.array([1])); queue.push_front(np.array([2])); queue.unlink(np.array([4]))
    >>> queue.order().tolist()
    [2, 3, 5, 1]
    """

    _head: int
    _tail: int
    _sound: int

    def __init__(self, num_blocks: int) -> None:
        self.free = num_blocks - 1
        self.num_blocks = num_blocks
        size = 4 * num_blocks + 64
        self._log: IntArray = np.zeros(size, np.int64)
        self._at = np.arange(size, dtype=np.int32)
        self._place = np.full(num_blocks, NOT_FREE, np.int32)
        self._log1, self._place1 = entries(self._log), entries(self._place)
        self._start_log(np.arange(1, num_blocks))

    def order(self) -> IntArray:
        """The free blocks in the order they will be handed out (a copy, for tests and reports)."""
        log = self._log[self._head:self._tail]
        queue: IntArray = log[self._place[log] == self._at[self._head:self._tail]]
        return queue

    def pop(self, n: int) -> IntArray:
        """The first ``n`` blocks leave."""
        head = self._head
        if head + n <= self._sound or self._tail - head == self.free:          # the latter: no place in the log is stale
            self._head = head + n
            blocks = self._log[head:head + n].copy()
        else:
            blocks, self._head, self._sound = self._front(n)
        self.free -= n
        return blocks

    def first(self, n: int) -> IntArray:
        """The first ``n`` blocks, which stay (a copy)."""
        return self._front(n)[0]

    def unlink(self, blocks: IntArray) -> None:
        """These leave, wherever they are."""
        places = self._place[blocks]
        self._sound = min(self._sound, int(places[places.argmin()]))
        self._place[blocks] = NOT_FREE
        self.free -= len(blocks)

    def push_front(self, blocks: IntArray) -> None:
        """These come in front of all others, in this order."""
        n = len(blocks)
        if not n:
            return
        self.free += n
        if n > self._head:
            self._start_log(self.order())
        self._head -= n
        if n == 1:                                     # the partly filled end of a table
            block = self._log1[self._head] = int(blocks[0])
            self._place1[block] = self._head
        else:
            self._write(blocks, self._head)

    def append(self, blocks: IntArray) -> None:
        """These come behind all others, in this order."""
        n = len(blocks)
        if not n:
            return
        self.free += n
        if self._tail + n > len(self._log):
            self._start_log(self.order())
        self._write(blocks, self._tail)
        self._tail += n

    # ------------------------------------------------------------------ the log
    def _start_log(self, queue: IntArray) -> None:
        """Lay the queue out in the middle of the log: half of the room for either end. No other block has a place in it."""
        self._head = (len(self._log) - len(queue)) // 2
        self._tail = self._head + len(queue)
        self._write(queue, self._head)
        self._sound = self._tail

    def _front(self, n: int) -> tuple[IntArray, int, int]:
        """The first ``n`` blocks, where the log goes on behind them, and up to where no place is stale from there.

        That is looked for some way ahead: where blocks are shared, seven of eight runs that are taken are then a slice.
        """
        head, stop = self._head, min(self._head + max(n, AHEAD), self._tail)
        while True:
            blocks = self._log[head:stop]
            valid = self._place[blocks] == self._at[head:stop]
            flags = valid.tobytes()
            found = flags.count(1)
            if found >= n:
                break
            stop = min(self._tail, stop + max(2 * (n - found), stop - head))       # stale places among them: look further
        if 0 <= flags.find(0) < n:
            places = valid.nonzero()[0][:n]
            blocks, behind = blocks[places], int(places[-1]) + 1
        else:
            blocks, behind = blocks[:n].copy(), n
        stale = flags.find(0, behind)
        return blocks, head + behind, stop if stale < 0 else head + stale

    def _write(self, blocks: IntArray, start: int) -> None:
        stop = start + len(blocks)
        self._log[start:stop] = blocks
        self._place[blocks] = self._at[start:stop]
