"""`pagedsim prefix` on traces small enough to work out every number; what it says, what it refuses, its page and its picture."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from cli_run import lengths, mooncake, run, shared_trace
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, config_of, trace_of

from experiments.cli import main
from experiments.prefix_caching.curves import goals, view
from experiments.prefix_caching.money import Prices, hit_tokens, money
from experiments.prefix_caching.policies import MOST_ACCESSES, default_sizes, replayed_stream
from experiments.prefix_caching.serving import _Follow, facts
from experiments.prefix_caching.text import LEGEND
from sim.catalog import EVICTION
from sim.engine import Engine
from sim.run import Observer

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "prefix-caching.md"
KEYS = ["schema", "trace", "block_size", "accesses", "unique_blocks", "endless", "lru", "policies", "serving"]
POOL = ("--block-size", 512, "--num-gpu-blocks-override", 11)
ORIGINS = ("other_request", "same_session", "own_after_preemption")


@pytest.fixture
def three(tmp_path):
    """Blocks of 512: a b | a c | a b and 76 tokens more, a second apart."""
    return mooncake(tmp_path, [(0, 1024, 1, [1, 2]), (1000, 1024, 1, [1, 3]), (2000, 1100, 1, [1, 2, 4])])


def found(capsys, *arguments):
    """The JSON of `prefix`, which must end well and say nothing else."""
    said = run(capsys, "prefix", *arguments, "--json", "-", "-q")
    assert (said.status, said.err) == (0, "")
    return said.json


def column(rows, name="hit_rate_blocks"):
    return [row[name] for row in rows]


# ---------------------------------------------------------------------- every number by hand
def test_the_cache_view(capsys, three):
    document = found(capsys, three, *POOL, "--no-serving")
    assert list(document)[:len(KEYS)] == KEYS
    assert (document["schema"], document["block_size"], document["accesses"], document["unique_blocks"]) == (1, 512, 6, 3)
    assert document["trace"] == {"source": str(three), "requests": 3, "dropped": {}, "prompt_tokens": 3148, "output_tokens": 3,
                                 "duration_s": 2.0}
    assert list(document["endless"])[:2] == ["hit_rate_tokens", "hit_rate_blocks"]
    assert document["endless"] == {"hit_rate_tokens": 1536 / 3148, "hit_rate_blocks": 3 / 6, "query_tokens": 3148,
                                   "hit_tokens": 1536, "query_blocks": 6, "hit_blocks": 3,
                                   "last_token_rule": {"hit_tokens": 1536, "hit_rate_tokens": 1536 / 3148}}
    # between two uses of a: one other block; of b: a and c
    assert document["lru"] == [
        {"blocks": blocks, "gib": None, "hit_rate_blocks": hits / 6, "hit_rate_tokens": 512 * hits / 3148}
        for blocks, hits in ((1, 0), (2, 2), (3, 3))]
    # tail first: b leaves before a, then c before a; so one block keeps a
    assert column(document["vllm_curve"]) == [2 / 6, 2 / 6, 3 / 6]
    assert document["today"] == {"blocks": 10, "gib": None, "lru": {"hit_rate_blocks": 0.5, "hit_rate_tokens": 1536 / 3148},
                                 "vllm": {"hit_rate_blocks": 0.5, "hit_rate_tokens": 1536 / 3148}}
    assert document["reuse"] == {"lookups": 6, "first_uses": 3, "histogram": [
        {"least": 0, "most": 0, "lookups": 0}, {"least": 1, "most": 1, "lookups": 2}, {"least": 2, "most": 3, "lookups": 1}]}
    assert document["serving"] is None


def test_policies_at_sizes_that_were_asked_for(capsys, three):
    sizes = [word for n in (3, 1, 2) for word in ("--pool-blocks", n)]
    document = found(capsys, three, *POOL, "--no-serving", *sizes)
    assert list(document["policies"]) == list(EVICTION)
    hits = {name: column(rows, "hit_blocks") for name, rows in document["policies"].items()}
    assert {name: hits[name] for name in ("vllm", "lru", "fifo", "belady")} == {
        "vllm": [2, 2, 3], "lru": [0, 2, 3], "fifo": [0, 1, 3], "belady": [2, 3, 3]}
    assert document["policies"]["fifo"][1] == {
        "blocks": 2, "gib": None, "hit_rate_blocks": 1 / 6, "hit_rate_tokens": 512 / 3148, "replayed_blocks": 2,
        "query_blocks": 6, "hit_blocks": 1, "found_blocks": 1}
    some = found(capsys, three, *POOL, "--no-serving", "--policy", "belady", "--policy", "fifo", "--policy", "belady")
    assert list(some["policies"]) == ["belady", "fifo"]


def test_larger_blocks_are_replayed_in_the_same_bytes(capsys, three):
    document = found(capsys, three, "--num-gpu-blocks-override", 200, "--no-serving", "--policy-block-size", 512,
                     *(word for n in (33, 64, 96) for word in ("--pool-blocks", n)))
    assert (document["block_size"], document["policy_block_size"]) == (16, 512)
    rows = document["policies"]["vllm"]
    assert (column(rows, "blocks"), column(rows, "replayed_blocks")) == ([33, 64, 96], [1, 2, 3])
    assert (column(rows, "hit_blocks"), column(rows, "hit_rate_tokens")) == ([2, 2, 3], [1024 / 3148, 1024 / 3148, 1536 / 3148])
    said = run(capsys, "prefix", three, "--num-gpu-blocks-override", 200, "--no-serving", "--policy-block-size", 512)
    assert "replayed with blocks of 512 tokens, the curves have 16" in said.out


def test_ids_as_blocks(capsys, three):
    document = found(capsys, three, "--convention", "ceil", "--num-gpu-blocks-override", 200, "--no-serving")
    assert (document["block_size"], document["accesses"], document["unique_blocks"]) == (512, 7, 4)
    assert document["endless"]["hit_rate_blocks"] == 3 / 7 and document["endless"]["last_token_rule"] is None
    assert document["lru"][-1]["hit_rate_tokens"] == document["endless"]["hit_rate_tokens"] == 1536 / 3148
    assert document["today"]["blocks"] == 199 * 16 // 512
    assert {row["hit_rate_tokens"] for row in document["policies"]["lru"]} == {None}


def test_a_partial_id_stands_for_its_tokens(tmp_path, capsys):
    twice = mooncake(tmp_path, [(0, 600, 1, [1, 2]), (1000, 600, 1, [1, 2])])
    document = found(capsys, twice, "--convention", "ceil", "--num-gpu-blocks-override", 200, "--no-serving")
    assert column(document["lru"], "hit_rate_tokens") == [0.0, 600 / 1200]
    assert column(document["vllm_curve"], "hit_rate_tokens") == [512 / 1200, 600 / 1200]


def test_the_serving_view(capsys, three):
    served = found(capsys, three, *POOL)["serving"]
    assert (served["block_size"], served["without"]["allocator"], served["with"]["allocator"]) == (512, "paged", "paged-prefix")
    assert served["with"]["first_admissions"] == {
        "query_tokens": 3148, "hit_tokens": 1536, "hit_rate_tokens": 1536 / 3148, "query_blocks": 6, "hit_blocks": 3,
        "hit_rate_blocks": 0.5, "hit_tokens_by_origin": dict(zip(ORIGINS, (1536, 0, 0), strict=True))}
    assert served["with"]["resumes"] == {"admissions": 0, "query_tokens": 0, "hit_tokens": 0, "hit_rate_tokens": 0.0,
                                         "hit_tokens_by_origin": dict.fromkeys(ORIGINS, 0)}
    prefill = {"prompts": 3148, "lost_by_preemption": 0, "found_first": 1536, "found_by_resumes": 0, "computed": 1612}
    assert served["with"]["prefill_tokens"] == prefill
    assert served["without"]["prefill_tokens"] == {**prefill, "found_first": 0, "computed": 3148}
    assert served["without"]["first_admissions"] is served["without"]["resumes"] is None
    assert served["with"]["latency_s"]["ttft"]["p50"] == 0.02
    assert [pool["blocks"] for pool in served["pools"]] == [10, 20, 40]
    assert {pool["first_admissions"]["hit_tokens"] for pool in served["pools"]} == {1536}


def test_turns_of_a_session_are_told_from_other_requests(capsys, tmp_path):
    path = tmp_path / "turns.jsonl"
    rows = [("a", 0, [1]), ("a", 1000, [1]), ("b", 2000, [1])]
    path.write_text("".join(json.dumps({"timestamp": t, "input_length": 513, "output_length": 1, "hash_ids": [*ids, 9 + t],
                                        "session_id": name}) + "\n" for name, t, ids in rows))
    origins = found(capsys, path, *POOL)["serving"]["with"]["first_admissions"]["hit_tokens_by_origin"]
    assert origins == {"other_request": 512, "same_session": 512, "own_after_preemption": 0}


def test_the_money(capsys, three):
    worth = found(capsys, three, *POOL, "--no-serving")["money"]
    assert worth["requests_per_day"] == 1.5 * 86_400
    assert worth["today"]["tokens_per_day"] == pytest.approx(1536 * 43_200, rel=1e-15)
    assert worth["today"]["gpu_seconds"] is worth["today"]["gib"] is worth["next"] is None
    assert worth["why_null"] == {"GPU-seconds": "no model is known: --model", "GiB": "no model is known: --model",
                                 "GPUs": "no GPU is known: --gpu", "next": "today's pool finds all there is"}


def content():
    return [[1, 2], [1, 3], [1, 2, 4]]


def small_view():
    return view(trace_of([(8, 1, 0), (8, 1, 1_000_000), (9, 1, 2_000_000)], content=content()), 4)


def test_what_ten_points_more_cost():
    seen = small_view()                                # of 25 tokens vLLM's queue finds 8 with 1 or 2 blocks, 12 with 3
    assert hit_tokens(seen, 2).tolist() == [0, 4, 4] and hit_tokens(seen, 3).tolist() == [0, 4, 8]
    worth = money(seen, 2, Prices(1.5, 2.0, 3.0, 10.0, 4.0, 0.9, 2, {}))
    assert worth["today"] == {"blocks": 2, "gib": 8.0, "hit_rate_tokens": 8 / 25, "tokens": 8, "gpu_seconds": (16 + 3 * 20) / 10,
                              "tokens_per_day": pytest.approx(8 * 43_200), "gpu_seconds_per_day": pytest.approx(7.6 * 43_200)}
    more = worth["next"]
    assert (more["blocks"], more["tokens"], more["points"]) == (3, 12, pytest.approx(16.0))
    assert more["gpu_seconds"] == (24 + 3 * (10 + 36)) / 10
    assert (more["more_blocks"], more["more_gib"], more["more_gpus"]) == (1, 4.0, 9)     # 4 GiB on both GPUs of 0.9 GiB
    assert worth["bound"]["tokens"] == 12 and worth["why_null"] == {}


def test_gib_for_a_share_of_hits():
    rows = goals(small_view(), 0.5)                    # bound 12 of 25; LRU finds 0, 8, 12 with 1, 2, 3 blocks
    assert [row["hit_rate_tokens"] for row in rows] == [0.1, 0.2, 0.3, 0.4, 0.48]
    assert [row["vllm"]["blocks"] for row in rows] == [1, 1, 1, 3, 3]
    assert [row["lru"] for row in rows] == [{"blocks": n, "gib": n / 2} for n in (2, 2, 2, 3, 3)]


def test_memory_of_a_model(capsys, three):
    sized = ("--model", "Llama-3.1-8B", "--gpu", "H100", "--no-serving", "--pool-gib", 0.125, "--block-size", 512)
    document = found(capsys, three, *sized)            # 128 KiB a token, 64 MiB a block
    assert column(document["lru"], "gib") == [0.0625, 0.125, 0.1875]
    assert column(document["policies"]["lru"], "blocks") == [2] and document["money"]["why_null"] == {
        "next": "today's pool finds all there is"}
    prefill = document["money"]["prefill"]
    assert prefill["flops_per_pair"] == 2 * 32 * 32 * 256 and prefill["flops_per_s"] == 989.4e12 / 2
    two = found(capsys, three, *sized, "-tp", 2)       # each GPU has half of a block
    assert column(two["lru"], "gib") == [0.03125, 0.0625, 0.09375] and column(two["policies"]["lru"], "blocks") == [4]


# ---------------------------------------------------------------------- what must not be confused
def test_without_sharing_it_says_zero_though_resumes_find_their_own(capsys, tmp_path):
    trace = mooncake(tmp_path, [(0, 64, 64, [1]), (0, 64, 64, [2])])
    document = found(capsys, trace, "--num-gpu-blocks-override", 13)
    served = document["serving"]["with"]
    assert served["resumes"]["hit_tokens_by_origin"]["own_after_preemption"] > 0
    assert served["first_admissions"]["hit_rate_tokens"] == served["first_admissions"]["hit_rate_blocks"] == 0.0
    assert served["first_admissions"]["hit_tokens_by_origin"] == dict.fromkeys(ORIGINS, 0)
    assert document["endless"]["hit_rate_tokens"] == document["today"]["vllm"]["hit_rate_tokens"] == 0.0
    assert document["goals"] == [] and document["money"]["why_null"]["next"] == "nothing is shared"
    said = run(capsys, "prefix", trace, "--num-gpu-blocks-override", 13)
    assert "no prompt begins as an earlier one does" in said.out
    assert "0.0 % of tokens found (cache view" in said.out and "; 0.0 % in the serving view" in said.out


def test_zero_hits_because_the_shared_prefix_is_shorter_than_a_block(capsys, tmp_path):
    trace = mooncake(tmp_path, [(0, 2048, 1, [1, 2, 3, 4]), (1000, 2048, 1, [1, 5, 6, 7])])
    said = run(capsys, "prefix", trace, "--block-size", 528, "--num-gpu-blocks-override", 20)
    assert "zero hits: the shared prefix is shorter than a block: at most 512 tokens are shared, and a block has 528" in said.out
    rows = {row["block_size"]: row for row in found(capsys, trace, *POOL)["block_sizes"]}
    assert [rows[size]["hit_tokens"] for size in (1, 16, 512, 528, 2096)] == [512, 512, 512, 0, 0]
    assert "zero hits" not in run(capsys, "prefix", trace, *POOL).out


def test_the_last_token_is_shown_apart(capsys, tmp_path):
    trace = mooncake(tmp_path, [(0, 512, 1, [1]), (1000, 512, 1, [1])])
    rows = {row["block_size"]: row for row in found(capsys, trace, *POOL)["block_sizes"]}
    assert [(rows[n]["hit_tokens"], rows[n]["last_token_rule"]["hit_tokens"]) for n in (1, 16, 512)] == [
        (512, 511), (512, 496), (512, 0)]


def test_every_number_is_named(capsys, three):
    said = run(capsys, "prefix", three, *POOL)
    assert said.status == 0
    for word in ("today ", "larger ", "policy ", "bound ", "cache view", "serving view", "First admissions",
                 "Resumes, no sharing",
                 "vLLM's log line 'Prefix cache hit rate'", "pins blocks", "slots saved by sharing", "less the last token",
                 *LEGEND):
        assert word in said.out, word
    assert max(map(len, said.out.split("Which number")[0].splitlines())) <= 150
    assert said.err.endswith(" s of work\n") and said.err.count("\n") == 1
    quiet = run(capsys, "prefix", three, *POOL, "-q")
    assert quiet == (0, said.out, "")


# ---------------------------------------------------------------------- invariants
class Counted(Observer):
    """All tokens computed, step by step."""

    def __init__(self):
        self.tokens = 0

    def scheduled(self, now_us, step):
        self.tokens += step.new_tokens


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 8), st.integers(0, 9)), min_size=1, max_size=7),
       st.sampled_from(["paged", "paged-prefix"]), st.integers(5, 9), st.sampled_from([None, 0, 4]))
@settings(max_examples=80 * LONG, deadline=None)
def test_prompts_and_what_was_lost_are_found_or_computed(rows, allocator, blocks, swap):
    rows = sorted(rows, key=lambda row: row[2])
    trace = trace_of(rows, content=[[7] * (p // 4) + [i] for i, (p, _, _) in enumerate(rows)])
    counted, follow = Counted(), _Follow(lambda n: None)
    config = config_of(blocks, 4, 24, longest_jump=1, max_num_seqs=9, max_num_batched_tokens=9, swap_blocks=swap)
    done = Engine(trace, config, allocator, observers=[counted, follow]).run()
    served = done.verdict == 0
    decoded = int((done.demand.output[served] - 1).sum())
    assert facts(done, follow.lost)["prefill_tokens"]["computed"] == counted.tokens - decoded


def test_small_streams_are_replayed_as_they_are_and_large_ones_by_id():
    trace = trace_of([(8, 1), (8, 1)], content=[[1, 2], [1, 2]])
    stream = view(trace, 1).stream
    assert replayed_stream(trace, stream, 8, "full", None) is stream
    assert replayed_stream(trace, stream, MOST_ACCESSES, "full", None).block_size == 4
    assert replayed_stream(trace, stream, 8, "full", 2).block_size == 2
    assert default_sizes(0, 100, 1) == [1, 5, 10, 25, 50] and default_sizes(7, 3, 1) == [1] and default_sizes(5, 0, 1) == [0]


def test_the_same_bytes_twice(capsys, tmp_path, three):
    plots = [tmp_path / "one.png", tmp_path / "two.png"]
    said = [run(capsys, "prefix", three, *POOL, "--json", "-", "-q", "--plot", path).out for path in plots]
    assert said[0] == said[1] and plots[0].read_bytes() == plots[1].read_bytes()
    path = tmp_path / "found.json"
    assert run(capsys, "prefix", three, *POOL, "--json", path).status == 0 and path.read_text() == said[0]
    json.loads(said[0], parse_constant=lambda name: pytest.fail(name))


# ---------------------------------------------------------------------- what is refused, what is assumed
@pytest.mark.parametrize(("arguments", "named"), [
    (["--pool-gib", "3", *POOL], "--pool-gib: the bytes of a token are not known without a --model; --pool-blocks needs none"),
    (["--convention", "ceil", "--block-size", "16"],
     "--block-size 16: with --convention ceil a block is an id of the trace, 512 tokens"),
    (["--convention", "ceil", "--policy-block-size", "16"], "--policy-block-size 16: with --convention ceil"),
    (["--policy", "mru"], "invalid choice: 'mru'"), (["--pool-blocks", "0"], "at least 1 is wanted, not 0"),
    (["--plot", "picture.txt"], "a picture ends in"), (["--pool-gib", "nan"], "'nan'"),
    (["--no-enable-prefix-caching"], "--no-enable-prefix-caching: the serving view shows both"),
    (["--num-gpu-blocks-override", "1"], "holds 0 tokens, fewer than the shortest request"),
])
def test_what_is_wrong_is_one_line(capsys, three, arguments, named):
    said = run(capsys, "prefix", three, *arguments)
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("pagedsim prefix: error: ") and named in said.err


def test_a_trace_without_identity_is_told_what_to_do(capsys, tmp_path):
    trace = lengths(tmp_path, [(600, 5), (700, 6)])
    said = run(capsys, "prefix", trace)
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    assert f"{trace} has no prefix identity" in said.err and "--synth-prefix system:tokens=512" in said.err
    document = found(capsys, trace, "--synth-prefix", "system:tokens=512", "--num-gpu-blocks-override", 200)
    assert document["endless"]["hit_tokens"] == 512
    assert document["money"]["why_null"]["a day"] == "the trace has no arrival times: --rate"
    timed = found(capsys, trace, "--synth-prefix", "system:tokens=512", "--num-gpu-blocks-override", 200, "--rate", 3)
    assert timed["money"]["today"]["tokens_per_day"] > 0


def test_a_server_that_can_serve_the_trace_is_assumed(capsys, tmp_path):
    trace = mooncake(tmp_path, [(0, 5000, 1, list(range(10))), (9000, 5000, 1, list(range(10)))])
    document = found(capsys, trace, "--no-serving")
    assert document["config"]["model"].endswith("Llama-3.1-8B") and "up to 5,001 tokens" in document["notes"][0]
    short = found(capsys, trace, "--no-serving", "--model", "Llama-2-13b", "--gpu", "A100-40GB")
    assert short["config"]["model"].endswith("Llama-2-13b")


def test_who_was_refused_is_said(capsys, three):
    said = run(capsys, "prefix", three, *POOL, "--max-model-len", 1050)
    assert "the serving view refused 1 of 3 requests" in said.out


def test_pools_in_which_no_server_starts_are_left_out(capsys, three):
    document = found(capsys, three, *POOL, "--pool-blocks", 2, "--pool-blocks", 3)
    assert [pool["blocks"] for pool in document["serving"]["pools"]] == [3, 10]
    assert document["serving"]["pools_left_out"] == [2] and any("2 blocks" in note for note in document["notes"])


@pytest.mark.parametrize("rows", [
    [(0, 5, 1, [1])], [(0, 5, 1, [1]), (0, 600, 2, [2, 3])], [(0, 512, 1, [1]), (0, 512, 1, [1])]])
@pytest.mark.parametrize("more", [[], ["--no-serving"], ["--saturate"], ["--convention", "ceil"]])
def test_traces_with_next_to_nothing_are_shown_too(capsys, tmp_path, rows, more):
    trace = mooncake(tmp_path, rows)
    said = run(capsys, "prefix", trace, "--num-gpu-blocks-override", 60, *more, "--plot", tmp_path / "plot.svg")
    assert said.status == 0 and (tmp_path / "plot.svg").stat().st_size > 0


@pytest.mark.parametrize("more", [["--samples", 2], ["--async-scheduling"], ["--pool-blocks", 1 << 39], ["--watermark", 0.1],
                                  ["--preemption-mode", "swap", "--swap-blocks", 9], ["--vllm-version", "0.24"]])
def test_other_ways_of_serving(capsys, tmp_path, more):
    trace = mooncake(tmp_path, [(0, 64, 64, [1]), (0, 64, 64, [2]), (9, 64, 64, [1])])
    document = found(capsys, trace, "--num-gpu-blocks-override", 24, *more)
    assert document["serving"]["with"]["first_admissions"]["query_tokens"] == 192
    assert (document["serving"]["with"]["prefill_tokens"] is None) == ("--samples" in more)


def test_help(capsys):
    said = run(capsys, "prefix", "--help")
    assert (said.status, said.err) == (0, "") and "examples:" in said.out
    for word in ("--policy ", "--pool-blocks", "--pool-gib", "--convention", "--no-serving", "--plot", "--json",
                 "--seed", "--model"):
        assert word in said.out, word
    assert max(map(len, said.out.splitlines())) <= 120


def test_without_a_trace_it_is_the_built_in_workload(capsys):
    document = found(capsys, "--limit", 40, "--policy", "lru")
    assert document["endless"]["hit_tokens"] == 39 * 256 and document["money"]["requests_per_day"] > 0


# ---------------------------------------------------------------------- the page, and real traffic
def commands():
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ pagedsim prefix")]


@pytest.mark.parametrize("command", commands())
def test_the_commands_of_the_page_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mooncake(tmp_path, [(i * 500, 1000, 9, [1, i]) for i in range(2, 22)], "conversation_trace.jsonl")
    assert main(shlex.split(command)[1:]) == 0
    assert "Which number is which" in capsys.readouterr().out
    for name in re.findall(r"(?:--plot|--json) (\S+)", command):
        assert Path(name).stat().st_size > 0


def test_the_page_has_commands_and_the_worked_example_is_true():
    assert len(commands()) >= 3
    text = PAGE.read_text(encoding="utf-8")
    seen = view(trace_of([(12, 1), (12, 1), (12, 1)], content=[[1, 2, 3], [1, 2, 4], [1, 2, 3]]), 4)
    for name, curve in (("LRU", seen.lru), ("vLLM's queue", seen.vllm)):
        row = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
        assert [int(cell) for cell in row.split("|")[2:-1]] == curve.blocks[1:].tolist()


@pytest.fixture(scope="module")
def conversation():
    return shared_trace("mooncake/conversation_trace.jsonl")


def test_the_papers_curve_on_mooncake(capsys, conversation):
    document = found(capsys, conversation, "--convention", "ceil", "--no-serving", "--policy", "vllm", "--policy", "lru",
                     "--pool-blocks", 1827, "--pool-blocks", 9139, "--pool-blocks", 18279)
    assert (document["accesses"], document["unique_blocks"]) == (288_500, 182_790)
    assert document["endless"]["hit_blocks"] == 105_710 and round(document["endless"]["hit_rate_blocks"], 5) == 0.36641
    curve = {row["blocks"]: row["hit_rate_blocks"] for row in document["lru"]}
    sizes = [int(share * 182_790) for share in (0.01, 0.05, 0.1, 0.25, 0.5)]
    assert [f"{curve[size]:.4f}" for size in sizes] == ["0.0523", "0.1954", "0.2784", "0.3535", "0.3631"]
    tails = {row["blocks"]: row["hit_rate_blocks"] for row in document["vllm_curve"]}
    assert [f"{tails[size]:.4f}" for size in sizes[:3]] == ["0.0525", "0.1958", "0.2789"]
    assert column(document["policies"]["vllm"]) == [tails[size] for size in sizes[:3]]
    assert column(document["policies"]["lru"]) == [curve[size] for size in sizes[:3]]


def test_nine_million_accesses_on_mooncake(capsys, conversation):
    document = found(capsys, conversation, "--no-serving", "--policy", "vllm")
    assert document["accesses"] == 9_044_013 and round(document["endless"]["hit_rate_tokens"], 5) == 0.37362
    rows = {row["block_size"]: row for row in document["block_sizes"]}
    assert (round(rows[512]["hit_rate_tokens"], 5), round(rows[512]["hit_rate_blocks"], 4)) == (0.37338, 0.3819)
    assert document["unique_blocks"] == 5_662_916
    assert document["lru"][-1]["blocks"] == 5_919_726              # generated blocks take room as well
    for name in ("lru", "vllm_curve"):
        assert column(document[name]) == sorted(column(document[name])) and 150 < len(document[name]) < 230
        assert document[name][-1]["hit_rate_blocks"] == document["endless"]["hit_rate_blocks"]
    assert np.all(np.diff(column(document["lru"], "blocks")) > 0)
