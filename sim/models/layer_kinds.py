"""Which mixer each layer of a config.json has: the many ways in which hybrid models are written down.

    layer_types, layers_block_type          a name a layer (or how many of each name)
    hybrid_override_pattern "M-M*..."       a letter a layer: M Mamba, * attention, - and E no mixer
    full_attention_interval, sliding_window_pattern, attn_layer_period, ...
                                            every n-th layer is full attention
    no_rope_layers, hybrid_layer_pattern, attn_type_list, linear_attn_config, block_configs
                                            lists of numbers
    sliding_window, attention_chunk_size    all the other layers

`layer_names` reads these into one name a layer, `layers_of` makes the mixers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sim.models.block_configs import searched_layers
from sim.models.config_fields import Fields
from sim.models.mixers import Attention, Latent, Mixer
from sim.models.model_names import catalogue, shortened
from sim.models.state_layers import STATES, shared_attention

Layer = tuple[Mixer, ...]

FULL, SLIDING, CHUNKED, NONE, BOTH = "full_attention", "sliding_attention", "chunked_attention", "none", "attention+mamba"
ALIASES = {"attention": FULL, "global_attention": FULL, "local_attention": SLIDING, "sliding_window_attention": SLIDING,
           "m": "mamba", "mamba2": "mamba", "hybrid": BOTH, "moe": NONE, "mlp": NONE, "short_conv": "conv",
           "gated_deltanet": "linear_attention"}
LETTERS = {"M": "mamba", "*": FULL, "-": NONE, "E": NONE}
KNOWN = {FULL, SLIDING, CHUNKED, NONE, BOTH, *STATES}
HEADS_BY_LAYER = ("num_key_value_heads_per_layer", "num_key_value_heads", "num_kv_heads")
UNDERSTOOD = {  # fields with a word about the cache in their name that are read, or leave it as it is
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_channels", "kv_lora_rank", "q_lora_rank", "use_cache",
    "sliding_window", "use_sliding_window", "sliding_window_size", "nope_layer_interval", *HEADS_BY_LAYER,
}


def layers_of(fields: Fields, model_type: str, count: int, main: Attention | Latent) -> tuple[Layer, ...]:
    """The mixers of every layer.

    Parameters
    ----------
    count : int
        Layers of the model.
    main : Attention or Latent
        What a full-attention layer has.

    Raises
    ------
    InputError
        If a field is missing, makes no sense or describes layers that are not understood.

    >>> fields = Fields({"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"]}, "doc")
    >>> [mixer.window for layer in layers_of(fields, "gpt_oss", 2, Attention(8, 64)) for mixer in layer]
    [128, None]
    """
    refuse(fields, model_type)
    if fields.get("block_configs") is not None:
        return searched_layers(fields, count, main)
    if isinstance(main, Attention) and heads_by_layer(fields) is not None:
        return tuple((Attention(heads, main.head_dim, main.value_dim),) for heads in _each(fields, count))
    names = layer_names(fields, model_type, count)
    _check_used(fields, names)
    shared = fields.count("num_kv_shared_layers", least=0) or 0
    if catalogue()["families"].get(model_type, {}).get("shared_blocks"):
        return _around_shared(fields, names)
    made = {name: _mixers(name, fields, model_type, main) for name in dict.fromkeys(names)}
    return tuple(made[name] if i < count - shared else () for i, name in enumerate(names))


def layer_names(fields: Fields, model_type: str, count: int) -> list[str]:
    """One of `KNOWN` for each layer, from whichever field says it.

    >>> layer_names(Fields({"hybrid_override_pattern": "M*E"}, "doc"), "nemotron_h", 3)
    ['mamba', 'full_attention', 'none']
    """
    for field, read in _READERS.items():
        if fields.get(field) is not None:
            names = read(fields, count)
            if names is not None:
                return _checked(fields, field, names, count)
    traits = catalogue()["families"].get(model_type, {})
    if "full_every" in traits:                         # the family's rule where the file leaves it out
        return _every(count, traits["full_every"], SLIDING)
    if "layers_from" in traits:                        # a hybrid by its model_type: never taken for plain attention
        raise fields.fail(traits["layers_from"], f"is missing, and {model_type} layers differ")
    return [_otherwise(fields, model_type)] * count


def heads_by_layer(fields: Fields) -> tuple[str, list[int]] | None:
    """The field that lists KV heads layer by layer, and its numbers."""
    for name in HEADS_BY_LAYER:
        if isinstance(fields.get(name), list):
            return name, fields.numbers(name) or []
    return None


def _each(fields: Fields, count: int) -> list[int]:
    found = heads_by_layer(fields)
    assert found is not None
    name, heads = found
    if len(heads) != count or not all(heads):
        raise fields.fail(name, f"must have one number of at least 1 for each of {count} layers, not {shortened(heads)}")
    return heads


def refuse(fields: Fields, model_type: str) -> None:
    """Raise InputError for fields and model types whose caches are not understood."""
    other = catalogue()["other_layers"]
    for name, what in other["fields"].items():
        if fields.get(name):
            raise fields.fail(name, f"is {shortened(fields.get(name))}: {what}; such layers are not understood yet")
    if model_type in other["model_types"]:
        raise fields.fail("model_type", f"is {model_type!r}: {other['model_types'][model_type]}; "
                                        "such layers are not understood yet")
    if model_type in catalogue()["families"]:
        return
    for name in fields.names_with(catalogue()["cache_words"]):
        if name not in UNDERSTOOD and name not in _READERS:
            raise fields.fail(name, f"is {shortened(fields.get(name))}, which may set the cache, and model_type "
                                    f"{model_type or 'none'!r} is not known: not understood")


# ---------------------------------------------------------------------- names of layers
def _checked(fields: Fields, field: str, names: Sequence[str], count: int) -> list[str]:
    drafts = fields.count("num_nextn_predict_layers", least=0) or 0  # some lists go on with layers for prediction
    if not count <= len(names) <= count + drafts:
        raise fields.fail(field, f"has {len(names)} entries for {count} layers")
    found = [ALIASES.get(name.lower(), name) for name in names[:count]]
    other = sorted(set(found) - KNOWN)
    if other:
        raise fields.fail(field, f"has {', '.join(other)[:60]}: such layers are not understood yet")
    return found


def _typed(field: str) -> Callable[[Fields, int], Sequence[str] | None]:
    def read(fields: Fields, count: int) -> Sequence[str] | None:
        names = fields.names(field)
        if isinstance(names, dict) and sum(names.values()) != count:
            raise fields.fail(field, f"has {sum(names.values())} entries for {count} layers")
        return _spread(names) if isinstance(names, dict) else names
    return read


def _spread(counts: Mapping[str, int]) -> list[str]:
    """So many layers of each name, evenly mixed, each name's last layer as late as can be."""
    places = [((i + 1) / n, name) for name, n in counts.items() for i in range(n)]
    return [name for _, name in sorted(places, key=lambda place: place[0])]


