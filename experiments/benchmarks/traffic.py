"""The requests of the benchmarks: seeded; all but `azure` the same on every Python and numpy (`random.Random` alone decides).

`lognormal`, `shared` and `mooncake` are those that vLLM's own scheduler was recorded on; a microsecond of theirs is one step.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from workloads.profiles import profile
from workloads.readers import read_trace
from workloads.request import ContentIds, IntArray, Trace

SPAN = 512                                             # tokens an id stands for, as in Mooncake's traces
LONGEST_PATH = 120                                     # spans


def lognormal(requests: int = 20_000) -> Trace:
    """Prompts of mean 1,000 and outputs of mean 200 tokens, sigma 0.8, all at step 0, nothing shared.

    >>> lognormal(3).prompt_tokens.tolist(), lognormal(3).output_tokens.tolist()
    ([627, 1270, 2250], [149, 134, 43])
    """
    rng, sigma = random.Random(0), 0.8

    def draw(mean: float) -> int:
        return max(1, round(rng.lognormvariate(0, sigma) * mean / 2.718281828 ** (sigma**2 / 2)))
    rows = [(min(draw(1000), 16_000), min(draw(200), 4_000)) for _ in range(requests)]
    prompt, output = (_column(column) for column in zip(*rows, strict=True))
    return Trace(f"{requests:,} lognormal requests at once", prompt, output, arrival_us=np.zeros(requests, np.int64))


def shared(requests: int = 20_000) -> Trace:
    """Twelve sets of tools and conversations that go on: about 9,400 tokens a prompt, 70 % of them seen before; one a step."""
    rng, fresh = random.Random(1), _Fresh()
    tools = [fresh(rng.choice((2, 4, 8, 12))) for _ in range(12)]
    paths: list[list[int]] = []
    prompt, output = [], []
    for _ in range(requests):
        if paths and rng.random() < 0.55:
            path = rng.choice(paths[-400:]) + fresh(rng.randint(1, 4))
        else:
            path = rng.choice(tools) + fresh(max(1, int(rng.lognormvariate(1.9, 0.8))))
        paths.append(path[:LONGEST_PATH])
        prompt.append(len(paths[-1]) * SPAN - rng.randint(0, SPAN - 1))
        output.append(max(1, int(rng.lognormvariate(4.8, 0.8))))
    starts = _column([0, *accumulate(len(path) for path in paths)])
    content = ContentIds(_column([one for path in paths for one in path]), starts, SPAN)
    return Trace(f"{requests:,} requests that share", _column(prompt), _column(output),
                 arrival_us=np.arange(requests, dtype=np.int64), content=content)


class _Fresh:
    """Hands out ids that nobody has had."""

    def __init__(self) -> None:
        self._first = 0

    def __call__(self, count: int) -> list[int]:
        self._first += count
        return list(range(self._first - count, self._first))


def mooncake(path: str) -> Trace:
    """Mooncake's conversation trace, one request every two steps whatever its times say.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    trace = read_trace(path)
    return replace(trace, arrival_us=2 * np.arange(len(trace), dtype=np.int64), session=None, think_us=None)


def poisson(requests: int = 20_000, rate: float = 10.0) -> Trace:
    """Prompts lognormal (mean 1,000, sigma 1.0, 16 to 7,000 tokens), outputs (mean 200, sigma 0.8, 2 to 1,000), Poisson arrivals.

    Each span of 512 prompt tokens has an id of its own: nothing is shared, and formats with ids can hold it.

    Parameters
    ----------
    requests : int
    rate : float
        Requests a second; the first arrives at 0.

    >>> trace = poisson(3)
    >>> trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), trace.arrival_us.tolist()
    ([5365, 963, 499], [203, 166, 562], [0, 78577, 124773])
    """
    rng, times = random.Random(2), random.Random(3)
    prompt, output = np.empty(requests, np.int64), np.empty(requests, np.int64)
    for row in range(requests):
        prompt[row] = _clipped(rng, 1000, 1.0, 16, 7_000)
        output[row] = _clipped(rng, 200, 0.8, 2, 1_000)
    gaps = np.fromiter((times.expovariate(rate) for _ in range(requests)), np.float64, requests)
    gaps[:1] = 0
    starts = np.concatenate(([0], np.cumsum(-(-prompt // SPAN))))
    content = ContentIds(np.arange(starts[-1]), starts, SPAN)
    return Trace(f"{requests:,} lognormal requests, Poisson {rate:g}/s", prompt, output,
                 arrival_us=np.rint(np.cumsum(gaps) * 1e6).astype(np.int64), content=content)


def azure(requests: int = 20_000, rate: float = 10.0) -> Trace:
    """Lengths as in Azure's conversations of 2023 (`workloads.profiles`), Poisson arrivals, nothing shared; quick for millions.

    >>> trace = azure(3)
    >>> trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), trace.arrival_us.tolist()
    ([4080, 1026, 4093], [50, 181, 99], [0, 151789, 221437])
    """
    rng, lengths = np.random.default_rng(4), profile("azure-conv")
    prompt, output = lengths.sample(requests, rng)
    gaps = rng.exponential(1e6 / rate, requests)
    gaps[:1] = 0
    return Trace(f"{requests:,} requests as long as Azure's, Poisson {rate:g}/s", prompt, output,
                 arrival_us=np.rint(np.cumsum(gaps)).astype(np.int64))


def _clipped(rng: random.Random, mean: float, sigma: float, least: int, most: int) -> int:
    """Of the lognormal distribution with that mean; ``exp(mu + sigma**2 / 2)`` is its mean."""
    value = mean * rng.lognormvariate(-(sigma**2) / 2, sigma)
    return min(max(round(value), least), most)


def _column(values: list[int] | tuple[int, ...]) -> IntArray:
    return np.array(values, np.int64)


def case(trace: Trace, config: dict[str, Any]) -> dict[str, Any]:
    """The same requests as a case for `tests/oracle/record.py`, which asks an installed vLLM; only totals are wanted.

    >>> case(lognormal(1), {})["requests"]
    [{'id': 'r0', 'arrive': 0, 'output': 149, 'prompt': [['u0', 627]]}]
    """
    return {"about": trace.source, "config": config | {"detail": "none"}, "requests": list(_case_rows(trace))}


def _case_rows(trace: Trace) -> Iterator[dict[str, Any]]:
    assert trace.arrival_us is not None
    columns = (trace.arrival_us, trace.prompt_tokens, trace.output_tokens)
    for row, (arrive, prompt, output) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        made = {"id": f"r{row}", "arrive": arrive, "output": output}
        if trace.content is None:
            yield made | {"prompt": [[f"u{row}", prompt]]}
        else:
            ids = trace.content.ids[trace.content.starts[row]:trace.content.starts[row + 1]].tolist()
            yield made | {"hash_ids": ids, "hash_block": trace.content.span_tokens, "input_length": prompt}
