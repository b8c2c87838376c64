"""Sentences and frames of the memory map, by hand: what happens in tiny pools, and what is said of it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from small import config_of, trace_of
from viewed import WORKED, lane_json, seen, small


def test_the_ledgers_worked_example_frame_by_frame():
    view = small(WORKED, "paged", 6, max_model_len=8)
    assert view.sentences == [
        (0, "arrive", "r0 arrives: 5 prompt tokens, 3 tokens to generate; nobody else waits."),
        (0, "arrive", "r1 arrives: 6 prompt tokens, 1 token to generate; 1 waits already."),
        (0, "admit", "r0 admitted: takes blocks 1, 2; 5 tokens computed in this step."),
        (0, "admit", "r1 admitted: takes blocks 3, 4; 6 tokens computed in this step."),
        (1, "finish", "r1 has its last token and leaves: its 2 blocks 4, 3 are given back."),
        (1, "step", "A step begins: 1 sequence computes 1 token."),
        (2, "step", "A step begins: 1 sequence computes 1 token."),
        (3, "finish", "r0 has its last token and leaves: its 2 blocks 2, 1 are given back."),
    ]
    assert [frame.pool.parts for frame in view.frames] == [
        (0, 0, 0, 0, 0, 0, 20), (0, 0, 0, 0, 0, 0, 20), (11, 2, 3, 0, 0, 0, 4), (5, 2, 1, 0, 0, 0, 12), (6, 1, 1, 0, 0, 0, 12),
        (7, 0, 1, 0, 0, 0, 12), (0, 0, 0, 0, 0, 0, 20)]
    assert view.frames[2].pool.rows[1, 0].blocks == (3, 4) and view.frames[3].pool.queue.tolist() == [4, 3, 5]
    assert [frame.pool.waiting for frame in view.frames[:3]] == [(0,), (0, 1), ()]


def test_a_reservation_that_finds_too_little_is_refused_for_the_remainder():
    view = small([*WORKED, (5, 3)], "contiguous-max", 6, max_model_len=8)
    assert view.said("admit")[0] == "r0 admitted: reserves 8 slots in a row from address 0 on, of which it will fill 7; " \
                                    "5 tokens computed in this step."
    assert view.said("refuse") == ["r2 refused: needs 8 contiguous slots; 4 free, largest hole 4: too few in total (remainder)."]
    first = next(frame for frame in view.frames if frame.pool.rows)
    assert first.pool.parts == (11, 2, 3, 0, 0, 4, 0) and first.pool.holes == ((16, 4),)
    assert view.said("finish")[0] == "r1 has its last token and leaves: 8 slots at address 8 are free again, 2 of them were " \
                                     "empty."


def test_holes_that_do_not_lie_in_a_row_are_external_fragmentation():
    # 20 slots: a 4, b 8, c 4, d 4; a and c end at once, and 8 in a row are not there.
    view = small([(4, 1), (2, 7), (4, 1), (2, 3), (7, 2)], "contiguous-oracle", 6, placement="first-fit")
    assert view.said("refuse") == [
        "r4 refused: needs 8 contiguous slots; 0 free, largest hole 0: too few in total (remainder).",
        "r4 refused: needs 8 contiguous slots; 8 free, largest hole 4: external fragmentation."]
    second = next(frame for frame in view.frames if "external" in frame.refused)
    assert second.pool.holes == ((0, 4), (12, 4)) and second.pool.parts[4] == 8


def test_buddy_rounding_is_told():
    view = small([(5, 1), (9, 1)], "contiguous-oracle", 5)
    assert view.said("admit")[0].startswith("r0 admitted: reserves 5 slots in a row from address 0 on, rounded up to 8 by the "
                                            "buddy allocator, of which it will fill 5;")
    assert view.said("refuse") == ["r1 refused: needs 9 contiguous slots, rounded up to 16 by the buddy allocator; 8 free "
                                   "(3 slots are lost to rounding), largest hole 8: too few in total (remainder)."]


def test_a_preemption_says_what_becomes_of_the_blocks():
    view = small([(8, 6), (8, 6)], "paged", 6)         # 5 blocks: both take 2, then 1 is left for two that need one
    assert view.said("preempt") == ["r1 preempted, as no block is left for the others: its 2 blocks 4, 3 are given back; its 8 "
                                    "computed tokens will have to be computed again; it waits at the head of the queue."]
    assert view.said("grow")[0] == "r0 takes block 5."
    short = [frame.refused for frame in view.frames if "free" in frame.refused]
    assert "r1 waits: nobody is admitted in a step that preempts." in [frame.refused for frame in view.frames]
    assert view.said("refuse") == short[:1]            # once, and not in the step that preempts
    assert short[0] == "r1 refused: needs 3 new blocks; 2 free: 1 too few."
    assert view.said("admit")[2].startswith("r1 admitted again: takes blocks")


def test_a_block_taken_at_once_is_told():
    view = small([(8, 6), (8, 6)], "paged", 5)         # 4 blocks, none left when the first must grow
    assert "its 2 blocks 4, 3 are given back (taken at once by r0 (4))" in view.said("preempt")[0]


SHARED = [[1, 2, 3], [1, 2, 4]]


def test_what_is_shared_and_with_whom():
    view = small([(9, 4), (10, 4, 1)], "paged-prefix", 20, content=SHARED)
    assert view.said("share") == ["r1 finds 8 tokens of its prompt in the prefix cache: blocks 1, 2 shared with r0."]
    assert view.said("admit")[1] == "r1 admitted: takes block 4; 2 tokens computed in this step."
    assert view.said("finish")[0] == "r0 has its last token and leaves: its 3 blocks 3 to 1 are given back (1 stays cached, " \
                                     "2 stay with others that share them)."
    shared = next(frame for frame in view.frames if len(frame.pool.rows) == 2).pool
    assert shared.holders([1, 3]) == {1: [(0, 0), (1, 0)], 3: [(0, 0)]} and shared.parts[0] == 9 + 1 + 2


def test_cached_blocks_are_found_again_or_evicted():
    again = small([(9, 1), (9, 1, 5)], "paged-prefix", 20, content=[[1, 2, 3], [1, 2, 3]])
    assert again.said("share") == ["r1 finds 8 tokens of its prompt in the prefix cache: blocks 1, 2 held by nobody else."]
    gone = small([(8, 1), (20, 1, 5)], "paged-prefix", 6, content=[[1, 2], [5, 6, 7, 8, 9]])
    assert gone.said("evict") == ["2 cached blocks evicted to be used anew: 2 (written by r0, now held by r1), 1 (written by r0, "
                                  "now held by r1); their contents are no longer findable."]
    before = next(frame for frame in gone.frames if frame.time_us == 1)
    assert before.pool.parts[3] == 8 and before.pool.queue.tolist() == [3, 4, 5, 2, 1]


def test_its_own_prefix_in_the_free_queue_does_not_help():
    # 6 blocks. r0 leaves 3 cached; r1 takes 2 of the 3 others; r2 finds 2 of the cached and needs 4 more: 1 + 3 free.
    view = small([(12, 1), (7, 9, 2), (24, 1, 3)], "paged-prefix", 7, content=[[1, 2, 3], [8, 9], [1, 2, 4, 5, 6, 7]])
    assert view.said("refuse") == ["r2 refused: needs 4 new blocks, 2 free blocks of its own prefix to be kept; 4 free (3 of "
                                   "them cached): 2 too few."]


def test_the_watermark_is_told():
    view = small([(4, 5), (12, 1)], "paged", 6, watermark=0.4)
    assert view.said("refuse") == ["r1 refused: needs 3 new blocks, 2 blocks must stay free (watermark); 4 free: 1 too few."]


def test_samples_branch_and_copy():
    trace = replace(trace_of([(6, 3)]), samples=np.array([2]))
    view = seen(trace, config_of(9, 4, 32, longest_jump=1), "paged")
    assert view.said("fork", "copy") == [
        "r0 branches: 2 sequences hold the same blocks.",
        "r0 writes into block 2, which others hold too: it goes on in a copy, block 3 (copy-on-write)."]
    assert view.said("finish") == ["r0 has its last token and leaves: its 3 blocks 3 to 1 are given back."]


def test_reservations_of_sequences_to_come_are_theirs():
    trace = replace(trace_of([(6, 3)]), samples=np.array([2]))
    view = seen(trace, config_of(9, 4, 32, longest_jump=1), "contiguous-oracle")
    first = next(frame for frame in view.frames if frame.pool.rows).pool
    assert {key: (row.computed, row.place) for key, row in first.rows.items()} == {(0, 0): (6, (0, 8, 8)), (0, 1): (0, (8, 8, 8))}
    assert "(and 1 reservation as large for its other sequences)" in view.said("admit")[0]


def test_swapped_requests_come_back():
    view = small([(8, 6), (8, 6)], "paged", 6, swap_blocks=8)
    assert "they are copied to host memory, from which it will go on; it waits" in view.said("preempt")[0]
    assert any("8 token states come back from host memory" in text for text in view.said("admit"))


# ---------------------------------------------------------------------- the formula
def formula(allocator, num_blocks, block_size=4, max_model_len=8, **changes):
    """Lines that stay, and the moving ones with the numbers of the first moment at which somebody runs."""
    view = small(WORKED, allocator, num_blocks, block_size, max_model_len, **changes)
    lane = lane_json(view.log, view.run)
    numbers = next(change["m"] for change, frame in zip(lane["frames"], view.frames, strict=True) if frame.pool.rows)
    return lane["fixed"], [re.sub(r"\{(\d+)\}", lambda place: numbers[int(place[1])], line) for line in lane["moving"]]


def test_the_formula_says_why_more_run_than_the_longest_could():
    fixed, moving = formula("paged", 6)
    assert fixed[1] == "longest requests at once, as vLLM reports it: 6 blocks ÷ ⌈8 ÷ 4⌉ = 6 ÷ 2 = 3.00; vLLM counts the null " \
                       "block too, without it ⌊5 ÷ 2⌋ = 2"
    assert moving[1] == "now 4 in use ÷ 2 sequences = 2.0 blocks on average (shared ones counted once), where one of the " \
                        "longest takes 2: that is why more can run at once"


def test_the_formula_counts_in_what_the_pool_is_divided_into():
    fixed, moving = formula("token", 6)
    assert fixed[1] == "longest requests at once: 20 slots, ⌈8 ÷ 1⌉ = 8 each: ⌊20 ÷ 8⌋ = 2"
    assert moving[0].startswith("2 sequences: Σ ⌈tokens ÷ 1⌉ = 11 slots in block tables, 0 of them the same slot once more")
    fixed, moving = formula("vattention", 6, page_slots=6)
    assert fixed[1] == "longest requests at once: 3 pages, ⌈8 ÷ 6⌉ = 2 each: ⌊3 ÷ 2⌋ = 1"
    assert " pages on average " in moving[1]


def test_what_rounding_adds_is_outside_of_the_useful_share():
    _, moving = formula("contiguous-oracle", 6)
    assert moving[1].endswith(" = 84.6 %; what rounding adds, 16 − 13 slots, is outside of it (external fragmentation)")
