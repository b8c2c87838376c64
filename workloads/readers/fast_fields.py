"""Fields of many CSV rows at once, in numpy: where they stand, and numbers and times out of their digits.

Every function here answers None when a row is not of the plain kind; the caller then reads the same block row by row
(`csv_table`), which also finds what to complain about. So this module knows no errors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.readers.times import YEARS
from workloads.readers.values import MOST_TOKENS
from workloads.request import IntArray

ZERO, POINT, COMMA, LINE_END = ord("0"), ord("."), ord(","), ord("\n")
SECONDS_TEXT = len("YYYY-MM-DD HH:MM:SS")
UTC = b"+00:00"


class Fields(NamedTuple):
    """One column of a block: row ``r`` is ``data[starts[r]:ends[r]]``."""

    data: NDArray[np.uint8]
    starts: IntArray
    ends: IntArray


def split_block(data: bytes, columns: int) -> list[Fields] | None:
    """All columns of a block whose rows have the same number of unquoted fields; blank lines are left out."""
    if b'"' in data:
        return None
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    while b"\n\n" in data:
        data = data.replace(b"\n\n", b"\n")
    data = data.strip(b"\n") + b"\n"
    letters = np.frombuffer(data, dtype=np.uint8)
    marks = np.flatnonzero((letters == COMMA) | (letters == LINE_END))
    if len(marks) % columns:
        return None
    ends = marks.reshape(-1, columns)
    kinds = letters[ends]
    if np.any(kinds[:, -1] != LINE_END) or np.any(kinds[:, :-1] != COMMA):
        return None
    starts = np.concatenate(([0], marks[:-1] + 1)).reshape(-1, columns)
    # whole columns are faster to index than strided ones
    pairs = zip(np.ascontiguousarray(starts.T), np.ascontiguousarray(ends.T), strict=True)
    return [Fields(letters, start, end) for start, end in pairs]


def lengths(fields: Fields, least: int = 0) -> IntArray | None:
    """Token counts from ``least`` to MOST_TOKENS."""
    values = _unsigned(fields, most_digits=10)
    return None if values is None or int(values.max()) > MOST_TOKENS or int(values.min()) < least else values


def whole(fields: Fields) -> IntArray | None:
    """Whole numbers of at most 18 digits."""
    return _unsigned(fields, most_digits=18)


def nanoseconds(fields: Fields, unit_exponent: int = 0) -> IntArray | None:
    """Nanoseconds from numbers of 10**unit_exponent seconds such as 4.314579: no digit below the nanosecond."""
    data, starts, ends = fields
    points = np.append(np.flatnonzero(data == POINT), len(data))
    point = np.minimum(points[np.searchsorted(points, starts)], ends)
    unit = 10 ** (9 + unit_exponent)
    whole = _unsigned(Fields(data, starts, point), most_digits=18)
    part = _fraction_ns(Fields(data, point, ends))
    if whole is None or part is None or int(whole.max()) >= 9 * 10**18 // unit or np.any(part * unit % 10**9):
        return None
    return np.asarray(whole * unit + part * unit // 10**9, dtype=np.int64)


def iso_ns(fields: Fields) -> IntArray | None:
    """Nanoseconds since 1970 from YYYY-MM-DD HH:MM:SS, up to 9 digits after the point, and +00:00 or nothing."""
    data, starts, ends = fields
    if int((ends - starts).min()) < SECONDS_TEXT:
        return None
    ends = _without_utc(fields)
    part = _fraction_ns(Fields(data, starts + SECONDS_TEXT, ends))
    whole = _calendar_seconds(data, starts)
    if whole is None or part is None:
        return None
    return np.asarray(whole * 10**9 + part, dtype=np.int64)


def _unsigned(fields: Fields, most_digits: int) -> IntArray | None:
    """Numbers of 1 to `most_digits` digits."""
    data, starts, ends = fields
    widths = ends - starts
    widest = int(widths.max())
    if int(widths.min()) < 1 or widest > most_digits:
        return None
    values = np.zeros(len(starts), dtype=np.int64)
    for place in range(widest):
        inside = place < widths
        digits = data[np.minimum(starts + place, len(data) - 1)] - ZERO  # below '0' wraps round to over 9
        if np.any(inside & (digits > 9)):
            return None
        values = np.where(inside, values * 10 + digits, values)
    return values


def _fraction_ns(fields: Fields) -> IntArray | None:
    """Nanoseconds from a point and 1 to 9 digits, or 0 from nothing at all."""
    data, starts, ends = fields
    widths = ends - starts
    widest = int(widths.max())
    there = widths > 0
    if widest > 10 or int(widths.min()) < 0 or np.any(widths == 1):
        return None
    if np.any(there & (data[np.minimum(starts, len(data) - 1)] != POINT)):
        return None
    values = np.zeros(len(starts), dtype=np.int64)
    for place in range(1, widest):
        inside = place < widths
        digits = data[np.minimum(starts + place, len(data) - 1)] - ZERO
        if np.any(inside & (digits > 9)):
            return None
        values = values * 10 + np.where(inside, digits, 0)
    return values * int(10 ** (9 - max(widest - 1, 0)))


def _without_utc(fields: Fields) -> IntArray:
    """Where the fields end if a final +00:00 is left off."""
    data, starts, ends = fields
    after = np.maximum(ends - len(UTC), starts)
    utc = np.ones(len(ends), dtype=bool)
    for place, letter in enumerate(UTC):
        utc &= data[after + place] == letter
    return np.where(utc, after, ends)


def _calendar_seconds(data: NDArray[np.uint8], starts: IntArray) -> IntArray | None:
    """Seconds since 1970 of the first 19 letters of each field."""
    letters = [data[starts + place] for place in range(SECONDS_TEXT)]
    marks = {4: b"-", 7: b"-", 10: b" T", 13: b":", 16: b":"}
    if not all(np.isin(letters[place], list(mark)).all() for place, mark in marks.items()):
        return None
    digits = [letters[place] - ZERO for place in range(SECONDS_TEXT) if place not in marks]
    if any(int(digit.max()) > 9 for digit in digits):
        return None
    century, year, month, day, hour, minute, second = (
        10 * high.astype(np.int64) + low for high, low in zip(digits[::2], digits[1::2], strict=True)
    )
    year += 100 * century
    if np.any((year < YEARS[0]) | (year > YEARS[1]) | (month < 1) | (month > 12) | (day < 1)):
        return None
    if np.any((hour > 23) | (minute > 59) | (second > 59)):
        return None
    months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    days = months.astype("M8[D]").astype(np.int64)
    if np.any(days + day > (months + 1).astype("M8[D]").astype(np.int64)):
        return None
    return np.asarray(((days + day - 1) * 24 + hour) * 3600 + minute * 60 + second, dtype=np.int64)
