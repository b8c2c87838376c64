"""The store: one SQLite file, one row a finished point, written in one transaction as the point ends.

    points      number, status, error, allocator, seed, the knobs, the metrics, command, result     pandas.read_sql reads it
    scenario    key, value                                                                          the file, the version

While a sweep runs the rows lie in the order in which they ended; at the end the file is made anew with the rows in the order of
the grid, so that the same scenario gives the same bytes whatever happened on the way. A lock beside it keeps out a second sweep.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from experiments.output import UNFINISHED, replacing
from workloads.messages import show, show_path
from workloads.request import InputError

NAME, LOCK = "results.sqlite", ".lock"
DONE, FAILED, LOST = "done", "failed", "lost"
"""A point's status: it ended; it cannot be run, and never will be; its worker vanished, and another try may end well."""
Row = dict[str, Any]


def quoted(name: str) -> str:
    """A name as SQL takes it.

    >>> quoted('kv-cache-dtype')
    '"kv-cache-dtype"'
    """
    return '"' + name.replace('"', '""') + '"'


class Store:
    """Finished points in a folder.

    Parameters
    ----------
    folder : str
    columns : sequence of str
        Of the table besides ``key``, in order.
    facts : mapping of str to str
        What must be the same to go on; a store made otherwise is refused.
    notes : mapping of str to str
        What else is written down of the scenario.
    """

    def __init__(self, folder: str, columns: Sequence[str], facts: Mapping[str, str], notes: Mapping[str, str]) -> None:
        self.folder, self.columns, self.facts, self.notes = folder, tuple(columns), dict(facts), dict(notes)
        self.path = os.path.join(folder, NAME)
        self._rows: dict[str, Row] = {}
        self._db: sqlite3.Connection | None = None
        self._lock: sqlite3.Connection | None = None

    def open(self, resume: bool) -> None:
        """Begin, or go on with what is there.

        Raises
        ------
        InputError
            If there are results and going on was not asked for, another sweep writes there, or the file cannot be used.
        """
        try:
            with self._telling():
                os.makedirs(self.folder, exist_ok=True)
                self._take_lock()
                drop_leftovers(self.folder)
                self._begin(resume)
        except InputError:
            self.close()
            raise

    def _begin(self, resume: bool) -> None:
        there = os.path.exists(self.path) and os.path.getsize(self.path) > 0
        if there and not resume:
            raise InputError(f"{show_path(self.folder)} holds results already: --resume goes on with them, --out DIR writes "
                             "elsewhere")
        if not there:                                  # it appears whole, or not at all
            self._make([])
        self._db = self._connect(self.path)
        self._load()

    def close(self) -> None:
        """Let go of the file and of the lock."""
        for connection in (self._db, self._lock):
            if connection is not None:
                connection.close()
        self._db = self._lock = None

    @property
    def rows(self) -> Mapping[str, Row]:
        """Key -> row of every point that is there."""
        return self._rows

    def write(self, key: str, row: Row) -> None:
        """Keep a point that ended; when this returns it is on the disk. One that was lost before is replaced."""
        assert self._db is not None
        plain = {name: int(value) if isinstance(value, bool) else value for name, value in row.items()}     # as it comes back
        with self._telling(), self._db:
            self._insert(self._db, key, plain)
        self._rows[key] = {name: plain.get(name) for name in self.columns}

    def forget(self, keys: Sequence[str]) -> None:
        """Drop points, so that they are tried again."""
        assert self._db is not None
        with self._telling(), self._db:
            self._db.executemany("delete from points where key = ?", [(key,) for key in keys])
        for key in keys:
            del self._rows[key]

    def finish(self, keys: Sequence[str]) -> None:
        """Make the file anew with these points, in this order, and no others."""
        assert self._db is not None
        self._db.close()
        self._rows = {key: {**self._rows[key], "number": number} for number, key in enumerate(keys)}
        with self._telling():
            self._make(keys)
            self._db = self._connect(self.path)

    # ------------------------------------------------------------------ the file
    def _make(self, keys: Sequence[str]) -> None:
        with replacing(self.path) as name, closing(self._connect(name)) as db, db:
            db.execute("begin")
            db.execute("create table scenario (key text primary key, value text)")
            db.executemany("insert into scenario values (?, ?)", {**self.facts, **self.notes}.items())
            db.execute(f"create table points ({', '.join(map(quoted, self.columns))}, key text primary key)")
            for key in keys:
                self._insert(db, key, self._rows[key])

    def _connect(self, path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=10)
        db.execute("pragma synchronous = full")
        return db

    def _insert(self, db: sqlite3.Connection, key: str, row: Row) -> None:
        marks = ", ".join("?" * (len(self.columns) + 1))
        db.execute(f"insert or replace into points values ({marks})", [*(row.get(name) for name in self.columns), key])

    def _load(self) -> None:
        assert self._db is not None
        facts = dict(self._db.execute("select key, value from scenario"))
        for name, value in self.facts.items():
            if facts.get(name) != value:
                raise InputError(f"{show_path(self.path)} holds results of another {name}: {show(facts.get(name))}, not "
                                 f"{show(value)}; --out DIR writes elsewhere")
        names = [row[1] for row in self._db.execute("pragma table_info(points)")]
        if names != [*self.columns, "key"]:
            raise InputError(f"{show_path(self.path)} has other columns: the knobs of [sweep] or [search] are others now; "
                             "--out DIR writes elsewhere")
        for values in self._db.execute("select * from points"):
            row = dict(zip(names, values, strict=True))
            self._rows[row.pop("key")] = row

    def _take_lock(self) -> None:
        """Held until this process ends, however it ends."""
        self._lock = sqlite3.connect(os.path.join(self.folder, LOCK), timeout=0)
        try:
            self._lock.execute("pragma journal_mode = off")              # nothing is ever written there
            self._lock.execute("begin exclusive")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            raise InputError(f"{show_path(self.folder)}: another sweep writes there") from None

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            with suppress(sqlite3.Error):
                self.close()
            raise InputError(f"{show_path(self.path)}: cannot write: {reason}; what ended before is kept, and --resume goes on "
                             "with it") from None


def drop_leftovers(folder: str) -> None:
    """Remove what a killed sweep was writing: files that had not taken their places."""
    for path in Path(folder).glob(f"{UNFINISHED}*"):
        path.unlink(missing_ok=True)
