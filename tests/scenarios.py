"""Random configurations of the whole simulator: what arrives, the server or the fleet, how memory is given out.

    arrivals    open, closed loops of sessions, a client with few in flight, or all at once (saturated)
    requests    shared prefixes, samples or beams, priorities, limits the client asked for
    server      continuous, static or asynchronous; by arrival or priority; recompute or swap; every limit of the scheduler
    memory      every allocator of the catalogue, a host tier, a warm start
    fleet       one server, or several behind a router

What does not go together is left out in `scenarios` alone, so that a relation can say what it is about by `replace`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from small import config_of

from sim.catalog import ALLOCATORS, ROUTERS
from sim.config import HostMemory, SimConfig
from sim.engine import Engine
from sim.memory.contiguous import ContiguousAllocator
from sim.result import scenario
from sim.run import Observer, Run
from sim.step_time import ConstantStepTime, RooflineStepTime
from workloads.request import ContentIds, Trace

ROOFLINE = RooflineStepTime(weight_bytes=1e6, kv_bytes_per_token=1000, flops_per_token=1e3, flops_per_pair=10.0,
                            bandwidth_bytes_per_s=1e9, peak_flops_per_s=1e9, overhead_us=7.5)
MICROSECONDS_A_SECOND = 1_000_000                      # a link of a byte a microsecond: loading takes whole numbers of them
SPAN = 4


@dataclass(frozen=True)
class Scenario:
    """A trace and all that serves it."""

    trace: Trace
    config: SimConfig
    allocator: str
    warm: Trace | None = None

    def run(self, observers=()) -> Run:
        """Serve it; ``observers`` as of `Engine`."""
        return Engine(self.trace, self.config, self.allocator, observers=observers, warm=self.warm).run()

    def watched(self, make):
        """The run and one observer a server, made by ``make``."""
        made = [make() for _ in range(self.config.data_parallel_size)]
        return self.run(lambda number: [made[number]]), made

    def but(self, trace=None, allocator=None, warm=..., **changes) -> Scenario:
        """The same with other options; ``trace`` as a dictionary of columns, the scheduler's options by their names."""
        scheduler = {k: changes.pop(k) for k in list(changes) if hasattr(self.config.scheduler, k)}
        config = replace(self.config, scheduler=replace(self.config.scheduler, **scheduler), **changes)
        return Scenario(replace(self.trace, **(trace or {})), config, allocator or self.allocator,
                        self.warm if warm is ... else warm)


class Steps(Observer):
    """Counts steps, empty ones among them; AssertionError beyond ``most``."""

    def __init__(self, most=1 << 62) -> None:
        self.most, self.steps, self.empty = most, 0, 0

    def scheduled(self, now_us, step):
        self.empty += not step.new_tokens
        self._made(1)

    def jumped(self, jump):
        self._made(jump.run.steps)

    def _made(self, steps):
        self.steps += steps
        assert self.steps <= self.most, f"more than {self.most} steps"


class InTurn(Steps):
    """And that nobody is admitted, for the first time or again, while somebody waits who came before; of the policy fcfs."""

    def started(self, allocator, scheduler):
        self._scheduler, self._place = scheduler, {}

    def arrived(self, now_us, request):
        self._place[request] = len(self._place)

    def scheduled(self, now_us, step):
        super().scheduled(now_us, step)
        waiting = [self._place[request] for request in self._scheduler.waiting]
        came = [self._place[request] for request, *_ in (*step.admitted, *step.swapped_in)]
        assert not came or not waiting or max(came) < min(waiting), (came, waiting)


