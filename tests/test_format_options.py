"""What a person may say about reading a format, and files that are more than one: sessions, turns, one's own columns."""

from __future__ import annotations

import json

import numpy as np
import pytest
from format_samples import BY_NAME, RAGPULSE, SESSION, SIDES, columns, length_row, lines, put

from workloads.readers import ReadOptions, read_rows, read_trace
from workloads.request import InputError


def session(name, *requests):
    """A kv-cache-tester session of (t, in, ids)."""
    rows = [{"t": t, "type": "n", "in": tokens, "out": 3, "hash_ids": ids} for t, tokens, ids in requests]
    return json.dumps({**SESSION, "id": name, "requests": rows})


# ---------------------------------------------------------------------- sessions
def test_a_folder_of_sessions_keeps_their_ids_apart(tmp_path):
    (tmp_path / "b.json").write_text(session("second", (0, 64, [1])))
    (tmp_path / "a.json").write_text(session("first", (0, 128, [1, 2]), (5, 64, [1])))
    (tmp_path / "notes.txt").write_text("not read")
    rows = read_rows(tmp_path)
    assert columns(rows) == ([128, 64, 64], [3, 3, 3], [0, 5_000_000, 0], [0, 0, 1], [-1, -1, -1], [[0, 1], [0], [2]], 64)
    assert rows.notes == ("sessions have no common clock: all begin at once; --session-rate R begins R a second",)
    assert read_trace(tmp_path).prompt_tokens.tolist() == [128, 64, 64]   # times 0, 0, 5 s
    assert len(read_rows(tmp_path, "kv-cache-tester")) == 3


@pytest.mark.parametrize(("name", "text", "held"), [
    ("results.json", json.dumps({"points": []}), "results.json, which is no kv-cache-tester session"),
    ("week.csv", "prompt_tokens,output_tokens\n1,1\n", "week.csv besides a.json"),
    ("day.jsonl.gz", "", "day.jsonl.gz besides a.json"),
])
def test_a_folder_that_holds_other_files_too_is_not_guessed_at(name, text, held, tmp_path):
    (tmp_path / "a.json").write_text(session("first", (0, 128, [1, 2])))
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        read_rows(tmp_path)
    assert str(caught.value) == (f"{tmp_path}: is a directory, and holds {held}: name one file, or say "
                                 "--format kv-cache-tester to read its sessions")
    if not name.endswith(".json"):
        assert len(read_rows(tmp_path, "kv-cache-tester")) == 1


def test_sessions_begin_at_a_rate(tmp_path):
    for n in range(300):
        (tmp_path / f"{n:03}.json").write_text(session(n, (0, 64, [1]), (1.5, 128, [1, 2])))
    options = ReadOptions(session_rate_per_s=0.5, seed=3)
    rows = read_rows(tmp_path, options=options)
    arrival = rows.arrivals_us(options).reshape(300, 2)
    assert np.all(arrival[:, 1] - arrival[:, 0] == 1_500_000)             # a session's own clock is kept
    assert np.diff(arrival[:, 0]).mean() == pytest.approx(2e6, rel=0.2)
    trace = rows.to_trace(options)
    assert np.all(np.diff(trace.arrival_us) >= 0)
    assert trace.arrival_us.tolist() == sorted(arrival.ravel().tolist())
    other = ReadOptions(session_rate_per_s=0.5, seed=4)
    assert rows.to_trace(other).differences(trace)


def test_sessions_that_do_not_go_together(tmp_path):
    (tmp_path / "a.json").write_text(session("one", (0, 64, [1])))
    (tmp_path / "b.json").write_text(session("one", (0, 64, [1])))
    with pytest.raises(InputError, match=r"b\.json:1: column 'id': session 'one' is there twice\Z"):
        read_rows(tmp_path)
    (tmp_path / "b.json").write_text(session("two", (0, 64, [1])).replace('"block_size": 64', '"block_size": 32'))
    with pytest.raises(InputError, match=r"b\.json:1: column 'block_size': 32, but 64 in other sessions\Z"):
        read_rows(tmp_path)
    (tmp_path / "a.json").write_text(session("one", (0, 64, [2**63 - 1])))
    (tmp_path / "b.json").write_text(session("two", (0, 64, [1])))
    with pytest.raises(InputError, match=r"b\.json:1: requests\[0\]: column 'hash_ids': 1 is too large"):
        read_rows(tmp_path)


