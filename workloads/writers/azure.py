"""Azure's: TIMESTAMP,ContextTokens,GeneratedTokens, and nothing else. Times are on a day that is made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import numpy as np

from workloads.request import InputError, Trace
from workloads.writers.common import Change, Writer, from_the_first, left_out

DAY = "2000-01-01"
LATEST_US = 261 * 365 * 86_400 * 10**6                 # the reader's years end with 2261
LOST = ("max_tokens", "session", "think_us", "priority", "samples", "beam_width", "content")


def changes(trace: Trace) -> tuple[Change, ...]:
    """Everything but times and lengths."""
    made = [*from_the_first(trace), *left_out(trace, "azure", LOST),
            Change(None, f"times are counted from {DAY} 00:00:00, a day made up", False)]
    if trace.made_by is not None:
        made.append(Change("made_by", "azure has no place for the command that made the trace", False))
    return tuple(made)


def write(trace: Trace, file: IO[str], comments: Sequence[str] = ()) -> None:
    """A header, and one line a request.

    Raises
    ------
    InputError
        If the trace is longer than 261 years.
    """
    assert trace.arrival_us is not None
    if int(trace.arrival_us[-1]) > LATEST_US:
        raise InputError(f"{int(trace.arrival_us[-1]) / 1e6:,.0f} s from {DAY} on is later than a calendar time here can be")
    file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    stamps = np.datetime_as_string(np.datetime64(DAY, "us") + trace.arrival_us.astype("timedelta64[us]"))
    rows = zip(stamps.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    file.writelines(f"{stamp.replace('T', ' ')},{prompt},{output}\n" for stamp, prompt, output in rows)


WRITER = Writer("azure", None, "times to the microsecond, and lengths", changes, write, ("arrival_us",))
