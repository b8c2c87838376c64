"""Reserving, token-level and virtual-contiguous allocation: by hand, against plain paging, and on the command line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cli_run import document, lengths, run, timed
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, config_of, parts, states, trace_of
from test_relations import everything, run_of, workloads

from experiments.compare import parser
from sim.catalog import ALLOCATORS, DEFAULT
from sim.demand import Demand
from sim.engine import Engine
from sim.kv_formula import tokens_per_page
from sim.memory.reserving import ReservingAllocator
from workloads.request import Trace

KIB, MIB = 1 << 10, 1 << 20


def asking(requests, most, **more):
    """A trace whose clients asked for ``most`` tokens."""
    return replace(trace_of(requests, **more), max_tokens=np.array(most, np.int64))


# ---------------------------------------------------------------------- paged-reserve by hand: blocks of 4
def test_all_blocks_are_taken_at_admission():
    # a: 5 + 8 - 1 = 12 tokens, 3 blocks; b: 6 + 8 - 1 = 13, 4 blocks; c: 3 + 2 - 1 = 4, 1 block: the 8 are gone, d waits.
    # a will end with 7 states, b with 6, c with 3: of 32 slots 14 hold a state, 2 will, 16 never.
    # Step 2: b and c have left; d takes 2 blocks for 4 + 2 - 1 = 5 tokens. States 6 + 4, to come 1 + 1, never 5 + 3.
    trace = asking([(5, 3), (6, 1), (3, 1), (4, 2)], [8, 8, 2, 2])
    config = config_of(9, 4, 20, longest_jump=1)
    assert parts(trace, config, "paged-reserve") == [
        (14, 2, 16, 0, 0, 0, 0), (10, 2, 8, 0, 0, 0, 12), (12, 0, 8, 0, 0, 0, 12)]
    run_, _ = states(trace, config, "paged-reserve")
    assert run_.log.admitted_us.tolist() == [0, 0, 0, 1] and run_.log.finished_us.tolist() == [3, 1, 1, 3]
    # b gives back 7 to 4, c 8; d takes 8 and 7; a gives back 3 to 1, d 7 and 8, each in front.
    assert run_.allocator.pool.free_queue().tolist() == [7, 8, 3, 2, 1, 6, 5, 4]


@pytest.mark.parametrize(("most", "blocks"), [
    (None, 5),                                         # all that max_model_len leaves: 19 token states of 20
    ([1000], 5),                                       # no more than that
    ([15], 5), ([12], 4), ([4], 2), ([3], 2),          # 19, 16, 8 and 7 tokens
])
def test_what_a_reservation_is(most, blocks):
    trace = trace_of([(5, 3)]) if most is None else asking([(5, 3)], most)
    allocator = Engine(trace, config_of(9, 4, 20), "paged-reserve").allocator
    assert (allocator.reservation // 4).tolist() == [blocks]
    assert Engine(trace, config_of(1 + blocks, 4, 20), "paged-reserve").facts.verdict.tolist() == [0]
    assert Engine(trace, config_of(blocks, 4, 20), "paged-reserve").facts.verdict.tolist() == [2]      # larger than the pool


def test_too_few_free_blocks_are_a_remainder():
    # 5 blocks; the first takes 3 of them, the second wants 3.
    got = parts(asking([(5, 2), (5, 2)], [6, 6]), config_of(6, 4, 20, longest_jump=1), "paged-reserve")
    assert got[:3] == [(5, 1, 6, 0, 0, 8, 0), (6, 0, 6, 0, 0, 8, 0), (5, 1, 6, 0, 0, 0, 8)]


def test_every_sample_has_its_own_reservation():
    # Two samples of 6 + 6 - 1 = 11 tokens: 3 blocks each from the start, and nothing is shared.
    trace = replace(asking([(6, 5)], [6]), samples=np.array([2]))
    run_, seen = states(trace, config_of(7, 4, 20, longest_jump=1), "paged-reserve")
    assert [(s[1], s[2]) for s in seen] == [
        ((6, 14, 4, 0, 0, 0, 0), 1), *[((2 * n, 20 - 2 * n, 4, 0, 0, 0, 0), 2) for n in (7, 8, 9, 10)]]
    assert run_.ledger.total.logical == run_.ledger.total.physical
    assert states(trace, config_of(6, 4, 20), "paged-reserve")[0].verdict.tolist() == [2]


def test_chunks_and_the_watermark():
    # The chunk is smaller than the reservation; int(0.2 x 11) = 2 blocks stay free for whoever comes second.
    config = config_of(11, 4, 20, watermark=0.2, max_num_batched_tokens=4, max_num_seqs=4, longest_jump=1)
    got = parts(asking([(6, 2), (3, 1)], [20, 20]), config, "paged-reserve")
    assert got == [(4, 3, 13, 0, 0, 0, 20), (6, 1, 13, 0, 0, 20, 0), (7, 0, 13, 0, 0, 20, 0), (3, 0, 17, 0, 0, 0, 20)]


@settings(max_examples=100 * LONG)
@given(workloads(), st.integers(0, 20))
def test_it_never_preempts_and_holds_what_it_will_need(made, more):
    trace, config = made
    known = replace(trace, max_tokens=trace.output_tokens + more)
    for each in (trace, known):
        run_ = run_of(each, config, "paged-reserve")
        assert run_.preemptions == 0
    demand = Demand(known, config.max_model_len)
    assert (demand.end <= demand.most).all() and (demand.most < config.max_model_len)[~demand.too_long].all()
    assert (demand.most == np.minimum(demand.prompt + known.max_tokens, config.max_model_len) - 1)[~demand.too_long].all()


@settings(max_examples=40 * LONG)
@given(workloads())
def test_a_block_as_long_as_the_longest_request_is_contiguous_max(made):
    trace, config = made
    length = config.max_model_len
    config = replace(config, block_size=length, num_blocks=1 + config.usable_slots // length, placement="first-fit",
                     scheduler=replace(config.scheduler, watermark=0.0))
    assert everything(run_of(trace, config, "paged-reserve"))[1] == everything(run_of(trace, config, "contiguous-max"))[1]


def test_double_release_and_forks_that_do_not_fit():
    allocator = Engine(trace_of([(5, 3)]), config_of(6, 4, 20), "paged-reserve").allocator
    assert isinstance(allocator, ReservingAllocator)
    handle = allocator.restore(0, 5)
    assert allocator.fork(handle) is None and allocator.restore(0, 5) is None and allocator.pool.free == 0
    allocator.release(handle)
    with pytest.raises(ValueError, match="holds nothing"):
        allocator.release(handle)


@pytest.mark.parametrize(("name", "pages"), [("paged-reserve", 5), ("vattention", 2)])
def test_a_fork_is_a_copy_and_counted_where_it_fits(name, pages):
    allocator = Engine(trace_of([(5, 3)]), config_of(1 + 2 * pages, 4, 20, page_slots=4), name).allocator
    handle = allocator.restore(0, 5)
    assert allocator.fork(handle) is not None and (allocator.copies, allocator.pool.free) == (1, 0)
    assert allocator.fork(handle) is None and allocator.copies == 1


# ---------------------------------------------------------------------- token
def test_a_block_of_one_slot():
    # 12 slots. 5 + 6 states, one slot free and too small for the third prompt of 3; then 6 + 3, then 7.
    got = parts(trace_of([(5, 3), (6, 1), (3, 1)]), config_of(4, 4, 20, longest_jump=1), "token")
    assert got == [(11, 0, 0, 0, 0, 1, 0), (9, 0, 0, 0, 0, 0, 3), (7, 0, 0, 0, 0, 0, 5)]


def test_every_slot_can_be_had():
    # Two requests of 9 and 3 states just fill 12 slots; with blocks of 4 the second would wait.
    trace, config = trace_of([(9, 1), (3, 1)]), config_of(4, 4, 20)
    assert parts(trace, config, "token") == [(12, 0, 0, 0, 0, 0, 0)]
    assert parts(trace, config, "paged") == [(9, 0, 3, 0, 0, 0, 0), (3, 0, 1, 0, 0, 0, 8)]


# ---------------------------------------------------------------------- vattention
def test_pages_and_the_rest_of_the_pool():
    # 20 slots in pages of 6: three, and 2 slots that make none. Both requests take a page; of a's 1 slot will be filled.
    # In step 3 a takes a second page for its seventh state. The third wants three pages and waits for all of them.
    config = config_of(6, 4, 20, page_slots=6, longest_jump=1)
    assert parts(trace_of([(5, 3), (6, 1)]), config, "vattention") == [
        (11, 1, 0, 0, 2, 0, 6), (6, 0, 0, 0, 2, 0, 12), (7, 0, 5, 0, 2, 0, 6)]
    assert parts(trace_of([(5, 3), (6, 1), (13, 1)]), config, "vattention") == [
        (11, 1, 0, 0, 2, 6, 0), (6, 0, 0, 0, 2, 12, 0), (7, 0, 5, 0, 2, 6, 0), (13, 0, 5, 0, 2, 0, 0)]


def test_a_page_larger_than_the_pool_serves_nobody():
    run_, _ = states(trace_of([(5, 3)]), config_of(6, 4, 20, page_slots=21), "vattention")
    assert run_.verdict.tolist() == [2] and run_.allocator.capacity == 20


def test_pages_are_not_shared():
    # Three samples of 10 states in pages of 4: two pages each for the prompt from the start, a third for the ninth state.
    trace = replace(trace_of([(6, 5)]), samples=np.array([3]))
    run_, seen = states(trace, config_of(12, 4, 20, page_slots=4, longest_jump=1), "vattention")
    assert [(s[1], s[2]) for s in seen] == [
        ((6, 18, 0, 0, 0, 0, 20), 1), ((21, 3, 0, 0, 0, 0, 20), 3), ((24, 0, 0, 0, 0, 0, 20), 3),
        ((27, 3, 6, 0, 0, 0, 8), 3), ((30, 0, 6, 0, 0, 0, 8), 3)]
    assert run_.ledger.total.logical == run_.ledger.total.physical
    assert Engine(trace, config_of(9, 4, 20, page_slots=4), "vattention").facts.verdict.tolist() == [2]


def test_who_holds_pages_for_samples_to_come_is_not_swapped():
    # Six pages, three tokens a step. In step 3 request 1 gets one token of its prompt, and its second sample two pages. In step 4
    # request 0 takes the last page for its ninth token; in step 5 request 1 finds none for its fifth, and leaves with three.
    # They are computed again: the pages of the second sample would not come back from the host.
    trace = replace(trace_of([(8, 4), (8, 2)]), samples=np.array([1, 2]))
    config = config_of(7, 4, 20, page_slots=4, swap_blocks=20, max_num_batched_tokens=3, max_num_seqs=3, longest_jump=1)
    engine = Engine(trace, config, "vattention")
    facts = engine.run()
    assert (facts.preemptions, engine.scheduler.host.swaps) == (1, 0)
    # Request 0: 3, 6, 8, 9, 10, 11 tokens. Request 1 from step 6 on, in the other three pages: 2, 5, 8, then both samples' ninth.
    assert facts.log.finished_us.tolist() == [6, 9] and facts.log.admitted_us.tolist() == [0, 2]


def test_it_wants_to_know_its_page():
    with pytest.raises(ValueError, match="vattention: page_slots is wanted"):
        Engine(trace_of([(5, 3)]), config_of(6, 4, 20, page_slots=None), "vattention")
    with pytest.raises(ValueError, match="page_slots must be at least 1, not 0"):
        config_of(6, 4, 20, page_slots=0)


@settings(max_examples=100 * LONG)
@given(workloads(), st.sampled_from(["token", "vattention"]), st.integers(1, 20), st.sampled_from([None, 0, 3, 40]))
def test_both_are_plain_paging_with_blocks_of_another_size(made, name, page, swap_blocks):
    """The same blocks, the same events, the same integrals; the slots that make no page are external fragmentation."""
    trace, config = made
    page = 1 if name == "token" else page
    config = replace(config, page_slots=page, scheduler=replace(config.scheduler, swap_blocks=swap_blocks))
    there = replace(config, num_blocks=config.usable_slots // page + 1, block_size=page, scheduler=replace(
        config.scheduler, swap_blocks=None if swap_blocks is None else swap_blocks * config.block_size // page))
    run_, plain = run_of(trace, config, name), run_of(trace, there, "paged")
    rest = config.usable_slots % page
    assert run_.ledger.capacity == plain.ledger.capacity + rest == config.usable_slots
    expected = list(plain.ledger.total.parts)
    expected[4] += rest * plain.ledger.total.time_us
    assert run_.ledger.total.parts == expected
    if run_.steps:                                     # where nobody was served, the sizes of the pools show
        assert everything(run_)[1:] == everything(plain)[1:]
    assert run_.allocator.pool.free_queue().tolist() == plain.allocator.pool.free_queue().tolist()


@pytest.mark.parametrize(("name", "blocks"), [("paged", 5), ("token", 20), ("vattention", 3)])
def test_a_host_pool_has_the_same_bytes_for_all(name, blocks):
    engine = Engine(trace_of([(5, 3)]), config_of(9, 4, 20, swap_blocks=5, page_slots=6), name)
    assert engine.scheduler.host.size == blocks


# ---------------------------------------------------------------------- tokens a page
@pytest.mark.parametrize(("kv_heads", "small", "large"), [
    (4, 64, 2048),                                     # Yi-6B on one GPU, Llama-3-8B and Yi-34B on two
    (8, 32, 1024),                                     # Llama-3-8B and Yi-34B on one
    (40, 6, 204),                                      # Llama-2-13B: 10,240 bytes a token
])
def test_tokens_a_page(kv_heads, small, large):
    assert tokens_per_page(64 * KIB, kv_heads, 128) == small
    assert tokens_per_page(2 * MIB, kv_heads, 128) == large
    assert tokens_per_page(64 * KIB, kv_heads, 128, 1) == 65536 // (kv_heads * 128)


@pytest.mark.parametrize(("page", "heads", "dim", "element", "words"), [
    (0, 4, 128, 2, "page_bytes must be positive, not 0"), (1 << 16, 0, 128, 2, "kv_heads must be positive"),
    (1 << 16, 300, 128, 2, "a page of 65536 bytes holds no token of 76800 bytes")])
def test_a_page_holds_at_least_one_token(page, heads, dim, element, words):
    with pytest.raises(ValueError, match=words):
        tokens_per_page(page, heads, dim, element)


# ---------------------------------------------------------------------- the trace
def test_a_limit_below_an_output_contradicts_the_trace():
    with pytest.raises(ValueError, match=r"request 1 generates 9 tokens, more than its max_tokens 8 \(the longest output: 12\)"):
        Trace("three", np.array([4, 4, 4]), np.array([8, 9, 12]), max_tokens=np.array([8, 8, 8]))


# ---------------------------------------------------------------------- on the command line
POOL = ("--num-gpu-blocks-override", 33, "--block-size", 4, "--max-model-len", 40, "--step-time", "constant:10ms")
NEW = ("--allocator", "paged-reserve", "--allocator", "token", "--allocator", "vattention")
MODEL = ("--model", "meta-llama/Llama-2-13b")


@pytest.fixture
def crowd(tmp_path):
    return timed(tmp_path, [(0.01 * i, 10 + 3 * (i % 5), 5 + i % 7) for i in range(30)])


def test_compare_them(capsys, crowd):
    found = document(capsys, crowd, *POOL, *MODEL, "--allocator", "paged", *NEW, "--page-size", "64KiB")
    config = found["config"]
    assert (config["page_size"], config["page_slots"], config["max_output_tokens"]) == ("64KiB", 6, None)
    paged, reserve, token, vattention = found["scenarios"]
    for s in (paged, reserve, token, vattention):
        assert s["requests"]["completed"] == 30
        assert s["memory"]["slot_microseconds"]["capacity"] == 128 * (s["window_us"][1] - s["window_us"][0])
        assert (s["prefix_cache"], s["memory"]["largest_hole_mean"]) == (None, None)
    assert [s["sharing"] is None for s in (paged, reserve, token, vattention)] == [False, True, False, True]
    assert (reserve["requests"]["preemptions"], reserve["concurrency"]["peak"]) == (0, 3)      # 32 blocks // 10
    assert token["memory"]["internal"] == token["memory"]["reserved"] == token["memory"]["external"] == 0
    assert vattention["memory"]["external"] == 2 / 128
    checks = {(c["scenario"], c["name"]): (c["simulated"], c["analytic"]) for c in found["crosscheck"]}
    assert checks["paged-reserve", "probe, equal prompts: blocks // 10"] == (3, 3)
    assert checks["token", "probe, equal prompts: blocks // 39"] == (3, 3)
    assert checks["vattention", "probe, equal prompts: blocks // 6"] == (3, 3)                 # 21 pages
    assert checks["paged-reserve", "preemptions = 0"] == (0, 0)


def test_the_default_page_is_2_mib(capsys, crowd):
    found = document(capsys, crowd, *MODEL, "--num-gpu-blocks-override", 330, "--max-model-len", 40, "--allocator", "vattention")
    assert (found["config"]["page_size"], found["config"]["page_slots"]) == ("2MiB", 204)
    assert found["scenarios"][0]["concurrency"]["peak"] <= 329 * 16 // 204


def test_a_limit_for_all_makes_reservations_smaller(capsys, crowd):
    # 22 + 11 - 1 = 32 tokens at most: 8 blocks, and 10 + 11 - 1 = 20: 5 blocks
    flags = (*POOL, "--allocator", "paged-reserve")
    asked, silent = document(capsys, crowd, *flags, "--max-output-tokens", 11), document(capsys, crowd, *flags)
    assert asked["config"]["max_output_tokens"] == 11
    assert asked["scenarios"][0]["concurrency"]["peak"] > silent["scenarios"][0]["concurrency"]["peak"]
    assert any("max_tokens" in note for note in silent["config"]["notes"])
    assert not any("max_tokens" in note for note in asked["config"]["notes"])


@pytest.mark.parametrize(("flags", "said"), [
    ((*NEW,), "--allocator vattention: a page is so many bytes of K or V: a --model is wanted"),
    (("--page-size", "2MiB"), "--page-size is for --allocator vattention"),
    ((*MODEL, "--page-size", "1MiB", *NEW), "--page-size: invalid choice: '1MiB'"),
    (("--max-output-tokens", 10), "--max-output-tokens: request 6 generates 11 tokens, more than its max_tokens 10"),
    (("--max-output-tokens", 0), "--max-output-tokens: at least 1 is wanted, not 0"),
    (("--model", "DeepSeek-V2-Lite", *NEW), "--allocator vattention: K and V of one width in every layer are wanted, and "
     "deepseek-ai/DeepSeek-V2-Lite has other layers"),
    (("--allocator", "tokens"), "--allocator: invalid choice: 'tokens'"),
])
def test_what_cannot_be_is_one_line(capsys, crowd, flags, said):
    found = run(capsys, "compare", crowd, *POOL, *flags)
    assert found.status == 2 and found.out == ""
    assert found.err.count("\n") == 1 and said in found.err


def test_token_wants_a_pool_that_can_be_followed_slot_by_slot(capsys, tmp_path):
    flags = ("--num-gpu-blocks-override", 1 << 24, "--max-model-len", 40, "--allocator", "token")
    found = run(capsys, "compare", lengths(tmp_path, [(5, 3)]), *flags)
    assert (found.status, found.out) == (2, "") and "too large: at most 134,217,728 blocks" in found.err


def test_the_default_set_stays(capsys, crowd):
    assert DEFAULT == ("contiguous-max", "contiguous-pow2", "contiguous-oracle", "paged", "paged-prefix")
    assert set(DEFAULT) < set(ALLOCATORS)
    assert [s["allocator"] for s in document(capsys, crowd, *POOL)["scenarios"]] == list(DEFAULT)
    said = " ".join(parser().format_help().split()).replace("- ", "-")
    assert f"one of {', '.join(ALLOCATORS)}; may be repeated (default: {', '.join(DEFAULT)})" in said


@pytest.mark.parametrize("allocator", ["paged-reserve", "vattention", "token"])
@pytest.mark.parametrize("more", [["--samples", "3"], ["--beam-width", "2"], ["--samples", "3", "--batching", "static"]])
def test_the_cross_checks_know_of_sequences_that_have_room_and_do_not_run_yet(capsys, tmp_path, allocator, more):
    trace = lengths(tmp_path, [(37, 20), (40, 9), (5, 30), (64, 12)])
    said = run(capsys, "compare", trace, "--allocator", allocator, "--model", "Llama-2-7b", "--available-kv-gib", "0.4",
               "--max-model-len", "128", *more)
    assert (said.status, said.err.count("cross-check failed")) == (0, 0), said.err
