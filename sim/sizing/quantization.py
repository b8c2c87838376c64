"""How the weights and the cache of a checkpoint are stored: the ``quantization_config`` of config.json.

    quant_method, quant_algo, config_groups     ->  quantization()   the method, bits and group size
    ignore, modules_to_not_convert, ...         ->  layout()         which parts of which layer it leaves in 16 bits
    quantized_layers                            ->  layout()         the format of each part (mixed precision)

Lists of modules hold names, wildcards and regular expressions ("re:..."); they are matched with the usual names of the
matrices of each part. A part is left out where all its matrices are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sim.sizing.config_fields import Fields
from sim.sizing.model_names import shortened
from sim.sizing.weight_formats import ATTENTION, DENSE, HEAD, MATRICES, OUT, ROUTED, SHARED, STATE, Layout

MIXED = "mixed_precision"
Stored = tuple[str | None, int | None, int | None]

_IGNORED = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "llm_int8_skip_modules")
_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4", "MXFP8": "mxfp8", "MXFP4": "mxfp4", "INT8": "int8",
               "FP8_PB_WO": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8"}
_KINDS = {("float", 8): "fp8", ("float", 4): "nvfp4", ("int", 8): "int8", ("int", 4): "w4a16"}
_BLOCKS = ("mlp", "block_sparse_moe", "mixer", "feed_forward")
_PREFIXES = ("model.", "language_model.model.", "model.language_model.", "backbone.")
_MODULES: dict[str, tuple[tuple[str, ...], ...]] = {  # a part -> its matrices, under the names of several families
    ATTENTION: (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.qkv_proj",),
                ("self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj"),
                ("mixer.q_proj", "mixer.k_proj", "mixer.v_proj")),
    OUT: (("self_attn.o_proj",), ("mixer.o_proj",)),
    STATE: (("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"),
            ("linear_attn.in_proj_qkvz", "linear_attn.out_proj"), ("mixer.in_proj", "mixer.out_proj"),
            ("mamba.in_proj", "mamba.out_proj"), ("conv.in_proj", "conv.out_proj")),
    DENSE: tuple((f"{block}.up_proj", f"{block}.down_proj") for block in _BLOCKS) + (("mlp.gate_up_proj", "mlp.down_proj"),),
    SHARED: tuple((f"{block}.{name}.up_proj", f"{block}.{name}.down_proj") for block in _BLOCKS
                  for name in ("shared_expert", "shared_experts")),
    ROUTED: tuple((f"{block}.experts.0.{up}", f"{block}.experts.0.{down}") for block in _BLOCKS
                  for up, down in (("up_proj", "down_proj"), ("w1", "w2"))),
}


def quantization(fields: Fields) -> Stored:
    """Method, bits and group size; (None, None, None) where weights are stored as the dtype says.

    Raises
    ------
    InputError
        If the section makes no sense.

    >>> quantization(Fields({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64}}, "doc"))
    ('gptq', 4, 64)
    """
    section = fields.section("quantization_config")
    if section is None:
        return None, None, None
    method = section.get("quant_method")
    if not isinstance(method, str):
        raise fields.fail("quantization_config", f"must have a quant_method, not {shortened(section)}")
    bits, group = _number(fields, section, "bits", "w_bit"), _number(fields, section, "group_size", "q_group_size")
    if method in ("gptq", "awq"):
        return ("int8", None, None) if bits == 8 else (method, bits, group)
    if method == "compressed-tensors":
        return _compressed(fields, section)
    if str(section.get("quant_algo")).lower() == MIXED:
        return MIXED, None, None
    if method == "modelopt":
        algorithm = section.get("quant_algo") or "FP8"
        return _ALGORITHMS.get(str(algorithm), str(algorithm).lower()), None, None
    if method == "bitsandbytes":
        return ("int8" if section.get("load_in_8bit") else method), None, None
    if method.startswith("fbgemm_fp8"):
        return "fp8", None, None
    return method, bits, group


def layout(fields: Fields, method: str | None, parts: Sequence[frozenset[str]]) -> Layout | None:
    """Which parts of which layer are quantised, where the config has a list of exceptions; None where it has none.

    Parameters
    ----------
    method : str, optional
        As `quantization` gives it.
    parts : sequence of frozenset of str
        The parts that each layer has; last those of a layer for multi-token prediction.

    Raises
    ------
    InputError
        If a list or a pattern makes no sense.

    >>> section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.*.self_attn*"]}
    >>> layout(Fields({"quantization_config": section}, "doc"), "nvfp4", [frozenset({"attention", "dense MLPs"})]).parts
    (frozenset({'dense MLPs'}),)
    """
    section = fields.section("quantization_config")
    if section is None or method is None:
        return None
    ignored = _Patterns(fields, _ignored(fields, section))
    mixed = _mixed(fields, section) if method in (MIXED, "compressed-tensors") else {}
    if mixed:
        named = {part: name for part in (*MATRICES, HEAD) if (name := _format_of(fields, mixed, part, parts))}
        return Layout(method, _quantised(parts, ignored, frozenset(named)), tuple(named.items()))
    if method == MIXED:
        raise fields.fail("quantization_config", "is of mixed precision and has no quantized_layers")
    if not ignored.any or method == "mxfp4" and section.get("quant_method") == "mxfp4":
        return None                                    # the method's own rule: only routed experts are in mxfp4
    return Layout(method, _quantised(parts, ignored, frozenset(MATRICES)))


def kv_cache_dtype(fields: Fields) -> str | None:
    """fp8 where the checkpoint brings scales for an fp8 cache: what vLLM then takes for "auto".

    >>> kv_cache_dtype(Fields({"quantization_config": {"kv_cache_quant_algo": "FP8"}}, "doc"))
    'fp8'
    """
    section = fields.section("quantization_config") or {}
    scheme, algorithm = section.get("kv_cache_scheme"), section.get("kv_cache_quant_algo")
    eight_bits = isinstance(scheme, Mapping) and scheme.get("type") == "float" and scheme.get("num_bits") == 8
    return "fp8" if eight_bits or algorithm == "FP8" else None


# ---------------------------------------------------------------------- modules
class _Patterns:
    """Modules by name, wildcard or regular expression."""

    def __init__(self, fields: Fields, patterns: Iterable[str]) -> None:
        patterns = [re.sub(r"^(?:(?:model|language_model|backbone)\.)+(?=layers\.)", "", each) for each in patterns]
        self.any = bool(patterns)
        self._names = {each for each in patterns if not each.startswith("re:") and not re.search(r"[*{]", each)}
        globs = [_glob(each) for each in patterns if not each.startswith("re:") and each not in self._names]
        try:
            self._glob = re.compile("|".join(globs)) if globs else None
            self._regexes = [re.compile(each[3:]) for each in patterns if each.startswith("re:")]
        except (re.error, RecursionError, OverflowError) as error:
            raise fields.fail("quantization_config", f"has a pattern that cannot be read: {error}".splitlines()[0]) from None

    def match(self, module: str) -> bool:
        """Whether a pattern names the module, one that holds it, or the end of its name."""
        words = module.split(".")
        for start in range(len(words)):
            for end in range(start + 1, len(words) + 1):
                piece = ".".join(words[start:end])
                if piece in self._names or (self._glob and self._glob.fullmatch(piece)):
                    return True
        return any(regex.match(prefix + module) for regex in self._regexes for prefix in _PREFIXES)


def _glob(pattern: str) -> str:
    """``*`` is anything, ``{1,2}`` one of these."""
    text = re.escape(pattern).replace(r"\*", ".*")
    return re.sub(r"\\\{([\w\\,-]*?)\\\}", lambda found: f"(?:{found[1].replace(',', '|')})", text)


def _modules(part: str, layer: int, last: bool) -> list[list[str]]:
    """The matrices of a part of a layer, by each family's names."""
    if part == HEAD:
        return [["lm_head"]]
    places = [f"layers.{layer}."] + (["mtp.layers.0."] if last else [])
    names = _MODULES[part]
    return [[place + name for name in each] for each in names for place in places]


