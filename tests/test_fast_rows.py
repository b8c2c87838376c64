"""Many JSON lines at once: the same columns and the same complaint as line by line and row by row."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random

import numpy as np
import pytest
from format_samples import SAMPLES, put
from fuzz.mutations import damaged, revalued
from hypothesis import given
from hypothesis import strategies as st
from small import LONG

from workloads.messages import Place
from workloads.readers import READERS, fast_rows, json_lines, read_rows
from workloads.readers.json_format import JsonFile
from workloads.readers.json_lines import json_objects, json_rows, parse_object
from workloads.readers.source import open_source
from workloads.readers.times import FINE_PER_NS, fine_stamp
from workloads.request import InputError

LINES = [sample for sample in SAMPLES if sample.kind == "lines"]
GOOD = {"timestamp": 0, "input_length": 513, "output_length": 7, "hash_ids": [0, 1]}


def outcome(path, format, options=None):
    """Everything that was read, or the complaint."""
    try:
        rows = read_rows(path, format, options)
        arrival_us = rows.arrivals_us(options)
    except InputError as error:
        return str(error)
    content = rows.content and (rows.content.ids.tolist(), rows.content.starts.tolist(), rows.content.span_tokens)
    besides = {name: column.tolist() for name, column in rows.besides.items()}
    return rows.prompt_tokens.tolist(), rows.output_tokens is not None and rows.output_tokens.tolist(), \
        arrival_us is not None and arrival_us.tolist(), content, besides, rows.notes, rows.made_by


def one_by_one(monkeypatch, path, format, options=None):
    """The same without anything at once."""
    with monkeypatch.context() as patch:
        patch.setattr(json_lines, "_all_objects", lambda lines: None)
        patch.setattr(JsonFile, "_many", lambda file, objects, strict: False)
        return outcome(path, format, options)


def written(folder, rows, end="\n"):
    path = folder / "trace.jsonl"
    path.write_bytes(b"".join((row if isinstance(row, str) else json.dumps(row)).encode() + end.encode() for row in rows))
    return str(path)


@pytest.fixture
def never_one_by_one(monkeypatch):
    """No line is read by itself, and no row."""
    def fail(*_):
        pytest.fail("one by one")
    monkeypatch.setattr(json_lines, "_one_by_one", fail)
    monkeypatch.setattr(JsonFile, "_row", fail)


# ---------------------------------------------------------------------- the same as one by one
@pytest.mark.parametrize("at_once", [2, 256])
@pytest.mark.parametrize("sample", LINES, ids=lambda sample: sample.name)
def test_damaged_files_are_read_or_refused_as_line_by_line(tmp_path, monkeypatch, sample, at_once):
    monkeypatch.setattr(json_lines, "AT_ONCE", at_once)
    draw = Random(f"{at_once} {sample.name}")
    for _ in range(40 * LONG):
        data = draw.choice((damaged, revalued))(draw, sample.text.encode())
        path = put(tmp_path, sample, data)
        assert outcome(path, sample.format, sample.options) == one_by_one(monkeypatch, path, sample.format, sample.options), data


@pytest.mark.parametrize("rows", [
    [GOOD, '{"a": 1}, {"b": 2}', '{"c": [1', "2]}"],
    [GOOD, '{"a": [[1', "2]]}", '{"b": 1}], [{"c": 2}'],
    [GOOD, '{"a": "x', 'y"}', '{"b": 1} {"c": 2}'],
    [GOOD, '{"a":', "1}"],
    [GOOD, "[{}]"],
    [GOOD, "{} x"],
    [GOOD, "{}{}"],
    [GOOD, "", " \t", "[", ""],
    [GOOD, "\ufeff{}"],
    [GOOD, '{"a": Infinity}'],
    [GOOD, '{"a": 1e99999999999999999999}'],
    [GOOD, '{"a": ' + "9" * 5000 + "}"],
    [GOOD, '{"a": ' + "[" * 100_000],
])
def test_a_line_that_is_no_object_is_the_first_bad_one(tmp_path, monkeypatch, rows):
    path = written(tmp_path, rows)
    said = outcome(path, "mooncake")
    assert isinstance(said, str)
    assert said == one_by_one(monkeypatch, path, "mooncake")


@pytest.mark.parametrize("bad", [
    {"input_length": True}, {"output_length": -1}, {"input_length": 2**31 + 1}, {"timestamp": -1}, {"timestamp": "0"},
    {"timestamp": 10**30}, {"hash_ids": [0, 0]}, {"hash_ids": [0, True]}, {"hash_ids": [0, -1]}, {"hash_ids": [0, 2**63]},
    {"hash_ids": [0, 1.5]}, {"hash_ids": "01"}, {"hash_ids": [[0], 1]}, {"hash_ids": None}, {"hash_ids": [0]},
    {"session_id": 7}, {"delay": 3, "session_id": 7},
])
@pytest.mark.parametrize("malformed", [450, 560], ids=["among the same lines", "later"])
def test_a_bad_value_far_down_is_named_with_its_line(tmp_path, bad, malformed):
    rows = [GOOD | {"timestamp": i} for i in range(600)]
    path = written(tmp_path, [*rows[:400], rows[400] | bad, *rows[401:malformed], "{", *rows[malformed + 1:]])
    line = malformed + 1 if bad == {"hash_ids": [0]} else 401          # how many ids are wanted, all rows decide together
    assert outcome(path, "mooncake").startswith(f"{path}:{line}: ")


def test_a_name_of_a_session_that_is_none_is_named_with_its_line(tmp_path):
    rows = [GOOD | {"session_id": i} for i in range(300)]
    said = outcome(written(tmp_path, [*rows, GOOD | {"session_id": True}]), "mooncake")
    assert said.endswith(":301: column 'session_id': True is no name (a text or a whole number)")


def test_a_request_that_was_there_long_before_is_there_twice(tmp_path):
    rows = [{"request_id": i, "input_length": 5, "output_length": 7} for i in range(600)]
    said = outcome(written(tmp_path, [*rows, rows[3]]), "servegen-offline")
    assert said.endswith(":601: column 'request_id': 3 stands there twice")


# ---------------------------------------------------------------------- at once indeed
def test_plain_rows_are_read_at_once(tmp_path, never_one_by_one):
    rows = [GOOD | {"timestamp": 3 * i, "hash_ids": [i, i + 1]} for i in range(700)]
    prompt, output, arrival_us, (ids, starts, span), *_ = outcome(written(tmp_path, rows), "mooncake")
    assert (prompt, output) == ([513] * 700, [7] * 700)
    assert arrival_us == [3000 * i for i in range(700)]
    assert (ids[:4], starts[:3], span) == ([0, 1, 1, 2], [0, 2, 4], 512)
    assert outcome(written(tmp_path, rows, "\r\n"), "mooncake")[0] == prompt


def test_ids_that_fall_are_read_at_once(tmp_path, never_one_by_one):
    rows = [GOOD | {"hash_ids": [9, 3]}, GOOD | {"hash_ids": [3, 9]}, GOOD | {"input_length": 0, "hash_ids": []}]
    assert outcome(written(tmp_path, rows), "mooncake")[3][:2] == ([9, 3, 3, 9], [0, 2, 4, 4])


def test_sessions_are_read_at_once(tmp_path, never_one_by_one):
    rows = [GOOD | {"session_id": name} for name in ("a", 1, None, "a", "1")]
    assert outcome(written(tmp_path, rows), "mooncake")[4] == {"session": [0, 1, -1, 0, 2]}


def test_turns_that_name_the_one_before_are_read_at_once(tmp_path, never_one_by_one):
    row = {"timestamp": 1, "input_length": 5, "output_length": 7, "hash_ids": [1]}
    rows = [row | {"chat_id": one, "parent_chat_id": before} for one, before in ((5, -1), (6, 7), (7, 5), (8, 4))]
    assert outcome(written(tmp_path, rows), "qwen")[4] == {"session": [0, 0, 0, 3]}


def test_a_true_elsewhere_is_no_matter(tmp_path, never_one_by_one):
    assert outcome(written(tmp_path, [GOOD | {"streamed": True}]), "mooncake")[3][0] == [0, 1]


def test_times_of_any_digits_are_read_at_once(tmp_path, never_one_by_one):
    rows = [GOOD | {"timestamp": time, "session_id": "a"} for time in (10, 10.5, 11.000000000000002)]
    assert outcome(written(tmp_path, rows), "mooncake")[2] == [0, 500, 1000]


def test_later_turns_wait_for_what_was_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "AT_ONCE", 2)
    first = GOOD | {"session_id": "a", "timestamp": 5}
    turn = {name: value for name, value in first.items() if name != "timestamp"} | {"delay": 2.5}
    path = written(tmp_path, [first, first | {"session_id": "b"}, turn, turn, first | {"timestamp": 9.25}])
    *_, arrival_us, _, besides, _, _ = outcome(path, "mooncake")
    assert arrival_us == [0, 0, 2500, 5000, 4250]
    assert besides == {"session": [0, 1, 0, 0, 0], "think_us": [-1, -1, 2500, 2500, -1]}


def test_a_later_turn_with_a_time_and_a_wait_has_both(tmp_path):
    first = GOOD | {"session_id": "a", "timestamp": 5}
    *_, arrival_us, _, besides, _, _ = outcome(written(tmp_path, [first, first | {"timestamp": 8, "delay": 2}]), "mooncake")
    assert (arrival_us, besides["think_us"]) == ([0, 3000], [-1, 2000])


def test_blank_lines_keep_the_numbers(tmp_path):
    path = written(tmp_path, ["", '{"a": 1}', "", " \r", '{"b": 2}', '{"c": 3}', ""])
    assert [(place.line, list(row)) for place, row in json_rows(open_source(path))] == [(2, ["a"]), (5, ["b"]), (6, ["c"])]


def test_lines_come_some_hundreds_at_once(tmp_path):
    path = written(tmp_path, ["{}"] * 600)
    found = [(objects.lines[0], len(objects.rows)) for objects in json_objects(open_source(path))]
    assert found == [(1, 256), (257, 256), (513, 88)]


# ---------------------------------------------------------------------- columns
def stamps(*texts, unit=0):
    return fast_rows.stamps([{"t": parse_object(Place("", 1), f'{{"t": {text}}}')["t"]} for text in texts], "t", unit)


def test_nanoseconds_hold_what_they_can():
    assert (stamps("9000000000").tolist(), stamps("9000000000").dtype) == ([9 * 10**18], np.int64)
    assert stamps("9000000001") is None                # left to the exact way
    assert (stamps("1.5", "2", unit=-3).tolist(), stamps("1.5", unit=-3).dtype) == ([1_500_000, 2_000_000], np.int64)
    assert stamps("9000000000.000000001").tolist() == [9 * 10**49 + 10**31]
    assert stamps("0.0000000005", "-0.0", "1e3").tolist() == [5 * 10**30, 0, 10**43]


@pytest.mark.parametrize("text", ["-1", "-0.5", "1e13", "1000000000001", "1e-41", "0e-2000", "1." + "0" * 200, "1e400", "0e400",
                                  "true", "null", '"5"', "[]", "1." + "3" * 90])
def test_times_that_are_not_plain_are_left_to_the_exact_way(text):
    assert stamps("1.5", text) is None


@given(st.lists(st.tuples(st.integers(-3, 10**15), st.integers(-45, 4)), min_size=1, max_size=4),
       st.sampled_from((0, -3, -6, -9)))
def test_stamps_are_those_read_one_by_one(numbers, unit):
    found = stamps(*(f"{digits}e{exponent}" for digits, exponent in numbers), unit=unit)
    try:
        expected = [fine_stamp(str(Decimal(f"{digits}e{exponent}")), unit) for digits, exponent in numbers]
    except ValueError:
        expected = None
    fine = None if found is None else found.astype(object) * (FINE_PER_NS if found.dtype == np.int64 else 1)
    if fine is None and any(digits % 10 == 0 for digits, _ in numbers):
        return                                         # zeros to drop: left to the exact way
    assert (None if fine is None else fine.tolist()) == expected


def test_flags_are_no_ids():
    assert fast_rows.ids([{"ids": [True]}], "ids", flags=True, chained=False) is None
    assert fast_rows.ids([{"ids": []}, {"ids": [4, 4]}], "ids", flags=True, chained=False)[1] == [0, 2]
    assert fast_rows.ids([{"ids": []}, {"ids": [5, 4]}, {"ids": [4, 5, 4]}], "ids", flags=True, chained=True) is None


def test_only_a_list_that_falls_is_looked_through():
    assert fast_rows._may_repeat(np.array([7, 8, 3, 9, 2, 2]), [2, 0, 2, 2]) == [False, False, False, True]


def test_every_format_of_lines_is_tried():
    assert {sample.format for sample in LINES} >= {"mooncake", "qwen", "servegen-offline", "lmcache-agent", "ragpulse"}
    assert all(sample.format in READERS for sample in LINES)
