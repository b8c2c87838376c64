"""Two made-up workloads that need no recipe, out of a generator that is passed in; `synth` makes all others.

The built-in chat workload puts one system prompt before the user's words of every request:

    request 0    [0 1 ... 15 | 16 17 18]      ids of 16 tokens: 0..15 the 256-token system prompt, the same in all
    request 1    [0 1 ... 15 | 19 20]         the rest of each prompt has ids of its own; the last may be partial
"""

from __future__ import annotations

import numpy as np

from workloads import profiles
from workloads.request import ContentIds, IntArray, Trace
from workloads.synth.arrivals import poisson
from workloads.synth.content import Pieces, contents, paths_of

SPAN_TOKENS = 16


def poisson_arrivals_us(n: int, rate_per_s: float, rng: np.random.Generator) -> IntArray:
    """Arrival times of a Poisson process that begins with an arrival.

    Parameters
    ----------
    n : int
        Arrivals.
    rate_per_s : float
        Mean arrivals a second; above 0.
    rng : numpy Generator
        Gives n - 1 exponential gaps.

    Returns
    -------
    int64, shape (n,)
        Microseconds, the first 0, rounded half to even, never decreasing.

    Raises
    ------
    ValueError
        If `n` is negative, the rate is not above 0 and finite, or time would not fit 62 bits.

    >>> int(poisson_arrivals_us(3, 2.0, np.random.default_rng(0))[0])
    0
    """
    return poisson(rng, n, rate=rate_per_s)


def chat_workload(
    rng: np.random.Generator,
    requests: int = 1000,
    rate_per_s: float = 2.0,
    system_tokens: int = 256,
    profile: str = "sharegpt",
) -> Trace:
    """The built-in chat workload: lengths from a profile, Poisson arrivals, one shared system prompt.

    Parameters
    ----------
    rng : numpy Generator
        Draws the prompts, then the outputs, then the arrivals.
    requests : int
        1 or more.
    rate_per_s : float
        Mean arrivals a second.
    system_tokens : int
        Length of the system prompt, added to each prompt; a multiple of 16, 0 for none.
    profile : str
        See `profiles.profile_names`.

    Returns
    -------
    Trace
        `content` has spans of 16 tokens; `source` says how it was made.

    Raises
    ------
    ValueError
        For an argument out of range, or an unknown profile; names the value.

    >>> trace = chat_workload(np.random.default_rng(0), requests=2)
    >>> trace.source
    'built-in chat workload (sharegpt lengths, 2 requests, 256-token system prompt, 2 req/s, seed 0)'
    >>> (trace.prompt_tokens > 256).tolist(), trace.content.ids[:16].tolist() == list(range(16))
    ([True, True], True)
    """
    if requests < 1:
        raise ValueError(f"the number of requests must be 1 or more, not {requests}")
    if system_tokens < 0 or system_tokens % SPAN_TOKENS:
        raise ValueError(f"the system prompt must be a multiple of {SPAN_TOKENS} tokens, not {system_tokens}")
    seed = _seed_text(rng)
    user_tokens, output_tokens = profiles.profile(profile).sample(requests, rng)
    made_of = f"{profile} lengths, {requests:,} requests, {system_tokens}-token system prompt, {rate_per_s:g} req/s"
    return Trace(
        source=f"built-in chat workload ({made_of}{seed})",
        prompt_tokens=user_tokens + system_tokens,
        output_tokens=output_tokens,
        arrival_us=poisson_arrivals_us(requests, rate_per_s, rng),
        content=_one_shared_prefix(user_tokens + system_tokens, system_tokens),
    )


def behind_one_prompt(own_tokens: IntArray, output_tokens: IntArray, shared_tokens: int) -> Trace:
    """Requests without arrival times that all begin with the same ``shared_tokens`` tokens, whole spans of which can be shared.

    >>> trace = behind_one_prompt(np.array([5, 30]), np.array([2, 2]), 20)
    >>> trace.prompt_tokens.tolist(), trace.content.ids.tolist(), trace.content.starts.tolist()
    ([25, 50], [0, 1, 0, 2, 3, 4], [0, 2, 6])
    """
    source = f"{len(own_tokens):,} requests on one prompt of {shared_tokens:,} tokens"
    prompts = own_tokens + shared_tokens
    return Trace(source, prompts, output_tokens, content=_one_shared_prefix(prompts, shared_tokens))


def _one_shared_prefix(prompt_tokens: IntArray, shared_tokens: int) -> ContentIds:
    pieces = Pieces(np.zeros((len(prompt_tokens), 1), np.int64), np.array([shared_tokens]))
    return contents(paths_of(pieces, SPAN_TOKENS), prompt_tokens)


def _seed_text(rng: np.random.Generator) -> str:
    """The seed a generator was made from, for people; nothing where it does not know."""
    seeds = getattr(rng.bit_generator, "seed_seq", None)
    if not isinstance(seeds, np.random.SeedSequence) or not isinstance(seeds.entropy, int):
        return ""
    spawned = "".join(f", stream {key}" for key in seeds.spawn_key)
    return f", seed {seeds.entropy}{spawned}"
