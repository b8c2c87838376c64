"""What comes back later: the outputs of steps on their way, and sequences whose blocks lie on the host.

    schedule 0, schedule 1 | output 0, schedule 2 | ...          `flight` keeps what is between (rules 35 to 37 of docs/rules.md)
    preempted -> host -> waiting ... admitted from there         `swap` keeps the copies
"""

from __future__ import annotations

import numpy as np

from sim.flight import Flight
from sim.memory.allocator import Refusal
from sim.running import RunningSequences
from sim.step import Step
from sim.swap import HostPool
from workloads.request import IntArray


class ReturningSequences(RunningSequences):
    """`RunningSequences` that are away for a while; `Scheduler` adds admission."""

    refused: Refusal | None

    # ------------------------------------------------------------------ steps on their way (rules 35 to 37)
    def _send(self, flight: Flight, step: Step, sent: IntArray) -> None:
        """The step goes to the model; admitted sequences are behind the running ones."""
        batch = self.running
        new = np.concatenate((sent, np.array([a[2] for a in step.admitted], np.int64)))
        moved = new > 0
        if step.admitted:
            flight.findable[batch.request[len(sent):]] = batch.computed[len(sent):]
        flight.send(batch.request[moved], new[moved], (batch.computed >= batch.target)[moved].astype(np.int64))

    def _land(self, flight: Flight) -> list[int]:
        """The oldest output is there; a token for a preempted request may be its last (rule 37)."""
        batch, finished, places = self.running, [], []
        ended = {int(batch.request[place]): place for place in batch.ended()}
        for request, token, stale in flight.land():
            if stale:
                self._known[request] += token
                if token and self._known[request] > self.demand.end[request]:
                    self.waiting.discard(request)
                    finished.append(request)
            elif token and request in ended and not flight.tokens[request]:
                place, end = ended[request], self.demand.end[request:request + 1]
                handle = batch.handle[place:place + 1]
                self.allocator.settle(handle, flight.findable[request:request + 1], end)
                self.allocator.release(int(handle[0]))
                self.computed -= int(end[0])
                places.append(place)
                finished.append(request)
        if places:
            batch.remove(places)
        return finished

    # ------------------------------------------------------------------ from the host
    def _swap_in(self, host: HostPool, step: Step) -> bool:
        """A request whose blocks lie on the host goes on where it was; the copy takes this step."""
        request = self.waiting.head()
        rows = host.give_back(request, self.allocator)
        if rows is None:
            self.refused = Refusal(host.slots(request))
            return False
        self.waiting.pop()
        end = int(self.demand.end[request])
        for member, (handle, computed, target) in enumerate(rows):
            self.running.append((request, handle, computed, target, end, member))
            self._prefilling += computed < target
            self.computed += computed
        if self.groups is not None:
            self.groups.back(request, len(rows))
        step.swapped_in.append((request, rows[0][1]))
        return True