class Recount(Observer):
    """Adds up the pool at every event, and what is held from the block tables and reservations alone."""

    def started(self, allocator, scheduler):
        self.allocator, self.scheduler = allocator, scheduler

    def scheduled(self, now_us, step):
        allocator, scheduler = self.allocator, self.scheduler
        counts = allocator.counts(scheduler.computed, scheduler.refused)
        assert sum(counts) == allocator.capacity and min(counts) >= 0, counts
        assert scheduler.computed == scheduler.running.computed.sum()
        if isinstance(allocator, ContiguousAllocator):
            held = sum(allocator.placed(handle)[1] for handle in scheduler.held())
        else:
            blocks = [allocator.table(handle) for handle in scheduler.held()]
            held = allocator.block_size * len(np.unique(np.concatenate(blocks))) if blocks else 0
        assert sum(counts[:3]) == held

    def jumped(self, jump):
        self.scheduled(jump.end_us, None)

    def updated(self, now_us, finished):
        assert self.scheduler.computed == self.scheduler.running.computed.sum()


class Refused(Observer):
    """Whether anybody was refused for want of memory, or preempted."""

    ever = False

    def started(self, allocator, scheduler):
        self.scheduler = scheduler

    def scheduled(self, now_us, step):
        self.ever = self.ever or self.scheduler.refused is not None or bool(step.preempted)

    def jumped(self, jump):
        self.ever = self.ever or jump.run.refused is not None


def contents(rows, cover_output=False):
    """Content ids of all requests, an id a span; ``rows`` a list of ids a request."""
    starts = np.cumsum([0, *map(len, rows)])
    return ContentIds(np.array([i for row in rows for i in row], np.int64), starts, SPAN, cover_output)


