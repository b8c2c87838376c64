"""The token mixers of a model's layers: what each keeps in the cache of one rank, and how many weights it has.

    Attention   K and V of each KV head, for all tokens, a window or a chunk      grows with the request
    Latent      one row of kv_lora_rank + qk_rope_head_dim (MLA), with the keys
                of an index where attention is sparse                              grows with the request
    State       a convolution's last inputs and a recurrent state                  fixed, whatever the length

A layer is a tuple of mixers: usually one; none where it is only an MLP; two where attention and a state run side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sim.models.family import Family
from sim.models.layer_cache import LayerCache
from workloads.request import InputError

STATE_ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
LATENT_ALIGNMENT = 256                                 # bytes; VLLM_CUDA_MEM_ALIGN_KV_CACHE of the first engine
SCALE_BLOCK, SCALE_BYTES = 128, 4                      # one float32 scale for 128 fp8 elements


@dataclass(frozen=True)
class CacheFormat:
    """How caches are stored: element sizes, block, ranks.

    ``kv_element_bytes`` is that of ``--kv-cache-dtype``, ``packed_sparse`` whether sparse MLA keeps its fp8 format whatever
    that says. ``state_element_bytes`` is that of the model's dtype, in which convolutions keep their inputs; ``state_dtype``
    overrides the recurrent state's own. Blocks beside states are a multiple of ``kernel_tokens``; states named in
    ``checkpointed`` keep a block for checkpoints of the prefill. ``speculative_states`` are those a request is charged for.
    """

    kv_element_bytes: int | Fraction = 2
    block_size: int = 16
    tensor_parallel_size: int = 1
    state_element_bytes: int = 2
    state_dtype: str | None = None
    speculative_tokens: int = 0
    pads_latent_rows: bool = False
    packed_sparse: bool = False
    kernel_tokens: int = 16
    checkpointed: frozenset[str] = frozenset()
    speculative_states: int = 0


@dataclass(frozen=True)
class Attention:
    """Attention with ``kv_heads`` of ``head_dim`` (V: ``value_dim``), over all tokens, a ``window`` or a ``chunk``.

    ``parameters`` is its number of weights where that is not the sum of four projections.
    """

    kv_heads: int
    head_dim: int
    value_dim: int | None = None
    window: int | None = None
    chunk: int | None = None
    parameters: int | None = None

    @property
    def values(self) -> int:
        """Elements of a head's V."""
        return self.head_dim if self.value_dim is None else self.value_dim

    def check(self, name: str, size: int) -> None:
        """Raise InputError where the heads cannot be shared out over ``size`` ranks (rule 49)."""
        if self.kv_heads % size and size % self.kv_heads:
            raise InputError(f"tensor_parallel_size {size} and the {self.kv_heads} KV heads of {name}: "
                             "neither divides the other")

    def caches(self, form: CacheFormat) -> list[LayerCache]:
        """K and V of the rank's heads; heads are replicated once there is one a rank.

        >>> Attention(8, 128).caches(CacheFormat(tensor_parallel_size=16))[0].bytes_per_token
        512
        """
        heads = max(1, self.kv_heads // form.tensor_parallel_size)
        row = _whole(heads * (self.head_dim + self.values) * Fraction(form.kv_element_bytes))
        kind = "sliding" if self.window else "chunked" if self.chunk else "full"
        return [LayerCache(kind, form.block_size, row, self.window or self.chunk, heads=(heads, self.head_dim, self.values))]

    def weights(self, hidden: int, query_heads: int, family: Family) -> int:
        """Parameters of the four projections, their biases and norms."""
        if self.parameters is not None:
            return self.parameters
        query, key, value = query_heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.values
        out = query_heads * self.values
        total = hidden * (query * (2 if family.output_gate else 1) + key + value + out)
        total += query + key + value if family.qkv_bias or family.all_bias else 0
        total += hidden if family.all_bias else 0
        return total + (2 * self.head_dim if family.qk_norm else 0)


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: one row of ``kv_lora_rank + qk_rope_head_dim`` a token and layer, no separate V.

    ``index_head_dim`` is the width of the index keys where attention is sparse (DeepSeek-V3.2, GLM-5).
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int | None = None
    v_head_dim: int | None = None
    q_lora_rank: int | None = None
    index_head_dim: int | None = None
    index_heads: int | None = None

    def check(self, name: str, size: int) -> None:
        """The row is whole on every rank: any size will do."""

    def caches(self, form: CacheFormat) -> list[LayerCache]:
        """The row, and the index keys as fp8 with a scale.

        >>> [c.bytes_per_token for c in Latent(512, 64, index_head_dim=128).caches(CacheFormat(1, 64))]
        [656, 132]
        """
        width = self.kv_lora_rank + self.qk_rope_head_dim
        if self.index_head_dim and (form.packed_sparse or form.kv_element_bytes == 1):
            # the latent in fp8 with scales, the rotary part in 16 bits
            row = self.kv_lora_rank + SCALE_BYTES * (self.kv_lora_rank // SCALE_BLOCK) + 2 * self.qk_rope_head_dim
        else:
            row = _whole(width * Fraction(form.kv_element_bytes))
        if form.pads_latent_rows:
            row = -(-row // LATENT_ALIGNMENT) * LATENT_ALIGNMENT
        found = [LayerCache("full", form.block_size, row, latent=True, heads=(1, width, 0))]
        if self.index_head_dim:
            index = self.index_head_dim + SCALE_BYTES * (self.index_head_dim // SCALE_BLOCK)
            found.append(LayerCache("full", form.block_size, index, latent=True, heads=(1, self.index_head_dim, 0)))
        return found

    def weights(self, hidden: int, query_heads: int, family: Family) -> int:
        """Parameters of the low-rank projections, and of the index where there is one.

        Raises
        ------
        InputError
            If a width is not known.
        """
        nope, value = self._needed("qk_nope_head_dim"), self._needed("v_head_dim")
        query, rank = query_heads * (nope + self.qk_rope_head_dim), self.q_lora_rank
        total = self.low_rank_weights(hidden) + (hidden * query if rank is None else rank * query)
        return total + query_heads * (self.kv_lora_rank * (nope + value) + value * hidden)

    def low_rank_weights(self, hidden: int) -> int:
        """Those of the parameters that every rank holds whole: down to the low ranks, and the index."""
        rank = self.q_lora_rank
        total = 0 if rank is None else rank * (hidden + 1)
        total += hidden * (self.kv_lora_rank + self.qk_rope_head_dim) + self.kv_lora_rank
        if self.index_head_dim and self.index_heads:
            total += self.index_heads * ((rank or hidden) * self.index_head_dim + hidden) + hidden * self.index_head_dim \
                + 2 * self.index_head_dim
        return total

    def _needed(self, name: str) -> int:
        value: int | None = getattr(self, name)
        if value is None:
            raise InputError(f"{name} is not known, and the weights cannot be counted without it")
        return value


@dataclass(frozen=True)
class State:
    """A layer that keeps a fixed state a sequence: linear attention, Mamba, a short convolution.

    Parameters
    ----------
    conv_width : int
        Channels of the convolution, without those that belong to groups.
    conv_kernel : int
        Its taps; ``conv_kernel - 1`` past inputs are kept. 0: no convolution.
    heads, head_elements : int
        Heads of the recurrent state and elements a head. 0: none.
    groups, group_width : int
        Mamba 2: groups and channels a group; groups are repeated where the ranks do not divide them.
    state_dtype : str, optional
        Of the recurrent state; None: as the model's dtype.
    speculates : bool
        Whether the convolution also keeps the speculated tokens' inputs.
    parameters : int
        Weights of the mixer.
    kind : str
        Its name in `sim.models.state_layers`; ``mamba2`` for Mamba with heads.
    """

    conv_width: int
    conv_kernel: int
    heads: int = 0
    head_elements: int = 0
    groups: int = 0
    group_width: int = 0
    state_dtype: str | None = None
    speculates: bool = True
    parameters: int = 0
    kind: str = ""

    def check(self, name: str, size: int) -> None:
        """Raise InputError where the heads or channels cannot be shared out over ``size`` ranks."""
        if self.heads % size or self.conv_width % size:
            raise InputError(f"tensor_parallel_size {size} does not divide the {self.heads or self.conv_width} "
                             f"{'heads' if self.heads else 'channels'} of the states of {name}")

    def caches(self, form: CacheFormat) -> list[LayerCache]:
        """One page: the convolution's inputs and the recurrent state.

        >>> gated_delta_net = State(8192, 4, heads=32, head_elements=128 * 128, state_dtype="float32")
        >>> gated_delta_net.caches(CacheFormat(tensor_parallel_size=2))[0].page_bytes
        1073152
        """
        size = form.tensor_parallel_size
        kept = max(self.conv_kernel - 1, 0) + (form.speculative_tokens if self.speculates else 0)
        groups = self.groups if self.groups % size == 0 else size
        conv = (self.conv_width + groups * self.group_width) // size * kept * form.state_element_bytes
        dtype = form.state_dtype or self.state_dtype
        element = form.state_element_bytes if dtype is None else STATE_ELEMENT_BYTES[dtype]
        state = self.heads // size * self.head_elements * element
        return [LayerCache("state", form.block_size, state_bytes=conv + state, speculative_blocks=form.speculative_states,
                           checkpoint_blocks=self.kind in form.checkpointed)]

    def weights(self, hidden: int, query_heads: int, family: Family) -> int:
        """Parameters of the mixer, counted where its fields were read."""
        return self.parameters


Mixer = Attention | Latent | State


def _whole(value: Fraction) -> int:
    if value.denominator != 1:
        raise InputError(f"{value} bytes a token and layer: no whole number")
    return value.numerator
