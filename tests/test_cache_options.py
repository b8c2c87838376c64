"""Options of the prefix cache on the command line: what they come to, what is said, and what they are refused with."""

import json

import pytest
from cli_run import document, lengths, mooncake, run

POOL = ("--num-gpu-blocks-override", 40, "--max-model-len", 200, "--step-time", "constant:10ms")
MODEL = (*POOL, "--model", "Llama-3.1-8B")             # 131,072 bytes a token, 2 MiB a block
ROWS = [(1000 * i, 100, 3, [i % 9]) for i in range(40)]


@pytest.fixture
def trace(tmp_path):
    return mooncake(tmp_path, ROWS)


def refused(capsys, *arguments):
    said = run(capsys, "compare", *arguments, "-q")
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    return said.err


def host(capsys, trace, *arguments):
    return document(capsys, trace, *MODEL, "--allocator", "paged-prefix", *arguments)


# ---------------------------------------------------------------------- the tier
@pytest.mark.parametrize(("ranks", "blocks", "size"), [((), 512, 2_097_152), (("-tp", 2), 1024, 1_048_576),
                                                       (("-tp", 8), 4096, 262_144), (("-tp", 16), 4096, 262_144),
                                                       (("-pp", 2), 1024, 1_048_576)])
def test_a_gib_a_gpu_holds_the_ranks_share_of_each_block(capsys, trace, ranks, blocks, size):
    """Llama-3.1-8B has 8 KV heads and 32 layers: from 8 GPUs on a rank holds one head of each layer."""
    made = host(capsys, trace, "--host-cache-gib", 1, *ranks)["config"]["host_cache"]
    assert (made["blocks"], made["bytes_per_block"], made["bytes_per_s"]) == (blocks, size, 25_000_000_000)


def test_hits_by_tier_and_time(capsys, trace):
    # Nine prompts of 7 blocks in turn in 39 blocks: LRU finds none again, the tier all but 4 tokens of each.
    cold, tiered = host(capsys, trace), host(capsys, trace, "--host-cache-gib", 1, "--host-bandwidth", 2)
    assert cold["scenarios"][0]["prefix_cache"]["hit_tokens"] == 0
    counts = tiered["config"]["host_cache"]["counts"]["paged-prefix"]
    assert tiered["scenarios"][0]["prefix_cache"]["hit_tokens"] == counts["host_hit_tokens"] == 31 * 96
    assert counts["loaded_blocks"] == 31 * 6 and counts["gpu_hit_tokens"] == 0
    # 6 x 2 MiB at 2 GB/s are 6,291.456 us, rounded by the step
    assert counts["load_us"] == 31 * 6291
    assert any("2,976 of 2,976 hit tokens" in note for note in tiered["config"]["notes"])
    slower = tiered["scenarios"][0]["latency_s"]["ttft"]["mean"] - cold["scenarios"][0]["latency_s"]["ttft"]["mean"]
    assert slower == pytest.approx(31 * 6291e-6 / 40)  # a constant step gains nothing by what it need not compute
    assert "evicted blocks = moved down + on the host already" in {check["name"] for check in tiered["crosscheck"]}


def test_no_tier_and_a_tier_of_nothing_differ_in_what_was_asked_for_only(capsys, trace):
    cold, nothing = host(capsys, trace), host(capsys, trace, "--host-cache-gib", 0)
    assert nothing["config"].pop("host_cache")["counts"] == {}
    nothing["config"]["notes"].pop()
    assert cold == nothing and not {"host_cache", "warm_start"} & set(cold["config"])


@pytest.mark.parametrize(("options", "said"), [
    (("--host-bandwidth", 10), "--host-bandwidth is for --host-cache-gib"),
    (("--host-cache-gib", 1, "--preemption-mode", "swap"), "--host-cache-gib and --preemption-mode swap do not go together"),
    (("--host-cache-gib", 1, "--allocator", "paged"), "--host-cache-gib is for paged-prefix, which is not among"),
    (("--host-cache-gib", 1, "--no-enable-prefix-caching"), "--host-cache-gib is for paged-prefix, which is not among"),
    (("--host-cache-gib", 0.001), "--host-cache-gib 0.001: a block takes 2,097,152 bytes"),
    (("--host-cache-gib", -1), "--host-cache-gib: a number from 0"),
    (("--host-cache-gib", 1, "--host-bandwidth", 0), "--host-bandwidth: a number from 0.001")])
def test_what_a_tier_is_refused_with(capsys, trace, options, said):
    assert said in refused(capsys, trace, *MODEL, *options)


