"""What a trace holds, in numbers: lengths, arrivals, sessions and what prompts share, as JSON-able dicts.

Percentiles interpolate linearly; spreads are those of all values (divided by n). Where a column is missing, so is its part: None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.caching.curve import histogram, reuse_distances
from sim.caching.endless import Known, known_prefixes
from sim.caching.stream import COLD, accesses
from workloads.readers import Rows
from workloads.request import ContentIds, IntArray, Trace

JsonObject = dict[str, Any]
PERCENTILES = (1, 25, 50, 75, 90, 95, 99)
WINDOWS_S = (1, 10, 60)
BLOCK_SIZES = (16, 32, 64, 128, 256, 512)


# ---------------------------------------------------------------------- lengths
def spread(values: IntArray) -> JsonObject:
    """Total, mean, least, percentiles and most.

    >>> spread(np.array([1, 2, 3, 10]))["p50"], spread(np.array([1, 2, 3, 10]))["mean"]
    (2.5, 4.0)
    """
    at = np.percentile(values, PERCENTILES)
    return {"total": int(values.sum()), "mean": float(values.mean()), "min": int(values.min()),
            **{f"p{p}": float(v) for p, v in zip(PERCENTILES, at, strict=True)}, "max": int(values.max())}


def rows(found: Rows | Trace) -> JsonObject:
    """How many rows a file has, how long they are, over which time, and what of their ids an endless cache finds; zero lengths
    included, in file order. None for what it has none of."""
    output, content = found.output_tokens, found.content
    arrivals = found.arrivals_us() if isinstance(found, Rows) else found.arrival_us
    duration = None if arrivals is None else float(arrivals.max() - arrivals.min()) / 1e6
    return {"count": len(found), "prompt_tokens": spread(found.prompt_tokens),
            "output_tokens": None if output is None else spread(output), "duration_s": duration,
            "rate_per_s": len(found) / duration if duration else None,
            "hit_ratio_of_ids": None if content is None else _every_row(found, content).ceil().of_blocks}


def _every_row(found: Rows | Trace, content: ContentIds) -> Known:
    """Rows without a token have no ids either; a Trace wants them to have one."""
    some = np.maximum(found.prompt_tokens, 1)
    output = some if found.output_tokens is None else np.maximum(found.output_tokens, 1)
    return known_prefixes(Trace("every row", some, output, content=content))


def spearman(one: IntArray, two: IntArray) -> float | None:
    """Rank correlation, equal values sharing their mean rank; None where all values of one are equal.

    >>> spearman(np.array([1, 2, 3]), np.array([10, 100, 1000])), spearman(np.array([1, 2]), np.array([3, 3]))
    (1.0, None)
    """
    a, b = (_ranks(values) for values in (one, two))
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else None


def _ranks(values: IntArray) -> NDArray[np.float64]:
    _, dense, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[dense]
    return ranks


def lengths(trace: Trace) -> JsonObject:
    """Of prompts, of outputs, of both together, and how they go with each other."""
    prompt, output = trace.prompt_tokens, trace.output_tokens
    return {"prompt_tokens": spread(prompt), "output_tokens": spread(output), "total_tokens": spread(prompt + output),
            "spearman": spearman(prompt, output), "kv_tokens": int((prompt + output - 1).sum())}


# ---------------------------------------------------------------------- arrivals
def arrivals(trace: Trace) -> JsonObject | None:
    """Rate and burstiness of the arrival times that are there.

    ``cv_of_gaps`` is 1 for Poisson arrivals, 0 for a clock. ``dispersion`` is the variance of the arrivals in windows side by
    side over their mean: 1 for Poisson arrivals in windows of any length. ``peak_per_s`` is the most in a window placed anywhere.
    """
    if trace.arrival_us is None:
        return None
    times, n = trace.arrival_us, len(trace)
    duration = trace.duration_s
    gaps = np.diff(times)
    stamps, at_stamp = np.unique(times, return_counts=True)
    return {
        "duration_s": duration, "rate_per_s": n / duration if duration else None,
        "mean_gap_s": float(gaps.mean()) / 1e6 if n > 1 else None,
        "cv_of_gaps": float(gaps.std() / gaps.mean()) if duration else None,
        "dispersion": {f"{w}s": dispersion(times, w * 1_000_000) for w in WINDOWS_S},
        "peak_per_s": {f"{w}s": peak(times, w * 1_000_000) / w for w in WINDOWS_S},
        "stamps": len(stamps), "most_at_one_stamp": int(at_stamp.max()), "equal_stamps_share": (n - len(stamps)) / n,
    }


def dispersion(times_us: IntArray, window_us: int) -> float | None:
    """Variance over mean of the arrivals in whole windows from the first arrival on; None if there are less than two windows.

    >>> dispersion(np.array([0, 1, 2, 3, 10, 20, 30, 40]), 10)      # windows of 4, 1, 1 and 1
    0.9642857142857143
    """
    windows = int(times_us[-1] - times_us[0]) // window_us
    place = (times_us - times_us[0]) // window_us
    counts = np.unique(place[place < windows], return_counts=True)[1].tolist()      # empty windows need no room
    n = sum(counts)
    return (windows * sum(c * c for c in counts) - n * n) / (windows * n) if windows > 1 else None


def peak(times_us: IntArray, window_us: int) -> int:
    """Most arrivals in a half-open window, wherever it lies.

    >>> peak(np.array([0, 6, 9, 15, 16]), 10)
    3
    """
    return int((np.searchsorted(times_us, times_us + window_us) - np.arange(len(times_us))).max())


# ---------------------------------------------------------------------- sessions and other columns
def sessions(trace: Trace) -> JsonObject | None:
    """Conversations and their turns."""
    if trace.session is None or not np.any(trace.session >= 0):
        return None
    turns = np.unique(trace.session[trace.session >= 0], return_counts=True)[1]
    waits = np.zeros(0, np.int64) if trace.think_us is None else trace.think_us[trace.think_us >= 0]
    return {"count": len(turns), "turns": spread(turns), "requests_without": int((trace.session < 0).sum()),
            "closed_loop_share": len(waits) / len(trace),
            "think_s": {"mean": float(waits.mean()) / 1e6, "p50": float(np.median(waits)) / 1e6} if len(waits) else None}


def columns(trace: Trace) -> JsonObject:
    """Of the columns few traces have, what stands in them; None for those that are missing."""
    found: JsonObject = {}
    for name in ("max_tokens", "samples", "beam_width"):
        column = getattr(trace, name)
        found[name] = None if column is None else spread(column)
    values = None if trace.priority is None else np.unique(trace.priority, return_counts=True)
    found["priorities"] = None if values is None else {
        "distinct": len(values[0]), "most_urgent": int(values[0][0]), "least_urgent": int(values[0][-1])}
    return found


# ---------------------------------------------------------------------- what prompts share
def content(trace: Trace, block_sizes: Sequence[int] = BLOCK_SIZES) -> JsonObject | None:
    """Ids, the hit ratio of an endless cache by block size, and how far apart uses of a block are."""
    if trace.content is None:
        return None
    known, span = known_prefixes(trace), trace.content.span_tokens
    ceil = known.ceil()
    return {
        "span_tokens": span, "cover_output": trace.content.cover_output, "ids": len(trace.content.ids),
        "unique_ids": len(np.unique(trace.content.ids)), "prompt_tokens_with_ids": _with_ids(trace, trace.content),
        "known_prefix_tokens": spread(known.tokens),
        "ideal_ids": {"query_blocks": ceil.query_blocks, "hit_blocks": ceil.hit_blocks, "hit_rate_blocks": ceil.of_blocks,
                      "hit_rate_tokens": ceil.of_tokens},
        "ideal": [_ideal(known, size) for size in sorted({*block_sizes, span})],
        "reuse": _reuse(trace, span),
    }


def _with_ids(trace: Trace, ids: ContentIds) -> int:
    return int(np.minimum(np.diff(ids.starts) * ids.span_tokens, trace.prompt_tokens).sum())


def _ideal(known: Known, block_size: int) -> JsonObject:
    hits, served = known.full(block_size), known.full(block_size, last_token_rule=True)
    return {"block_size": block_size, "query_blocks": hits.query_blocks, "hit_blocks": hits.hit_blocks,
            "hit_rate_blocks": hits.of_blocks, "hit_tokens": hits.hit_tokens, "hit_rate_tokens": hits.of_tokens,
            "last_token_rule": {"hit_tokens": served.hit_tokens, "hit_rate_tokens": served.of_tokens}}


def _reuse(trace: Trace, block_size: int) -> JsonObject:
    stream = accesses(trace, block_size)
    asked = reuse_distances(stream)[stream.leading()]
    warm = asked[asked != COLD]
    return {"block_size": block_size, "accesses": len(asked), "cold": len(asked) - len(warm), "unique_blocks": stream.count,
            "p50": float(np.median(warm)) if len(warm) else None,
            "histogram": [{"least": low, "most": high, "accesses": n} for low, high, n in histogram(asked)]}
