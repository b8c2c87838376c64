"""How the layers of a ``model_type`` differ from a Llama's, and what its MLPs are."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Family:
    """Traits of a ``model_type``; a Llama has a gated MLP of 3 matrices, no bias, untied embeddings.

    >>> family({"mlp_matrices": 2, "full_every": 4}).mlp_matrices  # traits of the cache are read elsewhere
    2
    """

    mlp_matrices: int = 3
    qkv_bias: bool = False
    all_bias: bool = False
    qk_norm: bool = False
    output_gate: bool = False           # the query projection also makes a gate: twice as wide
    extra_positions: int | None = None  # learned positions: max_position_embeddings + this many rows
    tied: bool = False
    embedding_norm: bool = False        # a norm after the embeddings
    expert_width_is_intermediate: bool = False
    shared_width_is_intermediate: bool = False
    shared_blocks: bool = False         # attention and MLP of a few blocks, each used by several layers
    mlp_width_is_doubled: bool = False
    mlp_is_four_hidden: bool = False


def family(traits: dict[str, Any]) -> Family:
    """The family of a catalogue entry."""
    own = {field.name for field in fields(Family)}
    return Family(**{name: value for name, value in traits.items() if name in own})


@dataclass(frozen=True)
class Experts:
    """Mixture of experts: ``per_token`` of ``count`` experts ``width`` wide; shared ones run always.

    Routed experts work on hidden states of ``latent_width``, between two projections, where that is given.
    """

    count: int
    per_token: int | None
    width: int | None
    shared_width: int = 0
    latent_width: int | None = None
