"""How many points a search may need, told before it runs: its hunts are let run against made-up limits.

    largest rate, within 0.02     limit 1.3: 1 2 | 1.414 1.189 ... 8 values     limit 1e8: 1 2 4 8 ... 2^27 | ... 34 values
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from experiments.whatif.hunt import LEAST, MOST, Range, hunt
from experiments.whatif.search import range_of, searched_options
from experiments.whatif.search_spec import Search
from workloads.messages import counted

LIMITS_PER_OCTAVE = 16                                 # made-up limits; values that are bisected for fall between them in turn


def search_values(search: Search) -> tuple[int, int]:
    """How many values one setting may be run at: the fewest and the most, over all limits that its promises may have.

    A search that ends early, because larger values change nothing, needs fewer.

    >>> from experiments.whatif.search_spec import read_search
    >>> search_values(read_search({"largest": "rate", "keep": "ttft p99 <= 2 s", "from": 1, "to": 4}))
    (1, 9)
    >>> search_values(read_search({"fewest": "gpus", "keep": "ttft p99 <= 2 s", "data-parallel-size": [1, 2]}))
    (1, 8)
    """
    if search.splits is not None:
        return _splits(search)
    where = range_of(search)
    counts = [_asked(where, keeps) for keeps in _limits(where)]
    return min(counts), max(counts)


def search_line(search: Search, settings: int, seeds: int) -> str:
    """What the search may cost, for people."""
    fewest, most = search_values(search)
    each = settings * seeds
    what = ", ".join(searched_options(search))
    asked = f"{counted(settings, 'setting')} x {counted(seeds, 'seed')} x {fewest:,} to {most:,} values of {what}"
    return (f"and the search: {asked}: {fewest * each:,} to at most {most * each:,} points more, by where the answer lies; "
            "fewer where a search ends early")


def _splits(search: Search) -> tuple[int, int]:
    """The first number of GPUs alone, and all of them."""
    assert search.splits is not None
    sizes = sorted(gpus for split in itertools.product(*search.splits.values()) if
                   (search.low or 0) <= (gpus := math.prod(map(int, split))) <= (search.high or math.inf))
    return sizes.count(sizes[0]) if sizes else 0, len(sizes)


def _limits(where: Range) -> list[Callable[[float], bool]]:
    """Whether a value keeps a promise whose limit lies here or there; that all do, and that none does, among them."""
    low, high = where.low or LEAST / 2, where.high or 2 * MOST
    steps = math.ceil(LIMITS_PER_OCTAVE * math.log2(high / low))
    limits = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
    within = [_within(where.largest, limit) for limit in limits]
    if where.both:
        within += [_between(limit / width, limit) for limit in limits for width in (1.5, 4.0)]
    return [lambda value: True, lambda value: False, *within]


def _within(largest: bool, limit: float) -> Callable[[float], bool]:
    return lambda value: (value <= limit) is largest


def _between(low: float, high: float) -> Callable[[float], bool]:
    return lambda value: low <= value <= high


def _asked(where: Range, keeps: Callable[[float], bool]) -> int:
    """How many different values a hunt asks for."""
    steps, said, asked = hunt(where), None, set()
    while True:
        try:
            value = steps.send(said)
        except StopIteration:
            return len(asked)
        asked.add(value)
        said = keeps(value)
