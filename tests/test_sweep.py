"""Sweeps: a row is what `compare` says of its command; draws are common; searches end between direct runs; exports agree."""

import csv
import json
import shlex
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_run import lengths, mooncake, run, shared_trace
from sweep_run import WHOLE, by_command, direct, files, finish, read_store, start, sweep, trace_of

from experiments.whatif.simulate import METRICS


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# ---------------------------------------------------------------------- a row is what compare says
@pytest.mark.parametrize("case", ["built-in", "untimed", "timed rate", "closed loop", "saturate", "chat recipe",
                                  "warm-up", "two replicas"])
def test_a_row_is_what_its_command_says(case, tmp_path, capsys):
    text = WHOLE + "limit = 50\nseeds = [3]\nallocators = ['paged-prefix', 'contiguous-pow2']\n"
    if case == "untimed":
        text += f"trace = '{lengths(tmp_path, [(40 + i, 30) for i in range(60)])}'\nrate = 3\nshuffle = true\n"
    if case == "timed rate":
        text += f"trace = '{trace_of(tmp_path)}'\n[sweep]\nrate = [0.7, 5]\n"
    if case == "closed loop":
        path = tmp_path / "chat.csv"
        path.write_text("time,prompt,output,session\n" + "".join(f"{i},{40 + i},{20},{i % 5}\n" for i in range(50)))
        text += f"trace = '{path}'\ncolumns = 'time=time,prompt=prompt,output=output,session=session'\nthink-time = 2.5\n"
    if case == "saturate":
        text += f"trace = '{trace_of(tmp_path)}'\nsaturate = true\n"
    if case == "warm-up":
        text = text.replace("'none'", "'35%'") + f"trace = '{trace_of(tmp_path)}'\n[sweep]\nmax-num-seqs = [4, 16]\n"
    if case == "two replicas":
        text = text.replace("'none'", "'mser5'") + f"trace = '{trace_of(tmp_path)}'\ndp = 2\n"
    if case == "chat recipe":
        text += "[traffic]\nrequests = 40\nprompt = 200\noutput = 30\narrivals = 'poisson:rate=3'\nprefix = 'system:tokens=64'\n"
        text += "[sweep]\ntraffic.prefix.tokens = [64, 512]\nrate = [3, 6]\n"
    _, rows = sweep(capsys, tmp_path, text)
    for row in rows:
        assert row["status"] == "done" and row["checks_ok"]
        result = json.loads(row["result"])
        scenario, = result["scenarios"]
        for name in ("queue", "ttft", "tpot", "e2e"):
            for statistic, value in scenario["latency_s"][name].items():
                assert row[f"{name}_{statistic}_s"] == value or case in ("warm-up", "two replicas")
        if case == "warm-up":
            assert row["warmup_requests"] == 18        # 35 % of 24.5 s: those of 0 to 8.5 s
        assert {name: scenario["measured"][name] for name in METRICS} == {name: row[name] for name in METRICS}
        assert row["preemptions"] == scenario["requests"]["preemptions"]
        assert row["token_states"] == scenario["memory"]["token_states"]
        assert row["num_blocks"] == result["capacity"]["num_blocks"]
        direct = by_command(capsys, row["command"])
        assert direct["scenarios"] == [scenario] and direct["crosscheck"] == result["crosscheck"]


def test_every_metric_has_a_column(tmp_path, capsys):
    _, rows = sweep(capsys, tmp_path, WHOLE + "limit = 20\n")
    assert set(METRICS) <= set(rows[0]) and all(rows[0][name] is not None for name in METRICS if name != "evicted_blocks")


