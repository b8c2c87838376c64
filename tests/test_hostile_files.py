"""Whatever is done to a good file of any format: one line that names it, exit status 2, no traceback, little memory."""

from __future__ import annotations

import gzip
import json
import re

import pytest
import zstandard
from format_samples import BY_NAME, SAMPLES, complaint, put

from workloads.readers import ReadOptions, read_trace
from workloads.request import InputError

LINES = [sample for sample in SAMPLES if sample.kind == "lines"]
CSV = [sample for sample in SAMPLES if sample.kind == "csv"]
every = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
every_line = pytest.mark.parametrize("sample", LINES, ids=lambda sample: sample.name)
every_table = pytest.mark.parametrize("sample", CSV, ids=lambda sample: sample.name)

# of each format the column of a prompt's length, and of a time
PROMPTS = {"azure": "ContextTokens", "azure-images": "ContextTokens", "burstgpt": "Request tokens",
           "splitwise-sim": "prompt_size", "apex": "context_tokens", "apex-lines": "ContextTokens",
           "vtc-arena": "prompt_tokens", "vidur": "num_prefill_tokens",
           "csv": "prompt_tokens",
           "kv-cache-tester-table": "in_tokens", "mooncake-names": "input_tokens", "llmservingsim": "input_toks",
           "json-lengths-lines": "prompt_tokens"}
TIMES = {"azure": "TIMESTAMP", "azure-images": "TIMESTAMP", "burstgpt": "Timestamp", "splitwise-sim": "arrival_timestamp",
         "apex": "start_time_offset_ns", "apex-lines": "StartTimeOffset",
         "vtc-arena": "req_time_s", "vidur-times": "arrived_at", "csv": "arrival_us",
         "csv-seconds": "arrival_s", "kv-cache-tester-table": "t_s", "mooncake-names": "created_time",
         "llmservingsim": "arrival_time_ns"}


def column_of(names, sample, default=None):
    return names.get(sample.name, names.get(sample.format, default))


def last_row(sample, column, value):
    """The text with another value in one column of its last row, and the number of that line."""
    rows = sample.text.replace("\r\n", "\n").rstrip("\n").split("\n")
    if sample.kind == "lines":
        rows[-1] = re.sub(rf'("{column}": )("[^"]*"|[^,}}\]]+)', lambda found: found[1] + value, rows[-1], count=1)
    else:
        header = next(row for row in rows if not row.startswith("#")).split(",")
        fields = rows[-1].split(",")
        fields[header.index(column)] = value
        rows[-1] = ",".join(fields)
    return "\n".join(rows) + "\n", len(rows)


# ---------------------------------------------------------------------- values
@every_line
@pytest.mark.parametrize("value", ["-1", "NaN", "Infinity", "-Infinity", "1e400", "12.5", "12.0", "true", "null", '"12"', "[]",
                                   "{}", "9" * 5000, "99999999999999999999", "1e999999999999999999999", '"\\ud800"'])
def test_lengths_in_lines(tmp_path, capsys, sample, value):
    column = column_of(PROMPTS, sample, "input_length")
    if column not in sample.text:
        return                                         # texts: their lengths are not written
    text, line = last_row(sample, column, value)
    found = complaint(capsys, put(tmp_path, sample, text.encode()))
    assert found.startswith((f":{line}: column '{column}': ", f":{line}: malformed JSON: ")), found


@every_line
@pytest.mark.parametrize("value", ["-1", "NaN", "1e400", "true", "[1]", "1e-999", "9" * 5000, "1e999999999999999999999"])
def test_times_in_lines(tmp_path, capsys, sample, value):
    column = column_of(TIMES, sample, "timestamp")
    if sample.arrival_us is None:
        return
    text, line = last_row(sample, column, value if sample.format != "ragpulse" else json.dumps(value))
    found = complaint(capsys, put(tmp_path, sample, text.encode()))
    assert found.startswith((f":{line}: column '{column}': ", f":{line}: malformed JSON: ")), found


@every_table
@pytest.mark.parametrize("value", ["-1", "NaN", "inf", "1e400", "12.5", "12.0", "true", "", "null", "0x10", "1_000", "\u0663",
                                   "9" * 5000, "\x01", "1;2"])
def test_lengths_in_tables(tmp_path, capsys, sample, value):
    column = column_of(PROMPTS, sample)
    text, line = last_row(sample, column, value)
    assert complaint(capsys, put(tmp_path, sample, text.encode())).startswith(f":{line}: column '{column}': ")


@every_table
@pytest.mark.parametrize("value", ["-1", "NaN", "inf", "1e400", "noon", "", "9" * 5000, "2024-13-01 00:00:00",
                                   "2024-01-01 00:00:00+99:00"])
