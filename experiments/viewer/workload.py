"""The built-in workload of the map: small enough that every block can be looked at, and everything happens in it.

In a pool of 96 blocks sequences are refused, the last ones are preempted, two system prompts are shared, and cached blocks are
evicted.
"""

from __future__ import annotations

from dataclasses import replace

from workloads.request import Trace
from workloads.synth import recipe

NUM_BLOCKS, MAX_MODEL_LEN = 97, 256
REQUESTS, RATE = 40, 16.0
SYSTEM_TOKENS, SYSTEM_PROMPTS = 48, 2


def small_workload(seed: int = 0, rate: float = RATE, at_once: bool = False) -> Trace:
    """Forty short requests, each behind one of two system prompts, in bursts.

    Parameters
    ----------
    seed : int
    rate : float
        Mean arrivals a second.
    at_once : bool
        Whether they will all arrive at once instead, for what it is called.

    >>> trace = small_workload()
    >>> len(trace), trace.source
    (40, 'built-in small workload (40 requests, 16 requests/s in bursts, two 48-token system prompts, seed 0)')
    """
    made = recipe({
        "requests": REQUESTS, "seed": seed, "arrivals": {"kind": "gamma", "rate": rate, "burstiness": 0.6},
        "prompt": {"kind": "uniform", "least": 8, "most": 48}, "output": {"kind": "uniform", "least": 8, "most": 120},
        "prefix": {"kind": "system", "tokens": SYSTEM_TOKENS, "prompts": SYSTEM_PROMPTS},
    })
    times = "all at once" if at_once else f"{rate:g} requests/s in bursts"
    return replace(made, source=f"built-in small workload ({REQUESTS} requests, {times}, two {SYSTEM_TOKENS}-token system "
                                f"prompts, seed {seed})")
