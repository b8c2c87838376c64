"""What is wrong at a key of a scenario, and on which line of the file that is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from workloads.request import InputError

T = TypeVar("T")


class Wrong(Exception):
    """Something is wrong at ``section.key``."""

    def __init__(self, problem: str, *keys: str) -> None:
        super().__init__(problem)
        self.problem, self.keys = problem, keys


def at(keys: tuple[str, ...], function: Callable[..., T], *arguments: Any) -> T:
    """The outcome of a function; what it complains about is said with the keys, section first.

    Raises
    ------
    Wrong
    """
    try:
        return function(*arguments)
    except InputError as error:
        raise Wrong(str(error), *keys) from None


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