def test_times_in_tables(tmp_path, capsys, sample, value):
    column = column_of(TIMES, sample)
    if column is None or column not in sample.text:
        return
    text, line = last_row(sample, column, value)
    assert complaint(capsys, put(tmp_path, sample, text.encode())).startswith(f":{line}: column '{column}': ")


@pytest.mark.parametrize(("name", "good", "says"), [
    ("kv-session", '"in": 200', "requests[2]: column 'in': "),
    ("kv-one-line", '"out": 8', "requests[1].requests[1]: column 'out': "),
    ("kv-session", '"t": 10.5', "requests[1]: column 't': "),
    ("kv-session", '"think_time": 2.5', "requests[2]: column 'think_time': "),
    ("kv-session", '"block_size": 64', "column 'block_size': "), ("vllm-times", "128, 0", "entry 0: column 'output_lens': "),
    ("vllm", "12\n", "entry 1: column 'input_lens': "), ("vllm-times", "12345.25", "entry 1: column 'start_times': "),
    ("json-lengths-array", '"output_len": 8', "column 'output_len': ")])
@pytest.mark.parametrize("value", ["-1", "NaN", "1e400", "true", "[]", '"12"', "9" * 5000, "1e999999999999999999999"])
def test_values_in_documents(tmp_path, capsys, name, good, says, value):
    sample = BY_NAME[name]
    bad = {"128, 0": f"{value}, 0", "12\n": f"{value}\n", "12345.25": value}.get(good, good.partition(": ")[0] + f": {value}")
    assert sample.text.count(good) == 1
    found = complaint(capsys, put(tmp_path, sample, sample.text.replace(good, bad).encode()))
    assert re.match(r":\d+: " + re.escape(says) + r"|:\d+: malformed JSON: ", found), found


@every_line
@pytest.mark.parametrize(("ids", "says"), [
    ("[1, 1]", "id 1 stands there twice"), ("[-1]", "-1 is not an id"), ("5", "5 is not a"), ("[null]", "None is not"),
    ("[9223372036854775808]", "9223372036854775808 is not an id"), ("[" + "1," * 99 + "1]", "id 1 stands there twice"),
    ('"1"', "'1' is not")])
def test_ids(tmp_path, capsys, sample, ids, says):
    if '"hash_ids": [' not in sample.text:
        return
    rows = sample.text.rstrip("\n").split("\n")
    rows[-1] = re.sub(r'("hash_ids": )\[[^\]]*\]', rf"\g<1>{ids}", rows[-1])
    path = put(tmp_path, sample, "\n".join(rows).encode())
    if sample.name == "qwen" and says.endswith("twice"):       # its ids may name blocks, not prefixes: too many of them here
        says = "2 ids, but" if ids == "[1, 1]" else "100 ids, but"
    assert complaint(capsys, path).startswith(f":{len(rows)}: column 'hash_ids': {says}")


@pytest.mark.parametrize("name", ["qwen", "servegen-offline-a", "servegen-offline-d", "splitwise-sim"])
def test_two_requests_of_one_name(tmp_path, capsys, name):
    sample = BY_NAME[name]
    column, first = ("chat_id", "159") if name == "qwen" else ("request_id", "0")
    text, line = last_row(sample, column, first)
    shown = repr(first) if sample.kind == "csv" else first
    assert complaint(capsys, put(tmp_path, sample, text.encode())) == f":{line}: column '{column}': {shown} stands there twice"


