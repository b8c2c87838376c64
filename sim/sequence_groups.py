"""Requests with several sequences: parallel samples and beam search.

    prompt computed once       [ P P P P | P P . . ]            one sequence, one block table
    fork                       table 0, 1, 2 hold the same blocks
    first token of each        the shared last block is copied by whoever writes first; the last one left writes in place
    beams, after every step    each of the k survivors has a parent; a beam without a child is dropped and frees only what
                               it alone holds, one with several children is forked

The rule for survivors is stated, not learned: survivor j of request r after its t-th token has the parent
``mix(seed, r, t, j) mod k``, where mix is a fixed integer hash, so the same trace and seed give the same beams. With a
``turnover`` below 1 it draws that parent only where ``mix(seed, r, t, j, 1) < turnover x 2**64``, and else goes on from beam j.

A request is admitted, preempted and finished as a whole. By recompute the prompt is computed once more and then each
sequence's own tokens; what beams shared behind the prompt is not shared again.
"""

from __future__ import annotations

import numpy as np

from sim.batch import Batch
from sim.demand import Demand
from sim.memory.allocator import Allocator
from workloads.request import IntArray

_MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """A fixed 64-bit hash of whole numbers (SplitMix64's finaliser, chained).

    >>> mix(0, 1, 2, 3) == mix(0, 1, 2, 3), mix(0, 1, 2, 3) == mix(0, 1, 3, 2)
    (True, False)
    """
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ state >> 27) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


