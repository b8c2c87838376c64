"""Qwen-Bailian: JSON lines as Mooncake's, but times in seconds, 16 tokens an id, and turns that name the one before.

``chat_id`` names a request, ``parent_chat_id`` the turn before it (-1: none). A turn whose parent is not in the file begins a
session of its own. Source: alibaba-edu/qwen-bailian-usagetraces-anon (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from workloads.messages import Place
from workloads.readers.common import Reader
from workloads.readers.json_format import SECONDS, JsonFile, JsonRoles, json_reader
from workloads.readers.json_lines import Objects
from workloads.readers.rows import Rows
from workloads.readers.source import Source
from workloads.readers.values import name_of
from workloads.request import IntArray

ROLES = JsonRoles(prompt=("input_length",), output=("output_length",), time=("timestamp",), time_unit=SECONDS, ids=("hash_ids",),
                  spans=(16,), request=("chat_id",), chained=False)       # its page does not say that ids name whole prefixes
_LINES = json_reader("qwen", "Qwen-Bailian: JSON lines, chat_id, timestamp in seconds, hash_ids of 16 tokens", ROLES)


class _Turns(JsonFile):
    """A request belongs to the session of the one it names, which may stand later in the file."""

    def __init__(self, roles: JsonRoles) -> None:
        super().__init__(roles)
        self.parents: list[str | int | None] = []

    def _row(self, place: Place, row: Mapping[str, Any], strict: int) -> None:
        super()._row(place, row, strict)
        self._turn(place, row)

    def _turn(self, place: Place, row: Mapping[str, Any]) -> None:
        self.names[name_of(row, "chat_id", place)] = len(self.names)
        self.parents.append(None if row.get("parent_chat_id", -1) == -1 else name_of(row, "parent_chat_id", place))

    def _many(self, objects: Objects, strict: int) -> bool:
        if not super()._many(objects, strict):
            return False
        for place, row in objects.placed():
            self._turn(place, row)
        return True

    def sessions(self) -> IntArray:
        """For each request the row at the root of its conversation."""
        root = np.full(len(self.parents), -1, np.int64)
        for row in range(len(root)):
            path: list[int] = []
            while root[row] < 0:
                path.append(row)
                root[row] = row                        # until more is known; it also ends a circle
                parent = self.names.get(self.parents[row])
                row = row if parent is None else parent
            root[path] = root[row]
        return root


def read(source: Source) -> Rows:
    """Read a Qwen-Bailian trace; InputError for the first bad row."""
    turns = _Turns(ROLES)
    rows = turns.read(source)
    return replace(rows, besides={**rows.besides, "session": turns.sessions()})


READER = Reader("qwen", _LINES.about, _LINES.score, read)
