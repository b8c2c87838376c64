"""Kinds of attention with a cache group of their own: which blocks a sequence still needs, and what a hit looks like.

A layer that sees only part of the past gives the blocks outside back while its sequence runs. Its block table keeps
their places as null blocks (0), so that place ``k`` holds tokens ``k * block_size`` and on in every group:

    full                      [ 7 | 8 | 9 | 4 | 5 ]     every block until the sequence ends
    sliding, reach 24 of 16   [ 0 | 0 | 6 | 3 | 2 ]     the last 23 tokens and the next one: blocks wholly before are gone
    chunked, reach 64         [ 0 | 0 | 0 | 0 | 1 ]     the chunk the next token lies in

Everything here is arithmetic on lengths (rules 39-41 of docs/rules.md); who holds a block is the pool's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("full", "sliding", "chunked")
UNBOUNDED = 1 << 62


@dataclass(frozen=True)
class GroupKind:
    """What the layers of one group see.

    Parameters
    ----------
    kind : str
        ``full``: all tokens; ``sliding``: the last ``reach`` tokens; ``chunked``: the chunk of ``reach`` tokens the query
        lies in.
    reach : int, optional
        Tokens; None for ``full`` only.

    Examples
    --------
    >>> computed = np.array([20, 75])
    >>> [kind.skipped(computed).tolist() for kind in (GroupKind("sliding", 24), GroupKind("chunked", 64), GroupKind("full"))]
    [[0, 52], [0, 64], [0, 0]]
    """

    kind: str
    reach: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a group's kind must be one of {', '.join(KINDS)}, not {self.kind!r}")
        if (self.reach is None) != (self.kind == "full"):
            raise ValueError(f"a {self.kind} group {'has no' if self.kind == 'full' else 'needs a'} reach, not {self.reach}")
        if self.reach is not None and self.reach < 1:
            raise ValueError(f"reach must be at least 1 token, not {self.reach}")

    @property
    def findable(self) -> bool:
        """Whether full blocks are ever cached: a window of one token needs no block of the past, so none is."""
        return (self.kind, self.reach) != ("sliding", 1)

    def skipped(self, computed: Any) -> Any:
        """Leading tokens the next token does not see, given how many are computed; int or array."""
        if self.reach is None:
            return computed * 0
        if self.kind == "chunked":
            return computed // self.reach * self.reach
        return np.maximum(computed - self.reach + 1, 0)

    def leaves_at(self, tokens: Any) -> Any:
        """The fewest computed tokens at which the first ``tokens`` tokens, 1 or more, are all skipped; int or array."""
        if self.reach is None:
            return tokens * 0 + UNBOUNDED
        return tokens + self.reach - 1 if self.kind == "sliding" else -(-tokens // self.reach) * self.reach

    def most_blocks(self, block_size: int, in_flight: int, max_model_len: int) -> int:
        """vLLM's bound on the blocks a sequence holds at once with ``in_flight`` tokens a step (rules 40 and 41)."""
        if self.reach is None:
            return UNBOUNDED
        if self.kind == "chunked":
            return -(-min(self.reach + in_flight, max_model_len) // block_size)
        return -(-min(self.reach - 1 + in_flight, max_model_len) // block_size) + 1

    def span(self, found: NDArray[np.bool_], tokens: int, block_size: int) -> tuple[int, int]:
        """The longest hit of at most ``tokens`` tokens: (first block that must be held, blocks hit).

        ``found`` says of each whole block of ``tokens`` whether it is cached. Blocks before the first are hit unseen.
        """
        if self.kind == "sliding":
            return self._window_span(found, block_size)
        start = self.skipped(tokens) // block_size
        missing = ~found[start:]
        return start, start + int(missing.argmax()) if np.count_nonzero(missing) else len(found)

    def _window_span(self, found: NDArray[np.bool_], block_size: int) -> tuple[int, int]:
        """The last run of cached blocks as long as the window; else what is cached from the first block on."""
        assert self.reach is not None
        if not self.findable:
            return 0, 0
        window = -(-(self.reach - 1) // block_size)
        ends = np.append(np.flatnonzero(~found), len(found))
        runs = np.diff(ends, prepend=-1) - 1
        wide = np.flatnonzero(runs >= window)
        if not len(wide):
            return 0, int(runs[0])
        stop = int(ends[wide[-1]])
        return stop - window, stop


class HitSearch:
    """The longest prefix all groups can serve.

    Parameters
    ----------
    groups : sequence of GroupKind
        Equal kinds are looked up together: a block is hit when all of them have it.
    block_size : int
    """

    def __init__(self, groups: Sequence[GroupKind], block_size: int) -> None:
        self._size = block_size
        self._kinds = sorted(dict.fromkeys(groups), key=lambda kind: kind.kind != "full")       # stable: full comes first
        self.members = {kind: [g for g, other in enumerate(groups) if other == kind] for kind in self._kinds}
        self._alone = len(groups) == 1
        self._once = len(self._kinds) == 2 and self._kinds[0].kind == "full"

    def longest(self, tokens: int, cached: Callable[[GroupKind, int], NDArray[np.bool_]]) -> tuple[int, dict[GroupKind, int]]:
        """A hit of at most ``tokens`` tokens.

        ``cached(kind, n)`` says which of the first ``n`` blocks all groups of a kind have. Returns the blocks hit and, by
        kind, the first that must be held. A kind that shortens the hit has the others asked again, until all agree; with
        one full kind and one other, once is enough, as any beginning of a full hit is one.
        """
        size, limit = self._size, tokens
        known: dict[GroupKind, NDArray[np.bool_]] = {}
        first: dict[GroupKind, int] = {}
        full = tokens
        while True:
            length = limit
            for kind in self._kinds:
                if kind.kind == "full" and kind in first:
                    length = min(length, full)
                    continue
                if kind not in known:
                    known[kind] = cached(kind, length // size)
                first[kind], blocks = kind.span(known[kind][: length // size], length, size)
                length = blocks * size
                full = length if kind.kind == "full" else full
            agreed = length >= limit or self._once or self._alone
            limit = length
            if agreed:
                return limit // size, first
