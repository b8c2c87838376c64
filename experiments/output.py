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

from workloads.request import InputError


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """A temporary name beside ``path`` that takes its place when the block ends well.

    Raises
    ------
    InputError
        One line naming the file where it cannot be written.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(21, "Is a directory")
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=target.suffix)
        os.close(handle)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None
    try:
        yield name
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def write_text(path: str, write: Callable[[IO[str]], None]) -> None:
    """Let ``write`` fill a text file that appears only when it is complete."""
    with replacing(path) as name, open(name, "w", encoding="utf-8", newline="\n") as file:
        write(file)


def write_json(path: str, document: dict[str, Any]) -> None:
    """Strict JSON (no NaN) with a final line end; ``-`` is standard output."""
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        write_text(path, lambda file: file.write(text) and None)
