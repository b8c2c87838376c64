"""Policies that let blocks prove themselves: those used again stay, those used once leave soon."""

from __future__ import annotations

from collections import OrderedDict, deque

from sim.caching.policies import ByAccess, Queue
from sim.caching.stream import Accesses


class Sieve(ByAccess):
    """SIEVE (Zhang et al., NSDI 2024): a queue in order of coming in, and a hand that goes from the oldest to the newest.

    It takes the mark of use off blocks as it passes and evicts the first without one; blocks keep their places.
    """

    def __init__(self, size: int, stream: Accesses) -> None:
        super().__init__(size, stream)
        self._newer: dict[int, int | None] = {}
        self._older: dict[int, int | None] = {}
        self._used: dict[int, bool] = {}
        self._newest: int | None = None
        self._oldest: int | None = None
        self._hand: int | None = None

    def access(self, block: int) -> bool:
        if block in self._used:
            self._used[block] = True
            return True
        if len(self._used) == self.size:
            self._evict()
        self._used[block] = False
        self._older[block], self._newer[block] = self._newest, None
        if self._newest is not None:
            self._newer[self._newest] = block
        self._newest = block
        if self._oldest is None:
            self._oldest = block
        return False

    def _evict(self) -> None:
        at = self._oldest if self._hand is None else self._hand
        assert at is not None
        while self._used[at]:
            self._used[at] = False
            newer = self._newer[at]
            at = self._oldest if newer is None else newer
            assert at is not None
        older, newer = self._older.pop(at), self._newer.pop(at)
        del self._used[at]
        self._hand = newer
        if older is None:
            self._oldest = newer
        else:
            self._newer[older] = newer
        if newer is None:
            self._newest = older
        else:
            self._older[newer] = older


class S3Fifo(ByAccess):
    """S3-FIFO (Yang et al., SOSP 2023): new blocks wait in a small queue; those used again move on, the others leave soon.

    A tenth of the room is the small queue's; until the first eviction what does not fit into it goes to the main queue at once.
    A ghost queue remembers the last to leave the small one, nine tenths as many as there is room for.
    """

    SMALL, GHOST, ENOUGH, MOST = 0.1, 0.9, 2, 3

    def __init__(self, size: int, stream: Accesses) -> None:
        super().__init__(size, stream)
        self._small: deque[int] = deque()
        self._main: deque[int] = deque()
        self._ghost: Queue = OrderedDict()
        self._uses: dict[int, int] = {}
        self._small_size = max(1, int(size * self.SMALL))
        self._ghost_size = int(size * self.GHOST)
        self._filling = True

    def access(self, block: int) -> bool:
        uses = self._uses.get(block)
        if uses is not None:
            self._uses[block] = min(uses + 1, self.MOST)
            return True
        known = block in self._ghost
        if known:
            del self._ghost[block]
        while len(self._uses) >= self.size:
            self._filling = False
            self._evict()
        self._uses[block] = 0
        straight = known or (self._filling and len(self._small) >= self._small_size)
        (self._main if straight else self._small).append(block)
        return False

    def _evict(self) -> None:
        if len(self._main) > self.size - self._small_size or not self._small:
            self._evict_main()
            return
        while self._small:
            block = self._small.popleft()
            if self._uses[block] >= self.ENOUGH:
                self._uses[block] = 0
                self._main.append(block)
                continue
            del self._uses[block]
            self._ghost[block] = None
            if len(self._ghost) > self._ghost_size:
                self._ghost.popitem(last=False)
            return

    def _evict_main(self) -> None:
        while self._main:
            block = self._main.popleft()
            if not self._uses[block]:
                del self._uses[block]
                return
            self._uses[block] -= 1
            self._main.append(block)
