"""Whether turns of a conversation wait for the answer before them: the options, and what is said about it."""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from workloads.request import InputError, Trace, first_of_sessions


def looped(trace: Trace, options: argparse.Namespace, notes: list[str]) -> Trace:
    """The trace with the think times that were asked for, or without."""
    for name, asked in (("--think-time", options.think_time is not None), ("--open-loop", options.open_loop)):
        if asked and (trace.session is None or not np.any(trace.session >= 0)):
            raise InputError(f"{trace.source} has no sessions: {name} is for traces of conversations")
    if options.think_time is not None:
        return _closed(trace, options, notes)
    if trace.closed_loop and options.saturate:
        notes.append(f"the think times of {trace.source} are not used: with --saturate all requests arrive at once")
    elif trace.closed_loop and options.open_loop:
        notes.append(f"open loop: the think times of {trace.source} are not used, every request arrives at its own time")
    elif trace.closed_loop and options.shuffle:
        raise InputError(f"the turns of {trace.source} follow each other: --shuffle needs --open-loop (or --saturate)")
    return replace(trace, think_us=None) if options.saturate or options.open_loop else trace


def _closed(trace: Trace, options: argparse.Namespace, notes: list[str]) -> Trace:
    """Each later turn waits the same time for the answer before it."""
    if options.open_loop:
        raise InputError("--think-time closes the loop and --open-loop opens it: one of them")
    if options.saturate:
        raise InputError("--think-time has no meaning with --saturate: all requests arrive at once")
    if options.shuffle:
        raise InputError("--think-time lets turns follow each other, and --shuffle would mix them: one of them")
    if trace.closed_loop:
        notes.append(f"--think-time takes the place of the think times of {trace.source}")
    assert trace.session is not None
    return replace(trace, think_us=np.where(first_of_sessions(trace.session), -1, round(options.think_time * 1e6)))


def loop_note(trace: Trace, notes: list[str]) -> None:
    """Say how many requests wait, and how long."""
    if trace.closed_loop:
        assert trace.think_us is not None
        think = trace.think_us[trace.think_us >= 0]
        notes.append(f"closed loop: {len(think):,} of {len(trace):,} requests arrive after the answer before them, "
                     f"mean think time {round(think.mean() / 1e6, 3):,g} s")
