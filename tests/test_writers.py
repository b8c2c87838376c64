"""What is written comes back: every format by property, numbers by hand, and what a format cannot hold is said, all of it."""

from __future__ import annotations

import doctest
import importlib
import io
import json
import pkgutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small import LONG

import workloads.writers
from workloads import reblock as reblocking
from workloads.readers import READERS, ReadOptions, read_trace
from workloads.reblock import reblock
from workloads.request import ContentIds, InputError, Trace, first_of_sessions, in_order_of_appearance
from workloads.writers import WRITERS, changes, write_trace
from workloads.writers.common import one_line
from workloads.writers.qwen import turns

SHAPES = ("ceil", "floor", "ragged", "output")


def text_of(trace, format, comments=()):
    file = io.StringIO()
    write_trace(trace, format, file, comments)
    return file.getvalue()


def again(trace, format, folder, options=None, told=True):
    path = folder / "written"
    path.write_text(text_of(trace, format))
    return read_trace(path, format if told else None, options)


def content_of(rows, span=4, cover_output=False):
    starts = np.cumsum([0, *map(len, rows)])
    return ContentIds(np.array([i for row in rows for i in row], np.int64), starts, span, cover_output)


def full(**changed):
    """Every column says something; ids of 16 tokens go on over the outputs."""
    made = Trace("full", np.array([40, 20, 80]), np.array([24, 5, 30]), arrival_us=np.array([0, 1500, 2_000_000]),
                 max_tokens=np.array([24, 6, 30]), session=np.array([7, -1, 7]), priority=np.array([0, -2, 5]),
                 samples=np.array([1, 3, 1]), beam_width=np.array([1, 1, 2]), think_us=np.array([-1, -1, 1_999_999]),
                 content=content_of([[0, 1, 2, 3], [0, 9], [0, 1, 2, 3, 4, 5, 6]], 16, True))
    return replace(made, **changed)


# ---------------------------------------------------------------------- by hand
def test_our_own_table():
    trace = replace(full(), made_by="pagedsim trace synth chat.toml")
    assert text_of(trace, "csv", ["recipe: requests = 3", "two\nlines"]) == (
        "# made by: pagedsim trace synth chat.toml\n# hash_ids: 16 tokens each, over prompt and output\n"
        "# recipe: requests = 3\n# two\\nlines\n"
        "arrival_us,prompt_tokens,output_tokens,max_tokens,session,think_us,priority,samples,beam_width,hash_ids\n"
        "0,40,24,24,0,-1,0,1,1,0 1 2 3\n1500,20,5,6,,-1,-2,3,1,0 9\n2000000,80,30,30,0,1999999,5,1,2,0 1 2 3 4 5 6\n")


def test_mooncake():
    first, second, third = map(json.loads, text_of(replace(full(), made_by="by hand"), "mooncake").splitlines())
    assert first == {"timestamp": 0, "input_length": 40, "output_length": 24, "hash_ids": [0, 1, 2], "session_id": 0,
                     "made_by": "by hand"}
    assert second == {"timestamp": 2, "input_length": 20, "output_length": 5, "hash_ids": [0, 9], "session_id": None}
    assert third == {"timestamp": 2000, "input_length": 80, "output_length": 30, "hash_ids": [0, 1, 2, 3, 4], "session_id": 0,
                     "delay": 2000}
    assert changes(full(), "mooncake") == (
        ("max_tokens", "mooncake has no place for limits on outputs: 3 of 3 requests have them", True),
        ("priority", "mooncake has no place for priorities: 3 of 3 requests have them", True),
        ("samples", "mooncake has no place for samples of a prompt: 1 of 3 requests have them", True),
        ("beam_width", "mooncake has no place for beam widths: 1 of 3 requests have them", True),
        ("arrival_us", "times are in milliseconds: 1 of 3 move, by 500 us at most", True),
        ("think_us", "think times are in milliseconds: 1 of 3 move, by 1 us at most", True),
        ("content", "only prompts have ids there: 3 ids of outputs are left out", True),
        (None, "mooncake carries no block size: readers that take 512 have to be told 16", False))


def test_a_session_of_null_is_none(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"input_length": 5, "output_length": 6, "session_id": null}\n'
                    '{"input_length": 5, "output_length": 6, "session_id": "x"}\n')
    assert read_trace(path).session.tolist() == [-1, 0]
    path.write_text('{"input_length": 5, "output_length": 6, "session_id": "x"}\n{"input_length": 5, "output_length": 6}\n')
    with pytest.raises(InputError, match="column 'session_id': missing"):
        read_trace(path)


