"""Public trace formats: one module each, and one line in READERS, which is the only list.

Data flows  source (bytes, limits) -> csv_table | json_lines (rows) -> a format (columns) -> common.Rows -> Trace.
`fast_fields`, `times` and `values` read numbers; `messages` words the complaints.
"""

from __future__ import annotations

import os

from workloads.readers import azure, lengths, mooncake, vidur
from workloads.readers.common import LIKELY, Head, Reader, head_of
from workloads.readers.messages import complaint, show, show_names
from workloads.readers.source import Source, first_line, open_source
from workloads.request import InputError, Trace

READERS: dict[str, Reader] = {
    "azure": azure.READER,
    "mooncake": mooncake.READER,
    "vidur": vidur.READER,
    "lengths": lengths.READER,
}

__all__ = ["READERS", "Reader", "read_trace"]


def read_trace(path: str | os.PathLike[str], format: str | None = None) -> Trace:
    """Read a request trace, plain or gzip-compressed.

    Parameters
    ----------
    path : str or path
        The file; its name tells nothing about the format.
    format : str, optional
        A name in READERS; by default the format is told by the content.

    Returns
    -------
    Trace
        With `source` the path as given, sorted stably by time where there are times, times from the first request.

    Raises
    ------
    InputError
        On one line, with file, line, column and value where there are such.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "any.name")
    >>> _ = path.write_text("prompt_tokens,output_tokens\\n21,518\\n8,66\\n")
    >>> read_trace(path).output_tokens
    array([518,  66])
    """
    if format is not None and format not in READERS:
        raise InputError(f"unknown trace format {show(format)}; the formats are {', '.join(READERS)}")
    source = open_source(os.fspath(path))
    return READERS[format or _sniff(source)].read(source)


def _sniff(source: Source) -> str:
    """The name of the format that fits best."""
    head = head_of(source)
    scores = {name: reader.score(head) for name, reader in READERS.items()}
    best = max(scores, key=scores.__getitem__)  # the first of equals
    if scores[best] < LIKELY:
        raise _unknown(source, head)
    return best


def _unknown(source: Source, head: Head) -> InputError:
    names = ", ".join(READERS)
    problem = f"unknown trace format: the columns are {show_names(head.columns)}; the formats are {names}"
    return complaint(source.path, first_line(source)[0], problem)
