"""What the options say about single allocators: the page of `vattention`, the pool of `token`, the limit of `paged-reserve`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sim.kv_formula import tokens_per_page
from workloads.later import Later
from workloads.request import InputError, Trace

if TYPE_CHECKING:
    from sim.models.layer_cache import LayerCache
    from sim.sizing import deployment
    from sim.sizing.deployment import Deployment
else:
    deployment = Later("sim.sizing.deployment")

PAGES = {"64KiB": 1 << 16, "128KiB": 1 << 17, "256KiB": 1 << 18, "2MiB": 1 << 21}
DEFAULT_PAGE = "2MiB"


def page_size(options: argparse.Namespace) -> str | None:
    """The page asked for by name; None where no allocator has pages."""
    if "vattention" in (options.allocator or ()):
        return options.page_size or DEFAULT_PAGE
    if options.page_size is not None:
        raise InputError("--page-size is for --allocator vattention")
    return None


def page_slots(page: str | None, asked: Deployment | None) -> int | None:
    """Tokens a page: those whose K of one layer it holds; None where no page is asked for."""
    if page is None:
        return None
    if asked is None:
        raise InputError("--allocator vattention: a page is so many bytes of K or V: a --model is wanted")
    form = deployment.cache_format(asked)[0]
    caches = [cache for layer in asked.model.caches(form, asked.shards.mtp_layers) for cache in layer]
    if len({cache.heads for cache in caches}) != 1 or not all(map(_is_plain, caches)):
        raise InputError(f"--allocator vattention: K and V of one width in every layer are wanted, and {asked.model.name} has "
                         "other layers")
    heads, width, _ = caches[0].heads
    try:
        return tokens_per_page(PAGES[page], heads, width, form.kv_element_bytes)
    except ValueError as error:
        raise InputError(f"--page-size {page}: {error}") from None


def _is_plain(cache: LayerCache) -> bool:
    return cache.kind == "full" and not cache.latent and cache.heads[1] == cache.heads[2]


def with_limit(trace: Trace, options: argparse.Namespace, notes: list[str]) -> Trace:
    """The trace with ``--max-output-tokens`` as every client's limit; a note where a reservation has none to go by."""
    limit = options.max_output_tokens
    if limit is None:
        if trace.max_tokens is None and "paged-reserve" in (options.allocator or ()):
            notes.append(f"{trace.source} has no max_tokens: paged-reserve reserves all that max_model_len leaves "
                         "(--max-output-tokens sets a limit)")
        return trace
    if trace.max_tokens is not None:
        raise InputError(f"{trace.source} has its own max_tokens: --max-output-tokens is for traces without")
    try:
        return replace(trace, max_tokens=np.full(len(trace), limit, np.int64))
    except ValueError as error:
        raise InputError(f"--max-output-tokens: {error}") from None


def check_slots(options: argparse.Namespace, slots: int, most: int) -> None:
    """Blocks of one slot are followed one by one: there may be no more of them than of others."""
    if "token" in (options.allocator or ()) and slots > most:
        raise InputError(f"--allocator token: a pool of {slots:,} blocks of one slot is too large: at most {most:,} blocks")
