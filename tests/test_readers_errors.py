"""A bad file gives one line that names file, line, column and value; never a traceback, never much memory."""

from __future__ import annotations

import gzip
import os
import tracemalloc

import pytest

from workloads.readers import read_trace
from workloads.request import InputError

CSV = "prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,3,4\n"
GOOD_ROW = '{"timestamp": 0, "input_length": 513, "output_length": 7, "hash_ids": [0, 1]}\n'


def complaint(folder, data, format=None, name="trace"):
    """The message about a file, without the folder in front."""
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(InputError) as caught:
        read_trace(path, format)
    message = str(caught.value)
    assert message.startswith(str(path)), message
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400
    return message.removeprefix(str(folder) + "/")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("-3", "'-3' is negative"),
        ("12.5", "'12.5' is not a whole number of tokens"),
        ("NaN", "'NaN' is not a whole number of tokens"),
        ("1e400", "'1e400' is not a whole number of tokens"),
        ("2147483649", "'2147483649' is more than 2147483648 tokens"),
        ("9" * 5000, f"'{'9' * 27}...{'9' * 28}' is more than 2147483648 tokens"),
        ("", "'' is not a whole number of tokens"),
        ("٣", "'٣' is not a whole number of tokens"),
        ("1_000", "'1_000' is not a whole number of tokens"),
        ("0x10", "'0x10' is not a whole number of tokens"),
        ("True", "'True' is not a whole number of tokens"),
        ("-99999999999999", "'-99999999999999' is negative"),
    ],
)
def test_lengths_in_csv(tmp_path, value, reason):
    expected = f"trace:4: column 'output_tokens': {reason}"
    assert complaint(tmp_path, f"{CSV}1,2\n\n5,{value}\n6,7\n") == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("-3", "-3 is negative"),
        ("12.5", "12.5 is not a whole number of tokens"),
        ("513.0", "513.0 is not a whole number of tokens"),
        ("1e400", "1E+400 is not a whole number of tokens"),
        ("true", "True is not a whole number of tokens"),
        ("null", "None is not a whole number of tokens"),
        ('"513"', "'513' is not a whole number of tokens"),
        ("[513]", "[513] is not a whole number of tokens"),
        ("2147483649", "2147483649 is more than 2147483648 tokens"),
    ],
)
def test_lengths_in_json(tmp_path, value, reason):
    text = GOOD_ROW + "\n" + GOOD_ROW.replace("513", value)
    assert complaint(tmp_path, text) == f"trace:3: column 'input_length': {reason}"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("-1", "-1 is a negative time"),
        ("-0.5", "-0.5 is a negative time"),
        ("true", "True is not a number"),
        ('"5"', "'5' is not a number"),
        ("1e400", "1E+400 is a time over 1e12 seconds"),
        ("1e-300", "1E-300 is a time finer than 1e-40 seconds"),
    ],
)
def test_times_in_json(tmp_path, value, reason):
    text = GOOD_ROW + GOOD_ROW.replace('"timestamp": 0', f'"timestamp": {value}')
    assert complaint(tmp_path, text) == f"trace:2: column 'timestamp': {reason}"


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_constants_in_json(tmp_path, value):
    message = complaint(tmp_path, GOOD_ROW + GOOD_ROW.replace("513", value))
    assert message == f"trace:2: malformed JSON: {value} is not a number"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("-1.5", "is a negative time"),
        ("nan", "is not a time in decimal digits"),
        ("inf", "is not a time in decimal digits"),
        ("1e13", "is a time over 1e12 seconds"),
        ("", "is not a time in decimal digits"),
        ("2023-11-16", "is not a time in decimal digits"),
    ],
)
def test_times_in_seconds(tmp_path, value, reason):
    assert complaint(tmp_path, f"{VIDUR}{value},5,6\n") == f"trace:3: column 'arrived_at': '{value}' {reason}"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("2023-02-29 00:00:00", "is not a time: day is out of range for month"),
        ("2023-00-16 00:00:00", "is not a time: month must be in 1..12"),
        ("2023-11-16 24:00:00", "is not a time: hour must be in 0..23"),
        ("1500-01-01 00:00:00", "is outside the years 1678 to 2261"),
        ("2023-11-16 18:15:46.1234567890", "is not a time such as"),
        ("1700000000", "is not a time such as"),
        ("-2023-11-16 18:15:46", "is not a time such as"),
        ("NaT", "is not a time such as"),
    ],
)
def test_calendar_times(tmp_path, value, reason):
    message = complaint(tmp_path, f"{AZURE}{value},5,6\r\n")
    assert message.startswith(f"trace:3: column 'TIMESTAMP': '{value}' {reason}")


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ("[0]", "1 ids, but input_length 513 takes 2 of 512 tokens each"),
        ("[0, 1, 2]", "3 ids, but input_length 513 takes 2 of 512 tokens each"),
        ("[0, -1]", "-1 is not an id"),
        ("[0, true]", "True is not an id"),
        ("[0, 1.0]", "1.0 is not an id"),
        ('[0, "1"]', "'1' is not an id"),
        ("[0, 9223372036854775808]", "9223372036854775808 is not an id"),
        ("{}", "{} is not a list of ids"),
    ],
)
def test_hash_ids(tmp_path, ids, reason):
    message = complaint(tmp_path, GOOD_ROW + GOOD_ROW.replace("[0, 1]", ids))
    assert message.startswith(f"trace:2: column 'hash_ids': {reason}")


