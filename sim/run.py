"""The facts of one run, and how others follow it: the engine states, `result` computes, `experiments` draw."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.config import SimConfig
from sim.demand import Demand
from sim.flow import Flow
from sim.ledger import Integrals, Ledger
from sim.memory.allocator import Allocator
from sim.memory.flowing import Flowed
from sim.request_log import RequestLog
from sim.scheduler import Scheduler
from sim.step import Jump, Step
from sim.warm import Warmth
from workloads.request import IntArray

SERVED, TOO_LONG, EXCEEDS_POOL, TOO_WIDE = range(4)
REJECTIONS = {TOO_LONG: "prompt_not_below_max_model_len", EXCEEDS_POOL: "larger_than_pool",
              TOO_WIDE: "more_sequences_than_max_num_seqs"}


class Stalled(RuntimeError):
    """No request can ever move again; the message names the one at fault and what it waits for (`sim.stalls`)."""


class Observer:
    """Called by the engine with what happened; the default does nothing. Observers read, they change nothing.

    While one of them wants to be told of each step, as is usual, there are no stretches of free flow. A class says that it can be
    told of whole stretches by ``follows_flow = True``: each for itself, since a class derived from it may want more.
    """

    def started(self, allocator: Allocator, scheduler: Scheduler) -> None:
        """Before the first event: what there is to look at."""

    def arrived(self, now_us: int, request: int) -> None:
        """A request joined the waiting queue at ``now_us``."""

    def scheduled(self, now_us: int, step: Step) -> None:
        """A step was scheduled at ``now_us``."""

    def jumped(self, jump: Jump) -> None:
        """All decode steps of a jump were made at once."""

    def flowed(self, flow: Flow, flowed: Flowed) -> None:
        """A stretch of free flow was made at once. Only of those whose `follows_flow` says that they are told enough."""

    def updated(self, now_us: int, finished: list[int]) -> None:
        """A step ended at ``now_us``; these requests left."""


@dataclass
class Run:
    """The facts of one simulation, from which `result` computes metrics.

    ``arrival_us`` are the arrivals as they came about (`Arrivals`), -1 for whoever in a closed loop follows a request that
    never ended; ``verdict`` says who was served (0) or why not (`REJECTIONS`); ``peak_at_limit`` is the most sequences that
    held ``max_model_len - 1`` token states at once; ``window`` the integrals over ``window_us``; ``stuck`` the requests that
    wait and can never move again (only without ``refuse_impossible``), ``stall`` the line that says which of them is at fault.
    ``load_us`` is the time by which steps were longer
    because blocks came from a host tier; ``warm`` what lay in the cache before the first arrival.

    Several ``replicas`` have facts of their own, each of the requests it served; ``replica`` says who that is, -1 for nobody. The
    sums of all are then here: times and counts added up, the running sequences of all at each moment (`sim.fleet`).
    """

    allocators: tuple[Allocator, ...]
    config: SimConfig
    demand: Demand
    ledger: Ledger
    log: RequestLog
    arrival_us: IntArray
    verdict: IntArray
    preemptions: int = 0
    steps: int = 0
    peak_at_limit: int = 0
    window_us: tuple[int, int] = (0, 0)
    window: Integrals = field(default_factory=Integrals)
    stuck: list[int] = field(default_factory=list)
    stall: str | None = None
    load_us: int = 0
    warm: Warmth | None = None
    replicas: tuple[Run, ...] = ()
    replica: IntArray | None = None

    @property
    def allocator(self) -> Allocator:
        """The only allocator; ValueError where each of several replicas has its own."""
        if len(self.allocators) != 1:
            raise ValueError(f"{len(self.allocators)} replicas have an allocator each: look at `replicas`")
        return self.allocators[0]
