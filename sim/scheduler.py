"""The scheduler: who runs, who waits, and how many tokens each computes in a step.

It decides as vLLM's V1 scheduler does; the numbers in the comments are the rules of docs/rules.md. A step is

    schedule()   the running sequences in order of admission get their tokens, the last one being preempted when memory
                 runs out; then, if nobody was preempted, the waiting queue is admitted from its head
    (the model runs)
    update()     whoever has computed its last token leaves

With asynchronous scheduling the model runs while the next step is scheduled; `sim.flight` keeps what is on its way.
Nothing here knows the clock: `Scheduler` works in steps, the engine gives them their times. `decode_run` and `decode`
make many steps at once while nothing but lengths can change, with the same outcome as that many schedule()/update().
"""

from __future__ import annotations

import numpy as np

from sim.batch import UNLIMITED
from sim.block_calendar import Some
from sim.demand import Demand
from sim.entries import entries
from sim.flow import Flow, Takes
from sim.memory.allocator import NO_PREFIX, Allocator, Ask, Decoding, Prefix, Refusal, Taken
from sim.memory.flowing import Flowed, FlowingTables
from sim.returning import ReturningSequences
from sim.running import EVERYBODY
from sim.scheduler_config import SchedulerConfig
from sim.step import NO_RUN, DecodeRun, Step
from workloads.request import IntArray


