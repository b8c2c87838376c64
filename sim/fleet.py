"""Several replicas as one: the facts of each, of the requests it served, and the sums of all.

    pools       parts of the pool   [ replica 0 | replica 1 | replica 2 ]     slots add up: one pool three times as large
    running     3 + 1 + 4           added up at each moment, not percentile by percentile
    requests    each in the log of one replica, or in none: rejected at arrival

All replicas have the same window, so that what one of them idles away is in the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim import ledger, request_log
from sim.ledger import Integrals
from sim.run import Run
from sim.warm import Warmth
from workloads.request import IntArray


class Moment(NamedTuple):
    """The accounts up to ``time_us``: the integrals of each replica, and how long how many sequences ran in all of them."""

    time_us: int
    pools: list[Integrals]
    running_us: Counter[int]

    def since(self, before: Moment) -> Moment:
        """The accounts of the time between; ``time_us`` is when it began."""
        running = Counter({n: us - before.running_us[n] for n, us in self.running_us.items() if us != before.running_us[n]})
        return Moment(before.time_us, [a - b for a, b in zip(self.pools, before.pools, strict=True)], running)


def fleet(parts: Sequence[Run], replica: IntArray, whole: Counter[int], window: Counter[int]) -> Run:
    """The sums of all replicas, with the facts of each in ``replicas``.

    Parameters
    ----------
    parts : sequence of Run
        One a replica; each knows all requests and has served its own. Their windows are the same.
    replica : int64, shape (requests,)
        Who served each request, -1 for nobody.
    whole, window : Counter of int
        Microseconds in which so many sequences ran in all replicas together, over the whole run and over the window.
    """
    first, windows = parts[0], [part.window for part in parts]
    warm = [part.warm for part in parts if part.warm is not None]
    return Run(
        tuple(part.allocator for part in parts), first.config, first.demand,
        ledger.merged([part.ledger for part in parts], whole), request_log.merged([part.log for part in parts]),
        first.arrival_us, first.verdict,
        preemptions=sum(part.preemptions for part in parts), steps=sum(part.steps for part in parts),
        peak_at_limit=max(part.peak_at_limit for part in parts), window_us=first.window_us,
        window=windows[0].together(windows[1:], window), load_us=sum(part.load_us for part in parts),
        warm=Warmth(*map(sum, zip(*warm, strict=True))) if warm else None,
        replicas=tuple(_own(part, np.flatnonzero(replica == number)) for number, part in enumerate(parts)), replica=replica)


def _own(part: Run, rows: IntArray) -> Run:
    """The facts of one replica, of its requests alone."""
    return Run(part.allocators, part.config, part.demand.part(rows), part.ledger, part.log.part(rows), part.arrival_us[rows],
               part.verdict[rows], part.preemptions, part.steps, part.peak_at_limit, part.window_us, part.window,
               load_us=part.load_us, warm=part.warm)
