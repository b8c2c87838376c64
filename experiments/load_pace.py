"""A recording as it might have come about, or at another pace: ``--resample`` and ``--speed``."""

from __future__ import annotations

import argparse

import numpy as np

from workloads.request import InputError, Trace
from workloads.resampling import resample
from workloads.scaling import scale_times
from workloads.transform import from_zero


def resampled(trace: Trace, options: argparse.Namespace, rng: np.random.Generator, notes: list[str]) -> Trace:
    """Windows of the trace, drawn with replacement.

    Raises
    ------
    InputError
        If all requests arrive at once, or the trace cannot be cut into windows.
    """
    if options.saturate:
        raise InputError("--resample has no meaning with --saturate: all requests arrive at once")
    if trace.closed_loop:
        raise InputError(f"the turns of {trace.source} follow each other: --resample needs --open-loop")
    try:
        made = resample(trace, round(options.resample * 10**6), rng)
    except ValueError as error:
        raise InputError(f"--resample: {error}") from None
    if not len(made):
        raise InputError(f"--resample: the windows that were drawn hold no request of {trace.source}")
    notes.append(f"resampled: windows of {float(options.resample):,g} s of {trace.source}, drawn with replacement (seed "
                 f"{options.seed}): {len(made):,} requests come of {len(trace):,}")
    return made


def at_speed(trace: Trace, options: argparse.Namespace, notes: list[str]) -> Trace:
    """The trace at so many times its pace.

    Raises
    ------
    InputError
        If there is no pace, or a time would be too long.
    """
    if options.saturate:
        raise InputError("--speed has no meaning with --saturate: all requests arrive at once")
    try:
        made = scale_times(from_zero(trace), options.speed)
    except ValueError as error:
        raise InputError(f"--speed: {error}") from None
    think = ", think times stay" if trace.closed_loop else ""
    notes.append(f"requests arrive {float(options.speed):,g} times as fast as recorded: over {made.duration_s:,.1f} s, not "
                 f"{trace.duration_s:,.1f} s{think}")
    return made