def test_azure():
    trace = full(arrival_us=np.array([0, 1500, 86_400_000_000 + 61_000_001]))
    assert text_of(trace, "azure") == ("TIMESTAMP,ContextTokens,GeneratedTokens\n2000-01-01 00:00:00.000000,40,24\n"
                                       "2000-01-01 00:00:00.001500,20,5\n2000-01-02 00:01:01.000001,80,30\n")
    said = changes(replace(trace, made_by="by hand"), "azure")
    assert [change.column for change in said if change.lost] == [
        "max_tokens", "session", "think_us", "priority", "samples", "beam_width", "content"]
    assert said[1].text == "azure has no place for sessions: 2 of 3 requests have them"
    assert [change.text for change in said if not change.lost] == [
        "times are counted from 2000-01-01 00:00:00, a day made up", "azure has no place for the command that made the trace"]
    with pytest.raises(InputError, match="later than a calendar time"):
        text_of(full(arrival_us=np.array([0, 1, 10**16])), "azure")


def test_qwen():
    first, second, third = map(json.loads, text_of(replace(full(), made_by="by hand"), "qwen").splitlines())
    assert first == {"timestamp": 0.0, "chat_id": 0, "parent_chat_id": -1, "turn": 1, "type": "text", "input_length": 40,
                     "output_length": 24, "hash_ids": [0, 1, 2], "made_by": "by hand"}
    assert (second["timestamp"], second["parent_chat_id"], second["turn"]) == (0.0015, -1, 1)
    assert (third["timestamp"], third["parent_chat_id"], third["turn"]) == (2.0, 0, 2)
    said = ("session", "qwen has only conversations: 1 requests without a session become one each", True)
    assert said in changes(full(), "qwen")


def test_turns():
    before, turn = turns(np.array([-1, 4, 4, -1, 4]))
    assert (before.tolist(), turn.tolist()) == ([-1, -1, 1, -1, 2], [1, 1, 2, 1, 3])


def test_ids_of_512_become_32_of_16_each():
    # 1,100 tokens: two whole ids and 76 tokens, which begin 5 spans of 16
    ids = content_of([[3, 1, 2], [3]], 512)
    trace = Trace("a", np.array([1100, 512]), np.array([1, 1]), arrival_us=np.array([0, 1]), content=ids)
    first, second = (json.loads(line)["hash_ids"] for line in text_of(trace, "qwen").splitlines())
    assert first == [*range(96, 128), *range(32, 64), *range(64, 69)] and second == [*range(96, 128)]
    assert [c for c in changes(trace, "qwen") if c.column == "content"] == [
        ("content", "ids of 512 tokens become 32 of 16 each, exactly", False)]


def test_pairs_of_8_become_ids_of_16():
    rows = [[5, 6, 7], [5, 6, 7, 8], [5, 9]]             # 20 tokens: the third id for 4 of them
    trace = Trace("a", np.array([20, 32, 16]), np.ones(3, int), arrival_us=np.arange(3), content=content_of(rows, 8))
    assert [json.loads(line)["hash_ids"] for line in text_of(trace, "qwen").splitlines()] == [[0, 1], [0, 2], [3]]
    assert [c.lost for c in changes(trace, "qwen") if c.column == "content"] == [True]


def test_a_part_that_nothing_is_known_of_joins_nothing():
    """24 of 100 tokens have ids of 8: the third has no other half that is known, so both halves are not."""
    trace = Trace("a", np.array([100]), np.array([1]), content=content_of([[5, 6, 7]], 8))
    assert reblock(trace, 16).content.ids.tolist() == [0]
    assert reblock(replace(trace, prompt_tokens=np.array([20])), 16).content.ids.tolist() == [0, 1]


def test_ids_of_full_blocks_only_get_one_for_the_part():
    trace = Trace("a", np.array([130, 64, 63]), np.ones(3, int), content=content_of([[4, 5], [4], []], 64))
    rows = [json.loads(line)["hash_ids"] for line in text_of(trace, "mooncake").splitlines()]
    assert rows == [[4, 5, 6], [4], [7]]
    assert "2 prompts are not covered to their end, and get 2 ids that nobody else has" in changes(trace, "mooncake")[0].text


def test_an_id_that_stands_twice_is_named_by_its_prefix():
    trace = Trace("a", np.array([12, 8]), np.ones(2, int), content=content_of([[7, 7, 8], [7, 8]], 4))
    rows = [json.loads(line)["hash_ids"] for line in text_of(trace, "mooncake").splitlines()]
    assert rows == [[0, 1, 2], [0, 3]]
    assert "no id stands twice in a request there, as in 1:" in changes(trace, "mooncake")[0].text


