"""Trace formats that can be written: one module each, and one line in WRITERS, which is the only list.

Few formats hold all a trace has. Every writer says beforehand what the file will not tell as the trace did, as `Change`s:

    Trace -> changes(trace)   what is lost, what only looks different        said aloud, an error with --strict
          -> write(trace)     text into a file handle; opening, packing and naming files is the caller's

What no change names comes back from `readers` as it was: ``read(write(trace)).differences(trace)`` is the list of their columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from workloads.request import InputError, Trace
from workloads.writers import azure, mooncake, own_csv, qwen
from workloads.writers.common import Change, Writer

WRITERS: dict[str, Writer] = {writer.name: writer for writer in (own_csv.WRITER, mooncake.WRITER, azure.WRITER, qwen.WRITER)}

__all__ = ["WRITERS", "Change", "Writer", "changes", "write_trace"]


def changes(trace: Trace, format: str) -> tuple[Change, ...]:
    """What a file of that format will not tell as the trace does.

    Parameters
    ----------
    trace : Trace
        With at least one request.
    format : str
        A name in WRITERS.

    Raises
    ------
    InputError
        If the format needs what the trace has not: a request, times, prefix identity.

    >>> import numpy as np
    >>> trace = Trace("a", np.array([5]), np.array([9]), priority=np.array([3]))
    >>> [(change.column, change.lost) for change in changes(trace, "mooncake")], changes(trace, "csv")
    ([('priority', False)], ())
    """
    writer = WRITERS[format]
    if not len(trace):
        raise InputError("there is no request to write")
    for column, about in (("arrival_us", "arrival times"), ("content", "prefix identity")):
        if column in writer.needs and getattr(trace, column) is None:
            raise InputError(f"{format} needs {about}, and {trace.source} has none")
    return writer.changes(trace)


def write_trace(trace: Trace, format: str, file: IO[str], comments: Sequence[str] = ()) -> None:
    """Write a trace as text.

    Parameters
    ----------
    trace : Trace
        As `changes` takes it; its `made_by` goes into the file where the format has a place.
    format : str
        A name in WRITERS.
    file : text file handle
    comments : sequence of str
        Lines for the head of the file, where the format has comments.

    Examples
    --------
    >>> import io, numpy as np
    >>> file = io.StringIO()
    >>> write_trace(Trace("a", np.array([5]), np.array([9]), made_by="hand"), "csv", file)
    >>> print(file.getvalue(), end="")
    # made by: hand
    prompt_tokens,output_tokens
    5,9
    """
    WRITERS[format].write(trace, file, comments)
