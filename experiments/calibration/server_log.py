"""A vLLM server's log: what it printed at start-up, and its periodic line of gauges, of any version.

    V0   ... Running: 2 reqs, Swapped: 0 reqs, Pending: 3 reqs, GPU KV cache usage: 82.1%, CPU KV cache usage: 0.0%.  5 s apart
    V1   Engine 000: ... Running: 9 reqs, Waiting: 0 reqs, GPU KV cache usage: 62.8%, Prefix cache hit rate: 0.0%    10 s apart

Both begin with "Avg prompt throughput: x tokens/s, Avg generation throughput: y tokens/s". Whatever stands before (levels,
process names, times of docker or Kubernetes, colours) and any field between may be there or not. An idle server prints nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from workloads.messages import complaint, show_path
from workloads.readers.source import Source
from workloads.request import InputError

LOOKED_AT = 1 << 16                                    # letters of a line; no line of a server that matters is longer
MOST_SAMPLES = 1_000_000
YEAR = timedelta(days=366)
LOOKED_FOR = ('"Avg generation throughput: ... Running: ... reqs" (the periodic line), "Available KV cache memory", '
              '"GPU KV cache size", "Maximum concurrency" or "# GPU blocks" (start-up)')
_COLOURS = re.compile(r"(?:\x1b|\\u001b|\^\[|#033)\[[0-9;]*[A-Za-z]")
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_PERIODIC = {name: re.compile(pattern) for name, pattern in {
    "prompt_tokens_per_s": rf"Avg prompt throughput: {_NUMBER} tokens/s",
    "generation_tokens_per_s": rf"Avg generation throughput: {_NUMBER} tokens/s",
    "running": r"Running: (\d{1,9}) reqs", "waiting": r"(?:Waiting|Pending): (\d{1,9}) reqs",
    "swapped": r"Swapped: (\d{1,9}) reqs", "preemptions": r"Preemptions: (\d{1,9})\b",
    "usage_percent": rf"[A-Z]PU KV cache usage: {_NUMBER}%",
    "hit_percent": rf"Prefix cache hit rate: (?:GPU: )?{_NUMBER}%"}.items()}
NEEDED = ("prompt_tokens_per_s", "generation_tokens_per_s", "running", "waiting", "usage_percent")
_HIT_ALONE = re.compile(rf"Prefix cache hit rate: GPU: {_NUMBER}%")
_ENGINE = re.compile(r"Engine (\d{1,6}): Avg prompt")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?"
                  r"(?:Z|([+-])(\d\d):?(\d\d)\b)?")
_OWN = re.compile(r"(?:INFO|WARNING|DEBUG|ERROR)\s+(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")
_FACTS = {name: re.compile(pattern) for name, pattern in {
    "available_gib": rf"(?:Available KV cache memory: |reserved for KV Cache is ){_NUMBER} ?GiB",
    "kv_tokens": r"KV cache size: ([\d,]{1,20}) tokens", "num_gpu_blocks": r"# (?:GPU|cuda|CUDA) blocks: (\d{1,12})",
    "initialized_blocks": r"num_gpu_blocks is: (\d{1,12})", "num_cpu_blocks": r"# CPU blocks: (\d{1,12})",
    "overridden_blocks": r"num_gpu_blocks_override=(\d{1,12})",
    "max_model_len": r"Maximum concurrency for ([\d,]{1,20}) tokens per request",
    "max_concurrency": r"Maximum concurrency for [\d,]{1,20} tokens per request: (\d{1,12}\.\d{1,4})x",
    "weights_gib": rf"(?:Model loading took|Loading model weights took) {_NUMBER} ?(?:GiB|GB)",
    "graphs_gib": rf"Graph capturing finished in \S+ \S+ took {_NUMBER} GiB",
    "estimated_graphs_gib": rf"Estimated CUDA graph memory: {_NUMBER} GiB",
    "chunk_tokens": r"Chunked prefill is enabled with max_num_batched_tokens=(\d{1,9})"}.items()}
_WORDS = re.compile(r"KV |blocks|concurrency|Model loading|Loading model|Graph capturing|CUDA graph|Chunked prefill|ersion |"
                    r"engine \(v|args")
_VERSION = re.compile(r"(?:LLM engine \(|vLLM API server version |\bversion )v?(\d{1,3}\.\d{1,3}[\w.+]{0,60})")
_CONFIG = re.compile(r"LLM engine \(v[^)]{1,80}\) with config: (.*)|non-default args: \{(.*)|args: Namespace\((.*)")
_SETTING = re.compile(r"""(?<![\w-])'?([a-z][a-z0-9_]{2,40})'?(?:=|: )('[^']{0,300}'|"[^"]{0,300}"|[\w./+-]{1,80})""")