def _quantised(parts: Sequence[frozenset[str]], ignored: _Patterns, named: frozenset[str]) -> tuple[frozenset[str], ...]:
    found = []
    for layer, own in enumerate(parts):
        last = layer == len(parts) - 1
        plain = {part for part in own & named
                 if any(all(map(ignored.match, names)) for names in _modules_of(part, layer, last, own))}
        found.append(own & named - plain)
    return tuple(found)


def _modules_of(part: str, layer: int, last: bool, own: frozenset[str]) -> list[list[str]]:
    """As `_modules`; experts beside a dense MLP are no part of the block of that name."""
    names = _modules(part, layer, last)
    beside = part == ROUTED and DENSE in own
    return [[name.replace(".mlp.experts", ".experts") for name in each] for each in names] if beside else names


def _format_of(fields: Fields, mixed: Mapping[str, str], part: str, parts: Sequence[frozenset[str]]) -> str | None:
    """The format of a part: that of the first pattern which names one of its matrices in a layer that has it."""
    layers = [i for i, own in enumerate(parts[:-1]) if part in own] or ([0] if part == HEAD else [])
    for pattern, name in mixed.items():
        matched = _Patterns(fields, [pattern])
        if any(matched.match(module) for i in layers[:1] + layers[-1:] for names in _modules(part, i, False)
               for module in names):
            return name
    return None