def _letters(fields: Fields, count: int) -> list[str]:
    pattern = fields.text("hybrid_override_pattern")
    other = sorted(set(pattern) - set(LETTERS))
    if other:
        raise fields.fail("hybrid_override_pattern", f"has {', '.join(other)[:60]}: known are {', '.join(LETTERS)}")
    return [LETTERS[letter] for letter in pattern]


def _every(count: int, interval: int, others: str, offset: int | None = None) -> list[str]:
    """Every ``interval``-th layer is full attention, the last of each round unless ``offset`` says otherwise."""
    place = interval - 1 if offset is None else offset
    return [FULL if i % interval == place else others for i in range(count)]


def _linear(fields: Fields, count: int) -> list[str]:
    section = Fields(fields.section("linear_attn_config") or {}, "linear_attn_config")
    full = section.numbers("full_attn_layers") or []   # counted from 1
    return [FULL if i + 1 in full else "kda" for i in range(count)]


def _numbered(field: str, meaning: Mapping[int, str]) -> Callable[[Fields, int], list[str]]:
    def read(fields: Fields, count: int) -> list[str]:
        return [meaning.get(value, f"type {value}") for value in fields.numbers(field) or []]
    return read


def _patterned(fields: Fields, count: int) -> list[str] | None:
    if fields.get("sliding_window") is None:
        return None
    return _every(count, fields.need("sliding_window_pattern"), SLIDING)


def _listed(fields: Fields, count: int) -> list[str]:
    full = fields.numbers("attn_layer_indices") or []
    return [FULL if i in full else "mamba" for i in range(count)]


