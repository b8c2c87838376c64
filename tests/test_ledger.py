"""The seven parts of the pool, state by state, computed by hand. Order: token states, reserved, internal, cached,
external, remainder, idle."""

from collections import Counter

import numpy as np
import pytest
from small import config_of, parts, states, trace_of

from sim.ledger import BrokenInvariant, Integrals, Ledger, PoolState, merged
from sim.memory.allocator import SlotCounts

A, B = (5, 3), (6, 1)                                  # the requests of the worked example


def test_worked_example_paged():
    got = parts(trace_of([A, B]), config_of(6, 4, 8, longest_jump=1), "paged")
    assert got == [(11, 2, 3, 0, 0, 0, 4), (6, 1, 1, 0, 0, 0, 12), (7, 0, 1, 0, 0, 0, 12)]


def test_worked_example_contiguous():
    got = parts(trace_of([A, B]), config_of(6, 4, 8), "contiguous-max")
    assert got[0] == (11, 2, 3, 0, 0, 0, 4)


def test_worked_example_contiguous_with_a_third_waiting():
    got = parts(trace_of([A, B, (5, 1)]), config_of(6, 4, 8), "contiguous-max")
    assert got[0] == (11, 2, 3, 0, 0, 4, 0)


def test_a_free_hole_too_small_is_external_fragmentation():
    # First fit over 20 slots: [a 6][b 8][c 6]. After step 1 a and c are gone: two holes of 6, d needs 8 in a row.
    trace = trace_of([(6, 1), (4, 5), (6, 1), (7, 2)])
    got = parts(trace, config_of(6, 4, 10, placement="first-fit", longest_jump=1), "contiguous-oracle")
    assert got == [
        (16, 4, 0, 0, 0, 0, 0), (5, 3, 0, 0, 12, 0, 0), (6, 2, 0, 0, 12, 0, 0), (7, 1, 0, 0, 12, 0, 0), (8, 0, 0, 0, 12, 0, 0),
        (7, 1, 0, 0, 0, 0, 12), (8, 0, 0, 0, 0, 0, 12)]


def test_buddy_rounding_is_external_even_when_nobody_waits():
    assert parts(trace_of([(5, 1)]), config_of(6, 4, 8), "contiguous-oracle") == [(5, 0, 0, 0, 3, 0, 12)]


def test_pow2_reserves_the_next_power_of_two_of_the_output():
    # P 5, O 5: 5 + 8 = 13 reserved, 9 will be filled, rounded to 16 by the buddy arena of 32.
    assert parts(trace_of([(5, 5)]), config_of(9, 4, 32), "contiguous-pow2")[0] == (5, 4, 4, 0, 3, 0, 16)


def test_a_finished_prefix_is_cached_and_a_hit_takes_it_back():
    # Two full blocks are cached when the first request ends; the second may hit one of them (its last token is computed).
    trace = trace_of([(8, 1, 0), (8, 1, 3)], content=[[7, 8], [7, 8]])
    run, got = states(trace, config_of(6, 4, 16), "paged-prefix")
    assert got == [(0, (8, 0, 0, 0, 0, 0, 12), 1, 0), (1, (0, 0, 0, 8, 0, 0, 12), 0, 0), (3, (8, 0, 0, 4, 0, 0, 8), 1, 0)]
    assert run.window.parts == [16, 0, 0, 2 * 8 + 4, 0, 0, 12 + 24 + 8]
    assert run.window_us == (0, 4)


def test_a_shared_slot_counts_once():
    # Twins of 9 tokens: blocks 1 and 2 shared, each has a last block of its own with one token.
    trace = trace_of([(9, 1), (9, 1)], content=[[7, 8, 9], [7, 8, 9]])
    run, got = states(trace, config_of(6, 4, 16), "paged-prefix")
    assert got[0][1] == (10, 0, 6, 0, 0, 0, 4)
    assert (run.window.logical, run.window.physical) == (24, 16)


def test_two_blocks_with_equal_content_count_twice():
    # Twins of 8 tokens: only block 1 may be hit, the second block is computed again into another.
    trace = trace_of([(8, 1), (8, 1)], content=[[7, 8], [7, 8]])
    assert parts(trace, config_of(6, 4, 16), "paged-prefix")[0] == (12, 0, 0, 0, 0, 0, 8)


