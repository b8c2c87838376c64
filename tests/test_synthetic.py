"""Made-up workloads: the right distribution, the right sharing, the same bytes from the same seed."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from workloads import synthetic
from workloads.profiles import profile
from workloads.synthetic import chat_workload, poisson_arrivals_us


def rng(seed=0):
    return np.random.default_rng(seed)


def test_poisson_gaps_are_exponential():
    times = poisson_arrivals_us(200_001, 4.0, rng())
    gaps_s = np.diff(times) / 1e6
    assert times[0] == 0
    assert gaps_s.mean() == pytest.approx(0.25, rel=0.01)
    assert gaps_s.std() == pytest.approx(0.25, rel=0.01)
    assert np.median(gaps_s) == pytest.approx(0.25 * np.log(2), rel=0.01)
    assert np.mean(gaps_s > 0.5) == pytest.approx(np.exp(-2), rel=0.02)


def test_poisson_times_are_sums_rounded_once():
    gaps = rng(5).exponential(size=9) * (1e6 / 3.0)
    expected = [0] + [round(float(sum_us)) for sum_us in np.cumsum(gaps)]  # Python rounds half to even too
    times = poisson_arrivals_us(10, 3.0, rng(5))
    assert times.tolist() == expected
    assert times.dtype == np.int64


def test_a_longer_run_begins_with_the_shorter_one():
    assert poisson_arrivals_us(5, 2.0, rng()).tolist() == poisson_arrivals_us(9, 2.0, rng())[:5].tolist()


@pytest.mark.parametrize("n", [0, 1])
def test_few_arrivals(n):
    assert poisson_arrivals_us(n, 1.0, rng()).tolist() == [0] * n


@pytest.mark.parametrize("rate", [0, -1.0, float("nan"), float("inf")])
def test_bad_rates(rate):
    with pytest.raises(ValueError, match=f"rate must be above 0 requests a second and finite, not {rate}"):
        poisson_arrivals_us(3, rate, rng())


def test_other_bad_arrivals():
    with pytest.raises(ValueError, match="must be 0 or more, not -1"):
        poisson_arrivals_us(-1, 1.0, rng())
    with pytest.raises(ValueError, match="the rate 1e-300 is so low"):
        poisson_arrivals_us(3, 1e-300, rng())


def test_chat_lengths_and_arrivals():
    trace = chat_workload(rng(), requests=500, rate_per_s=4.0, system_tokens=64)
    again = rng()
    user, output = profile("sharegpt").sample(500, again)
    assert np.array_equal(trace.prompt_tokens, user + 64)
    assert np.array_equal(trace.output_tokens, output)
    assert np.array_equal(trace.arrival_us, poisson_arrivals_us(500, 4.0, again))


@pytest.mark.parametrize("system_tokens", [0, 16, 256])
def test_chat_shares_the_system_prompt_and_nothing_else(system_tokens):
    trace = chat_workload(rng(3), requests=300, system_tokens=system_tokens)
    content, shared = trace.content, system_tokens // 16
    assert content.span_tokens == 16
    assert not content.cover_output
    assert np.array_equal(np.diff(content.starts), -(-trace.prompt_tokens // 16))
    rows = [content.ids[content.starts[r] : content.starts[r + 1]].tolist() for r in range(300)]
    assert all(row[:shared] == list(range(shared)) for row in rows)
    own = [one for row in rows for one in row[shared:]]
    assert own == list(range(shared, shared + len(own)))  # dense, each used once


def test_chat_source():
    made_of = "azure-conv lengths, 1,000 requests, 128-token system prompt, 0.5 req/s"
    source = f"built-in chat workload ({made_of}, seed 42)"
    assert chat_workload(rng(42), 1000, 0.5, 128, "azure-conv").source == source
    child = np.random.Generator(np.random.PCG64(np.random.SeedSequence(42).spawn(2)[1]))
    assert chat_workload(child, 1000, 0.5, 128, "azure-conv").source == source.replace("42", "42, stream 1")


def test_chat_default():
    trace = chat_workload(rng=rng())
    assert len(trace) == 1000
    assert "256-token system prompt, 2 req/s, seed 0" in trace.source


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"requests": 0}, "must be 1 or more, not 0"),
        ({"system_tokens": 100}, "must be a multiple of 16 tokens, not 100"),
        ({"system_tokens": -16}, "must be a multiple of 16 tokens, not -16"),
        ({"profile": "foo"}, "unknown length profile 'foo'"),
        ({"rate_per_s": 0.0}, "rate must be above 0"),
    ],
)
def test_bad_chat_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        chat_workload(rng(), **arguments)


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    first, second = (chat_workload(rng(9), requests=20) for _ in range(2))
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    for name in ("prompt_tokens", "output_tokens", "arrival_us"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_doctests():
    assert doctest.testmod(synthetic).failed == 0
