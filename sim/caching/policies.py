"""Which block leaves a full prefix cache: one small class a policy, one line in `catalog.EVICTION`.

A policy sees a request's blocks head first, answers for each whether it is there, and makes room where it is not:

    begin(r)  ->  access(block) -> hit or miss, once for each block of r  ->  end(r)

Only hits of all blocks before it make a hit serve (`replay` counts so); a policy does not know that. Nothing here knows time:
recency is a place in a queue. Python containers, one block at a time: for the sake of being read. The curves of
`curve` give the two queues of every size at once, in numpy.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, defaultdict, deque
from typing import Protocol

from sim.caching.stream import Accesses, next_access

Queue = OrderedDict[int, None]                         # blocks, the first to leave first


class EvictionPolicy(Protocol):
    """A cache with room for ``size`` blocks of the stream it is made for."""

    def begin(self, request: int) -> None:
        """The blocks of this request come next."""
        ...

    def access(self, block: int) -> bool:
        """Whether the block is there; if not, it comes in, and another leaves where there is no room."""
        ...

    def end(self, request: int) -> None:
        """All its blocks have come."""
        ...


class _ByAccess:
    """What policies share that know nothing of requests."""

    def __init__(self, size: int, stream: Accesses) -> None:
        if size < 1:
            raise ValueError(f"a cache has room for at least 1 block, not {size}")
        self.size = size

    def begin(self, request: int) -> None:
        """Nothing to do."""

    def end(self, request: int) -> None:
        """Nothing to do."""


class Lru(_ByAccess):
    """The block whose last use is longest ago leaves; a request's blocks are used head first, so its head leaves first."""

    def __init__(self, size: int, stream: Accesses) -> None:
        super().__init__(size, stream)
        self._queue: Queue = OrderedDict()

    def access(self, block: int) -> bool:
        hit = block in self._queue
        if hit:
            self._queue.move_to_end(block)
        else:
            if len(self._queue) == self.size:
                self._queue.popitem(last=False)
            self._queue[block] = None
        return hit


class Fifo(_ByAccess):
    """The block that came in first leaves, however often it was used since."""

    def __init__(self, size: int, stream: Accesses) -> None:
        super().__init__(size, stream)
        self._queue: Queue = OrderedDict()

    def access(self, block: int) -> bool:
        if block in self._queue:
            return True
        if len(self._queue) == self.size:
            self._queue.popitem(last=False)
        self._queue[block] = None
        return False


class Vllm(_ByAccess):
    """vLLM's free queue where one request runs at a time: it pins its blocks, and gives them back tail first (rule 5).

    A request that does not fit caches as many blocks from its head as there is room for.
    """

    def __init__(self, size: int, stream: Accesses) -> None:
        super().__init__(size, stream)
        self._free: Queue = OrderedDict()
        self._held: list[int] = []

    def begin(self, request: int) -> None:
        self._held = []

    def access(self, block: int) -> bool:
        hit = block in self._free
        if hit:
            del self._free[block]
        elif len(self._free) + len(self._held) == self.size:
            if not self._free:
                return False
            self._free.popitem(last=False)
        self._held.append(block)
        return hit

    def end(self, request: int) -> None:
        for block in reversed(self._held):
            self._free[block] = None


class Lfu(_ByAccess):
    """The block used least often since it came in leaves; of equals the one whose last use is longest ago."""

    def __init__(self, size: int, stream: Accesses) -> None:
        super().__init__(size, stream)
        self._uses: dict[int, int] = {}
        self._with: defaultdict[int, Queue] = defaultdict(OrderedDict)
        self._least = 1

    def access(self, block: int) -> bool:
        uses = self._uses.get(block, 0)
        if uses:
            del self._with[uses][block]
            if uses == self._least and not self._with[uses]:
                self._least += 1
        else:
            if len(self._uses) == self.size:
                del self._uses[self._with[self._least].popitem(last=False)[0]]
            self._least = 1
        self._uses[block] = uses + 1
        self._with[uses + 1][block] = None
        return uses > 0


class Sieve(_ByAccess):
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


class S3Fifo(_ByAccess):
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


class Gdsf(_ByAccess):
    """GreedyDual-Size-Frequency: blocks of long prompts, used seldom, leave first.

    A block is worth its uses over the blocks of the request that brought it, plus the worth of the last one that left, so
    that what is not used any more grows old.
    """

    def __init__(self, size: int, stream: Accesses) -> None:
        super().__init__(size, stream)
        self._blocks = [int(end) - int(start) for start, end in zip(stream.starts[:-1], stream.starts[1:], strict=True)]
        self._cost = 1.0
        self._age = 0.0
        self._turn = 0
        self._now: dict[int, tuple[float, int, int, float]] = {}    # block -> worth, turn, uses, cost: its entry in the heap
        self._heap: list[tuple[float, int, int]] = []

    def begin(self, request: int) -> None:
        self._cost = 1 / max(self._blocks[request], 1)

    def access(self, block: int) -> bool:
        entry = self._now.get(block)
        if entry is None and len(self._now) == self.size:
            self._evict()
        uses, cost = (1, self._cost) if entry is None else (entry[2] + 1, entry[3])
        worth = self._age + uses * cost
        self._turn += 1
        self._now[block] = (worth, self._turn, uses, cost)
        heapq.heappush(self._heap, (worth, self._turn, block))
        return entry is not None

    def _evict(self) -> None:
        while True:
            worth, turn, block = heapq.heappop(self._heap)
            if block in self._now and self._now[block][1] == turn:  # an older entry of a block that was used since is stale
                del self._now[block]
                self._age = worth
                return


class Belady(_ByAccess):
    """The bound: the block whose next use is farthest away leaves, or does not come in at all (Belady 1966)."""

    def __init__(self, size: int, stream: Accesses) -> None:
        super().__init__(size, stream)
        self._next = next_access(stream).tolist()
        self._at = -1
        self._due: dict[int, int] = {}                 # block -> its next use
        self._heap: list[tuple[int, int]] = []         # (-next use, block)

    def access(self, block: int) -> bool:
        self._at += 1
        hit = block in self._due
        due = self._next[self._at]
        if hit:
            del self._due[block]
        if due == len(self._next):                     # never again
            return hit
        while not hit and len(self._due) >= self.size:
            farthest, victim = self._heap[0]
            if self._due.get(victim) != -farthest:
                heapq.heappop(self._heap)
            elif -farthest <= due:
                return hit
            else:
                heapq.heappop(self._heap)
                del self._due[victim]
        self._due[block] = due
        heapq.heappush(self._heap, (-due, block))
        return hit
