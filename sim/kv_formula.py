"""The analytic KV formula: bytes a token, blocks that fit, concurrency. Pure functions, exact integers.

    one token   2 (K and V) x layers x KV heads x head dim x bytes an element       131,072 bytes  (Llama-3.1-8B, bf16)
    one block   block_size tokens                                                 2,097,152 bytes
    the pool    available bytes // bytes a block, the null block included            20,480 blocks  (40 GiB)
    a request   ceil(max_model_len / block_size) blocks                                 512 blocks  (8,192 tokens)
    at once     blocks of the pool / blocks of a request                               40.00 x

Every layer is full attention here. The rules numbered below are those of the vLLM start-up report (0.22 and newer).
"""

from __future__ import annotations

from fractions import Fraction

ELEMENT_BYTES: dict[str, int | Fraction] = {
    "float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1,
    "int4": Fraction(1, 2),
}
"""Bytes of one stored element by dtype name; half a byte is an exact fraction."""


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_per_element: int | Fraction = 2) -> int:
    """Bytes that the K and V of one token take in all layers.

    Parameters
    ----------
    layers, kv_heads, head_dim : int
        Layers that keep a cache, KV heads of one rank, elements a head; each at least 1.
    bytes_per_element : int or Fraction
        2 for bf16, 1 for fp8, ``Fraction(1, 2)`` for int4; see `ELEMENT_BYTES`.

    Raises
    ------
    ValueError
        If a number is not positive or the result is no whole number of bytes.

    Notes
    -----
    Source: PagedAttention paper (SOSP'23), section 3: 800 KB a token for OPT-13B.

    >>> kv_bytes_per_token(layers=40, kv_heads=40, head_dim=128, bytes_per_element=2)
    819200
    """
    _positive(layers=layers, kv_heads=kv_heads, head_dim=head_dim, bytes_per_element=bytes_per_element)
    exact = 2 * layers * kv_heads * head_dim * Fraction(bytes_per_element)
    if exact.denominator != 1:
        raise ValueError(f"bytes_per_element {bytes_per_element} gives {exact} bytes a token: no whole number")
    return exact.numerator


def kv_bytes_per_block(bytes_per_token: int, block_size: int = 16) -> int:
    """Bytes of one block of ``block_size`` tokens (rule 44, summed over the layers).

    >>> kv_bytes_per_block(131_072)
    2097152
    """
    _positive(bytes_per_token=bytes_per_token, block_size=block_size)
    return bytes_per_token * block_size


def tokens_per_page(page_bytes: int, kv_heads: int, head_dim: int, bytes_per_element: int | Fraction = 2) -> int:
    """Tokens whose K (or V) of one layer fit into a page of GPU memory, rounded down.

    Parameters
    ----------
    page_bytes : int
        64 KiB to 2 MiB.
    kv_heads, head_dim : int
        KV heads of one rank, elements a head.
    bytes_per_element : int or Fraction
        See `ELEMENT_BYTES`.

    Raises
    ------
    ValueError
        If a number is not positive or a page does not hold one token.

    Notes
    -----
    Source: vAttention (ASPLOS'25), where K and V of each layer lie in contiguous virtual tensors that pages are mapped behind.
    A token that would lie across the end of a page is counted for the next one.

    >>> tokens_per_page(2 * 2**20, kv_heads=8, head_dim=128)
    1024
    """
    _positive(page_bytes=page_bytes, kv_heads=kv_heads, head_dim=head_dim, bytes_per_element=bytes_per_element)
    token = kv_heads * head_dim * Fraction(bytes_per_element)
    if token > page_bytes:
        raise ValueError(f"a page of {page_bytes} bytes holds no token of {token} bytes")
    return int(page_bytes // token)


def blocks_that_fit(available_bytes: int, block_bytes: int) -> int:
    """Blocks in ``available_bytes``, the null block included (rule 45); 0 where nothing is available.

    >>> blocks_that_fit(40 * 2**30, 2_097_152)
    20480
    """
    _positive(block_bytes=block_bytes)
    return max(available_bytes, 0) // block_bytes


def blocks_for(tokens: int, block_size: int = 16) -> int:
    """Blocks that ``tokens`` slots take: rounded up.

    >>> blocks_for(8001)
    501
    """
    _positive(block_size=block_size)
    if tokens < 0:
        raise ValueError(f"tokens must not be negative: {tokens}")
    return -(-tokens // block_size)


def max_concurrency(num_blocks: int, block_size: int, max_model_len: int) -> float:
    """Requests of ``max_model_len`` tokens that the pool holds at once; the null block is not deducted (rule 46).

    >>> max_concurrency(20480, 16, 8000)
    40.96
    """
    _positive(max_model_len=max_model_len)
    if num_blocks < 0:
        raise ValueError(f"num_blocks must not be negative: {num_blocks}")
    return num_blocks / blocks_for(max_model_len, block_size)


def kv_tokens(num_blocks: int, block_size: int, max_model_len: int) -> int:
    """The "KV cache size" in tokens: concurrency x max_model_len in float64, cut off as vLLM does (rule 47).

    It is ``num_blocks * block_size`` only where ``max_model_len`` is a multiple of the block size.

    >>> kv_tokens(20480, 16, 8192), kv_tokens(20480, 16, 8001)
    (327680, 327066)
    """
    return int(max_concurrency(num_blocks, block_size, max_model_len) * max_model_len)


def log_lines(num_blocks: int, block_size: int, max_model_len: int) -> list[str]:
    """What a vLLM server prints at start, in two lines (`report_lines`), where all layers keep all tokens.

    >>> for line in log_lines(20480, 16, 8001): print(line)
    GPU KV cache size: 327,066 tokens
    Maximum concurrency for 8,001 tokens per request: 40.88x
    """
    return report_lines(kv_tokens(num_blocks, block_size, max_model_len), max_model_len,
                        max_concurrency(num_blocks, block_size, max_model_len))


def report_lines(tokens: int, max_model_len: int, concurrency: float) -> list[str]:
    """A start-up report in two lines, as vLLM before 0.28 prints it; since then one, these joined by a comma (rule 48)."""
    return [f"GPU KV cache size: {tokens:,} tokens",
            f"Maximum concurrency for {max_model_len:,} tokens per request: {concurrency:.2f}x"]


def startup_shortfall(num_blocks: int, block_size: int, max_model_len: int) -> int | None:
    """The check at start: one request of ``max_model_len`` must fit in the pool without the null block (rule 50).

    Returns
    -------
    int or None
        None where it fits, else the largest length in tokens that would (0 if none).

    >>> startup_shortfall(512, 16, 8192), startup_shortfall(512, 16, 8176)
    (8176, None)
    """
    _positive(max_model_len=max_model_len)
    usable = max(num_blocks - 1, 0)
    return None if blocks_for(max_model_len, block_size) <= usable else usable * block_size


def _positive(**values: int | Fraction) -> None:
    for name, value in values.items():
        if value <= 0:
            raise ValueError(f"{name} must be positive, not {value}")
