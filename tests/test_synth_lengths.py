"""Lengths against theory, and how prompts and outputs go together."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from workloads.profiles import profile
from workloads.request import InputError
from workloads.synth import recipe
from workloads.synth.lengths import LENGTHS, OUTPUT, Tokens, correlate
from workloads.synth.times import Seconds

TOKENS, SECONDS = Tokens.__metadata__[0], Seconds.__metadata__[0]
N = 200_000


def rng(seed=0):
    return np.random.default_rng(seed)


def drawn(spec, n=N, key=TOKENS):
    return key.read(spec, "prompt")(rng(), n)


def ranks(values):
    """Middle ranks: equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def spearman(one, two):
    return float(np.corrcoef(ranks(one), ranks(two))[0, 1])


def test_constant_and_plain_numbers():
    assert set(drawn("constant:value=7").tolist()) == set(drawn(7).tolist()) == {7}
    assert drawn(2.5, 1, SECONDS).tolist() == [2_500_000]


def test_uniform_has_every_number_equally_often():
    counts = np.bincount(drawn("uniform:least=3,most=12"), minlength=13)
    assert counts[:3].sum() == 0 and len(counts) == 13
    assert np.abs(counts[3:] - N / 10).max() < 5 * np.sqrt(N * 0.09)


def test_geometric():
    lengths = drawn("geometric:mean=4")
    assert abs(lengths.mean() - 4) < 5 * np.sqrt(12 / N)          # variance (1 - p) / p^2
    assert abs(np.mean(lengths == 1) - 0.25) < 5 * np.sqrt(0.1875 / N)
    assert drawn("geometric:mean=4,most=2").max() == 2


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.5])
def test_zipf_chances(exponent):
    lengths = drawn({"kind": "zipf", "exponent": exponent, "least": 5, "most": 40})
    weights = np.arange(5, 41.0) ** -exponent
    counts = np.bincount(lengths, minlength=41)
    chances = weights / weights.sum()
    assert counts[:5].sum() == 0
    assert (np.abs(counts[5:] - N * chances) < 5 * np.sqrt(N * chances)).all()


def test_lognormal_by_mean_and_by_median():
    by_mean = drawn("lognormal:mean=200,sigma=0.8")
    deviation = 200 * np.sqrt(np.exp(0.64) - 1)
    assert abs(by_mean.mean() - 200) < 5 * deviation / np.sqrt(N)
    by_median = drawn("lognormal:median=200,sigma=0.8")
    assert np.median(by_median) == pytest.approx(200, rel=5 * 0.8 * 1.2533 / np.sqrt(N) + 0.0025)
    assert np.log(by_median).std() == pytest.approx(0.8, rel=0.01)


def test_lognormal_on_its_limits():
    """The mean of min(X, c): mean * Phi((ln c - mu) / s - s) + c * (1 - Phi((ln c - mu) / s))."""
    lengths = drawn("lognormal:median=100,sigma=1,most=300")
    at = np.log(3.0)
    phi = NormalDist().cdf
    expected = 100 * np.exp(0.5) * phi(at - 1) + 300 * (1 - phi(at))
    assert lengths.max() == 300
    assert abs(lengths.mean() - expected) < 5 * 90 / np.sqrt(N)
    assert drawn("lognormal:median=100,sigma=1,least=90").min() == 90


def test_lengths_are_at_least_one():
    assert drawn("lognormal:median=0.01,sigma=0.5").max() == 1
    assert set(drawn("uniform:least=0,most=1").tolist()) == {1}


def test_mixture_by_weight():
    parts = [{"weight": 3, "kind": "constant", "value": 10}, {"weight": 1, "kind": "uniform", "least": 100, "most": 200}]
    lengths = drawn({"kind": "mixture", "of": parts})
    assert abs(np.mean(lengths == 10) - 0.75) < 5 * np.sqrt(0.1875 / N)
    assert lengths[lengths > 10].mean() == pytest.approx(150, rel=0.01)
    seconds = drawn({"kind": "mixture", "of": [{"weight": 1, "kind": "constant", "value": 0.5}]}, 2, SECONDS)
    assert seconds.tolist() == [500_000, 500_000]


