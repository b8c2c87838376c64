"""Arenas by hand and against the naive model on random walks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import NaiveArena
from small import LONG

from sim.memory.arena import PLACEMENTS, BuddyArena, FitArena


def test_paper_pool_holds_seven_reservations_of_2048():
    # OPT-13B on an A100-40GB: 15,728 slots = 8192 + 4096 + 2048 + 1024 + 256 + 64 + 32 + 16.
    arena = BuddyArena(15_728)
    assert [arena.place(2048) for _ in range(8)] == [8192 + 4096, 8192, 8192 + 2048, 0, 2048, 4096, 6144, None]
    assert arena.free == 1392 and arena.largest_hole() == 1024


def test_buddy_takes_the_smallest_block_that_fits_lowest_address_first():
    arena = BuddyArena(20)
    assert arena.place(3) == 16                        # the cut of 4, not a half of the 16
    assert [arena.place(4), arena.place(2), arena.place(1)] == [0, 4, 6]
    arena.release(4, 2)
    assert arena.place(1) == 7                         # the single free slot beside 6 before a half of 4..5


def test_buddies_merge_at_once_but_not_across_a_cut():
    arena = BuddyArena(24)                             # 16 + 8
    starts = [arena.place(8) for _ in range(3)]
    assert starts == [16, 0, 8]
    for start in starts:
        arena.release(start, 8)
    assert arena.largest_hole() == 16 and arena.place(17) is None and arena.place(16) == 0


def test_first_fit_and_best_fit_differ():
    for best, expected in ((False, 0), (True, 6)):
        arena = FitArena(12, best)
        sizes = (4, 2, 3, 3)                           # holes of 4 at 0 and of 3 at 6 after two releases
        starts = [arena.place(s) for s in sizes]
        arena.release(starts[0], 4)
        arena.release(starts[2], 3)
        assert arena.place(3) == expected


def test_holes_merge_on_both_sides():
    arena = FitArena(9, best=False)
    starts = [arena.place(3) for _ in range(3)]
    arena.release(starts[0], 3)
    arena.release(starts[2], 3)
    assert arena.largest_hole() == 3 and not arena.fits(4)
    arena.release(starts[1], 3)
    assert arena.largest_hole() == 9 and arena.place(9) == 0


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_double_free_raises(kind):
    arena = PLACEMENTS[kind](16)
    start = arena.place(4)
    arena.place(4)
    arena.release(start, 4)
    with pytest.raises(ValueError, match="double free of slots 0 to 3"):
        arena.release(start, 4)


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_freeing_part_of_a_hole_raises_and_changes_nothing(kind):
    arena = PLACEMENTS[kind](16)
    assert [arena.place(4) for _ in range(3)] == [0, 4, 8]
    arena.release(0, 4)
    arena.release(4, 4)
    with pytest.raises(ValueError, match="double free of slots 4 to 7"):
        arena.release(4, 4)
    assert (arena.free, arena.holes()) == (12, [(0, 8), (12, 4)])


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_a_capacity_below_zero_is_named(kind):
    with pytest.raises(ValueError, match="capacity must be 0 or more slots, not -1"):
        PLACEMENTS[kind](-1)


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_an_empty_pool_holds_nothing(kind):
    arena = PLACEMENTS[kind](0)
    assert arena.place(1) is None and arena.largest_hole() == 0 and arena.holes() == []


@settings(max_examples=120 * LONG)
@given(st.sampled_from(sorted(PLACEMENTS)), st.integers(1, 70), st.randoms(use_true_random=False))
def test_random_walk_against_the_naive_model(kind, capacity, rng):
    arena, naive, held = PLACEMENTS[kind](capacity), NaiveArena(capacity, kind), []
    for _ in range(60):
        if held and rng.random() < 0.45:
            start, size = held.pop(rng.randrange(len(held)))
            arena.release(start, size)
            naive.release(start, size)
        else:
            size = rng.randint(1, max(1, capacity // rng.choice((1, 2, 4, 8))))
            fits = arena.fits(size)
            start = arena.place(size)
            assert start == naive.place(size)
            assert fits == (start is not None)
            if start is not None:
                held.append((start, size))
        assert arena.free == naive.free()
        assert arena.largest_hole() == naive.largest_hole()
        assert arena.holes() == (naive.free_buddies() if kind == "buddy" else naive.holes())
