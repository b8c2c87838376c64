"""What a simulation needs to know besides the trace."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from sim.memory.arena import PLACEMENTS
from sim.scheduler_config import SchedulerConfig
from sim.step_time import ConstantStepTime, StepTime

DEFAULT_STEP_TIME = ConstantStepTime(20_000)


@dataclass(frozen=True)
class HostMemory:
    """A tier behind the pool of ``paged-prefix``, and the link to it (`memory.tiered`).

    Parameters
    ----------
    blocks : int
        Blocks of the tier, as large as the pool's; 0 is no tier.
    bytes_per_block : int
        Of one GPU: each rank loads its own share of a block over its own link, all at once.
    bytes_per_s : int
        From host to GPU, for each GPU.

    Examples
    --------
    >>> memory = HostMemory(100, bytes_per_block=2_097_152, bytes_per_s=25_000_000_000)
    >>> memory.load_us(0), memory.load_us(1), memory.load_us(1000)
    (0, 84, 83886)
    """

    blocks: int
    bytes_per_block: int
    bytes_per_s: int

    def __post_init__(self) -> None:
        for name, least in (("blocks", 0), ("bytes_per_block", 1), ("bytes_per_s", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} of the host memory must be at least {least}, not {getattr(self, name)}")

    def load_us(self, blocks: int) -> int:
        """Microseconds that loading ``blocks`` blocks takes: bytes over bandwidth, exact, rounded half to even."""
        return round(Fraction(blocks * self.bytes_per_block * 1_000_000, self.bytes_per_s))


@dataclass(frozen=True)
class SimConfig:
    """One pool, one scheduler, one clock.

    Parameters
    ----------
    num_blocks : int
        vLLM's ``num_gpu_blocks``, null block included. Every allocator manages ``(num_blocks - 1) * block_size`` slots.
    block_size : int
        Slots a block.
    max_model_len : int
        Longest prompt + output, in tokens.
    placement : str
        Where contiguous reservations go: ``buddy``, ``first-fit`` or ``best-fit``.
    scheduler : SchedulerConfig
    step_time : StepTime
    saturate : bool
        All requests arrive at time 0 and memory alone limits; averages cover the time somebody is refused (docs/measuring.md).
    refuse_impossible : bool
        Reject at arrival what could never finish alone in the pool. Off, such a request waits for ever, as in the
        recorded cases of the real scheduler; only a prompt that leaves no room in ``max_model_len`` is rejected still.
    split_freed : bool
        Whether freed blocks without a hash are reused first (vLLM since 0.25); off, every freed block goes to the end.
    page_slots : int, optional
        Tokens a page of the ``vattention`` allocator (`kv_formula.tokens_per_page`).
    host_memory : HostMemory, optional
        A tier behind the pool of ``paged-prefix``. A step that admits requests with blocks from there takes as much longer.
    longest_jump : int
        Most decode steps made at once; 1 makes every step by itself.
    data_parallel_size : int
        Replicas, each with a pool and a scheduler as said here.
    router : str
        A name in `catalog.ROUTERS`: which replica a request goes to.
    most_in_flight : int, optional
        The client keeps at most so many requests in the server (`arrivals.InFlight`).
    """

    num_blocks: int
    block_size: int = 16
    max_model_len: int = 4096
    placement: str = "buddy"
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    step_time: StepTime = DEFAULT_STEP_TIME
    saturate: bool = False
    refuse_impossible: bool = True
    longest_jump: int = 1024
    split_freed: bool = True
    page_slots: int | None = None
    host_memory: HostMemory | None = None
    data_parallel_size: int = 1
    router: str = "least-loaded"
    most_in_flight: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("num_blocks", 1), ("block_size", 1), ("max_model_len", 2), ("longest_jump", 1), ("page_slots", 1),
                            ("data_parallel_size", 1), ("most_in_flight", 1)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement must be one of {', '.join(PLACEMENTS)}, not {self.placement!r}")
        if self.host_memory is not None and self.scheduler.swap_blocks is not None:
            raise ValueError("a prefix tier in host memory and preemption by swap do not go together")
        if self.data_parallel_size > 1 and not self.refuse_impossible:
            raise ValueError("requests that can never end are let in as recorded from one server: not with several replicas")
        self.scheduler.check(self.max_model_len)

    @property
    def usable_slots(self) -> int:
        """Slots every allocator of a comparison manages."""
        return (self.num_blocks - 1) * self.block_size

    @property
    def tier_blocks(self) -> int:
        """Blocks of the host tier, 0 for none."""
        return 0 if self.host_memory is None else self.host_memory.blocks

    def load_us(self, blocks: int) -> int:
        """Microseconds by which loading ``blocks`` blocks of the host tier makes a step longer."""
        return 0 if self.host_memory is None else self.host_memory.load_us(blocks)

    def scheduler_for(self, block_size: int) -> SchedulerConfig:
        """The scheduler's options for an allocator with other blocks: a host pool of the same slots."""
        blocks = self.scheduler.swap_blocks
        return replace(self.scheduler, swap_blocks=None if blocks is None else blocks * self.block_size // block_size)
