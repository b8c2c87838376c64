"""A model's shape: what its config.json says about the size of its weights and of its KV cache.

    load_model("Llama-3.1-8B")  ->  catalogue record  \\
                                                       shape_from_config  ->  ModelShape: bytes a token, parameters
    load_model("some/folder")   ->  its config.json   /

One path reads both: the catalogue (data/models.json) keeps its records under the names of config.json. It also holds
the tables that tell how a ``model_type`` differs from a Llama, and which layers keep their cache another way. Those
layers, and every field that makes no sense, are an `InputError` that names the field. Only this module reads files.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Any

from sim import kv_formula
from workloads.request import InputError

_DROP = re.compile(r"meta|family|instruct|chat|hf|it|base|thinking|preview|dynamic|static|pertensor|bf16|fp16|\d{4}|"
                   r"awq|gptq|int4|int8|fp8|w8a8|w4a16|nvfp4|mxfp4|gguf|bnb|4bit|8bit", re.IGNORECASE)
_QUANTIZATION = {  # words of a name -> how the weights are stored; the first that is there counts ("GPTQ-Int8" is int8)
    "int8": "int8", "8bit": "int8", "w8a8": "int8", "fp8": "fp8", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "awq": "awq",
    "gptq": "gptq", "int4": "int4", "w4a16": "int4", "4bit": "int4", "bnb": "int4", "gguf": "gguf",
}
_NOT_YET = "such layers are not understood yet"


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
    if path.is_dir() and (path / "config.json").is_file():
        path = path / "config.json"
    if path.is_file() or text.endswith(".json"):
        return shape_from_config(_read_json(path), name=text, source=str(path))
    name, dropped, quantization = _find(text, is_folder=path.is_dir())
    record = _packaged()["models"][name]
    shape = shape_from_config(record, name, record["source"])
    quantization = quantization or shape.quantization or _named_quantization(name)
    parts = [f"{', '.join(map(repr, dropped))} fell away from the name"] if dropped else []
    if name.lower() != text.lower() and name.split("/")[-1].lower() != text.lower():
        parts.insert(0, f"{text} read as {name}")
    note = "; ".join([*parts, *filter(None, [shape.note, record.get("note")])])
    return replace(shape, quantization=quantization, note=note)


def known_models() -> list[str]:
    """Names of the catalogue in its order; not all of them are understood yet.

    >>> "meta-llama/Llama-2-13b" in known_models()
    True
    """
    return list(_packaged()["models"])


def shape_from_config(config: Mapping[str, Any], name: str, source: str) -> ModelShape:
    """A shape from the fields of a config.json (`load_model` reads and finds them).

    Raises
    ------
    InputError
        If a field is missing or makes no sense, or if some layers keep their cache in a way not understood yet.

    >>> shape_from_config({"n_layer": 12, "n_head": 12, "n_embd": 768, "model_type": "gpt2"}, "gpt2", "doc").head_dim
    64
    """
    fields = _Fields(config, name)
    model_type = fields.text("model_type")
    families = _packaged()["families"]
    family = Family(**families.get(model_type, {}))
    _refuse_other_layers(fields, model_type)
    heads, hidden = fields.need("num_attention_heads", "n_head"), fields.need("hidden_size", "n_embd", "d_model")
    layers = fields.need("num_hidden_layers", "n_layer", "num_layers")
    positions = fields.count("max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len")
    _refuse_windows(fields, family, layers, positions)
    latent = _latent(fields)
    kv_heads, kv_note = _kv_heads(fields, heads)
    head_dim = _head_dim(fields, hidden, heads, latent)
    notes = [kv_note, "" if model_type in families else f"model_type {model_type or 'not given'}: weights as a Llama's",
             "rope_scaling is not applied to max_position_embeddings" if _stretches(fields) else ""]
    tied = fields.flag("tie_word_embeddings")
    return ModelShape(
        name, source, layers, heads, kv_heads, head_dim, hidden, _mlp_width(fields, family, hidden),
        fields.count("vocab_size", "padded_vocab_size"), positions, family.tied if tied is None else tied,
        _dtype(fields), _quantization(fields), _experts(fields, family), latent, family,
        "; ".join(filter(None, notes)))


class _Fields:
    """The fields of one config.json, and the errors that name them. An absent field and a null one are the same."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self._where = where
        nested = config.get("text_config")  # of a model that also sees or hears
        if nested is not None and not isinstance(nested, Mapping):
            raise self.fail("text_config", f"must be an object of fields, not {_short(nested)}")
        self._values: Mapping[str, Any] = {**config, **(nested or {})}

    def get(self, *names: str) -> Any:
        return next((self._values[name] for name in names if self._values.get(name) is not None), None)

    def fail(self, name: str, what: str) -> InputError:
        return InputError(f"{self._where}: {name} {what}")

    def count(self, *names: str, least: int = 1) -> int | None:
        name = next((name for name in names if self._values.get(name) is not None), None)
        if name is None:
            return None
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.fail(name, f"must be a whole number of at least {least}, not {_short(value)}")
        return value

    def need(self, *names: str) -> int:
        value = self.count(*names)
        if value is None:
            raise self.fail(names[0], "is missing")
        return value

    def text(self, name: str) -> str:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.fail(name, f"must be text, not {_short(value)}")
        return value or ""

    def flag(self, name: str) -> bool | None:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.fail(name, f"must be true or false, not {_short(value)}")
        return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _refuse_other_layers(fields: _Fields, model_type: str) -> None:
    other = _packaged()["other_layers"]
    for name, what in other["fields"].items():
        if fields.get(name):
            raise fields.fail(name, f"is {_short(fields.get(name))}: {what}; {_NOT_YET}")
    if model_type in other["model_types"]:
        raise fields.fail("model_type", f"is {model_type!r}: {other['model_types'][model_type]}; {_NOT_YET}")


