"""From a config.json, or a catalogue record, to a shape; the fields are checked on the way.

    load_model("Llama-3.1-8B")  ->  catalogue record  \\
                                                       shape_from_config  ->  ModelShape
    load_model("some/folder")   ->  its config.json   /

One path reads both: the catalogue keeps its records under the names of config.json. What each layer keeps is read by
`layer_kinds`. Every field that makes no sense, or is not understood, is an `InputError` that names it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.models.config_fields import Fields
from sim.models.family import family
from sim.models.layer_kinds import heads_by_layer, layers_of, refuse
from sim.models.mixers import Attention, Latent
from sim.models.mlp_layers import experts_of, mlp_layers, mlp_widths
from sim.models.model import ModelShape
from sim.models.model_names import catalogue, find_name, named_quantization, shortened
from sim.models.positions import positions
from sim.models.quantization import kv_cache_dtype, layout, quantization
from workloads.messages import json_failed, reading_failed, show_path
from workloads.request import InputError
from workloads.whole_file import bytes_of

MOST_LAYERS = 512                                      # several times what any model has; a plan goes through them often
LONGEST_NAME = 4096
LARGEST_MIB = 16                                       # of a config.json; real ones have kilobytes
UNKNOWN_TYPE = "not known, taken for a Llama (full attention in every layer, its weights)"
UNCOUNTED = ("num_kv_shared_layers", "hidden_size_per_layer_input")  # weights of their own that are not understood


def load_model(name_or_path: str | Path) -> ModelShape:
    """The shape of a model of the catalogue, or of a config.json.

    Parameters
    ----------
    name_or_path : str or Path
        A Hugging Face id or its last part in any case, usual prefixes and suffixes allowed (said in ``note``); or a
        config.json or a folder with one.

    Raises
    ------
    InputError
        One line: an unknown name with the closest known ones, or the file, field and value that cannot be used.

    >>> shape = load_model("Qwen2.5-14B-Instruct-AWQ")
    >>> shape.name, shape.quantization
    ('Qwen/Qwen2.5-14B', 'awq')
    """
    text, path = str(name_or_path), Path(name_or_path)
    if not text.strip():
        raise InputError("the model name is empty")
    if len(text) > LONGEST_NAME:
        raise InputError(f"unknown model {shortened(text)}: no name is that long")
    if os.path.isfile(path / "config.json"):           # those of os.path take any name for one that is not there
        path = path / "config.json"
    if os.path.isfile(path) or text.endswith(".json"):
        return shape_from_config(_read_json(path), name=text, source=str(path))
    name, dropped, named = find_name(text, is_folder=os.path.isdir(path))
    record = catalogue()["models"][name]
    shape = shape_from_config(record, name, record["source"])
    stored = named or shape.quantization or named_quantization(name)
    bits, group = (shape.quantization_bits, shape.group_size) if stored == shape.quantization else (None, None)
    parts = [f"{', '.join(map(repr, dropped))} fell away from the name"] if dropped else []
    if name.lower() != text.lower() and name.split("/")[-1].lower() != text.lower():
        parts.insert(0, f"{' '.join(text.split())} read as {name}")
    note = "; ".join([*parts, *filter(None, [shape.note, record.get("note")])])
    return replace(shape, quantization=stored, quantization_bits=bits, group_size=group, note=note)


def shape_from_config(config: Mapping[str, Any], name: str, source: str) -> ModelShape:
    """A shape from the fields of a config.json (`load_model` reads and finds them).

    Raises
    ------
    InputError
        If a field is missing or makes no sense, or if some layers keep their cache in a way not understood yet.

    >>> shape_from_config({"n_layer": 12, "n_head": 12, "n_embd": 768, "model_type": "gpt2"}, "gpt2", "doc").head_dim
    64
    """
    fields = Fields(config, name)
    model_type = fields.text("model_type")
    families = catalogue()["families"]
    traits = family(families.get(model_type, {}))
    refuse(fields, model_type)
    heads, hidden = fields.need("num_attention_heads", "n_head"), fields.need("hidden_size", "n_embd", "d_model")
    layers = _layers(fields)
    longest, positions_note = positions(fields, model_type)
    latent = _latent(fields)
    by_layer = fields.get("block_configs") is not None or heads_by_layer(fields) is not None
    kv_heads, kv_note = (heads, "") if by_layer else _kv_heads(fields, heads)
    head_dim = _head_dim(fields, hidden, heads, latent)
    mixers = layers_of(fields, model_type, layers, latent or Attention(kv_heads, head_dim, _value_dim(fields, head_dim)))
    if by_layer:                                       # heads differ by layer: the widest stands for all
        kv_heads = max((mixer.kv_heads for layer in mixers for mixer in layer if isinstance(mixer, Attention)), default=1)
    experts = experts_of(fields, traits)
    width, widths = mlp_widths(fields, traits, layers, hidden)
    notes = (kv_note, "" if model_type in families else f"model_type {model_type or 'not given'}: {UNKNOWN_TYPE}",
             f"left out of text_config: {', '.join(fields.defaulted)}" if fields.defaulted else "",
             positions_note, "sparse_attention_config: keys of the index are not counted"
             if fields.get("sparse_attention_config") else "")
    tied, projected = fields.flag("tie_word_embeddings"), fields.count("word_embed_proj_dim")
    made = ModelShape(
        name, source, layers, heads, kv_heads, head_dim, hidden, mixers,
        mlp_layers(fields, layers, experts is not None), width,
        fields.count("vocab_size", "padded_vocab_size"), longest, traits.tied if tied is None else tied, _dtype(fields),
        *quantization(fields), experts, latent, traits,
        fields.count("num_nextn_predict_layers", "mtp_num_hidden_layers", least=0) or 0, kv_cache_dtype(fields),
        "; ".join(filter(None, notes)), widths, None if projected == hidden else projected,
        uncounted=next((field for field in UNCOUNTED if fields.count(field, least=0)), ""))
    return replace(made, layout=layout(fields, made.quantization, _parts(made)))


def _layers(fields: Fields) -> int:
    layers = fields.need("num_hidden_layers", "n_layer", "num_layers")
    if layers > MOST_LAYERS:
        raise fields.fail("num_hidden_layers", f"is {layers}, more than {MOST_LAYERS}")
    return layers


def _parts(model: ModelShape) -> list[frozenset[str]]:
    """The parts that each layer has, and those of a layer for multi-token prediction."""
    try:
        return [frozenset(model.layer_parts(i)) for i in range(model.layers + 1)]
    except InputError:                                 # a width is not known: said when weights are counted
        return []


def _latent(fields: Fields) -> Latent | None:
    rank = fields.count("kv_lora_rank")
    if rank is None:
        return None
    index = fields.count("index_head_dim")
    return Latent(rank, fields.need("qk_rope_head_dim"), fields.count("qk_nope_head_dim"), fields.count("v_head_dim"),
                  fields.count("q_lora_rank"), index, fields.count("index_n_heads"))


def _value_dim(fields: Fields, head_dim: int) -> int | None:
    value = fields.count("v_head_dim")
    return None if value == head_dim else value


def _kv_heads(fields: Fields, heads: int) -> tuple[int, str]:
    """The KV heads and, where they are inferred, how; by the rules of vLLM's ``get_total_num_kv_heads``."""
    kv_heads = fields.count("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
    note = ""
    if fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):
        kv_heads, note = 1, "multi_query: one KV head"
    elif kv_heads is None:
        kv_heads, note = heads, "num_key_value_heads not given: one KV head for each attention head"
    if heads % kv_heads:
        raise fields.fail("num_key_value_heads", f"{kv_heads} does not divide num_attention_heads {heads}")
    return kv_heads, note


