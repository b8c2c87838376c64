"""Every public format by a small file: its columns, by content alone, however it is wrapped, whatever stands in it besides."""

from __future__ import annotations

import gzip
import io
import json
import sys

import pytest
import zstandard
from format_samples import BY_NAME, SAMPLES, Sample, columns, put

from workloads.readers import READERS, _sniff, read_rows, read_trace
from workloads.readers.source import open_source

every = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


def check(path, sample, format=None):
    assert columns(read_rows(path, format, sample.options)) == sample.expected


def stdin_of(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))


def test_there_is_a_sample_of_every_format():
    assert {sample.format for sample in SAMPLES} == set(READERS) - {"servegen"}   # which is a pair of files: test_servegen_reader


@every
def test_columns_by_content_alone(tmp_path, sample):
    check(put(tmp_path, sample), sample)


@every
def test_each_is_read_by_its_own_reader(tmp_path, sample):
    assert _sniff(open_source(str(put(tmp_path, sample)))) == sample.format


@every
def test_with_the_format_given(tmp_path, sample):
    check(put(tmp_path, sample), sample, sample.format)


@every
@pytest.mark.parametrize("name", ["trace.csv", "trace.json", "trace.jsonl.gz", "1_sys_prompt.parquet"])
def test_the_name_tells_nothing(tmp_path, sample, name):
    check(put(tmp_path, sample, file=name), sample)


@every
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
def test_packed(tmp_path, sample, pack):
    check(put(tmp_path, sample, pack(sample.text.encode())), sample)
    for name, text in sample.beside.items():
        (tmp_path / f"{name}.zst").write_bytes(zstandard.compress(text.encode()))
        (tmp_path / name).unlink()
    check(tmp_path / sample.file, sample)


@every
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gz", "zst"])
def test_from_standard_input(tmp_path, monkeypatch, sample, pack):
    expected = BY_NAME["ragpulse-alone"] if sample.beside else sample  # nothing lies beside standard input
    stdin_of(monkeypatch, pack(sample.text.encode()))
    check("-", expected)


@every
def test_line_ends_blank_lines_and_no_last_line_end(tmp_path, sample):
    text = sample.text.replace("\r\n", "\n")
    for other in (text.replace("\n", "\r\n"), text.rstrip("\n"), "\n\n" + text + "\n\r\n", "\ufeff" + text,
                  text.replace("\n", "\n\n")):
        check(put(tmp_path, sample, other.encode()), sample)


@every
def test_columns_in_another_order(tmp_path, sample):
    check(put(tmp_path, sample, turned(sample).encode()), sample)


def turned(sample: Sample) -> str:
    """The same with the columns, or the keys of every object, in reverse."""
    if sample.kind == "csv":
        rows = [row for row in sample.text.replace("\r\n", "\n").split("\n") if row]
        return "\n".join(row if row.startswith("#") else ",".join(reversed(row.split(","))) for row in rows)
    texts = sample.text.splitlines() if sample.kind == "lines" else [sample.text]
    return "\n".join(json.dumps(reverse(json.loads(text))) for text in texts if text)


def reverse(value):
    if isinstance(value, dict):
        return {key: reverse(value[key]) for key in reversed(list(value))}
    return [reverse(one) for one in value] if isinstance(value, list) else value


@every
def test_columns_nobody_knows(tmp_path, sample):
    if sample.kind == "csv":
        rows = sample.text.replace("\r\n", "\n").rstrip("\n").split("\n")
        text = "\n".join(row if row.startswith("#") else f'note,{row},"a, b"' for row in rows)
    elif sample.kind == "lines":
        text = "\n".join(json.dumps({"note": [1, {"x": None}], **json.loads(row)}) for row in sample.text.splitlines() if row)
    else:
        found = json.loads(sample.text)
        text = json.dumps([{"note": 1, **one} for one in found] if isinstance(found, list) else {"note": {"a": 1}, **found})
    check(put(tmp_path, sample, text.encode()), sample)


@pytest.mark.parametrize("around", [" %s ", '"%s"', ' "%s"'], ids=["spaces", "quotes", "both"])
@pytest.mark.parametrize("sample", [one for one in SAMPLES if one.kind == "csv"], ids=lambda sample: sample.name)
def test_quotes_and_spaces_around_names_and_values(tmp_path, sample, around):
    rows = sample.text.replace("\r\n", "\n").rstrip("\n").split("\n")
    text = "\n".join(row if row.startswith("#") else ",".join(around % one for one in row.split(",")) for row in rows)
    check(put(tmp_path, sample, text.encode()), sample)


@every
def test_blocks_of_a_few_bytes(tmp_path, monkeypatch, sample):
    monkeypatch.setattr("workloads.readers.source.BLOCK_BYTES", 200 if sample.text.startswith("#") else 48)
    monkeypatch.setattr("workloads.readers.packed.PIECE_BYTES", 7)
    check(put(tmp_path, sample), sample, sample.format)


@every
def test_zero_lengths_are_left_out_and_the_rest_is_sorted(tmp_path, sample):
    trace = read_trace(put(tmp_path, sample), options=sample.options)
    output = sample.output or [1] * len(sample.prompt)
    arrival = sample.arrival_us or [0] * len(output)
    kept = [row for row in range(len(output)) if sample.prompt[row] and output[row]]
    kept.sort(key=lambda row: arrival[row])
    assert trace.prompt_tokens.tolist() == [sample.prompt[row] for row in kept]
    assert trace.output_tokens.tolist() == [output[row] for row in kept]
    no_prompt = sample.prompt.count(0)
    counts = {"zero_prompt": no_prompt, "zero_output": len(output) - len(kept) - no_prompt}
    assert dict(trace.dropped) == {reason: count for reason, count in counts.items() if count}
    if sample.arrival_us is not None:
        assert trace.arrival_us.tolist() == [arrival[row] - arrival[kept[0]] for row in kept]


@every
def test_what_a_trace_cannot_show_is_said(tmp_path, sample):
    notes = " ".join(read_trace(put(tmp_path, sample), options=sample.options).notes)
    assert ("no arrival times" in notes) == (sample.arrival_us is None)
    assert ("no prefix identity: sharing cannot be measured" in notes) == (sample.ids is None)
    assert ("no output lengths" in notes) == (sample.output is None)
