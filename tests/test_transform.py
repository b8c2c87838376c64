"""Cuts and changes keep the columns of a request together, count what they drop and leave the input alone."""

from __future__ import annotations

import doctest
import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads import merge as merging
from workloads import scaling, transform, units
from workloads.merge import merge, not_merged
from workloads.request import ContentIds, Trace
from workloads.scaling import scale_times, speed_for
from workloads.synthetic import poisson_arrivals_us
from workloads.transform import (
    all_at_once,
    between,
    drop_longer_than,
    from_zero,
    limit,
    sample,
    shuffle,
    take,
    with_poisson_arrivals,
)
from workloads.units import torn, units_of

N = 40


def tagged_trace(n=N):
    """Request r can be told by every one of its columns: all of them follow from r."""
    number = np.arange(n)
    counts = number % 3
    starts = np.concatenate(([0], np.cumsum(counts)))
    ids = np.repeat(number, counts) * 10
    return Trace(
        source="tagged",
        prompt_tokens=number + 1,
        output_tokens=2 * number + 1,
        arrival_us=number * number,
        max_tokens=3 * number + 1,
        session=number + 1000,
        content=ContentIds(ids, starts, 16, cover_output=True),
        dropped={"zero_output": 2},
    )


def numbers_of(trace):
    """Which requests these are, after checking that all columns but the time say the same."""
    number = trace.prompt_tokens - 1
    assert np.array_equal(trace.output_tokens, 2 * number + 1)
    assert np.array_equal(trace.max_tokens, 3 * number + 1)
    assert np.array_equal(trace.session, number + 1000)
    assert np.array_equal(np.diff(trace.content.starts), number % 3)
    assert np.array_equal(trace.content.ids, np.repeat(number, number % 3) * 10)
    assert (trace.content.span_tokens, trace.content.cover_output, trace.source) == (16, True, "tagged")
    return number.tolist()


def test_drop_longer_than():
    cut = drop_longer_than(tagged_trace(), 32)  # 3 r + 2 <= 32: r = 10 stays, r = 11 goes
    assert numbers_of(cut) == list(range(11))
    assert cut.arrival_us.tolist() == [r * r for r in range(11)]
    assert dict(cut.dropped) == {"zero_output": 2, "over_max_total_tokens": N - 11}


def test_drops_add_up_and_none_is_not_mentioned():
    trace = tagged_trace()
    assert dict(drop_longer_than(trace, 10**6).dropped) == {"zero_output": 2}
    twice = drop_longer_than(drop_longer_than(trace, 50), 32)
    assert dict(twice.dropped) == {"zero_output": 2, "over_max_total_tokens": N - 11}
    assert dict(trace.dropped) == {"zero_output": 2}


def test_drop_from_the_front_keeps_times():
    trace = Trace("a", np.array([9, 1]), np.array([9, 1]), arrival_us=np.array([0, 70]))
    assert drop_longer_than(trace, 5).arrival_us.tolist() == [70]


@pytest.mark.parametrize(("n", "left"), [(0, 0), (7, 7), (N, N), (N + 5, N)])
def test_limit(n, left):
    cut = limit(tagged_trace(), n)
    assert numbers_of(cut) == list(range(left))
    assert cut.arrival_us.tolist() == [r * r for r in range(left)]
    assert dict(cut.dropped) == {"zero_output": 2}


def test_shuffle():
    trace = tagged_trace()
    mixed = shuffle(trace, np.random.default_rng(1))
    numbers = numbers_of(mixed)
    assert numbers == np.random.default_rng(1).permutation(N).tolist()
    assert sorted(numbers) == list(range(N)) != numbers
    assert np.array_equal(mixed.arrival_us, trace.arrival_us)
    assert numbers_of(trace) == list(range(N))


def test_with_poisson_arrivals():
    timed = with_poisson_arrivals(tagged_trace(), 3.0, np.random.default_rng(2))
    assert numbers_of(timed) == list(range(N))
    assert np.array_equal(timed.arrival_us, poisson_arrivals_us(N, 3.0, np.random.default_rng(2)))


def test_all_at_once():
    timed = all_at_once(tagged_trace())
    assert numbers_of(timed) == list(range(N))
    assert timed.arrival_us.tolist() == [0] * N
    waiting = replace(tagged_trace(), session=np.zeros(N, np.int64), think_us=np.array([-1] + [5] * (N - 1)))
    assert waiting.closed_loop and not all_at_once(waiting).closed_loop


def test_take_refuses_to_go_back_in_time():
    assert numbers_of(take(tagged_trace(), np.array([3, 5, 8]))) == [3, 5, 8]
    with pytest.raises(ValueError, match="not decrease"):
        take(tagged_trace(), np.array([5, 3]))


