"""What changed between vLLM versions in the start-up report and the memory budget (SEMANTICS section 9 and rule 52)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sim.sizing.layer_cache import RequestLimits
from sim.sizing.layer_groups import Group
from workloads.request import InputError


@dataclass(frozen=True, order=True)
class Version:
    """A vLLM version by its major, minor and patch numbers.

    >>> parse_version("0.11.0rc2").number, parse_version("v0.8.5.post1") < parse_version("0.9.2")
    ((0, 11, 0), True)
    """

    number: tuple[int, int, int]

    def __str__(self) -> str:
        return ".".join(map(str, self.number)).removesuffix(".0") if self.number[2] == 0 else ".".join(map(str, self.number))

    @property
    def null_block_checked(self) -> bool:
        """Whether the check at start sets the null block aside (rule 50: since 0.30)."""
        return self.number >= (0, 30, 0)

    @property
    def default_utilization(self) -> float:
        """``gpu_memory_utilization`` where none is given (section 9)."""
        return 0.92 if self.number >= (0, 20, 0) else 0.9

    @property
    def widest_ratio(self) -> float:
        """Groups of a hybrid model take the larger number of layers below this ratio."""
        return 1.5 if self.number >= (0, 16, 0) else 1.25

    @property
    def pads_latent_rows(self) -> bool:
        """Whether an MLA row is padded to a multiple of 256 bytes (the first engine, up to 0.8)."""
        return (0, 7, 0) <= self.number < (0, 9, 0)

    def tokens_and_concurrency(self, blocks: int, groups: Sequence[Group], limits: RequestLimits,
                               held: int) -> tuple[int, float]:
        """The two numbers of the report by the rule of the version (rule 52).

        Parameters
        ----------
        held : int
            Pool blocks that one request of ``max_model_len`` may hold.
        """
        shortest = min(cache.block_size for group in groups for cache in group.caches)
        size = blocks // len(groups) * shortest
        if self.number < (0, 9, 0):
            return size, size / limits.max_model_len
        concurrency = blocks / held
        if self.number < (0, 22, 0):
            spread = limits.decode_context_parallel_size if self.number >= (0, 10, 2) else 1
            return size * spread, concurrency
        return int(concurrency * limits.max_model_len), concurrency


NEWEST = Version((0, 33, 0))


def parse_version(text: str) -> Version:
    """A version from ``0.11``, ``v0.11.0`` or ``0.11.0rc1.dev5+local``.

    Raises
    ------
    InputError
        If it is no version, or newer than those whose rules are known.
    """
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?=$|[.+a-z-])", text.strip())
    if found is None:
        raise InputError(f"vLLM version {text!r}: a version such as {NEWEST} is wanted")
    version = Version((int(found[1]), int(found[2]), int(found[3] or 0)))
    if version.number[:2] > NEWEST.number[:2]:
        raise InputError(f"vLLM version {text!r}: rules are known up to {NEWEST}")
    return version
