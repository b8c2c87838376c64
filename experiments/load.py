"""From options to the trace: read or made, cut, given arrival times, priorities and sequences."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.pages import with_limit
from workloads import transform
from workloads.readers import read_trace
from workloads.request import InputError, Trace, first_of_sessions
from workloads.synthetic import chat_workload

DEFAULT_RATE = 2.0


def load_trace(options: argparse.Namespace, notes: list[str]) -> Trace:
    """Read or make the trace, cut it and give it arrival times."""
    lengths, arrivals, order = (np.random.default_rng(s) for s in np.random.SeedSequence(options.seed).spawn(3))
    if options.trace is None:
        if options.format is not None:
            raise InputError("--format is for a trace file, and none was given")
        trace = replace(_at_rate(options, chat_workload, rng=lengths), source=_chat_source(options))
    else:
        trace = read_trace(options.trace, options.format)
    trace = _looped(trace, options, notes)
    if options.max_total_tokens is not None:
        trace = transform.drop_longer_than(trace, options.max_total_tokens)
    if options.shuffle:
        trace = transform.shuffle(trace, order)
    if options.limit is not None:
        trace = transform.limit(trace, options.limit)
    if not len(trace):
        left_out = ", ".join(f"{n:,} {reason}" for reason, n in trace.dropped.items())
        raise InputError(f"{trace.source}: no request is left ({left_out or 'there was none'})")
    trace = with_limit(trace, options, notes)
    trace = _several(trace, options, notes)
    if options.scheduling_policy == "priority" and trace.priority is None:
        notes.append(f"{trace.source} has no priorities: all requests are equally urgent, the earlier one first")
    if options.scheduling_policy == "fcfs" and trace.priority is not None:
        notes.append(f"the priorities of {trace.source} are not used: --scheduling-policy priority goes by them")
    if trace.closed_loop:
        assert trace.think_us is not None
        think = trace.think_us[trace.think_us >= 0]
        notes.append(f"closed loop: {len(think):,} of {len(trace):,} requests arrive after the answer before them, "
                     f"mean think time {round(think.mean() / 1e6, 3):,g} s")
    return _timed(trace, options, arrivals, notes)


def _looped(trace: Trace, options: argparse.Namespace, notes: list[str]) -> Trace:
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


def _several(trace: Trace, options: argparse.Namespace, notes: list[str]) -> Trace:
    """The trace with the samples or beams that were asked for."""
    for name in ("samples", "beam_width"):
        if getattr(options, name) is not None:
            if getattr(trace, name) is not None:
                notes.append(f"--{name.replace('_', '-')} takes the place of the column {name} of {trace.source}")
            try:
                trace = replace(trace, **{name: np.full(len(trace), getattr(options, name), np.int64)})
            except ValueError as error:
                raise InputError(f"--{name.replace('_', '-')}: {error}") from None
    if options.beam_turnover is not None and (trace.beam_width is None or int(trace.beam_width.max()) < 2):
        raise InputError("--beam-turnover is for beam searches, and there is none: --beam-width, or a column beam_width")
    if trace.sequences is not None:
        notes.append("several sequences a request: the log follows requests, so it is not checked against the ledger")
    return trace


def _at_rate(options: argparse.Namespace, make: Callable[..., Trace], **arguments: Any) -> Trace:
    try:
        with np.errstate(over="ignore"):
            return make(rate_per_s=options.rate or DEFAULT_RATE, **arguments)
    except ValueError as error:
        raise InputError(f"--rate: {error}") from None


def _chat_source(options: argparse.Namespace) -> str:
    times = "all at once" if options.saturate else f"{options.rate or DEFAULT_RATE:g} requests/s"
    return (f"built-in chat workload (1,000 requests, ShareGPT lengths, a shared 256-token system prompt, {times}, "
            f"seed {options.seed})")


def _timed(trace: Trace, options: argparse.Namespace, rng: np.random.Generator, notes: list[str]) -> Trace:
    if trace.content is None:
        notes.append(f"{trace.source} has no prefix identity: what sharing would save cannot be measured on it")
    if options.saturate:
        if options.rate is not None:
            raise InputError("--rate has no meaning with --saturate: all requests arrive at once")
        return transform.all_at_once(trace)
    if trace.arrival_us is None:
        rate = options.rate or DEFAULT_RATE
        timed = _at_rate(options, transform.with_poisson_arrivals, trace=trace, rng=rng)
        notes.append(f"{trace.source} has no arrival times: Poisson arrivals at {rate:g} requests/s, seed {options.seed}")
        return timed
    if options.rate is not None and options.trace is not None:
        raise InputError(f"{trace.source} has its own arrival times: --rate is for traces without")
    return replace(trace, arrival_us=trace.arrival_us - trace.arrival_us[0])
