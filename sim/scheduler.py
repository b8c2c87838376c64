"""The scheduler: who runs, who waits, and how many tokens each computes in a step.

It decides as vLLM's V1 scheduler does (SEMANTICS sections 5 and 6); rule numbers are in the comments. A step is

    schedule()   the running sequences in order of admission get their tokens, the last one being preempted when memory
                 runs out; then, if nobody was preempted, the waiting queue is admitted from its head
    (the model runs)
    update()     whoever has computed its last token leaves

Nothing here knows the clock: `Scheduler` works in steps, the engine gives them their times. `decode_run` and `decode`
make many steps at once while nothing but lengths can change, with the same outcome as that many schedule()/update().
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from sim.batch import Batch
from sim.demand import Demand
from sim.memory.allocator import Allocator, Ask, DecodePath, Refusal
from sim.step import NO_RUN, DecodeRun, Step
from workloads.request import IntArray

UNLIMITED = 1 << 62


@dataclass(frozen=True)
class SchedulerConfig:
    """vLLM's scheduler options; None lifts a limit.

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

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.long_prefill_token_threshold < 0:
            raise ValueError(f"long_prefill_token_threshold must be 0 or more, not {self.long_prefill_token_threshold}")
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


class Scheduler:
    """Waiting queue, running set and the decisions between them.

    Parameters
    ----------
    demand : Demand
    allocator : Allocator
    config : SchedulerConfig
    num_blocks : int
        For the watermark, a share of all blocks (rule 30).

    Attributes
    ----------
    waiting : deque of int
        Requests in the order they will be looked at; a preempted one is put in front (rule 31).
    running : Batch
    computed : int
        Sum of the computed tokens of all running sequences.
    refused : Refusal or None
        Set by the last schedule(): the head of the queue is not running for want of memory.
    """

    def __init__(self, demand: Demand, allocator: Allocator, config: SchedulerConfig, num_blocks: int) -> None:
        self.demand = demand
        self.allocator = allocator
        self.config = config
        self.waiting: deque[int] = deque()
        self.running = Batch()
        self.computed = 0
        self.refused: Refusal | None = None
        self.preemptions = 0
        self._known: IntArray = demand.prompt.copy()
        self._resumed = bytearray(len(demand))
        self._prefilling = 0
        self._seqs = config.max_num_seqs or UNLIMITED
        self._tokens = config.max_num_batched_tokens or UNLIMITED
        self._may_find_generated = demand.content is not None and demand.content.cover_output
        self._watermark_blocks = int(config.watermark * num_blocks)

    def add(self, request: int) -> None:
        """A request arrives: it queues behind all others."""
        self.waiting.append(request)

    # ------------------------------------------------------------------ one step
    def schedule(self) -> Step:
        """Decide and allocate one step; computed tokens advance at once (rule 28)."""
        step = Step()
        cap = self._prefill_cap()
        self._schedule_running(step, cap)
        self.refused = None
        if step.preempted:                             # rule 24: nobody is admitted after a preemption
            self.refused = Refusal(self.allocator.need(self._ask_head(cap, self._tokens)))
            return step
        while self.waiting and step.new_tokens < self._tokens and len(self.running) < self._seqs:
            if not self._admit_head(step, cap):
                break
        return step

    def update(self) -> list[int]:
        """The model has run: sequences that computed their last token leave, in running order (rule 20)."""
        batch = self.running
        done = (batch.computed == batch.end).nonzero()[0]
        if not len(done):
            return []
        finished: list[int] = batch.request[done].tolist()
        for handle in batch.handle[done].tolist():
            self.allocator.release(handle)
        self.computed -= int(batch.end[done].sum())
        batch.remove(done)
        return finished

    def _prefill_cap(self) -> int:
        """Rule 26: the long-prefill threshold, unless one request is alone in the system."""
        threshold = self.config.long_prefill_token_threshold
        return threshold if threshold and len(self.waiting) + len(self.running) > 1 else UNLIMITED

    # ------------------------------------------------------------------ running sequences (rules 22 and 23)
    def _schedule_running(self, step: Step, cap: int) -> None:
        batch = self.running
        n = len(batch)
        if not n:
            return
        if not self._prefilling and n <= self._tokens and self.allocator.extend_by_one(batch.handle, batch.computed):
            batch.computed += 1
            self.computed += n
            step.new_tokens = step.sequences = n
            step.context_tokens = step.attention_pairs = self.computed
            return
        new = np.minimum(np.maximum(batch.target - batch.computed, 1), cap)
        before = np.cumsum(new) - new
        new = np.clip(self._tokens - before, 0, new)   # in list order, until the budget is used up
        served = self.allocator.extend(batch.handle, batch.computed, new)
        while served < len(batch):                     # the last one running makes room until it is its own turn
            self._preempt_last(step)
            new = new[: len(batch)]
            if served < len(batch):
                served += self.allocator.extend(batch.handle[served:], batch.computed[served:], new[served:])
        self._advance(step, new)

    def _preempt_last(self, step: Step) -> None:
        """Rules 23 and 31: blocks are given back, tokens are to be computed again, the queue is entered in front."""
        batch = self.running
        last = len(batch) - 1
        request, handle, computed, target, _ = (int(column[last]) for column in
                                                (batch.request, batch.handle, batch.computed, batch.target, batch.end))
        self.allocator.release(handle)
        self._known[request] = max(target, computed + 1) if computed >= target else target
        self._resumed[request] = 1
        self._prefilling -= computed < target
        self.computed -= computed
        batch.remove(np.array([last]))
        self.waiting.appendleft(request)
        self.preemptions += 1
        step.preempted.append((request, computed))

    def _advance(self, step: Step, new: IntArray) -> None:
        batch = self.running
        was_prefilling = batch.computed < batch.target
        step.attention_pairs = int((new * batch.computed + new * (new + 1) // 2).sum())
        batch.computed += new
        step.new_tokens = int(new.sum())
        step.sequences = int(np.count_nonzero(new))
        step.context_tokens = int(batch.computed[new > 0].sum())
        self.computed += step.new_tokens
        uneven = (new != 1).nonzero()[0]
        step.uneven += zip(batch.request[uneven].tolist(), new[uneven].tolist(), strict=True)
        if self._prefilling:
            ready = (was_prefilling & (batch.computed == batch.target)).nonzero()[0]
            step.sampling += batch.request[ready].tolist()
            self._prefilling -= len(ready)

    # ------------------------------------------------------------------ admission (rules 24 to 27 and 30)
    def _ask_head(self, cap: int, budget: int) -> Ask:
        request = self.waiting[0]
        known = int(self._known[request])
        prefix = self.allocator.find_prefix(request, known)
        new = min(known - prefix.tokens, cap, budget)
        keep_free = self._watermark_blocks if len(self.running) else 0
        return Ask(request, known, prefix, prefix.tokens + new, self.config.reserve_full_isl, keep_free,
                   bool(self._resumed[request]))

    def _admit_head(self, step: Step, cap: int) -> bool:
        """Admit the head of the queue, or say that it stays."""
        budget = self._tokens - step.new_tokens
        chunked = self.config.enable_chunked_prefill
        ask = self._ask_head(cap, budget if chunked else UNLIMITED)
        new = ask.tokens - ask.prefix.tokens
        if new > budget:
            return False
        handle = self.allocator.admit(ask)
        if handle is None:
            self.refused = Refusal(self.allocator.need(ask))
            return False
        request = self.waiting.popleft()
        self.running.append((request, handle, ask.tokens, ask.known, int(self.demand.end[request])))
        self.computed += ask.tokens
        if ask.tokens < ask.known:
            self._prefilling += 1
        else:
            step.sampling.append(request)
        step.admitted.append((request, ask.prefix.tokens, new, ask.resumed, handle))
        step.new_tokens += new
        step.sequences += 1
        step.context_tokens += ask.tokens
        step.attention_pairs += new * ask.prefix.tokens + new * (new + 1) // 2
        return True

    # ------------------------------------------------------------------ many steps at once
    def decode_run(self, most: int) -> DecodeRun:
        """How many of the next steps, at most ``most``, are pure decode steps with the same running set."""
        batch = self.running
        n = len(batch)
        if not n or self._prefilling or n > self._tokens:
            return NO_RUN
        steps = min(most, int((batch.end - batch.computed).min()))
        if steps > 1:
            steps = self.allocator.decode_limit(batch.handle, batch.computed, steps)
        if steps < 2:
            return NO_RUN
        if n >= self._seqs or n >= self._tokens:
            return DecodeRun(steps)
        if not self.waiting:
            return DecodeRun(steps, open=True)
        ask = self._ask_head(self._prefill_cap(), self._tokens - n)
        if not self.config.enable_chunked_prefill or self._may_find_generated or self.allocator.fits(ask):
            return NO_RUN
        # Free blocks only get fewer, so the refused head stays refused: only a running sequence that wrote a block of
        # the head's prompt could help it, and that was ruled out.
        return DecodeRun(steps, refused=Refusal(self.allocator.need(ask)))

    def decode(self, run: DecodeRun) -> DecodePath | None:
        """Make the steps of ``run``; what remains is one update()."""
        batch = self.running
        path = self.allocator.decode(batch.handle, batch.computed, run.steps)
        batch.computed += run.steps
        self.computed += len(batch) * run.steps
        self.refused = run.refused
        return path
