"""What kind of measurement a file is, by its content."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from experiments.calibration import benchmark, metrics_page, server_log, table
from experiments.calibration.cases import Case
from experiments.calibration.column_names import looks_like_table
from experiments.calibration.metrics_page import MetricsPage
from experiments.calibration.repeats import Contents
from experiments.calibration.server_log import ServerLog
from workloads.messages import complaint, show_names, show_path
from workloads.readers.common import Head, head_of
from workloads.readers.csv_table import header_names
from workloads.readers.source import Source, open_source
from workloads.request import InputError, Trace

TABLE, BENCHMARK, LOG, METRICS = "table", "benchmark", "log", "metrics"
LOOKED_AT = 1 << 20
NO_HEAD = Head(())
NOT_ONE = ("no measurement that is known: not a table (CSV with prompt_tokens, output_tokens and ttft_ms or tpot_ms), a result "
           "of vllm bench serve --save-result, a server's log, or a saved /metrics page")


@dataclass(frozen=True)
class Measured:
    """A file whose beginning has been looked at. ``certain``: whether that said what it is."""

    kind: str
    source: Source
    head: Head = NO_HEAD
    certain: bool = True


class Read(NamedTuple):
    """What the files hold: cases to fit to, or one log, or one page."""

    cases: list[Case]
    log: ServerLog | None = None
    page: MetricsPage | None = None


def open_measured(path: str) -> Measured:
    """Look at the beginning of a file, packed or not; ``-`` is standard input.

    Raises
    ------
    InputError
        If it cannot be opened, or is JSON and no benchmark result.
    """
    source = open_source(path)
    text = source.first.data[:LOOKED_AT].decode("utf-8", "replace")
    if metrics_page.looks_like_metrics(text):
        return Measured(METRICS, source)
    try:
        if text.lstrip().startswith(("{", "[")):
            return _json(source, text)
        if looks_like_table(header_names(source)) and not server_log.looks_like_log(text):
            return Measured(TABLE, source)
    except InputError:                                 # colours, or no text at all: a log, or nothing we know
        if not server_log.looks_like_log(text):
            raise
    return Measured(LOG, source, certain=server_log.looks_like_log(text))


def _json(source: Source, text: str) -> Measured:
    head = head_of(source)
    if benchmark.is_benchmark(head):
        return Measured(BENCHMARK, source, head)
    if server_log.looks_like_log(text):                # docker keeps each line in an object
        return Measured(LOG, source)
    if head.fault is not None and not head.keys:
        raise head.fault
    if head.record is None:                            # it may be cut off before the keys that would say what it is
        for _ in benchmark.results(source, head):
            pass
    raise complaint(source.path, source.first.line, f"{NOT_ONE}; the keys are {show_names(sorted(head.keys))}")


def read_all(found: list[Measured], lengths: Trace | None, seed: int) -> Read:
    """Read the files to their ends.

    Parameters
    ----------
    found : list of Measured
    lengths : Trace, optional
        For benchmark results that hold only totals.
    seed : int

    Raises
    ------
    InputError
        For a file that is bad or has the content of another, and for a log or a page beside other files.
    """
    alone = [each for each in found if each.kind in (LOG, METRICS)]
    if alone and len(found) > 1:
        what = "log" if alone[0].kind == LOG else "metrics page"
        raise InputError(f"{alone[0].source.path}: a server's {what} is compared by itself, and {len(found)} files were given")
    if alone and alone[0].kind == METRICS:
        return Read([], page=metrics_page.read_metrics(alone[0].source))
    if alone:
        return Read([], log=_log(alone[0]))
    contents = Contents()
    return Read([case for each in found for case in _cases(each, contents, lengths, seed, several=len(found) > 1)])


def _cases(found: Measured, contents: Contents, lengths: Trace | None, seed: int, several: bool) -> list[Case]:
    source, check = contents.watched(found.source)
    if found.kind == BENCHMARK:
        cases = benchmark.read_benchmarks(source, found.head, lengths, seed)
    else:
        where = f"{show_path(source.path)}: " if several else ""
        cases = [replace(case, label=where + case.label) for case in table.read_table(source)]
    check()
    return cases


def _log(found: Measured) -> ServerLog:
    try:
        return server_log.read_log(found.source)
    except InputError:
        if found.certain:
            raise
        raise complaint(found.source.path, found.source.first.line, NOT_ONE) from None
