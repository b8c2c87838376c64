"""kv-cache-tester: one JSON object a session of a coding agent, a folder of them, or a table of all their requests.

Ids stand for full blocks only (``floor(in / 64)``) and mean nothing in another session. A request waits ``think_time`` after
the answer before it; sessions have no common clock. A sub-agent's requests count their times from where it begins and share
the ids; several may be at work at a time, so each is a session of its own. Source: callanjfox/kv-cache-tester (Apache-2.0).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from workloads.messages import Place, bad_value, show, show_path
from workloads.readers import kinds
from workloads.readers.common import Head, Reader, score_columns
from workloads.readers.csv_table import open_csv
from workloads.readers.json_document import document
from workloads.readers.rows import Rows
from workloads.readers.source import Source
from workloads.readers.spans import refuse_twice
from workloads.readers.table_format import Column, read_roles
from workloads.readers.times import FINE_PER_US, to_us
from workloads.readers.values import MOST_ID, ids_of, later, length_of, name_of, stamp_of
from workloads.request import ContentIds, InputError

KEYS = ("id", "block_size", "hash_id_scope", "requests")
TABLE = {"session": Column("trace"), "branch": Column("subagent_path", kinds.TEXT), "clock": Column("trace", kinds.TEXT),
         "time": Column("t_s", kinds.UNITS["s"]), "prompt": Column("in_tokens"), "output": Column("out_tokens"),
         "think": Column("think_time_s", kinds.optional(kinds.UNITS["s"]))}
NO_CLOCK = "sessions have no common clock: all begin at once; --session-rate R begins R a second"
SECONDS = 0
DEEPEST = 100                                          # sub-agents of sub-agents


_Request = tuple[int, int, Mapping[str, Any], Place]
"""Its time, a number of the agent that makes it, itself, and where it stands."""


class Sessions:
    """Requests of one session after another."""

    def __init__(self) -> None:
        self.prompt, self.output, self.session, self.clock = array("q"), array("q"), array("q"), array("q")
        self.flat, self.starts = array("q"), array("q", [0])
        self.stamps: list[int] = []
        self.think: list[int] = []
        self.names: set[str | int] = set()
        self.block_size = self.sessions = 0
        self._first_id = 0

    def add(self, source: Source) -> None:
        """The session a file holds.

        Raises
        ------
        InputError
            If the file is malformed, or its session was there before.
        """
        found, place = document(source), Place(source.path, source.first.line)
        name = name_of(found, "id", place)
        if name in self.names:
            raise bad_value(place, "id", f"session {show(name)} is there twice")
        size = length_of(found, "block_size", place)
        if not size:
            raise bad_value(place, "block_size", "0 tokens are no block")
        if self.block_size not in (0, size):
            raise bad_value(place, "block_size", f"{size}, but {self.block_size} in other sessions")
        self.block_size = size
        largest = -1
        branches: dict[int, int] = {}
        requests = sorted(_requests(found, place, 0), key=lambda one: one[0])  # stable: of one time, as they stand
        for stamp, branch, row, at in requests:
            self._request(at, stamp, row, int(source.options.strict))
            self.session.append(branches.setdefault(branch, self.sessions + len(branches)))
            self.clock.append(len(self.names))
            ids = ids_of(row, "hash_ids", at)
            self._check(at, ids, self.prompt[-1])
            largest = max(largest, max(ids, default=-1))
            if self._first_id + largest > MOST_ID:
                raise bad_value(at, "hash_ids", f"{largest} is too large to be told from ids of other sessions")
            self.flat.extend(one + self._first_id for one in ids)
            self.starts.append(len(self.flat))
        self.sessions += len(branches)
        self._first_id += largest + 1
        self.names.add(name)

    def _request(self, place: Place, stamp: int, row: Mapping[str, Any], strict: int) -> None:
        self.stamps.append(stamp)
        self.prompt.append(length_of(row, "in", place, strict))
        self.output.append(length_of(row, "out", place, strict))
        self.think.append(stamp_of(row, "think_time", place, SECONDS) if row.get("think_time") is not None else -1)

    def _check(self, place: Place, ids: list[int], prompt_tokens: int) -> None:
        if len(ids) != prompt_tokens // self.block_size:
            raise bad_value(place, "hash_ids", f"{len(ids)} ids, but {prompt_tokens} tokens have "
                            f"{prompt_tokens // self.block_size} full blocks of {self.block_size}")
        refuse_twice(place, "hash_ids", ids)

    def rows(self, path: str, alone: bool) -> Rows:
        """All sessions, one behind the other; InputError if no request was in any."""
        if not self.prompt:
            raise InputError(f"{show_path(path)}: no request in it")
        columns = (self.prompt, self.output, self.session, self.clock, self.flat, self.starts)
        prompt, output, session, clock, flat, starts = (np.array(column, np.int64) for column in columns)
        return Rows(path, prompt, output, [np.array(self.stamps, object)], ContentIds(flat, starts, self.block_size, local=True),
                    {"session": session, "think_us": to_us(np.array(self.think, object), FINE_PER_US)},
                    None if alone else clock, notes=() if alone else (NO_CLOCK,))


def _requests(found: Mapping[str, Any], place: Place, start: int, depth: int = 0) -> Iterator[_Request]:
    requests = found.get("requests")
    if not isinstance(requests, list):
        raise bad_value(place, "requests", f"{show(requests)} is not a list")
    if depth > DEEPEST:
        raise bad_value(place._replace(within=""), "requests", f"sub-agents in more than {DEEPEST} sub-agents")
    for i, row in enumerate(requests):
        at = place._replace(within=f"{place.within}{'.' if place.within else ''}requests[{i}]")
        if not isinstance(row, dict):
            raise bad_value(place, f"requests[{i}]", f"{show(row)} is not an object")
        stamp = later(at, "t", start, stamp_of(row, "t", at, SECONDS))
        if row.get("type") == "subagent":
            yield from _requests(row, at, stamp, depth + 1)
        else:
            yield stamp, id(found), row, at


def score(head: Head) -> int:
    """How well a file fits; a document on many lines is told by the keys near its beginning."""
    if head.record is not None:
        return score_columns(head, KEYS)
    return score_columns(Head(tuple(head.keys)), KEYS[:3]) if head.fault is not None else 0


def read(source: Source) -> Rows:
    """Read one session; InputError names the first bad value."""
    sessions = Sessions()
    sessions.add(source)
    return sessions.rows(source.path, alone=True)


def read_table(source: Source) -> Rows:
    """Read the table of all requests, which has counts of ids and not the ids."""
    return read_roles(open_csv(source), TABLE, source.options.strict, (NO_CLOCK,))


def score_table(head: Head) -> int:
    """How well a file fits."""
    names = [column.name for column in TABLE.values()]
    return score_columns(head, names) if head.record is None and head.fault is None else 0


READER = Reader("kv-cache-tester", "kv-cache-tester: a session as one JSON object, or a folder of them", score, read)
TABLE_READER = Reader("kv-cache-tester-table", "kv-cache-tester: a table trace,t_s,in_tokens,out_tokens,think_time_s",
                      score_table, read_table)
