"""A run as trace events, for ui.perfetto.dev or chrome://tracing: requests as spans, the pool as counters.

    process   paged-prefix
    running 0   | request 0                 || request 7              |        a lane holds one running request after the other
                | prefill | decode          || prefill | decode       |
    running 1      | request 1        |      | request 1            |          preempted, and back
                   | prefill | decode |      | resumed              |
    preempted 0                       | preempted: 1 |
    waiting 0   | waiting: 2 |
    counters  vllm:num_requests_running, vllm:kv_cache_usage_perc, ..., pagedsim:kv_pool_slots in seven parts

One JSON object whose ``traceEvents`` are complete events (X), counters (C) and metadata (M), times in microseconds. Counters that
vLLM exports have its names, units and meaning. Long runs are thinned, so that the file stays readable: `write_chrome_trace`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np

from experiments.lanes import NO_LANE, lanes
from experiments.output import write_text
from sim.levels import Level
from sim.measures import waiting_of
from sim.memory.allocator import PARTS
from sim.request_log import NEVER
from sim.result import prefix_cache
from sim.run import SERVED, Run
from sim.stays import Stays, running_level
from sim.timeline import Timeline
from workloads.messages import counted
from workloads.request import IntArray

MOST_SPANS = 100_000                                   # stays, and as many waits, of an allocator
MOST_WAITING_LANES = 32                                # of the waiting, and of the preempted
KINDS = ("running", "preempted", "waiting")
MOST_POINTS = 8_192                                    # of a counter
HELD = PARTS[:3]                                       # slots in block tables or reservations: what vLLM calls used


@dataclass(frozen=True)
class Traced:
    """One server's run and who watched it; ``numbers`` are those of its requests in the trace, where these are not all."""

    name: str
    run: Run
    stays: Stays
    timeline: Timeline
    numbers: IntArray | None = None

    def number(self, request: int) -> int:
        """The request's row of the trace."""
        return request if self.numbers is None else int(self.numbers[request])


def traced_runs(name: str, run: Run, stays: Sequence[Stays], timelines: Sequence[Timeline]) -> list[Traced]:
    """A run as one process, or as one for each of its replicas with what that one served.

    Parameters
    ----------
    name : str
        The allocator.
    run : Run
    stays, timelines : sequence
        One a replica.
    """
    if not run.replicas:
        return [Traced(name, run, stays[0], timelines[0])]
    made = []
    for number, part in enumerate(run.replicas):
        rows = np.flatnonzero(run.replica == number)
        own = replace(stays[number], request=np.searchsorted(rows, stays[number].request))
        made.append(Traced(f"{name}, replica {number}", part, own, timelines[number], rows))
    return made


@dataclass(frozen=True, eq=False)
class Waits:
    """Stretches in which a request waited."""

    request: IntArray
    start_us: IntArray
    end_us: IntArray


