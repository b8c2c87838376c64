"""`pagedsim trace convert, synth, cut, scale, merge, sample`: what is written, what is said, what is refused."""

from __future__ import annotations

import gzip
import io
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard
from cli_run import lengths, mooncake, run, shared_trace, timed

from experiments.trace import SUBCOMMANDS
from workloads.readers import READERS, read_trace
from workloads.request import Trace
from workloads.synth import read_recipe
from workloads.writers import WRITERS, write_trace

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
CHAT = """requests = 40
arrivals = "poisson:rate=2"
prompt = "uniform:least=20,most=60"
output = "uniform:least=5,most=20"
prefix = {kind = "chat", turns = "constant:value=3", think_s = "constant:value=2.5"}
"""
MAKERS = [name for name in SUBCOMMANDS if name != "info"]


@pytest.fixture
def week(tmp_path):
    """Five requests in ten seconds."""
    return timed(tmp_path, [(0.0, 10, 1), (0.5, 20, 2), (2.25, 30, 3), (2.25, 40, 4), (10.0, 50, 5)], "week.csv")


@pytest.fixture
def chat(tmp_path):
    path = tmp_path / "chat.toml"
    path.write_text(CHAT)
    return path


@pytest.fixture
def talk(tmp_path):
    """Two sessions and a request alone, closed loop."""
    path = tmp_path / "talk.csv"
    path.write_text("arrival_us,prompt_tokens,output_tokens,session,think_us\n"
                    "0,10,1,0,-1\n1000000,20,1,1,-1\n2000000,30,1,0,500\n3000000,40,1,,-1\n4000000,900,1,1,500\n")
    return path


def made(capsys, *arguments):
    """What the command says on standard output; it must end well."""
    said = run(capsys, "trace", *arguments)
    assert said.status == 0, said.err
    return said


def prompts(path):
    return read_trace(path).prompt_tokens.tolist()


# ---------------------------------------------------------------------- convert
def test_convert(capsys, tmp_path, week):
    said = made(capsys, "convert", week, tmp_path / "out.csv")
    assert said.out == f"5 requests in {tmp_path}/out.csv (csv)\n" and "lost" not in said.err
    back = read_trace(tmp_path / "out.csv")
    assert back.differences(read_trace(week)) == [] and back.made_by == "pagedsim trace convert week.csv out.csv"


def test_losses_are_said_and_strict_refuses(capsys, tmp_path):
    trace, out = mooncake(tmp_path, [(0, 600, 3, [1, 2]), (5, 700, 3, [1, 3])]), tmp_path / "out.csv"
    said = made(capsys, "convert", trace, out, "--to", "azure", "-q")
    assert (said.out, said.err) == ("", "lost: azure has no place for prefix identity: 2 of 2 requests have them\n")
    out.unlink()
    said = run(capsys, "trace", "convert", trace, out, "--to", "azure", "--strict")
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1) and not out.exists()
    assert "--strict: azure has no place for prefix identity" in said.err
    assert made(capsys, "convert", trace, out, "--strict").status == 0


def test_dropped_rows_are_losses(capsys, tmp_path):
    trace, out = lengths(tmp_path, [(5, 9), (7, 0), (0, 3)]), tmp_path / "out.csv"
    said = made(capsys, "convert", trace, out, "-q")
    assert said.err == (f"lost: 1 row of {trace} left out: no prompt tokens\n"
                        f"lost: 1 row of {trace} left out: no output tokens\n")
    assert run(capsys, "trace", "convert", trace, out, "--strict").status == 2


