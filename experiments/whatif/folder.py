"""The folder of a sweep: made, held by one process at a time, and rid of what a killed one left there and in shared memory."""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from pathlib import Path

from experiments.output import UNFINISHED
from experiments.whatif.stopping import drop_memory_of
from workloads.messages import show_path
from workloads.request import InputError

LOCK = ".lock"
RUNNING = re.compile(rf"{re.escape(UNFINISHED)}(\d+)\.running")         # a file that is there while a process sweeps
AWAY = "move it away, or --out DIR writes elsewhere"


class Folder:
    """A folder for results.

    Parameters
    ----------
    path : str
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock: sqlite3.Connection | None = None
        self._mark: Path | None = None

    def take(self) -> None:
        """Make it where there is none, and hold it until it is released or this process ends, however it ends.

        Raises
        ------
        InputError
            If a file has its name, nothing can be written there, or another sweep holds it.
        """
        make_folder(self.path)
        self._take_lock()
        drop_leftovers(self.path)
        self._mark = Path(self.path, f"{UNFINISHED}{os.getpid()}.running")
        self._mark.touch()

    def release(self) -> None:
        """Let others have it."""
        if self._mark is not None:
            self._mark.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
        self._lock = self._mark = None

    def _take_lock(self) -> None:
        path = os.path.join(self.path, LOCK)
        try:
            self._lock = sqlite3.connect(path, timeout=0)
            self._lock.execute("pragma journal_mode = off")              # nothing is ever written there
            self._lock.execute("begin exclusive")
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise InputError(f"{show_path(self.path)}: another sweep writes there") from None
            raise InputError(f"{show_path(path)} cannot be locked: {error}; {AWAY}") from None


def make_folder(path: str) -> None:
    """Make a folder, with those above it, where there is none.

    Raises
    ------
    InputError
        If a file has its name, or it cannot be made or written in.
    """
    try:
        os.makedirs(path, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except FileExistsError:
        raise InputError(f"{show_path(path)} is a file, and a folder is wanted for the results: --out DIR names one") from None
    except OSError as error:
        raise InputError(f"{show_path(path)}: cannot write in this folder: {error.strerror}") from None
    except ValueError as error:                        # a NUL in the name, or what no file system can spell
        raise InputError(f"{show_path(path)}: no name of a folder: {error}") from None


def drop_leftovers(path: str) -> None:
    """Remove what a killed sweep was writing, files that had not taken their places, and what it had in shared memory."""
    for left in Path(path).glob(f"{UNFINISHED}*"):
        running = RUNNING.fullmatch(left.name)
        if running is not None:
            drop_memory_of(int(running[1]))
        left.unlink(missing_ok=True)
