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

from experiments.calibration.log_times import Stamp, stamp_of, times_of
from workloads.messages import complaint, counted, show_path
from workloads.readers.source import Source
from workloads.request import InputError

LOOKED_AT = 1 << 16                                    # letters of a line; no line of a server that matters is longer
MOST_SAMPLES = 1_000_000
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
_ORIGIN = re.compile(r"\[(pod/[^\]\s]{1,200})\]|^([\w.-]{1,100}) +\| |\b(pid=\d{1,10})\)")
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
    """One periodic line. ``time_s`` is on the log's own clock, None where it has none; ``origin``: process, container or pod."""

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
    origin: str = ""


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
    started_again : int or None
        The first line that belongs to a start-up and comes after periodic ones.
    notes : tuple of str
    """

    path: str
    samples: tuple[Sample, ...]
    facts: dict[str, tuple[float, ...]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    version: str | None = None
    started_again: int | None = None
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
    for line, text, whole in _lines(source):
        reading.take(line, text, whole)
    if not reading.samples and not reading.facts and not reading.settings:
        raise complaint(source.path, source.first.line, f"no line of a vLLM server is in it; looked for {LOOKED_FOR}")
    if len(reading.samples) > MOST_SAMPLES:
        raise complaint(source.path, reading.samples[MOST_SAMPLES].line, f"more than {MOST_SAMPLES:,} periodic lines")
    return reading.made(source.path)


def _lines(source: Source) -> Iterator[tuple[int, str, bool]]:
    """Lines, their numbers and whether they end; what is no UTF-8 (a torn line, a progress bar) is shown by a mark."""
    for block in source.blocks():
        parts = block.data.split(b"\n")
        for number, data in enumerate(parts, start=block.line):
            if data:
                yield number, _COLOURS.sub("", data[:LOOKED_AT].decode("utf-8", "replace")), number < block.line + len(parts) - 1


class _Reading:
    """What has been found so far."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.stamps: list[Stamp] = []
        self.facts: dict[str, dict[float, None]] = {}
        self.settings: dict[str, str] = {}
        self.version: str | None = None
        self.started_again: int | None = None
        self.torn = 0
        self.notes: list[str] = []

    def take(self, line: int, text: str, whole: bool) -> None:
        """One line; ``whole``: it has its end, which only the last one of a file may lack."""
        if not whole and "Avg " in text and not self._complete(text):
            self.notes.append(f"warning: the file ends in the middle of line {line}, a periodic one: it is passed over")
        elif "Avg generation throughput:" in text:
            self._periodic(line, text)
        elif self.samples and (alone := _HIT_ALONE.search(text)):        # V0 says it on a line of its own
            self.samples[-1] = replace(self.samples[-1], hit_percent=float(alone[1]))
        elif _WORDS.search(text):                      # most lines say nothing to us
            self._start_up(line, text)

    def _complete(self, text: str) -> bool:
        """Whether a periodic line has all that is needed, and the hit rate if the one before has it."""
        elsewhere = not self.samples or self.samples[-1].hit_percent is None or "Pending: " in text
        return all(_PERIODIC[name].search(text) for name in (NEEDED if elsewhere else (*NEEDED, "hit_percent")))

    def _periodic(self, line: int, text: str) -> None:
        found = {name: match[1] for name, pattern in _PERIODIC.items() if (match := pattern.search(text))}
        if not all(name in found for name in NEEDED):
            self.torn += 1
            return
        engine, origin = _ENGINE.search(text), _ORIGIN.findall(text)
        self.samples.append(Sample(
            line, None, int(engine[1]) if engine else 0, float(found["prompt_tokens_per_s"]),
            float(found["generation_tokens_per_s"]), int(found["running"]), int(found["waiting"]),
            float(found["usage_percent"]), float(found["hit_percent"]) if "hit_percent" in found else None,
            int(found["preemptions"]) if "preemptions" in found else None, int(found.get("swapped", 0)),
            " ".join("".join(each) for each in origin)))
        self.stamps.append(stamp_of(text))

    def _start_up(self, line: int, text: str) -> None:
        for name, pattern in _FACTS.items():
            if match := pattern.search(text):
                if self.samples and self.started_again is None:
                    self.started_again = line
                self.facts.setdefault(name, {})[float(match[1].replace(",", "") or 0)] = None
        if self.version is None and (version := _VERSION.search(text)):
            self.version = version[1]
        if config := _CONFIG.search(text):
            for name, value in _SETTING.findall(config[1] or config[2] or config[3] or ""):
                self.settings.setdefault(name, value.strip("'\""))

    def made(self, path: str) -> ServerLog:
        """The samples with their times, in order."""
        notes, samples, times = list(self.notes), self.samples, times_of(self.stamps)
        if self.torn:
            notes.append(f"warning: {counted(self.torn, 'periodic line')} passed over: torn, or without a field")
        if times is None:
            notes.append("the lines have no times: they are taken to be equally far apart")
        else:
            ordered = sorted(zip(times, samples, strict=True), key=lambda each: each[0])
            samples = [replace(sample, time_s=time) for time, sample in ordered]
        return ServerLog(path, tuple(samples), {name: tuple(values) for name, values in self.facts.items()}, self.settings,
                         self.version, self.started_again, tuple(notes))