@pytest.mark.parametrize(("requests", "says"), [
    ([(0, 64, [1]), (1, 127, [1, 2])], "requests[1]: column 'hash_ids': 2 ids, but 127 tokens have 1 full blocks of 64"),
    ([(0, 128, [1, 1])], "requests[0]: column 'hash_ids': id 1 stands there twice"),
    ([(0, -1, [])], "requests[0]: column 'in': -1 is negative"),
    ([(-1, 64, [1])], "requests[0]: column 't': -1 is a negative time"),
    ([], None)])
def test_bad_sessions_name_the_request(tmp_path, requests, says):
    path = tmp_path / "x"
    path.write_text(session("one", *requests))
    with pytest.raises(InputError) as caught:
        read_rows(path)
    assert str(caught.value).startswith(f"{path}:1: {says}" if says else f"{path}: no request in it")


def test_sub_agents_all_the_way_down(tmp_path):
    inner = SESSION["requests"][0]
    for depth, fine in ((100, True), (101, False)):
        text = '{"t": 0.5, "type": "subagent", "requests": [' * depth + json.dumps(inner) + "]}" * depth
        path = tmp_path / "x"
        path.write_text(json.dumps({**SESSION, "requests": ["X", inner]}).replace('"X"', text))
        if fine:
            assert read_rows(path).arrivals_us().tolist() == [0, depth * 500_000]
        else:
            with pytest.raises(InputError, match=r"x:1: column 'requests': sub-agents in more than 100 sub-agents\Z"):
                read_rows(path)


# ---------------------------------------------------------------------- turns
def test_incremental_turns(tmp_path):
    path = tmp_path / "x"
    path.write_text(lines(length_row(0, 40, 24, [1, 2, 3], session_id=7), length_row(5, 40, 9, [1, 2, 3], session_id=8),
                          length_row(9000, 16, 5, [9], session_id=7)))
    rows = read_rows(path, options=ReadOptions(incremental=True))
    assert rows.prompt_tokens.tolist() == [40, 40, 40 + 24 + 16]
    content = rows.content
    first, other, second = (part.tolist() for part in np.split(content.ids, content.starts[1:-1]))
    assert content.cover_output and content.span_tokens == 16
    assert (len(first), len(other), len(second)) == (4, 4, 6)  # 64, 49 and 85 tokens
    assert second[:4] == first                         # turn 2 finds turn 1 and its answer
    assert other[:2] == first[:2] and other[2] != first[2]  # 40 tokens are common: two whole spans, and the answers differ
    with pytest.raises(InputError, match=r"--incremental-turns wants sessions and outputs"):
        read_rows(put(tmp_path, BY_NAME["mooncake"]), options=ReadOptions(incremental=True))


def test_incremental_turns_that_grow_beyond_memory(tmp_path):
    path = tmp_path / "x"
    path.write_text(lines(length_row(0, 40, 2**31, [1, 2, 3], session_id=7), length_row(1, 16, 1, [1], session_id=7)))
    with pytest.raises(InputError, match=r"x: --incremental-turns: \d+ tokens in all turns together: at most 536870912 can"):
        read_rows(path, options=ReadOptions(incremental=True))


def test_delays_without_any_time(tmp_path):
    path = tmp_path / "x"
    path.write_text(lines({"session_id": 1, "input_length": 5, "output_length": 6},
                          {"session_id": 1, "input_length": 9, "output_length": 6, "delay": 1.5}))
    assert columns(read_rows(path)) == ([5, 9], [6, 6], None, [0, 0], [-1, 1500], None, None)


def test_the_first_turn_that_is_left_waits_for_nobody(tmp_path):
    path = tmp_path / "x"
    path.write_text(lines(length_row(0, 5, 0, session_id=1), length_row(None, 9, 6, session_id=1, delay=20),
                          length_row(None, 9, 6, session_id=1, delay=30)))
    trace = read_trace(path)
    assert trace.think_us.tolist() == [-1, 30_000]
    assert trace.arrival_us.tolist() == [0, 30_000]


def test_delays_that_add_up_to_ages(tmp_path):
    path = tmp_path / "x"
    path.write_text(lines(length_row(0, 5, 1, session_id=1), *[length_row(None, 5, 1, session_id=1, delay=10**15)] * 2))
    with pytest.raises(InputError, match=r"x:3: column 'delay': comes to a time over 1e12 seconds"):
        read_rows(path)


