"""The paper's setting: OPT-13B on an A100-40GB with 12 GB for the cache, and the ShareGPT lengths of its artifact.

Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023, sections 2, 3 and
6, Table 1. A token of OPT-13B is 2 x 40 layers x 5,120 x 2 bytes = 800 KiB, so 12 GiB hold 15,728 slots.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sim import kv_formula
from sim.config import SimConfig
from sim.engine import Engine
from sim.memory.allocator import PARTS
from sim.models.model import ModelShape
from sim.models.model_config import load_model
from sim.run import Observer, Run
from sim.scheduler_config import SchedulerConfig
from sim.sizing.hardware import GIB
from sim.step_time import StepLoad, StepTime
from workloads import transform
from workloads.messages import show_path
from workloads.readers import read_trace
from workloads.request import InputError, Trace

FILE = "vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz"
ALL_ROWS = 79_731                                      # of 84,226 first turns, those with prompt + output <= 2,048
MAX_TOTAL_TOKENS = 2048
KV_GIB = 12
BLOCK_SIZE = 16
SYSTEMS = {"Orca (Max)": "contiguous-max", "Orca (Pow2)": "contiguous-pow2", "Orca (Oracle)": "contiguous-oracle",
           "vLLM": "paged"}


class Ticks(Observer):
    """Tells how many requests finished."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell

    def updated(self, now_us: int, finished: list[int]) -> None:
        if finished:
            self._tell(len(finished))


@dataclass
class Lab:
    """What an experiment may use: the asked-for trace and seed, and where progress goes.

    Parameters
    ----------
    trace : str or None
        A file of lengths; None: the artifact's where it is found.
    limit : int or None
        At most so many requests; then the numbers are no verdict on the whole trace.
    progress : callable (description, total) -> callable (done)
    """

    trace: str | None = None
    seed: int = 0
    limit: int | None = None
    progress: Callable[[str, int], Callable[[int], None]] = field(default=lambda text, total: lambda done: None)
    _lengths: Trace | None = field(default=None, init=False, repr=False)

    def rng(self) -> np.random.Generator:
        """A generator that gives the same numbers in every experiment of the same seed."""
        return np.random.default_rng(self.seed)

    def sharegpt(self, most: int | None = None) -> Trace:
        """The ShareGPT lengths in random order, no longer than the paper's limit; at most ``most`` of them."""
        return self.part(transform.shuffle(self.in_file_order(), self.rng()), most)

    def in_file_order(self) -> Trace:
        """The same, all of them, as they stand in the file; InputError if all are longer."""
        if self._lengths is None:
            self._lengths = transform.drop_longer_than(read_trace(find(self.trace)), MAX_TOTAL_TOKENS)
            if not len(self._lengths):
                raise InputError(f"{show_path(self._lengths.source)}: every request has more than {MAX_TOTAL_TOKENS:,} tokens")
        return self._lengths

    def read(self) -> dict[str, Any] | None:
        """The file that was read: name, requests within the paper's limit, SHA-256, whether it is the artifact's; or None."""
        if self._lengths is None:
            return None
        path, requests = Path(find(self.trace)), len(self._lengths)
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        return {"source": show_path(path.name), "requests": requests, "sha256": digest, "artifact": requests == ALL_ROWS}

    def is_paper(self) -> bool:
        """Whether the file is the artifact's, so that a verdict on a part of it means something."""
        return self.limit is None and len(self.in_file_order()) == ALL_ROWS

    def part(self, trace: Trace, most: int | None) -> Trace:
        """The first ``most`` requests, or fewer where the user asked for fewer."""
        limits = [n for n in (most, self.limit) if n is not None]
        return transform.limit(trace, min(limits)) if limits else trace

    def is_whole(self, trace: Trace) -> bool:
        """Whether this is the paper's whole set, so that a verdict means something."""
        return len(trace) == ALL_ROWS

    def run(self, trace: Trace, config: SimConfig, allocator: str, label: str | None = None) -> Run:
        """One simulation, with progress."""
        tell = self.progress(label or allocator, len(trace))
        return Engine(trace, config, allocator, observers=[Ticks(tell)]).run()


@dataclass(frozen=True)
class PrefillStepTime:
    """A decode step takes ``us``; a step that computes a prompt takes ``prefill_us`` more."""

    us: int
    prefill_us: int

    def duration_us(self, load: StepLoad) -> Any:
        return self.us + self.prefill_us * (np.asarray(load.new_tokens) > np.asarray(load.sequences))

    def describe(self) -> str:
        """One line for people, with units."""
        return f"{self.us / 1000:g} ms, and {self.prefill_us / 1000:g} ms more for a prompt"


def find(asked: str | None) -> str:
    """The file of lengths.

    Raises
    ------
    InputError
        Where none was asked for and it is not in the usual place; says what is wanted, and where.
    """
    if asked is not None:
        return asked
    folder = Path(os.environ.get("PAGEDSIM_SHARED", "../shared")) / "traces"
    if (folder / FILE).exists():
        return str(folder / FILE)
    raise InputError(f"the ShareGPT lengths of the PagedAttention artifact are not here: a CSV prompt_tokens,output_tokens of "
                     f"84,226 first turns in OPT tokens, as --trace FILE, or as traces/{FILE} in ../shared or $PAGEDSIM_SHARED")


def opt13b_blocks(block_size: int = BLOCK_SIZE) -> int:
    """``num_gpu_blocks`` of the paper's OPT-13B server, null block included.

    >>> opt13b_blocks()
    984
    """
    block_bytes = kv_formula.kv_bytes_per_block(opt13b().kv_bytes_per_token(), block_size)
    return kv_formula.blocks_that_fit(KV_GIB * GIB, block_bytes) + 1


def opt13b() -> ModelShape:
    """The model of the paper's smaller experiments."""
    return load_model("opt-13b")


def paper_config(step_time: StepTime | None = None, saturate: bool = False, block_size: int = BLOCK_SIZE,
                 scheduler: SchedulerConfig | None = None) -> SimConfig:
    """The paper's pool; nothing but memory limits the batch unless a scheduler is given."""
    config = SimConfig(opt13b_blocks(block_size), block_size, MAX_TOTAL_TOKENS, saturate=saturate,
                       scheduler=scheduler or SchedulerConfig(max_num_seqs=None, max_num_batched_tokens=None))
    return config if step_time is None else replace(config, step_time=step_time)


def shares(run: Run) -> dict[str, float]:
    """The seven parts as per cent of the pool, over the run's window."""
    total = sum(run.window.parts)
    return {part: 100 * value / total for part, value in zip(PARTS, run.window.parts, strict=True)}
