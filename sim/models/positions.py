"""The longest context of a config.json, as vLLM derives it (``_get_and_verify_max_len``).

    the smallest of max_position_embeddings, n_positions, max_seq_len, seq_length, ...; model_max_length before all others
    x factor            where the rotary scaling is linear, dynamic or another kind that stretches positions
    as it stands        for longrope, llama3 and yarn, whose files give the stretched length, and for Gemma 3
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.models.config_fields import Fields
from sim.models.model_names import shortened

_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_target_positions",
            "max_sequence_length", "max_seq_length", "seq_len")
_AS_IT_STANDS = ("default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "mrope")
MOST_FACTOR = 10_000


def positions(fields: Fields, model_type: str) -> tuple[int | None, str]:
    """The longest context (None: not known) and what to say about it.

    Raises
    ------
    InputError
        If a length or the scaling makes no sense.

    >>> fields = {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}
    >>> positions(Fields(fields, "doc"), "llama")
    (16384, 'max_position_embeddings 4,096 x 4 (linear scaling)')
    """
    lengths = [length for name in _LENGTHS if (length := fields.count(name)) is not None]
    longest = fields.count("model_max_length") or min(lengths, default=fields.count("n_ctx"))
    scalings = _scalings(fields)
    if longest is None or not scalings or "gemma3" in model_type:
        return longest, ""
    kind, factor, before = scalings[-1]
    if kind == "longrope" and before:
        return longest, f"longrope: without --max-model-len vLLM serves the original {before:,}"
    if kind == "yarn" and before and round(before * factor) != longest:
        return longest, f"yarn: {longest:,} as it stands; vLLM up to 0.28 took {before:,} x {factor:g}"
    if kind in _AS_IT_STANDS or factor == 1:
        return longest, ""
    return int(longest * factor), f"max_position_embeddings {longest:,} x {factor:g} ({kind} scaling)"


def _scalings(fields: Fields) -> list[tuple[str, float, int | None]]:
    """Kind, factor and original length of each scaling: one, or one for each kind of layer."""
    name = "rope_parameters" if fields.get("rope_parameters") is not None else "rope_scaling"
    section = fields.section(name)
    if not section:
        return []
    nested = [value for value in section.values() if isinstance(value, Mapping)]
    return [_scaling(fields, name, each) for each in nested or [section]]


def _scaling(fields: Fields, name: str, section: Mapping[str, Any]) -> tuple[str, float, int | None]:
    kind, factor = section.get("rope_type") or section.get("type") or "default", section.get("factor", 1)
    before = section.get("original_max_position_embeddings") or fields.count("original_max_position_embeddings")
    if not isinstance(kind, str):
        raise fields.fail(name, f"has a type that is no text: {shortened(kind)}")
    factor = 1 if factor is None else factor
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= MOST_FACTOR:   # nor nan
        raise fields.fail(name, f"has factor {shortened(factor)}: a number up to {MOST_FACTOR} is wanted")
    if before is not None and (type(before) is not int or not 0 < before < 10**9):
        raise fields.fail(name, f"has original_max_position_embeddings {shortened(before)}: a whole number is wanted")
    return {"su": "longrope"}.get(kind, kind), float(factor), before
