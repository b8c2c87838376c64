"""Qwen-Bailian: JSON lines as Mooncake's, but times in seconds, 16 tokens an id, and turns that name the one before.

``chat_id`` names a request, ``parent_chat_id`` the turn before it (-1: none). A turn whose parent is not in the file begins a
session of its own. Source: alibaba-edu/qwen-bailian-usagetraces-anon (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workloads.messages import Place
from workloads.readers.common import Reader
from workloads.readers.json_format import SECONDS, JsonFile, JsonRoles, json_reader
from workloads.readers.rows import Rows
from workloads.readers.source import Source
from workloads.readers.values import name_of

ROLES = JsonRoles(prompt=("input_length",), output=("output_length",), time=("timestamp",), time_unit=SECONDS, ids=("hash_ids",),
                  spans=(16,), request=("chat_id",))
_LINES = json_reader("qwen", "Qwen-Bailian: JSON lines, chat_id, timestamp in seconds, hash_ids of 16 tokens", ROLES)


class _Turns(JsonFile):
    """A request belongs to the session of the one it names."""

    def _row(self, place: Place, row: Mapping[str, Any], strict: int) -> None:
        super()._row(place, row, strict)
        name, parent = name_of(row, "chat_id", place), row.get("parent_chat_id", -1)
        session = None if parent == -1 else self.names.get(name_of(row, "parent_chat_id", place))
        self.names[name] = len(self.names) if session is None else session
        self.session.append(self.names[name])


def read(source: Source) -> Rows:
    """Read a Qwen-Bailian trace; InputError for the first bad row."""
    return _Turns(ROLES).read(source)


READER = Reader("qwen", _LINES.about, _LINES.score, read)
