"""Contiguous allocation: a reservation per sequence, made once at admission and placed in an arena.

    contiguous-max      [ prompt | output | ............ never used ............ ]   max_model_len slots
    contiguous-pow2     [ prompt | output | ... ]                                    prompt + next power of two >= output
    contiguous-oracle   [ prompt | output ]                                          exactly what will be filled

These are the Orca baselines of the PagedAttention paper (section 6.1). The system knows the output length only in the
last; in the second it guesses within a factor of two. Sequences of one request share nothing: a fork is a copy of the
whole sequence in a reservation of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.demand import Demand
from sim.memory.allocator import NO_PREFIX, NOTHING, Ask, Prefix, Refusal, RoomIsThere, SlotCounts, ToCome
from sim.memory.arena import Arena
from workloads.request import IntArray


def reserve_max(demand: Demand) -> IntArray:
    """``max_model_len`` slots for everybody."""
    return np.full(len(demand), demand.max_model_len, np.int64)


def reserve_pow2(demand: Demand) -> IntArray:
    """The prompt and the next power of two at or above the output, at most ``max_model_len``."""
    power = np.int64(1) << np.ceil(np.log2(demand.output)).astype(np.int64)
    return np.minimum(demand.prompt + power, demand.max_model_len)


def reserve_oracle(demand: Demand) -> IntArray:
    """Exactly the token states at the end."""
    return np.minimum(demand.end, demand.max_model_len)


class ContiguousAllocator(RoomIsThere):
    """One reservation a sequence in an `Arena`.

    Parameters
    ----------
    demand : Demand
    arena : Arena
        Where reservations are placed.
    policy : callable
        Demand -> reservation of each request in slots.
    """

    reserves_ahead = True

    def __init__(self, demand: Demand, arena: Arena, policy: Callable[[Demand], IntArray]) -> None:
        self.demand = demand
        self.arena = arena
        self.capacity = arena.capacity
        self.reservation = policy(demand)
        self.slots = 0
        self.fillable = 0
        self.copies = 0
        self.held = np.zeros(64, np.int64)
        self._rounding = 0
        self._start: dict[int, int] = {}
        self._request: dict[int, int] = {}
        self._free_handles = list(range(63, -1, -1))

    def placed(self, handle: int) -> tuple[int, int]:
        """Start address and size in slots of a reservation now held."""
        return self._start[handle], int(self.held[handle])

    def reservations(self) -> tuple[IntArray, IntArray]:
        """Start addresses and sizes of all reservations now held."""
        n = len(self._start)
        start = np.fromiter(self._start.values(), np.int64, n)
        return start, self.held[np.fromiter(self._start, np.int64, n)]

    def impossible(self) -> Any:
        rounded = np.array([self.arena.rounded(size) for size in self.reservation.tolist()], np.int64)
        return self.capacity // rounded < (1 if self.demand.sequences is None else self.demand.sequences)

    def find_prefix(self, request: int, tokens: int) -> Prefix:
        return NO_PREFIX

    def need(self, ask: Ask) -> int:
        return int(self.reservation[ask.request])

    def fits(self, ask: Ask) -> bool:
        return self.arena.fits(self.need(ask))

    def admit(self, ask: Ask) -> int | None:
        return self._reserve(ask.request)

    def _reserve(self, request: int) -> int | None:
        size = int(self.reservation[request])
        start = self.arena.place(size)
        if start is None:
            return None
        if not self._free_handles:
            n = len(self.held)
            self.held = np.concatenate((self.held, np.zeros(n, np.int64)))
            self._free_handles = list(range(2 * n - 1, n - 1, -1))
        handle = self._free_handles.pop()
        self._start[handle] = start
        self._request[handle] = request
        self.held[handle] = size
        self.slots += size
        self.fillable += min(size, int(self.demand.end[request]))
        self._rounding += self.arena.rounded(size) - size
        return handle

    def fork(self, handle: int) -> int | None:
        self._check(handle)
        child = self._reserve(self._request[handle])
        self.copies += child is not None
        return child

    def restore(self, request: int, tokens: int) -> int | None:
        return self._reserve(request)

    def restore_need(self, tokens: int, request: int | None = None) -> int:
        return tokens if request is None else int(self.reservation[request])

    def settle(self, handles: IntArray, first: IntArray, stop: IntArray) -> None:
        pass

    def _check(self, handle: int) -> None:
        if handle not in self._start:
            raise ValueError(f"handle {handle} holds nothing")

    def release(self, handle: int, returns: bool = False) -> None:
        self._check(handle)
        size = int(self.held[handle])
        self.arena.release(self._start.pop(handle), size)
        self.slots -= size
        self.fillable -= min(size, int(self.demand.end[self._request.pop(handle)]))
        self._rounding -= self.arena.rounded(size) - size
        self.held[handle] = 0
        self._free_handles.append(handle)

    def counts(self, computed: int, refused: Refusal | None, to_come: ToCome = NOTHING, time: int = 1) -> SlotCounts:
        hole = self.arena.free
        free = hole * time
        fragmented = free if refused and hole >= refused.need else 0
        remainder = free if refused and hole < refused.need else 0
        return SlotCounts(computed, self.fillable * time - computed, (self.slots - self.fillable) * time, 0,
                          self._rounding * time + fragmented, remainder, 0 if refused else free)

    def logical(self, to_come: ToCome = NOTHING, time: int = 1) -> int:
        return self.slots * time

    def largest_hole(self) -> int:
        return self.arena.largest_hole()