def test_the_size_of_a_hash_block_may_be_told(tmp_path):
    path = tmp_path / "x"
    path.write_text(lines(length_row(0, 40, 1, [1])))  # one id fits many sizes
    assert [read_rows(path, options=ReadOptions(span_tokens=span)).content.span_tokens for span in (None, 48)] == [512, 48]
    with pytest.raises(InputError, match=r"x:1: column 'hash_ids': 1 ids, but input_length 40 takes 2 of 20 tokens each\Z"):
        read_rows(path, options=ReadOptions(span_tokens=20))


# ---------------------------------------------------------------------- RAGPulse
@pytest.mark.parametrize("side", [*SIDES])
def test_a_side_file_leads_to_the_trace(tmp_path, side):
    put(tmp_path, BY_NAME["ragpulse"], file="0_trace.jsonl")
    rows = read_rows(tmp_path / side)
    assert columns(rows) == BY_NAME["ragpulse"].expected
    assert rows.notes == (f"{tmp_path / side} has sizes of components: the trace beside it is read",)
    (tmp_path / "0_trace.jsonl").unlink()
    with pytest.raises(InputError, match=r":1: sizes of components of a RAGPulse trace, and no 0_trace\.jsonl beside it\Z"):
        read_rows(tmp_path / side)


def test_one_side_file_is_missing(tmp_path):
    path = put(tmp_path, BY_NAME["ragpulse"])
    (tmp_path / "3_history.jsonl").unlink()
    rows = read_rows(path)
    assert rows.content is None
    assert rows.notes == ("the files with the sizes of components are not beside the trace: no prefix identity",)


def test_components_that_no_side_file_has(tmp_path):
    path = put(tmp_path, BY_NAME["ragpulse"])
    path.write_text(RAGPULSE.replace('"passages_ids": [8]', '"passages_ids": [9]'))
    with pytest.raises(InputError, match=r":3: column 'hash_ids': passages_ids 9 is not in 2_passages\.jsonl\Z"):
        read_rows(path)
    path.write_text(RAGPULSE.replace("42", "2000000000"))  # memory goes by tokens here
    with pytest.raises(InputError, match=r":3: column 'input_length': 2000000000: over \d+ tokens so far"):
        read_rows(path)


