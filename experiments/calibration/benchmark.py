"""Results of vLLM's ``bench serve --save-result``, with and without ``--save-detailed``: one object, one a line where
``--append-result`` made several, or a list of them.

    detailed   input_lens, output_lens, ttfts, itls of each request: mean and median TTFT and TPOT, and means of groups of
               requests: TTFT of those with prompts of like length, TPOT of those sent at about one time
    summary    only totals and means: as many equal requests of the mean lengths, or those of a trace

The client, as the benchmark makes it: all requests at once (``request_rate`` inf), or gaps drawn from a gamma distribution of
shape ``burstiness`` and stretched so that the last comes at requests / rate; a request is sent when its time has come and fewer
than ``max_concurrency`` are under way, first come first served. Where the file has ``start_times`` these are taken, less
``queue_times`` where it has them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from experiments.calibration.cases import (
    BY_PROMPT,
    BY_TIME,
    STATISTICS,
    Case,
    Floats,
    Target,
    group_means,
    groups_of,
)
from experiments.calibration.client import Client, client_of, number_of
from workloads.messages import Place, bad_value, complaint, counted, missing_column, show
from workloads.readers.common import Head
from workloads.readers.json_document import array_items, document
from workloads.readers.json_lines import json_rows
from workloads.readers.source import Source
from workloads.readers.values import length_of
from workloads.request import IntArray, Trace

DETAILS = ("input_lens", "output_lens", "ttfts", "itls")
MEANS = ("ttft", "tpot")                               # by request
TOTALS = ("completed", "total_input_tokens", "total_output_tokens")
MOST_REQUESTS, LONGEST_S = 1_000_000, 1e8
EQUAL = ("only totals: {}, alike, of {:,} + {:,} tokens in place of what was sent, so only means are compared; "
         "--save-detailed or --trace has their lengths")
NO_CONTENT = "the file does not say what prompts shared: nothing is found in the prefix cache"
FAILED = "left out, since they failed or generated nothing: {:,} of {}"


def is_benchmark(head: Head) -> bool:
    """Whether an object is such a result."""
    return {"input_lens", "ttfts"} <= head.keys or ("completed" in head.keys and "total_input_tokens" in head.keys)


def read_benchmarks(source: Source, head: Head, lengths: Trace | None, seed: int) -> list[Case]:
    """One case an object.

    Parameters
    ----------
    source : Source
    head : Head
        Of the source: whether its first line is an object by itself.
    lengths : Trace, optional
        Lengths (and content) of the requests that were sent, for a file without them.
    seed : int
        Of arrivals that are drawn.

    Raises
    ------
    InputError
        On one line.
    """
    return [_case(place, found, lengths, seed) for place, found in results(source, head)]


def results(source: Source, head: Head) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Every object of the file, and where it stands; InputError names the line where the JSON breaks."""
    if source.first.data.lstrip().startswith(b"["):
        for number, (place, found) in enumerate(array_items(source), start=1):
            yield place._replace(within=f"result {number}"), found
    elif head.record is not None:
        yield from json_rows(source)
    else:
        yield Place(source.path, source.first.line), document(source)


# ---------------------------------------------------------------------- one object
def _case(place: Place, found: Mapping[str, Any], lengths: Trace | None, seed: int) -> Case:
    client = client_of(place, found)
    if "input_lens" not in found and "ttfts" not in found:
        return _summary(place, found, client, lengths, np.random.default_rng(seed))
    if lengths is not None:
        raise complaint(place.path, place.line, "it has the lengths of its requests: --trace is for one without")
    return _detailed(place, found, client, np.random.default_rng(seed))


# ---------------------------------------------------------------------- only totals
def _summary(place: Place, found: Mapping[str, Any], client: Client, lengths: Trace | None, rng: np.random.Generator) -> Case:
    n, prompts, outputs = (length_of(found, name, place) for name in TOTALS)
    if not 1 <= n <= MOST_REQUESTS:
        raise bad_value(place, "completed", f"{n} requests: from 1 to {MOST_REQUESTS:,} are read")
    targets = [target for metric in MEANS for target in _means(place, found, metric, lengths is not None)]
    if not targets:
        raise missing_column(place, "mean_ttft_ms", list(found))
    notes = [*client.notes, *_drawn({}, client)]
    if lengths is None:
        each = max(1, round(prompts / n)), max(1, round(outputs / n))
        notes += [EQUAL.format(counted(n, 'request'), *each), NO_CONTENT]
        trace = Trace(place.path, np.full(n, each[0], np.int64), np.full(n, each[1], np.int64), client.times_us(n, rng))
    else:
        trace = _like(place, lengths, n, client.times_us(n, rng))
    return Case(client.label(place.path, place, n), trace, tuple(targets), client.most_in_flight, tuple(notes))


def _means(place: Place, found: Mapping[str, Any], metric: str, percentiles: bool) -> Iterator[Target]:
    """The mean is fitted; the median too, and the 99th percentile shown, where the lengths are known."""
    for statistic in STATISTICS:
        name = f"{statistic}_{metric}_ms"
        if found.get(name) is not None and (percentiles or statistic == "mean"):
            value = number_of(place, name, found[name], LONGEST_S * 1e3)
            if value > 0:                              # no request had a second token
                yield Target(metric, statistic, np.array([value / 1e3]), statistic != "p99")


