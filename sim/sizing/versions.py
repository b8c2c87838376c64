"""What changed between vLLM versions in the start-up report and the memory budget (rule 52 of docs/rules.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workloads.request import InputError

if TYPE_CHECKING:
    from sim.models.layer_cache import RequestLimits
    from sim.models.layer_groups import Group

LAST_PATCH = 99


@dataclass(frozen=True, order=True)
class Version:
    """A vLLM version by its major, minor and patch numbers; without a patch, the last of its series.

    >>> parse_version("0.11.0rc2").number, parse_version("v0.8.5.post1") < parse_version("0.9.2")
    ((0, 11, 0), True)
    """

    number: tuple[int, int, int]

    def __str__(self) -> str:
        major, minor, patch = self.number
        return f"{major}.{minor}" if patch == LAST_PATCH else f"{major}.{minor}.{patch}"

    # what a server has left, and takes for granted
    @property
    def default_utilization(self) -> float:
        """``gpu_memory_utilization`` where none is given."""
        return 0.92 if self.number >= (0, 20, 0) else 0.9

    @property
    def deducts_cuda_graphs(self) -> bool:
        """Whether the estimated memory of CUDA graphs is taken off (rule 43: since 0.21)."""
        return self.number >= (0, 21, 0)

    @property
    def first_engine(self) -> bool:
        """The engine before V1: no chunked prefill up to 32k, 256 sequences, a CPU swap space of 4 GiB."""
        return self.number < (0, 8, 0)

    @property
    def caches_states(self) -> bool:
        """Whether prefix caching is on by default where some layers keep states."""
        return self.number >= (0, 26, 0)

    # what a layer keeps
    @property
    def pads_latent_rows(self) -> bool:
        """Whether an MLA row is padded to a multiple of 256 bytes (VLLM_CUDA_MEM_ALIGN_KV_CACHE of 0.7.2 and 0.7.3)."""
        return (0, 7, 2) <= self.number < (0, 8, 0)

    @property
    def packs_sparse_rows(self) -> bool:
        """Whether sparse MLA takes "auto" for its packed fp8 format (0.11, 0.12); later only where fp8 is asked for."""
        return (0, 11, 0) <= self.number < (0, 13, 0)

    @property
    def own_state_dtype(self) -> bool:
        """Whether recurrent states have a dtype of their own (else that of the convolution)."""
        return self.number >= (0, 18, 0)

    def state_mode(self, prefix_caching: bool, keeps_all: bool) -> str:
        """vLLM's ``mamba_cache_mode``: how many states a request keeps.

        Parameters
        ----------
        keeps_all : bool
            Whether the layers are Mamba's, which once cached a state every block.
        """
        if not prefix_caching or self.number < (0, 14, 0):
            return "none"
        return "all" if keeps_all and self.number < (0, 28, 0) else "align"

    @property
    def charges_speculation(self) -> bool:
        """Whether a request is charged the states of speculated tokens."""
        return self.number >= (0, 14, 0)

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether states cached in "align" mode have a block more for checkpoints of the prefill."""
        return self.number >= (0, 33, 0)

    @property
    def latent_kernel_tokens(self) -> int:
        """Blocks of MLA beside states are a multiple of this."""
        return 128 if self.number >= (0, 30, 0) else 64

    # what the pool and the scheduler do
    @property
    def splits_freed(self) -> bool:
        """Whether freed blocks without a hash are reused first (since 0.25)."""
        return self.number >= (0, 25, 0)

    @property
    def gates_whole_prompts(self) -> bool:
        """Whether all of a prompt must fit before its first chunk is admitted (rule 27: since 0.19)."""
        return self.number >= (0, 19, 0)

    @property
    def has_watermark(self) -> bool:
        """Whether blocks may be kept free when admitting (rule 30: since 0.25)."""
        return self.number >= (0, 25, 0)

    @property
    def schedules_ahead(self) -> bool:
        """Whether a step may be scheduled before the output of the last one is known (since 0.10; on by default since 0.14)."""
        return self.number >= (0, 10, 0)

    @property
    def exempts_lone_prefill(self) -> bool:
        """Whether the long-prefill threshold is lifted for a request alone in the system (rule 26: since 0.32)."""
        return self.number >= (0, 32, 0)

    @property
    def goes_on_after_own_preemption(self) -> bool:
        """Whether, by priority, those behind a sequence that preempted itself are still scheduled (not up to 0.28)."""
        return self.number >= (0, 29, 0)

    # how layers are grouped, and what a request may hold
    @property
    def widest_ratio(self) -> float:
        """Groups of a hybrid model take the larger number of layers below this ratio."""
        return 1.5 if self.number >= (0, 18, 0) else 1.25 if self.number >= (0, 13, 0) else 1.0

    @property
    def manages_windows(self) -> bool:
        """Whether window layers have block tables of their own; before, they were kept in full."""
        return self.number >= (0, 9, 0)

    @property
    def keeps_chunks(self) -> bool:
        """Whether chunked-local layers are managed as such unless switched off (not from 0.10.2 to 0.13)."""
        return self.number >= (0, 14, 0)

    def batches_in_flight(self, asynchronous: bool, stages: int) -> int:
        """Steps whose tokens a window must hold at once (since 0.26; before, one)."""
        if self.number < (0, 26, 0):
            return 1
        return stages + 1 if asynchronous else stages

    # the report
    @property
    def null_block_checked(self) -> bool:
        """Whether the check at start sets the null block aside (rule 50: since 0.30)."""
        return self.number >= (0, 30, 0)

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


NEWEST = Version((0, 33, LAST_PATCH))


def parse_version(text: str) -> Version:
    """A version from ``0.11``, ``v0.11.0`` or ``0.11.0rc1.dev5+local``.

    Raises
    ------
    InputError
        If it is no version, or newer than those whose rules are known.
    """
    found = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[a-z][a-z0-9]*)?(?:[.+-][a-z0-9]+)*", text.strip())
    if found is None:
        raise InputError(f"vLLM version {text!r}: a version such as {NEWEST} is wanted")
    version = Version((int(found[1]), int(found[2]), LAST_PATCH if found[3] is None else int(found[3])))
    if version.number[:2] > NEWEST.number[:2]:
        raise InputError(f"vLLM version {text!r}: rules are known up to {NEWEST}")
    return version
