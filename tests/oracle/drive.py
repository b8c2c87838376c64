"""The loop around vLLM's scheduler: what the engine core does, without engine and model."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import vllm_objects
from journal import Journal
from workload import Entry, Streams, complete_config, expand, output_stream

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request


class Run:
    """One case on its way through the real scheduler.

    Parameters
    ----------
    config : dict
        Complete `config`.
    entries : list of Entry
        Requests by arrival.
    streams : Streams
        Source of the sampled tokens; the prompts come from it too.

    """

    def __init__(self, config: dict[str, Any], entries: list[Entry], streams: Streams) -> None:
        self._streams = streams
        self._scheduler = vllm_objects.build_scheduler(config)
        self._make = vllm_objects.request_maker(config)
        self._journal = Journal(self._scheduler, config)
        self._coming = deque(entries)
        self._live: dict[str, Request] = {}
        self._sampled: dict[str, int] = {}
        self._depth = 2 if config["async_scheduling"] else 1
        self._in_flight: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()
        self._max_steps = config["max_steps"]

    def to_the_end(self) -> dict[str, Any]:
        """Run until all have finished, nobody can move any more, or `max_steps` is reached."""
        step, idle, outcome = 0, 0, "finished"
        while self._coming or self._live:
            if not self._live:
                # Nothing happens until somebody arrives, and steps without a request are not recorded.
                step = max(step, self._coming[0].arrive)
            idle = 0 if self._one_step(step) else idle + 1
            # An empty step may be the pipeline draining; more of them in a row than it is deep are a standstill.
            if idle > self._depth and self._live and not self._arrivals_help():
                outcome = "stalled"
                break
            step += 1
            if step >= self._max_steps:
                outcome = "max_steps"
                break
        if outcome == "finished":
            while self._in_flight:
                self._absorb()
        self._journal.count_prefix(self._scheduler.kv_cache_manager.make_prefix_cache_stats())
        return self._journal.result(step, outcome, [] if outcome == "finished" else sorted(self._live))

    def _arrivals_help(self) -> bool:
        return bool(self._coming) and self._scheduler.get_request_counts() == (0, 0)

    def _one_step(self, step: int) -> bool:
        """Schedule once, and take in one output when the pipeline is full. Tell whether anything was scheduled."""
        self._journal.step = step
        while self._coming and self._coming[0].arrive <= step:
            entry = self._coming.popleft()
            self._live[entry.rid] = self._make(entry)
            self._sampled[entry.rid] = 0
            self._scheduler.add_request(self._live[entry.rid])
        output = self._scheduler.schedule()
        self._journal.scheduled(output)
        busy = bool(output.num_scheduled_tokens)
        sampled = {rid: self._sample(rid) for rid in output.num_scheduled_tokens}
        self._in_flight.append((output, vllm_objects.runner_output(output, sampled)))
        # With nothing to compute there is no reason to keep the older output waiting.
        if len(self._in_flight) >= self._depth or not busy:
            self._absorb()
        self._journal.end_step()
        return busy

    def _sample(self, rid: str) -> list[int]:
        # Set by `schedule()` for the chunk just scheduled: a chunk that does not end the prompt yields no token.
        if self._live[rid].is_prefill_chunk:
            return []
        self._sampled[rid] += 1
        return [self._streams.token(output_stream(rid), self._sampled[rid] - 1)]

    def _absorb(self) -> None:
        """Hand the oldest output in flight back to the scheduler."""
        for client in self._scheduler.update_from_output(*self._in_flight.popleft()).values():
            if client.scheduler_stats is not None:
                self._journal.count_prefix(client.scheduler_stats.prefix_cache_stats)
            for output in client.outputs:
                if output.finish_reason is not None:
                    self._journal.finished(output.request_id)
                    del self._live[output.request_id]


def record(case: dict[str, Any]) -> dict[str, Any]:
    """Record a case.

    Parameters
    ----------
    case : dict
        With `config` and `requests`, perhaps `about`; anything recorded before is replaced.

    Returns
    -------
    dict
        The case with complete `config`, `vllm` and `result`.

    """
    config, streams = complete_config(case["config"]), Streams()
    run = Run(config, expand(case["requests"], streams), streams)
    result = run.to_the_end()
    return {
        "about": case.get("about", ""),
        "vllm": vllm_objects.version(),
        "config": config,
        "requests": case["requests"],
        "result": result,
    }
