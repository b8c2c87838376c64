"""What every format shares: the Reader record, and telling formats apart by content."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workloads.later import Later
from workloads.messages import Place
from workloads.readers.json_lines import parse_object
from workloads.readers.rows import Rows
from workloads.readers.source import Source, first_line
from workloads.request import InputError, IntArray

if TYPE_CHECKING:
    from workloads.readers import csv_table
else:
    csv_table = Later("workloads.readers.csv_table")

CERTAIN = 100  # a score from here on: the file has every column the format needs
LIKELY = 50  # from here on: so near that its complaint about a missing column helps
LOOKED_AT = 1 << 20
_KEY = re.compile(r'"([A-Za-z_][\w ]{0,40})"\s*:')


@dataclass(frozen=True)
class Head:
    """The beginning of a file: column names of a CSV header, keys of the first object of JSON lines, or of a document.

    ``record`` is that first object; None in CSV, and where the first line is only the beginning of a document:
    then ``fault`` says why it is no object, ``text`` is the beginning, and ``keys`` those that stand there at any depth.
    """

    columns: tuple[str, ...]
    record: Mapping[str, Any] | None = None
    keys: frozenset[str] = frozenset()
    fault: InputError | None = None
    text: str = ""


@dataclass(frozen=True)
class Reader:
    """One trace format.

    Parameters
    ----------
    name : str
        What users type.
    about : str
        One line for people.
    score : Head -> int
        How well the beginning of a file fits; see `score_columns`.
    read : Source -> Rows
        Reads the file; raises InputError.
    """

    name: str
    about: str
    score: Callable[[Head], int]
    read: Callable[[Source], Rows]


def head_of(source: Source) -> Head:
    """What the beginning says about the format.

    Raises
    ------
    InputError
        If it is malformed CSV.
    """
    line, text, _ = first_line(source)
    if not text.lstrip().startswith(("{", "[")):
        return Head(csv_table.header_names(source))
    beginning = source.first.data[:LOOKED_AT].decode("utf-8", "replace")
    keys = frozenset(_KEY.findall(beginning))
    try:
        record = parse_object(Place(source.path, line), text)
    except InputError as fault:
        return Head((), None, keys, fault, beginning)
    return Head(tuple(record), record, keys, None, beginning)


def first_keys(source: Source) -> Sequence[str]:
    """Keys of the first line, which is to be an object; InputError if it is none."""
    line, text, _ = first_line(source)
    return list(parse_object(Place(source.path, line), text))


def score_columns(head: Head, needed: Sequence[str], optional: Sequence[str] = (), foreign: Sequence[str] = ()) -> int:
    """How well the columns fit: CERTAIN + the number known if all that are needed are there, else the share of these.

    A format that knows more of the columns wins over one that knows fewer. Columns in `foreign` belong to another format.

    >>> score_columns(Head(("a", "b", "c")), ["a", "b"]), score_columns(Head(("a", "c")), ["a", "b"])
    (102, 50)
    """
    if any(name in head.columns for name in foreign):
        return 0
    there = sum(name in head.columns for name in needed)
    known = there + sum(name in head.columns for name in optional)
    return CERTAIN + known if there == len(needed) else CERTAIN * there // len(needed)


def numbered(names: NDArray[Any]) -> IntArray:
    """Numbers in order of first appearance; -1 for an empty name.

    >>> numbered(np.array(["b", "a", "", "b"], object)).tolist()
    [0, 1, -1, 0]
    """
    known: dict[Any, int] = {"": -1}
    return np.array([known.setdefault(name, len(known) - 1) for name in names.tolist()], np.int64)
