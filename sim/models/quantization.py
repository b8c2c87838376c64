"""How the weights and the cache of a checkpoint are stored: the ``quantization_config`` of config.json.

    quant_method, quant_algo, config_groups     ->  quantization()   the method, bits and group size
    ignore, modules_to_not_convert, ...         ->  layout()         which parts of which layer it leaves in 16 bits
    quantized_layers                            ->  layout()         the format of each part (mixed precision)

Lists of modules hold names, wildcards and regular expressions ("re:..."); they are matched with the usual names of the
matrices of each part. A part is left out where all its matrices are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.models.config_fields import Fields
from sim.models.model_names import shortened
from sim.models.module_patterns import Patterns, modules
from sim.models.weight_formats import DENSE, HEAD, MATRICES, Layout

MIXED = "mixed_precision"
Stored = tuple[str | None, int | None, int | None]

_IGNORED = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "llm_int8_skip_modules")
_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4", "MXFP8": "mxfp8", "MXFP4": "mxfp4", "INT8": "int8",
               "FP8_PB_WO": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8"}
_KINDS = {("float", 8): "fp8", ("float", 4): "nvfp4", ("int", 8): "int8", ("int", 4): "w4a16"}


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
        return _compressed(section)
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
        The parts that each layer has; last those of a layer for multi-token prediction. Empty: not known.

    Raises
    ------
    InputError
        If a list or a pattern makes no sense.

    >>> section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.*.self_attn*"]}
    >>> layout(Fields({"quantization_config": section}, "doc"), "nvfp4", [frozenset({"attention", "dense MLPs"})]).parts
    (frozenset({'dense MLPs'}),)
    """
    section = fields.section("quantization_config")
    if section is None or method is None or not parts:
        return None
    ignored = _patterns(fields, _ignored(fields, section))
    delta = fields.get("linear_attn_config", "attn_type_list") is not None
    mixed = _mixed(fields, section, method)
    if mixed and (len(set(mixed.values())) > 1 or "*" not in mixed):
        compiled = {pattern: (form, _patterns(fields, [pattern])) for pattern, form in mixed.items()}
        named = {part: form for part in (*MATRICES, HEAD) if (form := _format_of(compiled, part, parts, delta))}
        if not named:
            raise fields.fail("quantization_config", f"names no matrices of the layers: {shortened(list(mixed))}")
        return _laid_out(method, parts, _quantised(parts, ignored, frozenset(named), delta), tuple(named.items()))
    if not ignored.any or section.get("quant_method") == "mxfp4":
        return None                                    # that method's own rule: only routed experts are quantised
    return _laid_out(method, parts, _quantised(parts, ignored, frozenset(MATRICES), delta))


def kv_cache_dtype(fields: Fields) -> str | None:
    """fp8 where the checkpoint brings scales for an fp8 cache: what vLLM then takes for "auto".

    >>> kv_cache_dtype(Fields({"quantization_config": {"kv_cache_quant_algo": "FP8"}}, "doc"))
    'fp8'
    """
    section = fields.section("quantization_config") or {}
    scheme, algorithm = section.get("kv_cache_scheme"), section.get("kv_cache_quant_algo")
    eight_bits = isinstance(scheme, Mapping) and scheme.get("type") == "float" and scheme.get("num_bits") == 8
    return "fp8" if eight_bits or algorithm == "FP8" else None


# ---------------------------------------------------------------------- parts of layers
def _laid_out(method: str, parts: Sequence[frozenset[str]], quantised: tuple[frozenset[str], ...],
              formats: tuple[tuple[str, str], ...] = ()) -> Layout:
    covered = frozenset(part for own in quantised for part in own)
    plain = tuple(part for part in MATRICES if part not in covered and any(part in own for own in parts[:-1]))
    return Layout(method, quantised, plain, formats)


def _quantised(parts: Sequence[frozenset[str]], ignored: Patterns, named: frozenset[str],
               delta: bool) -> tuple[frozenset[str], ...]:
    """The parts of each layer that are named and not left out."""
    found = []
    for layer, own in enumerate(parts):
        last = layer == len(parts) - 1
        found.append(frozenset(part for part in own & named if not any(
            all(map(ignored.match, matrices)) for matrices in modules(part, layer, last, delta, DENSE in own))))
    return tuple(found)


def _format_of(mixed: Mapping[str, tuple[str, Patterns]], part: str, parts: Sequence[frozenset[str]], delta: bool) -> str | None:
    """The format of a part: that of the first pattern which names one of its matrices in a layer that has it."""
    layers = [i for i, own in enumerate(parts[:-1]) if part in own] or ([0] if part == HEAD else [])
    ways = [way for i in layers[:1] + layers[-1:] for way in modules(part, i, False, delta, DENSE in parts[i])]
    return next((form for form, pattern in mixed.values() if any(any(map(pattern.match, way)) for way in ways)), None)


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


def _patterns(fields: Fields, names: Sequence[str]) -> Patterns:
    try:
        return Patterns(names)
    except ValueError as error:
        raise fields.fail("quantization_config", f"has a pattern that cannot be read: {error}") from None


def _mixed(fields: Fields, section: Mapping[str, Any], method: str) -> dict[str, str]:
    """Pattern -> format, where a config says what is quantised; empty where it is silent."""
    if section.get("quant_method") == "compressed-tensors":
        return _groups(section)
    if method != MIXED:
        return {}
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


def _compressed(section: Mapping[str, Any]) -> Stored:
    groups = section.get("config_groups")
    first = next(iter(groups.values())) if isinstance(groups, Mapping) and groups else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        return "compressed-tensors", None, None
    names = set(_groups(section).values())
    if len(names) != 1:
        return "compressed-tensors", None, None
    name, size = names.pop(), weights.get("group_size")
    return name, 4 if name == "w4a16" else None, size if type(size) is int and size > 0 else None


def _groups(section: Mapping[str, Any]) -> dict[str, str]:
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
    if value is not None and (type(value) is not int or value == 0 or ("bits" in names[0] and not 2 <= value <= 8)):
        wanted = "2 to 8" if "bits" in names[0] else "a whole number, not 0"
        raise fields.fail("quantization_config", f"{names[0]} must be {wanted}, not {shortened(value)}")
    return value if value is None or value > 0 else None
