"""Single lengths, times and ids: what is accepted, and the reason when it is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from workloads.messages import Place, bad_value, missing_column, show
from workloads.readers.times import FINE_DIGITS, LATEST_S, fine_stamp
from workloads.request import IntArray

MOST_TOKENS = 2**31
MOST_SEQUENCES = 4096
MOST_ID = 2**63 - 1
TOO_FEW = "is no token at all: such a row is left out, unless --strict is asked for as here"
_WHOLE = re.compile(r"[+-]?[0-9]+")


def length_of_text(text: str, least: int = 0) -> int:
    """A token count from the text of a CSV field: digits only, at least ``least``.

    Raises
    ------
    ValueError
        With the reason.

    >>> length_of_text("374")
    374
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError("is not a whole number of tokens")
    if text.startswith("-") and text.strip("-0"):
        raise ValueError("is negative")
    digits = text.lstrip("+-0") or "0"
    if len(digits) > 10 or int(digits) > MOST_TOKENS:
        raise ValueError(f"is more than {MOST_TOKENS} tokens")
    if int(digits) < least:
        raise ValueError(TOO_FEW)
    return int(digits)


def count_of_text(text: str) -> int:
    """A number of sequences from the text of a CSV field: digits only, at least 1.

    Raises
    ------
    ValueError
        With the reason.

    >>> count_of_text("4")
    4
    """
    return _whole(text, 1, MOST_SEQUENCES)


def whole_of_text(text: str) -> int:
    """A whole number from 0 to 2**63 - 1 from the text of a CSV field; nothing there is -1, for none.

    Raises
    ------
    ValueError
        With the reason.

    >>> whole_of_text("12"), whole_of_text("")
    (12, -1)
    """
    if not text or text == "-1":
        return -1
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > MOST_ID:
        raise ValueError("is not a whole number from 0 to 2**63 - 1")
    return int(text)


def ids_of_text(text: str) -> IntArray:
    """Content ids from one CSV field, spaces between them.

    Raises
    ------
    ValueError
        With the reason.

    >>> ids_of_text("7 8 12")
    array([ 7,  8, 12])
    """
    words = text.split()
    if not all(word.isascii() and word.isdigit() and len(word) <= 19 and int(word) <= MOST_ID for word in words):
        raise ValueError("is not a list of ids (whole numbers up to 2**63 - 1) with spaces between them")
    return np.array(words, np.int64)


def priority_of_text(text: str) -> int:
    """A priority from the text of a CSV field: a whole number, perhaps negative; smaller is more urgent.

    Raises
    ------
    ValueError
        With the reason.

    >>> priority_of_text("-3")
    -3
    """
    return _whole(text, -MOST_TOKENS, MOST_TOKENS)


def _whole(text: str, least: int, most: int) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise ValueError("is not a whole number")
    if len(text.lstrip("+-0")) > 10 or not least <= int(text) <= most:
        raise ValueError(f"is not from {least} to {most}")
    return int(text)


def length_of(row: Mapping[str, Any], column: str, place: Place, least: int = 0) -> int:
    """A token count of a JSON object.

    Raises
    ------
    InputError
        If it is missing, no integer (true and "12" are none), negative, below ``least`` or over 2**31.

    >>> length_of({"input_length": 12}, "input_length", Place("a.jsonl", 1))
    12
    """
    value = _value(row, column, place)
    if type(value) is not int:  # bool is a subclass of int, and no length
        raise bad_value(place, column, f"{show(value)} is not a whole number of tokens")
    if value < 0:
        raise bad_value(place, column, f"{show(value)} is negative")
    if value > MOST_TOKENS:
        raise bad_value(place, column, f"{show(value)} is more than {MOST_TOKENS} tokens")
    if value < least:
        raise bad_value(place, column, f"{show(value)} {TOO_FEW}")
    return value


def stamp_of(row: Mapping[str, Any], column: str, place: Place, unit_exponent: int) -> int:
    """A time of a JSON object, a number of 10**unit_exponent seconds, in units of 1e-40 s.

    Raises
    ------
    InputError
        If it is missing, no number, negative or beyond what `times.fine_stamp` takes.
    """
    value = _value(row, column, place)
    if type(value) is not int and type(value) is not Decimal:
        raise bad_value(place, column, f"{show(value)} is not a number")
    if type(value) is int and 0 <= value <= LATEST_S:  # nearly all; the rest goes by its digits
        return value * int(10 ** (FINE_DIGITS + unit_exponent))
    try:
        return fine_stamp(str(value), unit_exponent)
    except ValueError as error:
        raise bad_value(place, column, f"{show(value)} {error}") from None


def later(place: Place, column: str, stamp: int, by: int) -> int:
    """A stamp after another, both in units of 1e-40 s; InputError if that is over 1e12 s."""
    if stamp + by > LATEST_S * 10**FINE_DIGITS:
        raise bad_value(place, column, "comes to a time over 1e12 seconds, counted from the one before it")
    return stamp + by


def ids_of(row: Mapping[str, Any], column: str, place: Place) -> list[int]:
    """A list of content ids of a JSON object.

    Raises
    ------
    InputError
        If it is missing, no list, or has an entry that is no integer from 0 to 2**63 - 1.

    >>> ids_of({"hash_ids": [0, 1]}, "hash_ids", Place("a.jsonl", 1))
    [0, 1]
    """
    ids = _value(row, column, place)
    if not isinstance(ids, list):
        raise bad_value(place, column, f"{show(ids)} is not a list of ids")
    if ids and (set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) > MOST_ID):
        wrong = next(one for one in ids if type(one) is not int or not 0 <= one <= MOST_ID)
        raise bad_value(place, column, f"{show(wrong)} is not an id (a whole number from 0 to 2**63 - 1)")
    return ids


def name_of(row: Mapping[str, Any], column: str, place: Place) -> str | int:
    """A name of a request or session: a text, or a whole number.

    Raises
    ------
    InputError
        If it is missing, or neither.
    """
    name = _value(row, column, place)
    if type(name) is not int and not isinstance(name, str):
        raise bad_value(place, column, f"{show(name)} is no name (a text or a whole number)")
    return name


def text_of(row: Mapping[str, Any], column: str, place: Place) -> str:
    """A text; InputError if it is missing or none."""
    text = _value(row, column, place)
    if not isinstance(text, str):
        raise bad_value(place, column, f"{show(text)} is not a text")
    return text


def _value(row: Mapping[str, Any], column: str, place: Place) -> Any:
    if column not in row:
        raise missing_column(place, column, list(row))
    return row[column]
