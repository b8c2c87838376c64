"""Folders that are one trace: ServeGen's clients, kv-cache-tester's sessions."""

from __future__ import annotations

import os
from dataclasses import replace

from workloads.messages import reading_failed, show_path
from workloads.readers import kv_cache_tester, servegen
from workloads.readers.common import LIKELY, head_of
from workloads.readers.read_options import ReadOptions
from workloads.readers.rows import Rows
from workloads.readers.source import open_source
from workloads.request import InputError

PACKED = ("", ".gz", ".zst")
SESSIONS = tuple(f".json{packed}" for packed in PACKED)
TABLES = tuple(f".{kind}{packed}" for kind in ("csv", "jsonl") for packed in PACKED)


def read_folder(path: str, options: ReadOptions, format: str | None = None) -> Rows:
    """The rows of all files of a folder, in order of their names; of a format, if one is asked for.

    Raises
    ------
    InputError
        If it cannot be listed, holds neither clients nor sessions, or files of other kinds that may be meant, or for the first
        bad value in a file.
    """
    if format not in (None, servegen.READER.name, kv_cache_tester.READER.name) or options.columns is not None:
        raise InputError(f"{show_path(path)}: is a directory, and only {servegen.READER.name} and {kv_cache_tester.READER.name} "
                         "have those")
    try:
        names = sorted(os.listdir(path))
        found = None if format == kv_cache_tester.READER.name else servegen.read_folder(path, options)
    except OSError as error:
        raise reading_failed(path, error) from None
    if found is not None:
        return replace(found, format=servegen.READER.name)
    files = [name for name in names if name.endswith(SESSIONS) and format != servegen.READER.name]
    if not files:
        raise InputError(f"{show_path(path)}: is a directory, and holds no ServeGen clients (chunk-K-trace.csv) nor "
                         "kv-cache-tester sessions (*.json)")
    others = [name for name in names if name.endswith(TABLES)]
    if others and format is None:
        raise _which(path, f"{show_path(others[0])} besides {show_path(files[0])}")
    sessions = kv_cache_tester.Sessions()
    for name in files:
        source = open_source(os.path.join(path, name), options)
        if format is None and kv_cache_tester.READER.score(head_of(source)) < LIKELY:
            raise _which(path, f"{show_path(name)}, which is no kv-cache-tester session")
        sessions.add(source)
    return replace(sessions.rows(path, alone=False), format=kv_cache_tester.READER.name)


def _which(path: str, held: str) -> InputError:
    return InputError(f"{show_path(path)}: is a directory, and holds {held}: name one file, or say --format "
                      f"{kv_cache_tester.READER.name} to read its sessions")