def write_chrome_trace(path: str, runs: Sequence[Traced], source: str) -> list[str]:
    """Write one process an allocator, and say what is in the file. The same runs give the same bytes.

    The first 100,000 stays and waits of an allocator have spans; who waits is shown in 32 lanes, so is who is preempted, and a
    wait that finds none free is left out; a counter has at most 8,192 points, evenly taken of its changes. All of that is said.

    Parameters
    ----------
    path : str
        Packed where it ends in .gz or .zst.
    runs : sequence of Traced
    source : str
        The trace that was replayed.

    Returns
    -------
    list of str
        Notes.
    """
    counts = {"events": 0, "stays": 0, "waits": 0}

    def write(file: IO[str]) -> None:
        head = {"trace": source, "made by": "pagedsim", "times": "microseconds of the simulation"}
        file.write(f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(head)}, "traceEvents": [\n')
        before = ""
        for pid, traced in enumerate(runs, 1):
            for event in _process(pid, traced, counts):
                file.write(before + event)
                before = ",\n"
                counts["events"] += 1
        file.write("\n]}\n")

    write_text(path, write)
    left_out = [f"{counts[kind]:,} {kind}" for kind in ("stays", "waits") if counts[kind]]
    more = f"; {' and '.join(left_out)} have no span, counters have them all" if left_out else ""
    return [f"the Chrome trace holds {counts['events']:,} events of {counted(len(runs), 'server')}{more}"]


def _process(pid: int, traced: Traced, counts: dict[str, int]) -> Iterator[str]:
    """All events of one allocator, each as one line of JSON; lanes are numbered from 1, and 0 has the counters."""
    stays, waits = traced.stays, waits_of(traced.run, traced.stays)
    shown = min(len(stays), MOST_SPANS)
    running = lanes(stays.admitted_us[:shown], stays.left_us[:shown])
    waiting = [lanes(rows.start_us[:MOST_SPANS], rows.end_us[:MOST_SPANS], MOST_WAITING_LANES) for rows in waits]
    counts["stays"] += len(stays) - shown
    counts["waits"] += sum(len(rows.request) - int((found != NO_LANE).sum()) for rows, found in zip(waits, waiting, strict=True))
    used = [int(found.max(initial=NO_LANE)) + 1 for found in (running, *waiting)]
    yield from _names(pid, traced.name, used)
    yield from _running(pid, traced, running + 1)
    for kind, rows, found, before in zip(KINDS[1:], waits, waiting, np.cumsum(used).tolist(), strict=False):
        yield from _waiting((pid, kind), traced, rows, np.where(found == NO_LANE, NO_LANE, found + before + 1))
    yield from _counters(pid, traced)


def _names(pid: int, name: str, used: list[int]) -> Iterator[str]:
    yield _meta(pid, 0, "process_name", {"name": name})
    yield _meta(pid, 0, "process_sort_index", {"sort_index": pid})
    texts = [f"{kind} {lane}" for kind, n in zip(KINDS, used, strict=True) for lane in range(n)]
    for tid, text in enumerate(texts, 1):
        yield _meta(pid, tid, "thread_name", {"name": text})
        yield _meta(pid, tid, "thread_sort_index", {"sort_index": tid})


def _meta(pid: int, tid: int, kind: str, args: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args})


def _span(place: tuple[int, int], name: str, start: int, end: int, args: str = "{}") -> str:
    """A complete event; names are our own words, so only ``args`` has been through json."""
    return f'{{"ph":"X","pid":{place[0]},"tid":{place[1]},"name":"{name}","ts":{start},"dur":{end - start},"args":{args}}}'


# ---------------------------------------------------------------------- spans
def _running(pid: int, traced: Traced, tids: IntArray) -> Iterator[str]:
    """A span a stay, and inside it what it was doing."""
    log, demand, arrival = traced.run.log, traced.run.demand, traced.run.arrival_us
    columns = (traced.stays.request, traced.stays.admitted_us, traced.stays.left_us, tids)
    for request, start, end, tid in zip(*(column[: len(tids)].tolist() for column in columns), strict=True):
        first, last = int(log.first_token_us[request]), int(log.finished_us[request])
        args = json.dumps({"prompt_tokens": int(demand.prompt[request]), "output_tokens": int(demand.output[request]),
                           "hit_tokens": int(log.hit_tokens[request]), "arrival_us": int(arrival[request]),
                           "ends": "finished" if last == end else "preempted"})
        yield _span((pid, tid), f"request {traced.number(request)}", start, end, args)
        if NEVER != first <= start:
            yield _span((pid, tid), "resumed", start, end)
        elif first == NEVER or first >= end:
            yield _span((pid, tid), "prefill", start, end)
        else:
            yield _span((pid, tid), "prefill", start, first)
            yield _span((pid, tid), "decode", first, end)


def waits_of(run: Run, stays: Stays) -> tuple[Waits, Waits]:
    """When each served request was out, preempted, and when it waited for its first admission; by start and request.

    Moments without length are left out. A request that never leaves the queue waits to the end of the run.
    """
    arrival, finished, end = run.arrival_us, run.log.finished_us, int(stays.left_us.max(initial=0))
    order = np.lexsort((stays.admitted_us, stays.request))
    request, admitted, left = (column[order] for column in (stays.request, stays.admitted_us, stays.left_us))
    again = request[1:] == request[:-1]
    first, last = np.ones((2, len(request)), bool)
    first[1:], last[:-1] = ~again, ~again
    never = np.setdiff1d(np.flatnonzero((run.verdict == SERVED) & (arrival != NEVER)), request)
    over = finished[request[last]]                     # later than it left where its last token came as it waited
    out = (np.concatenate((request[1:][again], request[last])), np.concatenate((left[:-1][again], left[last])),
           np.concatenate((admitted[1:][again], np.where(over == NEVER, end, over))))
    new = (np.concatenate((request[first], never)), np.concatenate((arrival[request[first]], arrival[never])),
           np.concatenate((admitted[first], np.full(len(never), end))))
    return _in_order(*out), _in_order(*new)


