"""Which number of `pagedsim prefix` is which, and the size of a pool in words."""

from __future__ import annotations

from typing import Any

from experiments.numbers import show
from workloads.messages import counted

LEGEND = {
    "of blocks": "full blocks found of those looked up: how papers on traces count",
    "of tokens": "prompt tokens of the found blocks of all prompt tokens: how vLLM counts",
    "cache view": "one request at a time in the order of the trace; nobody runs beside it, so nobody else pins blocks",
    "serving view": "the engine: requests wait, run side by side, pin their blocks and are preempted",
    "LRU": "a request uses its blocks head first, so heads leave before tails",
    "vLLM's queue": "a request gives its blocks back tail first, so tails leave before heads",
    "first admissions": "what vLLM's log line 'Prefix cache hit rate' counts, there over the last 1,000 requests: of tokens",
    "resumes": "requests back from a preemption: they find their own blocks, which is no sharing; not in vLLM's line",
    "other request": "found blocks that a request outside of the session had computed",
    "same session": "found blocks that an earlier turn had computed",
    "slots saved": "slots that block tables name more than once: 1 - physical / logical",
}
"""Which number is which; in the JSON as well."""


def show_room(size: dict[str, Any]) -> str:
    """Blocks, and GiB where known.

    >>> show_room({"blocks": 4096, "gib": 8.0}), show_room({"blocks": 1, "gib": None})
    ('4,096 blocks = 8 GiB', '1 block')
    """
    gib = "" if size["gib"] is None else f" = {show(size['gib'])} GiB"
    return counted(size["blocks"], "block") + gib