def _refuse_windows(fields: _Fields, family: Family, layers: int, positions: int | None) -> None:
    """A sliding window is fine where it is off, or as long as the longest context."""
    kinds = fields.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, (list, dict)) or not all(isinstance(kind, str) for kind in kinds):
            raise fields.fail("layer_types", f"must be a list of names, not {_short(kinds)}")
        counts = Counter(kinds)
        if isinstance(kinds, list) and len(kinds) != layers:
            raise fields.fail("layer_types", f"has {len(kinds)} entries for {layers} layers")
        other = sorted(set(counts) - {"full_attention"})
        if other:
            raise fields.fail("layer_types", f"has {', '.join(other)[:60]}: {_NOT_YET}")
        return
    window, used = fields.count("sliding_window"), fields.flag("use_sliding_window")
    if used is None:
        used = not family.window_is_opt_in
    if window is not None and used and (positions is None or window < positions):
        raise fields.fail("sliding_window", f"is {window} and in use: {_NOT_YET}")


def _latent(fields: _Fields) -> Latent | None:
    rank = fields.count("kv_lora_rank")
    if rank is None:
        value_dim, head_dim = fields.count("v_head_dim"), fields.count("head_dim")
        if value_dim is not None and value_dim != head_dim:
            raise fields.fail("v_head_dim", f"is {value_dim} beside head_dim {head_dim}: {_NOT_YET}")
        return None
    return Latent(rank, fields.need("qk_rope_head_dim"), fields.count("qk_nope_head_dim"), fields.count("v_head_dim"),
                  fields.count("q_lora_rank"))


def _kv_heads(fields: _Fields, heads: int) -> tuple[int, str]:
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


