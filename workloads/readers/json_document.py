"""Files that are one JSON document: an object, or an array of objects too long to hold at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from workloads.messages import Place, complaint, json_fault, show
from workloads.readers.json_lines import DECODER, around, malformed, unheld
from workloads.readers.source import LONGEST_LINE_BYTES, Source, decode, whole_text

_GAP = " \t\r\n"


def document(source: Source) -> dict[str, Any]:
    """The one object a file holds.

    Raises
    ------
    InputError
        If it is malformed, too long, or no object.
    """
    text = whole_text(source)
    found, end = _parse(source.path, text, len(text) - len(text.lstrip()), source.first.line)
    if text[end:].strip():
        line = source.first.line + text.count("\n", 0, end)
        raise complaint(source.path, line, f"one JSON object is wanted, and more follows: {show(text[end:end + 40].strip())}")
    if not isinstance(found, dict):
        raise complaint(source.path, source.first.line, f"not a JSON object: {show(found)}")
    return found


def array_items(source: Source) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The objects of an array one by one, each with the line on which it begins; the file may be of any length.

    Raises
    ------
    InputError
        If the array is malformed, or an entry is no object or longer than 64 MiB.
    """
    reading = _Array(source)
    reading.expect("[")
    while not reading.next_is("]"):
        yield reading.item()
        if not reading.next_is("]"):
            reading.expect(",")
    reading.expect("]")
    if reading.next_is(""):
        return
    raise complaint(source.path, reading.line, "more follows the end of the array")


class _Array:
    """Text that is parsed from the front while more comes in at the back."""

    def __init__(self, source: Source) -> None:
        self._source, self._blocks = source, source.blocks()
        self._text, self._at = "", 0
        self.line = source.first.line

    def _more(self) -> bool:
        block = next(self._blocks, None)
        if block is None:
            return False
        self._text, self._at = self._text[self._at:] + decode(self._source.path, block), 0
        return True

    def next_is(self, letter: str) -> bool:
        """Whether the next letter that is no gap is this one; an empty one for the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _GAP:
                self._step(self._at + 1)
            if self._at < len(self._text):
                return self._text[self._at] == letter
            if not self._more():
                return letter == ""

    def expect(self, letter: str) -> None:
        """Go past this letter."""
        if not self.next_is(letter):
            found = self._text[self._at:self._at + 20]
            raise malformed(Place(self._source.path, self.line),
                            f"{letter} is wanted, not {show(found)}" if found else f"cut off where {letter} is wanted")
        self._step(self._at + 1)

    def item(self) -> tuple[Place, dict[str, Any]]:
        """The object that begins here."""
        place = Place(self._source.path, self.line)
        while True:
            try:
                found, end = DECODER.raw_decode(self._text, self._at)
                break
            except json.JSONDecodeError:
                if len(self._text) - self._at > LONGEST_LINE_BYTES:
                    raise complaint(place.path, place.line, f"an entry is longer than {LONGEST_LINE_BYTES >> 20} MiB") from None
                if not self._double():
                    found, end = _parse(self._source.path, self._text, self._at, self.line)
                    break
            except (RecursionError, ValueError, ArithmeticError):
                found, end = _parse(self._source.path, self._text, self._at, self.line)
                break
        if not isinstance(found, dict):
            raise complaint(place.path, place.line, f"not a JSON object: {show(found)}")
        self._step(end)
        return place, found

    def _double(self) -> bool:
        """Twice as much of an entry, so that a long one is not begun again for every block; whether there was any more."""
        wanted, more = min(2 * (len(self._text) - self._at), LONGEST_LINE_BYTES + 1), False
        while len(self._text) - self._at < wanted and self._more():
            more = True
        return more

    def _step(self, to: int) -> None:
        self.line += self._text.count("\n", self._at, to)
        self._at = to


def _parse(path: str, text: str, at: int, first_line: int) -> tuple[Any, int]:
    """One value that begins at ``at``, ``first_line`` being the line of that place."""
    try:
        return DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        line = first_line + text.count("\n", at, error.pos)
        column = error.pos - (text.rfind("\n", 0, error.pos) + 1) + 1
        raise malformed(Place(path, line), f"{json_fault(error, column)}: {around(text, error.pos)}") from None
    except RecursionError:
        raise malformed(Place(path, first_line), "nested too deep") from None
    except (ValueError, ArithmeticError) as error:
        raise malformed(Place(path, first_line), unheld(error)) from None