def test_missing_columns_are_named_with_those_there_are(tmp_path):
    message = complaint(tmp_path, AZURE.replace("GeneratedTokens", "Generated"))
    expected = "missing; the columns are 'TIMESTAMP', 'ContextTokens', 'Generated'"
    assert message == f"trace:1: column 'GeneratedTokens': {expected}"
    message = complaint(tmp_path, GOOD_ROW + '{"timestamp": 1, "input_length": 5, "hash_ids": [0]}\n')
    expected = "missing; the columns are 'timestamp', 'input_length', 'hash_ids'"
    assert message == f"trace:2: column 'output_length': {expected}"
    assert complaint(tmp_path, CSV + "1,2\n", "azure").startswith("trace:1: column 'TIMESTAMP': missing; the columns")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CSV + "1,2\n3\n", "trace:3: column 'output_tokens': missing; the row '3' has 1 of 2 fields"),
        (CSV + "1,2\n2,000,5\n", "trace:3: 3 fields, but the header has 2: '2,000,5'"),
        ("prompt_tokens,output_tokens,x\n1,2\n", "trace:2: 2 fields, but the header has 3: '1,2'"),
        (CSV + '1,2\n3,"4\n5,6\n', "trace:3: malformed CSV: a quote is not closed: '3,\"4'"),
        ('"prompt_tokens,output_tokens\n1,2\n', "trace:1: malformed CSV: a quote is not closed: "),
        (CSV + "1,2\n3,4\r5,6\n", "trace:3: malformed CSV: new-line character"),
        (CSV.replace("\n", ",prompt_tokens\n") + "1,2,3\n", "trace:1: column 'prompt_tokens': stands in the header"),
        (CSV, "trace:1: a header, and no rows after it"),
        (CSV + "\n\r\n \n", "trace:1: a header, and no rows after it"),
        (CSV + "0,2\n", "trace: no request is left of 1 row: no prompt tokens (1)"),
        ("", "trace: the file is empty"),
        (" \r\n\n", "trace: the file is empty"),
        ("a;b\n1;2\n", "trace:1: unknown trace format: the columns are 'a;b' (fields have commas between them, not ';'); "),
        ("\n\nfoo,bar\n", "trace:3: unknown trace format: the columns are 'foo', 'bar'; the formats are azure,"),
        ('{"chat_id": 1}\n', "trace:1: unknown trace format: the columns are 'chat_id'; the formats are azure,"),
        (GOOD_ROW + '{"timestamp": 1 2}\n', "trace:2: malformed JSON: Expecting ',' delimiter at character 17: "),
        (GOOD_ROW + '{"timestamp": 1,\n', "trace:2: malformed JSON: cut off at character 17: '{\"timestamp\": 1,'"),
        (GOOD_ROW + '{"timestamp": fal', "trace:2: malformed JSON: cut off at character 15: "),
        (GOOD_ROW + '{"timestamp": 1, "input_le', "trace:2: malformed JSON: cut off in the string that begins at character 18: "),
        (GOOD_ROW + '{"timestamp": "a\x01"}\n', "trace:2: malformed JSON: Invalid control character at character 17: "),
        (GOOD_ROW + GOOD_ROW[:40], "trace:2: malformed JSON: cut off "),
        (GOOD_ROW + "[1, 2]\n", "trace:2: not a JSON object: [1, 2]"),
        ("[{}]\n", "trace:1: not a JSON object: [{}]"),
        (GOOD_ROW + '{"timestamp": ' + "[" * 200_000 + "\n", "trace:2: malformed JSON: nested too deep"),
        (GOOD_ROW + '{"timestamp": ' + "9" * 5000 + "}\n", "trace:2: malformed JSON: Exceeds the limit"),
        (("prompt_tokens,output_tokens\n1,2\n").encode("utf-16"), "trace:1: not text in UTF-8: it begins like UTF-16"),
        (CSV.encode("utf-16-le"), "trace:1: not a text file: the line has a NUL byte"),
        (CSV.encode() + b"1,2\n3,\xff\n", "trace:3: not text in UTF-8: byte 0xff"),
        (b"\x89PNG\r\n\x1a\n" + bytes(20), "trace:3: not a text file: the line has a NUL byte"),
        (b"\x28\xb5\x2f\xfd\n", "trace:1: the zstd data is cut short here"),
        ("\x01\x02\n", "trace:1: not a text file: the line has control characters"),
    ],
)
def test_broken_files(tmp_path, text, expected):
    assert complaint(tmp_path, text).startswith(expected)