@pytest.mark.parametrize(
    "change",
    [
        lambda trace: drop_longer_than(trace, 32),
        lambda trace: limit(trace, 3),
        lambda trace: shuffle(trace, np.random.default_rng(0)),
        lambda trace: with_poisson_arrivals(trace, 1.0, np.random.default_rng(0)),
        all_at_once,
    ],
    ids=["drop_longer_than", "limit", "shuffle", "with_poisson_arrivals", "all_at_once"],
)
def test_bare_and_empty_traces(change):
    bare = replace(tagged_trace(), arrival_us=None, max_tokens=None, session=None, content=None)
    changed = change(bare)
    assert (changed.max_tokens, changed.session, changed.content) == (None, None, None)
    assert len(change(tagged_trace(0))) == 0


@pytest.mark.parametrize(("call", "value"), [(drop_longer_than, 0), (limit, -1)])
def test_bad_arguments(call, value):
    with pytest.raises(ValueError, match=f"not {value}"):
        call(tagged_trace(), value)


def test_all_columns_stay_in_step():
    assert numbers_of(between(tagged_trace(), 9, 50)) == [3, 4, 5, 6, 7]
    assert numbers_of(between(tagged_trace(), 9, 49)) == [3, 4, 5, 6]
    assert numbers_of(from_zero(between(tagged_trace(), 9, None)))[:2] == [3, 4]
    drawn = numbers_of(sample(tagged_trace(), np.random.default_rng(4), fraction=0.25))
    assert len(drawn) == 10 and drawn == sorted(drawn)
    assert numbers_of(scale_times(tagged_trace(), Fraction(3))) == list(range(N))


# ---------------------------------------------------------------------- sessions as a whole
sessions = st.lists(st.integers(-1, 4), min_size=1, max_size=12)


def talk(numbers):
    n = len(numbers)
    return Trace("talk", np.arange(1, n + 1), np.ones(n, int), arrival_us=np.arange(n) * 10, session=np.array(numbers))


def groups(numbers):
    """Rows by unit, units in order of appearance."""
    found = {}
    for row, number in enumerate(numbers):
        found.setdefault(("alone", row) if number < 0 else number, []).append(row)
    return list(found.values())


def rows_of(trace):
    return (trace.prompt_tokens - 1).tolist()


@given(sessions, st.integers(0, 13))
def test_a_limit_keeps_the_first_sessions_that_fit(numbers, most):
    kept = []
    for rows in groups(numbers):
        if len(kept) + len(rows) > most:
            break
        kept += rows
    assert rows_of(limit(talk(numbers), most, whole=True)) == sorted(kept)
    assert rows_of(limit(talk(numbers), most)) == list(range(min(most, len(numbers))))


@given(sessions, st.integers(0, 130), st.integers(1, 60))
def test_a_session_belongs_to_the_time_in_which_it_begins(numbers, start, length):
    kept = [row for rows in groups(numbers) if start <= 10 * rows[0] < start + length for row in rows]
    assert rows_of(between(talk(numbers), start, start + length, whole=True)) == sorted(kept)


@given(sessions, st.integers(1, 14))
def test_one_that_is_too_long_takes_its_session_with_it(numbers, longest):
    kept = [row for rows in groups(numbers) if all(row + 2 <= longest for row in rows) for row in rows]
    cut = drop_longer_than(talk(numbers), longest, whole=True)
    assert rows_of(cut) == sorted(kept)
    too_long = sum(row + 2 > longest for row in range(len(numbers)))
    others = len(numbers) - too_long - len(kept)
    assert dict(cut.dropped) == {reason: count for reason, count in (
        ("over_max_total_tokens", too_long), ("session_of_one_over_max_total_tokens", others)) if count}


@given(sessions, st.integers(1, 13), st.integers(0, 3))
def test_a_sample_draws_sessions(numbers, most, seed):
    trace, units_there = talk(numbers), groups(numbers)
    order = np.random.default_rng(seed).permutation(len(units_there))
    sums = list(itertools.accumulate(len(units_there[i]) for i in order))
    kept = [row for i, total in zip(order, sums, strict=True) if total <= most for row in units_there[i]]
    some = sample(trace, np.random.default_rng(seed), requests=most, whole=True)
    assert rows_of(some) == sorted(kept) and torn(trace, some) == 0
    half = sample(trace, np.random.default_rng(seed), fraction=0.5, whole=True)
    assert rows_of(half) == sorted(row for i in order[:max(1, round(len(order) / 2))] for row in units_there[i])


@given(sessions, st.integers(0, 12))
def test_torn_sessions_are_counted(numbers, most):
    cut = limit(talk(numbers), most)
    split = sum(0 < sum(row < most for row in rows) < len(rows) for rows in groups(numbers))
    assert torn(talk(numbers), cut) == split
    assert units_of(talk(numbers)).max() + 1 == len(groups(numbers))


# ---------------------------------------------------------------------- times
@given(st.lists(st.integers(0, 10**17), min_size=1, max_size=6).map(sorted), st.fractions(Fraction(1, 9), 10**9))
def test_times_are_divided_exactly(times, speed):
    trace = Trace("a", np.ones(len(times), int), np.ones(len(times), int), arrival_us=np.array(times))
    assert scale_times(trace, speed).arrival_us.tolist() == [round(Fraction(t) / speed) for t in times]   # half to even