class SequenceGroups:
    """Follows the sequences of each request; reads the running set and changes it only by forking and dropping.

    Attributes
    ----------
    promised : int
        Sequences that admitted requests will still fork: they count against ``max_num_seqs``.
    """

    def __init__(self, demand: Demand, allocator: Allocator, seed: int, turnover: float = 1.0) -> None:
        assert demand.sequences is not None
        self.demand = demand
        self.allocator = allocator
        self.seed = seed
        self.promised = 0
        self._drawn_below = int(turnover * (1 << 64))
        self._sizes: IntArray = demand.sequences
        self._waiting: dict[int, list[int]] = {}       # admitted, prompt not computed: known tokens of each sequence
        self._saved: dict[int, list[int]] = {}         # preempted: the same
        self._alive: dict[int, int] = {}               # sequences that have not ended, of requests that were admitted
        self._beams: set[int] = set()
        self._chosen: dict[int, int] = {}              # computed tokens at the last choice of survivors
        self._ahead: dict[int, list[int]] = {}         # reservations made at admission, not used yet

    def size(self, request: int) -> int:
        """Sequences of a request that have not ended."""
        return self._alive.get(request, int(self._sizes[request]))

    def pieces(self, request: int) -> int:
        """Reservations asked for at once."""
        return self.size(request) if self.allocator.reserves_ahead else 1

    @property
    def busy(self) -> bool:
        """Whether something may branch after the next step: then every step is made by itself."""
        return bool(self._waiting or self._beams)

    def ahead(self) -> list[int]:
        """Handles of the reservations made at admission for sequences that do not run yet."""
        return [handle for handles in self._ahead.values() for handle in handles]

    def ahead_of(self, request: int) -> list[int]:
        """Those of one request, in the order of its sequences."""
        return list(self._ahead.get(request, []))

    # ------------------------------------------------------------------ as a whole
    def reserve(self, request: int, handle: int) -> bool:
        """Where sequences have reservations: one for each, made with the first; False, all given back, if one does not fit."""
        if not self.allocator.reserves_ahead:
            return True
        made: list[int] = []
        for _ in range(self.size(request) - 1):
            child = self.allocator.fork(handle)
            if child is None:
                for other in (*made, handle):
                    self.allocator.release(other)
                return False
            made.append(child)
        self._ahead[request] = made
        return True

    def admitted(self, request: int) -> None:
        """The prompt is about to be computed, by one sequence."""
        size = self._alive.setdefault(request, self.size(request))
        if self._sizes[request] > 1:
            self._expect(request, self._saved.pop(request, [int(self.demand.prompt[request])] * size))

    def _expect(self, request: int, known: list[int]) -> None:
        self._waiting[request] = known
        self.promised += len(known) - 1

    def may_swap(self, request: int) -> bool:
        """Whether what lies in memory is all that a request holds; not so where sequences to come have their room already."""
        return not self._ahead.get(request)

    def preempted(self, request: int, known: list[int], swapped: bool) -> int:
        """All its sequences leave; returns the tokens to compute before they branch again."""
        if request in self._waiting:                   # not branched yet: it will branch as it was to
            self._saved[request] = self._call_off(request)
            return known[0]
        self._beams.discard(request)
        if self._sizes[request] == 1:
            return known[0]
        if not swapped:                                # sequences that had ended stay ended
            self._saved[request] = known
        return int(self.demand.prompt[request])

    def _call_off(self, request: int) -> list[int]:
        """It leaves before it branched; returns the known tokens of each sequence."""
        known = self._waiting.pop(request)
        self.promised -= len(known) - 1
        for handle in self._ahead.pop(request, []):
            self.allocator.release(handle)
        return known

    def back(self, request: int, rows: int) -> None:
        """``rows`` sequences came back from the host."""
        if request in self._saved:
            self._expect(request, self._saved.pop(request))
        elif rows > 1 and self._chooses(request):
            self._beams.add(request)

    def left(self, requests: list[int]) -> list[int]:
        """Sequences ended; returns the requests whose last one it was, once each."""
        done = []
        for request in requests:
            self._alive[request] -= 1
            if request in self._waiting:               # one output token: the prompt's step was the last of all sequences
                self._call_off(request)
                self._alive[request] = 0
            if not self._alive[request]:
                del self._alive[request]
                self._beams.discard(request)
                self._chosen.pop(request, None)
                done.append(request)
        return done

    # ------------------------------------------------------------------ branching
    def branch(self, batch: Batch) -> int:
        """After a step: fork those whose prompt is computed, choose the survivors of beams; computed tokens added."""
        added = 0
        if self._beams:
            for request in dict.fromkeys(batch.request.tolist()):      # in running order: it decides the order of freed blocks
                if request in self._beams:
                    self._survive(batch, request)
        for request in [r for r in self._waiting if self._ready(batch, r)]:
            added += self._fork(batch, request)
        return added

    def _ready(self, batch: Batch, request: int) -> bool:
        place = int((batch.request == request).argmax())
        return bool(self.demand.prompt[request] <= batch.computed[place] < batch.end[place])

    def _fork(self, batch: Batch, request: int) -> int:
        known = self._waiting.pop(request)
        self.promised -= len(known) - 1
        place = int((batch.request == request).argmax())
        handle, computed, end = int(batch.handle[place]), int(batch.computed[place]), int(batch.end[place])
        batch.target[place] = known[0]
        ahead, rows = iter(self._ahead.pop(request, [])), []
        for member, target in enumerate(known[1:], 1):
            child = next(ahead, None) if self.allocator.reserves_ahead else self.allocator.fork(handle)
            assert child is not None
            rows.append((request, child, computed, target, end, member))
        batch.insert(place + 1, rows)
        if rows and self._chooses(request):
            self._beams.add(request)
            self._chosen.setdefault(request, computed)
        return computed * len(rows)

    def _chooses(self, request: int) -> bool:
        """Whether survivors matter to memory: where every beam has a reservation, only what is in them changes."""
        return self.demand.beams is not None and bool(self.demand.beams[request]) and not self.allocator.reserves_ahead

    def _parent(self, request: int, token: int, survivor: int, beams: int) -> int:
        """The beam that a survivor goes on from."""
        if mix(self.seed, request, token, survivor, 1) < self._drawn_below:
            return mix(self.seed, request, token, survivor) % beams
        return survivor

    def _survive(self, batch: Batch, request: int) -> None:
        """One round of beam search, where all beams are at the same new token."""
        places = (batch.request == request).nonzero()[0]
        k, computed = len(places), batch.computed[places]
        token = int(computed[0])
        if k < 2 or np.any(computed != token) or token < int(batch.target[places].max()) or token == self._chosen[request] \
                or token == batch.end[places[0]]:
            return
        self._chosen[request] = token
        parents = [self._parent(request, token, j, k) for j in range(k)]
        handles = batch.handle[places].tolist()
        children: list[list[int]] = [[j for j in range(k) if parents[j] == parent] for parent in range(k)]
        made = [0] * k
        for parent, heirs in enumerate(children):      # fork before dropping: a parent lives on in its first child
            for n, j in enumerate(heirs):
                child = handles[parent] if n == 0 else self.allocator.fork(handles[parent])
                assert child is not None
                made[j] = child
        for parent, heirs in enumerate(children):
            if not heirs:
                self.allocator.release(handles[parent])
        batch.handle[places] = made
