"""Which block leaves a full prefix cache: one small class a policy, one line in `catalog.EVICTION`.

A policy sees a request's blocks head first, answers for each whether it is there, and makes room where it is not:

    begin(r)  ->  access(block) -> hit or miss, once for each block of r  ->  end(r)

Only hits of all blocks before it make a hit serve (`replay` counts so); a policy does not know that. Nothing here knows time:
recency is a place in a queue. Python containers, one block at a time: for the sake of being read. The curves of
`curve` give the two queues of every size at once, in numpy; a policy whose hits follow from such distances may say all of a
stream's `at_once`, the same as one by one.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Protocol

from sim.caching.curve import piece_distances
from sim.caching.pieces import Pieces, pieces
from sim.caching.stream import COLD, Accesses, Mask

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

    def at_once(self, stream: Accesses) -> tuple[Pieces, Mask] | None:
        """The pieces of a stream and which of them hit, where the policy knows a quicker way than block by block."""
        ...


class ByAccess:
    """What policies share that know nothing of requests."""

    def __init__(self, size: int, stream: Accesses) -> None:
        if size < 1:
            raise ValueError(f"a cache has room for at least 1 block, not {size}")
        self.size = size

    def begin(self, request: int) -> None:
        """Nothing to do."""

    def end(self, request: int) -> None:
        """Nothing to do."""

    def at_once(self, stream: Accesses) -> tuple[Pieces, Mask] | None:
        """None: block by block."""
        return None


class Lru(ByAccess):
    """The block whose last use is longest ago leaves; a request's blocks are used head first, so its head leaves first."""

    FEW = 0.5
    """Pieces a block accessed, at most, for distances to be worth it: at a half, random streams take as long either way."""

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

    def at_once(self, stream: Accesses) -> tuple[Pieces, Mask] | None:
        """A block is there if fewer distinct others than there is room for were used since its last use."""
        # 0.044 s of CPU on the benchmark `lru`, 3.7 ns an access; block by block 3.2 s
        cut = pieces(stream)
        if self._queue or len(cut.stream) > self.FEW * len(stream):
            return None
        distances = piece_distances(cut)
        return cut, (distances != COLD) & (distances < self.size)


class Fifo(ByAccess):
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


class Vllm(ByAccess):
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


class Lfu(ByAccess):
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
