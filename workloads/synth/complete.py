"""What a trace lacks, made up: arrival times, output lengths, prefix identity. The rest of it stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from workloads.request import InputError, Trace
from workloads.synth.arrivals import ARRIVALS
from workloads.synth.content import contents, no_pieces
from workloads.synth.conversations import CONVERSATIONS
from workloads.synth.keys import pick, table_of, told
from workloads.synth.lengths import OUTPUT
from workloads.synth.schedule import Rows, schedule
from workloads.synth.sharing import SharingKey
from workloads.synth.words import words

Description: TypeAlias = str | Mapping[str, Any]


def with_arrivals(trace: Trace, spec: Description, rng: np.random.Generator, where: str = "arrivals") -> Trace:
    """The same requests in the same order at made-up times; with ``closed``, from users who wait for their answers.

    Parameters
    ----------
    spec : str or mapping
        A kind of `ARRIVALS` with its keys, or the short form of it.
    where : str
        What complaints call the spec.

    Raises
    ------
    InputError
        On one line: if requests wait for answers already, users would take the place of sessions, or the spec is none.

    >>> trace = Trace("a", np.array([5, 6, 7]), np.array([1, 1, 1]))
    >>> with_arrivals(trace, "constant:rate=4", np.random.default_rng(0)).arrival_us
    array([     0, 250000, 500000])
    """
    if trace.think_us is not None:
        raise InputError(f"{where}: requests of {trace.source} wait for the answer before them: they have no times to make up")
    arrivals = told(where, pick(ARRIVALS, spec, where), rng, len(trace))
    nothing = Rows(np.arange(len(trace)), trace.prompt_tokens, no_pieces(len(trace)))
    when = told(where, schedule, nothing, arrivals)
    if when.session is not None and trace.session is not None:
        raise InputError(f"{where}: {trace.source} has sessions, and users would be others")
    session = trace.session if when.session is None else when.session
    note = f"arrival times are made up: {words(spec)}"
    # the k-th request to come is the k-th of the trace, whoever sends it
    return replace(trace, arrival_us=when.arrival_us, session=session, think_us=when.think_us, notes=(*trace.notes, note))


def with_prefix(trace: Trace, spec: Description, rng: np.random.Generator, where: str = "prefix") -> Trace:
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
    before = told(where, sharing.generator, pieces, len(trace))
    paths = told(where, sharing.paths, salts, before, int(trace.prompt_tokens.max(initial=0)))
    content = told(where, contents, paths, trace.prompt_tokens)
    return replace(trace, content=content, notes=(*trace.notes, f"prefix identity is made up: {words(spec)}"))


def with_output(trace: Trace, spec: Description | int, rng: np.random.Generator, where: str = "output") -> Trace:
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