def test_free_blocks_are_remainder_while_the_head_is_refused():
    assert parts(trace_of([(8, 8), (16, 1)]), config_of(6, 4, 20), "paged")[0] == (8, 0, 0, 0, 0, 12, 0)


def test_cached_blocks_stay_cached_while_somebody_is_refused():
    # a leaves 2 cached blocks; b runs on 2 of the other 3; c needs 4 blocks and has 3 free (2 of them cached).
    trace = trace_of([(8, 1, 0), (8, 3, 1), (16, 1, 1)], content=[[1, 2], [3, 4], [5, 6, 7, 8]])
    got = parts(trace, config_of(6, 4, 20, longest_jump=1), "paged-prefix")
    assert got[:2] == [(8, 0, 0, 0, 0, 0, 12), (8, 0, 0, 8, 0, 4, 0)]


def test_reserved_counts_the_trace_length_over_a_preemption():
    # Two blocks. In step 2 a needs the second and b, running last, is preempted; b is barred, nothing is free.
    got = states(trace_of([(4, 5), (3, 2)]), config_of(3, 4, 9, longest_jump=1), "paged")
    assert [s[1] for s in got[1]] == [
        (7, 1, 0, 0, 0, 0, 0), (5, 3, 0, 0, 0, 0, 0), (6, 2, 0, 0, 0, 0, 0), (7, 1, 0, 0, 0, 0, 0), (8, 0, 0, 0, 0, 0, 0),
        (4, 0, 0, 0, 0, 0, 4)]
    assert got[0].preemptions == 1 and got[0].log.preemptions.tolist() == [0, 1]


def test_the_watermark_refuses_what_would_fit():
    # int(0.2 * 11) = 2 blocks stay free while somebody runs: b needs 2 of the 3 free ones.
    got = parts(trace_of([(28, 2), (8, 1)]), config_of(11, 4, 40, watermark=0.2, longest_jump=1), "paged")
    assert got == [(28, 0, 0, 0, 0, 12, 0), (29, 0, 3, 0, 0, 8, 0), (8, 0, 0, 0, 0, 0, 32)]


def test_the_watermark_keeps_nothing_from_who_is_alone():
    assert parts(trace_of([(36, 1)]), config_of(11, 4, 40, watermark=0.2), "paged") == [(36, 0, 0, 0, 0, 0, 4)]


def test_whoever_was_preempted_is_refused_what_is_left():
    # Four blocks: the second gives back two of them, the first takes one.
    got = parts(trace_of([(8, 5), (8, 2)]), config_of(5, 4, 16, longest_jump=1), "paged")
    assert got[:2] == [(16, 0, 0, 0, 0, 0, 0), (9, 3, 0, 0, 0, 4, 0)]


def test_a_head_held_back_by_max_num_seqs_is_not_refused():
    got = parts(trace_of([(4, 1), (4, 1)]), config_of(6, 4, 8, max_num_seqs=1), "paged")
    assert got == [(4, 0, 0, 0, 0, 0, 16), (4, 0, 0, 0, 0, 0, 16)]


def test_a_head_held_back_by_the_token_budget_is_not_refused():
    got = parts(trace_of([(8, 1), (4, 1)]), config_of(6, 4, 16, max_num_seqs=4, max_num_batched_tokens=8), "paged")
    assert got == [(8, 0, 0, 0, 0, 0, 12), (4, 0, 0, 0, 0, 0, 16)]


def test_nor_is_it_where_steps_are_made_together():
    # 4 blocks. Two decode and use up the budget of 2 until the first ends after step 5; the third, of 3 blocks, is refused then.
    trace, got = trace_of([(2, 6), (2, 6), (10, 1)]), {}
    for jump in (1, 50):
        got[jump] = states(trace, config_of(5, 4, 16, max_num_seqs=None, max_num_batched_tokens=2, longest_jump=jump), "paged")
    assert [state[1] for state in got[1][1]][:8] == [
        (2, 2, 0, 0, 0, 0, 12), (4, 4, 0, 0, 0, 0, 8), (6, 2, 0, 0, 0, 0, 8), (8, 3, 1, 0, 0, 0, 4), (10, 1, 1, 0, 0, 0, 4),
        (12, 2, 2, 0, 0, 0, 0), (6, 1, 1, 0, 0, 8, 0), (7, 0, 1, 0, 0, 8, 0)]
    assert got[1][0].ledger.total == got[50][0].ledger.total and got[50][0].steps == got[1][0].steps