def test_the_95th_percentile_is_a_column_and_a_promise(tmp_path, capsys):
    """p95 of every latency as numpy has it of the requests; compare's own JSON keeps its keys."""
    text = WHOLE + f"model = 'Llama-3.1-8B'\ngpu = 'L4'\ntrace = '{trace_of(tmp_path)}'\n"
    text += "[search]\nlargest = 'rate'\nkeep = 'ttft p95 <= 1 s'\n"
    said, rows = sweep(capsys, tmp_path, text)
    command = shlex.split(rows[0]["command"])[1:]
    assert run(capsys, *command, "--requests", "r.csv", "-q").status == 0
    with open("r.csv", newline="") as file:
        first = [float(line["ttft_s"]) for line in csv.DictReader(file)]
    assert rows[0]["ttft_p95_s"] == pytest.approx(np.percentile(first, 95), abs=1e-6)      # the CSV has microseconds
    assert rows[0]["ttft_p90_s"] < rows[0]["ttft_p95_s"] < rows[0]["ttft_p99_s"]
    assert set(json.loads(rows[0]["result"])["scenarios"][0]["latency_s"]["ttft"]) == {"mean", "p50", "p90", "p99"}
    found, = json.loads(Path("out/results.json").read_text())["searches"]
    at = {row["rate"]: row["ttft_p95_s"] for row in rows}
    assert at[found["answer"]["settings"]["rate"]] <= 1 < at[found["beyond"]["settings"]["rate"]]
    assert "that keeps ttft p95 <= 1 s" in said.out and "keeps it: ttft p95 " in said.out


@pytest.mark.parametrize(("own", "what", "value"), [
    ("", "rate", 2.0),                                 # of the built-in workload, whose arrivals are drawn at it
    ("trace = 'timed.csv'\n", "rate", 60 / 29.5),     # 60 requests from 0 to 29.5 s
    ("trace = 'timed.csv'\n", "speed", 1.0),
    ("", "max-num-seqs", 256),
])
def test_rows_of_the_grid_say_what_they_ran_at(own, what, value, tmp_path, capsys):
    """Whatever the search chooses: no empty cell, and the row of the grid is told from those of the search."""
    trace_of(tmp_path).rename(tmp_path / "timed.csv")
    promise = f"[search]\nlargest = '{what}'\nkeep = 'e2e mean <= 2 s'\nresolution = 0.5\nto = 300\n"
    _, rows = sweep(capsys, tmp_path, WHOLE + own + "limit = 60\n[sweep]\nblock-size = [16, 32]\n" + promise)
    grid, rest = ([row for row in rows if row["part"] == part] for part in ("grid", "search"))
    assert [row[what] for row in grid] == [value, value] and len(grid) + len(rest) == len(rows) > 3
    tried = {one["settings"][what] for found in json.loads(Path("out/results.json").read_text())["searches"]
             for one in found["tried"]}
    assert {row[what] for row in rest} == tried
    said = run(capsys, "sweep", "s.toml", "--out", "out", "--jobs", "1", "--no-figures", "--resume")
    assert said.status == 0 and "0 run now" in said.out and read_store("out") == rows


def test_the_smallest_pool_and_the_fewest_gpus_say_what_the_grid_ran_at(tmp_path, capsys):
    text = f"trace = '{trace_of(tmp_path)}'\nmodel = 'Llama-3.1-8B'\ngpu = 'L4'\nmax-model-len = 1024\nlimit = 9\n[search]\n"
    _, rows = sweep(capsys, tmp_path, text + "smallest = 'pool'\nkeep = 'e2e mean <= 9 s'\nresolution = 0.5\n")
    assert rows[0]["part"] == "grid" and rows[0]["num-gpu-blocks-override"] == rows[0]["num_blocks"] > 1024
    (tmp_path / "out").rename(tmp_path / "pool")
    _, rows = sweep(capsys, tmp_path, text + "fewest = 'gpus'\nkeep = 'e2e mean <= 99 s'\n")
    assert [(row["part"], row["tensor-parallel-size"], row["data-parallel-size"]) for row in rows] == [
        ("grid", 1, 1), ("search", 1, 1)]


