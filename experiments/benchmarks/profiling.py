"""Where the time goes: a profile of ``pagedsim compare``, by part of the house.

What libraries and built-in functions take counts for the part that called them; whatever runs while a module is imported
counts as import.
"""

from __future__ import annotations

import pstats
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from experiments.benchmarks.processes import ROOT

SCHEDULER = ("scheduler", "scheduler_config", "running", "waiting", "batch", "step", "flight", "sequence_groups", "swap",
             "static_batching", "returning", "flow", "free_flow")
PARTS = {
    "workloads": "reader", "sim/memory": "allocator and pool", "sim/ledger.py": "ledger and request log",
    "sim/request_log.py": "ledger and request log", "sim/books.py": "ledger and request log", "sim": "engine, server and clock",
    **{f"sim/{name}.py": "scheduler" for name in SCHEDULER},
    **{f"sim/{name}.py": "metrics" for name in ("result", "measures", "steady")},
    "experiments/crosscheck.py": "cross-checks", "experiments": "command and report"}
IMPORTS, ELSE = "imports", "interpreter"
Function = tuple[str, int, str]
Stats = Mapping[Function, tuple[int, int, float, float, Mapping[Function, tuple[int, int, float, float]]]]


def part_of(function: Function) -> str | None:
    """The part of the house that a function belongs to; None for libraries and built-ins.

    >>> part_of((str(ROOT / "sim" / "memory" / "paged.py"), 10, "grow")), part_of(("~", 0, "<built-in method max>"))
    ('allocator and pool', None)
    >>> part_of((str(ROOT / "sim" / "ledger.py"), 1, "<module>"))
    'imports'
    """
    path, _, name = function
    if name == "<module>" or path.startswith("<frozen importlib"):
        return IMPORTS
    if not path.startswith(f"{ROOT}/"):
        return None
    inside = PurePath(path).relative_to(ROOT)
    places = [inside, *inside.parents]
    return next((PARTS[str(place)] for place in places if str(place) in PARTS), None)


def by_part(stats: Stats) -> dict[str, float]:
    """Seconds by part, most first; their sum is that of all functions.

    >>> pool, used = (str(ROOT / "sim" / "memory" / "block_pool.py"), 1, "take"), ("~", 0, "max")
    >>> by_part({pool: (1, 1, 2.0, 3.0, {}), used: (1, 1, 1.0, 1.0, {pool: (1, 1, 1.0, 1.0)})})
    {'allocator and pool': 3.0}
    """
    known: dict[Function, dict[str, float]] = {}
    seconds: dict[str, float] = defaultdict(float)
    for function, (_, _, own, _, _) in stats.items():
        for part, share in _shares(function, stats, known).items():
            seconds[part] += own * share
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _shares(function: Function, stats: Stats, known: dict[Function, dict[str, float]]) -> dict[str, float]:
    """Which parts a function works for; its callers' parts, by the time it spends for each of them."""
    if function in known:
        return known[function]
    part = part_of(function)
    if part is not None:
        known[function] = {part: 1.0}
        return known[function]
    known[function] = {ELSE: 1.0}                      # while its callers are looked at: whoever calls itself ends here
    callers = stats[function][4] if function in stats else {}
    spent = {caller: times[2] or times[3] for caller, times in callers.items() if caller != function}
    whole, found = sum(spent.values()), defaultdict[str, float](float)
    for caller, time in spent.items():
        for part, share in _shares(caller, stats, known).items():
            found[part] += share * time / whole if whole else 0.0
    if found:
        known[function] = dict(found)
    return known[function]


def profile(arguments: tuple[str, ...], path: str) -> dict[str, Any]:
    """Profile ``pagedsim compare`` with these arguments in a process of its own; the profiler writes the file ``path``."""
    command = [sys.executable, "-m", "experiments.benchmarks.profiled", path, "compare", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    seconds = by_part(pstats.Stats(path).stats)        # type: ignore[attr-defined]
    return {"arguments": list(arguments[1:]), "seconds": seconds}