@pytest.mark.parametrize("rows", [3, 100_000])
def test_a_cut_gzip_file_names_the_line(tmp_path, rows):
    packed = gzip.compress((CSV + "".join(f"{n},{n % 7 + 1}\n" for n in range(rows))).encode())
    message = complaint(tmp_path, packed[:-9])
    assert message.endswith("the gzip data is cut short here")
    assert int(message.split(":")[1]) > rows * 0.9


def test_damaged_gzip_files(tmp_path):
    packed = bytearray(gzip.compress(CSV.encode() + b"1,2\n" * 5))
    assert complaint(tmp_path, bytes(packed) + b"junk").endswith("the gzip data is damaged here")
    assert complaint(tmp_path, b"\x1f\x8b").endswith(":1: the gzip data is cut short here")
    packed[-6] ^= 1  # the checksum
    assert complaint(tmp_path, bytes(packed)).endswith("the gzip data is damaged here")
    packed[12] ^= 255
    assert complaint(tmp_path, bytes(packed)).endswith("the gzip data is damaged here")


@pytest.mark.parametrize("letter", [b"x", b",", b" "])
def test_one_enormous_line_takes_bounded_memory(tmp_path, letter, monkeypatch):
    monkeypatch.setattr("workloads.readers.source.LONGEST_LINE_BYTES", 8 << 20)
    bomb = gzip.compress(CSV.encode() + letter * (40 << 20), compresslevel=0)
    tracemalloc.start()
    assert complaint(tmp_path, bomb) == "trace:2: the line is longer than 8 MiB"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 << 20


def test_a_long_first_line_is_no_json(tmp_path):
    assert complaint(tmp_path, b"{" + b" " * (65 << 20)) == "trace:1: the line is longer than 64 MiB"


def test_paths(tmp_path):
    with pytest.raises(InputError, match=r"/nowhere: no such file or directory\Z"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r": is a directory, and holds no ServeGen clients .* nor kv-cache-tester sessions .*\Z"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match=r"'a\\x00b': embedded null byte\Z"):
        read_trace("a\0b")
    with pytest.raises(InputError, match=r"\A'a\\nb': no such file"):
        read_trace("a\nb")


def test_no_permission(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("workloads.readers.packed.open", refuse, raising=False)
    with pytest.raises(InputError, match=r"/trace: permission denied\Z"):
        read_trace(os.fspath(tmp_path / "trace"))


def test_unknown_format_lists_the_names(tmp_path):
    with pytest.raises(InputError, match=r"\Aunknown trace format 'foo'; the formats are azure, azure-images, burst"):
        read_trace(tmp_path, format="foo")


def test_the_second_of_two_blocks_has_the_right_line_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("workloads.readers.source.BLOCK_BYTES", 32)
    text = "\n" + CSV + "1,2\n" * 300 + "3,x\n"
    assert complaint(tmp_path, text) == "trace:303: column 'output_tokens': 'x' is not a whole number of tokens"