def test_profiles_are_the_tables():
    prompt, _ = profile("sharegpt").sample(500, rng())
    assert np.array_equal(drawn("profile:name=sharegpt", 500), prompt)
    outputs = drawn("profile:name=sharegpt", 200_000, OUTPUT)
    assert np.median(outputs) == pytest.approx(271, rel=0.02)
    assert np.median(drawn("profile:name=sharegpt,column=prompt", 200_000, OUTPUT)) == pytest.approx(35, abs=1)
    mixed = {"kind": "mixture", "of": [{"weight": 1, "kind": "profile", "name": "sharegpt"}]}
    assert np.median(drawn(mixed, 200_000, OUTPUT)) == pytest.approx(271, rel=0.02)


@pytest.mark.parametrize("wanted", [-1.0, -0.7, -0.2, 0.3, 0.5, 0.9, 1.0])
def test_correlation_of_lengths_that_all_differ(wanted):
    prompt, output = rng(1).permutation(500_000), rng(2).permutation(500_000) ** 2
    dealt = correlate(rng(3), prompt, output, wanted)
    assert np.array_equal(np.sort(dealt), np.sort(output))
    assert abs(spearman(prompt, dealt) - wanted) < (1e-12 if abs(wanted) == 1 else 5 / np.sqrt(500_000))


@pytest.mark.parametrize("wanted", [-0.5, 0.3, 0.8])
def test_correlation_in_a_recipe(wanted):
    table = {"requests": 50_000, "arrivals": "all-at-once", "prompt": "profile:name=azure-conv",
             "output": "lognormal:mean=200,sigma=0.8"}
    plain, together = recipe(table), recipe({**table, "lengths": {"correlation": wanted}})
    assert abs(spearman(plain.prompt_tokens, plain.output_tokens)) < 5 / np.sqrt(50_000)
    assert abs(spearman(together.prompt_tokens, together.output_tokens) - wanted) < 0.02
    assert np.array_equal(plain.prompt_tokens, together.prompt_tokens)
    assert np.array_equal(np.sort(plain.output_tokens), np.sort(together.output_tokens))


def test_correlation_of_equal_lengths():
    dealt = correlate(rng(), np.full(100, 5), np.arange(100), 1.0)
    assert sorted(dealt.tolist()) == list(range(100)) and dealt.tolist() != list(range(100))
    with pytest.raises(ValueError, match=r"from -1 to 1, not 1.1"):
        correlate(rng(), np.array([1]), np.array([1]), 1.1)


@pytest.mark.parametrize(("spec", "message"), [
    ("lognormal:sigma=1", "prompt: a lognormal needs its mean or its median"),
    ("lognormal:sigma=1,mean=3,median=2", "prompt: a lognormal needs its mean or its median"),
    ("lognormal:sigma=1,mean=3,least=5,most=4", "prompt: least is 5.0 and most is 4.0"),
    ("uniform:least=5,most=4", "prompt: least is 5 and most is 4"),
    ("zipf:exponent=1,least=0,most=4", "prompt.least: must be from 1 to 10,000,000, not 0"),
    ("zipf:exponent=1", "prompt: needs the key 'most'"),
    ("normal:mean=3", "unknown kind 'normal'; the kinds are constant, uniform, geometric, lognormal, zipf, profile, mixture"),
    ("profile:name=foo", "prompt.name: unknown 'foo'; there are agent-coding, .*, vtc-arena$"),
    (0, "prompt: must be from 1 to 10,000,000, not 0"),
    (2.5, "prompt: 2.5 is not a whole number"),
    (True, "prompt: must be a number or a table with a kind, not True"),
    ({"kind": "mixture", "of": 3}, r"prompt.of: must be a list of 1 to 100 tables, not 3"),
    ({"kind": "mixture", "of": [{"kind": "constant", "value": 1}]}, r"prompt.of\[0\]: needs the key 'weight'"),
    ({"kind": "mixture", "of": [{"weight": 1, "kind": "constant", "value": -1}]}, r"prompt.of\[0\].value: must be from 0"),
    ({"kind": "mixture", "of": [{"weight": float("nan"), "kind": "constant", "value": 1}]}, r"of\[0\].weight: must be above 0"),
])
def test_bad_lengths(spec, message):
    with pytest.raises(InputError, match=message) as caught:
        drawn(spec, 1)
    assert "\n" not in str(caught.value)


def test_every_kind_is_in_the_list():
    assert list(LENGTHS) == ["constant", "uniform", "geometric", "lognormal", "zipf", "profile", "mixture"]