# ---------------------------------------------------------------------- the form of a file
@every
@pytest.mark.parametrize("mutation", ["empty", "blank", "utf-16", "utf-16 without mark", "utf-8 broken", "NUL", "quote", "cut"])
def test_forms(tmp_path, capsys, sample, mutation):
    data = sample.text.encode()
    middle = data.rfind(b"\n", 0, -2) + 1 if sample.kind == "csv" else max(data.rfind(b"\n", 0, -2), len(data) // 2) + 3
    made = {"empty": b"", "blank": b"\n \r\n\n", "utf-16": sample.text.encode("utf-16"),
            "utf-16 without mark": sample.text.encode("utf-16-le"), "utf-8 broken": data[:middle] + b"\xff" + data[middle:],
            "NUL": data[:middle] + b"\0" + data[middle:], "quote": data[:middle] + b'"' + data[middle:],
            "cut": data[:middle + 1]}[mutation]
    found = complaint(capsys, put(tmp_path, sample, made))
    assert found == ": the file is empty" if mutation in ("empty", "blank") else re.match(r":\d+: ", found), found


@every_table
def test_only_a_header(tmp_path, capsys, sample):
    rows = sample.text.replace("\r\n", "\n").split("\n")
    line = next(n for n, row in enumerate(rows, start=1) if not row.startswith("#"))
    found = complaint(capsys, put(tmp_path, sample, "\n".join(rows[:line]).encode()))
    assert found == f":{line}: a header, and no rows after it"


@every_table
def test_semicolons(tmp_path, capsys, sample):
    text = "\n".join(row for row in sample.text.replace(",", ";").split("\n") if not row.startswith("#"))
    assert "(fields have commas between them, not ';')" in complaint(capsys, put(tmp_path, sample, text.encode()))


@every_table
def test_rows_of_other_lengths(tmp_path, capsys, sample):
    rows = sample.text.replace("\r\n", "\n").rstrip("\n").split("\n")
    width = rows[-1].count(",") + 1
    for row in (rows[-1] + ",", rows[-1].rpartition(",")[0]):
        found = complaint(capsys, put(tmp_path, sample, "\n".join([*rows[:-1], row]).encode()))
        assert found.startswith(f":{len(rows)}: ")
        assert str(width) in found


@every
def test_packed_data_cut_short_or_broken(tmp_path, capsys, sample):
    text = sample.text.encode()
    for pack in (gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress):
        packed = pack(text)
        for cut in (5, len(packed) // 2, len(packed) - 1):
            found = complaint(capsys, put(tmp_path, sample, packed[:cut]))
            assert re.match(r":\d+: the (gzip|zstd) data is (cut short|damaged) here\Z", found), found
        broken = bytearray(packed)
        broken[-3] ^= 255
        assert re.match(r":\d+: the (gzip|zstd) data is damaged here\Z", complaint(capsys, put(tmp_path, sample, bytes(broken))))


@every_line
def test_nesting(tmp_path, capsys, sample):
    row = sample.text.split("\n")[0]
    for deep in ("[" * 100_000, '{"a":' * 100_000):
        found = complaint(capsys, put(tmp_path, sample, f"{row}\n{row[:-1]}, \"x\": {deep}\n".encode()))
        assert found == ":2: malformed JSON: nested too deep"


@every
def test_a_directory(capsys, tmp_path, sample):
    found = complaint(capsys, tmp_path, "--format", sample.format)
    assert found.startswith(": is a directory, and ")


@every
def test_no_permission(tmp_path, capsys, sample, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    path = put(tmp_path, sample)
    monkeypatch.setattr("workloads.readers.packed.open", refuse, raising=False)
    assert complaint(capsys, path) == ": permission denied"


# ---------------------------------------------------------------------- strict
@every
def test_rows_without_a_token(tmp_path, capsys, sample):
    """Left out and counted, or with strict an error that says where."""
    path = put(tmp_path, sample, zeroed(sample).encode())
    trace = read_trace(path)
    assert sum(trace.dropped.values()) >= 1
    assert set(trace.dropped) <= {"zero_prompt", "zero_output"}
    with pytest.raises(InputError) as caught:
        read_trace(path, options=ReadOptions(strict=True))
    message = str(caught.value)
    assert re.match(re.escape(str(path)) + r":\d+: ([\w\[\]. ]+: )?column '[\w ]+': ('0'|0|'') is no token at all: ",
                    message), message


def zeroed(sample):
    """Its text with a row that asks for nothing."""
    if sample.format == "sharegpt":
        return json.dumps([one for one in json.loads(sample.text.replace('"1234"', '""')) if len(one["conversations"]) > 1])
    if sample.format == "vllm-bench":
        return sample.text.replace("12", "0", 1) if "12," not in sample.text else sample.text.replace("11", "0", 1)
    if sample.format == "kv-cache-tester":
        return sample.text.replace('"out": 7', '"out": 0')
    if sample.name == "json-lengths-array":
        return sample.text.replace("5", "0")
    if sample.name == "lmcache-texts":
        return sample.text
    column = column_of(PROMPTS, sample, "input_length")
    if sample.kind == "csv":
        rows = sample.text.replace("\r\n", "\n").rstrip("\n").split("\n")
        return "\n".join([*rows, re.sub(r"^\d+", "77", last_row(sample, column, "0")[0].rstrip("\n").split("\n")[-1])
                          if sample.format == "splitwise-sim" else last_row(sample, column, "0")[0].rstrip("\n").split("\n")[-1]])
    row = json.loads(next(row for row in sample.text.split("\n") if row))
    row[column] = 0
    for name, value in (("hash_ids", []), ("input_tok_ids", []), ("request_id", 777), ("chat_id", 777)):
        if name in row and not isinstance(row[name], dict):
            row[name] = value
    return sample.text.rstrip("\n") + "\n" + json.dumps(row) + "\n"
