"""The MLPs of a config.json: which layers have a dense one, which have experts, which have none, and how wide they are."""

from __future__ import annotations

from sim.models.block_configs import searched_widths
from sim.models.config_fields import Fields
from sim.models.family import Experts, Family
from sim.models.weight_formats import DENSE as DENSE_PART
from sim.models.weight_formats import LOW_RANK, REST, ROUTED, SHARED
from workloads.request import InputError

DENSE, MOE, NONE, BOTH = "dense", "moe", "none", "dense+moe"

_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "num_experts_per_tok_moe", "top_k_experts", "moe_k")
_SHARED_COUNTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
_WIDTHS = ("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")


def mlp_layers(fields: Fields, count: int, has_experts: bool) -> tuple[str, ...]:
    """``dense``, ``moe``, ``none`` or ``dense+moe`` for each layer.

    Raises
    ------
    InputError
        If a field makes no sense.

    >>> mlp_layers(Fields({"first_k_dense_replace": 1}, "doc"), 3, has_experts=True)
    ('dense', 'moe', 'moe')
    """
    pattern, blocks = fields.get("hybrid_override_pattern"), fields.names("layers_block_type")
    if isinstance(pattern, str):                       # a layer is a mixer or an MLP, never both
        return _listed(fields, "hybrid_override_pattern", [{"-": DENSE, "E": MOE}.get(letter, NONE) for letter in pattern], count)
    if isinstance(blocks, list) and {"moe", "mlp", "hybrid"} & set(blocks):  # MLPs of hybrid layers count with the mixers
        return _listed(fields, "layers_block_type", [{"mlp": DENSE, "moe": MOE}.get(name, NONE) for name in blocks], count)
    if fields.get("block_configs") is not None:
        return tuple(DENSE if width else NONE for width in searched_widths(fields, count))
    if not has_experts:
        return (DENSE,) * count
    if fields.flag("enable_moe_block"):
        return (BOTH,) * count
    return tuple(MOE if _sparse(fields, i) else DENSE for i in range(count))


def mlp_widths(fields: Fields, family: Family, count: int, hidden: int) -> tuple[int | None, tuple[int, ...]]:
    """The width of the dense MLPs (None: not known), and that of each layer where they differ.

    >>> mlp_widths(Fields({"intermediate_size": 22016}, "doc"), Family(mlp_width_is_doubled=True), 2, 4096)
    (11008, ())
    """
    if fields.get("block_configs") is not None:
        widths = searched_widths(fields, count)
        return max(widths) or None, widths
    width = fields.count(*_WIDTHS)
    if width is None:
        return 4 * hidden if family.mlp_is_four_hidden else None, ()
    return width // 2 if family.mlp_width_is_doubled else width, ()


def experts_of(fields: Fields, family: Family) -> Experts | None:
    """The experts; None where there are none.

    >>> experts_of(Fields({"n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1408}, "doc"), Family())
    Experts(count=64, per_token=None, width=1408, shared_width=2816, latent_width=None)
    """
    count = fields.count(*_COUNTS, least=0)
    if not count:
        return None
    width = fields.count("moe_intermediate_size")
    if width is None and family.expert_width_is_intermediate:
        width = fields.count("intermediate_size")
    per_token = fields.count(*_PER_TOKEN)
    if per_token is not None and per_token > count:
        raise fields.fail("num_experts_per_tok", f"is {per_token}, more than the {count} experts")
    return Experts(count, per_token, width, _shared_width(fields, family, width),
                   fields.count("moe_latent_size", "routed_expert_hidden_size"))


def mlp_parts(kind: str, width: int | None, experts: Experts | None, family: Family, hidden: int) -> dict[str, int]:
    """Weights of a layer's MLP by part; a router's are with the rest.

    Raises
    ------
    InputError
        If a width is not known.

    >>> mlp_parts("moe", None, Experts(8, 2, 64), Family(), 32)
    {'routed experts': 49152, 'shared experts': 0, 'low-rank projections': 0, 'rest': 256}
    """
    def matrices(inputs: int, outputs: int) -> int:
        bias = outputs + inputs if family.all_bias and outputs else 0
        return family.mlp_matrices * inputs * outputs + bias

    parts = {DENSE_PART: matrices(hidden, _known("intermediate_size", width))} if kind in (DENSE, BOTH) else {}
    if kind in (MOE, BOTH) and experts is not None:
        inner = _known("moe_intermediate_size", experts.width)
        parts |= {ROUTED: experts.count * matrices(experts.latent_width or hidden, inner),
                  SHARED: matrices(hidden, experts.shared_width), LOW_RANK: 2 * hidden * (experts.latent_width or 0),
                  REST: hidden * experts.count}
    return parts


def _known(name: str, value: int | None) -> int:
    if value is None:
        raise InputError(f"{name} is not known, and the weights cannot be counted without it")
    return value


def _listed(fields: Fields, field: str, kinds: list[str], count: int) -> tuple[str, ...]:
    if len(kinds) < count:                             # where another field named the mixers, nobody has checked this one
        raise fields.fail(field, f"has {len(kinds)} entries for {count} layers")
    return tuple(kinds[:count])


def _shared_width(fields: Fields, family: Family, width: int | None) -> int:
    """The width of all shared experts together."""
    total = fields.count("shared_expert_intermediate_size", "share_expert_dim", "shared_intermediate_size", least=0)
    if total is not None:
        return total
    if family.shared_width_is_intermediate:
        return fields.count("intermediate_size") or 0
    one = fields.count("moe_shared_expert_intermediate_size") or width
    return (fields.count(*_SHARED_COUNTS, least=0) or 0) * (one or 0)


def _sparse(fields: Fields, i: int) -> bool:
    if i < (fields.count("first_k_dense_replace", "moe_layer_start_index", least=0) or 0):
        return False
    if i in (fields.numbers("mlp_only_layers") or ()):
        return False
    listed = fields.get("moe_layers_enum")
    if isinstance(listed, str):
        return str(i) in {item.strip() for item in listed.split(",")}
    period = fields.count("expert_layer_period")
    if period is not None:
        return i % period == (fields.count("expert_layer_offset", least=0) or 0)
    frequency = fields.get("moe_layer_freq")
    if isinstance(frequency, list):
        return bool(i < len(frequency) and frequency[i])
    if frequency is not None:
        return i % (fields.count("moe_layer_freq") or 1) == 0
    step = fields.count("interleave_moe_layer_step", "decoder_sparse_step", least=0)
    return not step or (i + 1) % step == 0
