"""The client of a benchmark: how fast it sends requests, and how many it keeps in flight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from workloads.messages import Place, bad_value, counted, show
from workloads.request import IntArray

MOST_IN_FLIGHT = 1 << 20
RAMP = "its rate went up while it ran (ramp_up_strategy), which is not modelled"


@dataclass(frozen=True)
class Client:
    """How requests were sent."""

    rate_per_s: float
    burstiness: float
    most_in_flight: int | None
    notes: tuple[str, ...] = ()

    def label(self, path: str, place: Place, requests: int) -> str:
        pace = "all at once" if math.isinf(self.rate_per_s) else f"{self.rate_per_s:g}/s"
        limit = "" if self.most_in_flight is None else f", {self.most_in_flight} at once at most"
        where = (f":{place.line}" if place.line > 1 else "") + (f", {place.within}" if place.within else "")
        return f"{path}{where}: {counted(requests, 'request')}, {pace}{limit}"

    def times_us(self, n: int, rng: np.random.Generator) -> IntArray:
        """When each request may be sent."""
        if math.isinf(self.rate_per_s):
            return np.zeros(n, np.int64)
        gaps = np.ones(n) if math.isinf(self.burstiness) else rng.gamma(self.burstiness, size=n)
        at = np.cumsum(gaps)
        last = n / self.rate_per_s * 1e6
        if at[-1] <= 0 or not last < 2.0**62:
            return np.zeros(n, np.int64)
        times: IntArray = np.rint((at - at[0]) * (last / at[-1])).astype(np.int64)
        return times


def client_of(place: Place, found: Mapping[str, Any]) -> Client:
    rate, burstiness, limit = (found.get(name) for name in ("request_rate", "burstiness", "max_concurrency"))
    notes = [RAMP] if found.get("ramp_up_strategy") is not None else []
    if "request_rate" not in found:
        notes.append("no request_rate: all requests are sent at once")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MOST_IN_FLIGHT):
        raise bad_value(place, "max_concurrency", f"{show(limit)} is not a whole number from 1 to {MOST_IN_FLIGHT}")
    shape = 1.0 if burstiness is None else _positive(place, "burstiness", burstiness)
    return Client(_positive(place, "request_rate", rate), shape, limit, tuple(notes))


def _positive(place: Place, name: str, value: Any) -> float:
    """A number above 0; "inf", and nothing, is infinite."""
    if value is None or (isinstance(value, str) and value.lower() in ("inf", "infinity")):
        return math.inf
    number = number_of(place, name, value)
    if not number > 0:
        raise bad_value(place, name, f"{show(value)} is not above 0")
    return number


def number_of(place: Place, name: str, value: Any, most: float = math.inf) -> float:
    """A finite number of at least 0."""
    if type(value) is not int and type(value) is not Decimal:
        raise bad_value(place, name, f"{show(value)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number) or number > most:
        raise bad_value(place, name, f"{show(value)} is too large")
    if number < 0:
        raise bad_value(place, name, f"{show(value)} is negative")
    return number
