"""`pagedsim compare`: the JSON to the letter, its sums, the table of requests, the cuts, and the same bytes every time."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys

import pytest
from cli_run import document, lengths, mooncake, run, shared_trace, timed

import experiments.output
from experiments.cli import main
from experiments.version import VERSION
from sim.catalog import DEFAULT

PARTS = ["token_states", "reserved", "internal", "cached", "external", "remainder", "idle"]
TOP = ["schema", "pagedsim", "trace", "config", "capacity", "scenarios", "crosscheck"]
KEYS = {
    "trace": ["source", "requests", "dropped", "prompt_tokens", "output_tokens", "duration_s"],
    "capacity": ["kv_bytes_per_token", "block_size", "num_blocks", "usable_slots", "kv_tokens", "max_model_len",
                 "max_concurrency"],
}
SCENARIO = ["allocator", "window_us", "memory", "concurrency", "requests", "prefix_cache", "sharing", "latency_s", "throughput",
            "makespan_s", "steps"]
INSIDE = {
    "memory": [*PARTS, "useful_of_allocated", "largest_hole_mean", "slot_microseconds"],
    "concurrency": ["mean", "p50", "p99", "peak"],
    "requests": ["arrived", "completed", "unfinished", "rejected", "truncated", "preemptions"],
    "latency_s": ["queue", "ttft", "tpot", "e2e"],
    "throughput": ["requests_per_s", "output_tokens_per_s", "total_tokens_per_s"],
}
PREFIX = ["query_tokens", "hit_tokens", "hit_rate", "query_blocks", "hit_blocks", "hit_tokens_by_origin", "resume_query_tokens",
          "resume_hit_tokens", "evicted_blocks"]
SHARING = ["logical_slot_microseconds", "physical_slot_microseconds", "saved_share", "copies"]
SPREAD = ["mean", "p50", "p90", "p99"]
CHECK = ["name", "scenario", "simulated", "analytic", "exact", "ok"]
POOL = ("--num-gpu-blocks-override", 120, "--block-size", 4, "--step-time", "constant:10ms")


@pytest.fixture(scope="module")
def traffic(tmp_path_factory):
    """Eighty requests with three different prompts, four of them too long, in a pool that is too small for all of them."""
    rows = [(40 * i, 400, 4, [99]) if i % 20 == 19 else (40 * i, 60 + 13 * (i % 3), 4 + i % 11, [i % 3]) for i in range(80)]
    return mooncake(tmp_path_factory.mktemp("traffic"), rows)


@pytest.fixture(scope="module", params=[(), ("--saturate",)], ids=["arriving", "saturated"])
def result(request, traffic, tmp_path_factory):
    path = tmp_path_factory.mktemp("result") / "result.json"
    options = [*map(str, POOL), "--max-model-len", "200", "--json", str(path), "-q", *request.param]
    assert main(["compare", str(traffic), *options]) == 0
    return json.loads(path.read_text())


# ---------------------------------------------------------------------- the contract's object
def test_keys_are_the_contracts_in_order(result):
    assert list(result) == TOP
    assert (result["schema"], result["pagedsim"]) == (1, VERSION)
    for name, keys in KEYS.items():
        assert list(result[name]) == keys
    for s in result["scenarios"]:
        assert list(s) == SCENARIO
        for name, keys in INSIDE.items():
            assert list(s[name]) == keys
        assert list(s["memory"]["slot_microseconds"]) == [*PARTS, "capacity"]
        assert all(list(s["latency_s"][name]) == SPREAD for name in INSIDE["latency_s"])
    for check in result["crosscheck"]:
        assert list(check) == CHECK
        assert check["ok"] is True
        assert check["simulated"] == check["analytic"] if check["exact"] else check["simulated"] <= check["analytic"]


def test_what_does_not_apply_is_null(result):
    for s in result["scenarios"]:
        contiguous, cached = s["allocator"].startswith("contiguous"), s["allocator"] == "paged-prefix"
        assert (s["prefix_cache"] is None) is not cached
        assert (s["sharing"] is None) is contiguous
        assert (s["memory"]["largest_hole_mean"] is None) is not contiguous
        if cached:
            assert list(s["prefix_cache"]) == PREFIX
            assert list(s["prefix_cache"]["hit_tokens_by_origin"]) == ["other_request", "same_session", "own_after_preemption"]
        if s["sharing"]:
            assert list(s["sharing"]) == SHARING


def test_every_slot_microsecond_is_in_one_part(result):
    slots = result["capacity"]["usable_slots"]
    assert slots == (result["capacity"]["num_blocks"] - 1) * result["capacity"]["block_size"]
    for s in result["scenarios"]:
        exact, (start, end) = s["memory"]["slot_microseconds"], s["window_us"]
        assert all(type(n) is int for n in (*exact.values(), start, end))
        assert sum(exact[part] for part in PARTS) == exact["capacity"] == slots * (end - start)
        assert sum(s["memory"][part] for part in PARTS) == pytest.approx(1, abs=1e-12)
        assert all(s["memory"][part] == exact[part] / exact["capacity"] for part in PARTS)
        allocated = sum(exact[part] for part in PARTS[:3])
        assert s["memory"]["useful_of_allocated"] == exact["token_states"] / allocated


def test_requests_are_all_accounted_for(result):
    assert result["trace"]["requests"] == 80
    for s in result["scenarios"]:
        requests = s["requests"]
        assert requests["arrived"] == 80
        assert requests["completed"] + requests["unfinished"] + sum(requests["rejected"].values()) == 80
        assert requests["unfinished"] == 0
        assert requests["rejected"]["prompt_not_below_max_model_len"] == 4


def test_windows(result):
    """Under saturation it closes when the queue is empty, before the run ends; else it is the whole run."""
    for s in result["scenarios"]:
        start, end = s["window_us"]
        assert start == 0
        assert (end / 1e6 < s["makespan_s"]) if result["config"]["saturate"] else (end / 1e6 == s["makespan_s"])


def test_a_long_pause_before_the_first_arrival_opens_no_window(capsys, tmp_path):
    trace = timed(tmp_path, [(0, 40, 2), (50, 5, 3)])               # the first one is too long
    for s in document(capsys, trace, *POOL, "--max-model-len", 20)["scenarios"]:
        assert s["window_us"] == [50_000_000, 50_030_000]
        assert s["makespan_s"] == 0.03


def test_scenarios_come_in_the_order_asked(capsys, traffic):
    asked = ["paged-prefix", "contiguous-oracle", "paged"]
    flags = [word for name in asked for word in ("--allocator", name)]
    found = document(capsys, traffic, *POOL, *flags, "--allocator", "paged")
    assert [s["allocator"] for s in found["scenarios"]] == asked
    assert list(dict.fromkeys(c["scenario"] for c in found["crosscheck"])) == asked
    assert [s["allocator"] for s in document(capsys, traffic, *POOL)["scenarios"]] == list(DEFAULT)
    without = document(capsys, traffic, *POOL, "--no-enable-prefix-caching")
    assert [s["allocator"] for s in without["scenarios"]] == [name for name in DEFAULT if name != "paged-prefix"]


def test_config_says_what_was_assumed(capsys, tmp_path):
    found = document(capsys, lengths(tmp_path, [(20, 5)]))
    assert (found["config"]["model"], found["capacity"]["kv_bytes_per_token"]) == ("meta-llama/Llama-2-13b", 819_200)
    notes = " / ".join(found["config"]["notes"])
    for words in ("no --model", "no --gpu", "no arrival times", "no prefix identity"):
        assert words in notes
    found = document(capsys, lengths(tmp_path, [(20, 5)]), *POOL)
    assert (found["config"]["model"], found["capacity"]["kv_bytes_per_token"]) == (None, None)


# ---------------------------------------------------------------------- the same bytes
@pytest.mark.parametrize("outputs", [("--json", "--requests"), ("--plot", "--allocator", "paged")], ids=["numbers", "picture"])
def test_two_processes_with_other_hash_seeds_give_the_same_bytes(traffic, tmp_path, outputs):
    made = []
    for seed in ("0", "12345"):
        files = {flag: tmp_path / f"{seed}{flag}.svg" for flag in outputs if flag in ("--json", "--requests", "--plot")}
        words = [word for flag in outputs for word in ((flag, str(files[flag])) if flag in files else (flag,))]
        command = [sys.executable, "-m", "experiments.cli", "compare", str(traffic), *map(str, POOL), "--shuffle", "--saturate"]
        done = subprocess.run([*command, "-q", *words], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True,
                              check=True, timeout=100)
        made.append([done.stdout, done.stderr, *(path.read_bytes() for path in files.values())])
    assert made[0] == made[1]
    assert made[0][1] == b""


def test_the_seed_decides(capsys, tmp_path):
    trace = lengths(tmp_path, [(10 + i, 3 + i % 5) for i in range(30)])
    first, again, other = (document(capsys, trace, *POOL, "--seed", seed) for seed in (1, 1, 2))
    assert first == again
    assert first["trace"]["duration_s"] != other["trace"]["duration_s"]


# ---------------------------------------------------------------------- where the result goes
def test_json_to_stdout_is_alone_there(capsys, traffic, tmp_path):
    said = run(capsys, "compare", traffic, *POOL, "--allocator", "paged", "--json", "-", "--plot", tmp_path / "p.png",
               "--requests", tmp_path / "r.csv")
    assert said.status == 0
    assert said.out == json.dumps(json.loads(said.out), indent=1) + "\n"
    assert {path.name for path in tmp_path.iterdir()} == {"p.png", "r.csv"}


def test_json_to_a_file_leaves_the_table_on_stdout(capsys, traffic, tmp_path):
    path = tmp_path / "result.json"
    path.write_text("an older one")
    said = run(capsys, "compare", traffic, *POOL, "--json", path, "-q")
    assert json.loads(path.read_text()) == document(capsys, traffic, *POOL)
    assert "Cross-checks" in said.out
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("trouble", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "interrupted"])
def test_a_file_is_written_whole_or_not_at_all(capsys, traffic, tmp_path, monkeypatch, trouble):
    path = tmp_path / "result.json"
    path.write_text("an older one")

    def fail(*_):
        raise trouble

    monkeypatch.setattr(experiments.output.os, "replace", fail)
    said = run(capsys, "compare", traffic, *POOL, "--json", path, "-q")
    assert said.status == (2 if isinstance(trouble, OSError) else 130)
    assert said.out == ""
    assert path.read_text() == "an older one"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_link_is_followed(capsys, traffic, tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    assert run(capsys, "compare", traffic, *POOL, "--json", tmp_path / "link.json", "-q").status == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "target.json").read_text())["schema"] == 1


# ---------------------------------------------------------------------- the table a person reads
def test_the_report_fits_and_no_cell_is_broken(capsys, traffic):
    said = run(capsys, "compare", traffic, *POOL, "--max-model-len", 200, "-q")
    lines = said.out.splitlines()
    assert max(map(len, lines)) <= 118
    table = lines[next(i for i, line in enumerate(lines) if "contiguous" in line):]
    assert table[0].split() == ["contiguous"] * 3 + ["paged"]
    assert table[1].split() == ["max", "pow2", "oracle", "paged", "prefix"]
    assert max(len(line.rstrip()) for line in table[:40]) <= 100
    for label in ("token states (useful)", "internal fragmentation", "largest hole, mean (slots)", "waiting, mean (s)",
                  "per output token, mean (ms)", "completed", "preemptions", "hit rate, first admissions"):
        row = next(line for line in table if line.startswith(f"  {label}"))
        assert len(row.removeprefix(f"  {label}").replace(" %", "%").split()) == 5, row
    assert "4 of 80 requests rejected at arrival: prompt not below max_model_len" in said.out
    assert "all 20 cross-checks ok" in said.out


def test_checks_are_one_line_each(capsys, traffic):
    said = run(capsys, "compare", traffic, *POOL, "-q")
    found = document(capsys, traffic, *POOL)["crosscheck"]
    lines = said.out[said.out.index("Cross-checks"):].splitlines()[1:-1]
    assert len(lines) == len(found)
    for line, check in zip(lines, found, strict=True):
        sign = "=" if check["exact"] else "<="
        numbers = [f"{check['simulated']:,}", sign, f"{check['analytic']:,}"]
        assert line.split() == [check["scenario"], *check["name"].split(), *numbers, "ok"]


def test_markup_in_a_file_name_is_text(capsys, tmp_path):
    trace = lengths(tmp_path, [(20, 5)], "[bold]a[red].csv")
    assert f"trace   {trace} (csv)\n" in run(capsys, "compare", trace, *POOL, "-q").out


# ---------------------------------------------------------------------- one row a request and allocator
def test_requests_by_hand(capsys, tmp_path):
    """Steps of a second, 20 slots. Paged: a (5 + 3) runs from 0 to 3, b (6 + 1, at 0.5) joins at 1 and leaves at 2.

    `contiguous-max` reserves 12, rounded to 16: b waits for a and runs from 3 to 4.
    """
    trace, rows = timed(tmp_path, [("0", 5, 3), ("0.5", 6, 1)]), tmp_path / "rows.csv"
    assert run(capsys, "compare", trace, "--num-gpu-blocks-override", 6, "--block-size", 4, "--max-model-len", 12, "--step-time",
               "constant:1s", "--allocator", "paged", "--allocator", "contiguous-max", "--requests", rows, "-q").status == 0
    assert rows.read_text() == (
        "allocator,request,status,prompt_tokens,output_tokens,generated_tokens,arrival_s,queue_s,ttft_s,tpot_s,e2e_s,residence_s,hit_tokens,preemptions\n"
        "paged,0,completed,5,3,3,0.0,0.0,1.0,1.0,3.0,3.0,0,0\n"
        "paged,1,completed,6,1,1,0.5,0.5,1.5,,1.5,1.0,0,0\n"
        "contiguous-max,0,completed,5,3,3,0.0,0.0,1.0,1.0,3.0,3.0,0,0\n"
        "contiguous-max,1,completed,6,1,1,0.5,2.5,3.5,,3.5,1.0,0,0\n")


def test_preemption_hits_and_refusals_by_hand(capsys, tmp_path):
    """Three blocks of 4, one request a step later: each holds 4 prompt tokens and would fill 9 slots.

    Steps: 0 both prompts (2 blocks); 1 a takes the third block, b is preempted (4 states lost) and waits until a has
    left after its 6th step; resumed, b recomputes 5 tokens and leaves after 5 steps more. c can never be served.
    """
    trace, rows = timed(tmp_path, [(0, 4, 6), (0, 4, 6), (0, 30, 1)]), tmp_path / "rows.csv"
    assert run(capsys, "compare", trace, "--num-gpu-blocks-override", 4, "--block-size", 4, "--max-model-len", 12, "--step-time",
               "constant:1s", "--allocator", "paged", "--allocator", "paged-prefix", "--requests", rows, "-q").status == 0
    with rows.open() as file:
        plain, cached = [], []
        for row in csv.DictReader(file):
            (plain if row["allocator"] == "paged" else cached).append(row)
    assert [r["status"] for r in plain] == ["completed", "completed", "prompt_not_below_max_model_len"]
    assert [(r["ttft_s"], r["e2e_s"], r["residence_s"], r["preemptions"]) for r in plain[:2]] == [
        ("1.0", "6.0", "6.0", "0"), ("1.0", "11.0", "6.0", "1")]
    assert [plain[2][name] for name in ("queue_s", "ttft_s", "tpot_s", "e2e_s", "residence_s")] == ["", "", "", "", "0.0"]
    assert [r["hit_tokens"] for r in cached] == ["0", "0", "0"]      # hits of first admissions only
    assert cached[1]["preemptions"] == "1"


def test_requests_agree_with_the_json(capsys, traffic, tmp_path):
    path = tmp_path / "rows.csv"
    said = run(capsys, "compare", traffic, *POOL, "--max-model-len", 200, "--requests", path, "--json", "-", "-q")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 80
    for s in said.json["scenarios"]:
        mine = [r for r in rows if r["allocator"] == s["allocator"]]
        assert [int(r["request"]) for r in mine] == list(range(80))
        done = [r for r in mine if r["status"] == "completed"]
        assert len(done) == s["requests"]["completed"]
        assert sum(int(r["preemptions"]) for r in mine) == s["requests"]["preemptions"]
        assert sum(float(r["e2e_s"]) for r in done) / len(done) == pytest.approx(s["latency_s"]["e2e"]["mean"])
        running = sum(float(r["residence_s"]) for r in mine) / s["makespan_s"]
        assert running == pytest.approx(s["concurrency"]["mean"])
        if s["prefix_cache"]:
            assert sum(int(r["hit_tokens"]) for r in mine) == s["prefix_cache"]["hit_tokens"] > 0


# ---------------------------------------------------------------------- cuts and arrivals
def cut(capsys, tmp_path, trace, *arguments):
    path = tmp_path / "rows.csv"
    found = run(capsys, "compare", trace, "--num-gpu-blocks-override", 200, "--allocator", "paged", *arguments,
                "--requests", path, "--json", "-", "-q")
    assert (found.status, found.err) == (0, "")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return found.json["trace"], [int(r["prompt_tokens"]) for r in rows], [float(r["arrival_s"]) for r in rows]


def test_limit(capsys, tmp_path):
    trace = timed(tmp_path, [(i, 10 + i, 5) for i in range(9)])
    about, prompts, arrivals = cut(capsys, tmp_path, trace, "--limit", 4)
    assert (about["requests"], about["dropped"], about["prompt_tokens"], about["output_tokens"]) == (4, {}, 46, 20)
    assert (prompts, arrivals, about["duration_s"]) == ([10, 11, 12, 13], [0, 1, 2, 3], 3)
    assert cut(capsys, tmp_path, trace, "--limit", 99)[0]["requests"] == 9


def test_max_total_tokens_is_counted_and_goes_before_the_limit(capsys, tmp_path):
    trace = timed(tmp_path, [(i, 10 + i, 5) for i in range(9)])
    about, prompts, _ = cut(capsys, tmp_path, trace, "--max-total-tokens", 17)
    assert (about["dropped"], prompts) == ({"over_max_total_tokens": 6}, [10, 11, 12])
    about, prompts, _ = cut(capsys, tmp_path, trace, "--max-total-tokens", 17, "--limit", 2)
    assert (about["requests"], about["dropped"], prompts) == (2, {"over_max_total_tokens": 6}, [10, 11])
    said = run(capsys, "compare", trace, *POOL, "--max-total-tokens", 17)
    assert "6 more requests dropped: over --max-total-tokens" in said.out


def test_what_the_reader_drops_is_counted_and_said(capsys, tmp_path):
    trace = lengths(tmp_path, [(10, 0), (0, 5), (10, 5), (12, 0)])
    about, prompts, _ = cut(capsys, tmp_path, trace)
    assert (about["dropped"], prompts) == ({"zero_prompt": 1, "zero_output": 2}, [10])
    said = run(capsys, "compare", trace, *POOL)
    assert "2 more requests dropped: no output tokens" in said.out


def test_shuffle_moves_requests_and_not_times(capsys, tmp_path):
    trace = timed(tmp_path, [(i * i, 10 + i, 5) for i in range(20)])
    _, straight, times = cut(capsys, tmp_path, trace)
    _, mixed, same_times = cut(capsys, tmp_path, trace, "--shuffle")
    assert times == same_times == [i * i for i in range(20)]
    assert sorted(mixed) == straight != mixed
    assert cut(capsys, tmp_path, trace, "--shuffle")[1] == mixed
    assert cut(capsys, tmp_path, trace, "--shuffle", "--seed", 5)[1] != mixed
    assert cut(capsys, tmp_path, trace, "--shuffle", "--limit", 3)[1] == mixed[:3]


def test_rate_gives_times_where_there_are_none(capsys, tmp_path):
    trace = lengths(tmp_path, [(10, 5)] * 400)
    spans = [cut(capsys, tmp_path, trace, "--rate", rate)[0]["duration_s"] for rate in (5, 10)]
    assert spans[0] == pytest.approx(2 * spans[1], rel=1e-6)
    assert 60 < spans[0] < 100                                       # 399 gaps of 0.2 s
    about, _, arrivals = cut(capsys, tmp_path, trace)
    assert about["duration_s"] == pytest.approx(2.5 * spans[0], rel=1e-6)      # two a second unless asked
    assert arrivals[0] == 0
    assert arrivals == sorted(arrivals)


def test_saturate_puts_everybody_at_time_zero(capsys, tmp_path):
    trace = timed(tmp_path, [(i, 10 + i, 5) for i in range(9)])
    about, _, arrivals = cut(capsys, tmp_path, trace, "--saturate")
    assert (about["duration_s"], set(arrivals)) == (0, {0.0})
    said = run(capsys, "compare", trace, *POOL, "--saturate")
    assert "arriving all at once" in said.out
    assert "max_num_seqs unlimited, max_num_batched_tokens unlimited" in said.out


def test_truncation_is_counted_for_all_alike_and_said(capsys, tmp_path):
    trace = timed(tmp_path, [(0, 10, 50), (1, 10, 6), (2, 10, 7)])
    found = document(capsys, trace, *POOL, "--max-model-len", 16)
    assert {s["requests"]["truncated"] for s in found["scenarios"]} == {2}
    assert "2 of 3 requests truncated" in run(capsys, "compare", trace, *POOL, "--max-model-len", 16).out


# ---------------------------------------------------------------------- published traces
def test_the_papers_set_runs_seven_at_once(capsys):
    """A part of it, for the time; the whole set is `reproduce`'s business."""
    trace = shared_trace("vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz")
    found = document(capsys, trace, "--max-total-tokens", 2048, "--model", "opt-13b", "--num-gpu-blocks-override", 984,
                     "--max-model-len", 2048, "--shuffle", "--saturate", "--limit", 300, "--allocator", "contiguous-max")
    scenario = found["scenarios"][0]
    assert scenario["concurrency"] == {"mean": 7.0, "p50": 7, "p99": 7, "peak": 7}
    assert found["trace"]["dropped"]["over_max_total_tokens"] > 0


