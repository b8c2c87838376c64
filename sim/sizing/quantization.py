"""How the weights and the cache of a checkpoint are stored: the ``quantization_config`` of config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.sizing.config_fields import Fields
from sim.sizing.model_names import shortened

Stored = tuple[str | None, int | None, int | None]


def quantization(fields: Fields) -> Stored:
    """Method, bits and group size; (None, None, None) where weights are stored as the dtype says.

    Raises
    ------
    InputError
        If the section makes no sense.

    >>> quantization(Fields({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64}}, "doc"))
    ('gptq', 4, 64)
    """
    section = fields.get("quantization_config")
    if section is None:
        return None, None, None
    if not isinstance(section, Mapping):
        raise fields.fail("quantization_config", f"must be an object of fields, not {shortened(section)}")
    method = section.get("quant_method")
    if not isinstance(method, str):
        raise fields.fail("quantization_config", f"must have a quant_method, not {shortened(section)}")
    bits, group = _number(fields, section, "bits", "w_bit"), _number(fields, section, "group_size", "q_group_size")
    if method in ("gptq", "awq"):
        return ("int8", None, None) if bits == 8 else (method, bits, group)
    if method == "compressed-tensors":
        return _compressed(fields, section)
    if method == "modelopt":
        return str(section.get("quant_algo") or "fp8").lower(), None, None
    if method == "bitsandbytes":
        return ("int8" if section.get("load_in_8bit") else method), None, None
    if method.startswith("fbgemm_fp8"):
        return "fp8", None, None
    return method, bits, group


def kv_cache_dtype(fields: Fields) -> str | None:
    """fp8 where the checkpoint brings scales for an fp8 cache: what vLLM then takes for "auto".

    >>> kv_cache_dtype(Fields({"quantization_config": {"kv_cache_quant_algo": "FP8"}}, "doc"))
    'fp8'
    """
    section = fields.section("quantization_config") or {}
    scheme, algorithm = section.get("kv_cache_scheme"), section.get("kv_cache_quant_algo")
    eight_bits = isinstance(scheme, Mapping) and scheme.get("type") == "float" and scheme.get("num_bits") == 8
    return "fp8" if eight_bits or algorithm == "FP8" else None


def _compressed(fields: Fields, section: Mapping[str, Any]) -> Stored:
    groups = section.get("config_groups")
    weights: Any = None
    if isinstance(groups, Mapping) and groups:
        first = next(iter(groups.values()))
        weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        return "compressed-tensors", None, None
    bits, group = weights.get("num_bits"), weights.get("group_size")
    size = group if type(group) is int and group > 0 else None
    ignored = section.get("ignore")
    experts_only = isinstance(ignored, list) and any("self_attn" in str(name) for name in ignored)
    kinds: dict[Any, str] = {("float", 8): "fp8", ("float", 4): "nvfp4", ("int", 8): "int8", ("int", 4): "w4a16"}
    name = kinds.get((str(weights.get("type")), bits if type(bits) is int else 0))
    if name is None:
        return "compressed-tensors", None, None
    return ("int4-experts" if name == "w4a16" and experts_only else name), (4 if name == "w4a16" else None), size


def _number(fields: Fields, section: Mapping[str, Any], *names: str) -> int | None:
    value = next((section[name] for name in names if section.get(name) is not None), None)
    if value is not None and (type(value) is not int or value == 0):
        raise fields.fail("quantization_config", f"{names[0]} must be a whole number, not {shortened(value)}")
    return value if value is None or value > 0 else None