def _in_order(request: IntArray, start_us: IntArray, end_us: IntArray) -> Waits:
    rows = np.lexsort((request, start_us))
    rows = rows[(end_us > start_us)[rows]]
    return Waits(request[rows], start_us[rows], end_us[rows])


def _waiting(of: tuple[int, str], traced: Traced, waits: Waits, tids: IntArray) -> Iterator[str]:
    pid, kind = of
    columns = (waits.request, waits.start_us, waits.end_us, tids)
    for request, start, end, tid in zip(*(column[: len(tids)].tolist() for column in columns), strict=True):
        if tid != NO_LANE:
            yield _span((pid, tid), f"{kind}: {traced.number(request)}", start, end)


# ---------------------------------------------------------------------- counters
def _counters(pid: int, traced: Traced) -> Iterator[str]:
    run, stays, columns = traced.run, traced.stays, _to_the_end(traced)
    over = _last_of_instants(columns["time_us"])
    over = over[_points(len(over))]
    time = columns["time_us"][over]
    slots = [columns[part][over] for part in PARTS]
    used = sum(columns[part][over] for part in HELD) / run.ledger.capacity
    yield from _counter(pid, "vllm:num_requests_running", *_thinned(running_level(stays)))
    yield from _counter(pid, "vllm:num_requests_waiting", *_thinned(waiting_of(run, stays)))
    yield from _counter(pid, "vllm:kv_cache_usage_perc", time, np.round(used, 6))
    yield from _counter(pid, "vllm:num_preemptions_total", *_running_sum(_preempted_us(run, stays)))
    if prefix_cache(run) is not None:
        rows = np.flatnonzero(run.log.admitted_us != NEVER)
        for name, tokens in (("queries", run.demand.prompt), ("hits", run.log.hit_tokens)):
            yield from _counter(pid, f"vllm:prefix_cache_{name}_total", *_running_sum(run.log.admitted_us[rows], tokens[rows]))
    for at, values in zip(time.tolist(), zip(*(column.tolist() for column in slots), strict=True), strict=True):
        args = ",".join(f'"{part}":{value}' for part, value in zip(PARTS, values, strict=True))
        yield f'{{"ph":"C","pid":{pid},"tid":0,"name":"pagedsim:kv_pool_slots","ts":{at},"args":{{{args}}}}}'


def _to_the_end(traced: Traced) -> dict[str, IntArray]:
    """The timeline, and what the pool holds when the last request has left: it is sampled when steps begin."""
    run, columns = traced.run, traced.timeline.columns()
    if not len(traced.stays) or run.stuck:
        return columns
    left = dict(zip(PARTS, run.allocator.counts(0, None), strict=True))
    last = {"time_us": int(traced.stays.left_us.max()), **left}
    return {name: np.append(column, last.get(name, 0)) for name, column in columns.items()}


def _counter(pid: int, name: str, time_us: IntArray, values: Any) -> Iterator[str]:
    for at, value in zip(time_us.tolist(), values.tolist(), strict=True):
        yield f'{{"ph":"C","pid":{pid},"tid":0,"name":"{name}","ts":{at},"args":{{"value":{value}}}}}'


def _preempted_us(run: Run, stays: Stays) -> IntArray:
    """Moments of preemption: ends of stays that are not the end of their request."""
    stopped: IntArray = stays.left_us[run.log.finished_us[stays.request] != stays.left_us]
    return stopped


def _running_sum(time_us: IntArray, amounts: IntArray | None = None) -> tuple[IntArray, IntArray]:
    """A counter that only goes up, and is 0 at time 0."""
    order = np.argsort(time_us, kind="stable")
    times = np.append(0, time_us[order])
    total = np.append(0, np.cumsum(np.ones(len(order), np.int64) if amounts is None else amounts[order]))
    last = _last_of_instants(times)
    return _thinned(Level(times[last], total[last]))


def _last_of_instants(times_us: IntArray) -> IntArray:
    """Of several rows at one instant the last."""
    return np.flatnonzero(np.append(times_us[1:] != times_us[:-1], True)[: len(times_us)])


def _thinned(level: Level) -> tuple[IntArray, IntArray]:
    rows = _points(len(level.times_us))
    return level.times_us[rows], level.values[rows]


def _points(n: int) -> IntArray:
    """Places of at most MOST_POINTS of ``n`` values, the first and the last among them."""
    return np.unique(np.linspace(0, max(n - 1, 0), min(n, MOST_POINTS)).round().astype(np.int64))