def test_nor_one_whose_whole_prompt_is_more_than_the_rest_of_the_budget():
    # 5 blocks, no chunks: beside the first two there is a budget of 6 for the 7 tokens of the third, whose 2 blocks are not free
    # from step 3 on either.
    trace, got = trace_of([(2, 6), (2, 6), (7, 1)]), {}
    for jump in (1, 50):
        config = config_of(6, 4, 8, max_num_seqs=4, max_num_batched_tokens=8, enable_chunked_prefill=False, longest_jump=jump)
        got[jump] = states(trace, config, "paged")
    assert [state[1] for state in got[1][1]] == [
        (4, 4, 0, 0, 0, 0, 12), (6, 2, 0, 0, 0, 0, 12), (8, 0, 0, 0, 0, 0, 12), (10, 4, 2, 0, 0, 0, 4), (12, 2, 2, 0, 0, 0, 4),
        (14, 0, 2, 0, 0, 0, 4), (7, 0, 1, 0, 0, 0, 12)]
    assert got[1][0].ledger.total == got[50][0].ledger.total


def test_chunked_prefill_allocates_by_the_chunk_paged_and_at_once_contiguous():
    config = config_of(6, 4, 12, max_num_seqs=4, max_num_batched_tokens=4, placement="first-fit")
    assert parts(trace_of([(10, 1)]), config, "paged") == [
        (4, 0, 0, 0, 0, 0, 16), (8, 0, 0, 0, 0, 0, 12), (10, 0, 2, 0, 0, 0, 8)]
    assert parts(trace_of([(10, 1)]), config, "contiguous-oracle") == [
        (4, 6, 0, 0, 0, 0, 10), (8, 2, 0, 0, 0, 0, 10), (10, 0, 0, 0, 0, 0, 10)]


def test_output_stops_at_max_model_len_for_everybody():
    for allocator in ("paged", "contiguous-max", "contiguous-pow2", "contiguous-oracle"):
        run, got = states(trace_of([(5, 9)]), config_of(6, 4, 8, longest_jump=1), allocator)
        assert run.steps == 3 and got[-1][1][0] == 7, allocator


@pytest.mark.parametrize(("requests", "window", "mean"), [
    # One reservation of 8 in 8 slots. a: steps 0-2 (refused b from 0), b: steps 3-4, c: from 5 on the queue is empty.
    ([(5, 3), (5, 2), (5, 1)], (0, 5), 1.0),
    # Nobody is ever refused: the ordinary window.
    ([(5, 3)], (0, 3), 1.0),
])
def test_saturation_window(requests, window, mean):
    run, _ = states(trace_of(requests), config_of(3, 4, 8, saturate=True), "contiguous-max")
    assert run.window_us == window
    assert run.window.sequence_us / run.window.time_us == mean
    assert run.ledger.total.sequence_us == sum(run.log.residence_us.tolist()) == sum(o for _, o in requests)


def test_window_starts_with_the_first_request_that_is_served():
    # r0's prompt is as long as max_model_len allows output for none: rejected, it opens no window.
    run, _ = states(trace_of([(8, 1, 0), (4, 2, 5)]), config_of(6, 4, 8), "paged")
    assert run.window_us == (5, 7) and run.verdict.tolist() == [1, 0]


def test_idle_time_between_requests_is_counted():
    run, _ = states(trace_of([(4, 1, 0), (4, 1, 10)]), config_of(6, 4, 8), "paged")
    assert run.window.running_us == Counter({1: 2, 0: 9}) and run.window.time_us == 11
    assert run.window.parts == [8, 0, 0, 0, 0, 0, 9 * 20 + 2 * 16]


