"""What is written down of a run: events, rows per step, totals."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.metrics.stats import PrefixCacheStats

COLUMNS = (
    "step",
    "running",
    "waiting",
    "scheduled_tokens",
    "free_after_schedule",
    "free_after_update",
    "free_queue_crc32",
)
PREFIX_COUNTS = ("requests", "queries", "hits", "preempted_requests", "preempted_queries", "preempted_hits")


def table(groups: Sequence[Sequence[int]]) -> list[Any]:
    """Write block ids of all groups: a plain list for one group, else a list per group."""
    tables = [list(ids) for ids in groups]
    return tables[0] if len(tables) == 1 else tables


class Journal:
    """Watches a scheduler and collects the `result` of a case.

    Parameters
    ----------
    scheduler : Scheduler
        Two of its methods are wrapped: the one that preempts and the one that takes the hash from a popped block.
        Both happen inside `schedule()` and leave no trace in its output.
    config : dict
        The complete `config` of the case.

    Attributes
    ----------
    step : int
        Number of the step under way; set by the driver.

    """

    def __init__(self, scheduler: Scheduler, config: dict[str, Any]) -> None:
        self.step = 0
        self._scheduler = scheduler
        self._pool = scheduler.kv_cache_manager.block_pool
        self._usable = config["num_blocks"] - 1
        self._with_blocks = config["detail"] == "full"
        self._with_steps = config["detail"] != "none"
        self._events: list[list[Any]] = []
        self._rows: list[list[int]] = []
        self._row: list[int] = []
        self._hits: dict[str, list[int]] = {}
        self._prefix = dict.fromkeys(PREFIX_COUNTS, 0)
        self._evicted = self._preempted = self._most_running = self._most_used = 0
        self._watch_preemptions()
        self._watch_evictions()

    def _watch_preemptions(self) -> None:
        preempt = self._scheduler._preempt_request

        def wrapper(request: Any, *args: Any, **kwargs: Any) -> None:
            self._preempted += 1
            self._note("preempt", request.request_id)
            preempt(request, *args, **kwargs)

        self._scheduler._preempt_request = wrapper

    def _watch_evictions(self) -> None:
        evict = self._pool._maybe_evict_cached_block

        def wrapper(block: Any) -> bool:
            had_hash = evict(block)
            if had_hash:
                self._evicted += 1
                if self._with_blocks:
                    self._note("evict", block.block_id)
            return had_hash

        self._pool._maybe_evict_cached_block = wrapper

    def _note(self, kind: str, *rest: Any) -> None:
        if self._with_steps:
            self._events.append([kind, self.step, *rest])

    def _queue(self) -> list[int]:
        return [block.block_id for block in self._pool.free_block_queue.get_all_free_blocks()]

    def scheduled(self, output: SchedulerOutput) -> None:
        """Write down the admissions and growth that one `schedule()` decided."""
        cached = output.scheduled_cached_reqs
        entered = {new.req_id: (new.num_computed_tokens, new.block_ids) for new in output.scheduled_new_reqs}
        grown = {}
        for rid, hit, ids in zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True):
            # Where resumed requests are listed depends on vLLM's model runner version; here both places are read.
            if rid in cached.resumed_req_ids:
                entered[rid] = (hit, ids)
            elif ids is not None:
                grown[rid] = table(ids)
        # `num_scheduled_tokens` has the order of scheduling, the two lists above do not.
        for rid, tokens in output.num_scheduled_tokens.items():
            if rid in entered:
                self._enter(rid, tokens, *entered[rid])
        if self._with_blocks:
            for rid, ids in grown.items():
                self._note("grow", rid, ids)
        running, waiting = self._scheduler.get_request_counts()
        free = self._pool.get_num_free_blocks()
        self._most_running = max(self._most_running, running)
        self._most_used = max(self._most_used, self._usable - free)
        self._row = [self.step, running, waiting, output.total_num_scheduled_tokens, free]

    def _enter(self, rid: str, tokens: int, hit: int, ids: Sequence[Sequence[int]]) -> None:
        kind = "resume" if rid in self._hits else "admit"
        self._hits.setdefault(rid, []).append(hit)
        self._note(kind, rid, hit, tokens, *([table(ids)] if self._with_blocks else []))

    def finished(self, rid: str) -> None:
        """Write down that a request has got its last token."""
        self._note("finish", rid)

    def count_prefix(self, stats: PrefixCacheStats | None) -> None:
        """Add prefix cache statistics, which vLLM hands out in portions."""
        if stats is not None:
            for name in PREFIX_COUNTS:
                self._prefix[name] += getattr(stats, name)

    def end_step(self) -> None:
        """Close the row of the step."""
        if self._with_steps:
            crc = zlib.crc32(",".join(map(str, self._queue())).encode())
            self._rows.append([*self._row, self._pool.get_num_free_blocks(), crc])

    def result(self, steps: int, outcome: str, stuck: list[str]) -> dict[str, Any]:
        """Return the `result` of the case."""
        queue = self._queue()
        answer: dict[str, Any] = {
            "outcome": outcome,
            "stuck": stuck,
            "steps": steps,
            "preemptions": self._preempted,
            "blocks_evicted": self._evicted,
            "peak_running": self._most_running,
            "peak_used_blocks": self._most_used,
            "prefix_cache": self._prefix,
            "final_free_blocks": len(queue),
            "final_cached_blocks": sum(block.block_hash is not None for block in self._pool.blocks),
        }
        if self._with_steps:
            answer["final_free_queue"] = queue
            answer["step_columns"] = list(COLUMNS)
        answer["cached_tokens_at_admission"] = self._hits
        if self._with_steps:
            answer["events"] = self._events
            answer["step_rows"] = self._rows
        return answer
