"""The moments of a run: what an engine's observer is told, and what else happened meanwhile, one after the other.

    end of a step     whoever has its last token leaves
    arrival           a request joins the waiting queue
    begin of a step   preemptions, evictions, growth, admissions, and perhaps a refusal

At one instant they come in this order. Whoever follows a run twice sees the same moments under the same numbers, so one look can
choose and the next draw (`thin`, `record`). The engine must make every step by itself (``longest_jump=1``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sim.memory.allocator import Allocator
from sim.memory.contiguous import ContiguousAllocator
from sim.memory.paged import PagedAllocator
from sim.memory.prefix_index import BlockIds
from sim.run import Observer
from sim.scheduler import Scheduler
from sim.step import Jump, Step

ENDS, ARRIVES, BEGINS = range(3)
Stop = tuple[int, int, int]
"""Time in microseconds, phase, and which of several at that instant and phase."""
KINDS = ("arrive", "admit", "refuse", "grow", "share", "copy", "fork", "finish", "preempt", "evict", "step")


@dataclass(frozen=True)
class Moment:
    """What happened.

    Parameters
    ----------
    time_us : int
    phase : int
        `ENDS`, `ARRIVES` or `BEGINS`.
    kinds : frozenset of str
        Of `KINDS`.
    step : Step, optional
        The one that begins.
    requests : tuple of int
        Who arrived, or has its last token.
    evicted : tuple of (block, request)
        Blocks whose contents were forgotten, in that order, and who had written them.
    """

    time_us: int
    phase: int
    kinds: frozenset[str]
    step: Step | None = None
    requests: tuple[int, ...] = ()
    evicted: tuple[tuple[int, int], ...] = ()


@dataclass
class _Seen:
    """What is compared from one moment to the next."""

    taken: int = 0
    copies: int = 0
    handles: tuple[int, ...] = ()
    refused: tuple[int, bool] | None = None
    evicted: list[tuple[int, int]] = field(default_factory=list)


class Places:
    """Numbers what happens at one instant in one phase."""

    def __init__(self) -> None:
        self._at_once: Counter[tuple[int, int]] = Counter()

    def stop(self, time_us: int, phase: int) -> Stop:
        """The next of this instant and phase."""
        number = self._at_once[time_us, phase]
        self._at_once[time_us, phase] += 1
        return time_us, phase, number


class Watcher(Observer):
    """An observer that is told of moments: `begun` before the first, then `moment` for each."""

    def __init__(self) -> None:
        self._seen = _Seen()

    def begun(self, allocator: Allocator, scheduler: Scheduler) -> None:
        """What there is to look at."""

    def moment(self, moment: Moment) -> None:
        """What happened next; the allocator and the scheduler are as they are after it."""

    # ------------------------------------------------------------------ as the engine tells it
    def started(self, allocator: Allocator, scheduler: Scheduler) -> None:
        if not isinstance(allocator, PagedAllocator | ContiguousAllocator):
            raise ValueError(f"a {type(allocator).__name__} is not drawn: sequences without one block table or one reservation")
        self._allocator, self._scheduler = allocator, scheduler
        if isinstance(allocator, PagedAllocator):
            allocator.pool.watch(self._evicts)
            self._seen.taken = allocator.pool.taken
        self.begun(allocator, scheduler)

    def _evicts(self, blocks: BlockIds) -> None:
        assert isinstance(self._allocator, PagedAllocator)
        writers = self._allocator.writers(blocks).tolist()
        self._seen.evicted += zip(blocks.tolist(), writers, strict=True)

    def arrived(self, now_us: int, request: int) -> None:
        self.moment(Moment(now_us, ARRIVES, frozenset({"arrive"}), requests=(request,)))

    def updated(self, now_us: int, finished: list[int]) -> None:
        handles = tuple(self._scheduler.running.handle.tolist())
        kinds = {"finish"} if finished else {"fork"} if handles != self._seen.handles else set()
        self._seen.handles = handles
        if kinds:
            self.moment(Moment(now_us, ENDS, frozenset(kinds), requests=tuple(finished)))

    def scheduled(self, now_us: int, step: Step) -> None:
        kinds = self._step_kinds(step)
        evicted, self._seen.evicted = tuple(self._seen.evicted), []
        self._seen.handles = tuple(self._scheduler.running.handle.tolist())
        self.moment(Moment(now_us, BEGINS, frozenset(kinds), step, evicted=evicted))

    def jumped(self, jump: Jump) -> None:
        raise ValueError(f"{jump.run.steps} steps were made at once: moments want longest_jump=1")

    def _step_kinds(self, step: Step) -> set[str]:
        allocator, seen = self._allocator, self._seen
        taken = allocator.pool.taken if isinstance(allocator, PagedAllocator) else 0
        happened = {
            "preempt": step.preempted, "evict": seen.evicted, "admit": step.admitted or step.swapped_in,
            "share": any(cached for _, cached, *_ in step.admitted), "copy": allocator.copies > seen.copies,
            "refuse": not step.preempted and self._refused_anew(),     # a step that preempts admits nobody, whatever is free
            "grow": taken > seen.taken and not step.admitted,
        }
        seen.taken, seen.copies = taken, allocator.copies
        return {kind for kind, did in happened.items() if did} or {"step"}

    def _refused_anew(self) -> bool:
        """Whether the head of the queue is refused who was not in the step before, or was for want of a hole and not of slots."""
        refused, allocator = self._scheduler.refused, self._allocator
        now = None
        if refused is not None:
            fragmented = isinstance(allocator, ContiguousAllocator) and allocator.arena.free >= refused.need
            now = (self._scheduler.waiting.head(), fragmented)
        anew = now is not None and now != self._seen.refused
        self._seen.refused = now
        return anew


class MomentLog(Watcher):
    """Writes down what kinds of things happened at each moment, which is little even in a long run.

    Attributes
    ----------
    kinds : list of frozenset of str
    stops : list of Stop
    """

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[frozenset[str]] = []
        self.stops: list[Stop] = []
        self._place = Places()

    def moment(self, moment: Moment) -> None:
        self.kinds.append(moment.kinds)
        self.stops.append(self._place.stop(moment.time_us, moment.phase))
