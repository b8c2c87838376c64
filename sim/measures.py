"""One run as one flat row of numbers, behind its warm-up: what a table of many runs holds.

    arrivals     |  .  . . |  . .  .    .  . .  .  |
                 first     cut                     last               last end
                 | warm-up | window: time averages |   drains, not averaged
                           | arrivals whose latencies count

Where the cut lies goes by all arrivals, rejected ones too, so that a rule that is a time or a share cuts off the same requests
whatever the server. Counts, the parts of the pool and the cache's hits are those of the whole run, as the ledger and the
allocator have them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.levels import Level
from sim.request_log import NEVER
from sim.result import latency, makespan_us, memory, prefix_cache, requests, throughput_of
from sim.run import SERVED, Run
from sim.stays import Stays, running_level, waiting_level
from sim.steady import fixed_cut_us, mser5, parse_warmup
from workloads.request import IntArray

Measures = dict[str, float | int | None]
LATENCIES = ("queue", "ttft", "tpot", "e2e")
PERCENTS = (50, 90, 95, 99)
STATISTICS = ("mean", *(f"p{percent}" for percent in PERCENTS))
"""Of each latency."""


@dataclass(frozen=True)
class Window:
    """What is averaged: arrivals from ``cut_us`` on, time from ``start_us`` to ``end_us``; ``whole`` where nothing is cut and
    the server's filling and emptying are in it."""

    cut_us: int
    start_us: int
    end_us: int
    whole: bool


def measures(run: Run, stays: Stays, warmup_rule: str = "none") -> Measures:
    """The row of a table: numbers by names that carry their units.

    The window goes from the cut to the last arrival, since afterwards the server only empties.
    ``concurrency_*`` and ``waiting_*`` are time-weighted over it; throughput is what ends inside it over its length, so with a
    queue that grows it is the server's, not the traffic's. Latencies are those of requests that arrive in it, whenever they end.

    It is the whole run, from the first arrival to the last end, and nothing is cut, where all requests arrive at once, or where
    from the cut to the last arrival is less time than the measured requests run on average; so too with a single request:
    ``whole_run`` is 1 then, and such a row bears no comparison with one whose window is the traffic's. With ``config.saturate``
    the window is that of the ledger and all requests are measured. `cautions.warnings` says so. Nothing is cut where MSER-5 sees
    no steady state.

    In a closed loop arrivals are those that came about; who never came is not measured and counts as ``unfinished``. Where
    nobody is served times are None, and shares are those of an idle pool.

    Parameters
    ----------
    run : Run
    stays : Stays
        Of the same run.
    warmup_rule : str
        As `steady.parse_warmup`.

    Returns
    -------
    dict
        ``warmup_s, warmup_requests, window_s, measured_requests, whole_run``;
        ``concurrency_mean, _p50, _p99, _peak`` in sequences; ``waiting_mean, _p99, _peak`` in requests;
        ``queue, ttft, tpot, e2e`` each ``_mean_s, _p50_s, _p90_s, _p95_s, _p99_s``;
        ``requests_per_s, output_tokens_per_s, total_tokens_per_s``; ``preemptions, completed, unfinished, rejected, truncated``;
        the seven parts as shares, ``useful_of_allocated``, ``kv_usage_mean`` (slots in block tables or reservations over the
        pool: cached blocks count as free, as in vLLM's gauge); ``hit_rate, evicted_blocks`` (None without prefix caching);
        ``makespan_s, steps``.

    Raises
    ------
    ValueError
        If there is no such rule.

    Examples
    --------
    >>> from sim.config import SimConfig
    >>> from sim.engine import Engine
    >>> from sim.stays import StayLog
    >>> from sim.step_time import ConstantStepTime
    >>> from workloads.request import Trace
    >>> trace = Trace("three", np.array([4, 4, 4]), np.array([3, 3, 3]), arrival_us=np.array([0, 1_000_000, 4_000_000]))
    >>> log = StayLog()
    >>> config = SimConfig(9, 4, 8, step_time=ConstantStepTime(500_000))
    >>> row = measures(Engine(trace, config, "paged", observers=[log]).run(), log.stays(), "25%")
    >>> row["warmup_s"], row["warmup_requests"], row["window_s"], row["measured_requests"], row["concurrency_mean"]
    (1.0, 1, 3.0, 2, 0.6666666666666666)
    """
    came = arrived(run)
    window = _window(run, in_order(run, came), warmup_rule)
    measured = came & (run.arrival_us >= window.cut_us)
    ended = (run.log.finished_us > window.start_us) & (run.log.finished_us <= window.end_us)
    return {
        "warmup_s": (window.cut_us - first_arrival_us(run)) / 1e6,
        "warmup_requests": int(came.sum() - measured.sum()),
        "window_s": (window.end_us - window.start_us) / 1e6,
        "measured_requests": int(measured.sum()),
        "whole_run": int(window.whole),
        **_levels(run, stays, window),
        **{f"{name}_{which}_s": value for name, values in latency(run, measured, PERCENTS).items()
           for which, value in values.items()},
        **throughput_of(run, ended, window.end_us - window.start_us),
        **_whole_run(run),
    }


