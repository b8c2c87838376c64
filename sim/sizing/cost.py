"""What the same tokens cost from an API and on GPUs of one's own. Pure functions, exact fractions.

    API    requests a month x (prompt tokens x input price + output tokens x output price)      grows with the traffic
    GPUs   GPUs x dollars a GPU-hour x 720 hours                                                  fixed
    break-even: the request rate at which the two are equal; real only if the GPUs can serve that many tokens

A month has 30 days of 24 hours, 720 hours, all of them paid. Numbers may be int, float or Fraction; a float counts as the
decimal that it prints (0.15 is 3/20). Results are Fractions: ``float(x)`` for printing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from workloads.request import InputError

Number: TypeAlias = int | float | Fraction

DAYS_PER_MONTH = 30
HOURS_PER_MONTH = 24 * DAYS_PER_MONTH
SECONDS_PER_DAY = 86_400
COUNTED = ("total", "output")


@dataclass(frozen=True)
class Request:
    """The mean request, in tokens, and what an API asks for it, in dollars a million tokens."""

    prompt_tokens: Number
    output_tokens: Number
    dollars_per_million_input: Number
    dollars_per_million_output: Number

    def __post_init__(self) -> None:
        _exact("prompt tokens", self.prompt_tokens)
        _exact("output tokens", self.output_tokens)
        _exact("dollars per million input tokens", self.dollars_per_million_input, zero=True)
        _exact("dollars per million output tokens", self.dollars_per_million_output, zero=True)

    @property
    def api_dollars(self) -> Fraction:
        """Dollars of one request."""
        prompt = _fraction(self.prompt_tokens) * _fraction(self.dollars_per_million_input)
        output = _fraction(self.output_tokens) * _fraction(self.dollars_per_million_output)
        return (prompt + output) / 1_000_000


@dataclass(frozen=True)
class Fleet:
    """GPUs that are paid by the hour, and the tokens they serve.

    Parameters
    ----------
    dollars_per_gpu_hour : number
        Price of one GPU.
    gpus : int
        GPUs paid, all replicas together.
    tokens_per_s : number or None
        Throughput of all of them together at full load; None where it is not known.
    counted : str
        Whether ``tokens_per_s`` counts ``"total"`` (prompt + output) or only ``"output"`` tokens.
    utilisation : number
        Share of that throughput that is really used, above 0 up to 1.
    """

    dollars_per_gpu_hour: Number
    gpus: int
    tokens_per_s: Number | None = None
    counted: str = "total"
    utilisation: Number = 1

    def __post_init__(self) -> None:
        _exact("dollars per GPU-hour", self.dollars_per_gpu_hour)
        if _exact("GPUs", self.gpus).denominator != 1:
            raise InputError(f"GPUs: a whole number is wanted, not {self.gpus}")
        if self.tokens_per_s is not None:
            _exact("tokens per second", self.tokens_per_s)
        if self.counted not in COUNTED:
            raise InputError(f"tokens counted: one of {', '.join(COUNTED)} is wanted, not {self.counted!r}")
        if _exact("utilisation", self.utilisation) > 1:
            raise InputError(f"utilisation: at most 1 is wanted, not {self.utilisation}")

    @property
    def dollars_per_month(self) -> Fraction:
        """Dollars of 720 hours.

        >>> Fleet(2.5, gpus=2).dollars_per_month
        Fraction(3600, 1)
        """
        return _fraction(self.dollars_per_gpu_hour) * _fraction(self.gpus) * HOURS_PER_MONTH

    @property
    def usable_tokens_per_s(self) -> Fraction | None:
        """Throughput times utilisation."""
        return None if self.tokens_per_s is None else _fraction(self.tokens_per_s) * _fraction(self.utilisation)

    @property
    def dollars_per_million_tokens(self) -> Fraction | None:
        """Dollars a million tokens, total or output as they are counted; None without a throughput.

        >>> Fleet(3.6, gpus=2, tokens_per_s=4000, utilisation=0.5).dollars_per_million_tokens
        Fraction(1, 1)
        """
        rate = self.usable_tokens_per_s
        return None if rate is None else _fraction(self.dollars_per_gpu_hour) * _fraction(self.gpus) / (3600 * rate) * 1_000_000


@dataclass(frozen=True)
class MonthlyCost:
    """A 30-day month of the traffic from an API: tokens and dollars."""

    input_tokens: Fraction
    output_tokens: Fraction
    api_dollars: Fraction


@dataclass(frozen=True)
class BreakEven:
    """The request rate at which the GPUs and the API cost the same.

    ``tokens_per_s`` is what that rate asks of the GPUs, counted as the fleet counts; ``within_throughput`` is None where
    the fleet's throughput is not known.
    """

    requests_per_day: Fraction
    requests_per_s: Fraction
    tokens_per_s: Fraction
    within_throughput: bool | None


def monthly_cost(request: Request, requests_per_day: Number) -> MonthlyCost:
    """Tokens and API cost of a 30-day month.

    >>> cost = monthly_cost(Request(2000, 500, dollars_per_million_input=0.15, dollars_per_million_output=0.6), 1000)
    >>> int(cost.input_tokens), int(cost.output_tokens), float(cost.api_dollars)
    (60000000, 15000000, 18.0)
    """
    requests = _exact("requests per day", requests_per_day) * DAYS_PER_MONTH
    return MonthlyCost(requests * _fraction(request.prompt_tokens), requests * _fraction(request.output_tokens),
                       requests * request.api_dollars)


def break_even(request: Request, fleet: Fleet) -> BreakEven:
    """The request rate whose API cost equals the fleet's; below it the API is cheaper, above it the GPUs.

    Raises
    ------
    InputError
        If the API asks nothing: then no rate pays for the GPUs.

    >>> even = break_even(Request(2000, 500, 0.15, 0.6), Fleet(2.5, gpus=1, tokens_per_s=10_000))
    >>> int(even.requests_per_day), float(even.tokens_per_s), even.within_throughput
    (100000, 2893.5185185185187, True)
    """
    if request.api_dollars == 0:
        raise InputError("the API's prices are both 0: GPUs that cost money never break even")
    per_day = fleet.dollars_per_month / DAYS_PER_MONTH / request.api_dollars
    per_s = per_day / SECONDS_PER_DAY
    prompt = _fraction(request.prompt_tokens) if fleet.counted == "total" else 0
    tokens_per_s = per_s * (prompt + _fraction(request.output_tokens))
    usable = fleet.usable_tokens_per_s
    return BreakEven(per_day, per_s, tokens_per_s, None if usable is None else tokens_per_s <= usable)


def _fraction(value: Number) -> Fraction:
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def _exact(name: str, value: Number, zero: bool = False) -> Fraction:
    """``value`` as a fraction, checked: finite and above 0, or from 0."""
    if not math.isfinite(value):
        raise InputError(f"{name}: a finite number is wanted, not {value}")
    if value < 0 or (value == 0 and not zero):
        raise InputError(f"{name}: a number {'from' if zero else 'above'} 0 is wanted, not {value}")
    return _fraction(value)
