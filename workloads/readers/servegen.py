"""ServeGen: clients as rates and length distributions, out of which requests are drawn.

    chunk-7-trace.csv      start_s,rate_per_s,cv,pattern,arg1,arg2      no header; a row for each 600 s; pattern Gamma or Weibull
    chunk-7-dataset.json   {"0": {"input_tokens": "{34: 0.001, ...}", "output_tokens": ...}, "21600": ...}

In each 600 s the gaps between requests are drawn from the row's distribution (shape arg1, scale arg2), prompts and outputs
independently from the dataset's tables of that time. Tokens of images, audio and video count as prompt. A file is one client, a
folder all of its clients. Source: alibaba/ServeGen (Apache-2.0); Xiang et al., 2025.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.messages import Place, bad_value, complaint, show, show_path
from workloads.readers.common import CERTAIN, Head, Reader
from workloads.readers.json_document import document
from workloads.readers.read_options import ReadOptions
from workloads.readers.rows import Rows
from workloads.readers.source import Source, beside, open_source, whole_text
from workloads.request import InputError, IntArray

WINDOW_S = 600
MOST_REQUESTS = 20_000_000
TINY = 1e-300
LEAST_SHAPE = {"Gamma": 1e-3, "Weibull": 0.05}        # below these, gaps are all but zero, and the mean is made of miracles
MOST_SHAPE = 1e6
COLUMNS = ("start_s", "rate_per_s", "cv", "pattern", "arg1", "arg2")
PROMPT_PARTS = ("input_tokens", "text_tokens", "image_tokens", "audio_tokens", "video_tokens")
_FILE = re.compile(r"(.*chunk-\d+)-(trace\.csv|dataset\.json)(\.gz|\.zst)?")
_DATASET = re.compile(r'\s*\{\s*"\d+"\s*:\s*\{\s*"\w+_(?:tokens|ratio|count)"\s*:\s*"\{')
_TABLE = re.compile(r"\{[\d\s.,:eE+-]*\}")


class Window(NamedTuple):
    """600 s of one client: gaps between its requests are drawn from ``pattern(shape) x scale``."""

    start_s: float
    rate_per_s: float
    pattern: str
    shape: float
    scale: float

    @property
    def gap_s(self) -> float:
        """Mean gap between requests; infinite where there are none."""
        if not self.pattern or self.rate_per_s == 0:
            return math.inf
        try:
            return self.scale * (self.shape if self.pattern == "Gamma" else math.gamma(1 + 1 / self.shape))
        except (OverflowError, ZeroDivisionError):
            return math.inf


class Distribution(NamedTuple):
    """Token counts and their probabilities, which sum to 1."""

    tokens: IntArray
    weights: NDArray[np.float64]

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        """Token counts of n requests."""
        return rng.choice(self.tokens, n, p=self.weights) if len(self.tokens) else np.zeros(n, np.int64)

    @property
    def mean(self) -> float:
        """Mean tokens; 0 where there is no table."""
        return float(self.tokens @ self.weights) if len(self.tokens) else 0.0


@dataclass(frozen=True)
class Client:
    """One client: its windows, and by time its distributions of prompt parts and of outputs."""

    windows: tuple[Window, ...]
    prompts: Mapping[float, tuple[Distribution, ...]]
    outputs: Mapping[float, Distribution]

    @property
    def requests(self) -> float:
        """Requests in all windows, by their rates."""
        return sum(window.rate_per_s for window in self.windows) * WINDOW_S

    def at(self, start_s: float) -> float | None:
        """Key of the dataset for a time: the latest with a table, or else the first; None if there is none."""
        keys = [key for key, output in self.outputs.items() if len(output.tokens)]
        return max((key for key in keys if key <= start_s), default=min(keys, default=None))


def score(head: Head) -> int:
    """A trace has a number, a rate and a pattern; a dataset has times for keys."""
    if head.record is not None or head.fault is not None:
        return CERTAIN + 5 if _DATASET.match(head.text) else 0
    names = head.columns
    return CERTAIN + 5 if len(names) == len(COLUMNS) and names[3] in (*LEAST_SHAPE, "") and _number(names[0]) is not None else 0


def read(source: Source) -> Rows:
    """Draw requests of the client a file belongs to; InputError if its other file is not beside it."""
    found = _FILE.fullmatch(source.path)
    if found is None:
        raise InputError(f"{show_path(source.path)}: a ServeGen client is two files, chunk-K-trace.csv and chunk-K-dataset.json")
    other = beside(f"{found[1]}-{'dataset.json' if found[2] == 'trace.csv' else 'trace.csv'}")
    if other is None:
        raise InputError(f"{show_path(source.path)}: the client's other file is not beside it")
    trace, dataset = (source, open_source(other)) if found[2] == "trace.csv" else (open_source(other), source)
    return _drawn(source.path, [_client(trace, dataset)], source.options)


def read_folder(path: str, options: ReadOptions) -> Rows | None:
    """Draw requests of all clients in a folder; None if there is none."""
    stems = sorted({found[1] for name in os.listdir(path) if (found := _FILE.fullmatch(os.path.join(path, name)))},
                   key=lambda stem: int(stem.rpartition("-")[2]))
    clients, missing = [], 0
    for stem in stems:
        trace, dataset = beside(f"{stem}-trace.csv"), beside(f"{stem}-dataset.json")
        if trace is None or dataset is None:
            missing += 1
        else:
            clients.append(_client(open_source(trace), open_source(dataset)))
    if not stems:
        return None
    if not clients:
        raise InputError(f"{show_path(path)}: no client has both its trace and its dataset here")
    return _drawn(path, clients, options, missing)


# ---------------------------------------------------------------------- reading
def _client(trace: Source, dataset: Source) -> Client:
    windows = tuple(_window(place, text.strip().split(",")) for place, text in _lines(trace))
    found, place = document(dataset), Place(dataset.path, dataset.first.line)
    prompts, outputs = {}, {}
    for key, tables in found.items():
        time = _number(key)
        if time is None or not isinstance(tables, dict):
            raise bad_value(place, key, "is not the start of a time in seconds with its tables")
        parts = [_distribution(place, part, tables[part]) for part in PROMPT_PARTS if part in tables]
        prompts[time] = tuple(parts)
        outputs[time] = _distribution(place, "output_tokens", tables.get("output_tokens", "{}"))
    return Client(windows, prompts, outputs)


def _lines(source: Source) -> Iterator[tuple[Place, str]]:
    for number, text in enumerate(whole_text(source).split("\n"), start=source.first.line):
        if text.strip():
            yield Place(source.path, number), text


def _window(place: Place, fields: list[str]) -> Window:
    if len(fields) != len(COLUMNS):
        raise complaint(place.path, place.line, f"{len(fields)} fields, but a window has {len(COLUMNS)}: {', '.join(COLUMNS)}")
    numbers = [_number(text) for text in fields]
    for name, text, value in zip(COLUMNS, fields, numbers, strict=True):
        if name != "pattern" and value is None:
            raise bad_value(place, name, f"{show(text)} is not a number of 0 or more")
    start, rate, _, _, shape, scale = (value or 0.0 for value in numbers)
    pattern = fields[3].strip()
    if pattern and not (LEAST_SHAPE.get(pattern, math.inf) <= shape <= MOST_SHAPE and scale > 0):
        kinds = " or ".join(f"{name} of shape {least:g} to {MOST_SHAPE:g}" for name, least in LEAST_SHAPE.items())
        raise bad_value(place, "pattern", f"{show(','.join(fields[3:]))}: {kinds}, and a scale above 0 are wanted")
    return Window(start, rate, pattern, shape, scale)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None


def _distribution(place: Place, name: str, text: object) -> Distribution:
    """A table such as '{34: 0.25, 35: 0.75}', read without evaluating it."""
    if not isinstance(text, str) or _TABLE.fullmatch(text) is None:
        raise bad_value(place, name, f"{show(text)} is not a table of tokens and probabilities")
    pairs = [pair.split(":") for pair in text[1:-1].split(",") if pair.strip()]
    values = [(_number(pair[0]), _number(pair[1])) for pair in pairs if len(pair) == 2]
    if len(values) < len(pairs) or any(None in pair for pair in values) or any(t != int(t or 0) for t, _ in values):
        raise bad_value(place, name, f"{show(text)} is not a table of tokens and probabilities")
    tokens, weights = (np.array(column, np.float64) for column in (zip(*values, strict=True) if values else ((), ())))
    if len(tokens) and (weights.sum() <= 0 or tokens.max() > 1 << 31):
        raise bad_value(place, name, f"{show(text)} has no probability, or too many tokens")
    return Distribution(tokens.astype(np.int64), weights / weights.sum() if len(tokens) else weights)


# ---------------------------------------------------------------------- drawing
def _drawn(path: str, clients: list[Client], options: ReadOptions, missing: int = 0) -> Rows:
    start, stop = options.window_s or _first_busy(path, clients)
    looked_at = [window for client in clients for window in client.windows if start - WINDOW_S < window.start_s < stop]
    # a window is drawn from its start on, wherever in it one begins to look
    expected = sum((min(window.start_s + WINDOW_S, stop) - window.start_s) / max(window.gap_s, TINY) for window in looked_at)
    if expected > MOST_REQUESTS:
        raise InputError(f"{show_path(path)}: {expected:,.0f} requests from {start:g} to {stop:g} s: at most {MOST_REQUESTS:,} "
                         "are drawn at once (--window START:STOP)")
    rngs = [np.random.default_rng(seed) for seed in np.random.SeedSequence(options.seed).spawn(len(clients))]
    parts = [part for client, rng in zip(clients, rngs, strict=True) for part in _requests(client, start, stop, rng)]
    if not any(len(times) for times, _, _ in parts):
        raise InputError(f"{show_path(path)}: no request from {start:g} to {stop:g} s (--window START:STOP)")
    times, prompt, output = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(times, kind="stable")
    total = sum(client.requests for client in clients)
    notes = [f"{len(clients)} clients drawn from {start:g} to {stop:g} s, seed {options.seed}; by their rates they make "
             f"{total:,.0f} requests in all (--window START:STOP, in seconds)"]
    if missing:
        notes.append(f"{missing} clients have no dataset here and are left out")
    return Rows(path, prompt[order], output[order], [np.rint(times[order] * 1e9).astype(np.int64)], notes=tuple(notes))


def _first_busy(path: str, clients: list[Client]) -> tuple[float, float]:
    busy = [window.start_s for client in clients for window in client.windows if window.gap_s < math.inf]
    if not busy:
        raise InputError(f"{show_path(path)}: no window has any request")
    return min(busy), min(busy) + WINDOW_S


def _requests(client: Client, start: float, stop: float, rng: np.random.Generator,
              ) -> Iterator[tuple[NDArray[np.float64], IntArray, IntArray]]:
    for window in client.windows:
        first, last = max(window.start_s, start), min(window.start_s + WINDOW_S, stop)
        key = client.at(window.start_s)
        if first >= last or window.gap_s == math.inf or key is None:
            continue
        times = window.start_s + _arrivals(window, last - window.start_s, rng)
        times = times[times >= first]
        prompt = np.zeros(len(times), np.int64)
        for part in client.prompts[key]:
            prompt += part.draw(len(times), rng)
        yield times, prompt, client.outputs[key].draw(len(times), rng)


def _arrivals(window: Window, length_s: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Seconds from the window's start, below ``length_s``."""
    times = np.zeros(1)
    while times[-1] < length_s:
        n = max(int((length_s - times[-1]) / window.gap_s * 1.1) + 16, len(times))
        gaps = window.scale * (rng.standard_gamma if window.pattern == "Gamma" else rng.weibull)(window.shape, n)
        times = np.concatenate((times, times[-1] + np.cumsum(gaps)))
    return times[1:][times[1:] < length_s]


READER = Reader("servegen", "ServeGen: a client's chunk-K-trace.csv and chunk-K-dataset.json, or a folder of them", score, read)
