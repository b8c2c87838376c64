"""JSON lines: one object a line. Numbers with a point stay decimal text, so that no digit of a time is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NoReturn

from workloads.messages import Place, complaint, json_fault, show
from workloads.readers.source import Source, decode
from workloads.request import InputError

BLANK = " \t\r\n"


def json_rows(source: Source) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Every line that is not blank as an object, with where it stands.

    Raises
    ------
    InputError
        For the first line that is no JSON object.
    """
    for block in source.blocks():
        for line, text in enumerate(decode(source.path, block).split("\n"), start=block.line):
            if text.strip(BLANK):
                place = Place(source.path, line)
                yield place, parse_object(place, text)


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