# ---------------------------------------------------------------------- common random numbers
def test_the_same_seed_draws_the_same_at_every_rate(tmp_path, capsys):
    from experiments.load import load_trace
    from experiments.whatif.options import parse
    trace = lengths(tmp_path, [(40 + i, 30) for i in range(60)])
    (one, two), (other, _) = ([load_trace(_with(parse([f"--rate={rate}", f"--seed={seed}", "--shuffle"]), trace), [])
                               for rate in (1, 2)] for seed in (0, 1))
    assert one.prompt_tokens.tolist() == two.prompt_tokens.tolist() != other.prompt_tokens.tolist()
    assert np.abs(one.arrival_us - 2 * two.arrival_us).max() <= 2       # rounded to a microsecond each


def _with(options, trace):
    options.trace = str(trace)
    return options


def test_differences_are_taken_seed_by_seed(tmp_path, capsys):
    said, rows = sweep(capsys, tmp_path, WHOLE + "limit = 80\nseeds = 4\n[sweep]\nrate = [2, 4]\n", "--json", "-", "-q")
    effect, = (answer["effects"]["concurrency_mean"] for answer in said.json["answers"])
    a, b = ([row["concurrency_mean"] for row in rows if row["rate"] == rate] for rate in (2, 4))
    each = [y - x for x, y in zip(a, b, strict=True)]
    mean = sum(each) / 4
    deviation = (sum((x - mean) ** 2 for x in each) / 3) ** 0.5
    assert effect["difference"]["mean"] == pytest.approx(mean, rel=1e-12)
    assert effect["difference"]["high"] - mean == pytest.approx(3.182446 * deviation / 2, rel=1e-6)     # t of 3 at 97.5 %


def _write(folder, text):
    (folder / "s.toml").write_text(text)
    return "s.toml"


