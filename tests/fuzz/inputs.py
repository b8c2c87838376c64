"""One input: the words of a command line, and the files that lie where it is run."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Special:
    """What is no plain file: ``folder``, ``link`` to ``text``, ``pipe`` (somebody writes ``data`` and leaves), ``locked``."""

    kind: str
    text: str = ""
    data: bytes = b""


@dataclass(frozen=True)
class Input:
    """``arguments`` of the program; ``files`` by name, laid into an empty folder that is the working folder.

    Parameters
    ----------
    may_fail : bool
        Whether exit status 1, a check that failed, is an answer here.
    """

    arguments: tuple[str, ...]
    files: Mapping[str, bytes | Special] = field(default_factory=dict)
    stdin: bytes = b""
    may_fail: bool = False


def lay(one: Input, folder: Path) -> None:
    """Make the folder hold the files of the input, and nothing else."""
    clear(folder)
    for name, content in one.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content.kind == "folder":
            path.mkdir(exist_ok=True)
        elif content.kind == "link":
            path.symlink_to(content.text)
        elif content.kind == "locked":
            path.write_bytes(content.data)
            path.chmod(0)
        else:
            os.mkfifo(path)
            threading.Thread(target=_feed, args=(path, content.data), daemon=True).start()


def clear(folder: Path) -> None:
    """Remove everything in the folder; who still waits at a pipe is let go."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
            continue
        if stat.S_ISFIFO(entry.stat(follow_symlinks=False).st_mode):
            with suppress(OSError):
                os.close(os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK))
        os.unlink(entry.path)


def _feed(path: Path, data: bytes) -> None:
    with suppress(OSError), open(path, "wb", buffering=0) as file:
        file.write(data)
