"""Metrics of one run, computed from its facts: where the slots went, concurrency, latency, hits.

Each number is defined in docs/reference.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.ledger import Integrals
from sim.memory.allocator import PARTS
from sim.memory.contiguous import ContiguousAllocator
from sim.memory.paged import PagedAllocator
from sim.memory.prefix_stats import ORIGINS
from sim.memory.tiered import TieredAllocator
from sim.request_log import NEVER
from sim.run import REJECTIONS, SERVED, Run

JsonObject = dict[str, Any]


def scenario(name: str, run: Run) -> JsonObject:
    """One entry of ``scenarios`` in the JSON of `compare`; of several replicas the sums, and the same of each."""
    return {"allocator": name} | _entry(run) | (
        {"replicas": [{"replica": number} | _entry(own) for number, own in enumerate(run.replicas)]} if run.replicas else {})


def _entry(run: Run) -> JsonObject:
    return {
        "window_us": list(run.window_us),
        "memory": memory(run),
        "concurrency": concurrency(run.window),
        "requests": requests(run),
        "prefix_cache": prefix_cache(run),
        "sharing": sharing(run),
        "latency_s": latency(run),
        "throughput": throughput(run),
        "makespan_s": makespan_us(run) / 1e6,
        "steps": run.steps,
    }


def memory(run: Run) -> JsonObject:
    """Time-weighted shares of the pool over the window; ``slot_microseconds`` are the exact integers behind them."""
    window = run.window
    capacity = run.ledger.capacity * window.time_us
    shares: JsonObject = {part: _ratio(slots, capacity) for part, slots in zip(PARTS, window.parts, strict=True)}
    allocated = sum(window.parts[:3])
    if not capacity:                                   # nobody was served: no time passed, and the pool lay idle
        shares["idle"] = 1.0
    shares["useful_of_allocated"] = _ratio(window.parts[0], allocated)
    shares["largest_hole_mean"] = (_ratio(window.hole, window.time_us * len(run.allocators))    # of a pool
                                   if isinstance(run.allocators[0], ContiguousAllocator) else None)
    shares["slot_microseconds"] = {**dict(zip(PARTS, window.parts, strict=True)), "capacity": capacity}
    return shares


def concurrency(window: Integrals) -> JsonObject:
    """Running sequences over the window: mean, time-weighted percentiles, peak."""
    counts = sorted(window.running_us)
    return {
        "mean": _ratio(window.sequence_us, window.time_us),
        "p50": time_weighted_percentile(window, 50),
        "p99": time_weighted_percentile(window, 99),
        "peak": counts[-1] if counts else 0,
    }


def time_weighted_percentile(window: Integrals, percent: int) -> int:
    """The smallest number of running sequences that at least ``percent`` % of the time is not exceeded.

    Examples
    --------
    >>> from collections import Counter
    >>> time_weighted_percentile(Integrals(100, running_us=Counter({0: 49, 3: 50, 8: 1})), 50)
    3
    """
    below = 0
    for count in sorted(window.running_us):
        below += window.running_us[count]
        if below * 100 >= percent * window.time_us:
            return count
    return 0


def requests(run: Run) -> JsonObject:
    """How many there were and what became of them. Truncated requests are served ones whose output was cut.

    Whoever in a closed loop follows a request that never ended counts as arrived and unfinished.
    """
    done = run.log.finished_us != NEVER
    served = run.verdict == SERVED
    return {
        "arrived": len(run.demand),
        "completed": int(done.sum()),
        "unfinished": int((served & ~done).sum()),
        "rejected": {reason: int((run.verdict == code).sum()) for code, reason in REJECTIONS.items()
                     if (run.verdict == code).any()},
        "truncated": int((run.demand.truncated & served).sum()),
        "preemptions": run.preemptions,
    }


def prefix_cache(run: Run) -> JsonObject | None:
    """Hits of the whole run, token-weighted unless named blocks; None without prefix caching."""
    counted = [(each.stats, each.pool) for each in run.allocators if isinstance(each, PagedAllocator) and each.stats is not None]
    if not counted:
        return None

    def total(name: str) -> int:
        return sum(getattr(stats, name) for stats, _ in counted)
    return {
        "query_tokens": total("query_tokens"),
        "hit_tokens": total("hit_tokens"),
        "hit_rate": _ratio(total("hit_tokens"), total("query_tokens")),
        "query_blocks": total("query_blocks"),
        "hit_blocks": total("hit_blocks"),
        "hit_tokens_by_origin": {origin: sum(stats.hit_tokens_by_origin[origin] for stats, _ in counted) for origin in ORIGINS},
        "resume_query_tokens": total("resume_query_tokens"),
        "resume_hit_tokens": total("resume_hit_tokens"),
        "evicted_blocks": sum(pool.evicted for _, pool in counted),
    }


def tier_counts(run: Run) -> JsonObject | None:
    """Hits of the whole run by tier, and what moved between the tiers; None without a tier in host memory.

    ``gpu_hit_tokens + host_hit_tokens`` are the ``hit_tokens`` of `prefix_cache`, and those of resumes likewise; evicted blocks
    were ``copied_down`` or ``already_on_host``. ``load_us`` is the time by which steps took longer.
    """
    counted = [(each.stats, each.tier) for each in run.allocators if isinstance(each, TieredAllocator) and each.stats is not None]
    if not counted:
        return None
    hits, resumed, on_host, resumed_on_host = (sum(getattr(stats, name) for stats, _ in counted) for name in
                                               ("hit_tokens", "resume_hit_tokens", "host_hit_tokens", "resume_host_hit_tokens"))
    return {
        "host_blocks": sum(tier.size for _, tier in counted),
        "gpu_hit_tokens": hits - on_host,
        "host_hit_tokens": on_host,
        "resume_gpu_hit_tokens": resumed - resumed_on_host,
        "resume_host_hit_tokens": resumed_on_host,
        "loaded_blocks": (on_host + resumed_on_host) // run.config.block_size,
        "load_us": run.load_us,
        "copied_down": sum(tier.stored for _, tier in counted),
        "already_on_host": sum(tier.kept for _, tier in counted),
        "dropped_from_host": sum(tier.dropped for _, tier in counted),
        "on_host_at_end": sum(tier.held for _, tier in counted),
    }


def sharing(run: Run) -> JsonObject | None:
    """Slots of all block tables against slots of referenced blocks; None where nothing can be shared."""
    pools = [each for each in run.allocators if isinstance(each, PagedAllocator) and not each.reserves_ahead]
    if not pools:
        return None
    window = run.window
    return {
        "logical_slot_microseconds": window.logical,
        "physical_slot_microseconds": window.physical,
        "saved_share": 1 - window.physical / window.logical if window.logical else 0.0,
        "copies": sum(pool.copies for pool in pools),
    }


def latency(run: Run, among: NDArray[np.bool_] | None = None, percents: Sequence[int] = (50, 90, 99)) -> JsonObject:
    """Queue, time to first token, time per further output token and end to end, in seconds; ``among`` these requests only.

    Mean and percentiles of each (linear between neighbours, as numpy's), None where no request has one.
    """
    log, arrival = run.log, run.arrival_us
    among = np.ones(len(arrival), bool) if among is None else among
    done = among & (log.finished_us != NEVER)
    several = done & (run.demand.output > 1)
    further = (log.finished_us - log.first_token_us)[several] / (run.demand.output[several] - 1)
    columns = {
        "queue": (log.admitted_us - arrival)[among & (log.admitted_us != NEVER)],
        "ttft": (log.first_token_us - arrival)[among & (log.first_token_us != NEVER)],
        "tpot": further,
        "e2e": (log.finished_us - arrival)[done],
    }
    return {name: _spread(values / 1e6, percents) for name, values in columns.items()}


def throughput(run: Run) -> JsonObject:
    """Completed requests and their tokens over the makespan; outputs of all their sequences, prompts once."""
    return throughput_of(run, run.log.finished_us != NEVER, makespan_us(run))


def throughput_of(run: Run, done: NDArray[np.bool_], time_us: int) -> JsonObject:
    """The same of the requests ``done`` over any time."""
    sequences = 1 if run.demand.sequences is None else run.demand.sequences[done]
    output = int((run.demand.output[done] * sequences).sum())
    prompt = int(run.demand.prompt[done].sum())
    seconds = time_us / 1e6
    return {
        "requests_per_s": _ratio(int(done.sum()), seconds),
        "output_tokens_per_s": _ratio(output, seconds),
        "total_tokens_per_s": _ratio(prompt + output, seconds),
    }


def makespan_us(run: Run) -> int:
    """From the first served arrival to the last end."""
    return run.ledger.total.time_us


def _ratio(a: float, b: float) -> float:
    return a / b if b else 0.0


def _spread(values: NDArray[np.float64], percents: Sequence[int]) -> JsonObject:
    names = [f"p{percent}" for percent in percents]
    if not len(values):
        return dict.fromkeys(("mean", *names))
    return {"mean": float(values.mean()), **dict(zip(names, percentiles(values, percents), strict=True))}


def percentiles(values: NDArray[np.float64], percents: Sequence[int]) -> list[float]:
    """Linear between neighbours: those of `numpy.percentile` to the last bit, which would load `numpy.ma` for them.

    Parameters
    ----------
    values : float64, shape (n,)
        At least one, in any order; no NaN.
    percents : sequence of int

    Returns
    -------
    list of float

    >>> percentiles(np.array([4.0, 1.0, 2.0]), (0, 50, 75))
    [1.0, 2.0, 3.0]
    """
    ordered, last = np.sort(values), len(values) - 1
    at = last * np.true_divide(percents, 100)
    below = np.floor(at).astype(np.int64)
    share, low, high = at - below, ordered[below], ordered[np.minimum(below + 1, last)]
    made: list[float] = np.where(share >= 0.5, high - (high - low) * (1 - share), low + (high - low) * share).tolist()
    return made
