"""Times of the lines of a server's log: of docker or Kubernetes, with a year, or vLLM's own, without."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

YEAR = timedelta(days=366)
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?"
                  r"(?:Z|([+-])(\d\d):?(\d\d)\b)?")
_OWN = re.compile(r"(?:INFO|WARNING|DEBUG|ERROR)\s+(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")


class Stamp(NamedTuple):
    """The times of one line in seconds: with a year, and vLLM's own; None where it has none."""

    with_year: float | None
    own: float | None


def stamp_of(text: str) -> Stamp:
    """The times that stand in a line.

    >>> stamp_of("1970-01-01T00:01:00.5Z INFO 01-01 00:01:00 [loggers.py:1]").with_year
    60.5
    """
    return Stamp(_with_year(text), _own_time(text))


def times_of(stamps: Sequence[Stamp]) -> list[float] | None:
    """One clock for all lines: the one with a year if every line has it, else vLLM's own; None if neither is in all."""
    with_year = [stamp.with_year for stamp in stamps if stamp.with_year is not None]
    own = [stamp.own for stamp in stamps if stamp.own is not None]
    if len(with_year) == len(stamps):
        return with_year
    return list(_over_new_year(own)) if len(own) == len(stamps) else None


def _with_year(text: str) -> float | None:
    match = _ISO.search(text)
    if match is None:
        return None
    time = _seconds([int(part) for part in match.groups()[:6]])
    if time is None:
        return None
    sign, hours, minutes = match.groups()[7:]
    offset = 0 if sign is None else (1 if sign == "+" else -1) * (int(hours) * 3600 + int(minutes) * 60)
    return time - offset + (int(match[7].ljust(9, "0")) / 1e9 if match[7] else 0.0)


def _own_time(text: str) -> float | None:
    """vLLM's own time has no year; a leap year, so that every day is one."""
    match = _OWN.search(text)
    return None if match is None else _seconds([2000, *(int(part) for part in match.groups())])


def _seconds(parts: list[int]) -> float | None:
    try:
        return (datetime(*parts) - datetime(1970, 1, 1)).total_seconds()        # type: ignore[arg-type]
    except ValueError:
        return None


def _over_new_year(times: list[float]) -> Iterator[float]:
    """After the last day of the year the first one comes.

    >>> list(_over_new_year([31_000_000.0, 10.0, 20.0]))
    [31000000.0, 31622410.0, 31622420.0]
    """
    added, last = 0.0, None
    for time in times:
        if last is not None and time + added < last - YEAR.total_seconds() / 2:
            added += YEAR.total_seconds()
        last = time + added
        yield last