def test_a_wrong_sum_is_refused_with_all_terms():
    ledger = Ledger(20, 3)
    with pytest.raises(BrokenInvariant, match=r"has 20 slots, its parts add up to 19: token_states 11, .*idle 3"):
        ledger.book(PoolState(SlotCounts(11, 2, 3, 0, 0, 0, 3), 0, None, 2), 1)
    with pytest.raises(BrokenInvariant):
        ledger.book(PoolState(SlotCounts(11, 2, 3, -1, 0, 0, 5), 0, None, 2), 1)
    good = PoolState(SlotCounts(1, 0, 0, 0, 0, 0, 19), 0, None, 1)
    with pytest.raises(BrokenInvariant, match=r"20 slots, .*add up to 21"):
        ledger.book_run(good._replace(counts=SlotCounts(2, 0, 0, 0, 0, 0, 19)), SlotCounts(2, 0, 0, 0, 0, 0, 38), 0, 2)
    with pytest.raises(BrokenInvariant, match=r"20 slots for 2 us, .*add up to 41: token_states 3,"):
        ledger.book_run(good, SlotCounts(3, 0, 0, 0, 0, 0, 38), 0, 2)
    with pytest.raises(BrokenInvariant, match="internal -1"):
        ledger.book_run(good, SlotCounts(3, 0, -1, 0, 0, 0, 38), 0, 2)
    assert ledger.total == Integrals() and ledger.peak_running == 0


STEPS = (SlotCounts(5, 2, 1, 0, 0, 0, 12), SlotCounts(6, 4, 5, 4, 0, 0, 1), SlotCounts(1, 0, 4, 3, 0, 0, 12))


def of_arrays(steps):
    """The counts of several stretches; external and remainder are 0 in all of them, and given as a number."""
    columns = zip(*steps, strict=True)
    return SlotCounts(*(np.array(column) if any(column) else 0 for column in columns))


def test_steps_booked_together_are_those_booked_one_by_one():
    """The most sequences and the most used slots in the second of three steps; more internal than allowed in the third."""
    one, together = Ledger(20, 3), Ledger(20, 3)
    for times, running in [((10, 30, 7), (2, 4, 1)), ((1, 1, 1), (1, 2, 2))]:
        logical = [counts[0] + 2 for counts in STEPS]
        for counts, slots, us, n in zip(STEPS, logical, times, running, strict=True):
            one.book(PoolState(counts, slots, None, n), us)
        together.book_steps(of_arrays(STEPS), np.array(logical), np.array(running), np.array(times))
        assert together.total == one.total and dict(together.total.running_us) == dict(one.total.running_us)
        assert (together.peak_running, together.peak_used, together.internal_excess) == (4, 15, 4 - 3 * 1)
        assert together.before(1) == one.before(1) and type(together.total.parts[0]) is int
    assert together.total.parts[0] == 5 * (10 + 1) + 6 * (30 + 1) + 1 * (7 + 1)
    assert together.total.running_us == {2: 12, 4: 30, 1: 8}


@pytest.mark.parametrize(("wrong", "said"), [
    (SlotCounts(6, 4, 5, 4, 0, 0, 2), r"has 20 slots, its parts add up to 21: token_states 6, .*internal 5,.*idle 2$"),
    (SlotCounts(6, 4, 5, 4, 0, 0, 0), r"has 20 slots, its parts add up to 19: token_states 6, .*idle 0$"),
    (SlotCounts(6, 4, 5, -1, 0, 0, 6), r"has 20 slots, its parts add up to 20: .*cached -1,"),
])
def test_a_wrong_step_among_others_is_refused_with_its_terms(wrong, said):
    ledger, ones = Ledger(20, 3), np.ones(3, np.int64)
    with pytest.raises(BrokenInvariant, match=said):
        ledger.book_steps(of_arrays([STEPS[0], wrong, STEPS[2]]), ones, ones, ones)
    assert ledger.total == Integrals() and ledger.peak_running == 0


def test_integrals_do_not_overflow():
    slots, week = 160_000_000, 604_800_000_000
    ledger = Ledger(slots, 15)
    state = PoolState(SlotCounts(slots, 0, 0, 0, 0, 0, 0), slots, None, 1)
    ledger.book_run(state, SlotCounts(slots * 5 * week, 0, 0, 0, 0, 0, 0), slots * 5 * week, 5 * week)
    ledger.book(state, week)
    assert ledger.total.parts[0] == slots * week * 6 > 1 << 63


def test_difference_of_integrals():
    a = Integrals(5, [5] * 7, 5, 5, 5, Counter({1: 5}))
    b = Integrals(9, [8] * 7, 7, 6, 9, Counter({1: 5, 2: 4}))
    assert b - a == Integrals(4, [3] * 7, 2, 1, 4, Counter({2: 4}))
    assert (b - a).sequence_us == 8


