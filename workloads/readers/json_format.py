"""Formats that are one JSON object a line: which key plays which part, and what its numbers mean.

    role      time          prompt          output           ids         session
    key       timestamp     input_length    output_length    hash_ids    session_id
    meaning   milliseconds  tokens          tokens           512 each    any name

An id stands for a span of the prompt; how long a span is, many files do not say. Then it is what all rows agree on.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.messages import Place, bad_value, missing_column, show, show_path
from workloads.readers import fast_rows
from workloads.readers.common import Head, Reader, score_columns
from workloads.readers.increments import whole_prompts
from workloads.readers.json_lines import Objects, json_objects
from workloads.readers.rows import Rows
from workloads.readers.source import Source
from workloads.readers.spans import Spans
from workloads.readers.times import FINE_PER_NS, FINE_PER_US, to_us
from workloads.readers.values import ids_of, later, length_of, name_of, stamp_of
from workloads.request import InputError

SECONDS, MILLISECONDS = 0, -3
Keys = tuple[str, ...]
ROLES = ("prompt", "output", "time", "ids", "session", "request")


@dataclass(frozen=True)
class JsonRoles:
    """Keys by role; several names of one key are tried in order, and an empty tuple is a role the format has not.

    ``time_unit`` is the exponent of ten of a second, ``spans`` the tokens an id may stand for, the likeliest first.
    ``optional`` roles may be missing in a file, then in every row. ``chained`` ids name whole prefixes: none comes twice.
    """

    prompt: Keys
    output: Keys = ()
    time: Keys = ()
    time_unit: int = MILLISECONDS
    ids: Keys = ()
    spans: tuple[int, ...] = ()
    session: Keys = ()
    delay: Keys = ()
    request: Keys = ()
    optional: frozenset[str] = field(default_factory=frozenset)
    chained: bool = True


def json_reader(name: str, about: str, roles: JsonRoles, also: Keys = (), foreign: Keys = ()) -> Reader:
    """A format that is one JSON object a line; `also` and `foreign` are keys that tell it from others."""
    there = {role: getattr(roles, role) for role in ROLES if getattr(roles, role)}
    needed = [keys for role, keys in there.items() if role not in roles.optional]
    optional = [keys for role, keys in there.items() if role in roles.optional]

    def score(head: Head) -> int:
        if head.record is None:
            return 0
        names, more = ([_present(head.record or {}, keys) or keys[0] for keys in each] for each in (needed, optional))
        return score_columns(head, [*names, *also], more, foreign)

    return Reader(name, about, score, lambda source: JsonFile(roles).read(source))


def _present(row: Mapping[str, Any], keys: Keys) -> str | None:
    return next((key for key in keys if key in row), None)


class JsonFile:
    """One file being read: many rows at once where all are plain, else row by row."""

    def __init__(self, roles: JsonRoles) -> None:
        self.roles = roles
        self.prompt, self.output, self.session = array("q"), array("q"), array("q")
        self.stamps: list[int] = []                    # of rows since the last of the parts
        self.parts: list[NDArray[Any]] = []
        self.delays: list[int] = []                    # in units of 1e-40 s, -1 for none
        self.spans = Spans(roles.spans, roles.chained)
        self.waits = False
        self.names: dict[Any, int] = {}                # sessions
        self.requests: set[Any] = set()
        self.last: dict[int, int] = {}                 # the latest stamp of a session, 0 where there are no times
        self.made_by: str | None = None
        self.key: dict[str, str | None] = {}

    def read(self, source: Source) -> Rows:
        """All rows.

        Raises
        ------
        InputError
            For the first bad row: a missing key, a wrong type, ids that do not cover the prompt, an id that stands there twice.
        """
        strict = int(source.options.strict)
        for objects in json_objects(source):
            if not self.key:
                self._settle(*next(objects.placed()))
            if not self._many(objects, strict):
                for place, row in objects.placed():
                    self._row(place, row, strict)
        self._part()
        prompt, output, session = (np.array(column, np.int64) for column in (self.prompt, self.output, self.session))
        besides = {"session": session} if self.session else {}
        if self.waits:
            besides["think_us"] = to_us(np.array(self.delays, object), FINE_PER_US)
        content = self.spans.content(source.path, prompt, source.options.span_tokens) if self.key["ids"] else None
        if source.options.incremental:
            if not self.session or not self.output:
                raise InputError(f"{show_path(source.path)}: --incremental-turns wants sessions and outputs, and it has none")
            try:
                prompt, content = whole_prompts(prompt, output, session, content)
            except ValueError as error:
                raise InputError(f"{show_path(source.path)}: --incremental-turns: {error}") from None
        return Rows(source.path, prompt, output if self.key["output"] else None,
                    self.parts or None, content, besides, made_by=self.made_by)

    def _settle(self, place: Place, row: Mapping[str, Any]) -> None:
        """By the first row, which keys the file has."""
        for role in ROLES:
            keys = getattr(self.roles, role)
            self.key[role] = _present(row, keys)
            if keys and self.key[role] is None and role not in self.roles.optional:
                raise missing_column(place, keys[0], list(row))
        self.key["delay"] = next(iter(self.roles.delay), None)         # a first turn may have none
        said = row.get("made_by")
        self.made_by = said if isinstance(said, str) else None
        self.late = frozenset(key for role in self.roles.optional if self.key[role] is None for key in getattr(self.roles, role))

    def _many(self, objects: Objects, strict: int) -> bool:
        """Take all rows, unless one of them is not plain: then nothing is taken, and it is for `_row` to say what is wrong."""
        rows, key = objects.rows, self.key
        assert key["prompt"] is not None
        prompt = fast_rows.lengths(rows, key["prompt"], strict)
        output = fast_rows.lengths(rows, key["output"], strict) if key["output"] else []
        stamps = fast_rows.stamps(rows, key["time"], self.roles.time_unit) if key["time"] else np.zeros(len(rows), np.int64)
        requests = fast_rows.names(rows, key["request"]) if key["request"] else []
        sessions = fast_rows.names(rows, key["session"], optional=True) if key["session"] else []
        if prompt is None or output is None or stamps is None or requests is None or sessions is None or self._unusual(rows):
            return False
        fresh = set(requests)
        ids = fast_rows.ids(rows, key["ids"], objects.flags, self.spans.chained) if key["ids"] else (array("q"), [])
        if len(fresh) < len(requests) or not self.requests.isdisjoint(fresh) or ids is None:
            return False
        self.requests |= fresh
        self.prompt.extend(prompt)
        self.output.extend(output)
        self.delays += [-1] * len(rows)
        if key["ids"]:
            self.spans.extend(objects.lines, key["ids"], *ids)
        if key["time"]:
            self._part()
            self.parts.append(stamps)
        if sessions:
            self._follow(sessions, stamps)
        return True

    def _unusual(self, rows: list[dict[str, Any]]) -> bool:
        """Whether a row has a key that the first had not, or waits for the turn before it."""
        delay = self.key["delay"] if self.key["session"] else None
        return not all(map(self.late.isdisjoint, rows)) or (
            delay is not None and any(row.get(delay) is not None for row in rows))

    def _follow(self, sessions: list[Any], stamps: NDArray[Any]) -> None:
        """Number the sessions of rows, and note when each was last heard of."""
        numbers = [-1 if name is None else self.names.setdefault(name, len(self.names)) for name in sessions]
        fine = stamps if stamps.dtype == object else stamps.astype(object) * FINE_PER_NS
        self.session.extend(numbers)
        self.last.update((number, stamp) for number, stamp in zip(numbers, fine.tolist(), strict=True) if number >= 0)

    def _part(self) -> None:
        """What stamps were read one by one become a part."""
        if self.stamps:
            self.parts.append(np.array(self.stamps, object))
            self.stamps = []

    def _row(self, place: Place, row: Mapping[str, Any], strict: int) -> None:
        key = self.key
        assert key["prompt"] is not None
        for role in self.roles.optional:
            if key[role] is None and (late := _present(row, getattr(self.roles, role))):
                raise bad_value(place, late, "is here, but not in the first row")
        self.prompt.append(length_of(row, key["prompt"], place, strict))
        if key["output"]:
            self.output.append(length_of(row, key["output"], place, strict))
        if key["ids"]:
            self.spans.add(place, key["ids"], ids_of(row, key["ids"], place))
        if key["request"]:
            self._request(place, key["request"], row)
        session = -1
        if key["session"]:
            if row.get(key["session"], 0) is not None:  # null: none; a row without the key is a fault
                session = self.names.setdefault(name_of(row, key["session"], place), len(self.names))
            self.session.append(session)
        delay = self._delay(place, row, session)
        self.delays.append(delay)
        self.waits = self.waits or delay >= 0
        if key["time"]:
            self.stamps.append(self._stamp(place, row, session, delay))
        if session >= 0:
            self.last[session] = self.stamps[-1] if key["time"] else 0

    def _request(self, place: Place, key: str, row: Mapping[str, Any]) -> None:
        name = name_of(row, key, place)
        if name in self.requests:
            raise bad_value(place, key, f"{show(name)} stands there twice")
        self.requests.add(name)

    def _delay(self, place: Place, row: Mapping[str, Any], session: int) -> int:
        """How long a later turn waits after the turn before; -1 for one that does not."""
        key = self.key["delay"]
        if key is None or session not in self.last or row.get(key) is None:
            return -1
        return stamp_of(row, key, place, MILLISECONDS)

    def _stamp(self, place: Place, row: Mapping[str, Any], session: int, delay: int) -> int:
        """A time of its own, or in a later turn one after the turn before."""
        key = str(self.key["time"])
        if delay >= 0 and row.get(key) is None:
            return later(place, str(self.key["delay"]), self.last[session], delay)
        return stamp_of(row, key, place, self.roles.time_unit)
