"""Runs for a page: once to see which moments there are, and again to draw those that are kept."""

from __future__ import annotations

from dataclasses import replace

from rich.progress import Progress

from experiments.progress import Advance
from experiments.setup import Setup
from experiments.viewer.document import LaneLog
from experiments.viewer.moments import MomentLog
from experiments.viewer.thin import kept_together
from experiments.viewer.wording import Names
from sim.engine import Engine
from sim.run import Observer, Run, Stalled
from workloads.messages import counted
from workloads.request import InputError, Trace


def labels_of(trace: Trace) -> list[str]:
    """What the requests of a trace are called on a page."""
    return [f"r{request}" for request in range(len(trace))]


class Recording:
    """One trace under several allocators.

    Parameters
    ----------
    setup : Setup
    allocators : list of str
    progress : Progress
        A bar for each run.

    Attributes
    ----------
    events : int
        Stops of the common clock, if nothing is left out.
    """

    def __init__(self, setup: Setup, allocators: list[str], progress: Progress) -> None:
        self._setup, self._progress = setup, progress
        self._names = Names(labels_of(setup.trace))
        self._moments = {name: MomentLog() for name in allocators}
        for name, log in self._moments.items():
            self._run(name, log)
        self.events = len({stop for log in self._moments.values() for stop in log.stops})

    def lanes(self, most: int, why: str) -> tuple[list[tuple[LaneLog, Run]], str]:
        """The runs with the moments that are kept, and in words how many events these are.

        Parameters
        ----------
        most : int
            Stops of the clock.
        why : str
            There are no more than that.
        """
        kept = kept_together(list(self._moments.values()), most)
        logs = [LaneLog(name, self._names, numbers) for name, numbers in zip(self._moments, kept, strict=True)]
        lanes = [(log, self._run(log.name, log)) for log in logs]
        if self.events <= most:
            return lanes, counted(self.events, "event")
        shown = len({stop for log in logs for stop in log.stops})
        return lanes, f"{shown:,} of {counted(self.events, 'event')} ({why})"

    def _run(self, name: str, observer: Observer) -> Run:
        setup, config = self._setup, replace(self._setup.sim, longest_jump=1)
        moving = [] if self._progress.disable else [
            Advance(self._progress, self._progress.add_task(name, total=len(setup.trace)))]
        try:
            return Engine(setup.trace, config, name, observers=[observer, *moving], warm=setup.warm).run()
        except MemoryError:
            raise InputError(f"{name}: {config.num_blocks:,} blocks of {config.block_size:,} slots take more memory than there "
                             "is for a map") from None
        except Stalled as error:
            raise InputError(f"{name}: {error}") from None
