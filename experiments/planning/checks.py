"""Cross-checks of a plan: the identities that blocks, bytes, tokens and concurrency must keep, in whole numbers.

    blocks x block bytes <= KV bytes < one block more        tokens = blocks x block size     concurrency = tokens / max_model_len
"""

from __future__ import annotations

from collections.abc import Iterator

from experiments.crosscheck import Check
from sim import kv_formula
from sim.sizing.plan import Plan

CONCURRENCY_BY_BLOCKS, TOKENS_BY_CONCURRENCY = (0, 9, 0), (0, 22, 0)
"""From these versions on concurrency goes by whole blocks of a request, and tokens are printed as concurrency x length."""


def plan_checks(made: Plan, named: bool) -> list[dict[str, object]]:
    """As `compare` writes its own; none where no block fits. Without a model (not ``named``) nothing is known in bytes."""
    if made.report.num_blocks <= 0:
        return []
    return [check.json() for part in ((_bytes,) if named else ()) + (_tokens,) for check in part(made)]


def _bytes(made: Plan) -> Iterator[Check]:
    blocks, size, available = made.report.num_blocks, made.kv_bytes_per_block, made.available_bytes
    yield Check("blocks x block bytes <= KV bytes", "plan", blocks * size, available, False)
    yield Check("KV bytes <= one block more, less a byte", "plan", available, (blocks + 1) * size - 1, False)


def _tokens(made: Plan) -> Iterator[Check]:
    """Where one block table serves all layers and each keeps all tokens; else a block is no fixed number of tokens."""
    report, number = made.report, made.deployment.version.number
    size, longest = made.deployment.block_size, report.max_model_len
    held = kv_formula.blocks_for(longest, size)
    if len(made.groups) > 1 or made.groups[0].request_blocks(made.limits) != held:
        return
    slots, printed = report.num_blocks * size, report.lines()[1].rsplit(" ", 1)[1]
    tokens = slots if number < TOKENS_BY_CONCURRENCY else kv_formula.kv_tokens(report.num_blocks, size, longest)
    rule = "blocks x block size" if tokens == slots else "blocks / blocks a request x max_model_len"
    yield Check(f"tokens = {rule}", "plan", report.kv_tokens, tokens, True)
    whole = longest % size == 0 or number < CONCURRENCY_BY_BLOCKS
    at_once = slots / longest if whole else report.num_blocks / held
    rule = "tokens / max_model_len" if whole else "blocks / blocks a request"
    yield Check(f"concurrency as printed, hundredths = {rule}", "plan", _hundredths(printed), _hundredths(f"{at_once:.2f}x"),
                True)


def _hundredths(text: str) -> int:
    return int(text.removesuffix("x").replace(".", ""))
