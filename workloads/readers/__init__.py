"""Public trace formats: one module each, and one line in READERS, which is the only list.

Data flows  packed (bytes) -> source (lines, limits) -> csv_table | json_lines | json_document (syntax)
            -> a format (columns) -> Rows -> Trace.
`fast_fields`, `fast_rows`, `times` and `values` read numbers; `messages` words the complaints. A format is loaded when it is
asked for, all of them where a file is to tell its format.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from workloads.later import Later, LaterTable
from workloads.messages import complaint, show, show_names, show_path
from workloads.readers.common import LIKELY, Head, Reader, head_of
from workloads.readers.read_options import ReadOptions
from workloads.readers.rows import Rows
from workloads.readers.source import Source, first_line, open_source
from workloads.request import InputError, Trace

if TYPE_CHECKING:
    from workloads.readers import folders
else:
    folders = Later("workloads.readers.folders")

OWN = "csv"
READERS: LaterTable[Reader] = LaterTable({name: f"workloads.readers.{place}" for name, place in {
    "azure": "azure:READER", "azure-images": "azure:IMAGES", "burstgpt": "burstgpt:READER", "mooncake": "mooncake:READER",
    "qwen": "qwen:READER", "servegen": "servegen:READER", "servegen-offline": "servegen_offline:READER",
    "ragpulse": "ragpulse:READER", "kv-cache-tester": "kv_cache_tester:READER",
    "kv-cache-tester-table": "kv_cache_tester:TABLE_READER", "lmcache-agent": "lmcache:READER",
    "llmservingsim": "llmservingsim:READER", "splitwise-sim": "small_tables:SPLITWISE_SIM", "apex": "small_tables:APEX",
    "apex-lines": "small_tables:APEX_LINES", "vtc-arena": "small_tables:VTC", "vidur": "vidur:READER",
    "vllm-bench": "benchmark_json:VLLM_RESULT", "sharegpt": "benchmark_json:SHAREGPT",
    "json-lengths": "benchmark_json:JSON_LENGTHS", "csv": "own_table:READER"}.items()})
"""Name -> reader, loaded when it is asked for: a format that is named needs no other."""

WITH_SPANS = ("mooncake", "qwen", "servegen-offline", "lmcache-agent", "llmservingsim")
"""Formats that do not say how many tokens an id stands for, or whether turns are increments."""
ALIASES = {"lengths": OWN}

__all__ = ["ALIASES", "READERS", "ReadOptions", "Reader", "Rows", "read_rows", "read_trace"]


def read_trace(path: str | os.PathLike[str], format: str | None = None, options: ReadOptions | None = None) -> Trace:
    """Read a request trace, plain or packed with gzip or zstandard.

    Parameters
    ----------
    path : str or path
        The file, ``-`` for standard input, or a folder where a format has those; its name tells nothing about the format.
    format : str, optional
        A name in READERS; by default the format is told by the content.
    options : ReadOptions, optional
        How to read it.

    Returns
    -------
    Trace
        With `source` the path as given, sorted stably by time where there are times, times from the first request.

    Raises
    ------
    InputError
        On one line, with file, line, column and value where there are such.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "any.name")
    >>> _ = path.write_text("prompt_tokens,output_tokens\\n21,518\\n8,66\\n")
    >>> read_trace(path).output_tokens
    array([518,  66])
    """
    return read_rows(path, format, options).to_trace(options)


def read_rows(path: str | os.PathLike[str], format: str | None = None, options: ReadOptions | None = None) -> Rows:
    """Every row of a trace file in file order, as `read_trace` reads it; InputError as there."""
    options = ReadOptions() if options is None else options
    format = ALIASES.get(format or "", format)
    if format is not None and format not in READERS:
        raise InputError(f"unknown trace format {show(format)}; the formats are {', '.join(READERS)}")
    if options.columns is not None and format not in (None, OWN):
        raise InputError(f"--columns is for a table of one's own (--format csv), not for --format {format}")
    if os.path.isdir(path):
        rows = folders.read_folder(os.fspath(path), options, format)
        _refuse_unused(rows, options)
        return rows
    source = open_source(os.fspath(path), options)
    name = format or (OWN if options.columns is not None else _sniff(source))
    rows = replace(READERS[name].read(source), format=name)
    _refuse_unused(rows, options)
    return rows


def _refuse_unused(rows: Rows, options: ReadOptions) -> None:
    """What was said about reading and has no meaning for the format is an error, not ignored."""
    name = rows.format or ""
    unused = {"--window": options.window_s is not None and name != "servegen",
              "--session-rate": options.session_rate_per_s is not None and rows.clocks is None,
              "--hash-block-size": options.span_tokens is not None and (name not in WITH_SPANS or rows.content is None),
              "--incremental-turns": options.incremental and name not in WITH_SPANS}
    for option, holds in unused.items():
        if holds:
            raise InputError(f"{show_path(rows.path)}: {option} has no meaning here: it is read as {name}")


def _sniff(source: Source) -> str:
    """The name of the format that fits best."""
    head = head_of(source)
    scores = {name: reader.score(head) for name, reader in READERS.items()}
    best = max(scores, key=scores.__getitem__)  # the first of equals
    if scores[best] < LIKELY:
        raise head.fault or _unknown(source, head)
    return best


def _unknown(source: Source, head: Head) -> InputError:
    names = ", ".join(READERS)
    between = next((sign for sign in ";\t|" if len(head.columns) == 1 and sign in head.columns[0]), None)
    hint = f" (fields have commas between them, not {show(between)})" if between else ""
    problem = f"unknown trace format: the columns are {show_names(head.columns)}{hint}; the formats are {names}"
    return complaint(source.path, first_line(source)[0], problem)
