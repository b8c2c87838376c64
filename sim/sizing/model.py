"""A model's shape: the numbers that set the size of its weights and of its KV cache, and those sizes.

    ModelShape  ->  bytes a token (full attention: K and V of each KV head; MLA: one row)
                ->  parameters    (all, those one token passes through, routed experts, embeddings)

`Family` tells how a ``model_type`` differs from a Llama. `sim.sizing.model_config` makes shapes from config.json and from the
catalogue; no file is read here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from sim.sizing import kv_formula
from workloads.request import InputError


@dataclass(frozen=True)
class Family:
    """How the layers of a ``model_type`` differ from a Llama's: gated MLP of 3 matrices, no bias, untied embeddings."""

    mlp_matrices: int = 3
    qkv_bias: bool = False
    all_bias: bool = False
    qk_norm: bool = False
    extra_positions: int | None = None  # learned positions: max_position_embeddings + this many rows
    tied: bool = False
    expert_width_is_intermediate: bool = False
    mlp_width_is_doubled: bool = False
    mlp_is_four_hidden: bool = False
    window_is_opt_in: bool = False


@dataclass(frozen=True)
class Experts:
    """Mixture of experts: ``per_token`` of ``count`` experts ``width`` wide; shared ones run always."""

    count: int
    per_token: int | None
    width: int | None
    shared_width: int = 0
    dense_layers: int = 0
    gaps: bool = False  # dense and expert layers in another order than "first dense, then experts"


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: one row of ``kv_lora_rank + qk_rope_head_dim`` a token and layer, no separate V."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int | None = None
    v_head_dim: int | None = None
    q_lora_rank: int | None = None