def _head_dim(fields: _Fields, hidden: int, heads: int, latent: Latent | None) -> int:
    if latent is not None and latent.qk_nope_head_dim is not None:
        return latent.qk_nope_head_dim + latent.qk_rope_head_dim
    head_dim = fields.count("head_dim", "kv_channels")
    if head_dim is None and latent is None and hidden % heads:
        raise fields.fail("hidden_size", f"{hidden} is no multiple of num_attention_heads {heads}; head_dim is missing")
    return head_dim if head_dim is not None else max(1, hidden // heads)


def _mlp_width(fields: _Fields, family: Family, hidden: int) -> int | None:
    width = fields.count("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
    if width is None:
        return 4 * hidden if family.mlp_is_four_hidden else None
    return width // 2 if family.mlp_width_is_doubled else width


def _experts(fields: _Fields, family: Family) -> Experts | None:
    count = fields.count("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", least=0)
    if not count:
        return None
    width = fields.count("moe_intermediate_size")
    if width is None and family.expert_width_is_intermediate:
        width = fields.count("intermediate_size")
    shared = fields.count("shared_expert_intermediate_size", least=0)
    if shared is None:
        shared = (fields.count("n_shared_experts", least=0) or 0) * (width or 0)
    gaps = fields.get("decoder_sparse_step") not in (None, 1) or bool(fields.get("mlp_only_layers")) \
        or fields.get("moe_layer_freq") not in (None, 1)
    dense = fields.count("first_k_dense_replace", least=0) or 0
    per_token = fields.count("num_experts_per_tok", "num_experts_per_token", "moe_top_k")
    return Experts(count, per_token, width, shared, dense, gaps)


def _dtype(fields: _Fields) -> str | None:
    value = fields.get("torch_dtype", "dtype")
    name = value.removeprefix("torch.") if isinstance(value, str) else value
    if name is not None and name not in ("float32", "bfloat16", "float16"):
        raise fields.fail("torch_dtype", f"must be float32, bfloat16 or float16, not {_short(value)}")
    return name


def _stretches(fields: _Fields) -> bool:
    """Whether vLLM would multiply the longest context: linear, dynamic and YaRN scaling."""
    scaling = fields.get("rope_scaling")
    kind = scaling.get("rope_type") or scaling.get("type") if isinstance(scaling, dict) else None
    return kind in ("linear", "dynamic", "yarn")


def _quantization(fields: _Fields) -> str | None:
    section = fields.get("quantization_config")
    if section is None:
        return None
    if not isinstance(section, dict) or not isinstance(section.get("quant_method"), str):
        raise fields.fail("quantization_config", f"must have a quant_method, not {_short(section)}")
    method: str = section["quant_method"]
    return "int8" if method in ("gptq", "awq") and section.get("bits") == 8 else method


def _named_quantization(name: str) -> str | None:
    words = name.lower().split("-")
    return next((kind for word, kind in _QUANTIZATION.items() if word in words), None)


def _find(text: str, is_folder: bool) -> tuple[str, list[str], str | None]:
    """The catalogue name, the words that fell away and the quantization that the words name."""
    names, wanted = known_models(), text.lower()
    words = text.split("/")[-1].split("-")
    dropped = [word for word in words if _DROP.fullmatch(word)]
    quantization = _named_quantization("-".join(dropped))
    for name in names:
        if wanted in (name.lower(), name.split("/")[-1].lower()):
            return name, [], None
    same = [name for name in names if _core(name) == _core(text) != ()]
    if not same:
        if is_folder:
            raise InputError(f"{text}: no config.json in this folder")
        short = {name.lower().split("/")[-1].removeprefix("meta-"): name for name in names}
        close = difflib.get_close_matches(wanted.split("/")[-1].removeprefix("meta-"), short, n=3, cutoff=0.4)
        hint = f"closest: {', '.join(short[name] for name in close)}" if close else "no name is close"
        raise InputError(f"unknown model {_short(text)}: {hint}")
    name = max(same, key=lambda each: _likeness(each, dropped))  # the first of equals
    kept = {word.lower() for word in name.split("/")[-1].split("-")}
    return name, [word for word in dropped if word.lower() not in kept], quantization


def _core(name: str) -> tuple[str, ...]:
    words = name.lower().split("/")[-1].split("-")
    return tuple(word for word in words if not _DROP.fullmatch(word))


def _likeness(name: str, dropped: list[str]) -> tuple[int, int]:
    """More of the fallen words in common first, then fewer words of its own."""
    own = {word for word in name.lower().split("/")[-1].split("-") if _DROP.fullmatch(word)} - {"meta"}
    common = own & {word.lower() for word in dropped}
    return len(common), -len(own - common)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: no valid JSON: {error.msg}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', '') or type(error).__name__}") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: must be an object of fields, not a {type(config).__name__}")
    return config


@functools.cache
def _packaged() -> dict[str, Any]:
    text = resources.files("sim").joinpath("data/models.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data