def test_a_block_size_nobody_would_find_is_said(tmp_path):
    trace = Trace("a", np.array([12, 8]), np.ones(2, int), content=content_of([[1, 2, 3], [1, 2]], 4))
    said = changes(trace, "mooncake")
    assert said == ((
        "content", "mooncake carries no block size, and none is found in it: read it with --hash-block-size 4", True),)
    assert again(trace, "mooncake", tmp_path, ReadOptions(span_tokens=4)).differences(trace) == []
    short = replace(trace, content=content_of([[1], [2]], 16))
    assert "and 512 would be found in it: read it with --hash-block-size 16" in changes(short, "mooncake")[0].text


def test_the_largest_ids(tmp_path):
    most = 2**63 - 1
    ids = content_of([[most, 3], [most]], 512)
    trace = Trace("a", np.array([520, 512]), np.ones(2, int), arrival_us=np.arange(2), content=ids)
    assert again(trace, "csv", tmp_path).differences(trace) == []
    assert again(trace, "mooncake", tmp_path).differences(trace) == ["arrival_us"]
    rows = [json.loads(line)["hash_ids"] for line in text_of(trace, "qwen").splitlines()]
    assert rows == [[*range(32, 64), 0], [*range(32, 64)]]
    part = replace(trace, content=content_of([[most], [most]], 512))
    assert [json.loads(line)["hash_ids"] for line in text_of(part, "mooncake").splitlines()] == [[0, 1], [0]]


def test_what_a_format_needs():
    bare = Trace("bare", np.array([5]), np.array([9]))
    for name, words in (("azure", "azure needs arrival times, and bare has none"), ("qwen", "qwen needs arrival times")):
        with pytest.raises(InputError, match=words):
            changes(bare, name)
    with pytest.raises(InputError, match="qwen needs prefix identity"):
        changes(replace(bare, arrival_us=np.array([0])), "qwen")
    with pytest.raises(InputError, match="no request"):
        changes(Trace("none", np.zeros(0, int), np.zeros(0, int)), "csv")


def test_columns_that_say_nothing_are_no_loss():
    n = 4
    trace = Trace("a", np.arange(1, n + 1), np.ones(n, int), arrival_us=np.zeros(n, int), session=np.full(n, -1),
                  think_us=np.full(n, -1), samples=np.ones(n, int), beam_width=np.ones(n, int), priority=np.full(n, 3))
    for name in ("azure", "mooncake"):
        assert changes(trace, name) and not any(change.lost for change in changes(trace, name)), name


def test_times_that_begin_later_are_said(tmp_path):
    trace = Trace("a", np.array([5]), np.array([9]), arrival_us=np.array([70]))
    assert changes(trace, "csv") == ((
        "arrival_us", "times are counted from the first request, which arrives after 7e-05 s", True),)
    assert again(trace, "csv", tmp_path).differences(trace) == ["arrival_us"]


def test_what_made_it_comes_back(tmp_path):
    for name in ("csv", "mooncake", "qwen"):
        made = replace(full(), made_by="pagedsim trace cut 'a b.csv' - --to 3")
        assert again(made, name, tmp_path).made_by == made.made_by, name
        assert again(full(), name, tmp_path).made_by is None


def test_one_line():
    assert one_line("a\tb\r\n\x1b[0m\u2028\ud800ä") == "a\\tb\\r\\n\\x1b[0m\\u2028\\ud800ä"
    assert len(one_line("x" * 99_999)) < 4100


# ---------------------------------------------------------------------- by property
@st.composite
def traces(draw):
    n = draw(st.integers(1, 8))

    def column(low, high):
        return np.array(draw(st.lists(st.integers(low, high), min_size=n, max_size=n)), np.int64)

    def perhaps(low, high):
        return column(low, high) if draw(st.booleans()) else None

    prompt, output = column(1, draw(st.sampled_from([9, 70, 1500]))), column(1, 40)
    times = np.cumsum(column(0, 10**draw(st.integers(0, 9)))) if draw(st.booleans()) else None
    session, samples, beams = perhaps(-1, 3), perhaps(1, 3), perhaps(1, 3)
    think = None if session is None else perhaps(-1, draw(st.sampled_from([-1, 3000, 10**9])))
    if samples is not None and beams is not None:
        beams = np.where(samples > 1, 1, beams)
    more = perhaps(0, 5)
    return Trace("drawn", prompt, output, arrival_us=None if times is None else times - times[0],
                 max_tokens=None if more is None else output + more, session=session, priority=perhaps(-2, 2), samples=samples,
                 beam_width=beams, content=draw(contents(prompt, output)),
                 think_us=None if think is None else np.where(first_of_sessions(session), -1, think))


