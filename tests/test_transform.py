"""Cuts and changes keep the columns of a request together, count what they drop and leave the input alone."""

from __future__ import annotations

import doctest
from dataclasses import replace

import numpy as np
import pytest

from workloads import transform
from workloads.request import ContentIds, Trace
from workloads.synthetic import poisson_arrivals_us
from workloads.transform import all_at_once, drop_longer_than, limit, shuffle, take, with_poisson_arrivals

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


def test_doctests():
    assert doctest.testmod(transform).failed == 0
