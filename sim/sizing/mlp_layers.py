"""Which layers have a dense MLP, which have experts, which have none: the fields of config.json that say so."""

from __future__ import annotations

from sim.sizing.config_fields import Fields

DENSE, MOE, NONE = "dense", "moe", "none"


def mlp_layers(fields: Fields, count: int, has_experts: bool) -> tuple[str, ...]:
    """``dense``, ``moe`` or ``none`` for each layer.

    Raises
    ------
    InputError
        If a field makes no sense.

    >>> mlp_layers(Fields({"first_k_dense_replace": 1}, "doc"), 3, has_experts=True)
    ('dense', 'moe', 'moe')
    """
    pattern = fields.get("hybrid_override_pattern")
    if isinstance(pattern, str):                       # a layer is a mixer or an MLP, never both
        return tuple({"-": DENSE, "E": MOE}.get(letter, NONE) for letter in pattern[:count])
    if not has_experts:
        return (DENSE,) * count
    return tuple(MOE if _sparse(fields, i) else DENSE for i in range(count))


def _sparse(fields: Fields, i: int) -> bool:
    if i < (fields.count("first_k_dense_replace", least=0) or 0) or i in (fields.numbers("mlp_only_layers") or ()):
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
