"""From one table to a trace.

    requests, seed      how many, and the number all is drawn from
    [arrivals]          when: `arrivals.ARRIVALS`
    [prompt] [output]   how long: `lengths.LENGTHS`; the prompt is what is not shared
    [lengths]           how the two go together
    [prefix]            what is shared: `prefixes.PREFIXES`, `conversations.CONVERSATIONS`

Each part has a random stream of its own: other arrivals leave the lengths as they are.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from workloads.messages import reading_failed, show, show_path
from workloads.request import InputError, IntArray, Trace
from workloads.synth.arrivals import ARRIVALS, Users
from workloads.synth.content import Paths, contents, no_pieces
from workloads.synth.keys import Kind, Number, bind, table_of, told
from workloads.synth.lengths import Outputs, Tokens, correlate
from workloads.synth.schedule import Rows, Schedule, schedule
from workloads.synth.sharing import Sharing, SharingKey
from workloads.synth.words import words
from workloads.toml_text import decoded, line_of_path, load

MOST_REQUESTS = 10_000_000
LARGEST_RECIPE = 1_000_000                             # bytes


class TogetherKey:
    """Reads the part ``lengths``."""

    def read(self, value: object, where: str) -> float:
        """The correlation."""
        return _lengths(**bind(_lengths, table_of(value, where), where))


Arrivals = Annotated[Callable[..., IntArray | Users], Kind(ARRIVALS)]
Prefix = Annotated[Sharing | None, SharingKey()]
Together = Annotated[float, TogetherKey()]
Requests = Annotated[int, Number(1, MOST_REQUESTS, whole=True)]
Seed = Annotated[int, Number(0, 2**64 - 1, whole=True)]
Correlation = Annotated[float, Number(-1.0, 1.0)]
STREAMS = ("arrivals", "prompt", "output", "together", "prefix", "salts")


def read_recipe(path: str | os.PathLike[str]) -> Trace:
    """The trace that a TOML file describes.

    Raises
    ------
    InputError
        On one line, with the file, the key and its value.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "burst.toml")
    >>> _ = path.write_text('requests = 3\\nprompt = 40\\noutput = 9\\narrivals = "all-at-once"')
    >>> read_recipe(path).prompt_tokens
    array([40, 40, 40])
    """
    return recipe_of_text(recipe_text(path), os.fspath(path))


def recipe_text(path: str | os.PathLike[str]) -> bytes:
    """What stands in the file; ``-`` is standard input.

    Raises
    ------
    InputError
        If it cannot be read, or is over a megabyte.
    """
    shown = "standard input" if path == "-" else show_path(os.fspath(path))
    try:
        if path == "-":
            text = sys.stdin.buffer.read(LARGEST_RECIPE + 1)
        else:
            with Path(path).open("rb") as file:
                text = file.read(LARGEST_RECIPE + 1)
    except OSError as error:
        raise reading_failed("standard input" if path == "-" else os.fspath(path), error) from None
    except ValueError as error:                        # a name with a NUL
        raise InputError(f"{shown}: no TOML: {error}") from None
    if len(text) > LARGEST_RECIPE:
        raise InputError(f"{shown}: longer than {LARGEST_RECIPE:,} bytes")
    return text


def recipe_of_text(text: bytes, path: str, changed: Mapping[str, object] | None = None) -> Trace:
    """The trace that TOML describes; of a scenario of `pagedsim sweep` its table ``[traffic]`` is the recipe.

    Parameters
    ----------
    text : bytes
    path : str
        Where it came from, for complaints.
    changed : mapping of key to value, optional
        What to put in place of what is there, as ``arrivals.rate``.

    Raises
    ------
    InputError
        As `read_recipe`.

    >>> text = b'requests = 3\\nprompt = 40\\noutput = 9\\narrivals = "constant:rate=1"'
    >>> recipe_of_text(text, "a.toml", {"arrivals.rate": 4}).arrival_us.tolist()
    [0, 250000, 500000]
    """
    shown = "standard input" if path == "-" else path
    written, changes = decoded(text, shown), changed or {}
    table = load(written, shown)
    try:
        return recipe(with_changes(table.get("traffic", table), changes))
    except InputError as error:
        line = _line(written, str(error), "traffic." if "traffic" in table else "", changes)
        raise InputError(f"{show_path(shown)}{f':{line}' if line else ''}: {error}") from None


def _line(text: str, problem: str, within: str, changed: Mapping[str, object]) -> int | None:
    """Where the key stands that a complaint begins with; None where it does not stand in the text, or was changed."""
    at = re.match(r"(?:(?P<part>[\w.-]+): )?(?:unknown key '(?P<key>[^']+)')?", problem)
    path = ".".join(filter(None, at.groups())) if at else ""
    asked = any(f"{path}.".startswith(f"{key}.") for key in changed)
    return line_of_path(text, within + path) if path and not asked else None


def with_changes(table: Mapping[str, Any], changed: Mapping[str, object]) -> dict[str, Any]:
    """The same table with other values; it stays as it is itself.

    Raises
    ------
    InputError
        If there is no such part.

    >>> with_changes({"arrivals": "poisson:rate=2"}, {"arrivals.rate": 4, "seed": 1})
    {'arrivals': {'kind': 'poisson', 'rate': 4}, 'seed': 1}
    """
    made: dict[str, Any] = deepcopy(dict(table))
    for key, value in changed.items():
        _put(made, key, value)
    return made


def _put(table: dict[str, Any], key: str, value: object) -> None:
    """A value in place of what is at ``part.key``; short forms on the way become tables."""
    *parts, last = key.split(".")
    for depth, part in enumerate(parts, 1):
        where = ".".join(parts[:depth])
        if part not in table:
            raise InputError(f"{where}: there is no such part, so no {show(key)} to change")
        table[part] = table_of(table[part], where)
        table = table[part]
    table[last] = value


def recipe(table: Mapping[str, Any]) -> Trace:
    """The trace that a table describes; the same table gives the same bytes.

    Parameters
    ----------
    table : mapping
        As in the module's docstring; every part is a table with a ``kind`` and the keys of that generator, or its short form.

    Returns
    -------
    Trace
        `source` says what it is. Prefix identity only where there is a part ``prefix``.

    Raises
    ------
    InputError
        On one line, with the key and its value.

    >>> trace = recipe({"requests": 2, "arrivals": "constant:rate=2", "prompt": {"kind": "constant", "value": 10},
    ...                 "output": {"kind": "constant", "value": 3}, "prefix": "system:tokens=32"})
    >>> trace.prompt_tokens.tolist(), trace.arrival_us.tolist(), trace.content.ids.tolist()
    ([42, 42], [0, 500000], [0, 1, 2, 0, 1, 3])
    """
    named = table_of(table, "recipe")
    return replace(_make(**bind(_make, named, "")), source=_source(named))


def _lengths(*, correlation: Correlation = 0.0) -> float:
    """The keys of the part ``lengths``."""
    return correlation


def _make(*, arrivals: Arrivals, prompt: Tokens, output: Outputs, prefix: Prefix = None, lengths: Together = 0.0,
          requests: Requests = 1000, seed: Seed = 0) -> Trace:
    """The keys of a recipe, and the trace they make."""
    rng = {name: np.random.default_rng(child) for name, child in
           zip(STREAMS, np.random.SeedSequence(seed).spawn(len(STREAMS)), strict=True)}
    asked, answers = prompt(rng["prompt"], requests), output(rng["output"], requests)
    if lengths:
        answers = correlate(rng["together"], asked, answers, lengths)
    if prefix is None:
        rows = Rows(np.arange(requests), asked, no_pieces(requests))
    else:
        rows = told("prefix", prefix.rows, rng["prefix"], asked, answers)
    when = told("arrivals", schedule, rows, told("arrivals", arrivals, rng["arrivals"], len(rows.pieces.table)))
    return _assemble(rows, when, answers, None if prefix is None else told("prefix", prefix.paths, rng["salts"], rows.pieces))


def _assemble(rows: Rows, when: Schedule, answers: IntArray, paths: Paths | None) -> Trace:
    """All columns in order of arrival."""
    order = when.order
    prompts, answers, content = rows.own_tokens[order], answers[order], None
    if paths is not None:
        paths = replace(paths, which=paths.which[rows.unit[order]])
        prompts = prompts + paths.tokens[paths.which]
        streams = None if rows.stream is None else rows.stream[order]
        content = told("prefix", contents, paths, prompts, None if streams is None else answers, streams)
    return Trace("synthetic", prompts, answers, when.arrival_us, session=when.session, content=content, think_us=when.think_us)


def _source(table: Mapping[str, Any]) -> str:
    """The parts of a recipe in words."""
    parts = [f"{name} {words(table[name])}" for name in ("arrivals", "prompt", "output", "prefix", "lengths") if name in table]
    return f"synthetic: {table.get('requests', 1000):,} requests, {', '.join(parts)}, seed {table.get('seed', 0)}"
