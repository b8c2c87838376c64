"""`compare --data-parallel-size N --router NAME`: JSON, table, CSV, picture, checks that can fail, one line for what is wrong."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from cli_run import document, mooncake, run, timed

import sim.engine
from experiments.cli import main
from experiments.figures import sums_of_means, time_means
from sim.books import Books
from sim.catalog import ROUTERS
from sim.fleet import fleet
from sim.routing import LEAST_SHARE, MOST_APART, MOST_TIMES, WAITING_WEIGHT
from sim.server import Server

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "replicas.md").read_text(encoding="utf-8")
POOL = ("--num-gpu-blocks-override", 33, "--block-size", 4, "--max-model-len", 32, "--step-time", "constant:10ms")
TWO = ("--data-parallel-size", 2)
KEYS = ["allocator", "window_us", "memory", "concurrency", "requests", "prefix_cache", "sharing", "latency_s", "throughput",
        "makespan_s", "steps"]


@pytest.fixture
def trace(tmp_path):
    """Bursts of eight with three families of prompts, and one that is too long for anybody."""
    rows = [(100 * (i // 8), 9 + i % 9, 3 + i % 7, [i % 3]) for i in range(64)]
    return mooncake(tmp_path, [*rows, (900, 40, 5, [3])])


# ---------------------------------------------------------------------- JSON
def test_one_replica_is_as_before(capsys, trace):
    plain, asked = (document(capsys, trace, *POOL, *flags) for flags in ((), ("-dp", 1)))
    assert plain == asked and not {"data_parallel_size", "router", "gpus"} & set(plain["config"])
    assert [list(one) for one in plain["scenarios"]] == [KEYS] * 5 and not any("replica" in c for c in plain["crosscheck"])


@pytest.mark.parametrize("router", ROUTERS)
def test_totals_under_the_usual_keys_and_each_replica_behind_them(capsys, trace, router):
    found = document(capsys, trace, *POOL, *TWO, "--router", router)
    plain = document(capsys, trace, *POOL)
    assert {k: found["config"][k] for k in ("data_parallel_size", "router", "gpus")} \
        == {"data_parallel_size": 2, "router": router, "gpus": 2}
    assert found["capacity"] == plain["capacity"]      # of a replica
    for one in found["scenarios"]:
        assert list(one) == [*KEYS, "replicas"] and [list(own) for own in one["replicas"]] == [["replica", *KEYS[1:]]] * 2
        assert one["requests"]["rejected"] == {"prompt_not_below_max_model_len": 1} and one["requests"]["arrived"] == 65
        assert sum(own["requests"]["arrived"] for own in one["replicas"]) == one["requests"]["completed"] == 64
        assert {tuple(own["window_us"]) for own in one["replicas"]} == {tuple(one["window_us"])}
        for part, slots in one["memory"]["slot_microseconds"].items():
            assert slots == sum(own["memory"]["slot_microseconds"][part] for own in one["replicas"])
        for name, rate in one["throughput"].items():
            assert rate == pytest.approx(sum(own["throughput"][name] for own in one["replicas"]))
    of_replicas = [c for c in found["crosscheck"] if "replica" in c]
    assert {c["replica"] for c in of_replicas} == {0, 1} and all(c["ok"] for c in found["crosscheck"])
    assert {c["name"] for c in found["crosscheck"]} - {c["name"] for c in plain["crosscheck"]} == {
        "all replicas, running at once (sequence-us) = log", "all replicas, seven parts (slot-us) = pools x window",
        "all replicas, requests admitted = served"}
    assert {c["name"] for c in plain["crosscheck"]} <= {c["name"] for c in found["crosscheck"]}


def test_the_default_router_is_by_load(capsys, trace):
    assert document(capsys, trace, *POOL, *TWO) == document(capsys, trace, *POOL, *TWO, "--router", "least-loaded")


def test_gpus_are_replicas_times_ranks(capsys, tmp_path):
    trace = timed(tmp_path, [(0, 100, 9), (1, 200, 5), (1.5, 90, 4)])
    flags = ("--model", "Llama-3.1-8B", "--gpu", "H100-80GB", "-tp", 2, "-pp", 2, "-dp", 3, "--allocator", "paged")
    assert document(capsys, trace, *flags)["config"]["gpus"] == 12
    said = run(capsys, "compare", trace, *flags, "-q").out
    assert "router  least-loaded before 3 replicas of 4 GPUs each, 12 GPUs; " in said


def test_experts_are_said_to_be_on_their_own(capsys, tmp_path):
    trace = timed(tmp_path, [(0, 100, 9), (1, 200, 5)])
    flags = ("--model", "Mixtral-8x7B", "--gpu", "H200", "--max-model-len", 4096, "--allocator", "paged")
    assert "in step" in str(document(capsys, trace, *flags, *TWO)["config"]["notes"])
    assert "in step" not in str(document(capsys, trace, *flags)["config"]["notes"])


def test_a_router_without_anything_to_go_by_is_said(capsys, tmp_path, trace):
    bare = timed(tmp_path, [(0, 10, 9), (1, 20, 5)])
    for router, words in (("session-affinity", "has no sessions: session-affinity goes by load"),
                          ("prefix-aware", "has no prefix identity: prefix-aware goes by load")):
        assert words in str(document(capsys, bare, *POOL, *TWO, "--router", router)["config"]["notes"])
    assert "by load" not in str(document(capsys, trace, *POOL, *TWO, "--router", "prefix-aware")["config"]["notes"])


# ---------------------------------------------------------------------- for people
def test_one_line_a_replica(capsys, trace):
    flags = (trace, *POOL, *TWO, "--router", "round-robin", "--allocator", "paged", "--allocator", "paged-prefix")
    found, said = document(capsys, *flags), run(capsys, "compare", *flags, "-q").out
    lines = re.findall(r"^(?:paged|paged-prefix| ) +[01] +\d.*$", said, re.MULTILINE)
    for one, pair in zip(found["scenarios"], (lines[:2], lines[2:]), strict=True):
        for own, line in zip(one["replicas"], pair, strict=True):
            hits = own["prefix_cache"]
            assert line.removeprefix(one["allocator"]).replace(" %", "").split() == [
                str(own["replica"]), str(own["requests"]["completed"]), f"{own['concurrency']['mean']:.2f}",
                f"{100 * own['memory']['token_states']:.1f}", "-" if hits is None else f"{100 * hits['hit_rate']:.1f}",
                f"{own['latency_s']['ttft']['p50']:.2f}", str(own["requests"]["preemptions"])]
    assert f"all {len(found['crosscheck'])} cross-checks ok" in said and "those of each replica added up" in said
    assert all(len(line) <= 110 for line in said.splitlines())


def test_no_more_lines_than_a_screen_holds(capsys, trace):
    said = run(capsys, "compare", trace, *POOL, "-dp", 18, "--allocator", "paged", "-q").out
    assert len(re.findall(r"^(?:paged| ) +1?\d +\d +\d\.\d\d .*$", said, re.MULTILINE)) == 16
    assert "the others are in the JSON" in said


def test_the_file_of_requests_says_who_served(capsys, trace, tmp_path):
    flags = (trace, *POOL, "--allocator", "paged", "-q", "--requests")
    assert run(capsys, "compare", *flags, tmp_path / "one.csv").status == 0
    assert run(capsys, "compare", *flags, tmp_path / "two.csv", *TWO, "--router", "round-robin").status == 0
    one, two = (list(csv.DictReader((tmp_path / name).read_text().splitlines())) for name in ("one.csv", "two.csv"))
    assert "replica" not in one[0] and list(two[0]) == [*one[0], "replica"]
    assert [row["replica"] for row in two] == ["0", "1"] * 32 + [""]


def test_a_picture_of_all_pools(capsys, trace, tmp_path):
    assert run(capsys, "compare", trace, *POOL, "-dp", 3, "--plot", tmp_path / "a.svg", "-q").status == 0
    assert run(capsys, "compare", trace, *POOL, "-dp", 3, "--plot", tmp_path / "b.svg", "-q").status == 0
    assert (tmp_path / "a.svg").stat().st_size == (tmp_path / "b.svg").stat().st_size > 10_000


def test_pools_are_drawn_as_one_over_the_same_time():
    one = {"time_us": np.array([0, 10, 30]), "running": np.array([2, 2, 4])}
    late = {"time_us": np.array([20, 40]), "running": np.array([10, 20])}
    edges, means = sums_of_means([one, late])
    assert (edges[0], edges[-1], len(edges)) == (0, 40, 401)
    assert means["running"][0] == 2 + 10               # what is first is so before
    assert means["running"][-1] == pytest.approx(4 + 19.975)
    alone = sums_of_means([one])
    assert alone[1]["running"].tolist() == time_means(one)[1]["running"].tolist()
    assert sums_of_means([one, {name: np.zeros(0, np.int64) for name in one}])[1]["running"].tolist() \
        == alone[1]["running"].tolist()


# ---------------------------------------------------------------------- checks that can fail
def failed(capsys, *arguments):
    said = run(capsys, "compare", *arguments, *POOL, *TWO, "--allocator", "paged", "-q")
    assert said.status == 1 and "FAILED" in said.out
    return sorted(re.sub(r": -?\d+ against -?\d+$", "", line).removeprefix("pagedsim compare: cross-check failed: paged: ")
                  for line in said.err.splitlines())


def test_a_moment_that_is_left_out(capsys, trace, monkeypatch):
    def less(parts, replica, whole, window):
        return fleet(parts, replica, Counter({n: us for n, us in whole.items() if n != max(whole)}), window)
    monkeypatch.setattr(sim.engine, "fleet", less)
    assert failed(capsys, trace) == ["all replicas, running at once (sequence-us) = log"]


def test_idle_time_that_is_forgotten(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(Books, "idle", lambda books, now: None)
    assert failed(capsys, timed(tmp_path, [(0, 9, 4), (1, 9, 4)]), "--router", "round-robin") \
        == ["all replicas, seven parts (slot-us) = pools x window"]


def test_a_request_that_nobody_served(capsys, trace, monkeypatch):
    monkeypatch.setattr(sim.engine, "fleet", lambda parts, replica, *times: fleet(
        parts, np.where(np.arange(len(replica)) == 5, -1, replica), *times))
    assert "all replicas, requests admitted = served" in failed(capsys, trace)


def test_a_wrong_replica_is_named(capsys, trace, monkeypatch):
    opened, right = [], Server.open

    def held_by_nobody(server, now):
        right(server, now)
        opened.append(server)
        if len(opened) == 2:
            server.facts.allocator.pool.ref[-1] += 1
    monkeypatch.setattr(Server, "open", held_by_nobody)
    assert failed(capsys, trace) == ["replica 1: wrong ref counts = 0"]
    opened.clear()
    out = run(capsys, "compare", trace, *POOL, *TWO, "--allocator", "paged", "-q").out
    assert re.search(r"^  paged +replica 1: wrong ref counts = 0 .*FAILED$", out, re.MULTILINE)
    assert re.search(r"^  paged +wrong ref counts = 0 .* ok$", out, re.MULTILINE)              # of replica 0


# ---------------------------------------------------------------------- what is wrong, in one line
@pytest.mark.parametrize(("flags", "words"), [
    (("-dp", 0), "at least 1 is wanted, not 0"), (("-dp", "x"), "a whole number is wanted"), (("-dp", 1025), "too large"),
    (("-dp", 2, "--router", "random"), "invalid choice: 'random'")])
def test_bad_options(capsys, trace, flags, words):
    said = run(capsys, "compare", trace, *POOL, *flags)
    assert said.status == 2 and said.out == "" and said.err.count("\n") == 1 and words in said.err and "Traceback" not in said.err


def test_too_many_for_our_memory_is_one_line(capsys, trace, monkeypatch):
    def none(*_):
        raise MemoryError
    monkeypatch.setitem(sim.engine.ALLOCATORS, "paged", none)
    said = run(capsys, "compare", trace, *POOL, *TWO, "--allocator", "paged", "-q")
    assert said.status == 2 and said.err.count("\n") == 1 and "2 times 33 blocks" in said.err


# ---------------------------------------------------------------------- the same bytes; beside other options
def test_the_same_bytes_under_any_hash_seed(trace, tmp_path):
    made = []
    for seed in ("1", "4711"):
        out = tmp_path / seed
        out.mkdir()
        command = [sys.executable, "-m", "experiments.cli", "compare", str(trace), *map(str, POOL), "-dp", "3", "--router",
                   "prefix-aware", "-q", "--json", str(out / "a.json"), "--requests", str(out / "a.csv")]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True)
        made.append((done.stdout, (out / "a.json").read_bytes(), (out / "a.csv").read_bytes()))
    assert made[0] == made[1]


@pytest.mark.parametrize("flags", [
    ("--saturate",), ("--scheduling-policy", "priority"), ("--async-scheduling",), ("--batching", "static"), ("--samples", 2),
    ("--beam-width", 2), ("--preemption-mode", "swap", "--swap-blocks", 30), ("--watermark", 0.1), ("--think-time", 1)])
@pytest.mark.parametrize("router", ROUTERS)
def test_with_everything_else(capsys, tmp_path, flags, router):
    path = tmp_path / "chat.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens,session\n"
                    + "".join(f"{0.01 * i},{8 + 2 * (i % 6)},{3 + i % 9},{i % 7}\n" for i in range(60)))
    found = document(capsys, path, *POOL, *TWO, "--router", router, *flags)
    assert all(c["ok"] for c in found["crosscheck"])
    assert [one["requests"]["completed"] for one in found["scenarios"]] == [60] * 5
    if router == "session-affinity":
        rows, homes = tmp_path / "r.csv", {}
        assert run(capsys, "compare", path, *POOL, *TWO, "--router", router, *flags, "-q", "--requests", rows).status == 0
        for row in csv.DictReader(rows.read_text().splitlines()):
            homes.setdefault((row["allocator"], int(row["request"]) % 7), set()).add(row["replica"])
        assert {len(home) for home in homes.values()} == {1} and {*map(min, homes.values())} == {"0", "1"}


def test_a_tier_and_a_warm_start(capsys, trace):
    flags = ("--model", "Llama-3.1-8B", "--num-gpu-blocks-override", 65, "--block-size", 4, "--max-model-len", 64,
             "--allocator", "paged-prefix", "--step-time", "constant:10ms", "--host-cache-gib", 0.01, "--warm-trace", trace)
    found = document(capsys, trace, *flags, *TWO, "--router", "prefix-aware")
    config, tier = found["config"], document(capsys, trace, *flags)["config"]["host_cache"]["counts"]["paged-prefix"]
    assert config["warm_start"]["left"]["paged-prefix"]["served"] == 65
    assert config["host_cache"]["counts"]["paged-prefix"]["host_blocks"] == 2 * tier["host_blocks"]
    assert "paged-prefix began warm: 65 earlier requests served, " in str(config["notes"])


# ---------------------------------------------------------------------- docs/replicas.md
def test_the_page_says_what_comes_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recipe, = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    Path("chat.toml").write_text(recipe)
    commands = re.findall(r"^\$ pagedsim (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert main([*shlex.split(command, comments=True), "-q"]) == 0, command
    capsys.readouterr()
    rows = re.findall(r"^\| (\d) \| (\S+) \| ([\d.]+) % \| ([\d.]+) s \| ([\d.]+) s \|$", PAGE, re.MULTILINE)
    assert [(n, router) for n, router, *_ in rows] == [("1", "-")] + [(n, router) for n in "24" for router in ROUTERS]
    for n, router, hits, ttft, slowest in rows:
        flags = () if n == "1" else ("-dp", n, "--router", router)
        one, = document(capsys, "chat.csv", *shlex.split(commands[1].split("chat.csv ")[1].split(" -dp")[0]), *flags)["scenarios"]
        first, share = one["latency_s"]["ttft"], one["prefix_cache"]["hit_rate"]
        assert (hits, ttft, slowest) == (f"{100 * share:.1f}", f"{first['mean']:.2f}", f"{first['p99']:.2f}")


def test_the_page_names_every_router_and_the_numbers_of_the_rule():
    for words in (*ROUTERS, "over 0.3 of", "over 64 requests more", "over 1.5\ntimes", "waiting x 4 + running"):
        assert words in PAGE
    assert (LEAST_SHARE, MOST_APART, MOST_TIMES, WAITING_WEIGHT) == ((3, 10), 64, (3, 2), 4)


def test_a_router_before_one_replica_has_nothing_to_choose_and_says_so(capsys, trace):
    plain, routed = (run(capsys, "compare", trace, *POOL, "--allocator", "paged", *more, "--json", "-") for more in
                     ((), ("--router", "prefix-aware")))
    assert (plain.json["scenarios"], routed.status) == (routed.json["scenarios"], 0)
    assert "note: one replica: --router prefix-aware has nothing to choose from" in routed.err
