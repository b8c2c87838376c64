"""The part ``prefix`` of a recipe: a generator, the span of its ids, and salts that keep tenants apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from workloads.request import IntArray
from workloads.synth.content import Paths, Pieces, paths_of
from workloads.synth.conversations import CONVERSATIONS
from workloads.synth.keys import CountOrNone, Exponent, Number, bind, keys_of, pick, table_of
from workloads.synth.prefixes import PREFIXES, popular
from workloads.synth.schedule import Rows

KINDS: dict[str, Callable[..., Any]] = {**PREFIXES, **CONVERSATIONS}
SPAN_TOKENS = 16
Span = Annotated[int, Number(1, 65_536, whole=True)]


@dataclass(frozen=True)
class Sharing:
    """What is shared: makes the pieces before requests, and walks the paths that they are."""

    generator: Callable[..., Any]
    conversations: bool
    span_tokens: int
    salts: int
    salt_exponent: float

    def rows(self, rng: np.random.Generator, prompt: IntArray, output: IntArray) -> Rows:
        """The requests of the lengths drawn, with what stands before them."""
        if self.conversations:
            rows: Rows = self.generator(rng, prompt, output)
            return rows
        return Rows(np.arange(len(prompt)), prompt, self.generator(rng, len(prompt)))

    def paths(self, rng: np.random.Generator, pieces: Pieces, longest: int | None = None) -> Paths:
        """The path before each, under its salt where there are any, as far as the ``longest`` prompt can reach."""
        if self.salts:
            pieces = pieces.salted(popular(rng, len(pieces.table), self.salts, self.salt_exponent))
        return paths_of(pieces, self.span_tokens, longest)


class SharingKey:
    """Reads the part ``prefix``."""

    def read(self, value: object, where: str) -> Sharing:
        """The generator, and what every kind can have besides."""
        table = table_of(value, where)
        common = [name for name, _, _ in keys_of(every_kind)]
        own = {name: one for name, one in table.items() if name not in common}
        generator = pick(KINDS, own, where, common)
        settings = every_kind(**bind(every_kind, {name: table[name] for name in common if name in table}, where))
        return Sharing(generator, table["kind"] in CONVERSATIONS, **settings)


def every_kind(*, span_tokens: Span = SPAN_TOKENS, salts: CountOrNone = 0, salt_exponent: Exponent = 0.0) -> dict[str, Any]:
    """The keys of every kind of prefix, and what they are set to.

    >>> every_kind(salts=3)
    {'span_tokens': 16, 'salts': 3, 'salt_exponent': 0.0}
    """
    return {"span_tokens": span_tokens, "salts": salts, "salt_exponent": salt_exponent}
