"""Thousands of damaged files of every format: rows or one line, never anything else, and never long.

Seeded, the same every time; PAGEDSIM_LONG=N tries N times as many.
"""

from __future__ import annotations

import gzip
import json
import zlib

import numpy as np
import pytest
import zstandard
from format_samples import SAMPLES, put
from small import LONG

from workloads.readers import ReadOptions, read_rows
from workloads.request import InputError

FILES_A_SAMPLE = 150 * LONG
PIECES = [b"", b"\n", b"\r", b"\r\n", b",", b'"', b'""', b"\0", b"\x01", b"\xff", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"-", b"-1",
          b"NaN", b"Infinity", b"1e400", b"1e-400", b"1e99999999999999999999", b"9" * 30, b"9" * 5000, b"2147483648", b"{", b"}",
          b"[", b"]", b"[" * 3000, b"{}", b"[]", b"null", b"true", b'"\\ud800"', b"\\", b"#", b"# hash_ids: 0", b";", b"\t", b" ",
          b"0", b"+", b".", b"2024-02-30 00:00:00", b"+99:99", "\u0663".encode(),
          b"\x1f\x8b", b"\x1f", b"hash_ids", b"session_id"]
VALUES = [None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1.5, 1e300, "", "x", "\ud800", "1" * 100, [], {}, [1, 1], [None], {"a": 1},
          [[[[]]]], "-1", "nan", 12.0]


def damaged(rng, data):
    """A few bytes put in, taken out or doubled."""
    for _ in range(rng.integers(1, 4)):
        at, to = sorted(rng.integers(0, len(data) + 1, 2).tolist())
        to = min(to, at + int(rng.integers(0, 12)))
        match rng.integers(0, 5):
            case 0:
                data = data[:at] + PIECES[rng.integers(len(PIECES))] + data[at:]
            case 1:
                data = data[:at] + PIECES[rng.integers(len(PIECES))] + data[to:]
            case 2:
                data = data[:at] + data[to:]
            case 3:
                data = data[:at] + data[at:to] * 2 + data[to:]
            case _:
                data = data[:at]
    return data


def replaced(rng, sample):
    """JSON with another value somewhere; any other text with another field."""
    def somewhere(value):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        if not keys or rng.random() < 0.2:
            return VALUES[rng.integers(len(VALUES))]
        key = keys[rng.integers(len(keys))]
        inner = value[key]
        deeper = isinstance(inner, dict | list) and rng.random() < 0.8
        value[key] = somewhere(inner) if deeper else VALUES[rng.integers(len(VALUES))]
        return value

    if sample.kind == "csv":
        rows = [row.split(",") for row in sample.text.split("\n")]
        row = rows[rng.integers(len(rows))]
        row[rng.integers(len(row))] = PIECES[rng.integers(len(PIECES))].decode("utf-8", "replace")
        return "\n".join(",".join(row) for row in rows).encode()
    if sample.kind == "document":
        return json.dumps(somewhere(json.loads(sample.text))).encode()
    rows = [row for row in sample.text.split("\n") if row]
    at = rng.integers(len(rows))
    rows[at] = json.dumps(somewhere(json.loads(rows[at])))
    return "\n".join(rows).encode()


def packed(rng, data):
    """Plain mostly, else packed and perhaps damaged after that."""
    pack = (bytes, bytes, bytes, gzip.compress, zstandard.compress)[rng.integers(5)]
    made = pack(data)
    return made if pack is bytes or rng.random() < 0.5 else damaged(rng, made)


OPTIONS = [*[ReadOptions()] * 6, ReadOptions(strict=True), ReadOptions(incremental=True), ReadOptions(span_tokens=3),
           ReadOptions(session_rate_per_s=0.5)]        # the last three have a meaning for some formats only


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_rows_or_one_line(tmp_path, sample):
    rng = np.random.default_rng([6, zlib.crc32(sample.name.encode())])
    outcomes = {"read": 0, "refused": 0}
    for _ in range(FILES_A_SAMPLE):
        data = packed(rng, damaged(rng, sample.text.encode()) if rng.random() < 0.5 else replaced(rng, sample))
        path = put(tmp_path, sample, data)
        format, options = sample.format if rng.random() < 0.5 else None, OPTIONS[rng.integers(len(OPTIONS))]
        try:
            rows = read_rows(path, format, options)
            rows.arrivals_us(options)
            trace = rows.to_trace(options)
            assert len(trace) + sum(trace.dropped.values()) == len(rows)
            outcomes["read"] += 1
        except InputError as error:
            message = str(error)
            assert message.startswith(str(path)), (message, data)
            assert message.isprintable() and len(message) < len(str(path)) + 1200, (message, data)
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}: {data!r}") from error
    assert min(outcomes.values()) > 0, outcomes
