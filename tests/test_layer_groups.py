"""Pages, groups and the report by hand; recorded layouts are in test_capacity.py."""

import pytest

from sim.models.layer_cache import LayerCache, RequestLimits
from sim.models.layer_groups import align_to_state, equal_pages, group_layers
from sim.sizing.startup import Rank, report
from sim.sizing.versions import NEWEST, parse_version
from workloads.request import InputError

FULL = LayerCache("full", 16, 4096)
WINDOW = LayerCache("sliding", 16, 4096, reach=1024)
CHUNK = LayerCache("chunked", 16, 4096, reach=8192)
STATE = LayerCache("state", 16, state_bytes=65536)


def sizes(caches, *arguments):
    return [len(group.layers) for group in group_layers(caches, *arguments)]


# ---------------------------------------------------------------------- one request
@pytest.mark.parametrize(("cache", "limits", "blocks"), [
    (FULL, RequestLimits(8001), 501), (FULL, RequestLimits(8001, decode_context_parallel_size=4), 126),   # ceil(2001 / 16)
    (WINDOW, RequestLimits(32768), 577),                               # ceil((1023 + 8192) / 16) + 1
    (WINDOW, RequestLimits(32768, 16384), 1089), (WINDOW, RequestLimits(512), 33),
    (CHUNK, RequestLimits(131072), 1024), (CHUNK, RequestLimits(4096), 256),
    (STATE, RequestLimits(131072), 1), (STATE, RequestLimits(131072, state_mode="align"), 2),
    (STATE, RequestLimits(1600, state_mode="all"), 100),
    (LayerCache("state", 16, state_bytes=9, speculative_blocks=3, checkpoint_blocks=1), RequestLimits(99, state_mode="align"), 6),
    (LayerCache("state", 16, state_bytes=9, speculative_blocks=3, checkpoint_blocks=1), RequestLimits(99), 4)])
def test_blocks_of_a_request(cache, limits, blocks):
    assert cache.request_blocks(limits) == blocks


@pytest.mark.parametrize("arguments", [("ring", 16, 1), ("full", 0, 1), ("full", 16, 0), ("sliding", 16, 1), ("full", 16, 1, 9)])
def test_a_cache_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(ValueError, match=r"kind|block_size|reach"):
        LayerCache(*arguments)
    with pytest.raises(ValueError, match="padded_bytes 1 below"):
        LayerCache("full", 16, 1, padded_bytes=1)


# ---------------------------------------------------------------------- groups
def test_groups_take_the_smaller_number_or_the_larger_if_near():
    assert sizes([FULL] * 10 + [WINDOW] * 52) == [10, 9, 9, 9, 9, 8, 8]            # gemma-3-27b: strided, 8 of padding
    assert sizes([FULL] * 13 + [WINDOW] * 12) == [13, 12]                          # 13 < 1.5 x 12
    assert sizes([FULL] * 19 + [WINDOW] * 18, True, 1.25) == [19, 18]
    assert sizes([FULL] * 20 + [WINDOW] * 30) == [20, 15, 15]                      # 30 is not below 1.5 x 20
    assert sizes([FULL] * 20 + [WINDOW] * 29) == [20, 29]
    assert sizes([FULL] * 20 + [WINDOW] * 29, True, 1.25) == [20, 15, 14]
    assert sizes([FULL] * 17 + [STATE] * 48) == [17, 16, 16, 16]


def test_layers_of_one_kind_share_a_table_whatever_their_heads():
    wide = LayerCache("full", 16, 8192)
    (only,) = group_layers([FULL, wide, FULL])
    assert only.block_bytes() == 16 * (4096 + 8192 + 4096)
    assert len(group_layers([WINDOW, LayerCache("sliding", 16, 4096, reach=512)])) == 2


def test_windows_not_managed_are_kept_in_full():
    (only,) = group_layers([FULL, WINDOW, CHUNK], keep_windows=False)
    assert {cache.kind for cache in only.caches} == {"full"}
    assert sizes([WINDOW] * 3, False) == [3] and group_layers([WINDOW], False)[0].caches[0].kind == "sliding"
    with pytest.raises(InputError, match="cannot be off"):
        group_layers([FULL, STATE], keep_windows=False)


def test_pages_are_made_equal_by_longer_blocks_or_by_padding():
    half, odd = LayerCache("sliding", 16, 2048, reach=64), LayerCache("sliding", 16, 3000, reach=64)
    assert [c.block_size for c in equal_pages([FULL, half])] == [16, 32]
    padded = equal_pages([FULL, odd, STATE])
    assert {c.page_bytes for c in padded} == {65536}
    assert [c.padded_bytes for c in padded] == [None, 65536, None]
    latent = LayerCache("full", 16, 1152, latent=True)
    with pytest.raises(InputError, match="latent page"):
        equal_pages([latent, STATE])
    assert [c.kind for c in group_layers([latent, LayerCache("sliding", 16, 5000, reach=64)])[0].caches] == ["full", "full"]


