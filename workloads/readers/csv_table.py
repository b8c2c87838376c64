"""CSV with a header line: columns by name, a block at a time.

A block of plain rows is read in numpy (`fast_fields`), or one column of it text by text; any other block row by row,
which takes quotes and names what is wrong. All ways give the same numbers.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workloads.messages import Place, bad_value, complaint, missing_column, show
from workloads.readers import fast_fields
from workloads.readers.fast_fields import Fields
from workloads.readers.kinds import Kind, Part
from workloads.readers.source import Block, Source, decode, first_line
from workloads.request import InputError

MOST_COMMENTS = 100
LINES = "line"
Columns = Mapping[str, tuple[str, int, Kind]]
"""By role: the name of a column, where it stands, and what it holds."""


@dataclass(frozen=True)
class CsvTable:
    """A CSV file whose header has been read."""

    path: str
    header: tuple[str, ...]
    header_line: int
    blocks: Iterator[Block]
    comments: tuple[str, ...] = ()

    def read(self, wanted: Mapping[str, tuple[str, Kind]], lines: bool = False) -> dict[str, list[Part]]:
        """Columns by role, one array a block; rows in file order.

        Parameters
        ----------
        wanted : mapping of role to the name of a column and what it holds
        lines : bool
            Also the number of the line each row stands on, under LINES.

        Raises
        ------
        InputError
            For the first bad row; and if a column is missing, stands there twice, or there are no rows.
        """
        columns = {role: (name, self._index(name), kind) for role, (name, kind) in wanted.items()}
        parts: dict[str, list[Part]] = {role: [] for role in (*wanted, *((LINES,) if lines else ()))}
        for block in self.blocks:
            if not block.data.strip():
                continue
            if not block.data.isascii():
                decode(self.path, block)               # what nobody reads is text as well
            arrays = self._fast(block, columns) or self._slow(block, columns)
            for role, array in arrays.items():
                parts[role].append(array)
            if lines:
                parts[LINES].append(_lines_of_rows(block))
        if not any(len(part) for part in next(iter(parts.values()))):
            raise complaint(self.path, self.header_line, "a header, and no rows after it")
        return parts

    def _index(self, name: str) -> int:
        place = Place(self.path, self.header_line)
        if name not in self.header:
            raise missing_column(place, name, self.header)
        if self.header.count(name) > 1:
            raise bad_value(place, name, "stands in the header more than once")
        return self.header.index(name)

    def _fast(self, block: Block, columns: Columns) -> dict[str, Part] | None:
        split = fast_fields.split_block(block.data, len(self.header))
        if split is None:
            return None
        arrays: dict[str, Part] = {}
        for role, (_, index, kind) in columns.items():
            fields = split[index]
            array = kind.fast(fields)
            if array is None:
                array = _each(fields, kind)
            if array is None:
                return None
            arrays[role] = array
        return arrays

    def _slow(self, block: Block, columns: Columns) -> dict[str, Part]:
        found: dict[str, list[Any]] = {role: [] for role in columns}
        for line, text in enumerate(decode(self.path, block).split("\n"), start=block.line):
            if not text.strip():
                continue
            place = Place(self.path, line)
            fields = split_row(place, text)
            if len(fields) > len(self.header):
                raise self._misfit(place, fields)
            for role, column in columns.items():
                found[role].append(self._one(place, fields, column))
            if len(fields) < len(self.header):
                raise self._misfit(place, fields)
        return {role: kind.pack(found[role]) for role, (_, _, kind) in columns.items()}

    def _misfit(self, place: Place, fields: Sequence[str]) -> InputError:
        counts = f"{len(fields)} fields, but the header has {len(self.header)}"
        return complaint(place.path, place.line, f"{counts}: {show(','.join(fields))}")

    def _one(self, place: Place, fields: Sequence[str], column: tuple[str, int, Kind]) -> Any:
        name, index, kind = column
        if index >= len(fields):
            have, want = len(fields), len(self.header)
            raise bad_value(place, name, f"missing; the row {show(','.join(fields))} has {have} of {want} fields")
        text = fields[index].strip()
        try:
            return kind.slow(text)
        except ValueError as error:
            raise bad_value(place, name, f"{show(text)} {error}") from None


def _lines_of_rows(block: Block) -> Part:
    texts = enumerate(block.data.split(b"\n"), start=block.line)
    return np.array([line for line, text in texts if text and text.decode("utf-8", "replace").strip()], np.int64)


def _each(fields: Fields, kind: Kind) -> Part | None:
    """One column of a plain block by its texts; None leaves the complaint to the way row by row."""
    data = fields.data.tobytes()
    spans = zip(fields.starts.tolist(), fields.ends.tolist(), strict=True)
    try:
        return kind.pack([kind.slow(data[start:end].decode().strip()) for start, end in spans])
    except ValueError:  # a bad value, or no UTF-8
        return None


def open_csv(source: Source) -> CsvTable:
    """Read the header, and the lines beginning with # before it.

    Raises
    ------
    InputError
        If the header is no line of CSV.
    """
    comments, line, text, rest = _header(source)

    def blocks() -> Iterator[Block]:
        yield rest
        yield from source.rest

    return CsvTable(source.path, _names(source.path, line, text), line, blocks(), comments)


def header_names(source: Source) -> tuple[str, ...]:
    """The names in the header; what follows stays unread."""
    _, line, text, _ = _header(source)
    return _names(source.path, line, text)


def _names(path: str, line: int, text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in split_row(Place(path, line), text))


def _header(source: Source) -> tuple[tuple[str, ...], int, str, Block]:
    """Comments, the line number and the text of the header, and what follows it in the first block."""
    comments: list[str] = []
    while True:
        line, text, rest = first_line(source)
        if not text.startswith("#"):
            return tuple(comments), line, text, rest
        comments.append(text[1:].strip())
        if not rest.data.strip() or len(comments) > MOST_COMMENTS:
            raise complaint(source.path, line, "comments, and no header after them")
        source = replace(source, first=rest)


def split_row(place: Place, text: str) -> list[str]:
    """The fields of one row.

    >>> split_row(Place("a.csv", 1), '"1,5",2')
    ['1,5', '2']
    """
    text = text.rstrip("\r")
    if '"' not in text and "\r" not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True, skipinitialspace=True))
    except csv.Error as error:
        reason = "a quote is not closed" if "end of data" in str(error) else str(error)
        raise complaint(place.path, place.line, f"malformed CSV: {reason}: {show(text)}") from None
