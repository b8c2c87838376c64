"""The store: one SQLite file, one row a finished point, written in one transaction as the point ends.

    points      number, status, error, allocator, seed, the knobs, the metrics, command, result     pandas.read_sql reads it
    scenario    key, value                                                                          the file, the version

While a sweep runs the rows lie in the order in which they ended; at the end the file is made anew with the rows in the order of
the grid, so that the same scenario gives the same bytes whatever happened on the way. A lock beside it keeps out a second sweep.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from experiments.output import check_writable, replacing
from experiments.whatif.folder import AWAY, Folder
from workloads.messages import show, show_path
from workloads.request import InputError

NAME = "results.sqlite"
DONE, FAILED, LOST = "done", "failed", "lost"
"""A point's status: it ended; it cannot be run, and never will be; its worker vanished, and another try may end well."""
KEPT = "; what ended before is kept, and --resume goes on with it"
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
    scenario : str
        The text of the scenario's file, which is written down.
    changes : callable
        (the text of an earlier scenario) -> what is other now, for people.
    """

    def __init__(self, folder: str, columns: Sequence[str], facts: Mapping[str, str], scenario: str,
                 changes: Callable[[str], str]) -> None:
        self.folder, self.columns, self.facts, self.scenario = Folder(folder), tuple(columns), dict(facts), scenario
        self.path = os.path.join(folder, NAME)
        self._changes, self._before = changes, scenario
        self._rows: dict[str, Row] = {}
        self._db: sqlite3.Connection | None = None

    def open(self, resume: bool) -> None:
        """Begin, or go on with what is there.

        Raises
        ------
        InputError
            If there are results and going on was not asked for, they are of another scenario or no results, another sweep
            writes there, or the folder or the file cannot be used.
        """
        try:
            self.folder.take()
            check_writable(self.path)
            self._begin(resume)
        except BaseException:
            self.close()
            raise

    def _begin(self, resume: bool) -> None:
        there = os.path.exists(self.path) and os.path.getsize(self.path) > 0
        with self._telling():
            if not there:                              # it appears whole, or not at all
                self._make([])
            self._db = self._connect(self.path)
            facts = self._stored_facts(self._db)
        if there and not resume:
            raise InputError(f"{show_path(self.folder.path)} holds results already: --resume goes on with them, --out DIR writes "
                             "elsewhere")
        with self._telling():
            self._load(self._db, facts)

    def close(self) -> None:
        """Let go of the file and of the folder."""
        if self._db is not None:
            self._db.close()
        self._db = None
        self.folder.release()

    @property
    def rows(self) -> Mapping[str, Row]:
        """Key -> row of every point that is there."""
        return self._rows

    def changes(self) -> str:
        """What is other now than in the scenario of which the file holds results, for people."""
        return self._changes(self._before)

    def accept(self) -> None:
        """What is there is of this scenario: its text is written down."""
        assert self._db is not None
        with self._telling(KEPT), self._db:
            self._db.execute("insert or replace into scenario values ('scenario', ?)", [self.scenario])

    def write(self, key: str, row: Row) -> None:
        """Keep a point that ended; when this returns it is on the disk. One that was lost before is replaced."""
        assert self._db is not None
        plain = {name: int(value) if isinstance(value, bool) else value for name, value in row.items()}     # as it comes back
        with self._telling(KEPT), self._db:
            self._insert(self._db, key, plain)
        self._rows[key] = {name: plain.get(name) for name in self.columns}

    def count(self) -> int:
        """How many points lie on the disk: one may have got there just before somebody stopped the sweep."""
        return len(self._rows) if self._db is None else int(self._db.execute("select count(*) from points").fetchone()[0])

    def forget(self, keys: Sequence[str]) -> None:
        """Drop points, so that they are tried again."""
        assert self._db is not None
        with self._telling(KEPT), self._db:
            self._db.executemany("delete from points where key = ?", [(key,) for key in keys])
        for key in keys:
            del self._rows[key]

    def finish(self, keys: Sequence[str]) -> None:
        """Make the file anew with these points, in this order, and no others."""
        assert self._db is not None
        self._db.close()
        self._rows = {key: {**self._rows[key], "number": number} for number, key in enumerate(keys)}
        with self._telling(KEPT):
            self._make(keys)
            self._db = self._connect(self.path)

    # ------------------------------------------------------------------ the file
    def _make(self, keys: Sequence[str]) -> None:
        with replacing(self.path) as name, closing(self._connect(name)) as db, db:
            db.execute("begin")
            db.execute("create table scenario (key text primary key, value text)")
            db.executemany("insert into scenario values (?, ?)", {**self.facts, "scenario": self.scenario}.items())
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

    def _stored_facts(self, db: sqlite3.Connection) -> dict[str, str]:
        facts = dict(db.execute("select key, value from scenario"))
        if not self.facts.keys() <= facts.keys():
            raise self._no_store("it does not say what made it")
        return facts

    def _load(self, db: sqlite3.Connection, facts: Mapping[str, str]) -> None:
        self._before = str(facts.get("scenario"))
        for name, value in self.facts.items():
            if facts[name] != value:
                raise InputError(f"{show_path(self.path)} holds results of another {name}: {show(facts[name])}, not "
                                 f"{show(value)}; --out DIR writes elsewhere")
        names = [row[1] for row in db.execute("pragma table_info(points)")]
        if "key" not in names:
            raise self._no_store("it has no points")
        if names != [*self.columns, "key"]:
            raise InputError(f"{show_path(self.path)} has other columns, since the knobs of [sweep] or [search] are others now: "
                             f"{self.changes()}; --out DIR writes elsewhere")
        for values in db.execute("select * from points"):
            row = dict(zip(names, values, strict=True))
            self._rows[row.pop("key")] = row

    @contextmanager
    def _telling(self, then: str = "") -> Iterator[None]:
        """What goes wrong with the file in one line, with what follows from it."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            with suppress(sqlite3.Error):
                self.close()
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF          # the rest tells more of the same
            if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
                raise self._no_store(str(error)) from None
            if code == sqlite3.SQLITE_CORRUPT:
                raise InputError(f"{show_path(self.path)} is damaged: {error}; {AWAY}") from None
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InputError(f"{show_path(self.path)}: cannot {'write' if then else 'be used'}: {reason}{then}") from None

    def _no_store(self, reason: str) -> InputError:
        return InputError(f"{show_path(self.path)} is not a sweep's store: {reason}; {AWAY}")
