"""Formats that are one CSV table: which column plays which part, and what it holds.

    role       time       prompt         output           session   ...
    column     TIMESTAMP  ContextTokens  GeneratedTokens  -
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.messages import Place, bad_value, complaint, show
from workloads.readers import kinds
from workloads.readers.common import Head, Reader, numbered, score_columns
from workloads.readers.csv_table import LINES, CsvTable, open_csv
from workloads.readers.kinds import Kind
from workloads.readers.rows import Rows
from workloads.readers.times import join_stamps, to_us
from workloads.request import ContentIds, IntArray

SPAN = "hash_ids:"
MADE_BY = "made by:"


class Column(NamedTuple):
    """A column of a format: its name, what it holds, and whether the format needs it."""

    name: str
    kind: Kind | None = None
    needed: bool = True


Roles = Mapping[str, Column]
SEQUENCES: Roles = {"priority": Column("priority", kinds.PRIORITY, False), "samples": Column("samples", kinds.COUNT, False),
                    "beam_width": Column("beam_width", kinds.COUNT, False)}
"""Columns that a table of ours may have besides; they become those of Trace."""


def table_reader(name: str, about: str, roles: Roles, also: tuple[str, ...] = (), notes: tuple[str, ...] = ()) -> Reader:
    """A format that is one table.

    Parameters
    ----------
    name, about : str
        As in Reader.
    roles : mapping of role to Column
        ``prompt`` and ``output`` (lengths), ``time``, ``session`` (any text) and ``branch`` of it, ``think`` (a time),
        ``request`` (any text, never twice), ``ids``, and the names of other columns of Trace.
    also : tuple of str
        Columns by which the format is told, and that are not read.
    notes : tuple of str
        What to say whenever such a file is read.
    """
    needed = [*also, *(column.name for column in roles.values() if column.needed)]

    optional = [column.name for column in roles.values() if not column.needed]

    def score(head: Head) -> int:
        return score_columns(head, needed, optional) if head.record is None and head.fault is None else 0

    return Reader(name, about, score, lambda source: read_roles(open_csv(source), roles, source.options.strict, notes))


def read_roles(table: CsvTable, roles: Roles, strict: bool, notes: tuple[str, ...] = ()) -> Rows:
    """The rows of a table.

    Raises
    ------
    InputError
        For the first bad row, a missing column, or a request id that stands there twice.
    """
    there = {role: column for role, column in roles.items() if column.needed or column.name in table.header}
    waits = next((role for role in ("think", "think_us") if role in there), None)
    if waits and "session" not in there:
        raise bad_value(Place(table.path, table.header_line), there[waits].name, "wants a session: whose answer is it after?")
    of = table.read({role: (column.name, _kind(role, column, strict)) for role, column in there.items()},
                    lines=any(role in there for role in CHECKED))
    for role, check in CHECKED.items():
        if role in there:
            check(table, there[role].name, of)
    content, besides = _content(table, of), _besides(of)
    prompt, output = (np.concatenate(of.pop(role)) if role in of else None for role in ("prompt", "output"))  # none held twice
    assert prompt is not None
    clocks = numbered(np.concatenate(of["clock"])) if "clock" in of else None
    return Rows(table.path, prompt, output, of.get("time"), content, besides, clocks, notes, _comment(table, MADE_BY))


def _kind(role: str, column: Column, strict: bool) -> Kind:
    if column.kind is not None:
        return column.kind
    return {"session": kinds.TEXT, "request": kinds.TEXT}.get(role) or kinds.length(least=int(strict))


def _besides(of: Parts) -> dict[str, IntArray]:
    made: dict[str, IntArray] = {}
    for role, parts in of.items():
        if role == "session":
            made[role] = numbered(np.concatenate(parts) if "branch" not in of else _branches(parts, of["branch"]))
        elif role == "think":
            made["think_us"] = to_us(*join_stamps(parts))
        elif role not in ("prompt", "output", "time", "request", "ids", "branch", "clock", LINES):
            made[role] = np.concatenate(parts)
    return made


def _branches(sessions: list[NDArray[Any]], branches: list[NDArray[Any]]) -> NDArray[Any]:
    """Names of sessions whose branches go their own way."""
    names: NDArray[Any] = np.concatenate(sessions) + "\0" + np.concatenate(branches)
    return names


def _refuse_twice(table: CsvTable, column: str, of: Parts) -> None:
    known: set[str] = set()
    for name, line in zip(_flat(of["request"]), _flat(of[LINES]), strict=True):
        if name in known:
            raise bad_value(Place(table.path, line), column, f"{show(name)} stands there twice")
        known.add(name)


def _refuse_low_limit(table: CsvTable, column: str, of: Parts) -> None:
    limit, output = np.concatenate(of["max_tokens"]), np.concatenate(of["output"])
    if np.any(limit < output):
        row = int((limit < output).argmax())
        raise bad_value(Place(table.path, int(np.concatenate(of[LINES])[row])), column, f"{limit[row]} is below the output, "
                        f"{output[row]} tokens")


def _refuse_many_ids(table: CsvTable, column: str, of: Parts) -> None:
    span, over_output = _span(table)
    counts = np.array([len(ids) for part in of["ids"] for ids in part.tolist()], np.int64)
    tokens = np.concatenate(of["prompt"]) + (np.concatenate(of["output"]) if over_output else 0)
    if np.any(counts > -(-tokens // span)):
        row = int((counts > -(-tokens // span)).argmax())
        raise bad_value(Place(table.path, int(np.concatenate(of[LINES])[row])), column, f"{counts[row]} ids of {span} tokens "
                        f"each for {tokens[row]} tokens")


def _flat(parts: list[NDArray[Any]]) -> list[Any]:
    return [one for part in parts for one in part.tolist()]


Parts = Mapping[str, list[NDArray[Any]]]
CHECKED: Mapping[str, Callable[[CsvTable, str, Parts], None]] = {
    "request": _refuse_twice, "max_tokens": _refuse_low_limit, "ids": _refuse_many_ids}
"""Roles whose columns are checked against others; a complaint names the line."""


def _content(table: CsvTable, of: Parts) -> ContentIds | None:
    """Ids of a table of ours; a comment says what each stands for."""
    if "ids" not in of:
        return None
    span, over_output = _span(table)
    lists = _flat(of["ids"])
    starts = np.concatenate(([0], np.cumsum([len(ids) for ids in lists]))).astype(np.int64)
    return ContentIds(np.concatenate(lists).astype(np.int64), starts, span, over_output)


def _span(table: CsvTable) -> tuple[int, bool]:
    """Tokens an id stands for, and whether the ids go on over the output."""
    words = (_comment(table, SPAN) or "").split()
    if not words or not words[0].isascii() or not words[0].isdigit() or len(words[0]) > 10 or not 0 < int(words[0]) < 1 << 31:
        raise complaint(table.path, table.header_line, f"a column of ids, and no line '# {SPAN} N tokens each' before the header")
    return int(words[0]), "output" in words


def _comment(table: CsvTable, key: str) -> str | None:
    found = [text.removeprefix(key).strip() for text in table.comments if text.startswith(key)]
    return found[0] if found else None