def test_blocks_long_enough_for_a_state():
    """Qwen3.5-27B in fp8: 3,207,168 bytes of state over 2,048 a token are 1,566 tokens, 1,568 in steps of 16."""
    token, state = LayerCache("full", 16, 2048), LayerCache("state", 16, state_bytes=3_207_168)
    attention, padded = align_to_state([token, state])
    assert (attention.block_size, padded.block_size, padded.page_bytes) == (1568, 1568, 1568 * 2048)
    assert align_to_state([LayerCache("full", 64, 2048), state])[0].block_size == 1600
    assert align_to_state([token, state], 128)[0].block_size == 1664
    assert align_to_state([token, LayerCache("state", 16, state_bytes=100)])[0].block_size == 16
    assert align_to_state([token]) == [token] and align_to_state([state]) == [state]


# ---------------------------------------------------------------------- the report
def made(caches, available, limits, version="0.33", **more):
    return report(group_layers(caches), [Rank(available)], limits, parse_version(version), **more)


@pytest.mark.parametrize(("version", "tokens", "concurrency"), [
    ("0.8.5", 327_680, 327_680 / 8001), ("0.9.2", 327_680, 20480 / 501), ("0.11.0", 327_680, 20480 / 501),
    ("0.20.0", 327_680, 20480 / 501), ("0.22.1", 327_066, 20480 / 501), ("0.33", 327_066, 20480 / 501)])
def test_the_report_by_version(version, tokens, concurrency):
    found = made([FULL] * 32, 40 << 30, RequestLimits(8001), version)
    assert (found.kv_tokens, found.max_concurrency) == (tokens, concurrency)


def test_context_parallel_multiplies_the_tokens_of_some_versions():
    limits = RequestLimits(8192, decode_context_parallel_size=2)
    assert [made([FULL] * 32, 40 << 30, limits, v).kv_tokens for v in ("0.9.2", "0.10.2", "0.33")] == [327_680, 655_360, 655_360]


def test_the_null_block_counts_in_the_check_since_0_30():
    for version, longest in (("0.28", None), ("0.30", 8176)):
        assert made([FULL] * 32, 512 * 2_097_152, RequestLimits(8192), version).longest == longest
    assert made([FULL] * 32, 513 * 2_097_152, RequestLimits(8192)).starts


def test_a_pool_of_nothing_starts_nothing():
    found = made([FULL], -5, RequestLimits(8192))
    assert (found.num_blocks, found.kv_tokens, found.max_concurrency, found.longest) == (0, 0, 0.0, 0)


def test_the_smallest_rank_decides_for_all():
    groups = group_layers([FULL] * 3)
    ranks = [Rank(10 * 65536, range(0, 1)), Rank(10 * 65536, range(1, 3))]
    found = report(groups, ranks, RequestLimits(16), NEWEST)
    assert (found.num_blocks, found.needed_bytes) == (5, 2 * 65536)
    assert report(groups, ranks, RequestLimits(16), NEWEST, num_gpu_blocks_override=7).num_blocks == 7


# ---------------------------------------------------------------------- versions
@pytest.mark.parametrize(("text", "number", "shown"), [
    ("0.11", (0, 11, 99), "0.11"), ("v0.8.5.post1", (0, 8, 5), "0.8.5"), ("0.20.2rc1.dev249+fork", (0, 20, 2), "0.20.2"),
    (" 0.9.2 ", (0, 9, 2), "0.9.2"), ("0.6.1.dev238", (0, 6, 1), "0.6.1")])
def test_versions_as_people_write_them(text, number, shown):
    version = parse_version(text)
    assert (version.number, str(version)) == (number, shown)


@pytest.mark.parametrize("text", ["", "latest", "0", "1.0", "0.34", "0.x", "11"])
def test_no_version(text):
    with pytest.raises(InputError, match="vLLM version"):
        parse_version(text)


def test_defaults_by_version():
    old, new = parse_version("0.19.1"), parse_version("0.20")
    assert (old.default_utilization, new.default_utilization) == (0.9, 0.92)
    assert (new.deducts_cuda_graphs, parse_version("0.21").deducts_cuda_graphs) == (False, True)
    modes = {("0.11", False): "none", ("0.20", False): "align", ("0.20", True): "all", ("0.28", True): "align"}
    assert {(v, keeps): parse_version(v).state_mode(True, keeps) for v, keeps in modes} == modes
    assert NEWEST.state_mode(False, True) == "none"
    assert [parse_version(v).batches_in_flight(True, 1) for v in ("0.25.1", "0.26")] == [1, 2]
