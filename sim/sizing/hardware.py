"""GPUs: memory as the driver reports it, bandwidth and peak from the data sheet. GiB and GB are kept apart.

A card labelled 80 GB has neither 80 x 10^9 nor 80 x 2^30 bytes to give: an H100 shows 79.18 GiB. Where a server's
start-up log or an out-of-memory message shows what the driver reports, that is used; else the label.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import Any

from workloads.messages import show
from workloads.request import InputError

GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    """One GPU; speeds are None where only a size was given.

    ``label_gb`` is the vendor's size in GB, ``memory_bytes`` what can be used of it, ``source`` where the numbers come
    from.
    """

    name: str
    memory_bytes: int
    label_gb: float
    bandwidth_bytes_per_s: float | None = None
    peak_flops_per_s: float | None = None
    source: str = ""

    def describe(self) -> str:
        """Name and size in both units.

        Examples
        --------
        >>> find_gpu("80GB").describe()
        '80GB (80 GB = 74.51 GiB)'
        """
        return f"{self.name} ({self.label_gb:g} GB = {self.memory_bytes / GIB:.2f} GiB)"


def find_gpu(text: str) -> Gpu:
    """A GPU by catalogue name in any case and usual spelling, or by size.

    Raises
    ------
    InputError
        One line with the closest names.

    Examples
    --------
    >>> find_gpu("h100").name, find_gpu("RTX3090").name, find_gpu("24GiB").memory_bytes
    ('H100-80GB', 'RTX 3090', 25769803776)
    """
    size = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(GiB|GB)\s*", text, re.IGNORECASE)
    if size:
        unit = GIB if size[2].lower() == "gib" else 10**9
        memory_bytes = float(size[1]) * unit
        if not 1 <= memory_bytes < 1 << 60:
            raise InputError(f"a GPU of {text!r}: no such memory")
        memory = int(memory_bytes)
        return Gpu(text.strip(), memory, round(memory / 10**9, 2), source="the size given")
    names = _names()
    found = names.get(_plain(text))
    if found is None:
        import difflib
        close = difflib.get_close_matches(_plain(text), names, n=3, cutoff=0.4)
        known = ", ".join(dict.fromkeys(gpu.name for gpu in ([names[c] for c in close] or names.values())))
        raise InputError(f"unknown GPU {show(text)}: closest are {known}; or a size such as 80GB or 80GiB")
    return found


def known_gpus() -> list[Gpu]:
    """The catalogue in its order."""
    return list(dict.fromkeys(_names().values()))


def default_limits(gpu: Gpu | None) -> tuple[int, int]:
    """vLLM's ``max_num_seqs`` and ``max_num_batched_tokens`` of a server on this GPU (rule 53 of docs/rules.md).

    Examples
    --------
    >>> default_limits(find_gpu("H100")), default_limits(find_gpu("A100-80GB")), default_limits(None)
    ((1024, 8192), (256, 2048), (256, 8192))
    """
    if gpu is None:
        return 256, 8192
    if gpu.memory_bytes >= 160 * GIB:
        return 1024, 16384
    if gpu.memory_bytes >= 70 * GIB and not _plain(gpu.name).startswith("a100"):
        return 1024, 8192
    return 256, 2048


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]|nvidia|geforce", "", name.lower())


@functools.cache
def _names() -> dict[str, Gpu]:
    from importlib import resources
    text = resources.files("sim.sizing").joinpath("data/gpus.json").read_text("utf-8")
    records: list[dict[str, Any]] = json.loads(text)["gpus"]
    names: dict[str, Gpu] = {}
    for r in records:
        gpu = Gpu(r["name"], r["memory_bytes"], r["label_gb"], r["bandwidth_bytes_per_s"], r["peak_flops_per_s"],
                  f"memory: {r['memory_source']}; speeds: {r['speed_source']}")
        for name in (r["name"], *r["aliases"]):
            names.setdefault(_plain(name), gpu)
    return names
