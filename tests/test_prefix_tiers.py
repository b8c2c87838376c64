"""`prefix` with host memory behind the pool and with a warm start, every number by hand."""

from __future__ import annotations

import pytest
from cli_run import run

SERVER = ("--model", "Llama-2-7b", "--num-gpu-blocks-override", 10, "--max-model-len", 80, "--step-time", "constant:20ms")
A, B, C = "0 1 2 3", "4 5 6 7", "8 9 10 11"                # 64 tokens each: four blocks of 16


def trace(folder, *prompts, name="trace.csv"):
    """One request a second, each done long before the next."""
    rows = "".join(f"{i * 1_000_000},64,1,{ids}\n" for i, ids in enumerate(prompts))
    path = folder / name
    path.write_text(f"# hash_ids: 16 tokens each\narrival_us,prompt_tokens,output_tokens,hash_ids\n{rows}")
    return path


def found(capsys, *arguments):
    said = run(capsys, "prefix", *arguments, *SERVER, "--json", "-", "-q")
    assert said.status == 0, said.err
    return said.json


def test_what_the_pool_forgot_comes_from_the_host(capsys, tmp_path):
    document = found(capsys, trace(tmp_path, A, B, C, A), "--host-cache-gib", 1)
    tiers = document["tiers"]
    # 9 blocks: A 1-4, B 5-8, C takes the last one and the tail of A, three blocks; A finds its head alone.
    # With a tier two more come back; the fourth holds the last token, which is always computed.
    assert [row["first_admissions"]["hit_tokens"] for row in tiers["rows"]] == [16, 48]
    assert [row["first_admissions"]["query_tokens"] for row in tiers["rows"]] == [256, 256]
    assert [row["gib"] for row in tiers["rows"]] == [0.0, 1.0]
    bare, tier = (row["counts"] for row in tiers["rows"])
    assert bare is None
    assert (tier["host_hit_tokens"], tier["gpu_hit_tokens"], tier["loaded_blocks"]) == (32, 16, 2)
    # 2 blocks x 16 tokens x 512 KiB over 25 GB/s = 671.09 us
    assert (tiers["bytes_per_block"], tiers["bandwidth_bytes_per_s"], tier["load_us"]) == (8_388_608, 25_000_000_000, 671)
    assert tiers["rows"][1]["blocks"] == 128
    assert tiers["rows"][0]["latency_s"]["ttft"]["p99"] == pytest.approx(0.02)
    assert tiers["rows"][1]["latency_s"]["ttft"]["mean"] == pytest.approx(0.02 + 671e-6 / 4)
    # the rest of the page has no tier
    assert document["serving"]["with"]["first_admissions"]["hit_tokens"] == 16


def test_sizes_nobody_asked_for_are_multiples_of_the_pool(capsys, tmp_path):
    tiers = found(capsys, trace(tmp_path, A, B, C, A), "--host-bandwidth", 50)["tiers"]
    assert [row["blocks"] for row in tiers["rows"]] == [0, 9, 36, 144]
    assert tiers["load_us_per_block"] == pytest.approx(167.772)
    said = run(capsys, "prefix", trace(tmp_path, A, B, C, A), *SERVER)
    assert said.status == 0 and "Host memory behind today's pool" in said.out and "50.0 %" not in said.out


def test_no_tier_where_a_block_has_no_bytes(capsys, tmp_path):
    path = trace(tmp_path, A, A)
    said = run(capsys, "prefix", path, "--num-gpu-blocks-override", 10, "--max-model-len", 80, "--json", "-", "-q")
    assert (said.status, said.json["tiers"]) == (0, None)
    said = run(capsys, "prefix", path, "--num-gpu-blocks-override", 10, "--host-cache-gib", 1)
    assert said.status == 2
    assert said.err.strip().endswith("--host-cache-gib without a --model: the bytes of a block are not known")
    assert found(capsys, path, "--no-serving")["tiers"] is None


def test_a_warm_start_finds_what_an_earlier_trace_left(capsys, tmp_path):
    cold, warm = trace(tmp_path, A), trace(tmp_path, A, name="yesterday.csv")
    assert found(capsys, cold)["serving"]["with"]["first_admissions"]["hit_tokens"] == 0
    assert found(capsys, cold, "--warm-trace", warm)["serving"]["with"]["first_admissions"]["hit_tokens"] == 48


def test_generated_blocks_take_room_in_the_cache_view_too(capsys, tmp_path):
    # 32 prompt tokens and 49 more: 80 are computed, five blocks, of which two can be found. Two prompts in turn.
    path = tmp_path / "long.csv"
    rows = "".join(f"{i * 10_000_000},32,49,{2 * (i % 2)} {2 * (i % 2) + 1}\n" for i in range(4))
    path.write_text(f"# hash_ids: 16 tokens each\narrival_us,prompt_tokens,output_tokens,hash_ids\n{rows}")
    document = run(capsys, "prefix", path, "--num-gpu-blocks-override", 10, "--max-model-len", 96, "--pool-blocks", 6,
                   "--pool-blocks", 7, "--policy", "vllm", "--policy", "belady", "--json", "-", "-q").json
    assert (document["accesses"], document["unique_blocks"]) == (8, 4)
    # Between two uses of a prompt five blocks of the other request come: the head of a prompt needs room for six.
    curve = {row["blocks"]: row["hit_rate_blocks"] for row in document["vllm_curve"]}
    assert (curve[5], curve[6], curve[7]) == (0.0, 2 / 8, 4 / 8)
    assert [row["hit_rate_blocks"] for row in document["policies"]["vllm"]] == [2 / 8, 4 / 8]
    assert [row["hit_rate_blocks"] for row in document["policies"]["belady"]] == [4 / 8, 4 / 8]


def test_swap_leaves_the_tiers_out(capsys, tmp_path):
    document = found(capsys, trace(tmp_path, A, B, C, A), "--preemption-mode", "swap")
    assert document["tiers"] is None


def test_a_warm_start_is_told_of(capsys, tmp_path):
    cold, warm = trace(tmp_path, A), trace(tmp_path, A, name="yesterday.csv")
    document = found(capsys, cold, "--warm-trace", warm)
    assert document["config"]["warm_start"] == {"source": str(warm), "requests": 1}
    assert any("begins warm: 1 requests of" in note for note in document["notes"])
    assert found(capsys, cold)["config"]["warm_start"] is None


@pytest.mark.parametrize("option", [
    ("--warm-trace", "x.csv"), ("--host-cache-gib", 1), ("--host-bandwidth", 10), ("--saturate",)])
def test_what_the_serving_view_is_asked_for_wants_it(capsys, tmp_path, option):
    said = run(capsys, "prefix", trace(tmp_path, A), *SERVER, "--no-serving", *option)
    assert said.status == 2
    assert said.err.strip() == f"pagedsim prefix: error: {option[0]} is for the serving view, and --no-serving leaves it out"