# ---------------------------------------------------------------------- exports
def test_csv_json_parquet_and_store_agree(tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow.parquet", reason="the extra 'parquet' is not installed")
    trace = mooncake(tmp_path, [(i * 1000, 700, 9, [1, i + 2]) for i in range(20)])
    text = f"trace = '{trace}'\nnum-gpu-blocks-override = 400\n[sweep]\nprefix-caching = [true, false]\nblock-size = [16, 32]\n"
    _, rows = sweep(capsys, tmp_path, text, "--parquet")
    table = pyarrow.read_table("out/results.parquet").to_pylist()
    document = json.loads(Path("out/results.json").read_text())["points"]
    with open("out/results.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(rows) == len(table) == len(document) == len(lines) == 4
    for row, other, third, line in zip(rows, table, document, lines, strict=True):
        for name in other:
            assert row[name] == other[name]
            value = row[name]
            assert line[name] == ("" if value is None else repr(value) if isinstance(value, float) else str(value))
            assert third[name] == row[name]
    assert [row["hit_rate"] is None for row in rows] == [False, False, True, True]


def test_pandas_reads_the_store(tmp_path, capsys):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    _, rows = sweep(capsys, tmp_path, WHOLE + "limit = 20\n[sweep]\nrate = [1, 2]\n")
    with sqlite3.connect("out/results.sqlite") as db:
        table = pandas.read_sql("select * from points", db)
    assert table["rate"].tolist() == [1, 2] and table["ttft_p99_s"].tolist() == [row["ttft_p99_s"] for row in rows]


# ---------------------------------------------------------------------- the command
def test_a_dry_run_says_what_would_be_run(tmp_path, capsys):
    (tmp_path / "s.toml").write_text("seeds = 2\n[sweep]\nrate = [1, 2]\nprefix-caching = [true, false]\n")
    said = run(capsys, "sweep", "s.toml", "--dry-run")
    assert said.status == 0 and said.out.splitlines()[0] == "rate 1, enable-prefix-caching on, paged-prefix, seed 0"
    assert said.out.splitlines()[-1] == "8 points" and not Path("s.results").exists()


def test_a_real_trace_the_same_on_one_and_two_processes(tmp_path):
    trace = shared_trace("mooncake/conversation_trace.jsonl")
    (tmp_path / "s.toml").write_text(f"""
trace = "{trace}"
model = "Llama-3.1-8B"
gpu = "H100-80GB"
limit = 60
[sweep]
speed = [1, 2]
kv-cache-dtype = ["auto", "fp8"]
""")
    for jobs in ("1", "2"):
        status, _, err = finish(start(tmp_path / "s.toml", tmp_path / jobs, "--jobs", jobs))
        assert (status, err) == (0, "")
    assert files(tmp_path / "1") == files(tmp_path / "2")


# ---------------------------------------------------------------------- files that options name
def test_files_of_options_lie_beside_the_scenario_and_count(tmp_path, monkeypatch, capsys):
    """A model and a step time of one's own: found beside the scenario, read once, and a change in one is another result."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.toml").write_text("kind = 'constant'\nus = 10000\n")
    (tmp_path / "here" / "config.json").write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64,
        "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}))
    text = "model = 'config.json'\nstep-time = 'mine.toml'\ngpu = 'L4'\npool = 400\nlimit = 20\n"
    (tmp_path / "here" / "s.toml").write_text(text)
    arguments = ("sweep", "here/s.toml", "--out", "out", "--jobs", "1", "--no-figures")
    said = run(capsys, *arguments)
    assert said.status == 0, said.err
    row, = read_store("out")
    assert row["tpot_p50_s"] == 0.01 and row["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    assert direct(capsys, row)["latency_s"]["tpot"]["p50"] == 0.01
    (tmp_path / "here" / "mine.toml").write_text("kind = 'constant'\nus = 10001\n")
    assert "does not have" in run(capsys, *arguments, "--resume").err


def test_replicas_under_a_router_are_swept_from_one_on(tmp_path, capsys):
    text = WHOLE + "limit = 40\nrouter = 'round-robin'\n[sweep]\ndata-parallel-size = [1, 2]\n"
    said, rows = sweep(capsys, tmp_path, text)
    assert [row["status"] for row in rows] == ["done", "done"] and "data-parallel-size 1 -> 2: concurrency " in said.out
    assert "note: one replica: --router round-robin has nothing to choose from" in said.out


def test_where_step_times_come_from_is_said(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text("kind = 'roofline'\nbandwidth_efficiency = 0.7\nflops_efficiency = 0.4\n"
                                        "overhead_us = 900\n[fitted]\nmodel = 'Llama-3.1-8B'\ngpu = 'H100-80GB'\n")
    text = "model = 'Llama-3.1-8B'\ngpu = 'L4'\nmax-model-len = 2048\nlimit = 20\nstep-time = 'mine.toml'\n"
    said, rows = sweep(capsys, tmp_path, text)
    assert f"step time: {rows[0]['step_time']}" in said.out and "mine.toml" in rows[0]["step_time"]
    assert any(line.startswith("note: ") and "H100-80GB" in line for line in said.out.splitlines())


def test_a_baseline_that_does_not_run_is_no_comparison(tmp_path, capsys):
    text = WHOLE.replace("num-gpu-blocks-override = 400\n", "") + "limit = 20\n[sweep]\npool = [9, 400]\n"
    said, _ = sweep(capsys, tmp_path, text, status=1)
    assert "num-gpu-blocks-override 9 -> 400: nothing to compare with: the baseline could not be run" in said.out


def test_what_cannot_be_written_is_said_before_the_work(tmp_path, monkeypatch, capsys):
    (tmp_path / "s.toml").write_text(WHOLE + "limit = 20\n")
    said = run(capsys, "sweep", "s.toml", "--json", "s.toml")
    assert (said.status, said.err) == (2, "pagedsim sweep: error: s.toml: --json would overwrite the scenario\n")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    said = run(capsys, "sweep", "s.toml", "--parquet")
    assert said.status == 2 and said.err.endswith("pip install 'pagedsim[parquet]'\n")
    assert not Path("s.results").exists()