@dataclass(frozen=True)
class Sample:
    """One periodic line. ``time_s`` is on the log's own clock, None where it has none."""

    line: int
    time_s: float | None
    engine: int
    prompt_tokens_per_s: float
    generation_tokens_per_s: float
    running: int
    waiting: int
    usage_percent: float
    hit_percent: float | None = None
    preemptions: int | None = None
    swapped: int = 0


@dataclass(frozen=True)
class ServerLog:
    """What was found.

    Parameters
    ----------
    path : str
    samples : tuple of Sample
        In order of time.
    facts : dict of name to tuple of float
        Each different number of a kind of start-up line, in order: every worker may print its own.
    settings : dict of name to text
        Of the engine's configuration and the arguments that were no defaults, under their names there.
    version : str or None
        vLLM's, as it is printed.
    notes : tuple of str
    """

    path: str
    samples: tuple[Sample, ...]
    facts: dict[str, tuple[float, ...]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    version: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def engines(self) -> tuple[int, ...]:
        """Numbers of the engines whose lines are there."""
        return tuple(sorted({sample.engine for sample in self.samples}))

    def of_engine(self, engine: int) -> ServerLog:
        """Only the periodic lines of one engine; InputError if there are none."""
        if engine not in self.engines:
            raise InputError(f"{show_path(self.path)}: no periodic line of engine {engine}; those of "
                             f"{', '.join(map(str, self.engines)) or 'none'} are there")
        return replace(self, samples=tuple(sample for sample in self.samples if sample.engine == engine))


def looks_like_log(text: str) -> bool:
    """Whether some line is one of a server."""
    return "Avg generation throughput" in text or any(pattern.search(text) for pattern in _FACTS.values()) \
        or _CONFIG.search(text) is not None


def read_log(source: Source) -> ServerLog:
    """All lines that say something; others are passed over.

    Raises
    ------
    InputError
        If there is none, and what was looked for.
    """
    reading = _Reading()
    for line, text in _lines(source):
        reading.take(line, text)
    if not reading.samples and not reading.facts and not reading.settings:
        raise complaint(source.path, source.first.line, f"no line of a vLLM server is in it; looked for {LOOKED_FOR}")
    if len(reading.samples) > MOST_SAMPLES:
        raise complaint(source.path, reading.samples[MOST_SAMPLES].line, f"more than {MOST_SAMPLES:,} periodic lines")
    return reading.made(source.path)


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    """Lines and their numbers; what is no UTF-8 (a torn line, a progress bar) is shown by a mark."""
    for block in source.blocks():
        for number, data in enumerate(block.data.split(b"\n"), start=block.line):
            if data:
                yield number, _COLOURS.sub("", data[:LOOKED_AT].decode("utf-8", "replace"))


class _Reading:
    """What has been found so far."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.stamps: list[tuple[float | None, float | None]] = []      # (with a year, vLLM's own)
        self.facts: dict[str, dict[float, None]] = {}
        self.settings: dict[str, str] = {}
        self.version: str | None = None
        self.torn = 0

    def take(self, line: int, text: str) -> None:
        """One line."""
        if "Avg generation throughput:" in text:
            self._periodic(line, text)
        elif self.samples and (alone := _HIT_ALONE.search(text)):        # V0 says it on a line of its own
            self.samples[-1] = replace(self.samples[-1], hit_percent=float(alone[1]))
        elif _WORDS.search(text):                      # most lines say nothing to us
            self._start_up(text)

    def _periodic(self, line: int, text: str) -> None:
        found = {name: match[1] for name, pattern in _PERIODIC.items() if (match := pattern.search(text))}
        if not all(name in found for name in NEEDED):
            self.torn += 1
            return
        engine = _ENGINE.search(text)
        self.samples.append(Sample(
            line, None, int(engine[1]) if engine else 0, float(found["prompt_tokens_per_s"]),
            float(found["generation_tokens_per_s"]), int(found["running"]), int(found["waiting"]),
            float(found["usage_percent"]), float(found["hit_percent"]) if "hit_percent" in found else None,
            int(found["preemptions"]) if "preemptions" in found else None, int(found.get("swapped", 0))))
        self.stamps.append((_with_year(text), _own_time(text)))

    def _start_up(self, text: str) -> None:
        for name, pattern in _FACTS.items():
            if match := pattern.search(text):
                self.facts.setdefault(name, {})[float(match[1].replace(",", "") or 0)] = None
        if self.version is None and (version := _VERSION.search(text)):
            self.version = version[1]
        if config := _CONFIG.search(text):
            for name, value in _SETTING.findall(config[1] or config[2] or config[3] or ""):
                self.settings.setdefault(name, value.strip("'\""))

    def made(self, path: str) -> ServerLog:
        """The samples with their times, in order."""
        notes = [f"{self.torn:,} periodic lines lack a field or are torn, and are passed over"] if self.torn else []
        column = 0 if self.stamps and all(stamp[0] is not None for stamp in self.stamps) else 1
        times = [stamp[column] for stamp in self.stamps]
        known = [time for time in times if time is not None]
        if self.samples and len(known) < len(self.samples):
            notes.append("the lines have no times: they are taken to be equally far apart")
            times = [None] * len(self.samples)
        elif column == 1:
            times = list(_over_new_year(known))
        samples = [replace(sample, time_s=time) for sample, time in zip(self.samples, times, strict=True)]
        ordered = sorted(samples, key=lambda sample: sample.time_s or 0.0)
        if ordered != samples:
            notes.append("the periodic lines were not in order of time: sorted")
        return ServerLog(path, tuple(ordered), {name: tuple(values) for name, values in self.facts.items()}, self.settings,
                         self.version, tuple(notes))


# ---------------------------------------------------------------------- times
def _with_year(text: str) -> float | None:
    match = _ISO.search(text)
    if match is None:
        return None
    time = _seconds([int(part) for part in match.groups()[:6]])
    if time is None:
        return None
    sign, hours, minutes = match.groups()[7:]
    offset = 0 if sign is None else (1 if sign == "+" else -1) * (int(hours) * 3600 + int(minutes) * 60)
    return time - offset + (int(match[7].ljust(9, "0")) / 1e9 if match[7] else 0.0)


def _own_time(text: str) -> float | None:
    """vLLM's own time has no year; a leap year, so that every day is one."""
    match = _OWN.search(text)
    return None if match is None else _seconds([2000, *(int(part) for part in match.groups())])


def _seconds(parts: list[int]) -> float | None:
    try:
        return (datetime(*parts) - datetime(1970, 1, 1)).total_seconds()        # type: ignore[arg-type]
    except ValueError:
        return None


def _over_new_year(times: list[float]) -> Iterator[float]:
    """After the last day of the year the first one comes.

    >>> list(_over_new_year([31_000_000.0, 10.0, 20.0]))
    [31000000.0, 31622410.0, 31622420.0]
    """
    added, last = 0.0, None
    for time in times:
        if last is not None and time + added < last - YEAR.total_seconds() / 2:
            added += YEAR.total_seconds()
        last = time + added
        yield last
