"""The JSON of the page: one lane an allocator, its frames as changes, and the stops of the common clock.

A stop is an instant and what happens at it (`moments`: ends, arrivals, begins); each lane says at which stops it has frames, and
stays as it is at the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from experiments.viewer.changes import MOST_WAITING, Change, Changes, exact
from experiments.viewer.formula import by_ceiling, fixed_lines, moving_lines, numbers
from experiments.viewer.moments import Places, Stop
from experiments.viewer.record import Frame, Recorder
from experiments.viewer.snapshot import Drawn, Snapshot
from experiments.viewer.wording import Names
from sim.catalog import ABOUT
from sim.memory.allocator import Allocator
from sim.memory.contiguous import ContiguousAllocator
from sim.run import REJECTIONS, Run
from sim.scheduler import Scheduler
from workloads.messages import reason_in_words

JsonObject = dict[str, Any]


class LaneLog(Recorder):
    """Writes one allocator's run down as the page will have it.

    Parameters
    ----------
    name : str
        Of the allocator.
    names : Names
    kept : collection of int, optional
        See `Recorder`.

    Attributes
    ----------
    stops : list of Stop
        Of each frame.
    asked : set of int
        Requests that appear.
    changes : Changes
        Knows which sequence each number stands for.
    """

    def __init__(self, name: str, names: Names, kept: Collection[int] | None = None) -> None:
        super().__init__(names, kept)
        self.name = name
        self.stops: list[Stop] = []
        self.asked: set[int] = set()
        self._written: list[Change] = []
        self.changes = Changes()
        self._told = ""
        self._by_ceiling = True
        self._place = Places()

    def begun(self, allocator: Allocator, scheduler: Scheduler) -> None:
        super().begun(allocator, scheduler)
        self._start = self._change(self.first)

    def frame(self, frame: Frame) -> None:
        self.stops.append(self._place.stop(frame.time_us, frame.phase))
        made: Change = {"s": [list(sentence) for sentence in frame.sentences]}
        if frame.left_out:
            made["k"] = frame.left_out
        if frame.refused != self._told:
            made["f"] = self._told = frame.refused
        self._written.append(made | self._change(frame.pool))

    def _change(self, pool: Snapshot) -> Change:
        self._by_ceiling = self._by_ceiling and by_ceiling(self.drawn, pool)
        self.asked.update(pool.waiting[:MOST_WAITING], (key[0] for key in pool.rows))
        return self.changes.to(pool) | {"m": numbers(self.drawn, pool)}

    def lane(self, place: Mapping[Stop, int], run: Run, per_token: int | None) -> JsonObject:
        """Its part of the document; ``place`` numbers the stops of all lanes."""
        config, allocator, keys = run.config, self.drawn, self.changes.keys
        return {
            "name": self.name, "about": ABOUT.get(self.name, self.name), "at": [place[stop] for stop in self.stops],
            "first": self._start, "frames": self._written, "moments": self.moments, "notes": self._notes(run),
            "names": [self.names.sequence(key) for key in keys], "requests": [key[0] for key in keys],
            "fixed": fixed_lines(allocator, config.num_blocks, config.block_size, config.max_model_len, per_token),
            "moving": moving_lines(allocator, self._by_ceiling, config.max_model_len),
            "capacity": allocator.capacity, **_shape(allocator),
        }

    def _notes(self, run: Run) -> list[str]:
        """What a reader must know of this lane."""
        kept = len(self._written)
        notes = []
        if kept < self.moments:
            notes.append(f"{kept:,} of {self.moments:,} moments are on this page: those around refusals, preemptions and "
                         "evictions before others")
        for verdict, reason in REJECTIONS.items():
            rejected = [(request, 0) for request in (run.verdict == verdict).nonzero()[0].tolist()]
            if rejected:
                notes.append(f"rejected at arrival ({reason_in_words(reason)}): {self.names.several(rejected)}")
        return notes


def document(lanes: Sequence[tuple[LaneLog, Run]], labels: Sequence[str], per_token: int | None = None,
             thinned: str = "") -> JsonObject:
    """All that the page's script reads.

    Parameters
    ----------
    lanes : sequence of (LaneLog, Run)
        At least one, of the same trace.
    labels : sequence of str
        What each request is called.
    per_token : int, optional
        Bytes of one token's K and V on a GPU.
    thinned : str
        How many events remain and why, where some are left out.
    """
    stops = sorted({stop for log, _ in lanes for stop in log.stops})
    place = {stop: i for i, stop in enumerate(stops)}
    asked = sorted({request for log, _ in lanes for request in log.asked})
    return {"thinned": thinned, "us": [exact(time_us) for time_us, _, _ in stops],
            "labels": {str(request): labels[request] for request in asked},
            "lanes": [log.lane(place, run, per_token) for log, run in lanes]}


def _shape(allocator: Drawn) -> JsonObject:
    """What the pool is made of."""
    if isinstance(allocator, ContiguousAllocator):
        return {"arena": True, "size": 1, "blocks": 0, "rest": 0, "caching": False}
    return {"arena": False, "size": allocator.block_size, "blocks": allocator.pool.num_blocks - 1, "rest": allocator.rest,
            "caching": allocator.pool.caching}
