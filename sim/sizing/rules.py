"""Rules of thumb, as they are taught: rough on purpose, shown beside the budget and never in place of it.

    total      (weights + KV) x 1.15 + 1 GiB               84.49 GiB for a 70B in 4 bits with one request of 128K
    on top     10 to 30 % of weights + KV
    activation tokens x layers x (hidden + MLP width) x 2 bytes        3.69 GiB for 4,096 tokens of Llama-2-7B
    loading    one checkpoint shard beside the weights read so far
    a request  prompt + output tokens at its last moment, prompt + half the output on average
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.sizing.hardware import GIB

SHARE_ON_TOP, FIXED_GIB = 0.15, 1.0
LEAST_ON_TOP, MOST_ON_TOP = 0.10, 0.30
SHARD_GIB = 5e9 / GIB                                  # the usual largest shard of a checkpoint: 5 GB


def total_gib(weights_gib: float, kv_gib: float) -> float:
    """Memory to plan for: 15 % and 1 GiB on top of weights and KV cache.

    >>> round(total_gib(70e9 / 2 / 2**30, 40), 3)
    84.486
    """
    return (weights_gib + kv_gib) * (1 + SHARE_ON_TOP) + FIXED_GIB


def on_top_gib(weights_gib: float, kv_gib: float) -> tuple[float, float]:
    """The least and the most overhead that the 10-30 % rule allows for.

    >>> on_top_gib(60, 40)
    (10.0, 30.0)
    """
    held = weights_gib + kv_gib
    return held * LEAST_ON_TOP, held * MOST_ON_TOP


def all_layers_activation_gib(tokens: int, layers: int, hidden_size: int, intermediate_size: int, bytes_: int = 2) -> float:
    """Activations if every layer's were kept: an upper bound, since servers keep one layer's at a time.

    >>> all_layers_activation_gib(4096, 32, 4096, 11008)
    3.6875
    """
    return tokens * layers * (hidden_size + intermediate_size) * bytes_ / GIB


def loading_gib(weights_gib: float) -> float:
    """The transient of loading: the weights and one more shard.

    >>> round(loading_gib(14.96), 1)
    19.6
    """
    return weights_gib + SHARD_GIB


@dataclass(frozen=True)
class Held:
    """Tokens that a request of this many prompt and output tokens holds."""

    prompt_tokens: int
    output_tokens: int

    @property
    def worst(self) -> int:
        """At its last moment.

        >>> Held(2000, 500).worst, Held(2000, 500).mean
        (2500, 2250.0)
        """
        return self.prompt_tokens + self.output_tokens

    @property
    def mean(self) -> float:
        """On average while its output grows."""
        return self.prompt_tokens + self.output_tokens / 2