def _like(place: Place, lengths: Trace, n: int, times_us: IntArray) -> Trace:
    if len(lengths) < n:
        raise complaint(place.path, place.line,
                        f"{counted(n, 'request')} completed, and {lengths.source} has only {len(lengths):,}")
    content = None if lengths.content is None else lengths.content.take(np.arange(n))
    return Trace(lengths.source, lengths.prompt_tokens[:n], lengths.output_tokens[:n], times_us, content=content)


# ---------------------------------------------------------------------- each request
def _detailed(place: Place, found: Mapping[str, Any], client: Client, rng: np.random.Generator) -> Case:
    lists = _lists(place, found)
    n = len(lists["input_lens"])
    prompt, output = (np.array(_read(place, name, lists[name], _length), np.int64) for name in DETAILS[:2])
    ttft = np.array(_read(place, "ttfts", lists["ttfts"], _seconds))
    after = np.array(_read(place, "itls", lists["itls"], _sum)) if "latencies" not in lists \
        else np.array(_read(place, "latencies", lists["latencies"], _seconds)) - ttft
    sent = (prompt > 0) & (output > 0) & (ttft > 0)
    notes = [*client.notes, NO_CONTENT, *_drawn(lists, client)]
    if not sent.all():
        notes.append(FAILED.format(int(n - sent.sum()), counted(n, 'request')))
        if not sent.any():
            raise bad_value(place, "ttfts", "no request got an answer")
    rows = np.flatnonzero(sent)
    times = _times(place, lists, client, n, rng)[rows]
    order = np.argsort(times, kind="stable")
    rows, times = rows[order], times[order]
    tpot = np.where((output > 1) & (after > 0), after / np.maximum(output - 1, 1), np.nan)
    trace = Trace(place.path, prompt[rows], output[rows], times - times[0])
    measured = {"ttft": (ttft[rows], BY_PROMPT, prompt[rows]), "tpot": (tpot[rows], BY_TIME, np.arange(len(rows)))}
    targets = tuple(target for metric, of_metric in measured.items() for target in _grouped(metric, *of_metric))
    return Case(client.label(place.path, place, len(rows)), trace, targets, client.most_in_flight, tuple(notes))


def _grouped(metric: str, values: Floats, how: str, key: IntArray) -> Iterator[Target]:
    """Mean, median and the means of groups are fitted; the 99th percentile is shown."""
    counted = ~np.isnan(values)
    if not counted.any():
        return
    for name, statistic in STATISTICS.items():
        yield Target(metric, name, np.array([float(statistic(values[counted]))]), name != "p99")
    group, groups = groups_of(key, counted)
    if groups > 1:
        yield Target(metric, how, group_means(values, group, groups), True, group)


def _lists(place: Place, found: Mapping[str, Any]) -> dict[str, list[Any]]:
    lists: dict[str, list[Any]] = {}
    for name in (*DETAILS, "latencies", "start_times", "queue_times"):
        column = found.get(name)
        if column is None and name in DETAILS:
            raise missing_column(place, name, list(found))
        if column is None:
            continue
        if not isinstance(column, list):
            raise bad_value(place, name, f"{show(column)} is not a list")
        if len(column) != len(lists.get("input_lens", column)):
            raise bad_value(place, name, f"{len(column)} entries, but {len(lists['input_lens'])} of input_lens")
        lists[name] = column
    if not 1 <= len(lists["input_lens"]) <= MOST_REQUESTS:
        raise bad_value(place, "input_lens", f"{len(lists['input_lens'])} requests: from 1 to {MOST_REQUESTS:,} are read")
    return lists


def _drawn(lists: Mapping[str, list[Any]], client: Client) -> list[str]:
    """Say that arrivals are made up where the file does not have them."""
    if "start_times" in lists or math.isinf(client.rate_per_s):
        return []
    return [f"arrivals are not in the file: they are drawn at {client.rate_per_s:g} a second, and others with another --seed"]


def _times(place: Place, lists: Mapping[str, list[Any]], client: Client, n: int, rng: np.random.Generator) -> IntArray:
    """When each request was to be sent, before it waited for a place among those in flight."""
    held = client.most_in_flight is not None
    if "start_times" not in lists or (held and math.isinf(client.rate_per_s)):
        return client.times_us(n, rng)                 # all in line at once: then the limit alone says who goes when
    starts = np.array(_read(place, "start_times", lists["start_times"], _clock))
    if held and "queue_times" in lists:
        starts = starts - np.array(_read(place, "queue_times", lists["queue_times"], _seconds))
    times: IntArray = np.rint((starts - starts.min()) * 1e6).astype(np.int64)
    return times


def _read(place: Place, name: str, column: list[Any], read: Callable[[Place, str, Any], float]) -> list[float]:
    within = f"{place.within}: entry" if place.within else "entry"
    return [read(place._replace(within=f"{within} {i}"), name, one) for i, one in enumerate(column)]


def _length(place: Place, name: str, value: Any) -> int:
    """A number of tokens, 0 among them."""
    return length_of({name: value}, name, place)


def _seconds(place: Place, name: str, value: Any) -> float:
    return number_of(place, name, value, LONGEST_S)


def _clock(place: Place, name: str, value: Any) -> float:
    return number_of(place, name, value, 1e12)


def _sum(place: Place, name: str, value: Any) -> float:
    """Gaps between what one request got; in seconds."""
    if not isinstance(value, list):
        raise bad_value(place, name, f"{show(value)} is not a list")
    return math.fsum(_seconds(place, name, one) for one in value)