@pytest.mark.parametrize(("name", "options"), [
    ("azure-2023/AzureLLMInferenceTrace_conv.csv", ["--model", "Llama-2-13b", "--gpu", "A100-40GB"]),
    ("mooncake/conversation_trace.jsonl", ["--model", "Llama-3.1-8B", "--gpu", "H100-80GB"]),
])
def test_the_beginning_of_real_traffic(capsys, name, options):
    found = document(capsys, shared_trace(name), *options, "--limit", 150)
    assert all(check["ok"] for check in found["crosscheck"])
    assert len(found["scenarios"]) == 5


def test_averages_behind_a_warm_up(tmp_path, capsys):
    # Every 10 s a request of 1 s (prompt 4, output 10, steps of 100 ms); two at once at 0 and at 50 s on a server for one.
    trace = timed(tmp_path, [(0, 4, 10), (0, 4, 10), *((10 * i, 4, 10) for i in range(1, 10)), (50, 4, 10)])
    words = ("compare", trace, "--step-time", "constant:100ms", "--max-num-seqs", 1, "--num-gpu-blocks-override", 40, "-q")
    said = run(capsys, *words, "--warm-up", "40%", "--allocator", "paged", "--json", "-")
    one, = said.json["scenarios"]
    measured = one["measured"]
    assert [measured[name] for name in ("warm_up", "warmup_requests", "measured_requests", "window_s")] == ["40%", 5, 7, 54.0]
    assert (measured["queue_mean_s"], one["latency_s"]["queue"]["mean"]) == (1 / 7, 2 / 12)
    text = run(capsys, *words, "--warm-up", "40%", "--allocator", "paged").out
    shown = [re.split(r" {2,}", line.strip())[0] for line in text.splitlines()]
    assert "running at once, mean (sequences)" in shown and "waiting at once, mean (requests)" in shown
    assert [shown.count(label) for label in ("waiting, mean (s)", "waiting, mean", "running, mean")] == [1, 0, 0]
    assert "behind a warm-up of 40%" in text and "warning paged: 7 requests measured" in text
    plain = run(capsys, *words, "--allocator", "paged", "--json", "-").json
    del one["measured"]
    assert plain["scenarios"] == [one]


def test_a_warm_up_that_is_none(capsys):
    said = run(capsys, "compare", "--warm-up", "soon")
    assert said.status == 2 and said.err.count("\n") == 1 and "argument --warm-up: the warm-up is mser5, none, a time" in said.err


def test_no_share_rounds_to_nothing_or_all(tmp_path, capsys):
    words = ("--num-gpu-blocks-override", 40_000, "--allocator", "paged", "--max-model-len", 64)
    said = run(capsys, "compare", lengths(tmp_path, [(20, 5)]), *words).out
    rows = dict(row for line in said.splitlines() if len(row := re.split(r" {2,}", line.strip())) == 2)
    assert rows["token states (useful)"] == "< 0.1 %" and rows["cached, free to take"] == "0.0 %"
    assert rows["idle, nobody refused"] == "> 99.9 %"