def arrived(run: Run) -> NDArray[np.bool_]:
    """Who came and was not rejected."""
    came: NDArray[np.bool_] = (run.verdict == SERVED) & (run.arrival_us != NEVER)
    return came


def _levels(run: Run, stays: Stays, window: Window) -> Measures:
    running, waiting, over = running_level(stays), waiting_of(run, stays), (window.start_us, window.end_us)
    return {
        "concurrency_mean": running.mean(*over), "concurrency_p50": running.percentile(50, *over),
        "concurrency_p99": running.percentile(99, *over), "concurrency_peak": running.peak(*over),
        "waiting_mean": waiting.mean(*over), "waiting_p99": waiting.percentile(99, *over), "waiting_peak": waiting.peak(*over),
    }


def waiting_of(run: Run, stays: Stays) -> Level:
    """The waiting requests of a run."""
    return waiting_level(stays, run.arrival_us[arrived(run)], run.log.finished_us)


def _whole_run(run: Run) -> Measures:
    counts, shares, cache = requests(run), memory(run), prefix_cache(run)
    slots = shares.pop("slot_microseconds")
    del shares["largest_hole_mean"]
    held = slots["token_states"] + slots["reserved"] + slots["internal"]
    return {
        **{name: counts[name] for name in ("preemptions", "completed", "unfinished")},
        "rejected": sum(counts["rejected"].values()), "truncated": counts["truncated"], **shares,
        "kv_usage_mean": held / slots["capacity"] if slots["capacity"] else 0.0,
        "hit_rate": None if cache is None else cache["hit_rate"],
        "evicted_blocks": None if cache is None else cache["evicted_blocks"],
        "makespan_s": makespan_us(run) / 1e6, "steps": run.steps,
    }


# ---------------------------------------------------------------------- the window
def _window(run: Run, rows: IntArray, warmup_rule: str) -> Window:
    rule, start = parse_warmup(warmup_rule), first_arrival_us(run)
    whole = Window(start, *run.window_us, not run.config.saturate)
    if not len(rows) or run.config.saturate:
        return whole
    last = int(run.arrival_us.max())
    timed = begun(run, rows)
    cut = _mser_cut_us(run, timed) if rule.mser else fixed_cut_us(rule, start, last)
    if not _lasts(run, rows[run.arrival_us[rows] >= cut], last - cut):
        return whole
    return Window(cut, cut, last, False)


def _mser_cut_us(run: Run, timed: IntArray) -> int:
    cut = mser5(ttft_us(run, timed))
    return first_arrival_us(run) if not cut else int(run.arrival_us[timed[cut]])


def first_arrival_us(run: Run) -> int:
    """When the first request came, rejected or not; the window's start if none did."""
    return int(run.arrival_us[run.arrival_us != NEVER].min(initial=run.window_us[1]))


def in_order(run: Run, which: NDArray[np.bool_]) -> IntArray:
    """Rows in order of arrival; in a closed loop that is not the trace's."""
    rows = np.flatnonzero(which)
    ordered: IntArray = rows[np.argsort(run.arrival_us[rows], kind="stable")]
    return ordered


def begun(run: Run, rows: IntArray) -> IntArray:
    """Those of these rows that have a first token."""
    timed: IntArray = rows[run.log.first_token_us[rows] != NEVER]
    return timed


def ttft_us(run: Run, rows: IntArray) -> IntArray:
    """Times to first token of these rows."""
    times: IntArray = run.log.first_token_us[rows] - run.arrival_us[rows]
    return times


def _lasts(run: Run, rows: IntArray, span_us: int) -> bool:
    """Whether arrivals go on for as long as these requests run on average."""
    return span_us > 0 and span_us * len(rows) >= int(run.log.residence_us[rows].sum())
