"""What is to be said about a row of `measures` before it is believed: too short, too few, not settled."""

from __future__ import annotations

from itertools import pairwise

from sim.levels import Level
from sim.measures import Measures, arrived, begun, first_arrival_us, in_order, ttft_us, waiting_of
from sim.run import Run
from sim.stays import Stays
from sim.steady import mser5
from workloads.request import IntArray

LEAST_FOR_P99 = 500                                    # fewer leave fewer than 5 beyond the 99th percentile
RESIDENCES = 10                                        # a window should be this many times as long as a request runs


def warnings(run: Run, stays: Stays, row: Measures) -> list[str]:
    """What people should know before they believe a row of `measures`, a line each.

    - over what the averages are, where that is not the window of the traffic;
    - no steady state by MSER-5 on the times to first token in order of arrival, whatever the warm-up was;
    - a p99 over fewer than 500 requests: fewer than 5 of them lie beyond it;
    - a queue that still grows: of the four quarters of the window the last three have longer and longer mean queues, and the last
      exceeds the second by more than twice the square root of the requests that arrive between their middles, which Poisson
      arrivals do not bring about by chance;
    - a window shorter than 10 times what the measured requests run on average.

    Parameters
    ----------
    run : Run
    stays : Stays
    row : dict
        From `measures`.

    >>> import numpy as np
    >>> from sim.config import SimConfig
    >>> from sim.engine import Engine
    >>> from sim.measures import measures
    >>> from sim.stays import StayLog
    >>> from workloads.request import Trace
    >>> log = StayLog()
    >>> run = Engine(Trace("a", np.array([4]), np.array([3]), arrival_us=np.array([0])), SimConfig(9, 4, 8), "paged",
    ...              observers=[log]).run()
    >>> for line in warnings(run, log.stays(), measures(run, log.stays())): print(line)
    all requests arrive at once: averages are over the whole run, the server filling and emptying included
    1 request measured: a p99 with fewer than 5 beyond it (500 are wanted) is hardly more than the largest value
    """
    rows = in_order(run, arrived(run))
    if not len(rows):
        return ["nobody was served: there is nothing to measure"]
    start = first_arrival_us(run) + _us(row["warmup_s"])
    end = start + _us(row["window_s"])
    measured, whole = rows[run.arrival_us[rows] >= start], bool(row["whole_run"])
    if whole:
        said = [_about_whole_run(run, rows)]
    else:
        said = [] if run.config.saturate else _about_traffic(run, rows, waiting_of(run, stays), (start, end))
    if len(measured) < LEAST_FOR_P99:
        said.append(f"{len(measured):,} request{'s' * (len(measured) > 1)} measured: a p99 with fewer than 5 beyond it "
                    f"({LEAST_FOR_P99} are wanted) is hardly more than the largest value")
    residence = float(run.log.residence_us[measured].mean())
    if not whole and end - start < RESIDENCES * residence:
        said.append(f"the window of {(end - start) / 1e6:,.3g} s is short: requests run {residence / 1e6:,.3g} s on average, and "
                    f"{RESIDENCES} times that is wanted")
    return said


def _us(seconds: float | int | None) -> int:
    assert seconds is not None
    return round(seconds * 1e6)


def _about_whole_run(run: Run, rows: IntArray) -> str:
    span = int(run.arrival_us[rows[-1]] - run.arrival_us[rows[0]])
    if not span:
        return "all requests arrive at once: averages are over the whole run, the server filling and emptying included"
    return (f"requests arrive over {span / 1e6:,.3g} s, too short a time behind the warm-up for what they run: averages are over "
            "the whole run, and nothing is cut")


def _about_traffic(run: Run, rows: IntArray, waiting: Level, window: tuple[int, int]) -> list[str]:
    said = []
    if mser5(ttft_us(run, begun(run, rows))) is None:
        said.append("no steady state by MSER-5: times to first token have not settled in the first half of the run, which is too "
                    "short, or overloaded")
    arrivals = int((run.arrival_us[rows] >= window[0]).sum())
    before, after = quarters(waiting, *window)[1::2]
    if still_grows(waiting, *window, arrivals):
        said.append(f"the queue still grows at the end: {before:,.1f} requests wait on average in the second quarter of the "
                    f"window, {after:,.1f} in the last: averages depend on how long the run is")
    return said


def quarters(level: Level, start_us: int, end_us: int) -> list[float]:
    """Means of a level over the four quarters of a window.

    >>> import numpy as np
    >>> quarters(Level(np.array([0, 50]), np.array([2, 4])), 0, 100)
    [2.0, 2.0, 4.0, 4.0]
    """
    edges = [start_us + (end_us - start_us) * k // 4 for k in range(5)]
    return [level.mean(a, b) for a, b in pairwise(edges)]


def still_grows(waiting: Level, start_us: int, end_us: int, arrivals: int) -> bool:
    """Whether a queue grows through a window by more than chance, as `warnings` states; ``arrivals`` in the window.

    >>> import numpy as np
    >>> still_grows(Level(np.arange(100), np.arange(100)), 0, 100, arrivals=100)
    True
    >>> still_grows(Level(np.arange(100), np.arange(100) % 20), 0, 100, arrivals=100)
    False
    """
    _, second, third, last = quarters(waiting, start_us, end_us)
    return second < third < last and last - second > 2 * (arrivals / 2) ** 0.5
