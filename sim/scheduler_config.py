"""The scheduler's options, under vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass

POLICIES = ("fcfs", "priority")
BATCHINGS = ("continuous", "static")


@dataclass(frozen=True)
class SchedulerConfig:
    """vLLM's scheduler options; None lifts a limit.

    ``exempt_lone_prefill`` (since 0.32) lifts the long-prefill threshold for a request alone in the system;
    ``go_on_after_own_preemption`` (not up to 0.28) is whether, by priority, sequences behind one that preempted itself
    are still scheduled in the step.

    ``swap_blocks`` is the size of a host pool, in blocks: a preempted request's blocks are copied there if they fit, and it
    goes on where it was instead of computing its tokens again; None: always by recompute, as vLLM's V1 engine.

    ``beam_turnover`` is the probability that a survivor of a beam search draws a parent among all beams after a token, instead
    of going on from its own (`sequence_groups`).

    ``batching`` is ``continuous``, or ``static``: a batch is formed when nothing runs and ends together (`static_batching`).

    Raises
    ------
    ValueError
        Where vLLM refuses to start: a token budget below ``max_num_seqs``, or below ``max_model_len`` without chunked
        prefill.
    """

    max_num_seqs: int | None = 256
    max_num_batched_tokens: int | None = 8192
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    reserve_full_isl: bool = True
    watermark: float = 0.0
    policy: str = "fcfs"
    async_scheduling: bool = False
    exempt_lone_prefill: bool = True
    go_on_after_own_preemption: bool = True
    swap_blocks: int | None = None
    beam_seed: int = 0
    beam_turnover: float = 1.0
    batching: str = "continuous"

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.long_prefill_token_threshold < 0:
            raise ValueError(f"long_prefill_token_threshold must be 0 or more, not {self.long_prefill_token_threshold}")
        if self.swap_blocks is not None and self.swap_blocks < 0:
            raise ValueError(f"swap_blocks must be 0 or more, not {self.swap_blocks}")
        if self.swap_blocks is not None and self.async_scheduling:
            raise ValueError("preemption by swap and asynchronous scheduling do not go together")
        if self.batching not in BATCHINGS:
            raise ValueError(f"batching must be one of {', '.join(BATCHINGS)}, not {self.batching!r}")
        if self.batching == "static" and self.async_scheduling:
            raise ValueError("static batching and asynchronous scheduling do not go together")
        if self.policy not in POLICIES:
            raise ValueError(f"scheduling_policy must be one of {', '.join(POLICIES)}, not {self.policy!r}")
        if not 0 < self.beam_turnover <= 1:
            raise ValueError(f"beam_turnover must be above 0 and at most 1, not {self.beam_turnover}")
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark must be in [0, 1), not {self.watermark}")
        if self.max_num_batched_tokens is not None and self.max_num_batched_tokens < (self.max_num_seqs or 0):
            raise ValueError(f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                             f"max_num_seqs ({self.max_num_seqs}), as in vLLM")

    def check(self, max_model_len: int) -> None:
        """Raise ValueError where a prompt of this model could never be scheduled."""
        budget = self.max_num_batched_tokens
        if not self.enable_chunked_prefill and budget is not None and budget < max_model_len:
            raise ValueError(f"without chunked prefill max_num_batched_tokens ({budget}) must be at least "
                             f"max_model_len ({max_model_len}), as in vLLM")