@dataclass(frozen=True)
class ModelShape:
    """A decoder whose layers all keep the same cache: full attention, or MLA.

    Widths are in elements. ``None`` is "the source does not say"; what needs it then raises. ``quantization`` is how
    the weights are stored (None: as ``dtype`` says), ``note`` what to tell the user: words that fell away, fields
    filled in.

    >>> from sim.sizing.model_config import load_model
    >>> load_model("Llama-2-7B").kv_bytes_per_token()
    524288
    """

    name: str
    source: str
    layers: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int | None = None
    vocab_size: int | None = None
    max_position_embeddings: int | None = None
    tied_embeddings: bool = False
    dtype: str | None = None
    quantization: str | None = None
    experts: Experts | None = None
    latent: Latent | None = None
    family: Family = field(default_factory=Family)
    note: str = ""

    def check_tensor_parallel(self, size: int) -> None:
        """Raise `InputError` where vLLM would refuse this tensor parallel size (rule 49)."""
        if size < 1 or self.attention_heads % size:
            raise InputError(f"tensor_parallel_size {size} does not divide the {self.attention_heads} attention heads "
                             f"of {self.name}")
        if self.latent is None and self.kv_heads % size and size % self.kv_heads:
            raise InputError(f"tensor_parallel_size {size} and the {self.kv_heads} KV heads of {self.name}: "
                             "neither divides the other")

    def kv_bytes_per_token(self, kv_dtype_bytes: int | Fraction = 2, tensor_parallel_size: int = 1) -> int:
        """Bytes of one token's cache in all layers on one rank.

        KV heads are shared out until there is one a rank, after that replicated; an MLA row is whole on every rank
        (rules 44 and 49).

        Raises
        ------
        InputError
            If the heads cannot be shared out over ``tensor_parallel_size`` ranks.

        >>> from sim.sizing.model_config import load_model
        >>> load_model("Llama-3.1-8B").kv_bytes_per_token(2, tensor_parallel_size=16)  # 8 heads: one each, twice
        16384
        """
        self.check_tensor_parallel(tensor_parallel_size)
        if self.latent:
            # one row instead of K and V: half of what the formula gives for one "head" of the latent width
            width = self.latent.kv_lora_rank + self.latent.qk_rope_head_dim
            return kv_formula.kv_bytes_per_token(self.layers, 1, width, Fraction(kv_dtype_bytes) / 2)
        heads = max(1, self.kv_heads // tensor_parallel_size)
        return kv_formula.kv_bytes_per_token(self.layers, heads, self.head_dim, kv_dtype_bytes)

    @property
    def attention_flops_per_pair(self) -> int:
        """Operations of one pair (new token, attended token) in all layers: 2 a multiply-add, for QK and for AV."""
        value_dim = (self.latent.v_head_dim if self.latent else None) or self.head_dim
        return 2 * self.layers * self.attention_heads * (self.head_dim + value_dim)

    @property
    def parameters(self) -> int:
        """Number of weights, every expert counted, embeddings once where tied.

        Exact for Llama, Mistral, Mixtral, Qwen 2 and 3 and OPT; elsewhere within about 1 % (small biases and norms may
        be left out). Vision towers and multi-token-prediction layers are not counted.

        >>> from sim.sizing.model_config import load_model
        >>> load_model("Llama-3.1-8B").parameters
        8030261248
        """
        return self._count(self.experts.count if self.experts else 0)

    @property
    def active_parameters(self) -> int:
        """Weights one token passes through: of the experts only ``per_token``; the rest as in `parameters`."""
        return self._count(self._needed("num_experts_per_tok", self.experts.per_token) if self.experts else 0)

    @property
    def routed_parameters(self) -> int:
        """Weights of all routed experts; 0 for a dense model."""
        return self.parameters - self._count(0) if self.experts else 0

    @property
    def embedding_parameters(self) -> int:
        """Weights of the token embedding and, unless tied, the output layer."""
        return (1 if self.tied_embeddings else 2) * self._needed("vocab_size", self.vocab_size) * self.hidden_size

    def _count(self, experts_used: int) -> int:
        norm = self.hidden_size * (2 if self.family.all_bias else 1)
        total = self.layers * (self._attention_parameters() + 2 * norm) + norm + self.embedding_parameters
        if self.family.extra_positions is not None:
            rows = self._needed("max_position_embeddings", self.max_position_embeddings) + self.family.extra_positions
            total += rows * self.hidden_size
        if not self.experts:
            return total + self.layers * self._mlp_parameters(self._needed("intermediate_size", self.intermediate_size))
        if self.experts.gaps:
            raise InputError(f"{self.name}: decoder_sparse_step, mlp_only_layers or moe_layer_freq is set: "
                             "such weights are not counted yet")
        width = self._needed("moe_intermediate_size", self.experts.width)
        sparse = experts_used * self._mlp_parameters(width) + self._mlp_parameters(self.experts.shared_width)
        sparse += self.hidden_size * self.experts.count
        dense = self.experts.dense_layers
        if dense:
            total += dense * self._mlp_parameters(self._needed("intermediate_size", self.intermediate_size))
        return total + (self.layers - dense) * sparse

    def _mlp_parameters(self, width: int) -> int:
        bias = width + self.hidden_size if self.family.all_bias else 0
        return self.family.mlp_matrices * self.hidden_size * width + bias

    def _attention_parameters(self) -> int:
        if self.latent:
            return self._latent_parameters(self.latent)
        query, key = self.attention_heads * self.head_dim, self.kv_heads * self.head_dim
        total = 2 * self.hidden_size * (query + key)
        total += query + 2 * key if self.family.qkv_bias or self.family.all_bias else 0
        total += self.hidden_size if self.family.all_bias else 0
        return total + (2 * self.head_dim if self.family.qk_norm else 0)

    def _latent_parameters(self, latent: Latent) -> int:
        nope = self._needed("qk_nope_head_dim", latent.qk_nope_head_dim)
        value = self._needed("v_head_dim", latent.v_head_dim)
        query, rank = self.attention_heads * (nope + latent.qk_rope_head_dim), latent.q_lora_rank
        total = self.hidden_size * query if rank is None else rank * (self.hidden_size + query + 1)
        total += self.hidden_size * (latent.kv_lora_rank + latent.qk_rope_head_dim) + latent.kv_lora_rank
        return total + self.attention_heads * (latent.kv_lora_rank * (nope + value) + value * self.hidden_size)

    def _needed(self, name: str, value: int | None) -> int:
        if value is None:
            raise InputError(f"{self.name}: {name} is not known, and the weights cannot be counted without it")
        return value
