"""From options to the trace: read or made, cut, given arrival times, priorities and sequences."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.allocator_options import with_limit
from experiments.load_loop import loop_note, looped
from experiments.reading import read, unused
from workloads import transform
from workloads.later import Later
from workloads.messages import reasons_in_words, show_path
from workloads.readers.rows import NO_CONTENT, NO_OUTPUT, NO_TIMES
from workloads.request import InputError, Trace

if TYPE_CHECKING:
    from experiments import load_pace
    from workloads import synth, synthetic
else:
    load_pace, synth, synthetic = map(Later, ("experiments.load_pace", "workloads.synth", "workloads.synthetic"))

CHAT_REQUESTS, DEFAULT_RATE = 1000, 2.0
STREAMS = ("lengths", "arrivals", "order", "output", "prefix", "times", "windows")
"""What is drawn, each from a generator of its own, so that none changes with another."""


def load_trace(options: argparse.Namespace, notes: list[str], given: Trace | None = None) -> Trace:
    """Read or make the trace, or take the one ``given`` as it was read; complete it, cut it and give it arrival times."""
    trace = _completed(_read_or_make(options) if given is None else given, options)
    notes.extend(note for note in trace.notes if not note.startswith(_answered(options)))
    trace = looped(trace, options, notes)
    if options.max_total_tokens is not None:
        trace = transform.drop_longer_than(trace, options.max_total_tokens)
    if options.shuffle:
        trace = transform.shuffle(trace, _rng(options, "order"))
    if options.limit is not None:
        trace = transform.limit(trace, options.limit)
    if not len(trace):
        left_out = reasons_in_words(trace.dropped) or "there was none"
        raise InputError(f"{show_path(trace.source)}: no request is left: {left_out}")
    if options.resample is not None:
        trace = load_pace.resampled(trace, options, _rng(options, "windows"), notes)
    trace = with_limit(trace, options, notes)
    trace = _several(trace, options, notes)
    if options.scheduling_policy == "priority" and trace.priority is None:
        notes.append(f"{trace.source} has no priorities: all requests are equally urgent, the earlier one first")
    if options.scheduling_policy == "fcfs" and trace.priority is not None:
        notes.append(f"the priorities of {trace.source} are not used: --scheduling-policy priority goes by them")
    loop_note(trace, notes)
    if options.speed is not None:
        trace = load_pace.at_speed(trace, options, notes)
    return _timed(trace, options, notes)


def generator(seed: int, stream: str, number: int = 0) -> np.random.Generator:
    """The generator of one stream, of the first of several traces or a later one.

    Made when it is wanted: a recorded trace wants none, and then numpy need not load them.
    """
    of_stream = np.random.SeedSequence(seed).spawn(len(STREAMS))[STREAMS.index(stream)]
    return np.random.default_rng(of_stream.spawn(number)[-1] if number else of_stream)


def _rng(options: argparse.Namespace, stream: str) -> np.random.Generator:
    return generator(options.seed, stream)


def built_in(seed: int, rate_per_s: float = DEFAULT_RATE, times: str | None = None, part: str = "") -> Trace:
    """The built-in chat workload; ``times`` and ``part`` are words of its name."""
    made = synthetic.chat_workload(rng=generator(seed, "lengths"), requests=CHAT_REQUESTS, rate_per_s=rate_per_s)
    return replace(made, source=f"built-in chat workload ({part}{CHAT_REQUESTS:,} requests, ShareGPT lengths, a shared 256-token "
                                f"system prompt, {times or f'{rate_per_s:g} requests/s'}, seed {seed})")


def _read_or_make(options: argparse.Namespace) -> Trace:
    if options.trace is None:
        unused(options)
        times = "all at once" if options.saturate else None
        cut = options.limit is not None and options.limit < CHAT_REQUESTS
        return _at_rate(options, built_in, seed=options.seed, times=times, part=f"{options.limit:,} of " if cut else "")
    rows, asked = read(options)
    return rows.to_trace(asked)


def _completed(trace: Trace, options: argparse.Namespace) -> Trace:
    """What the trace lacks, made up where that was asked for."""
    if options.synth_arrivals is not None and (options.rate is not None or options.saturate):
        raise InputError("--synth-arrivals says when requests arrive, and so does --rate or --saturate: one of them")
    if options.synth_output is not None:
        trace = synth.with_output(trace, options.synth_output, _rng(options, "output"), "--synth-output")
    if options.synth_prefix is not None:
        trace = synth.with_prefix(trace, options.synth_prefix, _rng(options, "prefix"), "--synth-prefix")
    if options.synth_arrivals is not None:
        trace = synth.with_arrivals(trace, options.synth_arrivals, _rng(options, "times"), "--synth-arrivals")
    return trace


def _answered(options: argparse.Namespace) -> tuple[str, ...]:
    """How notes begin that are no news any more: times are drawn and said below, and what was made up is there."""
    made_up = ((options.synth_output, NO_OUTPUT), (options.synth_prefix, NO_CONTENT))
    return (NO_TIMES, *(note for spec, note in made_up if spec is not None))


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


def _timed(trace: Trace, options: argparse.Namespace, notes: list[str]) -> Trace:
    if options.saturate:
        if options.rate is not None:
            raise InputError("--rate has no meaning with --saturate: all requests arrive at once")
        return transform.all_at_once(trace)
    if trace.arrival_us is None:
        rate = options.rate or DEFAULT_RATE
        timed = _at_rate(options, transform.with_poisson_arrivals, trace=trace, rng=_rng(options, "arrivals"))
        notes.append(f"{trace.source} has no arrival times: Poisson arrivals at {rate:g} requests/s, seed {options.seed}")
        return timed
    if options.rate is not None and options.trace is not None:
        raise InputError(f"{trace.source} has its own arrival times: --rate is for traces without")
    return replace(trace, arrival_us=trace.arrival_us - trace.arrival_us[0])
