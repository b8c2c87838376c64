"""NVIDIA Dynamo's offline replay of a Mooncake file: ``python -m ... TRACE BLOCKS default|fixed``."""

from __future__ import annotations

import sys
import time
from typing import Any

from experiments.benchmarks.said import say

STEP_MS = 20
SPAN = 512
LIMITS = {"block_size": 16, "max_num_seqs": 256, "max_num_batched_tokens": 8_192, "enable_prefix_caching": True}
TIMING: dict[str, dict[str, Any]] = {
    "default": {}, "fixed": {"timing_model": {"type": "fixed", "prefill_ms": STEP_MS, "decode_ms": STEP_MS}}}


def main(path: str, blocks: str, timing: str) -> None:
    """Replay and say."""
    from dynamo.replay.api import run_trace_replay

    engine = LIMITS | TIMING[timing] | {"num_gpu_blocks": int(blocks)}
    started = time.process_time()
    summary = run_trace_replay(path, extra_engine_args={"engine": engine}, trace_block_size=SPAN).summary
    say({"totals": {"completed": summary["completed_requests"]}, "work_cpu_s": time.process_time() - started})


if __name__ == "__main__":
    main(*sys.argv[1:])
