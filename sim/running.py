"""The running sequences: who gets how many tokens in a step, and who makes room when memory runs out.

    want     the rest of a prompt, or one token                          cut by the long-prefill threshold
    new      the same in running order, until the token budget is used up
    extend   room for them, in that order; where one does not fit, a victim is preempted and it is tried again

Rule numbers are those of docs/rules.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sim.batch import UNLIMITED, Batch
from sim.demand import Demand
from sim.entries import entries
from sim.flight import Flight
from sim.flow import Flow
from sim.memory.allocator import Allocator, Lag
from sim.scheduler_config import SchedulerConfig
from sim.sequence_groups import SequenceGroups
from sim.step import Step
from sim.swap import HostPool
from sim.waiting import ArrivalQueue, PriorityQueue, WaitingQueue
from workloads.request import IntArray

NOBODY, EVERYBODY = np.zeros(0, np.int64), slice(None)


class RunningSequences:
    """The running set and the queue that the preempted go back to; `Scheduler` adds admission."""

    def __init__(self, demand: Demand, allocator: Allocator, config: SchedulerConfig, block_size: int) -> None:
        if demand.sequences is not None and config.async_scheduling:
            raise ValueError("several sequences a request and asynchronous scheduling do not go together")
        self.demand = demand
        self.allocator = allocator
        self.config = config
        self.urgency: IntArray = np.zeros(len(demand), np.int64)
        self.waiting: WaitingQueue = PriorityQueue(self.urgency) if config.policy == "priority" else ArrivalQueue()
        self.running = Batch()
        self.computed = 0
        self.preemptions = 0
        self.flight = Flight(len(demand)) if config.async_scheduling else None
        self.groups = None if demand.sequences is None else SequenceGroups(demand, allocator, config.beam_seed,
                                                                           config.beam_turnover)
        self.host = None if config.swap_blocks is None else HostPool(config.swap_blocks, block_size)
        self._seen_preempted: Callable[[int], None] | None = None
        self._known: IntArray = demand.prompt.copy()
        self._known1, self._end1 = entries(self._known), entries(demand.end)
        self._resumed = bytearray(len(demand))
        self._prefilling = 0
        self._tokens = config.max_num_batched_tokens or UNLIMITED
        self._longest = demand.max_model_len - 1
        self._room = -(-demand.max_model_len // block_size) * block_size     # a longer prompt gets no more (servers refuse it)

    def watch(self, seen: Callable[[int], None]) -> None:
        """Call ``seen`` with each request at the moment it is preempted, for logs of decisions."""
        self._seen_preempted = seen

    def known(self, request: int) -> int:
        """Tokens that a waiting request has to compute before its next one is sampled: the prompt, and what it generated."""
        return self._known1[request]

    def held(self) -> list[int]:
        """Handles of all reservations and block tables there are: of running sequences, and of those that have theirs already."""
        running: list[int] = self.running.handle.tolist()
        return running if self.groups is None else running + self.groups.ahead()

    def _move_on(self, flow: Flow, handles: Sequence[int]) -> None:
        """A stretch of free flow: who has its last token is gone; arrivals that still run, with these handles, are behind."""
        stays = flow.last >= flow.steps
        come = flow.running + stays[flow.running:].nonzero()[0]
        request, *tokens = (column[come] for column in (flow.request, flow.computed, flow.chunk, flow.end))
        self.running.move_on(flow.steps, stays[:flow.running], np.stack((request, np.array(handles, np.int64), *tokens)))
        self.computed = int(flow.computed[stays].sum())

    def ended(self) -> IntArray:
        """Places of sequences that have their last token and stay (`static_batching`)."""
        return NOBODY

    def _growing(self) -> IntArray | slice:
        """Places of the others."""
        return EVERYBODY

    # ------------------------------------------------------------------ rules 22 and 23
    def _schedule_running(self, step: Step, cap: int) -> IntArray:
        """Tokens for the running sequences; returns how many each got, in running order, where steps are on their way."""
        batch = self.running
        n, lead = len(batch), self._lead()
        if not n:
            return NOBODY
        if lead and not self.allocator.extend_by_one(batch.first(lead)):
            lead = 0
        if lead == n:                                  # the usual step
            batch.grow(1)
            self.computed += n
            step.new_tokens = step.sequences = n
            step.context_tokens = step.attention_pairs = self.computed
            return NOBODY                              # nobody asks: nothing is on its way
        if self._prefilling and self.flight is None and lead == n - 1 and self._next_chunk(step, cap):
            return NOBODY
        want = np.ones(n, np.int64)
        want[lead:] = self._wanted(lead, cap)
        new = want.copy()
        new[lead:], start = self._within_budget(want[lead:], lead), lead
        while True:
            start += self._extend(slice(start, None), new[start:])
            if start >= len(batch):
                break
            start, want, new = self._make_room(step, start, want, new)
            new[start:] = self._within_budget(want[start:], int(new[:start].sum()))
        self._advance(step, new, 0 if step.preempted else lead)
        return new

    def _lead(self) -> int:
        """How many sequences before the first one that is prefilling get a token each; 0 where it takes a closer look."""
        batch = self.running
        if self.flight is not None or len(self.ended()):
            return 0
        lead = len(batch) - self._prefilling if self._prefilling < 2 else 0
        if lead < len(batch) and batch.decodes(lead):  # not the last one, or several
            lead = int((batch.computed < batch.target).argmax())
        return lead if lead <= self._tokens else 0

    def _next_chunk(self, step: Step, cap: int) -> bool:
        """All before the last sequence have their token; a chunk for that one, which is prefilling. False: it does not fit."""
        batch, before = self.running, len(self.running) - 1
        request, handle, computed, target = batch.row(before)
        new = min(target - computed, cap, self._longest - computed, self._tokens - before)
        if new < 1 or not self.allocator.extend(*np.array(((handle,), (min(computed, self._room - new),), (new,)))):
            return False
        # A token attends to itself and all before it; for those in front that is their computed tokens, after the step.
        step.attention_pairs = self.computed - computed + before + new * (2 * computed + new + 1) // 2
        batch.grow_behind(new)
        step.new_tokens, step.sequences = before + new, before + 1
        self.computed += step.new_tokens
        step.context_tokens = self.computed
        if new != 1:
            step.uneven.append((request, new))
        if computed + new == target:
            step.sampling.append(request)
            self._prefilling -= 1
        return True

    def _wanted(self, first: int, cap: int) -> IntArray:
        """Tokens that the sequences from place ``first`` on would have."""
        batch = self.running
        computed = batch.computed[first:]
        want: IntArray = np.minimum(np.maximum(batch.target[first:] - computed, 1), cap)
        want = np.minimum(np.maximum(self._longest - computed, 0), want)            # a third of the time of np.clip
        want[computed == batch.end[first:]] = 0        # rule 35: the last token is on its way; or the batch is not over
        return want

    def _within_budget(self, want: IntArray, used: int) -> IntArray:
        """In list order, until the budget is used up (rule 22)."""
        before = want.cumsum() - want
        allowed: IntArray = np.minimum(np.maximum(self._tokens - used - before, 0), want)
        return allowed

    def _extend(self, rows: slice, new: IntArray) -> int:
        """Room for ``new`` tokens of these running sequences; how many were served."""
        batch = self.running
        handles, computed = batch.handle[rows], np.minimum(batch.computed[rows], self._room - new)
        if not len(handles):
            return 0
        if self.flight is None:
            return self.allocator.extend(handles, computed, new)
        request, target = batch.request[rows], batch.target[rows]
        flight = self.flight
        flying = flight.tokens[request]
        # what is findable: prompts as scheduled, generated tokens only when they are known (rule 36)
        to = np.where((computed >= target) & (flying > 0), computed, computed + new)
        lag = Lag(computed - flying, flight.findable[request], to)
        served = self.allocator.extend(handles, computed, new, lag)
        moved = request[:served][new[:served] > 0]
        flight.findable[moved] = to[:served][new[:served] > 0]
        return served

    def _make_room(self, step: Step, i: int, want: IntArray, new: IntArray) -> tuple[int, IntArray, IntArray]:
        """Rules 23 and 29: preempt until sequence ``i`` fits or has preempted itself; where to go on."""
        while True:
            gone = self._preempt(step, self._victim())
            want, new = np.delete(want, gone), np.delete(new, gone)
            own = i in gone
            i -= int(np.count_nonzero(gone < i))       # what they were given in this step returns to the budget
            if own:                                    # by priority, those behind it are still looked at
                if not self.config.go_on_after_own_preemption:
                    want[i:] = 0
                return i, want, new
            if self._extend(slice(i, i + 1), new[i:i + 1]):
                return i + 1, want, new

    def _victim(self) -> int:
        """The last one running; by priority the least urgent, of equals the first in the list."""
        if self.config.policy == "fcfs":
            return len(self.running) - 1
        return int(self.urgency[self.running.request].argmax())

    def _preempt(self, step: Step, place: int) -> IntArray:
        """Rule 31: blocks are given back, tokens are to be computed again, the request waits; the places left."""
        batch = self.running
        request, _, computed, _ = batch.row(place)
        places = np.array([place]) if self.groups is None else (batch.request == request).nonzero()[0]
        if self._seen_preempted is not None:
            self._seen_preempted(request)
        rows = [batch.row(p)[1:] for p in places.tolist()]
        end = int(batch.end[place])
        swapped = self.host is not None and (self.groups is None or self.groups.may_swap(request)) \
            and self.host.take(request, [row[1:] for row in rows], end, self.allocator)
        for handle, _, _ in reversed(rows):
            self.allocator.release(handle, returns=True)
        unseen = self.flight is not None and self.flight.preempted(request)
        known = [target if done < target else done + (not unseen) for _, done, target in rows]
        self._known[request] = known[0]
        if self.groups is not None:
            self._known[request] = self.groups.preempted(request, known, swapped)
        self._resumed[request] = 1
        self._prefilling -= sum(done < target for _, done, target in rows)
        self.computed -= sum(done for _, done, _ in rows)
        batch.remove(places.tolist())
        self.waiting.put_back(request)
        self.preemptions += 1
        step.preempted.append((request, computed))
        return places

    def _advance(self, step: Step, new: IntArray, lead: int) -> None:
        """Computed tokens move on; those before ``lead`` are decoding and get one each."""
        batch, behind = self.running, new[lead:]
        before = batch.computed[lead:].copy()
        step.attention_pairs = self.computed - int(np.add.reduce(before)) + lead + int(behind @ (2 * before + behind + 1)) // 2
        batch.compute(new)
        step.new_tokens = lead + int(np.add.reduce(behind))
        self.computed += step.new_tokens
        idle = len(behind) - int(np.count_nonzero(behind))
        step.sequences = len(new) - idle
        step.context_tokens = self.computed - (int(np.add.reduce(before[behind == 0])) if idle else 0)
        request = batch.request[lead:]
        uneven = (behind != 1).nonzero()[0] if self.groups is None else ((behind != 1) & (batch.member[lead:] == 0)).nonzero()[0]
        step.uneven += zip(request[uneven].tolist(), behind[uneven].tolist(), strict=True)
        if self._prefilling:
            target = batch.target[lead:]
            ready = ((before < target) & (batch.computed[lead:] == target)).nonzero()[0]
            step.sampling += request[ready].tolist()
            self._prefilling -= len(ready)
