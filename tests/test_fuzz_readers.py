"""Thousands of damaged files of every format: rows that add up, or one line that begins with the file.

Seeded, the same every time; PAGEDSIM_LONG=N tries N times as many. What commands say of such files is in `test_fuzz.py`.
"""

from __future__ import annotations

from random import Random

import pytest
from format_samples import SAMPLES, put
from fuzz.mutations import mutated, packed
from small import LONG

from workloads.readers import ReadOptions, read_rows
from workloads.request import InputError

FILES_A_SAMPLE = 150 * LONG
OPTIONS = [*[ReadOptions()] * 6, ReadOptions(strict=True), ReadOptions(incremental=True), ReadOptions(span_tokens=3),
           ReadOptions(session_rate_per_s=0.5)]        # the last three have a meaning for some formats only


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_rows_or_one_line(tmp_path, sample):
    draw = Random(sample.name)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(FILES_A_SAMPLE):
        data = packed(draw, mutated(draw, sample.text.encode()))
        path = put(tmp_path, sample, data)
        format, options = sample.format if draw.random() < 0.5 else None, draw.choice(OPTIONS)
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
