"""The table of a sweep as CSV and Parquet, a row a point; floats as Python writes them, so that nothing is rounded."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from typing import IO, Any

from experiments.output import replacing, write_text
from experiments.whatif.outcome import Outcome
from workloads.request import InputError

LONG = ("result",)                                     # whole JSON documents: in the store, not in tables


def write_csv(outcome: Outcome, folder: str) -> str:
    """``results.csv``; a value that is not there is empty."""
    path = os.path.join(folder, "results.csv")
    names = table_columns(outcome)

    def write(file: IO[str]) -> None:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(row[name]) for name in names] for row in outcome.rows)
    write_text(path, write)
    return path


def write_parquet(outcome: Outcome, folder: str) -> str:
    """``results.parquet``, by pyarrow (`check_parquet`); a column of numbers and texts becomes texts."""
    import pyarrow
    import pyarrow.parquet
    columns = {name: _column([row[name] for row in outcome.rows]) for name in table_columns(outcome)}
    path = os.path.join(folder, "results.parquet")
    with replacing(path) as name:
        pyarrow.parquet.write_table(pyarrow.table(columns), name)
    return path


def check_parquet() -> None:
    """Say it before the work where Parquet cannot be written.

    Raises
    ------
    InputError
        If pyarrow is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise InputError("--parquet needs the package pyarrow: pip install 'pagedsim[parquet]'") from None


def table_columns(outcome: Outcome) -> list[str]:
    """Names of the columns."""
    return [name for name in outcome.columns if name not in LONG]


def _text(value: Any) -> Any:
    return "" if value is None else repr(value) if isinstance(value, float) else value


def _column(values: Sequence[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or len(kinds) <= 1:
        return list(values)
    return [None if value is None else str(value) for value in values]