def test_the_rate_is_met():
    trace = Trace("a", np.ones(3, int), np.ones(3, int), arrival_us=np.array([0, 1, 3_000_000]))
    assert speed_for(trace, Fraction(2)) == 2             # 3 in 3 s are 1 a second
    assert scale_times(trace, speed_for(trace, Fraction(2))).duration_s == 1.5


@pytest.mark.parametrize(("call", "words"), [
    (lambda t: scale_times(t, Fraction(0)), "above 0, not 0"),
    (lambda t: scale_times(t, Fraction(1, 10**18)), "over 1e12 s"),
    (lambda t: scale_times(replace(t, arrival_us=None), Fraction(1)), "has no arrival times"),
    (lambda t: speed_for(replace(t, arrival_us=None), Fraction(1)), "has no arrival times"),
    (lambda t: speed_for(all_at_once(t), Fraction(1)), "arrive at once"),
    (lambda t: between(t, 5, 5), "must be after"),
    (lambda t: between(replace(t, arrival_us=None), 5, 6), "has no arrival times"),
    (lambda t: sample(t, np.random.default_rng(0)), "either a number of requests or a fraction"),
    (lambda t: sample(t, np.random.default_rng(0), requests=0), "not 0"),
    (lambda t: sample(t, np.random.default_rng(0), fraction=1.5), "not 1.5"),
    (lambda t: merge([]), "no trace"),
    (lambda t: merge([t, replace(t, arrival_us=None)]), "has no arrival times"),
])
def test_what_cannot_be_done(call, words):
    with pytest.raises(ValueError, match=words):
        call(tagged_trace())


# ---------------------------------------------------------------------- merging
def part(name, rows, span, cover=False, **columns):
    """Rows of (time, prompt, ids), one output token each."""
    times, prompt, ids = zip(*rows, strict=True)
    content = ContentIds(np.array([i for row in ids for i in row], np.int64), np.cumsum([0, *map(len, ids)]), span, cover)
    return Trace(name, np.array(prompt), np.ones(len(rows), int), arrival_us=np.array(times), content=content, **columns)


def test_merge_keeps_time_order_and_columns_apart():
    one = part("a", [(0, 32, [4]), (9, 20, [7])], 32, session=np.array([5, 5]), think_us=np.array([-1, 3]), dropped={"x": 1})
    two = part("b", [(0, 16, [0]), (5, 20, [0, 3])], 16, priority=np.array([2, 1]), dropped={"x": 2, "y": 1}, notes=("said",))
    both = merge([one, two])
    assert (both.source, dict(both.dropped), both.notes) == ("a + b", {"x": 3, "y": 1}, ("said",))
    assert both.arrival_us.tolist() == [0, 0, 5, 9] and both.prompt_tokens.tolist() == [32, 16, 20, 20]
    assert both.session.tolist() == [0, -1, -1, 0] and both.think_us.tolist() == [-1, -1, -1, 3]
    assert both.priority.tolist() == [0, 2, 1, 0] and both.max_tokens is None and both.samples is None
    # 4 -> 8 9, 7 -> 14 15; behind them 0 -> 16, 3 -> 19
    assert both.content.ids.tolist() == [8, 9, 16, 16, 19, 14, 15] and both.content.starts.tolist() == [0, 2, 3, 5, 7]
    assert both.content.span_tokens == 16 and not_merged([one, two]) == []


def test_a_trace_without_ids_has_none_among_others():
    bare = Trace("bare", np.array([7]), np.array([1]), arrival_us=np.array([3]))
    both = merge([part("a", [(0, 16, [4])], 16), bare])
    assert both.content.starts.tolist() == [0, 1, 1]
    assert merge([bare, bare]).content is None and len(merge([bare])) == 1


def test_ids_of_prompts_alone_do_not_grow_over_outputs():
    """20 tokens of a prompt: the second id stands for 4 of them, and would for 12 of an output nobody knows."""
    prompts, outputs = part("a", [(0, 20, [4, 5]), (1, 16, [4])], 16), part("b", [(2, 20, [4, 5])], 16, cover=True)
    both = merge([prompts, outputs], shared_ids=True)
    assert both.content.cover_output and both.content.ids.tolist() == [4, 4, 4, 5]
    assert "ids go on over outputs in some traces only" in not_merged([prompts, outputs])[0]


def test_the_largest_ids_leave_room():
    most = 2**63 - 1
    both = merge([part("a", [(0, 32, [most, 3])], 16), part("b", [(1, 32, [most, most - 1])], 16)])
    assert both.content.ids.tolist() == [1, 0, 3, 2]


def test_doctests():
    assert all(doctest.testmod(module).failed == 0 for module in (transform, scaling, merging, units))
