"""JSON lines: one object a line. Numbers with a point stay decimal text, so that no digit of a time is lost.

Lines are parsed some hundreds at once, and where one of them is not simply an object they are read one by one: that tells a
blank line from a bad one, and says what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

from workloads.messages import Place, complaint, json_fault, show
from workloads.readers.source import Source, decode
from workloads.request import InputError

BLANK = " \t\r\n"
AT_ONCE = 256                                          # lines: few enough for a processor's cache to hold what comes of them


class Objects(NamedTuple):
    """Objects on successive lines, the line numbers, and whether a true or false may be among the values."""

    path: str
    lines: Sequence[int]
    rows: list[dict[str, Any]]
    flags: bool

    def placed(self) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Each with where it stands."""
        for line, row in zip(self.lines, self.rows, strict=True):
            yield Place(self.path, line), row


def json_rows(source: Source) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Every line that is not blank as an object, with where it stands.

    Raises
    ------
    InputError
        For the first line that is no JSON object.
    """
    for objects in json_objects(source):
        yield from objects.placed()


def json_objects(source: Source) -> Iterator[Objects]:
    """The same, many at once; those before a bad line come before the error.

    Raises
    ------
    InputError
        For the first line that is no JSON object.
    """
    for block in source.blocks():
        text = decode(source.path, block)
        flags, lines = "true" in text or "false" in text, text.split("\n")
        if not lines[-1]:
            lines.pop()                                # what follows the last line end
        for start in range(0, len(lines), AT_ONCE):
            some, number = lines[start:start + AT_ONCE], block.line + start
            rows = _all_objects(some)
            if rows is not None:
                yield Objects(source.path, range(number, number + len(rows)), rows, flags)
            else:
                yield from _one_by_one(source.path, number, some)


def _all_objects(lines: list[str]) -> list[dict[str, Any]] | None:
    """The object on each line; None if there is a line without one, or with anything besides."""
    try:
        found = list(map(DECODER.raw_decode, lines))
    except (RecursionError, ValueError, ArithmeticError):
        return None
    rows, ends = [row for row, _ in found], [end for _, end in found]
    if set(map(type, rows)) != {dict}:
        return None
    if ends != list(map(len, lines)) and any(line[end:].strip(BLANK) for line, end in zip(lines, ends, strict=True)):
        return None
    return rows


def _one_by_one(path: str, first: int, lines: list[str]) -> Iterator[Objects]:
    for number, line in enumerate(lines, start=first):
        if line.strip(BLANK):
            yield Objects(path, (number,), [parse_object(Place(path, number), line)], flags=True)


def parse_object(place: Place, text: str) -> dict[str, Any]:
    """One JSON object.

    Raises
    ------
    InputError
        If the text is malformed, says NaN or Infinity, nests too deep, or is no object.

    >>> parse_object(Place("a.jsonl", 1), '{"timestamp": 1.50}')
    {'timestamp': Decimal('1.50')}
    """
    try:
        row = DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise malformed(place, f"{json_fault(error, error.pos + 1)}: {around(text, error.pos)}") from None
    except RecursionError:
        raise malformed(place, "nested too deep") from None
    except (ValueError, ArithmeticError) as error:
        raise malformed(place, unheld(error)) from None
    if not isinstance(row, dict):
        raise complaint(place.path, place.line, f"not a JSON object: {show(row)}")
    return row


def malformed(place: Place, reason: str) -> InputError:
    """An InputError about JSON."""
    return complaint(place.path, place.line, f"malformed JSON: {reason}")


def unheld(error: ValueError | ArithmeticError) -> str:
    """What is wrong with a number: a constant of ours, digits beyond Python's limit for integers, or beyond Decimal's."""
    return "a number with an exponent beyond all use" if isinstance(error, ArithmeticError) else str(error).partition(";")[0]


def around(text: str, position: int) -> str:
    """The text near a fault."""
    return show(text[max(position - 25, 0) : position + 25].rstrip("\r"))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant)