def test_sums_up_to_a_moment_in_what_was_booked_last():
    ledger = Ledger(10, 3)
    ledger.book(PoolState(SlotCounts(4, 1, 0, 0, 0, 0, 5), 6, 2, 1), 100)
    assert ledger.before(100) == Integrals() and ledger.before(0) == ledger.total
    assert ledger.before(30) == Integrals(70, [280, 70, 0, 0, 0, 0, 350], 420, 350, 140, Counter({1: 70}))
    # 5 slots hold tokens for 10 us, then 6 and 1 is reserved for 20 us: 5 are idle, then 3.
    moving = PoolState(SlotCounts(6, 1, 0, 0, 0, 0, 3), 7, None, 2)
    ledger.book_run(moving, SlotCounts(170, 20, 0, 0, 0, 0, 110), 190, 30)
    assert ledger.before(15) == Integrals(115, [400 + 50 + 30, 100 + 5, 0, 0, 0, 0, 500 + 50 + 15], 600 + 50 + 35,
                                          500 + 50 + 35, 200, Counter({1: 100, 2: 15}))
    assert ledger.before(0).running_us is not ledger.total.running_us


def test_what_is_booked_adds_up():
    # 3 us with 5 used of 20 (2 of them internal), then 2 us with 9 used (4 internal), then nobody for 4 us.
    ledger = Ledger(20, 3)
    ledger.book(PoolState(SlotCounts(2, 1, 2, 4, 1, 0, 10), 7, 6, 1), 3)
    ledger.book(PoolState(SlotCounts(3, 2, 4, 0, 2, 9, 0), 10, 5, 2), 2)
    ledger.book(PoolState(SlotCounts(0, 0, 0, 8, 0, 0, 12), 0, None, 0), 4)
    assert ledger.total == Integrals(9, [12, 7, 14, 12 + 32, 7, 18, 30 + 48], 21 + 20, 15 + 18, 18 + 10,
                                     Counter({1: 3, 2: 2, 0: 4}))
    assert (ledger.peak_running, ledger.peak_used) == (2, 9)
    assert ledger.internal_excess == 0                 # 2 - 3 x 1, 4 - 3 x 2, and 0 of an empty pool


def test_internal_excess_is_below_zero_where_all_have_less_than_they_may():
    ledger = Ledger(20, 3)
    ledger.book(PoolState(SlotCounts(2, 1, 2, 0, 0, 0, 15), 5, None, 1), 3)
    assert ledger.internal_excess == 2 - 3
    assert Ledger(20, 3).internal_excess == -20        # nothing was booked: lower than any pool of 20 could have


def test_before_anything_is_booked():
    ledger = Ledger(20, 3)
    assert ledger.before(5) == Integrals() and (ledger.peak_running, ledger.peak_used) == (0, 0)


def test_a_run_of_steps_has_the_peak_of_its_last_state():
    ledger = Ledger(20, 3)
    last = PoolState(SlotCounts(4, 3, 2, 6, 0, 0, 5), 9, None, 1)
    ledger.book_run(last, SlotCounts(7, 7, 4, 12, 0, 0, 10), 18, 2)
    assert ledger.peak_used == 9 and ledger.total.physical == 18
    assert ledger.before(1).physical == 18 - 9         # cached slots are in no table


def test_two_pools_in_one():
    a, b = Ledger(20, 3), Ledger(10, 3)
    a.book(PoolState(SlotCounts(2, 1, 3, 4, 1, 0, 9), 7, 6, 2), 5)
    b.book(PoolState(SlotCounts(3, 2, 4, 0, 0, 1, 0), 8, 3, 1), 2)
    b.book(PoolState(SlotCounts(0, 0, 0, 0, 0, 0, 10), 0, None, 0), 3)
    both = merged([a, b], Counter({3: 2, 2: 3}))
    assert both.total == Integrals(5, [16, 9, 23, 20, 5, 2, 45 + 30], 35 + 16, 30 + 18, 30 + 6, Counter({3: 2, 2: 3}))
    assert (both.capacity, both.peak_running, both.peak_used, both.internal_excess) == (30, 3, 9, 4 - 3)
    assert merged([Ledger(4, 3)], Counter()).peak_running == 0
