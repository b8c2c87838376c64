"""Levels: whole numbers that change at instants, such as the running sequences, and their exact averages over a stretch of time.

    value  2 |      +-----+                   changes  (10, +1) (20, +1) (40, -2)
           1 |   +--+     |                   times     10  20  40
           0 +---+        +------ us          values     1   2   0         0 before the first
                 10 20    40
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.request import IntArray

SAFE = 1 << 62                                         # beyond it sums are made in Python integers


@dataclass(frozen=True, eq=False)
class Level:
    """A step function of time: from ``times_us[i]`` on it has ``values[i]``, before the first 0.

    Parameters
    ----------
    times_us : int64, shape (changes,)
        Strictly increasing microseconds.
    values : int64, shape (changes,)

    Examples
    --------
    >>> running = level_of(np.array([10, 20, 40]), np.array([1, 1, -2]))
    >>> running.at(np.array([9, 10, 25, 40])).tolist()
    [0, 1, 2, 0]
    >>> running.integral(15, 50), running.mean(0, 50), running.percentile(50, 15, 40), running.peak(0, 20)
    (45, 1.0, 2, 1)
    """

    times_us: IntArray
    values: IntArray

    def at(self, times_us: IntArray) -> IntArray:
        """The value from each of these instants on."""
        place = np.searchsorted(self.times_us, times_us, "right")
        found: IntArray = np.concatenate(([0], self.values))[place]
        return found

    def stretches(self, start_us: int, end_us: int) -> tuple[IntArray, IntArray]:
        """Values and how long each is held in the window, as two int64 arrays; empty for an empty window."""
        if end_us <= start_us:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        first, last = np.searchsorted(self.times_us, (start_us, end_us), "right")
        inside = self.times_us[first:last]
        values = np.concatenate(([self.values[first - 1] if first else 0], self.values[first:last]))
        held = np.diff(np.concatenate(([start_us], inside, [end_us])))
        return values[held > 0], held[held > 0]

    def integral(self, start_us: int, end_us: int) -> int:
        """Value x microseconds over the window, exactly."""
        values, held = self.stretches(start_us, end_us)
        if not len(values):
            return 0
        if int(np.abs(values).max()) * (end_us - start_us) < SAFE:
            return int(values @ held)
        return sum(value * us for value, us in zip(values.tolist(), held.tolist(), strict=True))

    def mean(self, start_us: int, end_us: int) -> float:
        """Time-weighted mean; 0 of an empty window."""
        return self.integral(start_us, end_us) / (end_us - start_us) if end_us > start_us else 0.0

    def percentile(self, percent: int, start_us: int, end_us: int) -> int:
        """The smallest value that at least ``percent`` % of the time is not exceeded; 0 of an empty window."""
        values, held = self.stretches(start_us, end_us)
        if not len(values):
            return 0
        order = np.argsort(values, kind="stable")
        below = np.cumsum(held[order])
        wanted = -(-percent * (end_us - start_us) // 100)
        return int(values[order[np.searchsorted(below, wanted)]])

    def peak(self, start_us: int, end_us: int) -> int:
        """The largest value held for any time in the window; 0 of an empty one."""
        return int(self.stretches(start_us, end_us)[0].max(initial=0))


def level_of(times_us: IntArray, changes: IntArray) -> Level:
    """The level that changes by ``changes[i]`` at ``times_us[i]``, in any order; all changes of an instant count at once.

    >>> level_of(np.array([5, 1, 5]), np.array([-1, 1, 1])).values.tolist()
    [1]
    """
    times, which = np.unique(times_us, return_inverse=True)
    sums = np.zeros(len(times), np.int64)
    np.add.at(sums, which.reshape(-1), changes)
    moved = sums != 0
    return Level(times[moved], np.cumsum(sums)[moved])
