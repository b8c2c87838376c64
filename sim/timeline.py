"""The pool over time, for pictures: samples of the seven parts, thinned so that a run of any length stays small."""

from __future__ import annotations

import numpy as np

from sim.memory.allocator import PARTS, SlotCounts
from workloads.request import IntArray

MOST_SAMPLES = 8192


class Timeline:
    """Samples at events; between two of them the pool changes about linearly.

    When there are too many, every second one is dropped and from then on only every second event is taken.
    """

    def __init__(self, most: int = MOST_SAMPLES) -> None:
        self._most = most
        self._rows: list[tuple[int, ...]] = []
        self._stride = 1
        self._seen = 0

    def sample(self, now_us: int, counts: SlotCounts, running: int, waiting: int) -> None:
        """The state from ``now_us`` on: seven parts in slots, running and waiting requests."""
        self._seen += 1
        if self._seen % self._stride:
            return
        self._rows.append((now_us, *counts, running, waiting))
        if len(self._rows) >= self._most:
            del self._rows[::2]
            self._stride *= 2

    def columns(self) -> dict[str, IntArray]:
        """``time_us``, the seven parts, ``running`` and ``waiting``, each int64 of shape (samples,)."""
        names = ("time_us", *PARTS, "running", "waiting")
        table = np.array(self._rows, np.int64).reshape(-1, len(names))
        return {name: table[:, i] for i, name in enumerate(names)}
