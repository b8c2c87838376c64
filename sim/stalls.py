"""Stalls: when nobody can ever move again, and who is at fault.

    nothing fits     head of the queue refused, nobody runs                        and again in the next step
    going round      r0 alone: 4 ... 12 tokens, preempts itself, 4 ... 12 tokens, preempts itself, ...

A request that preempts itself beside nobody wants more than the whole pool. In chunks, or where its sequences shared what they do
not share afterwards, it is admitted again all the same. Others may end beside it meanwhile, so it is given up only when a round
brings nothing: nobody has ended or arrived since the last one, and nobody preempted was further than ever before.
"""

from __future__ import annotations

from sim.run import Run
from sim.scheduler import Scheduler
from sim.step import Step


class Stalls:
    """Told of every step in which somebody is preempted or nobody computes anything; says why nobody can move, or None.

    Parameters
    ----------
    facts : Run
    scheduler : Scheduler
    """

    def __init__(self, facts: Run, scheduler: Scheduler) -> None:
        self._facts = facts
        self._scheduler = scheduler
        self._furthest: dict[int, int] = {}
        self._rounds = self._idle = self._last = 0
        sequences = facts.demand.sequences
        self._patience = 1 if sequences is None else int(sequences.max())      # one of them may have ended unseen

    def moved(self) -> None:
        """Somebody arrived, or ended."""
        self._rounds = 0

    def why(self, step: Step) -> str | None:
        """One line that names the request at fault and what it waits for; ``facts.steps`` counts this step already."""
        self._note(step)
        if step.new_tokens or len(self._scheduler.running):
            return None
        self._idle = self._idle + 1 if self._facts.steps == self._last + 1 else 1
        self._last = self._facts.steps
        if step.preempted:
            self._rounds += 1
            if self._rounds > self._patience:
                request, computed = step.preempted[-1]
                return (f"{self._named(request)} preempts itself at {computed} tokens beside nobody, again and again: it waits "
                        f"for more than the {self._facts.allocator.capacity} slots there are")
        if self._idle < 2:
            return None
        return (f"{self._named(self._scheduler.waiting.head())} waits for {self._wanted()} and nobody runs: the pool can make no "
                "progress")

    def _note(self, step: Step) -> None:
        for request, computed in step.preempted:
            if computed > self._furthest.get(request, 0):
                self._furthest[request] = computed
                self._rounds = 0

    def _named(self, request: int) -> str:
        demand = self._facts.demand
        return f"request {request} ({demand.prompt[request]} + {demand.output[request]} tokens)"

    def _wanted(self) -> str:
        refused, config = self._scheduler.refused, self._scheduler.config
        if refused is not None:
            return f"{refused.need} more slots, of {self._facts.allocator.capacity} there are,"
        return f"more than {config.max_num_seqs} sequences or {config.max_num_batched_tokens} tokens a step"
