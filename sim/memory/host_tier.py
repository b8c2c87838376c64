"""A tier in host memory behind the block pool: the contents it holds, and the order in which they leave.

    GPU pool   take: block 17 is used again, its content 40 evicted ---->  [ 12 | 9 | 41 | 40 ]   host tier, H = 4
                                                                             ^ leaves next   ^ came or was found last
    admission  contents 9 and 41 found again: new GPU blocks, loaded <----  [ 12 | 40 | 41 | 9 ]   they stay, as the newest

A content is a block hash (`block_hash`), and is here once, however many blocks held it, whether or not a GPU block holds it
too. It leaves when it is the oldest and room is needed: least recently used first. What is found together is renewed last
block first, as the pool frees a block table, so that of a prefix the tail leaves before the head.
"""

from __future__ import annotations

import numpy as np

from workloads.request import IntArray

ABSENT = -1


class HostTier:
    """The contents of ``size`` host blocks, in order.

    Parameters
    ----------
    size : int
        Blocks, at least 1.
    num_hashes : int
        Block hashes are integers in ``[0, num_hashes)``.

    Attributes
    ----------
    held : int
        Contents here now.
    stored, kept, dropped : int
        Evicted contents that were copied down, those that were here already, and those that left for want of room:
        ``held`` has grown by ``stored - dropped``.

    Raises
    ------
    ValueError
        If there is no block.

    Examples
    --------
    >>> tier = HostTier(3, 50)
    >>> tier.put(np.array([12, 9, 41, 40]))
    >>> tier.order().tolist(), tier.leading(np.array([9, 41, 12, 40]))
    ([9, 41, 40], 2)
    >>> tier.renew(np.array([9, 41]))
    >>> tier.order().tolist()
    [40, 41, 9]
    """

    def __init__(self, size: int, num_hashes: int) -> None:
        if size < 1:
            raise ValueError(f"a tier in host memory has at least 1 block, not {size}")
        self.size = size
        self.held = 0
        self._room = min(size, num_hashes)
        # A log as the pool's free queue is one: an entry is stale where its content has another place by now.
        self._log: IntArray = np.zeros(2 * self._room + 64, np.int64)
        self._place: IntArray = np.full(num_hashes, ABSENT, np.int64)
        self._head = self._tail = 0
        self.start_counting()

    def start_counting(self) -> None:
        """Counters begin at 0 now."""
        self.stored = self.kept = self.dropped = 0

    def leading(self, hashes: IntArray) -> int:
        """How many of ``hashes`` are here before the first that is not."""
        missing = self._place[hashes] == ABSENT
        return int(missing.argmax()) if np.count_nonzero(missing) else len(hashes)

    def renew(self, hashes: IntArray) -> None:
        """These, all different and here, were found: they become the newest, the first the very newest."""
        self._append(hashes[::-1])

    def put(self, hashes: IntArray) -> None:
        """Contents evicted from the pool, in this order: each comes here, or is the newest again."""
        n = len(hashes)
        victims = self._front(self.held + n - self.size)
        places = self._place[hashes]
        here = places[places != ABSENT]
        if n > 1 and (n > self._room or (len(here) and len(victims) and here.min() <= self._place[victims[-1]])):
            self.put(hashes[: n // 2])                 # one might leave before its own turn: then halves are counted apart
            self.put(hashes[n // 2:])
            return
        start = self._append(hashes)
        last = self._place[hashes] == np.arange(start, self._tail)       # of equal ones
        came = int(np.count_nonzero(last & (places == ABSENT)))
        self.held += came
        self.stored += came
        self.kept += n - came
        self._drop(self.held - self.size)

    def order(self) -> IntArray:
        """All contents, the one that leaves next first (a copy)."""
        return self._front(self.held)

    def _drop(self, n: int) -> None:
        if n > 0:
            gone = self._front(n)
            self._head = int(self._place[gone[-1]]) + 1
            self._place[gone] = ABSENT
            self.held -= n
            self.dropped += n

    def _front(self, n: int) -> IntArray:
        """The ``n`` oldest contents, or all if there are fewer."""
        if n <= 0:
            return self._log[:0]
        look = n
        while True:                                    # stale places among them: look twice as far
            stop = min(self._tail, self._head + look)
            log = self._log[self._head:stop]
            valid: IntArray = log[self._place[log] == np.arange(self._head, stop)]
            if len(valid) >= n or stop == self._tail:
                return valid[:n]
            look *= 2

    def _append(self, hashes: IntArray) -> int:
        """Write at the end of the log; returns the place of the first."""
        if self._tail + len(hashes) > len(self._log):
            order = self.order()
            self._head, self._tail = 0, len(order)
            self._log[: self._tail] = order
            self._place[order] = np.arange(self._tail)
        start, self._tail = self._tail, self._tail + len(hashes)
        self._log[start:self._tail] = hashes
        self._place[hashes] = np.arange(start, self._tail)
        return start