def test_standard_output_and_input(capsys, monkeypatch, week):
    said = made(capsys, "convert", week, "-")
    assert said.out.splitlines()[:3] == ["# made by: pagedsim trace convert week.csv -", "arrival_us,prompt_tokens,output_tokens",
                                         "0,10,1"]
    assert said.err.endswith("5 requests in - (csv)\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said.out.encode())))
    again = made(capsys, "cut", "-", "-", "--limit", "1", "-q")
    assert again.out.splitlines()[0] == ("# made by: pagedsim trace convert week.csv - && pagedsim trace cut - - --limit 1 -q")
    assert again.out.splitlines()[2:] == ["0,10,1"]


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.zst", "a.jsonl.GZ"])
def test_packed_by_name_and_the_same_bytes_twice(capsys, tmp_path, week, name):
    texts = []
    for folder in "xy":
        (tmp_path / folder).mkdir()
        made(capsys, "convert", week, tmp_path / folder / name, "--to", "csv")
        texts.append((tmp_path / folder / name).read_bytes())
    assert texts[0] == texts[1]
    unpack = zstandard.ZstdDecompressor().decompressobj().decompress if name.endswith("zst") else gzip.decompress
    if not name.endswith("zst"):                       # neither a name nor a time in the head
        assert texts[0][3] == 0 and texts[0][4:8] == bytes(4)
    assert unpack(texts[0]).startswith(b"# made by: pagedsim trace convert week.csv a.")
    assert read_trace(tmp_path / "x" / name).differences(read_trace(week)) == []


def test_times_are_drawn_where_they_are_missing(capsys, tmp_path):
    trace, out = lengths(tmp_path, [(5, 9), (7, 2), (8, 3)]), tmp_path / "out.csv"
    assert "azure needs arrival times" in run(capsys, "trace", "convert", trace, out, "--to", "azure").err
    said = made(capsys, "convert", trace, out, "--to", "azure", "--rate", "2", "--seed", "5")
    assert "note: Poisson arrivals at 2 requests/s, seed 5" in said.err
    assert read_trace(out).arrival_us[2] > 0


# ---------------------------------------------------------------------- synth
def test_synth(capsys, tmp_path, chat):
    out = tmp_path / "out.csv"
    said = made(capsys, "synth", chat, out, "--set", "arrivals.rate=8", "--requests", "30", "--seed", "4")
    trace = read_trace(out)
    assert said.out.startswith("30 requests over ") and "arrivals poisson (rate 8)" in said.out and said.err == ""
    assert trace.made_by == "pagedsim trace synth chat.toml out.csv --set arrivals.rate=8 --requests 30 --seed 4"
    chat.write_text(CHAT.replace("rate=2", "rate=8").replace("40", "30") + "")
    chat.write_text("seed = 4\n" + chat.read_text())
    assert trace.differences(read_recipe(chat)) == [] and trace.content.cover_output and trace.closed_loop
    assert "# recipe: requests = 40\n" in out.read_text()


def test_synth_without_a_file_says_what_it_would_hold(capsys, chat):
    said = made(capsys, "synth", chat)
    assert "40 requests over" in said.out and "closed loop" in said.out
    assert "--output-format is for a file to write" in run(capsys, "trace", "synth", chat, "--output-format", "csv").err


def test_a_long_recipe_is_not_repeated(capsys, tmp_path, chat):
    chat.write_text(CHAT + "# a comment\n" * 100)
    made(capsys, "synth", chat, tmp_path / "out.csv")
    assert "# recipe: too long to be repeated here\n" in (tmp_path / "out.csv").read_text()
    assert len(read_trace(tmp_path / "out.csv")) == 40


# ---------------------------------------------------------------------- cut
def test_cut_by_time_length_and_number(capsys, tmp_path, week):
    out = tmp_path / "out.csv"
    said = made(capsys, "cut", week, out, "--from", "0.5", "--to", "10", "--max-total-tokens", "40", "--limit", "1", "-q")
    assert prompts(out) == [20] and said.out == ""
    said = made(capsys, "cut", week, out, "--from", "0.5", "--to", "10", "--max-total-tokens", "40", "--limit", "2")
    assert said.out == "5 -> 2 requests: 3 from 0.5 s to 10 s; 2 of at most 40 tokens; the first 2\n"
    assert read_trace(out).arrival_us.tolist() == [0, 1_750_000] and "lost" not in said.err
    assert made(capsys, "cut", week, out, "--from", "2.25").out == "5 -> 3 requests: 3 from 2.25 s on\n"


def test_sessions_are_cut_whole(capsys, tmp_path, talk):
    out = tmp_path / "out.csv"
    for asked, left in ((["--from", "1", "--to", "4"], [20, 40, 900]), (["--max-total-tokens", "500"], [10, 30, 40]),
                        (["--limit", "4"], [10, 20, 30, 900]), (["--limit", "2"], [10, 30])):
        assert made(capsys, "cut", talk, out, *asked).out.endswith("; sessions whole\n")
        assert prompts(out) == left, asked


def test_sessions_are_torn_when_asked(capsys, tmp_path, talk):
    out = tmp_path / "out.csv"
    said = made(capsys, "cut", talk, out, "--from", "2", "--to", "4.5", "--sessions", "split")
    assert said.out == "5 -> 3 requests: 3 from 2 s to 4.5 s; 2 sessions cut in two\n"
    assert prompts(out) == [30, 40, 900] and read_trace(out).think_us.tolist() == [-1, -1, -1]


# ---------------------------------------------------------------------- scale
def test_scale(capsys, tmp_path, week):
    out = tmp_path / "out.csv"
    said = made(capsys, "scale", week, out, "--speed", "0.3")
    assert said.out == "5 requests at 0.3 times the speed: 10 -> 33.3333 s\n"
    assert read_trace(out).arrival_us.tolist() == [0, 1_666_667, 7_500_000, 7_500_000, 33_333_333]
    made(capsys, "scale", week, out, "--rate", "2")        # 5 requests in 2.5 s
    assert read_trace(out).arrival_us.tolist() == [0, 125_000, 562_500, 562_500, 2_500_000]


def test_people_think_as_long_as_before(capsys, tmp_path, talk):
    out = tmp_path / "out.csv"
    assert made(capsys, "scale", talk, out, "--speed", "2").out.endswith("think times stay as they are\n")
    assert read_trace(out).think_us.tolist() == [-1, -1, 500, -1, 500]
    assert made(capsys, "scale", talk, out, "--speed", "2", "--think-times").out.endswith("think times are divided too\n")
    assert read_trace(out).think_us.tolist() == [-1, -1, 250, -1, 250]
    assert read_trace(out).arrival_us.tolist() == [0, 500_000, 1_000_000, 1_500_000, 2_000_000]


# ---------------------------------------------------------------------- times that are drawn
def test_a_rate_draws_the_times_that_compare_draws(capsys, tmp_path):
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("prompt_tokens,output_tokens\n" + "9,1\n" * 40)
    run(capsys, "trace", "convert", lengths, tmp_path / "timed.csv", "--to", "csv", "--rate", "2", "--seed", "5", "-q")
    common = ("--num-gpu-blocks-override", "99", "--allocator", "paged", "--json", "-", "-q")
    drawn = run(capsys, "compare", lengths, "--rate", "2", "--seed", "5", *common).json
    written = run(capsys, "compare", tmp_path / "timed.csv", *common).json
    assert drawn["scenarios"] == written["scenarios"] and drawn["trace"]["duration_s"] > 10


# ---------------------------------------------------------------------- merge
def test_merge(capsys, tmp_path, week, talk):
    out = tmp_path / "out.csv"
    said = made(capsys, "merge", week, talk, out)
    assert said.out == "5 + 5 -> 10 requests over 10 s\n"
    both = read_trace(out)
    assert both.prompt_tokens.tolist() == [10, 10, 20, 20, 30, 30, 40, 40, 900, 50]
    assert both.session.tolist() == [-1, 0, -1, 1, 0, -1, -1, -1, 1, -1]
    assert made(capsys, "merge", talk, talk, out, "-q").out == ""
    assert np.unique(read_trace(out).session).tolist() == [-1, 0, 1, 2, 3]


def test_merged_ids_stay_apart_unless_shared(capsys, tmp_path):
    one = mooncake(tmp_path, [(0, 600, 3, [5, 2])], "one.jsonl")
    two = mooncake(tmp_path, [(1, 600, 3, [5, 9])], "two.jsonl")
    out = tmp_path / "out.csv"
    made(capsys, "merge", one, two, out)
    assert read_trace(out).content.ids.tolist() == [5, 2, 11, 15]
    made(capsys, "merge", one, two, "--shared-ids", out)
    assert read_trace(out).content.ids.tolist() == [5, 2, 5, 9]
    small = mooncake(tmp_path, [(1, 20, 3, [5, 9])], "small.jsonl")
    assert made(capsys, "merge", one, small, out).status == 0
    assert read_trace(out).content.span_tokens == 16
    assert "512, 16 tokens: they cannot be shared" in run(capsys, "trace", "merge", one, small, out, "--shared-ids").err


def test_merge_wants_times(capsys, tmp_path, week):
    bare, out = lengths(tmp_path, [(5, 9)]), tmp_path / "out.csv"
    assert "has no arrival times: --rate R draws them" in run(capsys, "trace", "merge", week, bare, out).err
    assert made(capsys, "merge", week, bare, out, "--rate", "1").out == "5 + 1 -> 6 requests over 10 s\n"


def test_what_merging_loses_is_said(capsys, tmp_path, week):
    limits, out = tmp_path / "limits.csv", tmp_path / "out.csv"
    limits.write_text("arrival_us,prompt_tokens,output_tokens,max_tokens\n0,5,6,7\n")
    assert "lost: limits on outputs are left out" in made(capsys, "merge", week, limits, out).err
    assert "--strict: limits on outputs" in run(capsys, "trace", "merge", week, limits, out, "--strict").err


# ---------------------------------------------------------------------- sample
def test_sample(capsys, tmp_path, week, talk):
    out = tmp_path / "out.csv"
    said = made(capsys, "sample", week, out, "--requests", "3", "--seed", "1")
    assert said.out == "5 -> 3 requests, seed 1\n"
    first = prompts(out)
    assert first == sorted(first) and read_trace(out).arrival_us[0] == 0
    made(capsys, "sample", week, out, "--requests", "3", "--seed", "1")
    assert prompts(out) == first
    drawn = set()
    for seed in range(8):
        made(capsys, "sample", talk, out, "--fraction", "0.3", "--seed", seed)
        drawn.add(tuple(prompts(out)))
    assert drawn == {(10, 30), (20, 900), (40,)}           # one of three units, whole
    said = run(capsys, "trace", "sample", talk, out, "--requests", "1", "--seed", "0")
    assert said.status == 0 or "the first session drawn has more requests" in said.err


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(("arguments", "named"), [
    (["convert", "nowhere.csv", "out.csv"], "nowhere.csv"),
    (["convert", "week.csv", "week.csv"], "week.csv: the output would overwrite the trace"),
    (["convert", "week.csv", "./week.csv"], "would overwrite the trace"),
    (["convert", "week.csv", "no/where.csv"], "no/where.csv: cannot write"),
    (["convert", "week.csv", "out.txt"], "the name ends in none of .csv, .jsonl, so the format has to be said: csv, mooncake"),
    (["convert", "week.csv", "out.csv", "--to", "vidur"], "invalid choice: 'vidur'"),
    (["convert", "week.csv", "out.csv", "--to", "qwen"], "qwen needs prefix identity"),
    (["convert", "week.csv", "out.csv", "--format", "azure"], "column 'TIMESTAMP': missing"),
    (["synth", "nowhere.toml", "out.csv"], "nowhere.toml: no such file"),
    (["synth", "chat.toml", "out.csv", "--set", "arrivals"], "KEY=VALUE is wanted"),
    (["synth", "chat.toml", "out.csv", "--set", "arrival.rate=3"], "there is no such part, so no 'arrival.rate' to change"),
    (["synth", "chat.toml", "out.csv", "--set", "requests.rate=3"], "requests: must be a table, not 40"),
    (["synth", "chat.toml", "out.csv", "--set", "arrivals.pace=3"], "arrivals: unknown key 'pace'"),
    (["synth", "chat.toml", "chat.toml", "--output-format", "csv"], "would overwrite the trace"),
    (["cut", "week.csv", "out.csv", "--from", "5", "--to", "5"], "must be after that to start"),
    (["cut", "week.csv", "out.csv", "--from", "50"], "no request is left"),
    (["cut", "bare.csv", "out.csv", "--from", "1"], "has no arrival times"),
    (["scale", "week.csv", "out.csv"], "one of the arguments --rate --speed is required"),
    (["scale", "week.csv", "out.csv", "--speed", "0"], "--speed"),
    (["scale", "week.csv", "out.csv", "--speed", "nan"], "--speed"),
    (["scale", "bare.csv", "out.csv", "--rate", "3"], "--rate: bare.csv has no arrival times"),
    (["merge", "week.csv", "out.csv"], "two traces and the file to write are wanted"),
    (["merge", "-", "-", "out.csv"], "standard input can be read once"),
    (["merge", "week.csv", "bare.csv", "week.csv"], "would overwrite the trace"),
    (["sample", "week.csv", "out.csv", "--fraction", "2"], "--fraction"),
])
def test_one_line_and_nothing_written(capsys, tmp_path, monkeypatch, week, chat, arguments, named):
    monkeypatch.chdir(tmp_path)
    lengths(tmp_path, [(5, 9)], "bare.csv")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    said = run(capsys, "trace", *arguments)
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1), said.err
    assert named in said.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_name_of_another_world(capsys, tmp_path, week):
    out = tmp_path / "a\nb.csv"
    assert made(capsys, "convert", week, out).status == 0
    assert out.read_text().splitlines()[0] == "# made by: pagedsim trace convert week.csv 'a\\nb.csv'"


