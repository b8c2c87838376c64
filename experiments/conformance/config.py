"""What a recorded case asks for: its configuration with the recorder's defaults, every value checked.

A key the recorder does not know is an error, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from workloads.messages import show
from workloads.request import InputError

LEAST = {"long_prefill_token_threshold": 0}
MOST = {"num_blocks": 1 << 24, "block_size": 1 << 20}  # more would exhaust our memory
ANY_MOST = 1 << 40
CHOICES = {"mode": ("scheduler",), "detail": ("full", "steps", "none", "totals"), "policy": ("fcfs", "priority")}
KINDS = ("full", "sliding", "chunked", "chunked_local")
REACH = ("window", "chunk", "chunk_size")              # names of a group's reach


@dataclass(frozen=True)
class CaseConfig:
    """A case's ``config`` under vLLM's names; ``num_blocks`` counts the null block; ``detail`` "totals" is for large runs.

    Raises
    ------
    InputError
        One line naming the key and what is wrong with its value.
    """

    mode: str = "scheduler"
    num_blocks: int = 100
    block_size: int = 16
    enable_prefix_caching: bool = True
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    max_model_len: int = 131_072
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    reserve_full_isl: bool = True
    watermark: float = 0.0
    policy: str = "fcfs"
    async_scheduling: bool = False
    groups: list[Any] = field(default_factory=lambda: [{"kind": "full"}])
    max_steps: int = 1_000_000
    detail: str = "full"

    @classmethod
    def of(cls, config: Any) -> CaseConfig:
        """From the JSON of a case."""
        if not isinstance(config, dict):
            raise InputError("the case's config is no object")
        unknown = sorted(config.keys() - {entry.name for entry in fields(cls)})
        if unknown:
            raise InputError(f"the case's config has a key that is not known: {show(unknown[0])}")
        return cls(**config)

    def __post_init__(self) -> None:
        for entry in fields(self):
            _check(entry.name, str(entry.type), getattr(self, entry.name))
        self.kinds()

    def kinds(self) -> list[tuple[str, int | None]]:
        """The groups as (kind, reach in tokens), chunked-local ones as "chunked"."""
        if not self.groups:
            raise _wrong("groups", self.groups, "at least one is wanted")
        return [_kind(group) for group in self.groups]


def _check(name: str, kind: str, value: Any) -> None:
    wanted = {"int": int, "bool": bool, "float": float, "str": str, "list[Any]": list}[kind]
    if type(value) is not wanted and not (kind == "float" and type(value) is int):
        raise _wrong(name, value, f"{'a whole number' if kind == 'int' else kind.removesuffix('[Any]')} is wanted")
    least, most = LEAST.get(name, 1), MOST.get(name, ANY_MOST)
    if kind == "int" and not least <= value <= most:
        raise _wrong(name, value, f"a number from {least:,} to {most:,} is wanted")
    if kind == "float" and not 0 <= value < 1:
        raise _wrong(name, value, "a share from 0 to 1 is wanted")
    if name in CHOICES and value not in CHOICES[name]:
        raise _wrong(name, value, f"one of {', '.join(CHOICES[name])} is wanted")


def _kind(group: Any) -> tuple[str, int | None]:
    kind = group.get("kind") if isinstance(group, dict) else None
    if kind not in KINDS:
        raise _wrong("groups", group, f"the kind of a group is one of {', '.join(KINDS)}")
    if kind == "full":
        return "full", None
    reach = next((group[name] for name in REACH if name in group), None)
    if type(reach) is not int or not 1 <= reach <= ANY_MOST:
        raise _wrong("groups", group, "a window or chunk of 1 token or more is wanted")
    return kind.removesuffix("_local"), reach


def _wrong(name: str, value: Any, why: str) -> InputError:
    return InputError(f"the case's config: {name} {str(value)[:40]!r}: {why}")
