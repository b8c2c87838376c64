"""A table of one's own: CSV with prompt_tokens,output_tokens and more, or with other names by ``--columns``.

What `workloads.writers` writes is this format with every column a trace has, so it holds any trace:

    # made by: pagedsim trace synth chat.toml
    # hash_ids: 16 tokens each, over prompt and output
    arrival_us,prompt_tokens,output_tokens,session,think_us,hash_ids
    0,40,24,0,-1,0 1 2 3
    900000,80,30,0,500000,0 1 2 3 4 5 6
"""

from __future__ import annotations

from collections.abc import Mapping

from workloads.messages import show, show_names, show_path
from workloads.readers import kinds
from workloads.readers.common import Head, Reader, score_columns
from workloads.readers.csv_table import open_csv
from workloads.readers.rows import NOT_READ, Rows
from workloads.readers.source import Source
from workloads.readers.table_format import SEQUENCES, Column, Roles, read_roles
from workloads.request import InputError

LENGTHS: Roles = {"prompt": Column("prompt_tokens"), "output": Column("output_tokens")}
ROLES: Roles = {
    "time": Column("arrival_us", kinds.UNITS["us"], False), **LENGTHS, "max_tokens": Column("max_tokens", kinds.length(), False),
    "session": Column("session", needed=False), "think_us": Column("think_us", kinds.WHOLE, False), **SEQUENCES,
    "ids": Column("hash_ids", kinds.IDS, False),
}
IN_SECONDS = "arrival_s"


def score(head: Head) -> int:
    """How well a file fits."""
    needed = [column.name for column in LENGTHS.values()]
    optional = [IN_SECONDS, *(column.name for column in ROLES.values() if not column.needed)]
    return score_columns(head, needed, optional) if head.record is None and head.fault is None else 0


def read(source: Source) -> Rows:
    """Read a table; with times, rows are sorted stably by them.

    Raises
    ------
    InputError
        For the first bad row, or a missing column.
    """
    table, strict = open_csv(source), source.options.strict
    if source.options.columns is not None:
        return read_roles(table, _named(source.path, source.options.columns), strict)
    roles = ROLES if IN_SECONDS not in table.header else {**ROLES, "time": Column(IN_SECONDS, kinds.UNITS["s"])}
    known = {column.name for column in roles.values()}
    unread = [name for name in table.header if name and name not in known]
    return read_roles(table, roles, strict, (NOT_READ.format("columns", show_names(unread)),) if unread else ())


def _named(path: str, columns: Mapping[str, str]) -> Roles:
    """Roles by the names a person gave: role=COLUMN, and role=COLUMN:UNIT for a time (seconds where none is given)."""
    roles: dict[str, Column] = {}
    for role, given in columns.items():
        if role not in ROLES and role != "think":
            raise InputError(f"{show_path(path)}: --columns: no role {show(role)}: one of {', '.join([*ROLES, 'think'])}")
        name, kind = given, ROLES[role].kind if role in ROLES else None
        if role in ("time", "think"):
            name, _, unit = given.rpartition(":") if given.rpartition(":")[2] in kinds.UNITS else (given, "", "s")
            kind = kinds.optional(kinds.UNITS[unit]) if role == "think" else kinds.UNITS[unit]
        roles[role] = Column(name, kind)
    for role in ("prompt", "output"):
        if role not in roles:
            raise InputError(f"{show_path(path)}: --columns: {role}=COLUMN is wanted, not only {show_names(columns)}")
    return roles


READER = Reader("csv", "a table of one's own: [arrival_us|arrival_s,]prompt_tokens,output_tokens[,...], or --columns", score,
                read)