class Scheduler(ReturningSequences):
    """Waiting queue, running set and the decisions between them.

    Parameters
    ----------
    demand : Demand
    allocator : Allocator
    config : SchedulerConfig
    num_blocks, block_size : int
        For the watermark, a share of all blocks (rule 30), and for the host pool.

    Attributes
    ----------
    waiting : WaitingQueue
        Requests in the order they will be looked at.
    running : Batch
    urgency : int64, shape (requests,)
        Place by (priority, arrival) of whoever has arrived; equal places are equally urgent.
    computed : int
        Sum of the computed tokens of all running sequences.
    refused : Refusal or None
        Set by the last schedule(): the head of the queue is not running for want of memory.
    watermark_blocks : int
        Blocks kept free when admitting beside others (rule 30).
    """

    def __init__(self, demand: Demand, allocator: Allocator, config: SchedulerConfig, num_blocks: int,
                 block_size: int = 16) -> None:
        super().__init__(demand, allocator, config, block_size)
        self.refused: Refusal | None = None
        self._arrived = 0
        self._urgency1, self._priority1 = entries(self.urgency), entries(demand.priority)
        self._seqs = config.max_num_seqs or UNLIMITED
        self._may_find_generated = demand.content is not None and demand.content.cover_output
        self.watermark_blocks = int(config.watermark * num_blocks)

    def add(self, request: int, place: int | None = None) -> None:
        """A request arrives; ``place`` among all arrivals, below their number, where several are to be equally urgent."""
        place = self._arrived if place is None else place
        self._urgency1[request] = self._priority1[request] * len(self._priority1) + place
        self._arrived += 1
        self.waiting.add(request)

    # ------------------------------------------------------------------ a stretch of free flow
    def settled(self) -> bool:
        """Whether everybody's way is settled: nobody is prefilling or refused, nor preempted at the head of the queue."""
        again = len(self.waiting) and self._resumed[self.waiting.head()]
        return not self._prefilling and self.refused is None and not again

    def flow(self, flow: Flow, takes: Takes, waited: int) -> Flowed:
        """Make a stretch (`sim.free_flow`) in which ``waited`` requests come from the queue, before all others."""
        assert isinstance(self.allocator, FlowingTables)
        flowed = self.allocator.flow(flow, takes)
        for _ in range(waited):
            self.waiting.pop()
        arrived = flow.request[flow.running + waited:]
        self.urgency[arrived] = self.demand.priority[arrived] * len(self.demand) + np.arange(len(arrived)) + self._arrived
        self._arrived += len(arrived)
        self._move_on(flow, flowed.handles)
        return flowed

    # ------------------------------------------------------------------ one step
    def schedule(self) -> Step:
        """Decide and allocate one step; computed tokens advance at once (rule 28)."""
        step = Step()
        cap = self._prefill_cap()
        sent = self._schedule_running(step, cap)
        self.refused = None
        if step.preempted:                             # rule 24: nobody is admitted after a preemption
            self.refused = self._refusal(self._ask_head(cap, self._tokens))
        elif self._may_join():
            while len(self.waiting) and step.new_tokens < self._tokens and self._has_place():
                if not self._admit_head(step, cap):
                    break
        if self.flight is not None:
            self._send(self.flight, step, sent)
        return step

    def update(self) -> list[int]:
        """The output of the oldest step is there: who computed the last token leaves, in running order (rule 20)."""
        if self.flight is not None:
            return self._land(self.flight)
        if self.groups is None:
            return self._leave()
        self.running.changed()
        finished = self._leave()
        self.computed += self.groups.branch(self.running)
        self.running.changed()
        self._prefilling = int(np.count_nonzero(self.running.computed < self.running.target))
        return finished

    def somebody_may_leave(self) -> bool:
        """Whether update() may have anything to do now; false where that is known without looking."""
        return self.flight is not None or self.groups is not None or self.running.may_have_ended()

    def _leave(self) -> list[int]:
        batch = self.running
        if not batch.may_have_ended():
            return []
        done = batch.ended()
        if not done:
            return []
        finished = []
        for place in done:
            request, handle, computed, _ = batch.row(place)
            self.allocator.release(handle)
            self.computed -= computed
            finished.append(request)
        batch.remove(done)
        return finished if self.groups is None else self.groups.left(finished)

    def _may_join(self) -> bool:
        """Whether requests are admitted beside those that run."""
        return True

    def _has_place(self) -> bool:
        """Whether the head's sequences may run beside the others; those to come of others are counted."""
        if self.groups is None:
            return len(self.running) < self._seqs
        return len(self.running) + self.groups.promised + self.groups.size(self.waiting.head()) <= self._seqs

    def _prefill_cap(self) -> int:
        """Rule 26: the long-prefill threshold, unless one request is alone in the system."""
        threshold = self.config.long_prefill_token_threshold
        if not threshold or (self.config.exempt_lone_prefill and len(self.waiting) + self._running_requests() <= 1):
            return UNLIMITED
        return threshold

    def _running_requests(self) -> int:
        return len(self.running) if self.groups is None else len(set(self.running.request.tolist()))

    # ------------------------------------------------------------------ admission (rules 24 to 27 and 30)
    def _ask_head(self, cap: int, budget: int, prefix: Prefix | None = None) -> Ask:
        request = self.waiting.head()
        known = self.known(request)
        if prefix is None:
            prefix = self.allocator.find_prefix(request, known)
        new = min(known - prefix.tokens, cap, budget)
        keep_free = self.watermark_blocks if len(self.running) else 0
        return Ask(request, known, prefix, prefix.tokens + new, self.config.reserve_full_isl, keep_free,
                   bool(self._resumed[request]))

    def _admit_head(self, step: Step, cap: int) -> bool:
        """Admit the head of the queue, or say that it stays."""
        if self.host is not None and self.waiting.head() in self.host:
            return self._swap_in(self.host, step)
        budget = self._tokens - step.new_tokens
        chunked = self.config.enable_chunked_prefill
        ask = self._ask_head(cap, budget if chunked else UNLIMITED)
        new = ask.tokens - ask.prefix.tokens
        if new > budget:
            return False
        handle = self.allocator.admit(ask if ask.tokens <= self._room else ask._replace(tokens=self._room))
        if handle is None or (self.groups is not None and not self.groups.reserve(ask.request, handle)):
            self.refused = self._refusal(ask)
            return False
        request = self.waiting.pop()
        self.running.append((request, handle, ask.tokens, ask.known, self._end1[request], 0))
        if self.groups is not None:
            self.groups.admitted(request)
        self.computed += ask.tokens
        if ask.tokens < ask.known:
            self._prefilling += 1
        else:
            step.sampling.append(request)
        step.admitted.append((request, ask.prefix.tokens, new, ask.resumed, handle))
        step.new_tokens += new
        step.sequences += 1
        step.loaded_blocks += ask.prefix.loads
        step.context_tokens += ask.tokens
        step.attention_pairs += new * ask.prefix.tokens + new * (new + 1) // 2
        return True

    def _refusal(self, ask: Ask) -> Refusal:
        return Refusal(self.allocator.need(ask) * (1 if self.groups is None else self.groups.pieces(ask.request)))

    # ------------------------------------------------------------------ many steps at once
    def decode_run(self, most: int) -> DecodeRun:
        """How many of the next steps, at most ``most``, are pure decode steps with the same running set."""
        n, steps = len(self.running), self._alike(most)
        if steps < 2:
            return NO_RUN
        if n >= self._tokens or n >= self._seqs:
            return DecodeRun(steps)
        if not len(self.waiting):
            return DecodeRun(steps, open=True)
        by_priority = self.config.policy == "priority"                     # then an arrival may go before the head
        if not self._has_place():                                          # for all sequences of the head
            return DecodeRun(steps, open=by_priority)
        if self.host is not None and self.waiting.head() in self.host:
            return NO_RUN
        if not self.config.enable_chunked_prefill or self._may_find_generated:
            return NO_RUN
        # Whom there is room for with nothing cached is looked up once, in the step that admits it.
        if self.allocator.fits(self._ask_head(UNLIMITED, UNLIMITED, NO_PREFIX)):
            return NO_RUN
        ask = self._ask_head(self._prefill_cap(), self._tokens - n)
        if self.allocator.fits(ask):
            return NO_RUN
        # Free blocks only get fewer, so the refused head stays refused: only a running sequence that wrote a block of
        # the head's prompt could help it, and that was ruled out.
        # Without the gate the head asks for less when the host tier drops what it found there.
        stays = ask.whole or not ask.prefix.loads
        return DecodeRun(steps, by_priority, self._refusal(ask)) if stays else NO_RUN

    def _alike(self, most: int) -> int:
        """For how many steps every sequence that has not ended computes one token, if nobody joins; below 2 for none."""
        if self._prefilling or self.flight is not None or (self.groups is not None and self.groups.busy):
            return 0
        batch, rows = self.running, self._growing()
        growing = self._decoding(rows)
        if not len(growing) or len(growing) > self._tokens:
            return 0
        steps = min(most, batch.until_end() if rows is EVERYBODY else int((batch.end[rows] - growing.computed).min()))
        return self.allocator.decode_limit(growing, steps) if steps > 1 else steps

    def _decoding(self, rows: IntArray | slice) -> Decoding:
        batch = self.running
        return batch if rows is EVERYBODY else Some(batch.handle[rows], batch.computed[rows])

    def decode(self, run: DecodeRun) -> Taken | None:
        """Make the steps of ``run``; what remains is one update()."""
        batch, rows = self.running, self._growing()
        growing = self._decoding(rows)
        taken = self.allocator.decode(growing, run.steps)
        self.computed += len(growing) * run.steps
        if isinstance(rows, slice):
            batch.grow(run.steps)
        else:
            batch.grow_some(rows, run.steps)
        self.refused = run.refused
        return taken
