"""API and GPU cost, by hand and with ==."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.sizing.cost import HOURS_PER_MONTH, Fleet, Request, break_even, monthly_cost
from workloads.request import InputError

CHAT = Request(prompt_tokens=2000, output_tokens=500, dollars_per_million_input=0.15, dollars_per_million_output=0.6)


def test_a_month_of_a_thousand_requests_a_day():
    cost = monthly_cost(CHAT, 1000)
    assert cost.input_tokens == 60_000_000                    # 1000 x 30 x 2000
    assert cost.output_tokens == 15_000_000
    assert cost.api_dollars == 18                             # 60 x 0.15 + 15 x 0.60 = 9 + 9


def test_floats_count_as_the_decimals_they_print():
    assert CHAT.api_dollars == Fraction(6, 10_000)            # 2000 x 0.15 + 500 x 0.6 = 600 dollars a million requests
    assert monthly_cost(Request(1, 1, 0.1, 0.2), 1).api_dollars == Fraction(9, 1_000_000)    # 30 x 0.3, not 0.30000000000000004
    assert monthly_cost(Request(Fraction(1, 3), 0.5, 3, 4), 1).api_dollars == Fraction(90, 1_000_000)


def test_input_and_output_have_their_own_prices():
    assert monthly_cost(Request(2000, 500, 3, 15), 1000).api_dollars == 60 * 3 + 15 * 15
    assert monthly_cost(Request(2000, 500, 0, 15), 1000).api_dollars == 15 * 15
    assert monthly_cost(Request(2000, 500, 3, 0), 1000).api_dollars == 60 * 3


def test_gpus_are_paid_720_hours_a_month():
    assert HOURS_PER_MONTH == 720
    assert Fleet(2, gpus=4).dollars_per_month == 5760
    assert Fleet(2, gpus=4.0).dollars_per_month == Fraction(5760)
    assert Fleet(1.99, gpus=8).dollars_per_month == Fraction(1_146_240, 100)


def test_dollars_per_million_tokens():
    # 2 GPUs at 3.60 an hour are 0.002 dollars a second: 4000 tokens/s are 0.5 dollars a million, at half use 1
    assert Fleet(3.6, 2, tokens_per_s=4000).dollars_per_million_tokens == Fraction(1, 2)
    assert Fleet(3.6, 2, tokens_per_s=4000, utilisation=0.5).dollars_per_million_tokens == 1
    assert Fleet(3.6, 2, tokens_per_s=4000, counted="output").dollars_per_million_tokens == Fraction(1, 2)
    assert Fleet(3.6, 2).dollars_per_million_tokens is None


def test_break_even():
    # 2.50 x 720 = 1800 dollars a month, 60 a day; a request is 0.0006 dollars: 100,000 a day, 1.157 a second
    even = break_even(CHAT, Fleet(2.5, 1))
    assert even.requests_per_day == 100_000
    assert even.requests_per_s == Fraction(100_000, 86_400)
    assert even.tokens_per_s == Fraction(250_000_000, 86_400)
    assert even.within_throughput is None


def test_break_even_counts_the_tokens_that_the_throughput_counts():
    even = break_even(CHAT, Fleet(2.5, 1, tokens_per_s=579, counted="output"))
    assert even.tokens_per_s == Fraction(50_000_000, 86_400)                      # 578.70: prompts are not counted
    assert even.within_throughput is True
    assert break_even(CHAT, Fleet(2.5, 1, tokens_per_s=579)).within_throughput is False


def test_utilisation_limits_what_the_gpus_can_serve():
    need = Fraction(250_000_000, 86_400)
    assert break_even(CHAT, Fleet(2.5, 1, tokens_per_s=need)).within_throughput is True          # just enough
    assert break_even(CHAT, Fleet(2.5, 1, tokens_per_s=2 * need, utilisation=0.5)).within_throughput is True
    assert break_even(CHAT, Fleet(2.5, 1, tokens_per_s=2 * need, utilisation=0.49)).within_throughput is False


MONEY = st.fractions(min_value=Fraction(1, 1000), max_value=1000)


@given(prompt=st.integers(1, 10**6), output=st.integers(1, 10**6), prices=st.tuples(MONEY, MONEY), hour=MONEY,
       gpus=st.integers(1, 64))
def test_at_the_break_even_rate_both_bills_are_equal(prompt, output, prices, hour, gpus):
    request, fleet = Request(prompt, output, *prices), Fleet(hour, gpus)
    rate = break_even(request, fleet).requests_per_day
    assert monthly_cost(request, rate).api_dollars == fleet.dollars_per_month


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Request(0, 500, 1, 1), "prompt tokens: a number above 0 is wanted, not 0"),
    (lambda: Request(2000, -1, 1, 1), "output tokens: a number above 0 is wanted, not -1"),
    (lambda: Request(2000, 500, -0.1, 1), "dollars per million input tokens: a number from 0 is wanted, not -0.1"),
    (lambda: Request(2000, 500, 1, float("nan")), "dollars per million output tokens: a finite number is wanted, not nan"),
    (lambda: monthly_cost(CHAT, 0), "requests per day: a number above 0 is wanted, not 0"),
    (lambda: monthly_cost(CHAT, -5), "requests per day: a number above 0 is wanted, not -5"),
    (lambda: Fleet(0, 1), "dollars per GPU-hour: a number above 0 is wanted, not 0"),
    (lambda: Fleet(2, 0), "GPUs: a number above 0 is wanted, not 0"),
    (lambda: Fleet(2, 1.5), "GPUs: a whole number is wanted, not 1.5"),
    (lambda: Fleet(2, 1, tokens_per_s=0), "tokens per second: a number above 0 is wanted, not 0"),
    (lambda: Fleet(2, 1, tokens_per_s=float("inf")), "tokens per second: a finite number is wanted, not inf"),
    (lambda: Fleet(2, 1, 100, counted="input"), "tokens counted: one of total, output is wanted, not 'input'"),
    (lambda: Fleet(2, 1, 100, utilisation=0), "utilisation: a number above 0 is wanted, not 0"),
    (lambda: Fleet(2, 1, 100, utilisation=1.1), "utilisation: at most 1 is wanted, not 1.1"),
    (lambda: break_even(Request(2000, 500, 0, 0), Fleet(2, 1)), "prices are both 0"),
])
def test_bad_numbers_are_named(make, message):
    with pytest.raises(InputError) as error:
        make()
    assert message in str(error.value) and "\n" not in str(error.value)
