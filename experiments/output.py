"""Files written whole or not at all."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from workloads.messages import show_path
from workloads.request import InputError


def check_writable(path: str) -> None:
    """Raise InputError, naming the file, if it could not be written now: better before the work than after it."""
    with _refusing(path):
        target = _target(path)
        if target is not None:
            os.close(_beside(target, unlink=True)[0])


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """A temporary name beside ``path`` that takes its place when the block ends well; a device or pipe is written itself.

    Raises
    ------
    InputError
        One line naming the file where it cannot be written.
    """
    with _refusing(path):
        target = _target(path)
        if target is None:
            yield path
            return
        handle, name = _beside(target)
        os.close(handle)
        try:
            yield name
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)
            os.replace(name, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)


@contextmanager
def _refusing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{show_path(path)}: cannot write: {error.strerror}") from None


def _target(path: str) -> Path | None:
    """The file a path leads to through links; None for what is there and no plain file."""
    if not path:
        raise FileNotFoundError(2, "no file name")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(21, "Is a directory")
    return None if Path(path).exists() and not Path(path).is_file() else target


def _beside(target: Path, unlink: bool = False) -> tuple[int, str]:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".pagedsim-", suffix=target.suffix)
    if unlink:
        os.unlink(name)
    return handle, name


def write_text(path: str, write: Callable[[IO[str]], None]) -> None:
    """Let ``write`` fill a text file that appears only when it is complete."""
    with replacing(path) as name, open(name, "w", encoding="utf-8", newline="\n") as file:
        write(file)


def write_json(path: str, document: dict[str, Any]) -> None:
    """Strict JSON (no NaN) with a final line end; ``-`` is standard output."""
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    if path == "-":
        if sys.stdout is None:
            raise InputError("standard output is closed")
        sys.stdout.write(text)
    else:
        write_text(path, lambda file: file.write(text) and None)
