"""TOML that people write: read whole, and what is wrong in it said with the file and the line."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from workloads.messages import complaint, show_path
from workloads.request import InputError

# A dotted key makes a table a dot, and tomllib takes time and memory with the square of their number: none here has five.
_DEEPEST = 64
_DEEP_KEY = re.compile(r"""(?<![\w."'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){""" + str(_DEEPEST) + "}")


def decoded(text: bytes, path: str) -> str:
    """UTF-8, perhaps with a byte order mark, as text.

    Raises
    ------
    InputError
        Naming the file, the line and the byte.
    """
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise complaint(path, line, f"no TOML: byte {text[error.start]:#04x} is not UTF-8") from None


def load(text: str, path: str) -> dict[str, Any]:
    """The table that a text describes.

    Parameters
    ----------
    text : str
    path : str
        Where it came from, for complaints.

    Raises
    ------
    InputError
        On one line, with the file and, where it can be told, the line.

    >>> load("a = 1", "a.toml")
    {'a': 1}
    >>> try: load("a = 1\\nb = ", "a.toml")
    ... except InputError as error: print(error)
    a.toml:2: no TOML: Invalid value
    """
    deep = _DEEP_KEY.search(text)
    if deep is not None:
        raise complaint(path, text.count("\n", 0, deep.start()) + 1, f"no TOML: a key of more than {_DEEPEST} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"\(at line (\d+)", str(error))
        reason = " ".join(str(error).partition(" (at")[0].split())
        raise complaint(path, int(at[1]) if at else text.count("\n") + 1, f"no TOML: {reason}") from None
    except RecursionError:                             # brackets without end
        raise InputError(f"{show_path(path)}: no TOML: nested too deep") from None
    except ValueError as error:                        # digits beyond Python's limit
        raise InputError(f"{show_path(path)}: no TOML: {str(error).partition(';')[0]}") from None


def line_of(text: str, section: str, key: str = "") -> int | None:
    """The line where a key stands, 1 for the first; None where it cannot be told.

    >>> line_of("seeds = 3\\n[sweep]\\n\\nrate = [1]", "sweep", "rate"), line_of("seeds = 3", "seeds")
    (4, 1)
    """
    here = ""
    first = key.split(".")[0]
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*[\"']?([\w.-]+)", line)
        if header is not None:
            here = header[1]
            if here == section and not key:
                return number
        elif here == (section if key else "") and re.match(rf"\s*[\"']?{re.escape(first or section)}\b", line):
            return number
    return None


def line_of_path(text: str, path: str) -> int | None:
    """The line of a key with all tables around it, or of the innermost of them that has a line of its own.

    >>> line_of_path("[traffic]\\narrivals = 'poisson:rate=0'\\n[traffic.prefix]\\ntokens = 0", "traffic.arrivals.rate")
    2
    >>> line_of_path("seeds = 3\\n[arrivals]\\nrate = 0", "arrivals.rate"), line_of_path("seeds = 3", "prompt")
    (3, None)
    """
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        for cut in range(length, 0, -1):               # all of it a table or a dotted key; else a key in one of its tables
            line = line_of(text, ".".join(parts[:cut]), ".".join(parts[cut:length]))
            if line is not None:
                return line
    return None