# ---------------------------------------------------------------------- parts of the section
def _ignored(fields: Fields, section: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name in _IGNORED:
        value = section.get(name)
        if value is None:
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise fields.fail("quantization_config", f"{name} must be a list of names, not {shortened(value)}")
        found += value
    return found


def _mixed(fields: Fields, section: Mapping[str, Any]) -> dict[str, str]:
    """Pattern -> format."""
    if section.get("quant_method") == "compressed-tensors":
        return _groups(fields, section)
    listed = section.get("quantized_layers")
    if not isinstance(listed, Mapping):
        raise fields.fail("quantization_config", f"quantized_layers must be an object, not {shortened(listed)}")
    found = {}
    for pattern, value in listed.items():
        algorithm = value.get("quant_algo") if isinstance(value, Mapping) else value
        if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
            raise fields.fail("quantization_config", f"quantized_layers has {shortened(algorithm)}: known are "
                                                     f"{', '.join(_ALGORITHMS)}")
        found[str(pattern)] = _ALGORITHMS[algorithm]
    return found


def _compressed(fields: Fields, section: Mapping[str, Any]) -> Stored:
    groups = section.get("config_groups")
    first = next(iter(groups.values())) if isinstance(groups, Mapping) and groups else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        return "compressed-tensors", None, None
    names = set(_groups(fields, section).values())
    if len(names) != 1:
        return "compressed-tensors", None, None
    name, size = names.pop(), weights.get("group_size")
    return name, 4 if name == "w4a16" else None, size if type(size) is int and size > 0 else None


def _groups(fields: Fields, section: Mapping[str, Any]) -> dict[str, str]:
    """Target -> format, of each group."""
    groups, found = section.get("config_groups"), {}
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            continue
        bits, size = weights.get("num_bits"), weights.get("group_size")
        name = _KINDS.get((str(weights.get("type")), bits if type(bits) is int else 0), f"{shortened(bits)}-bit")
        name = "mxfp4" if name == "nvfp4" and size == 32 else name
        targets = group.get("targets") or ["Linear"]
        for target in targets if isinstance(targets, list) else [targets]:
            found["*" if target == "Linear" else str(target)] = name
    return found


def _number(fields: Fields, section: Mapping[str, Any], *names: str) -> int | None:
    value = next((section[name] for name in names if section.get(name) is not None), None)
    if value is not None and (type(value) is not int or value == 0):
        raise fields.fail("quantization_config", f"{names[0]} must be a whole number, not {shortened(value)}")
    return value if value is None or value > 0 else None
