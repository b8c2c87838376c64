"""What an allocator is, and how the slots of a pool are counted. Read this page first.

Every allocator of one comparison manages the same number of **slots** (room for one token's K and V in all layers). The
scheduler asks it four things, in the words of PagedAttention:

    prefix = allocator.find_prefix(request, tokens)          what of the prompt is cached already?
    handle = allocator.admit(request, prefix, ...)           blocks or a reservation for a waiting request; None: refused
    allocator.extend(handles, computed, new)                 room for the tokens about to be computed; how many were served
    allocator.release(handle)                                the sequence ended or is preempted

Several sequences of one request (samples, beams) begin as one: ``allocator.fork(handle)`` names a second one with the
same contents, and whoever first writes into a block that others hold too writes into a copy. `restore` takes a swapped
sequence in again, and `counts` says where every slot is. A *handle* is a small integer that names a running sequence inside the
allocator. Allocators know no clock and no randomness: "least recent" is a place in a queue.

The seven parts of the pool (docs/glossary.md), which add up to its capacity after every event:

    | token states | reserved | internal | cached | external | remainder | idle |
      holds a        will be    never      free,    free (or rounding)    free and
      computed       filled     filled     still    while the head of     nobody is
      token                                findable the queue is refused  refused
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import Any, NamedTuple, Protocol

import numpy as np

from workloads.request import IntArray

PARTS = ("token_states", "reserved", "internal", "cached", "external", "remainder", "idle")


class SlotCounts(NamedTuple):
    """The pool at one moment, in slots; or the sums over a stretch of time, in slots x microseconds."""

    token_states: int
    reserved: int
    internal: int
    cached: int
    external: int
    remainder: int
    idle: int


class Prefix(NamedTuple):
    """A cached prefix: how many tokens, the blocks that hold them, and how many more blocks a host tier holds behind those."""

    tokens: int
    blocks: Any
    loads: int = 0


NO_PREFIX = Prefix(0, np.zeros(0, np.int64))


class Ask(NamedTuple):
    """An admission as the scheduler asks for it.

    Parameters
    ----------
    request : int
        Row of the trace.
    known : int
        Tokens to compute before the next one is sampled: the prompt, and what was generated before a preemption.
    prefix : Prefix
        What `Allocator.find_prefix` returned for it just now.
    tokens : int
        Tokens that will be computed after this step, the cached ones included.
    whole : bool
        Whether all ``known`` tokens must fit now although only ``tokens`` are given room (vLLM's gate, rule 27).
    keep_free : int
        Blocks that must stay free (watermark, rule 30).
    resumed : bool
        Whether the request ran before and was preempted.
    """

    request: int
    known: int
    prefix: Prefix
    tokens: int
    whole: bool
    keep_free: int = 0
    resumed: bool = False


class Refusal(NamedTuple):
    """The head of the waiting queue is not running for want of memory: ``need`` slots were asked for and not had."""

    need: int


class ToCome(NamedTuple):
    """What steps made at once had still to do to the pool at some moment before their end, or summed over time.

    ``taken`` blocks, ``evicted`` ones among them, and the slots of them that will hold a token; whatever is given back meanwhile
    counts against them. Integers, or arrays of them with one entry a moment.
    """

    taken: Any
    evicted: Any
    fillable: Any


NOTHING = ToCome(0, 0, 0)


class Taken(NamedTuple):
    """What several decode steps took: after how many steps, then blocks, evicted ones among them, slots that will fill."""

    after: list[int]
    blocks: list[int]
    evicted: list[int]
    fillable: list[int]

    def to_come(self, weights: Sequence[int]) -> ToCome:
        """The sums, what was taken after ``n`` steps with the weight ``weights[n]``.

        With the time from the start of the first step to the start of each it is the sum over time of what is to come.

        >>> Taken([0, 2], [1, 1], [0, 1], [16, 9]).to_come([0, 20, 40])
        ToCome(taken=40, evicted=40, fillable=360)
        """
        each = [weights[n] for n in self.after]
        return ToCome(sum(map(mul, each, self.blocks)), sum(map(mul, each, self.evicted)), sum(map(mul, each, self.fillable)))


Due = list[list[int]]
"""Handles of the sequences whose last block is full now, after one decode step, after two, ...; each in running order."""


class Decoding(Protocol):
    """Running sequences that compute a token each in a step, in running order."""

    def __len__(self) -> int: ...

    @property
    def handle(self) -> IntArray:
        """Their names."""
        ...

    @property
    def computed(self) -> IntArray:
        """Tokens of each whose K and V exist."""
        ...

    def due(self, size: int, steps: int) -> Due:
        """Who fills blocks of ``size`` tokens when in the next ``steps`` steps; not to be written into."""
        ...


class Lag(NamedTuple):
    """Asynchronous scheduling: what is known when a step is scheduled, in tokens, int64 arrays with one entry a sequence.

    ``processed`` tokens are computed for certain; the blocks that end after ``cache_from`` tokens and not after
    ``cache_to`` become findable now (generated tokens are known only when their output arrives, rule 36 of docs/rules.md).
    """

    processed: IntArray
    cache_from: IntArray
    cache_to: IntArray


class Allocator(Protocol):
    """The questions above, and what the ledger reads."""

    capacity: int
    """Slots managed."""
    reserves_ahead: bool
    """Whether every sequence of a request needs its room at admission (reservations), not only when it branches."""
    copies: int
    """Blocks copied because a writer shared them (contiguous: whole reservations, by `fork`)."""

    @property
    def held(self) -> IntArray:
        """Slots of each sequence, by handle."""
        ...

    def impossible(self) -> Any:
        """Bool array over the requests: those that could never finish, even alone in the pool."""
        ...

    def find_prefix(self, request: int, tokens: int) -> Prefix:
        """The longest cached prefix of the first ``tokens`` tokens, at least one token being left to compute."""
        ...

    def fits(self, ask: Ask) -> bool:
        """Whether `admit` would succeed now."""
        ...

    def need(self, ask: Ask) -> int:
        """Slots the request asks for, before any rounding."""
        ...

    def admit(self, ask: Ask) -> int | None:
        """Take a waiting request in. Returns its handle, or None and changes nothing."""
        ...

    def extend(self, handles: IntArray, computed: IntArray, new: IntArray, lag: Lag | None = None) -> int:
        """Room for ``new[i]`` more tokens of each sequence, in that order, until the pool is full; how many were served.

        Blocks filled by these tokens become findable; with a ``lag`` those that it names, of the sequences with new tokens.
        """
        ...

    def extend_by_one(self, sequences: Decoding) -> bool:
        """`extend` by one token each, the usual decode step; False, with nothing changed, where not all can be served."""
        ...

    def decode_limit(self, sequences: Decoding, most: int) -> int:
        """How many decode steps in a row, at most ``most``, all these sequences can make before the pool is exhausted.

        1 while somebody shares a partly filled block: who copies it is decided step by step.
        """
        ...

    def decode(self, sequences: Decoding, steps: int) -> Taken | None:
        """``steps`` decode steps at once, like as many calls of `extend_by_one`; None where no block changed hands."""
        ...

    def settle(self, handles: IntArray, first: IntArray, stop: IntArray) -> None:
        """Make findable the blocks of each sequence that end after ``first`` tokens and not after ``stop``."""
        ...

    def fork(self, handle: int) -> int | None:
        """A second sequence of the same request, for now with the same contents. Returns its handle; None: does not fit."""
        ...

    def restore(self, request: int, tokens: int) -> int | None:
        """Take a swapped sequence in again: fresh room for ``tokens`` computed tokens. None: refused, nothing changes."""
        ...

    def restore_need(self, tokens: int, request: int | None = None) -> int:
        """Slots `restore` asks for; a reservation depends on the request, without which it is at least ``tokens``."""
        ...

    def release(self, handle: int, returns: bool = False) -> None:
        """Give back everything a sequence holds; ``returns``: it is preempted, and will ask for its blocks again.

        ValueError if nothing is held under this handle.
        """
        ...

    def counts(self, computed: Any, refused: Refusal | None, to_come: ToCome = NOTHING, time: int = 1) -> SlotCounts:
        """Where every slot is, given the sum of the computed tokens of all running sequences.

        Before the end of the steps that a `decode` made, with what was ``to_come`` then. Everything that is counted depends on
        these numbers linearly: with both of them summed over a stretch of ``time`` microseconds the parts are the sums over it,
        and with arrays of them, one entry a moment, they are arrays.
        """
        ...

    def logical(self, to_come: ToCome = NOTHING, time: int = 1) -> Any:
        """Slots of all block tables or reservations, a shared block once for each table; as `counts`."""
        ...

    def largest_hole(self) -> int | None:
        """The longest run of free addresses in slots; None where addresses do not matter."""
        ...


class RoomIsThere:
    """Growth where everything was reserved at admission: it always succeeds and takes nothing. See `Allocator`."""

    def extend(self, handles: IntArray, computed: IntArray, new: IntArray, lag: Lag | None = None) -> int:
        return len(handles)

    def extend_by_one(self, sequences: Decoding) -> bool:
        return True

    def decode_limit(self, sequences: Decoding, most: int) -> int:
        return most

    def decode(self, sequences: Decoding, steps: int) -> Taken | None:
        return None
