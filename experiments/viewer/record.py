"""Frames: the moments of a run that a page shows, each with its sentences and the pool after it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from experiments.viewer.moments import BEGINS, Moment, Watcher
from experiments.viewer.refusals import Refused, refusal, refusal_text
from experiments.viewer.sentences import Scene, Sentence, tell
from experiments.viewer.snapshot import Drawn, Snapshot, look
from experiments.viewer.wording import Names
from sim.memory.allocator import Allocator
from sim.memory.contiguous import ContiguousAllocator
from sim.memory.paged import PagedAllocator
from sim.memory.tiered import TieredAllocator
from sim.scheduler import Scheduler


@dataclass(frozen=True)
class Frame:
    """The pool from ``time_us`` on, up to the next frame if nothing is left out in between.

    Parameters
    ----------
    phase : int
        See `moments`: frames of one instant come in the order of their phases.
    left_out : int
        Moments since the frame before that are not shown.
    sentences : tuple of Sentence
    refused : str
        Why the head of the queue is not running; empty where memory is not what keeps it.
    """

    time_us: int
    phase: int
    left_out: int
    sentences: tuple[Sentence, ...]
    refused: str
    pool: Snapshot


class Recorder(Watcher):
    """Draws the moments that are to be kept, and hands each to `frame`.

    Parameters
    ----------
    names : Names
    kept : collection of int, optional
        Numbers of the moments (`thin.kept`); None for all.

    Attributes
    ----------
    first : Snapshot
        The pool before anything happened.
    frames : list of Frame
        Where `frame` keeps them.
    moments : int
        How many there were.
    """

    def __init__(self, names: Names, kept: Collection[int] | None = None) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self.moments = 0
        self.names = names
        self._kept = None if kept is None else frozenset(kept)
        self._last_kept = -1
        self._admitted_us: dict[int, int] = {}
        self._refused: Refused | None = None


    def begun(self, allocator: Allocator, scheduler: Scheduler) -> None:
        self.first = self._before = look(self.drawn, scheduler, {})

    @property
    def drawn(self) -> Drawn:
        """The allocator that is followed."""
        assert isinstance(self._allocator, PagedAllocator | ContiguousAllocator)
        return self._allocator

    def moment(self, moment: Moment) -> None:
        number, self.moments = self.moments, self.moments + 1
        if moment.step is not None:
            admitted = [*(row[0] for row in moment.step.admitted), *(row[0] for row in moment.step.swapped_in)]
            self._admitted_us.update(dict.fromkeys(admitted, moment.time_us))
        if moment.phase == BEGINS:
            self._refused = refusal(self.drawn, self._scheduler, bool(moment.step and moment.step.preempted))
        wanted = self._kept is None or number in self._kept
        if not wanted and number + 1 not in (self._kept or ()):
            return
        before, self._before = self._before, look(self.drawn, self._scheduler, self._admitted_us)
        if wanted:
            self.frame(self._drawn(moment, before, number - self._last_kept - 1))
            self._last_kept = number

    def frame(self, frame: Frame) -> None:
        """What becomes of a frame: it is kept. Where pools are large, each is better written down at once (`document`)."""
        self.frames.append(frame)

    def _drawn(self, moment: Moment, before: Snapshot, left_out: int) -> Frame:
        host, allocator = self._scheduler.host, self.drawn
        lost = [] if moment.step is None or host is None else [request for request, _ in moment.step.preempted if request in host]
        scene = Scene(moment, before, self._before, self._refused, frozenset(lost), isinstance(allocator, TieredAllocator))
        size = allocator.block_size if isinstance(allocator, PagedAllocator) else 1
        said = tell(scene, self.names, self._scheduler.demand, size)
        refused = refusal_text(self._refused, self.names, size) if self._refused is not None else ""
        return Frame(moment.time_us, moment.phase, left_out, tuple(said), refused, self._before)
