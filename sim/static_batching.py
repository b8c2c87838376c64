"""Static batching, as servers did it before continuous batching: a batch is formed, and the next one when all of it has ended.

    continuous   r0 r0 r0 r2 r2 r2        static   r0 r0 r0 | r2 r2 r2
                 r1 r3 r3 r3 r3                    r1  .  . | r3 r3 r3 r3         . has ended and waits for the others

Requests are admitted only by a schedule() that finds nobody running, from the head of the queue while memory, ``max_num_seqs``
and the token budget of this one step allow. Who has computed its last token keeps its memory and its place, computes nothing,
and cannot be preempted; when all have ended they leave together. What it holds stays token states in the ledger: computed
tokens of a running sequence. Whoever is preempted waits for the next batch, at its head.
"""

from __future__ import annotations

import numpy as np

from sim.scheduler import Scheduler
from sim.step import NO_RUN, DecodeRun, Step
from workloads.request import IntArray


class StaticScheduler(Scheduler):
    """`Scheduler` whose running set is one batch after the other."""

    def ended(self) -> IntArray:
        return np.flatnonzero(self.running.computed == self.running.end)

    def _growing(self) -> IntArray:
        return np.flatnonzero(self.running.computed < self.running.end)

    def _may_join(self) -> bool:
        return not len(self.running)

    def _leave(self) -> list[int]:
        return [] if len(self._growing()) else super()._leave()

    def _victim(self) -> int:
        growing = self._growing()
        if self.config.policy == "fcfs":
            return int(growing[-1])
        return int(growing[self.urgency[self.running.request[growing]].argmax()])

    def _preempt(self, step: Step, place: int) -> IntArray:
        """Sequences of the request that have ended do not wait with the others: they are over."""
        batch = self.running
        over = ((batch.request == batch.request[place]) & (batch.computed == batch.end)).nonzero()[0]
        if not len(over):
            return super()._preempt(step, place)
        assert self.groups is not None
        for handle in batch.handle[over].tolist():
            self.allocator.release(handle)
        self.computed -= int(batch.computed[over].sum())
        self.groups.left(batch.request[over].tolist())
        others = np.delete(np.arange(len(batch)), over)
        batch.remove(over.tolist())
        gone = super()._preempt(step, int(np.searchsorted(others, place)))
        return np.sort(np.concatenate((over, others[gone])))

    def decode_run(self, most: int) -> DecodeRun:
        steps = self._alike(most)
        return DecodeRun(steps) if steps > 1 else NO_RUN
