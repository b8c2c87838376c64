"""A table of measured operation points: CSV with one row a point.

    prompt_tokens,output_tokens,ttft_ms,tpot_ms,concurrency
    1024,128,61.5,9.8,1
    1024,128,488.0,14.1,16

Each row is a client that keeps ``concurrency`` (1 where there is no such column) equal requests in flight, as
``vllm bench serve --max-concurrency`` does: four rounds of them are simulated, and their means compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from experiments.calibration.cases import Case, Target
from experiments.calibration.column_names import COLUMNS, CONCURRENCY, LENGTHS, TIMES, check_names
from workloads.messages import Place, bad_value, complaint, missing_column, show, show_names
from workloads.readers.csv_table import LINES, CsvTable, open_csv
from workloads.readers.fast_fields import Fields
from workloads.readers.kinds import Kind, Part, length
from workloads.readers.source import Source
from workloads.request import Trace

ROUNDS = 4
MOST_POINTS, MOST_IN_FLIGHT, LONGEST_S = 10_000, 4096, 1e6
_NUMBER = re.compile(r"[+]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


def seconds_of_text(text: str) -> float:
    """A measured time: a number above 0; ValueError with the reason for anything else.

    >>> seconds_of_text("61.5")
    61.5
    """
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("is not a number above 0")
    value = float(text)
    if not (0 < value < math.inf):
        raise ValueError("is not a number above 0")
    return value


def _concurrency(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not 1 <= int(text) <= MOST_IN_FLIGHT:
        raise ValueError(f"is not a whole number from 1 to {MOST_IN_FLIGHT}")
    return int(text)


def _floats(found: Sequence[float]) -> Part:
    return np.array(found, np.float64)


def _never(fields: Fields) -> None:
    """No fast way."""


TIME = Kind(_never, seconds_of_text, _floats)
IN_FLIGHT = Kind(_never, _concurrency)


def read_table(source: Source) -> list[Case]:
    """One case a row.

    Raises
    ------
    InputError
        For a missing, unknown or doubled column, or a bad value.
    """
    table = open_csv(source)
    place = Place(table.path, table.header_line)
    check_names(place, table.header)
    for name in table.header:
        if name not in COLUMNS:
            raise bad_value(place, name, f"unknown; the columns of a table of measurements are {show_names(COLUMNS)}")
    for one, other in (("ttft_s", "ttft_ms"), ("tpot_s", "tpot_ms")):
        if one in table.header and other in table.header:
            raise bad_value(place, one, f"{other} stands there too: one of them")
    if not set(TIMES) & set(table.header):
        raise missing_column(place, "ttft_ms", table.header)
    return _cases(table, _wanted(table))


def _wanted(table: CsvTable) -> dict[str, tuple[str, Kind]]:
    wanted = {name: (name, length(1)) for name in LENGTHS}
    wanted |= {name: (name, TIME) for name in TIMES if name in table.header}
    if CONCURRENCY in table.header:
        wanted[CONCURRENCY] = (CONCURRENCY, IN_FLIGHT)
    return wanted


def _cases(table: CsvTable, wanted: dict[str, tuple[str, Kind]]) -> list[Case]:
    parts = table.read(wanted, lines=True)
    columns = {name: np.concatenate(found) for name, found in parts.items()}
    lines = columns[LINES].tolist()
    if len(lines) > MOST_POINTS:
        raise complaint(table.path, lines[MOST_POINTS], f"more than {MOST_POINTS:,} measured points")
    cases = []
    for row, line in enumerate(lines):
        prompt, output = (int(columns[name][row]) for name in LENGTHS)
        flight = int(columns[CONCURRENCY][row]) if CONCURRENCY in columns else 1
        targets = [_target(table.path, line, name, columns[name][row]) for name in TIMES if name in columns]
        if output == 1:                                # no token after the first one
            targets = [target for target in targets if target.metric != "tpot"]
        cases.append(Case(f"line {line}: {prompt:,} + {output:,} tokens, {flight} at once", _requests(prompt, output, flight),
                          tuple(targets), flight))
    return cases


def _target(path: str, line: int, name: str, value: float) -> Target:
    seconds = value * TIMES[name]
    if seconds > LONGEST_S:
        raise bad_value(Place(path, line), name, f"{show(value)} is over {LONGEST_S:g} seconds")
    return Target(name[:4], "mean", np.array([seconds]))


def _requests(prompt: int, output: int, flight: int) -> Trace:
    """Equal requests, all there at once; alone they are all alike, so one is enough."""
    n = flight * ROUNDS if flight > 1 else 1
    return Trace("equal requests", np.full(n, prompt, np.int64), np.full(n, output, np.int64), np.zeros(n, np.int64))
