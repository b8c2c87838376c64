"""Cross-checks: the simulation against the analytic formula and against itself, printed in every run.

Each check compares two numbers that come from different places: the ledger, the request log, an observer, a probe on
the run's own pool, and the closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sim import kv_formula
from sim.catalog import block_slots
from sim.config import SimConfig
from sim.engine import simulate
from sim.flow import Flow
from sim.memory.allocator import Allocator
from sim.memory.contiguous import ContiguousAllocator
from sim.memory.flowing import Flowed
from sim.memory.paged import PagedAllocator
from sim.memory.reserving import ReservingAllocator
from sim.memory.tiered import TieredAllocator
from sim.request_log import NEVER
from sim.run import SERVED, Observer, Run
from sim.scheduler import Scheduler
from sim.scheduler_config import SchedulerConfig
from sim.step import Step
from sim.step_time import ConstantStepTime
from workloads.request import IntArray, Trace

MOST_PROBED = 1 << 16                                  # sequences of a probe
NO_LIMITS = SchedulerConfig(max_num_seqs=None, max_num_batched_tokens=None)


@dataclass(frozen=True)
class Check:
    """One comparison; ``exact`` says whether the two must be equal or the first may not exceed the second.

    Where there are several replicas it is of one of them, or of all together (None).
    """

    name: str
    scenario: str
    simulated: int
    analytic: int
    exact: bool
    replica: int | None = None

    @property
    def ok(self) -> bool:
        return self.simulated == self.analytic if self.exact else self.simulated <= self.analytic

    def json(self) -> dict[str, object]:
        return {"name": self.name, "scenario": self.scenario, "simulated": self.simulated, "analytic": self.analytic,
                "exact": self.exact, "ok": self.ok} | ({} if self.replica is None else {"replica": self.replica})


class OverlapAudit(Observer):
    """Looks at all reservations whenever one was made; counts those that overlap another or leave the pool."""

    def __init__(self) -> None:
        self.overlaps = 0

    def started(self, allocator: Allocator, scheduler: Scheduler) -> None:
        assert isinstance(allocator, ContiguousAllocator)
        self._allocator = allocator

    def scheduled(self, now_us: int, step: Step) -> None:
        if step.admitted:
            start, size = self._allocator.reservations()
            order = np.argsort(start)
            start, stop = start[order], (start + size)[order]
            self.overlaps += int(np.count_nonzero(start[1:] < stop[:-1]))
            self.overlaps += int(np.count_nonzero((start < 0) | (stop > self._allocator.capacity)))


class TableAudit(Observer):
    """Recounts the pool from the block tables alone: who holds each block, and how many are held at all.

    It looks at the steps of the first admissions and of every 64th after them, however steps are made, and at the end.
    ``by_tables`` and ``by_free_queue`` are the blocks held at the fullest of those moments, or at the first where they differ.
    """

    FIRST, EVERY = 32, 64
    follows_flow = True

    def __init__(self) -> None:
        self.by_tables = self.by_free_queue = self.wrong_refs = 0
        self._admitted = 0

    def started(self, allocator: Allocator, scheduler: Scheduler) -> None:
        assert isinstance(allocator, PagedAllocator)
        self._allocator, self._scheduler = allocator, scheduler

    def scheduled(self, now_us: int, step: Step) -> None:
        if step.admitted and self._is_turn(len(step.admitted)):
            self.count()

    def flowed(self, flow: Flow, flowed: Flowed) -> None:
        pool, tables, to_come = self._allocator.pool, flowed.tables, flowed.to_come
        for step in flow.admitted.nonzero()[0].tolist():
            if self._is_turn(int(flow.admitted[step])):
                held = np.bincount(tables.held_in(step), minlength=pool.num_blocks)
                self.wrong_refs += int(np.count_nonzero(held > 1))         # nobody shares in free flow
                self._compare(held, pool.free + int(to_come.taken[step]))

    def _is_turn(self, admitted: int) -> bool:
        before, self._admitted = self._admitted, self._admitted + admitted
        return before < self.FIRST or before // self.EVERY != self._admitted // self.EVERY

    def count(self) -> None:
        """Look at the pool now."""
        pool = self._allocator.pool
        tables = [self._allocator.table(handle) for handle in self._scheduler.held()]
        held = np.bincount(np.concatenate(tables), minlength=pool.num_blocks) if tables else np.zeros(pool.num_blocks, np.int64)
        self.wrong_refs += int(np.count_nonzero(held != pool.ref))
        self._compare(held, pool.free)

    def _compare(self, held: IntArray, free: int) -> None:
        by_tables, by_free_queue = int(np.count_nonzero(held)), self._allocator.pool.num_blocks - 1 - free
        agreed = self.by_tables == self.by_free_queue
        if agreed and (by_tables != by_free_queue or by_tables > self.by_tables):
            self.by_tables, self.by_free_queue = by_tables, by_free_queue


Audit = OverlapAudit | TableAudit


def checks(name: str, run: Run, bytes_per_slot: int | None, *audits: Audit) -> Iterator[Check]:
    """All cross-checks of one scenario; ``audits`` followed the run, one a server."""
    if run.replicas:
        for number, (own, audit) in enumerate(zip(run.replicas, audits, strict=True)):
            yield from (replace(check, replica=number) for check in _of_a_server(name, own, bytes_per_slot, audit))
        yield from _of_all(name, run)
    else:
        yield from _of_a_server(name, run, bytes_per_slot, *audits)
    yield from _probes(name, run)


def _of_a_server(name: str, run: Run, bytes_per_slot: int | None, audit: Audit) -> Iterator[Check]:
    if run.demand.sequences is None:                   # the log follows requests, not each of their sequences
        yield Check("running (sequence-us): ledger = log", name,
                    run.ledger.total.sequence_us, sum(run.log.residence_us.tolist()), True)
    if isinstance(audit, OverlapAudit):
        yield from _contiguous_checks(name, run, audit)
    else:
        yield from _paged_checks(name, run, bytes_per_slot, audit)


def _of_all(name: str, run: Run) -> Iterator[Check]:
    """Of several replicas: what is added up is what there is."""
    if run.demand.sequences is None:
        yield Check("all replicas, running at once (sequence-us) = log", name,
                    run.ledger.total.sequence_us, sum(run.log.residence_us.tolist()), True)
    time_us = run.window_us[1] - run.window_us[0]
    yield Check("all replicas, seven parts (slot-us) = pools x window", name, sum(run.window.parts),
                sum(own.ledger.capacity for own in run.replicas) * time_us, True)
    yield Check("all replicas, requests admitted = served", name,
                sum(int((own.log.admitted_us != NEVER).sum()) for own in run.replicas), int((run.verdict == SERVED).sum()), True)


def _probes(name: str, run: Run) -> Iterator[Check]:
    """On a pool of their own; replicas are alike."""
    if name == "contiguous-max":
        yield probe_contiguous_max(name, run.config)
    elif isinstance(run.allocators[0], PagedAllocator):
        yield probe_paged(name, run.config)


def _contiguous_checks(name: str, run: Run, audit: OverlapAudit) -> Iterator[Check]:
    yield Check("reservations overlapping = 0", name, audit.overlaps, 0, True)
    if name == "contiguous-max":
        yield Check("running <= slots // max_model_len", name, run.ledger.peak_running,
                    run.config.usable_slots // run.config.max_model_len, False)


def _paged_checks(name: str, run: Run, bytes_per_slot: int | None, audit: TableAudit) -> Iterator[Check]:
    size = block_slots(name, run.config)
    audit.count()
    unit, per_slot = ("slots", 1) if bytes_per_slot is None else ("bytes", bytes_per_slot)
    yield Check(f"{unit} in tables at the fullest = blocks x block {unit}", name,
                audit.by_tables * size * per_slot, audit.by_free_queue * kv_formula.kv_bytes_per_block(per_slot, size), True)
    yield Check("wrong ref counts = 0", name, audit.wrong_refs, 0, True)
    if isinstance(run.allocator, TieredAllocator):
        tier = run.allocator.tier
        yield Check("evicted blocks = moved down + on the host already", name, run.allocator.pool.evicted,
                    tier.stored + tier.kept, True)
    if isinstance(run.allocator, ReservingAllocator):
        yield Check("preemptions = 0", name, run.preemptions, 0, True)
    elif not run.allocator.reserves_ahead or run.demand.sequences is None:     # sequences to come have blocks before they run
        yield Check("internal over (block_size - 1) each = 0", name, max(0, run.ledger.internal_excess), 0, True)
    if name != "paged-prefix" and run.demand.sequences is None:
        per_sequence = kv_formula.blocks_for(run.config.max_model_len - 1, size)
        yield Check("token states (slot-us): ledger = log", name, run.ledger.total.parts[0],
                    sum(run.log.token_us), True)
        yield Check(f"full-length sequences <= blocks // {per_sequence:,}", name,
                    run.peak_at_limit, run.config.usable_slots // size // per_sequence, False)


def audit_for(name: str) -> Audit:
    """The observer whose findings `checks` wants for an allocator."""
    return OverlapAudit() if name.startswith("contiguous") else TableAudit()


# ---------------------------------------------------------------------- probes on the run's own pool
def probe_paged(name: str, config: SimConfig) -> Check:
    """Equal prompts of whole blocks, one output token, all at once: as many run as the formula says fit.

    Where nobody says how long outputs may be, a reservation is all that ``max_model_len`` leaves.
    """
    size, longest, reserving = block_slots(name, config), config.max_model_len - 1, name == "paged-reserve"
    blocks = kv_formula.blocks_for(longest, size) if reserving else max(1, longest // size)
    prompt = longest if reserving else blocks * size
    config, smaller = _probed(config, -(-blocks * size // config.block_size))
    fit = config.usable_slots // size // blocks
    own = _probe_config(config, max_model_len=max(config.max_model_len, prompt + 1))
    return Check(f"probe, equal prompts: blocks // {blocks:,}{smaller}", name,
                 _peak(name, own, prompt, fit + 1), fit, True)


def probe_contiguous_max(name: str, config: SimConfig) -> Check:
    """Under first fit an empty arena is cut without loss: floor(slots / max_model_len) reservations."""
    config, smaller = _probed(config, kv_formula.blocks_for(config.max_model_len, config.block_size))
    fit = config.usable_slots // config.max_model_len
    own = _probe_config(config, placement="first-fit")
    return Check(f"probe, first fit: slots // max_model_len{smaller}", name,
                 _peak(name, own, config.max_model_len - 1, fit + 1), fit, True)


def _probed(config: SimConfig, blocks: int) -> tuple[SimConfig, str]:
    """The pool that is probed, and what is said of it: in one of millions a probe would take longer than the run."""
    most = MOST_PROBED * blocks + 1
    return (config, "") if config.num_blocks <= most else (replace(config, num_blocks=most), f" of {most:,} blocks")


def _probe_config(config: SimConfig, **changes: object) -> SimConfig:
    return replace(config, scheduler=NO_LIMITS, step_time=ConstantStepTime(1000), saturate=False, data_parallel_size=1,
                   **changes)  # type: ignore[arg-type]


def _peak(name: str, config: SimConfig, prompt: int, requests: int) -> int:
    def column(value: int) -> IntArray:
        return np.full(requests, value, np.int64)
    trace = Trace("probe", column(prompt), column(1), arrival_us=column(0))
    return simulate(trace, config, name).ledger.peak_running


