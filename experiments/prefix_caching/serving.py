"""The serving view: the same bytes with and without prefix caching, through the engine; and the cache in larger pools.

Requests run side by side, wait, are preempted and pin the blocks they use, so hit rates differ from those of the cache view.
First admissions are counted apart from resumes: a request that finds its own blocks after a preemption is no sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from experiments.serving import serve
from experiments.setup import MOST_BLOCKS, Setup
from sim import kv_formula, result
from sim.memory.paged import PagedAllocator
from sim.memory.prefix_stats import PrefixStats
from sim.request_log import NEVER
from sim.run import SERVED, Observer, Run
from sim.step import Step

JsonObject = dict[str, Any]
Watch = Callable[[str, int], Callable[[int], None]]
TIMES = (2, 4)
"""Larger pools, times today's."""


class _Follow(Observer):
    """Counts tokens whose states were lost and must be had again; moves a bar by the requests that end."""

    def __init__(self, tick: Callable[[int], None]) -> None:
        self.lost = 0
        self._tick = tick

    def scheduled(self, now_us: int, step: Step) -> None:
        self.lost += sum(tokens for _, tokens in step.preempted) - sum(tokens for _, tokens in step.swapped_in)

    def updated(self, now_us: int, finished: list[int]) -> None:
        self._tick(len(finished))


def serving(setup: Setup, others: Sequence[int], gib_per_block: float | None, watch: Watch) -> JsonObject:
    """Both allocators in today's pool, then ``paged-prefix`` in other ones.

    Parameters
    ----------
    setup : Setup
    others : sequence of int
        Pools in blocks without the null block.
    gib_per_block : float, optional
        Of the engine's blocks.
    watch : callable
        (label, requests) -> what is called with requests that ended.
    """
    today = setup.sim.num_blocks - 1
    without, cached = (_served(setup, name, today, gib_per_block, watch) for name in ("paged", "paged-prefix"))
    starting = {blocks for blocks in others if _starts(setup, blocks)}
    pools = [cached if blocks == today else _served(setup, "paged-prefix", blocks, gib_per_block, watch)
             for blocks in sorted({today, *starting})]
    return {"block_size": setup.sim.block_size, "step_time": setup.sim.step_time.describe(), "without": without, "with": cached,
            "pools": pools, "pools_left_out": sorted({*others} - starting)}


def default_pools(setup: Setup) -> list[int]:
    """Larger pools that are replayed unless others are asked for."""
    return [(setup.sim.num_blocks - 1) * times for times in TIMES]


def _starts(setup: Setup, blocks: int) -> bool:
    """Whether a request of max_model_len fits (rule 50), and the pool into our memory."""
    sim = setup.sim
    return blocks < MOST_BLOCKS and kv_formula.startup_shortfall(blocks + 1, sim.block_size, sim.max_model_len) is None


def _served(setup: Setup, allocator: str, blocks: int, gib_per_block: float | None, watch: Watch) -> JsonObject:
    found = facts_of(setup, allocator, blocks, watch, f"{allocator}, {blocks:,} blocks")[1]
    return {"allocator": allocator, "blocks": blocks, "gib": None if gib_per_block is None else blocks * gib_per_block, **found}


def facts_of(setup: Setup, allocator: str, blocks: int, watch: Watch, label: str) -> tuple[Run, JsonObject]:
    """Serve the trace with a pool of ``blocks`` blocks; cross-checks of the run are in the facts, under its ``label``."""
    follow = _Follow(watch(label, len(setup.trace)))
    served = serve(replace(setup, sim=replace(setup.sim, num_blocks=blocks + 1)), allocator, observers=[follow])
    return served.run, {**facts(served.run, follow.lost), "crosscheck": [one | {"scenario": label} for one in served.checks()]}


def run_checks(document: JsonObject) -> list[JsonObject]:
    """Cross-checks of all runs of the engine in what ``--json`` writes: both views of today's pool, larger pools, tiers."""
    served, tiers = document["serving"], document["tiers"]
    if served is None:
        return []
    runs = [served["without"], *served["pools"], *([] if tiers is None else tiers["rows"][1:])]
    return [check for run in runs for check in run["crosscheck"]]


def facts(run: Run, lost: int) -> JsonObject:
    """What a run says about the cache; hits are None without one."""
    assert isinstance(run.allocator, PagedAllocator)
    stats = run.allocator.stats
    return {
        "first_admissions": None if stats is None else first_admissions(stats),
        "resumes": None if stats is None else resumes(stats),
        "evicted_blocks": None if stats is None else run.allocator.pool.evicted,
        "prefill_tokens": prefill(run, stats, lost),
        "concurrency": result.concurrency(run.window), "requests": result.requests(run), "latency_s": result.latency(run),
        "sharing": result.sharing(run), "throughput": result.throughput(run), "makespan_s": result.makespan_us(run) / 1e6,
    }


def first_admissions(stats: PrefixStats) -> JsonObject:
    """Hits when requests came in for the first time: what is usually meant by a hit rate."""
    return {"query_tokens": stats.query_tokens, "hit_tokens": stats.hit_tokens,
            "hit_rate_tokens": _ratio(stats.hit_tokens, stats.query_tokens), "query_blocks": stats.query_blocks,
            "hit_blocks": stats.hit_blocks, "hit_rate_blocks": _ratio(stats.hit_blocks, stats.query_blocks),
            "hit_tokens_by_origin": {origin: n - stats.resume_hit_tokens_by_origin[origin]
                                     for origin, n in stats.hit_tokens_by_origin.items()}}


def resumes(stats: PrefixStats) -> JsonObject:
    """Hits of requests that came back after a preemption; most are blocks of their own."""
    return {"admissions": stats.resumes, "query_tokens": stats.resume_query_tokens, "hit_tokens": stats.resume_hit_tokens,
            "hit_rate_tokens": _ratio(stats.resume_hit_tokens, stats.resume_query_tokens),
            "hit_tokens_by_origin": dict(stats.resume_hit_tokens_by_origin)}


def prefill(run: Run, stats: PrefixStats | None, lost: int) -> JsonObject | None:
    """Where the tokens of prefills came from: prompts + recomputed = computed + found.

    None where requests have several sequences, whose tokens are not lost together, or where one never ended.
    """
    ended = run.log.finished_us != NEVER
    if run.demand.sequences is not None or bool(((run.verdict == SERVED) & ~ended).any()):
        return None
    prompts = int(run.demand.prompt[ended].sum())
    first, again = (0, 0) if stats is None else (stats.hit_tokens, stats.resume_hit_tokens)
    return {"prompts": prompts, "lost_by_preemption": lost, "found_first": first, "found_by_resumes": again,
            "computed": prompts + lost - first - again}


def _ratio(a: int, b: int) -> float:
    return a / b if b else 0.0
