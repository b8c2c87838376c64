"""What a server printed at start-up beside what we predict: from its GPU, from the memory it found, from the blocks it made.

    GPU, model    -> budget -> memory -> blocks -> tokens, concurrency       a prediction
    memory seen             ------------> blocks -> tokens, concurrency      to its printed 0.01 GiB
    blocks seen                       ----------> tokens, concurrency        exact
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from experiments.calibration.server_log import ServerLog
from sim.kv_formula import blocks_for
from sim.sizing.deployment import Deployment
from sim.sizing.hardware import GIB
from sim.sizing.plan import Plan, plan
from workloads.request import InputError

HALF_PRINTED_GIB = 0.005
NEAR, MOST_TOKENS = 24, 1 << 40                        # blocks around a guess among which the pool is looked for


@dataclass(frozen=True)
class Line:
    """One number; ``agrees`` says whether it is the one printed, None where nothing exact can be said."""

    name: str
    unit: str
    seen: float
    predicted: float
    agrees: bool | None = None

    def json(self) -> dict[str, Any]:
        """As it goes into the result, with the relative difference."""
        return {**asdict(self), "difference": self.predicted - self.seen,
                "relative": None if not self.seen else self.predicted / self.seen - 1}


def blocks_seen(log: ServerLog, asked: Deployment | None, block_size: int) -> tuple[int, str] | None:
    """The pool that the server made, null block included, and how that is known; None if it is not.

    Newer servers print tokens only: the number of blocks that gives these tokens by the rules of the version.
    """
    for name in ("num_gpu_blocks", "initialized_blocks", "overridden_blocks"):
        if name in log.facts:
            return int(log.facts[name][-1]), "as printed"
    if "kv_tokens" not in log.facts:
        return None
    tokens = int(log.facts["kv_tokens"][-1])
    guess = tokens // block_size
    if guess < 1 or tokens > MOST_TOKENS:
        return None
    if asked is None:
        return guess, f"{tokens:,} tokens / {block_size}"
    by_length = tokens * blocks_for(asked.longest, block_size) // asked.longest      # since 0.22 a length is in whole blocks
    for blocks in sorted({abs(near + k) + 1 for near in (guess, by_length) for k in range(-NEAR, NEAR)}):
        if plan(replace(asked, num_gpu_blocks_override=blocks)).report.kv_tokens == tokens:
            return blocks, f"from {tokens:,} tokens, by the rules of vLLM {asked.version}"
    return guess, f"{tokens:,} tokens / {block_size}, which vLLM {asked.version} would not print"


def start_up_lines(log: ServerLog, asked: Deployment | None, blocks: int | None, notes: list[str]) -> list[Line]:
    """Every number that was printed and that we can predict.

    Parameters
    ----------
    log : ServerLog
    asked : Deployment or None
        The server as the options and the log describe it, without a given pool; None where no model is known.
    blocks : int or None
        Of the pool, as printed; None where it is not.
    notes : list of str
        Gets what could not be predicted, and why.
    """
    if asked is None:
        if log.facts:
            notes.append("the model is not known, so nothing is predicted of the start-up lines: --model, --gpu")
        return []
    lines: list[Line] = []
    for make in (_by_gpu, _by_memory, _by_blocks):
        try:
            lines += make(log.facts, asked, blocks)
        except InputError as error:
            notes.append(f"start-up lines: {error}")
    return lines


def _by_gpu(facts: dict[str, tuple[float, ...]], asked: Deployment, blocks: int | None) -> Iterator[Line]:
    if asked.gpu is None:
        return
    made = plan(replace(asked, available_kv_gib=None, num_gpu_blocks_override=None))
    budget = made.budget
    assert budget is not None
    if "weights_gib" in facts:
        yield Line("model weights", "GiB", max(facts["weights_gib"]), budget.weights.gib)
    for name in ("estimated_graphs_gib", "graphs_gib"):
        if name in facts:
            yield Line("CUDA graphs", "GiB", max(facts[name]), budget.cuda_graphs.gib)
            break
    if "available_gib" in facts:
        yield Line("memory for the KV cache", "GiB", min(facts["available_gib"]), made.available_bytes / GIB)
    if made.available_bytes > 0:
        yield from _report(facts, made, blocks, "")


def _by_memory(facts: dict[str, tuple[float, ...]], asked: Deployment, blocks: int | None) -> Iterator[Line]:
    """The memory is printed to 0.01 GiB: agreement is lying between those of 0.005 less and more, give or take two blocks."""
    if "available_gib" not in facts or "kv_tokens" not in facts:
        return
    memory, seen = min(facts["available_gib"]), facts["kv_tokens"][-1]
    if memory <= HALF_PRINTED_GIB:
        return
    least, made, most = (plan(replace(asked, available_kv_gib=memory + more, num_gpu_blocks_override=None)).report.kv_tokens
                         for more in (-HALF_PRINTED_GIB, 0.0, HALF_PRINTED_GIB))
    slack = 2 * asked.block_size
    yield Line("KV cache size, from the memory printed", "tokens", seen, made, least - slack <= seen <= most + slack)


def _by_blocks(facts: dict[str, tuple[float, ...]], asked: Deployment, blocks: int | None) -> Iterator[Line]:
    if blocks is not None:
        yield from _report(facts, plan(replace(asked, num_gpu_blocks_override=blocks)), None, ", from the blocks")


def _report(facts: dict[str, tuple[float, ...]], made: Plan, blocks: int | None, how: str) -> Iterator[Line]:
    exact = bool(how)
    if blocks is not None:
        yield Line("blocks", "", blocks, made.report.num_blocks)
    if "kv_tokens" in facts:
        seen = facts["kv_tokens"][-1]
        yield Line(f"KV cache size{how}", "tokens", seen, made.report.kv_tokens, made.report.kv_tokens == seen if exact else None)
    if "max_concurrency" in facts and facts.get("max_model_len", (0,))[-1] == made.report.max_model_len:
        seen, ours = facts["max_concurrency"][-1], round(made.report.max_concurrency, 2)
        yield Line(f"maximum concurrency for {made.report.max_model_len:,} tokens{how}", "x", seen, ours,
                   ours == seen if exact else None)