@st.composite
def contents(draw, prompt, output):
    """Ids as formats have them: up to the end, of full spans only, of any part, over the outputs too; or none."""
    shape = draw(st.sampled_from([None, *SHAPES]))
    if shape is None:
        return None
    span = draw(st.sampled_from([512, 16, 64, 8, 24, 7]))
    tokens = prompt + output if shape == "output" else prompt
    counts = tokens // span if shape == "floor" else -(-tokens // span)
    if shape == "ragged":
        counts = np.array([draw(st.integers(0, int(c))) for c in counts])
    scale = draw(st.sampled_from([1, 10**6, 2**59]))
    chained = draw(st.booleans())
    rows = [[(1 + i + 50 * draw(st.integers(0, 1))) * scale % 2**63 if chained else draw(st.integers(0, 3)) * scale
             for i in range(c)] for c in counts.tolist()]
    return content_of(rows, span, shape == "output")


@settings(max_examples=150 * LONG)
@given(trace=traces())
@example(trace=full())
@example(trace=Trace("untimed", np.array([1, 1]), np.array([1, 1]), session=np.array([0, 0]), think_us=np.array([-1, 0])))
@pytest.mark.parametrize("format", WRITERS)
def test_what_differs_is_what_was_said(format, trace, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    try:
        said = changes(trace, format)
    except InputError:
        assert any(getattr(trace, column) is None for column in WRITERS[format].needs)
        return
    columns = {change.column for change in said} - {None}
    if any("block size, and" in change.text for change in said):
        wrong = False
        try:
            wrong = "content" in again(trace, format, folder).differences(trace)
        except InputError:
            wrong = True
        assert wrong
        back = again(trace, format, folder, ReadOptions(span_tokens=trace.content.span_tokens))
        others = {change.column for change in said if "block size, and" not in change.text} - {None}
        assert set(back.differences(trace)) == others
        return
    assert set(again(trace, format, folder).differences(trace)) == columns


@settings(max_examples=100 * LONG)
@given(trace=traces())
def test_our_own_holds_everything(trace, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    assert changes(trace, "csv") == ()
    back = again(trace, "csv", folder, told=False)
    assert back.differences(trace) == [] and text_of(back, "csv") == text_of(trace, "csv")


@pytest.mark.parametrize("format", WRITERS)
def test_it_is_known_by_its_content(format, tmp_path):
    trace = full(made_by="x")
    assert again(trace, format, tmp_path, told=False).differences(again(trace, format, tmp_path)) == []
    assert format in READERS
    if not WRITERS[format].needs:
        bare = Trace("bare", np.array([5, 7]), np.array([9, 2]))
        assert again(bare, format, tmp_path, told=False).differences(bare) == []


@settings(max_examples=100 * LONG)
@given(trace=traces(), span=st.sampled_from([1, 2, 4, 8, 16, 32, 3, 1024]))
def test_no_more_is_shared_than_before_and_exactly_as_much_in_shorter_spans(trace, span):
    """Common beginnings of any two requests in tokens, of whole new spans."""
    if trace.content is None:
        return
    made = reblock(trace, span)
    tokens = reblocking.tokens_with_place(trace)
    before, after = (_tokens(one.content, tokens) for one in (trace, made))
    for a in range(len(trace)):
        for b in range(a):
            old, new = _common(before[a], before[b]), _common(after[a], after[b])
            if trace.content.span_tokens % span == 0:
                assert new == old
            else:
                assert old // span * span - trace.content.span_tokens - span < new <= old


def _tokens(content, tokens):
    """Each token a request has an id for, named by the id and its place in the span."""
    rows = np.split(content.ids, content.starts[1:-1])
    return [[(one, i) for one in ids.tolist() for i in range(content.span_tokens)][:most]
            for ids, most in zip(rows, tokens.tolist(), strict=True)]


def _common(one, two):
    same = [a == b for a, b in zip(one, two, strict=False)]
    return same.index(False) if False in same else len(same)


@given(st.lists(st.integers(-1, 4), min_size=1))
def test_sessions_in_order_of_appearance(numbers):
    session = np.array(numbers)
    made = in_order_of_appearance(session)
    known = {}
    assert made.tolist() == [-1 if s < 0 else known.setdefault(s, len(known)) for s in numbers]
    one = Trace("a", np.ones(len(numbers), int), np.ones(len(numbers), int), session=session)
    assert one.differences(replace(one, session=made)) == []
    assert one.differences(replace(one, session=made + 5)) == (["session"] if -1 in numbers else [])


def test_doctests():
    for info in pkgutil.iter_modules(workloads.writers.__path__, "workloads.writers."):
        assert doctest.testmod(importlib.import_module(info.name)).failed == 0
    assert doctest.testmod(workloads.writers).failed == doctest.testmod(reblocking).failed == 0