# ---------------------------------------------------------------------- arrays and columns
def test_an_array_over_several_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("workloads.readers.source.BLOCK_BYTES", 64)
    found = [{"id": n, "conversations": [{"from": "human", "value": "q" * n}, {"from": "gpt", "value": "a"}]}
             for n in range(1, 90)]
    path = tmp_path / "x"
    for text in (json.dumps(found), json.dumps(found, indent=2), json.dumps(found).replace("}, {", "}\n,\n{"), lines(*found)):
        path.write_text(text)
        assert read_rows(path).prompt_tokens.tolist() == [-(-n // 4) for n in range(1, 90)]
    found[59]["conversations"][1]["value"] = 5
    path.write_text(json.dumps(found, indent=2))
    line = [n for n, text in enumerate(path.read_text().splitlines(), start=1) if text == "  {"][59]
    with pytest.raises(InputError, match=rf"x:{line}: column 'value': 5 is not a text\Z"):
        read_rows(path)


@pytest.mark.parametrize(("unit", "times", "arrival_us"), [
    ("", ["0.5", "2"], [0, 1_500_000]), (":s", ["0.5", "2"], [0, 1_500_000]), (":ms", ["0.5", "2"], [0, 1500]),
    (":us", ["0.5", "2"], [0, 2]), (":ns", ["500", "2500"], [0, 2]),
    (":iso", ["2024-01-01 00:00:00", "2024-01-01T00:00:01.5Z"], [0, 1_500_000])])
def test_columns_of_ones_own_names(tmp_path, unit, times, arrival_us):
    path = tmp_path / "x"
    path.write_text("when,who,in,out,pause,prompt_tokens\n" + "".join(f"{t},{w},{p},{o},{d},9\n" for t, w, p, o, d in zip(
        times, "aa", (5, 7), (6, 8), ("", "250"), strict=True)))
    chosen = {"time": f"when{unit}", "prompt": "in", "output": "out", "session": "who", "think": "pause:ms"}
    rows = read_rows(path, options=ReadOptions(columns=chosen))
    assert columns(rows) == ([5, 7], [6, 8], arrival_us, [0, 0], [-1, 250_000], None, None)


def test_one_column_may_play_two_parts(tmp_path):
    path = tmp_path / "x"
    path.write_text("a,b\n1,2\n3,4\n")
    rows = read_rows(path, options=ReadOptions(columns={"prompt": "a", "output": "b", "session": "a", "time": "b:ms"}))
    assert columns(rows) == ([1, 3], [2, 4], [0, 2000], [0, 1], None, None, None)


@pytest.mark.parametrize(("chosen", "says"), [
    ({"prompt": "a"}, "--columns: output=COLUMN is wanted, not only 'prompt'"),
    ({"prompt": "a", "output": "b", "colour": "c"}, "--columns: no role 'colour': one of time, prompt, output,"),
    ({"prompt": "a", "output": "z"}, "column 'z': missing; the columns are 'a', 'b'"),
    ({"prompt": "a", "output": "b", "time": "a:h"}, "column 'a:h': missing"),
    ({"prompt": "a", "output": "b", "think": "a"}, "column 'a': wants a session")])
def test_wrong_columns(tmp_path, chosen, says):
    path = tmp_path / "x"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError) as caught:
        read_rows(path, options=ReadOptions(columns=chosen))
    assert says in str(caught.value)


def test_what_a_table_of_ones_own_has_and_nobody_reads_is_said(tmp_path):
    path = tmp_path / "x"
    path.write_text("timestamp,prompt_tokens,output_tokens\n5,1,2\n")
    assert read_rows(path).notes == ("columns that are not read: 'timestamp'",)
    path.write_text('{"timestamp": 5, "prompt_tokens": 1, "completion_tokens": 2}\n')
    assert read_rows(path).notes == ("keys that are not read: 'timestamp'",)
    assert read_rows(put(tmp_path, BY_NAME["csv"])).notes == ()


@pytest.mark.parametrize(("text", "says"), [
    ("prompt_tokens,output_tokens,hash_ids\n5,6,1\n", ":1: a column of ids, and no line '# hash_ids: N tokens each' before"),
    ("# hash_ids: ²\nprompt_tokens,output_tokens,hash_ids\n5,6,1\n", ":2: a column of ids, and no line"),
    ("# hash_ids: 16 tokens each\nprompt_tokens,output_tokens,hash_ids\n5,6,1\n\n16,6,1 2\n", ":5: column 'hash_ids': 2 ids"),
    ("prompt_tokens,output_tokens,max_tokens\n5,6,6\n\n5,6,5\n", ":4: column 'max_tokens': 5 is below the output, 6 tokens"),
    ("prompt_tokens,output_tokens,think_us\n5,6,1\n", ":1: column 'think_us': wants a session"),
    ("prompt_tokens,output_tokens,samples,beam_width\n5,6,2,2\n", ": a request has several samples or several beams, not both")])
def test_tables_of_ones_own_that_contradict_themselves(tmp_path, text, says):
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}{says}")


def test_a_sub_agent_begins_when_its_session_says(tmp_path):
    """It is a session of its own, but its times count on the clock of the one it works for."""
    agent = {"t": 10.0, "type": "subagent", "requests": [{"t": 2.0, "type": "n", "in": 64, "out": 1, "hash_ids": [1]}]}
    for n in range(20):
        first = {"t": 0.0, "type": "n", "in": 64, "out": 1, "hash_ids": [1]}
        (tmp_path / f"{n:02}.json").write_text(json.dumps({"id": n, "block_size": 64, "hash_id_scope": "local",
                                                           "requests": [first, agent]}))
    options = ReadOptions(session_rate_per_s=0.5, seed=1)
    rows = read_rows(tmp_path, options=options)
    begin, later = rows.arrivals_us(options).reshape(20, 2).T
    assert set((later - begin).tolist()) == {12_000_000}
    assert len(set(begin.tolist())) == 20 and len(set(rows.besides["session"].tolist())) == 40
    table = tmp_path / "table.csv"
    table.write_text("trace,subagent_path,idx,t_s,type,in_tokens,out_tokens,think_time_s\na,,0,0,n,64,1,0\na,1/,0,3,n,64,1,0\n"
                     "b,,0,0,n,64,1,0\nb,1/,0,3,n,64,1,0\n")
    arrival = read_rows(table, options=options).arrivals_us(options)
    assert (arrival[1] - arrival[0], arrival[3] - arrival[2]) == (3_000_000, 3_000_000)
