"""Files written whole or not at all, packed where their names say so."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from workloads.messages import show_path
from workloads.request import InputError

UNFINISHED = ".pagedsim-"                              # how names of files begin that have not taken their places


def check_writable(path: str) -> None:
    """Raise InputError, naming the file, if it could not be written now: better before the work than after it."""
    with _refusing(path):
        target = _target(path)
        if target is not None:
            os.close(_beside(target, unlink=True)[0])


def check_outputs(outputs: Mapping[str, str | None], inputs: Sequence[str | None] = (), to_stdout: Sequence[str] = ("--json",),
                  inputs_are: str = "the trace") -> None:
    """What cannot be written, or would overwrite what is read or written besides, is said before the work, not after it.

    Parameters
    ----------
    outputs : mapping of option to path or None
    inputs : sequence of path or None
        Files that are read; ``-`` is none.
    to_stdout : sequence of str
        Options that take ``-`` for standard output.
    inputs_are : str
        What the inputs are called.

    Raises
    ------
    InputError
    """
    taken = {real(path): inputs_are for path in inputs if path is not None and path != "-"}
    for option, path in outputs.items():
        if path is None or (path == "-" and option in to_stdout):
            continue
        if path == "-":
            raise InputError(f"{option} -: only {' and '.join(to_stdout)} goes to standard output" if to_stdout else
                             f"{option} -: name a file; nothing of this goes to standard output")
        check_writable(path)
        other = taken.setdefault(real(path), f"the output of {option}")
        if other != f"the output of {option}" and (os.path.isfile(path) or not os.path.exists(path)):
            raise InputError(f"{show_path(path)}: {option} would overwrite {other}")


def real(path: str) -> str:
    """A path without links; as it is where it cannot be one: with a NUL, or letters that no file system can spell.

    >>> real("a\\0b") == "a\\0b"
    True
    """
    try:
        return os.path.realpath(path)
    except ValueError:
        return path


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
    except InputError:                                 # what was to be written, not where
        raise
    except ValueError as error:                        # a NUL in the name, or what no file system can spell
        raise InputError(f"{show_path(path)}: cannot write: no name of a file: {error}") from None


def _target(path: str) -> Path | None:
    """The file a path leads to through links; None for what is there and no plain file."""
    if not path:
        raise FileNotFoundError(2, "no file name")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(21, "Is a directory")
    return None if Path(path).exists() and not Path(path).is_file() else target


def _beside(target: Path, unlink: bool = False) -> tuple[int, str]:
    import tempfile
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=UNFINISHED, suffix=target.suffix)
    if unlink:
        os.unlink(name)
    return handle, name


def write_text(path: str, write: Callable[[IO[str]], None]) -> None:
    """Let ``write`` fill a text file that appears only when it is complete; packed where it ends in .gz or .zst."""
    with replacing(path) as name, open(name, "wb") as raw, _packing(path, raw) as packed, \
            io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as file:
        write(file)


def _packing(path: str, raw: IO[bytes]) -> IO[bytes]:
    """The same text gives the same bytes: gzip would put the time and the name into them."""
    if path.lower().endswith(".gz"):
        import gzip
        return cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
    if path.lower().endswith(".zst"):
        import zstandard
        return zstandard.ZstdCompressor().stream_writer(raw, closefd=False)
    return raw


def write_json(path: str, document: dict[str, Any]) -> None:
    """Strict JSON (no NaN) with a final line end; ``-`` is standard output."""
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    if path == "-":
        if sys.stdout is None:
            raise InputError("standard output is closed")
        sys.stdout.write(text)
    else:
        write_text(path, lambda file: file.write(text) and None)


def deliver(document: dict[str, Any], target: str | None, quiet: bool, report: Callable[[], None], notes: Sequence[str]) -> None:
    """A result where it was asked for: as JSON, and for people unless JSON has standard output; then only its notes are said.

    Parameters
    ----------
    target : str or None
        Of ``--json``.
    report : callable
        Prints the result for people, notes and all.
    """
    if target is not None:
        write_json(target, document)
    if target != "-":
        report()
    elif not quiet:
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