def test_without_a_model_a_block_has_no_bytes(capsys, trace):
    assert "--host-cache-gib without a --model" in refused(capsys, trace, *POOL, "--host-cache-gib", 1)


# ---------------------------------------------------------------------- warm
def test_the_same_trace_again_is_found(capsys, tmp_path):
    rows = [(1000 * i, 100, 3, [i]) for i in range(5)]
    trace = mooncake(tmp_path, rows)
    made = document(capsys, trace, *POOL, "--warm-trace", trace)
    left = made["config"]["warm_start"]
    assert (left["source"], left["requests"]) == (str(trace), 5)
    assert left["left"] == {"paged-prefix": {"served": 5, "skipped": 0, "cached_blocks": 30, "host_blocks": 0}}
    cached = {s["allocator"]: s["prefix_cache"] for s in made["scenarios"]}["paged-prefix"]
    assert (cached["query_tokens"], cached["hit_tokens"], cached["evicted_blocks"]) == (500, 480, 0)
    assert "paged-prefix began warm: 5 earlier requests served, 30 blocks cached" in made["config"]["notes"]
    cold = document(capsys, trace, *POOL)
    for one, two in zip(cold["scenarios"], made["scenarios"], strict=True):
        assert (one == two) == (one["allocator"] != "paged-prefix")
    assert one["requests"] == two["requests"]


def test_another_file_of_one_id_space_and_a_tier(capsys, tmp_path):
    early = mooncake(tmp_path, [(1000 * i, 100, 3, [i]) for i in range(12)], "early.jsonl")
    late = mooncake(tmp_path, [(0, 100, 3, [0]), (1000, 100, 3, [11]), (2000, 300, 3, [5])], "late.jsonl")
    made = host(capsys, late, "--warm-trace", early, "--host-cache-gib", 1)
    assert made["config"]["warm_start"]["left"]["paged-prefix"]["served"] == 12
    assert made["scenarios"][0]["prefix_cache"]["hit_tokens"] == 192
    assert made["config"]["host_cache"]["counts"]["paged-prefix"]["host_hit_tokens"] == 96
    assert made["trace"]["requests"] == made["scenarios"][0]["requests"]["arrived"] == 3
    table = tmp_path / "requests.csv"
    assert run(capsys, "compare", late, *POOL, "--warm-trace", early, "--requests", table, "-q").status == 0
    assert len(table.read_text().splitlines()) == 1 + 3 * 5


def chats(folder, name):
    """A file whose texts are numbered as they are read."""
    path = folder / name
    row = {"input_toks": 40, "output_toks": 3, "arrival_time_ns": 0, "input_tok_ids": list(range(40))}
    path.write_text(json.dumps(row) + "\n")
    return path


def test_what_a_warm_start_is_refused_with(capsys, tmp_path, trace):
    def said(*options, of=trace):
        return refused(capsys, *([of] if of else []), *POOL, *options)
    plain = lengths(tmp_path, [(9, 9)])
    assert "--warm-trace is for paged-prefix, which is not among" in said("--warm-trace", trace, "--allocator", "paged")
    assert "--warm-trace is for a trace file, and none was given" in said("--warm-trace", trace, of=None)
    assert "--warm-trace -: only the trace itself" in said("--warm-trace", "-")
    assert "--synth-prefix do not go together" in said("--warm-trace", trace, "--synth-prefix", "system:tokens=16", of=plain)
    assert "lengths.csv has no prefix identity" in said("--warm-trace", plain)
    assert "lengths.csv has no prefix identity" in said("--warm-trace", trace, of=plain)
    assert "no_such_file" in said("--warm-trace", tmp_path / "no_such_file")
    small = mooncake(tmp_path, [(0, 100, 3, list(range(7)))], "small.jsonl")
    assert "small.jsonl stands for 16 tokens and one of" in said("--warm-trace", small)
    assert "would overwrite what is read" in said("--warm-trace", small, "--json", small)


def test_ids_numbered_while_reading_name_nothing_elsewhere(capsys, tmp_path):
    one, two = chats(tmp_path, "one.jsonl"), chats(tmp_path, "two.jsonl")
    assert "are numbered as it is read and name nothing in another file" in refused(capsys, one, *POOL, "--warm-trace", two)
    made = document(capsys, one, *POOL, "--warm-trace", one)
    assert {s["allocator"]: s["prefix_cache"] for s in made["scenarios"]}["paged-prefix"]["hit_tokens"] == 32