@st.composite
def traces(draw, most=14):
    """Requests that begin alike, in open or closed loops, some of them with several sequences."""
    n, families = draw(st.integers(1, most)), draw(st.lists(st.integers(0, 4), min_size=3, max_size=9))
    columns = {name: [] for name in ("prompt_tokens", "output_tokens", "arrival_us", "session", "think_us", "priority")}
    ids, seen, now, cover = [], set(), 0, draw(st.booleans())
    for i in range(n):
        prompt, output, session = draw(st.integers(1, 30)), draw(st.integers(1, 24)), draw(st.integers(-1, 4))
        now += draw(st.sampled_from([0, 0, 0, 1, 2, 7, 40]))
        think = draw(st.sampled_from([-1, 0, 3, 20])) if session in seen else -1
        seen |= {session} - {-1}
        shared = draw(st.integers(0, min(len(families), prompt // SPAN)))
        spans = -(-(prompt + output * cover) // SPAN)
        ids.append(families[:shared] + [100 + 100 * i + k for k in range(spans - shared)])
        for name, value in zip(columns, (prompt, output, now, session, think, draw(st.integers(0, 2))), strict=True):
            columns[name].append(value)
    made = {name: np.array(column, np.int64) for name, column in columns.items()}
    several = draw(st.sampled_from([None, None, None, "samples", "beam_width"]))
    if several:
        made[several] = np.array(draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)), np.int64)
    if draw(st.booleans()):
        made["max_tokens"] = made["output_tokens"] + np.array(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), np.int64)
    return Trace("at random", content=contents(ids, cover), **made)


def largest(trace, max_model_len):
    """Slots of the largest request, all its sequences at their full lengths."""
    ends = np.minimum(trace.prompt_tokens + trace.output_tokens, max_model_len) - 1
    return (ends * (1 if trace.sequences is None else trace.sequences)).max()


@st.composite
def scenarios(draw, allocators=tuple(ALLOCATORS), most=14):
    """Any of it; what `SimConfig` and the engine refuse is left out."""
    trace, allocator = draw(traces(most)), draw(st.sampled_from(allocators))
    most_in_flight = draw(st.sampled_from([None, None, None, 1, 3]))
    if most_in_flight is not None:
        trace = replace(trace, think_us=None)
    special = draw(st.sampled_from(["none", "none", "swap", "static", "static swap", "async"]))
    if special == "async":
        trace = replace(trace, samples=None, beam_width=None)
    swap = draw(st.sampled_from([0, 3, 20])) if "swap" in special else None
    length, size = draw(st.sampled_from([54, 54, 40, 20, 9])), draw(st.sampled_from([1, 2, 4, 4, 8]))
    budget = draw(st.sampled_from([None, None, 8, 32, 64]))
    least = -(-int(largest(trace, length)) // size)    # with so many blocks nobody is too large; with fewer some are
    blocks = draw(st.integers(least, 2 * least) | st.integers(least // 2, least))
    host = allocator == "paged-prefix" and swap is None and draw(st.booleans())
    config = config_of(
        1 + blocks, size, length,
        placement=draw(st.sampled_from(["buddy", "first-fit", "best-fit"])),
        page_slots=draw(st.integers(1, 12)), split_freed=draw(st.booleans()),
        policy=draw(st.sampled_from(["fcfs", "priority"])), go_on_after_own_preemption=draw(st.booleans()),
        max_num_seqs=draw(st.sampled_from([8, 8, 3, 1])), max_num_batched_tokens=budget,
        enable_chunked_prefill=draw(st.booleans()) or (budget is not None and budget < length),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 1, 6])), exempt_lone_prefill=draw(st.booleans()),
        reserve_full_isl=draw(st.booleans()), watermark=draw(st.sampled_from([0.0, 0.0, 0.1, 0.9])),
        batching="static" if "static" in special else "continuous", async_scheduling=special == "async", swap_blocks=swap,
        beam_turnover=draw(st.sampled_from([1.0, 0.4])), saturate=draw(st.sampled_from([False, False, True])),
        step_time=draw(st.sampled_from([ConstantStepTime(1), ConstantStepTime(3), ConstantStepTime(10), ROOFLINE])),
        longest_jump=draw(st.sampled_from([1, 1024, 1024])), most_in_flight=most_in_flight,
        host_memory=HostMemory(draw(st.integers(0, 12)), 2, MICROSECONDS_A_SECOND) if host else None,
        data_parallel_size=draw(st.sampled_from([1, 1, 2, 3])), router=draw(st.sampled_from(list(ROUTERS))))
    return Scenario(trace, config, allocator, draw(earlier(trace)))


@st.composite
def earlier(draw, trace):
    """What was served before, in the same families; or nothing."""
    if draw(st.booleans()):
        return None
    ids = [draw(st.lists(st.integers(0, 4), min_size=1, max_size=6)) for _ in range(draw(st.integers(1, 4)))]
    content = contents(ids, trace.content.cover_output)
    return Trace("earlier", np.array([SPAN * len(row) for row in ids]), np.ones(len(ids), np.int64), content=content)


def run_of(trace, config, name):
    """One allocator's run."""
    return Engine(trace, config, name).run()


COLUMNS = ("admitted_us", "first_token_us", "finished_us", "hit_tokens", "preemptions", "residence_us")


def everything(run):
    """All that a run reports, for equality."""
    log = run.log
    columns = [getattr(log, c).tolist() for c in COLUMNS]
    return scenario("x", run), columns, log.token_us, run.ledger.peak_used, run.ledger.internal_excess, run.peak_at_limit


def times(run):
    """When what happened to each request, and how often it was preempted."""
    log = run.log
    return [column.tolist() for column in (run.arrival_us, log.admitted_us, log.first_token_us, log.finished_us, log.preemptions,
                                           log.residence_us)]


# ---------------------------------------------------------------------- narrowed
PLAIN = ("paged", "token", "vattention", "paged-reserve", "contiguous-max", "contiguous-pow2", "contiguous-oracle")
"""Allocators that find no prefixes again."""


def plain(s, k):
    """Any allocator that finds no prefixes again, and nothing served before."""
    name = s.allocator if s.allocator in PLAIN else PLAIN[k % len(PLAIN)]
    return s.but(allocator=name, warm=None, host_memory=None)


def disjoint(s):
    """The same requests with contents of their own."""
    spans = np.diff(s.trace.content.starts)
    ids = np.split(np.arange(1000, 1000 + spans.sum()), np.cumsum(spans)[:-1])
    return s.but(trace={"content": contents([row.tolist() for row in ids], s.trace.content.cover_output)})


def one_sequence(s):
    return s.but(trace={"samples": None, "beam_width": None})