def test_a_long_history_is_left_behind(capsys, tmp_path):
    path = tmp_path / "old.csv"
    with path.open("w") as file:
        write_trace(Trace("a", np.array([5]), np.array([9]), made_by="x" * 3000), "csv", file)
    made(capsys, "convert", path, tmp_path / "new.csv")
    assert read_trace(tmp_path / "new.csv").made_by == "pagedsim trace convert old.csv new.csv"


@pytest.mark.parametrize("name", MAKERS)
def test_help(capsys, name):
    said = run(capsys, "trace", name, "--help")
    assert (said.status, said.err) == (0, "") and f"pagedsim trace {name}" in said.out and "examples:" in said.out
    assert max(map(len, said.out.splitlines())) <= 130


# ---------------------------------------------------------------------- the public traces
@pytest.mark.parametrize(("name", "n"), [("mooncake/conversation_trace.jsonl", 12_031), ("kv-cache-tester/raw", None),
                                         ("azure-2023/AzureLLMInferenceTrace_conv.csv", 19_366)])
def test_public_traces_come_back(capsys, tmp_path, name, n):
    trace = shared_trace(name)
    made(capsys, "convert", trace, tmp_path / "a.csv.gz", "-q")
    back, there = read_trace(tmp_path / "a.csv.gz"), read_trace(trace)
    assert back.differences(there) == [] and (n is None or len(back) == n)


# ---------------------------------------------------------------------- the page
def table(heading):
    """Names in the first column of the table below a heading."""
    text = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_the_page_names_every_format_and_command():
    assert table("Formats that are read") == list(READERS)
    assert table("Formats that are written") == list(WRITERS)
    assert set(MAKERS) <= set(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE))
    for writer in WRITERS.values():
        assert f"| `{writer.name}` | {writer.about} |" in PAGE


EXAMPLES = [line[2:] for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
            for line in block.splitlines() if line.startswith("$ pagedsim")]


def test_the_examples_of_the_page_run_in_order(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat.toml").write_text(re.search(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1])
    timed(tmp_path, [(t / 2, 100 + t, 5 + t % 7) for t in range(40)], "week.csv")
    mooncake(tmp_path, [(3000 * (i // 3), 1000, 9, [1, i]) for i in range(2, 22)], "conversation_trace.jsonl")
    assert {example.split()[2] for example in EXAMPLES} == set(SUBCOMMANDS)
    for example in EXAMPLES:
        said = run(capsys, *shlex.split(example)[1:])
        assert said.status == 0, (example, said.err)
