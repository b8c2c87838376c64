"""The formula by hand, and `==` against what the real vLLM planner reported (golden/capacity.json)."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import kv_formula as kv

CASES = json.loads((Path(__file__).parent / "data" / "golden" / "capacity.json").read_text())["cases"]
PLAIN = [case for case in CASES if [layer[0] for layer in case["layers"]] == ["full"]]


def test_bytes_per_token_of_known_models():
    assert kv.kv_bytes_per_token(32, 8, 128, 2) == 131_072       # Llama-3.1-8B
    assert kv.kv_bytes_per_token(32, 32, 128, 2) == 512 * 1024   # Llama-2-7B
    assert kv.kv_bytes_per_token(40, 40, 128, 2) == 800 * 1024   # OPT-13B, PagedAttention section 3
    assert kv.kv_bytes_per_token(80, 8, 128, 2) == 320 * 1024    # Llama-2-70B


def test_half_a_byte_is_exact_and_half_a_byte_left_over_is_an_error():
    assert kv.kv_bytes_per_token(32, 8, 128, Fraction(1, 2)) == 32_768
    assert kv.kv_bytes_per_token(32, 8, 128, kv.ELEMENT_BYTES["int4"]) == 32_768
    assert kv.kv_bytes_per_token(1, 1, 1, Fraction(1, 2)) == 1
    with pytest.raises(ValueError, match="no whole number"):
        kv.kv_bytes_per_token(1, 1, 1, Fraction(1, 4))


@pytest.mark.parametrize("case", PLAIN, ids=[case["name"] for case in PLAIN])
def test_plain_attention_agrees_with_the_real_planner(case):
    (_, layers, spec), = case["layers"]
    per_token = kv.kv_bytes_per_token(layers, spec["num_kv_heads"], spec["head_size"], case["dtype_bytes"])
    block, length = spec["block_size"], case["max_model_len"]
    blocks = kv.blocks_that_fit(case["available_bytes"], kv.kv_bytes_per_block(per_token, block))
    blocks = case["options"].get("override", blocks)
    assert blocks == case["num_blocks"]
    assert kv.max_concurrency(blocks, block, length) == case["max_concurrency"]
    assert kv.kv_tokens(blocks, block, length) == case["kv_cache_size_tokens"]
    assert kv.log_lines(blocks, block, length)[1].endswith(": " + case["logged"])


def test_there_are_plain_cases():
    assert len(PLAIN) == 6


def test_log_lines_of_a_length_that_is_no_multiple_of_the_block():
    assert kv.log_lines(20480, 16, 8001) == [
        "GPU KV cache size: 327,066 tokens", "Maximum concurrency for 8,001 tokens per request: 40.88x"]
    assert kv.log_lines(20480, 16, 8192) == [
        "GPU KV cache size: 327,680 tokens", "Maximum concurrency for 8,192 tokens per request: 40.00x"]


@pytest.mark.parametrize(("blocks", "length", "printed"), [
    (1952, 20_000, 1.56),      # start-up log v001
    (1478, 29_000, 0.82),      # v002
    (13_618, 2048, 106.39),    # v028
    (37_011, 2048, 289.15),    # v143
    (1394, 10_000, 2.23),      # v029
])
def test_concurrency_as_real_servers_printed_it(blocks, length, printed):
    assert round(kv.max_concurrency(blocks, 16, length), 2) == printed


def test_one_request_must_fit_without_the_null_block():
    assert kv.startup_shortfall(512, 16, 8192) == 8176
    assert kv.startup_shortfall(512, 16, 8176) is None
    assert kv.startup_shortfall(513, 16, 8192) is None
    assert kv.startup_shortfall(1, 16, 1) == 0
    assert kv.startup_shortfall(0, 16, 1) == 0


def test_nothing_available_gives_no_block():
    assert kv.blocks_that_fit(-1, 10) == kv.blocks_that_fit(9, 10) == 0
    assert kv.blocks_that_fit(10, 10) == 1


@pytest.mark.parametrize("call", [
    lambda: kv.kv_bytes_per_token(0, 8, 128), lambda: kv.kv_bytes_per_token(32, 8, 128, 0),
    lambda: kv.kv_bytes_per_block(131_072, 0), lambda: kv.blocks_that_fit(1, 0), lambda: kv.blocks_for(-1),
    lambda: kv.blocks_for(1, 0), lambda: kv.max_concurrency(-1, 16, 16), lambda: kv.max_concurrency(1, 16, 0),
    lambda: kv.startup_shortfall(1, 16, 0)])
def test_impossible_numbers_raise(call):
    with pytest.raises(ValueError, match=r"must (be positive|not be negative).*-?\d"):
        call()


@given(st.integers(1, 10**6), st.integers(1, 512), st.integers(1, 10**6))
def test_tokens_never_exceed_the_pool_and_whole_blocks_lose_nothing_but_rounding(blocks, block, length):
    tokens = kv.kv_tokens(blocks, block, length)
    assert tokens <= blocks * block * (1 + 1e-12)
    exact = Fraction(blocks * length, kv.blocks_for(length, block))
    assert abs(tokens - exact) < 1 + exact * Fraction(1, 10**12)


@given(st.integers(1, 10**6), st.integers(1, 512), st.integers(1, 10**6))
def test_the_shortfall_is_the_largest_length_that_fits(blocks, block, length):
    fits = kv.startup_shortfall(blocks, block, length)
    if fits is None:
        assert kv.blocks_for(length, block) <= blocks - 1
    else:
        assert fits < length
        assert kv.startup_shortfall(blocks, block, fits + 1) == fits
        assert fits == 0 or kv.startup_shortfall(blocks, block, fits) is None
