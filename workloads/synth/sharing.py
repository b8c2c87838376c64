"""The part ``prefix`` of a recipe: a generator, the span of its ids, and salts that keep tenants apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from workloads.request import InputError, IntArray, Trace
from workloads.synth.content import Paths, Pieces, contents, paths_of
from workloads.synth.conversations import CONVERSATIONS
from workloads.synth.keys import CountOrNone, Exponent, Number, bind, keys_of, pick, table_of, told
from workloads.synth.lengths import OUTPUT
from workloads.synth.prefixes import PREFIXES, popular
from workloads.synth.schedule import Rows
from workloads.synth.words import words

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

    def paths(self, rng: np.random.Generator, pieces: Pieces) -> Paths:
        """The path before each, under its salt where there are any."""
        if self.salts:
            pieces = pieces.salted(popular(rng, len(pieces.table), self.salts, self.salt_exponent))
        return paths_of(pieces, self.span_tokens)


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


def with_prefix(trace: Trace, spec: str | Mapping[str, Any], rng: np.random.Generator, where: str = "prefix") -> Trace:
    """The same requests with a made-up prefix identity.

    Lengths stay as they are: what is shared is cut out of the prompt. A prompt that is no longer than that shares all of
    it but its last token.

    Parameters
    ----------
    spec : str or mapping
        A kind of `PREFIXES` with its keys, or the short form of it.
    where : str
        What complaints call the spec.

    Raises
    ------
    InputError
        On one line: if the trace has prefix identity, the kind makes conversations, or the spec is none.

    >>> trace = Trace("a", np.array([40, 50, 20]), np.array([1, 1, 1]))
    >>> with_prefix(trace, "system:tokens=32", np.random.default_rng(0)).content.ids.tolist()
    [0, 1, 2, 0, 1, 3, 4, 0, 5]
    """
    table = table_of(spec, where)
    kind = table.get("kind")
    if kind in CONVERSATIONS:
        raise InputError(f"{where}: {kind} makes conversations with lengths of their own: a recipe can have them, a trace cannot")
    if trace.content is not None:
        raise InputError(f"{where}: {trace.source} has prefix identity of its own")
    sharing = SharingKey().read(table, where)
    pieces, salts = rng.spawn(2)
    paths = told(where, sharing.paths, salts, told(where, sharing.generator, pieces, len(trace)))
    content = told(where, contents, paths, trace.prompt_tokens)
    return replace(trace, content=content, notes=(*trace.notes, f"prefix identity is made up: {words(spec)}"))


def with_output(trace: Trace, spec: str | Mapping[str, Any] | int, rng: np.random.Generator, where: str = "output") -> Trace:
    """The same requests with made-up output lengths, none longer than its ``max_tokens``.

    Raises
    ------
    InputError
        On one line: if the prefix identity goes on over the outputs, or the spec is none.

    >>> with_output(Trace("a", np.array([5, 6]), np.array([1, 1])), 200, np.random.default_rng(0)).output_tokens
    array([200, 200])
    """
    if trace.content is not None and trace.content.cover_output:
        raise InputError(f"{where}: {trace.source} says what its outputs are")
    output = OUTPUT.read(spec, where)(rng, len(trace))
    if trace.max_tokens is not None:
        output = np.minimum(output, trace.max_tokens)
    return replace(trace, output_tokens=output, notes=(*trace.notes, f"output lengths are made up: {words(spec)}"))
