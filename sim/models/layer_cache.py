"""What one layer keeps in the KV cache of one rank: the size of its page, and how many pages a request may hold.

    kind      a page is                                a request of max_model_len tokens holds, in blocks
    full      block_size tokens                        ceil(max_model_len / block_size)
    sliding   block_size tokens                        ceil(min(window - 1 + tokens in flight, max_model_len) / block_size) + 1
    chunked   block_size tokens                        ceil(min(chunk + tokens in flight, max_model_len) / block_size)
    state     one whole state, whatever its length     1; 2 or more with prefix caching; more with speculation

The rules are 40, 41, 44 and 46 of docs/rules.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.kv_formula import blocks_for

KINDS = ("full", "sliding", "chunked", "state")


@dataclass(frozen=True)
class RequestLimits:
    """What bounds one request at start-up.

    ``in_flight_tokens`` is ``max_num_batched_tokens`` times the steps in flight (2 with asynchronous scheduling);
    ``state_mode`` is vLLM's ``mamba_cache_mode``: "none"; "align" or, in older versions, "all" when states are kept for
    prefix caching.
    """

    max_model_len: int
    in_flight_tokens: int = 8192
    decode_context_parallel_size: int = 1
    state_mode: str = "none"


@dataclass(frozen=True)
class LayerCache:
    """The cache of one layer on one rank.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    block_size : int
        Tokens a page; of a state, the tokens between two kept states (no part of its size).
    bytes_per_token : int
        K and V of the rank's heads, or one latent row; 0 for a state.
    reach : int, optional
        The window of a sliding layer or the chunk of a chunked one, in tokens.
    state_bytes : int
        Bytes of one state.
    speculative_blocks : int
        Further states a request keeps while tokens are speculated.
    checkpoint_blocks : int
        Further states in "align" mode, for checkpoints of the prefill.
    padded_bytes : int, optional
        The page's size where it is made as large as another layer's.
    latent : bool
        One row instead of K and V: such a page cannot be padded.
    heads : tuple of int
        KV heads, K width and V width: layers of other heads do not share a block table in a hybrid model.

    >>> LayerCache("full", 16, 4096).page_bytes
    65536
    """

    kind: str
    block_size: int
    bytes_per_token: int = 0
    reach: int | None = None
    state_bytes: int = 0
    speculative_blocks: int = 0
    checkpoint_blocks: int = 0
    padded_bytes: int | None = None
    latent: bool = False
    heads: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind {self.kind!r}: one of {', '.join(KINDS)}")
        if self.block_size < 1 or self.own_bytes < 1:
            raise ValueError(f"block_size {self.block_size} and a page of {self.own_bytes} bytes: both must be positive")
        if (self.kind in ("sliding", "chunked")) != (self.reach is not None) or (self.reach is not None and self.reach < 1):
            raise ValueError(f"reach {self.reach} of a {self.kind} layer")
        if self.padded_bytes is not None and self.padded_bytes < self.own_bytes:
            raise ValueError(f"padded_bytes {self.padded_bytes} below the page's own {self.own_bytes}")

    @property
    def own_bytes(self) -> int:
        """Bytes of a page before padding."""
        return self.state_bytes if self.kind == "state" else self.block_size * self.bytes_per_token

    @property
    def page_bytes(self) -> int:
        """Bytes of a page as it is stored (rule 44)."""
        return self.own_bytes if self.padded_bytes is None else self.padded_bytes

    def as_full(self) -> LayerCache:
        """The same layer kept for all tokens: what is done where windows are not managed.

        >>> LayerCache("sliding", 16, 4096, reach=128).as_full() == LayerCache("full", 16, 4096)
        True
        """
        return self if self.kind == "state" else replace(self, kind="full", reach=None)

    def request_blocks(self, limits: RequestLimits) -> int:
        """Blocks that one request may hold in this layer (rules 40, 41 and 46).

        >>> LayerCache("sliding", 16, 4096, reach=1024).request_blocks(RequestLimits(32768))
        577
        """
        longest = limits.max_model_len
        if self.kind == "state":
            kept = {"none": 1, "align": 2 + self.checkpoint_blocks, "all": blocks_for(longest, self.block_size)}
            return kept[limits.state_mode] + self.speculative_blocks
        if self.kind == "full":
            return blocks_for(-(-longest // limits.decode_context_parallel_size), self.block_size)
        assert self.reach is not None
        if self.kind == "chunked":
            return blocks_for(min(self.reach + limits.in_flight_tokens, longest), self.block_size)
        return blocks_for(min(self.reach - 1 + limits.in_flight_tokens, longest), self.block_size) + 1
