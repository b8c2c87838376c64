"""``block_configs`` of a searched architecture: heads and MLP widths differ by layer, some layers have no attention or no MLP.

    {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 5.25}}      64 heads / 8 KV heads; MLP 2/3 x 5.25 x hidden
    {"attention": {"no_op": true},         "ffn": {"no_op": true}}         neither
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.models.config_fields import MOST, Fields
from sim.models.mixers import Attention, Latent
from sim.models.model_names import shortened

WIDTH_STEP = 256                                       # MLP widths are rounded up to a multiple
MOST_MULTIPLE = 1000


def searched_layers(fields: Fields, count: int, main: Attention | Latent) -> tuple[tuple[Attention, ...], ...]:
    """The attention of every layer.

    Raises
    ------
    InputError
        If an entry is missing or makes no sense.

    >>> blocks = [{"attention": {"n_heads_in_group": 8}}, {"attention": {"no_op": True}}]
    >>> fields = Fields({"num_attention_heads": 64, "block_configs": blocks}, "doc")
    >>> [[mixer.kv_heads for mixer in layer] for layer in searched_layers(fields, 2, Attention(64, 128))]
    [[8], []]
    """
    if isinstance(main, Latent):
        raise fields.fail("block_configs", "is set beside kv_lora_rank: such layers are not understood yet")
    heads = fields.need("num_attention_heads")
    layers: list[tuple[Attention, ...]] = []
    for i, attention in enumerate(_entries(fields, count, "attention")):
        if attention.get("no_op"):
            layers.append(())
            continue
        group = attention.get("n_heads_in_group")
        if type(group) is not int or group < 1 or heads % group:
            raise fields.fail("block_configs", f"entry {i}: n_heads_in_group {shortened(group)} does not divide {heads} heads")
        layers.append((Attention(heads // group, main.head_dim),))
    return tuple(layers)


def searched_widths(fields: Fields, count: int) -> tuple[int, ...]:
    """The MLP width of every layer, 0 where there is none: two thirds of ``ffn_mult`` x hidden, rounded up to 256.

    >>> fields = Fields({"hidden_size": 8192, "block_configs": [{"ffn": {"ffn_mult": 5.25}}, {"ffn": {"no_op": True}}]}, "doc")
    >>> searched_widths(fields, 2)
    (28672, 0)
    """
    hidden, widths = fields.need("hidden_size"), []
    for i, ffn in enumerate(_entries(fields, count, "ffn")):
        width, multiple = ffn.get("intermediate_size"), ffn.get("ffn_mult")
        if ffn.get("no_op"):
            widths.append(0)
        elif isinstance(width, int) and not isinstance(width, bool) and 0 < width <= MOST:
            widths.append(width)
        elif isinstance(multiple, (int, float)) and not isinstance(multiple, bool) and 0 < multiple <= MOST_MULTIPLE:
            widths.append(-(-int(2 * multiple * hidden / 3) // WIDTH_STEP) * WIDTH_STEP)
        else:
            raise fields.fail("block_configs", f"entry {i}: ffn {shortened(dict(ffn))} has no ffn_mult that makes sense")
    return tuple(widths)


def _entries(fields: Fields, count: int, name: str) -> list[Mapping[str, Any]]:
    """One part of each entry."""
    blocks = fields.get("block_configs")
    if not isinstance(blocks, list) or len(blocks) != count:
        raise fields.fail("block_configs", f"must have one entry for each of {count} layers")
    found = []
    for i, block in enumerate(blocks):
        part: Any = block.get(name) if isinstance(block, Mapping) else None
        if not isinstance(part, Mapping):
            raise fields.fail("block_configs", f"entry {i} has no {name}: {shortened(block)}")
        if part.get("replace_with_linear"):
            raise fields.fail("block_configs", f"entry {i}: replace_with_linear is not understood yet")
        found.append(part)
    return found
