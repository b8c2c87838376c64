"""A model's shape: the numbers that set the size of its weights and of its KV cache.

    ModelShape  ->  caches      what each layer keeps on one rank (`sim.models.mixers`), grouped by `layer_groups`
                ->  parameters  all, those one token passes through, routed experts; by layer and part

`sim.models.model_config` makes shapes from config.json and from the catalogue; no file is read here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from sim.models.family import Experts, Family
from sim.models.layer_cache import LayerCache
from sim.models.layer_groups import align_to_state
from sim.models.layer_kinds import Layer
from sim.models.mixers import Attention, CacheFormat, Latent, Mixer, State
from sim.models.mlp_layers import DENSE, MOE, NONE, mlp_parts
from sim.models.weight_formats import ATTENTION, EMBEDDING, HEAD, LOW_RANK, OUT, REST, ROUTED, STATE, Layout
from workloads.request import InputError


@dataclass(frozen=True)
class ModelShape:
    """A decoder: its layers' mixers and MLPs, its widths.

    Widths are in elements. ``None`` is "the source does not say"; what needs it then raises. ``kv_heads``, ``head_dim``
    and ``latent`` are those of the full-attention layers; ``mixers`` has what every layer keeps, ``mlp_widths`` each dense
    MLP's where they differ. ``quantization`` is how the weights are stored (None: as ``dtype`` says), ``layout`` where it
    leaves some out. ``embedding_width`` is that of embeddings that are projected; ``uncounted`` a field that says of weights
    which are not understood. ``note`` is what to tell the user.

    >>> from sim.models.model_config import load_model
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
    mixers: tuple[Layer, ...]
    mlps: tuple[str, ...]
    intermediate_size: int | None = None
    vocab_size: int | None = None
    max_position_embeddings: int | None = None
    tied_embeddings: bool = False
    dtype: str | None = None
    quantization: str | None = None
    quantization_bits: int | None = None
    group_size: int | None = None
    experts: Experts | None = None
    latent: Latent | None = None
    family: Family = field(default_factory=Family)
    mtp_layers: int = 0
    kv_cache_dtype: str | None = None
    note: str = ""
    mlp_widths: tuple[int, ...] = ()
    embedding_width: int | None = None
    layout: Layout | None = None
    uncounted: str = ""

    # ------------------------------------------------------------------ the cache
    def check_tensor_parallel(self, size: int) -> None:
        """Raise `InputError` where vLLM would refuse this tensor parallel size (rule 49)."""
        if size < 1 or self.attention_heads % size:
            raise InputError(f"tensor_parallel_size {size} does not divide the {self.attention_heads} attention heads "
                             f"of {self.name}")
        for mixer in dict.fromkeys(mixer for layer in self.mixers for mixer in layer):
            mixer.check(self.name, size)

    def caches(self, form: CacheFormat | None = None, mtp_layers: int = 0) -> list[list[LayerCache]]:
        """What each layer keeps on one rank; blocks are long enough for the states beside them.

        Parameters
        ----------
        form : CacheFormat, optional
            Element sizes, block size and tensor parallel size (default: 16 bits, 16 tokens, one rank).
        mtp_layers : int
            Multi-token-prediction layers appended: each keeps what a full-attention layer does.

        Raises
        ------
        InputError
            If the heads cannot be shared out over the ranks.
        """
        form = form or CacheFormat()
        self.check_tensor_parallel(form.tensor_parallel_size)
        layers = [[cache for mixer in layer for cache in mixer.caches(form)] for layer in self.mixers]
        layers += [self._main().caches(form) for _ in range(mtp_layers)]
        flat = iter(align_to_state([cache for layer in layers for cache in layer],
                                   form.kernel_tokens))
        return [[next(flat) for _ in layer] for layer in layers]

    def kv_bytes_per_token(self, kv_dtype_bytes: int | Fraction = 2, tensor_parallel_size: int = 1, mtp_layers: int = 0) -> int:
        """Bytes of one token's cache on one rank, in all layers that keep tokens (those with a window until it leaves it).

        KV heads are shared out until there is one a rank, after that replicated; an MLA row is whole on every rank
        (rules 44 and 49).

        Raises
        ------
        InputError
            If the heads cannot be shared out over ``tensor_parallel_size`` ranks.

        >>> from sim.models.model_config import load_model
        >>> load_model("Llama-3.1-8B").kv_bytes_per_token(2, tensor_parallel_size=16)  # 8 heads: one each, twice
        16384
        """
        form = CacheFormat(kv_dtype_bytes, tensor_parallel_size=tensor_parallel_size)
        return sum(cache.bytes_per_token for layer in self.caches(form, mtp_layers) for cache in layer)

    def _main(self) -> Attention | Latent:
        return self.latent or Attention(self.kv_heads, self.head_dim)

    @property
    def attention_flops_per_pair(self) -> int:
        """Operations of one pair (new token, attended token) in all layers: 2 a multiply-add, for QK and for AV."""
        value_dim = (self.latent.v_head_dim if self.latent else None) or self.head_dim
        attending = sum(1 for layer in self.mixers for mixer in layer if not isinstance(mixer, State))
        return 2 * attending * self.attention_heads * (self.head_dim + value_dim)

    # ------------------------------------------------------------------ the weights
    @property
    def parameters(self) -> int:
        """Number of weights, every expert counted, embeddings once where tied.

        Exact for Llama, Mistral, Mixtral, Qwen 2 and 3 and OPT; elsewhere within about 1 % (small biases and norms may
        be left out). Vision towers and multi-token-prediction layers are not counted.

        >>> from sim.models.model_config import load_model
        >>> load_model("Llama-3.1-8B").parameters
        8030261248
        """
        return self._count(self.experts.count if self.experts else 0)

    @property
    def active_parameters(self) -> int:
        """Weights one token passes through: of the experts only ``per_token``; the rest as in `parameters`."""
        return self._count(self._needed("num_experts_per_tok", self.experts.per_token) if self.experts else 0)

    @property
    def extra_parameters(self) -> int:
        """Weights beside the embeddings: learned positions, a norm, projections."""
        extra = 2 * self.hidden_size if self.family.embedding_norm else 0
        if self.embedding_width is not None:
            extra += 2 * self.hidden_size * self.embedding_width
        if self.family.extra_positions is None:
            return extra
        rows = self._needed("max_position_embeddings", self.max_position_embeddings) + self.family.extra_positions
        return extra + rows * self.hidden_size

    def end_parts(self) -> dict[str, int]:
        """Weights before and after the layers, by part; the output layer has none of its own where tied.

        >>> from sim.models.model_config import load_model
        >>> load_model("Qwen3-0.6B").end_parts()
        {'embeddings': 155582464, 'output layer': 0, 'rest': 1024}
        """
        if self.uncounted:
            raise InputError(f"{self.name}: {self.uncounted} is set: its weights are not understood and cannot be counted")
        table = self._needed("vocab_size", self.vocab_size) * (self.embedding_width or self.hidden_size)
        return {EMBEDDING: table + self.extra_parameters, HEAD: 0 if self.tied_embeddings else table, REST: self.norm_parameters}

    def layer_parts(self, index: int) -> dict[str, int]:
        """Weights of one layer by part, all experts counted; index ``layers`` is one of multi-token prediction.

        Raises
        ------
        InputError
            If a width is not known.

        >>> from sim.models.model_config import load_model
        >>> load_model("Llama-3.1-8B").layer_parts(0)
        {'attention': 25165824, 'attention output': 16777216, 'dense MLPs': 176160768, 'rest': 8192}
        """
        predicts = index == self.layers                # attention and an MLP on the projection of two hidden states
        mixers = (self._main(),) if predicts else self.mixers[index]
        mlp = (MOE if self.experts else DENSE) if predicts else self.mlps[index]
        norms = bool(mixers) + (mlp != NONE) + 3 * predicts
        width = self.mlp_widths[index] if index < len(self.mlp_widths) else self.intermediate_size
        counted = [{REST: norms * self.norm_parameters + predicts * 2 * self.hidden_size**2}]
        try:
            counted[:0] = [*map(self._mixer_parts, mixers), mlp_parts(mlp, width, self.experts, self.family, self.hidden_size)]
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from None
        parts: dict[str, int] = {}
        for part, weights in (item for each in counted for item in each.items()):
            parts[part] = parts.get(part, 0) + weights
        return {part: weights for part, weights in parts.items() if weights}

    def layer_parameters(self, index: int, experts_used: int | None = None) -> int:
        """Weights of one layer, all experts counted unless told how many.

        >>> from sim.models.model_config import load_model
        >>> load_model("Llama-3.1-8B").layer_parameters(0)
        218112000
        """
        parts = self.layer_parts(index)
        routed = parts.get(ROUTED, 0)
        if experts_used is None or self.experts is None:
            return sum(parts.values())
        return sum(parts.values()) - routed + routed // self.experts.count * experts_used

    @property
    def norm_parameters(self) -> int:
        """Weights of one normalisation."""
        return self.hidden_size * (2 if self.family.all_bias else 1)

    def _count(self, experts_used: int) -> int:
        return sum(self.layer_parameters(i, experts_used) for i in range(self.layers)) + sum(self.end_parts().values())

    def _mixer_parts(self, mixer: Mixer) -> dict[str, int]:
        weights = mixer.weights(self.hidden_size, self.attention_heads, self.family)
        if isinstance(mixer, State):
            return {STATE: weights}
        if isinstance(mixer, Attention) and mixer.parameters is not None:
            return {ATTENTION: weights}
        low = mixer.low_rank_weights(self.hidden_size) if isinstance(mixer, Latent) else 0
        values = mixer.v_head_dim or 0 if isinstance(mixer, Latent) else mixer.values
        out = self.attention_heads * values * self.hidden_size
        return {ATTENTION: weights - low - out, LOW_RANK: low, OUT: out}

    def _needed(self, name: str, value: int | None) -> int:
        if value is None:
            raise InputError(f"{self.name}: {name} is not known, and the weights cannot be counted without it")
        return value