def _chunked(fields: Fields, count: int) -> list[str]:
    """Llama 4: layers with rotary positions attend in chunks; where no list says which, every fourth has none."""
    rotary = fields.numbers("no_rope_layers")
    if rotary:
        return [CHUNKED if value else FULL for value in rotary]
    return _every(count, fields.count("nope_layer_interval", "no_rope_layer_interval") or 4, CHUNKED)


_READERS: dict[str, Callable[[Fields, int], Sequence[str] | None]] = {
    "layer_types": _typed("layer_types"),
    "layers_block_type": _typed("layers_block_type"),
    "hybrid_override_pattern": _letters,
    "hybrid_layer_pattern": _numbered("hybrid_layer_pattern", {0: FULL, 1: SLIDING}),
    "attn_type_list": _numbered("attn_type_list", {0: "lightning", 1: FULL}),
    "linear_attn_config": _linear,
    "full_attention_interval": lambda f, n: _every(n, f.need("full_attention_interval"), "linear_attention"),
    "attn_layer_indices": _listed,
    "attn_layer_period": lambda f, n: _every(n, f.need("attn_layer_period"), "mamba", f.count("attn_layer_offset", least=0)),
    "attention_chunk_size": _chunked,
    "sliding_window_pattern": _patterned,
    "max_window_layers": lambda f, n: _last_windows(f, n),
}


def _last_windows(fields: Fields, count: int) -> list[str] | None:
    """Qwen: with ``use_sliding_window``, the layers from ``max_window_layers`` on have a window."""
    if not fields.flag("use_sliding_window") or fields.get("sliding_window") is None:
        return None
    first = fields.count("max_window_layers", least=0) or 0
    return [SLIDING if i >= first else FULL for i in range(count)]


def _otherwise(fields: Fields, model_type: str) -> str:
    """All layers are alike: with a window, with a state beside attention, or plain."""
    family = catalogue()["families"].get(model_type, {})
    if family.get("state_beside_attention"):
        return BOTH
    used = fields.flag("use_sliding_window")
    if used is None:
        used = not family.get("window_is_opt_in", False)
    return SLIDING if fields.count("sliding_window") is not None and used else FULL


def _check_used(fields: Fields, names: Sequence[str]) -> None:
    """A field that belongs to a kind of layer the model was not found to have: better refused than left out."""
    kinds = {kind for name in names for kind in name.split("+")}
    for field, needed in catalogue()["fields_of_kinds"].items():
        if fields.get(field) and not kinds & set(needed):
            raise fields.fail(field, f"is {shortened(fields.get(field))}, but no layer of its kind was found: "
                                     "such layers are not understood yet")


# ---------------------------------------------------------------------- mixers
def _mixers(name: str, fields: Fields, model_type: str, main: Attention | Latent) -> Layer:
    if name == NONE:
        return ()
    if name == BOTH:
        return (main, STATES["mamba"](fields))
    if name in STATES:
        return (STATES[name](fields),)
    if isinstance(main, Latent):
        if name != FULL:
            raise fields.fail("kv_lora_rank", f"is set beside {name} layers: such layers are not understood yet")
        return (main,)
    if name == FULL:
        width = fields.count("global_head_dim") or main.head_dim
        heads = fields.count("num_global_key_value_heads") or main.kv_heads
        return (main if (width, heads) == (main.head_dim, main.kv_heads) else Attention(heads, width),)
    heads = fields.count("swa_num_key_value_heads") or main.kv_heads
    width = fields.count("swa_head_dim") or main.head_dim
    values = fields.count("swa_v_head_dim") or main.value_dim
    if name == CHUNKED:
        return (Attention(heads, width, values, chunk=fields.need("attention_chunk_size")),)
    extra = catalogue()["families"].get(model_type, {}).get("window_extra", 0)
    return (Attention(heads, width, values, window=fields.need("sliding_window", "sliding_window_size") + extra),)


def _around_shared(fields: Fields, names: Sequence[str]) -> tuple[Layer, ...]:
    """Zamba2: every layer is a state; hybrid ones also pass through one of a few shared blocks."""
    state = STATES["mamba"](fields)
    layers: list[Layer] = []
    for i, name in enumerate(names):
        if name not in (BOTH, "mamba"):
            raise fields.fail("layers_block_type", f"has {name} beside shared blocks: such layers are not understood yet")
        passed = names[:i].count(BOTH)
        layers.append((shared_attention(fields, passed), state) if name == BOTH else (state,))
    return tuple(layers)
