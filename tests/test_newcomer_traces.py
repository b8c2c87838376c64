"""What a newcomer found in reading and changing traces: each was wrong once."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from cli_run import run

import experiments.compare
from sim.caching.endless import known_prefixes
from workloads import transform
from workloads.readers import ReadOptions, read_rows, read_trace
from workloads.request import InputError, Trace
from workloads.synth import recipe

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_rows_that_pack_too_well_are_refused_before_they_fill_the_memory(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(AZURE.encode() + b"2023-11-16 18:15:00.0,100,10\n" * 3_000_000, compresslevel=1))
    with pytest.raises(InputError, match="refused as a decompression bomb"):
        read_rows(path)


def test_memory_that_runs_out_is_one_line(capsys, monkeypatch):
    def none_left(*_):
        raise MemoryError
    monkeypatch.setattr(experiments.compare, "prepare", none_left)
    said = run(capsys, "compare")
    assert (said.status, said.err) == (2, "pagedsim compare: error: this takes more memory than there is\n")


def test_a_turn_whose_own_predecessor_is_gone_arrives_at_its_time(tmp_path):
    n = np.array
    trace = Trace("three turns", n([10, 900, 20]), n([5, 5, 5]), arrival_us=n([0, 20, 50]), session=n([0, 0, 0]),
                  think_us=n([-1, 1, 1]))
    assert transform.take(trace, n([0, 2])).think_us.tolist() == [-1, -1]
    assert transform.take(trace, n([1, 2])).think_us.tolist() == [-1, 1]
    assert transform.take(trace, n([0, 1, 2])).think_us.tolist() == [-1, 1, 1]
    path = tmp_path / "sessions.csv"
    path.write_text("arrival_us,prompt_tokens,output_tokens,session,think_us\n0,10,5,0,-1\n20000000,900,5,0,1000000\n"
                    "50000000,20,5,0,1000000\n60000000,30,5,1,-1\n")
    assert not run_trace("cut", path, tmp_path / "cut.csv", "--max-total-tokens", "500", "--sessions", "split")
    assert read_trace(tmp_path / "cut.csv").think_us is None or read_trace(tmp_path / "cut.csv").think_us.tolist() == [-1] * 3


def run_trace(*arguments):
    from experiments.cli import main
    return main(["trace", *map(str, arguments), "-q"])


def test_a_parent_may_stand_later_in_the_file(tmp_path):
    path = tmp_path / "qwen.jsonl"
    rows = [(2, 1, 5.0), (1, -1, 0.0), (3, 2, 9.0), (7, 8, 1.0), (8, 7, 2.0), (9, 77, 3.0)]
    path.write_text("".join(json.dumps({"chat_id": chat, "parent_chat_id": parent, "timestamp": at, "input_length": 5,
                                        "output_length": 1, "type": "text", "turn": 1, "hash_ids": [chat]}) + "\n"
                            for chat, parent, at in rows))
    session = read_rows(path).besides["session"]
    assert session[0] == session[1] == session[2]
    assert session[3] == session[4]                    # a circle is one session
    assert len(set(session.tolist())) == 3             # a parent that is not there begins one


@pytest.mark.parametrize(("options", "option"), [
    (ReadOptions(window_s=(0, 600)), "--window"), (ReadOptions(session_rate_per_s=2.0), "--session-rate"),
    (ReadOptions(span_tokens=16), "--hash-block-size"), (ReadOptions(incremental=True), "--incremental-turns")])
def test_what_has_no_meaning_for_a_format_is_refused(tmp_path, options, option):
    path = tmp_path / "azure.csv"
    path.write_text(AZURE + "2023-11-16 18:15:46.6805900,374,44\n")
    with pytest.raises(InputError, match=f"{option} has no meaning here: it is read as azure"):
        read_rows(path, options=options)


def test_a_block_of_no_tokens_is_named_as_such(tmp_path):
    path = tmp_path / "session.json"
    path.write_text(json.dumps({"id": "a", "block_size": 0, "hash_id_scope": "local", "requests": []}))
    with pytest.raises(InputError, match="column 'block_size': 0 tokens are no block"):
        read_rows(path)


def test_more_documents_than_there_are_cannot_be_different():
    table = {"requests": 3, "prompt": 10, "output": 1, "arrivals": "all-at-once"}
    with pytest.raises(InputError, match="retrieved: 5 different documents are wanted, and there are 3"):
        recipe({**table, "prefix": "rag:document_tokens=20,documents=3,retrieved=5"})
    assert len(recipe({**table, "prefix": "rag:document_tokens=20,documents=3,retrieved=3"})) == 3


def test_rows_of_zero_length_count_in_what_is_said_of_the_file(capsys, tmp_path):
    path = tmp_path / "m.jsonl"
    rows = [(0, 20, 1, [1, 2]), (1000, 20, 0, [1, 3]), (4000, 20, 5, [1, 3])]
    path.write_text("".join(json.dumps({"timestamp": t, "input_length": p, "output_length": o, "hash_ids": ids}) + "\n"
                            for t, p, o, ids in rows))
    said = run(capsys, "trace", "info", path, "--json", "-", "-q")
    assert (said.json["rows"]["count"], said.json["rows"]["duration_s"], said.json["rows"]["rate_per_s"]) == (3, 4.0, 0.75)
    assert said.json["rows"]["hit_ratio_of_ids"] == 3 / 6          # without the second row it would be 1 of 4
    assert "over 4.0 s, 0.75 a second; 50.00 % of their ids were there before" in run(capsys, "trace", "info", path).out


def test_blocks_of_equal_content_may_repeat_where_ids_are_not_of_prefixes(tmp_path):
    path = tmp_path / "qwen.jsonl"
    path.write_text("".join(json.dumps({"chat_id": chat, "parent_chat_id": -1, "timestamp": chat, "input_length": 48,
                                        "output_length": 1, "type": "text", "turn": 1, "hash_ids": ids}) + "\n"
                            for chat, ids in ((1, [7, 7, 8]), (2, [7, 7, 9]))))
    assert known_prefixes(read_trace(path)).tokens.tolist() == [0, 32]


def test_where_nobody_looks_no_bar_is_made(tmp_path, capsys, monkeypatch):
    """An older rich ends a bar that is not shown with an empty line."""
    def seen(*_, **__):
        raise AssertionError("a bar")
    monkeypatch.setattr("rich.progress.Progress.start", seen)
    monkeypatch.setattr("experiments.reading.LONG_BYTES", 0)
    path = tmp_path / "t.csv"
    path.write_text("prompt_tokens,output_tokens\n5,3\n")
    said = run(capsys, "compare", path, "--num-gpu-blocks-override", 10, "--json", "-")
    assert said.status == 0, said.err
    assert not said.err.startswith("\n")
