"""A saved /metrics page of a vLLM server: gauges of one moment, counters and histograms since it started.

Names changed over the versions: ``gpu_cache_usage_perc`` became ``kv_cache_usage_perc``, ``gpu_prefix_cache_hits`` lost its
``gpu_``, everything gained an ``engine`` label; `NAMES` holds every one under which a thing was published.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from workloads.messages import complaint, show, show_path
from workloads.readers.source import Source, decode
from workloads.request import InputError

NAMES = {
    "running": ("num_requests_running",), "waiting": ("num_requests_waiting",), "swapped": ("num_requests_swapped",),
    "usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "query_tokens": ("prefix_cache_queries_total", "prefix_cache_queries", "gpu_prefix_cache_queries_total",
                     "gpu_prefix_cache_queries"),
    "hit_tokens": ("prefix_cache_hits_total", "prefix_cache_hits", "gpu_prefix_cache_hits_total", "gpu_prefix_cache_hits"),
    "preemptions": ("num_preemptions_total", "num_preemptions"),
    "prompt_tokens": ("prompt_tokens_total", "prompt_tokens"),
    "generation_tokens": ("generation_tokens_total", "generation_tokens"),
    "succeeded": ("request_success_total", "request_success"),
}
HISTOGRAMS = {
    "ttft": ("time_to_first_token_seconds",),
    "tpot": ("request_time_per_output_token_seconds",),
    "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "queue": ("request_queue_time_seconds",), "e2e": ("e2e_request_latency_seconds",),
    "prompt_length": ("request_prompt_tokens",), "output_length": ("request_generation_tokens",),
}
INFO = "cache_config_info"
SHARES = ("usage",)                                    # a mean over engines, not a sum
LOOKED_FOR = "vllm:num_requests_running, vllm:kv_cache_usage_perc, vllm:prompt_tokens_total and the like"
LONGEST_LINE = 1 << 16
CUT_OFF = ("warning: the page is cut off in line {:,}, which has no end: {}; it is passed over, and what may have followed is "
           "missing")
_LINE = re.compile(r"vllm[:_]([a-z0-9_]+)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"\s*,?')
_BEGINS = re.compile(r"(?m)^(?:# (?:HELP|TYPE) )?vllm[:_][a-z]")


@dataclass(frozen=True)
class Total:
    """A histogram's sum and count."""

    sum: float
    count: float

    @property
    def mean(self) -> float | None:
        """None where nothing was counted."""
        return self.sum / self.count if self.count else None


@dataclass(frozen=True)
class Engine:
    """The numbers of one engine: gauges and counters by the keys of `NAMES`, totals by those of `HISTOGRAMS`."""

    values: Mapping[str, float] = field(default_factory=dict)
    totals: Mapping[str, Total] = field(default_factory=dict)
    pool: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MetricsPage:
    """A page: engines by their label ("0" where there is none), the models that are served, and what is doubtful about it."""

    path: str
    engines: dict[str, Engine]
    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def of_engine(self, engine: int) -> MetricsPage:
        """The page of one engine alone; InputError if it is not there."""
        if str(engine) not in self.engines:
            raise InputError(f"{show_path(self.path)}: no engine {engine}; those of {', '.join(self.engines)} are there")
        return MetricsPage(self.path, {str(engine): self.engines[str(engine)]}, self.models, self.notes)

    def together(self) -> Engine:
        """All engines as one: sums, and the mean of shares; the pool is that of the first."""
        engines = list(self.engines.values())
        values = {name: sum(e.values[name] for e in engines) / (len(engines) if name in SHARES else 1)
                  for name in NAMES if all(name in e.values for e in engines)}
        totals = {name: Total(sum(e.totals[name].sum for e in engines), sum(e.totals[name].count for e in engines))
                  for name in HISTOGRAMS if all(name in e.totals for e in engines)}
        return Engine(values, totals, engines[0].pool)


def looks_like_metrics(text: str) -> bool:
    """Whether some line is a metric of vLLM's."""
    return _BEGINS.search(text) is not None


def read_metrics(source: Source) -> MetricsPage:
    """The page, in the Prometheus text format; lines of others are passed over.

    A last line without its end may lack digits, so it is passed over too, with a note.

    Raises
    ------
    InputError
        For a line of vLLM's that cannot be read, a value that cannot be, or if there is none at all.
    """
    found: dict[str, dict[str, float]] = {}
    pool: dict[str, dict[str, str]] = {}
    models: dict[str, None] = {}
    notes: list[str] = []
    for name, labels, value in _metrics(source, notes):
        engine = labels.get("engine", "0")
        if "model_name" in labels:
            models[labels["model_name"]] = None
        if name == INFO:
            pool.setdefault(engine, labels)
        else:
            numbers = found.setdefault(engine, {})
            numbers[name] = numbers.get(name, 0.0) + value       # requests that succeeded: one line a reason
    engines = {engine: _engine(numbers, pool.get(engine, pool.get("0", {}))) for engine, numbers in found.items()}
    if not any(engine.values or engine.totals for engine in engines.values()):
        raise complaint(source.path, source.first.line, f"no metric of a vLLM server is in it; looked for {LOOKED_FOR}")
    return MetricsPage(source.path, dict(sorted(engines.items())), tuple(models), tuple(notes))


def _engine(numbers: Mapping[str, float], pool: Mapping[str, str]) -> Engine:
    values = {key: numbers[name] for key, names in NAMES.items() if (name := _first(names, numbers))}
    whole = [name.removesuffix("_count") for name in numbers if f"{name.removesuffix('_count')}_sum" in numbers]
    totals = {key: Total(numbers[f"{name}_sum"], numbers[f"{name}_count"]) for key, names in HISTOGRAMS.items()
              if (name := next((name for name in names if name in whole), None))}
    return Engine(values, totals, pool)


def _first(names: tuple[str, ...], there: Mapping[str, float]) -> str | None:
    return next((name for name in names if name in there), None)


WANTED = {name for names in NAMES.values() for name in names} | {
    f"{name}_{part}" for names in HISTOGRAMS.values() for name in names for part in ("sum", "count")} | {INFO}


def _metrics(source: Source, notes: list[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    for block in source.blocks():
        *lines, rest = decode(source.path, block).split("\n")
        if rest.strip():
            notes.append(CUT_OFF.format(block.line + len(lines), show(rest[:200])))
        for line, text in enumerate(lines, start=block.line):
            if not text.startswith(("vllm:", "vllm_")):
                continue
            match = _LINE.fullmatch(text) if len(text) <= LONGEST_LINE else None
            if match is None:
                raise complaint(source.path, line, f"no metric: {show(text[:200])}")
            if match[1] in WANTED:
                yield match[1], _labels(source.path, line, match[2] or ""), _value(source.path, line, match[1], match[3])


def _labels(path: str, line: int, text: str) -> dict[str, str]:
    labels, at = {}, 0
    while at < len(text.rstrip()):
        match = _LABEL.match(text, at)
        if match is None:
            raise complaint(path, line, f"no label: {show(text[at:at + 100])}")
        labels[match[1]] = re.sub(r"\\(.)", lambda escaped: "\n" if escaped[1] == "n" else escaped[1], match[2])
        at = match.end()
    return labels


def _value(path: str, line: int, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value < math.inf):                    # what is looked at counts or measures something
        raise complaint(path, line, f"{name}: {show(text)} is not a number of at least 0")
    if name in NAMES["usage"] and value > 1:
        raise complaint(path, line, f"{name}: {show(text)} is above 1: the whole pool is 1")
    return value