def _head_dim(fields: Fields, hidden: int, heads: int, latent: Latent | None) -> int:
    if latent is not None and latent.qk_nope_head_dim is not None:
        return latent.qk_nope_head_dim + latent.qk_rope_head_dim
    head_dim = fields.count("head_dim", "attention_head_dim", "kv_channels")
    if head_dim is None and latent is None and hidden % heads:
        raise fields.fail("hidden_size", f"{hidden} is no multiple of num_attention_heads {heads}; head_dim is missing")
    return head_dim if head_dim is not None else max(1, hidden // heads)


def _dtype(fields: Fields) -> str | None:
    value = fields.get("torch_dtype", "dtype")
    name = value.removeprefix("torch.") if isinstance(value, str) else value
    if name is not None and name not in ("float32", "bfloat16", "float16"):
        raise fields.fail("torch_dtype", f"must be float32, bfloat16 or float16, not {shortened(value)}")
    return name


def _read_json(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(bytes_of(path, LARGEST_MIB))
    except InputError:                                 # too long, and says so
        raise
    except OSError as error:
        raise reading_failed(str(path), error) from None
    except (ValueError, RecursionError) as error:
        raise json_failed(str(path), error) from None
    if not isinstance(config, dict):
        raise InputError(f"{show_path(str(path))}: must be an object of fields, not {shortened(config)}")
    return config
