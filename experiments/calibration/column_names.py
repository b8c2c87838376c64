"""Names of a table's columns that are nearly those of a table of measurements, and what each may be meant as."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from workloads.messages import Place, complaint, show, show_names

LENGTHS = ("prompt_tokens", "output_tokens")
TIMES = {"ttft_s": 1.0, "ttft_ms": 1e-3, "tpot_s": 1.0, "tpot_ms": 1e-3}
CONCURRENCY = "concurrency"
COLUMNS = (*LENGTHS, *TIMES, CONCURRENCY)
WORDS = {"time_to_first_token": "ttft", "time_per_output_token": "tpot", "length": "tokens",
         "input": "prompt", "generated": "output", "completion": "output", "milliseconds": "ms", "seconds": "s",
         "max_conc": "conc", "mean_": "", "avg_": "", "average_": ""}
OTHER = re.compile(r"\b(p\d+|median|min|max|std|total)_(?!conc)|_(p\d+|median|min|max|std|total)\b")
MOST_LETTERS, MOST_NAMES = 40, 12
LEAST_LETTERS = 4                                      # of the beginning of a name, to be told by


def meant(name: str) -> list[str]:
    """The columns of a table of measurements that a name may stand for, the nearest first; both units where it has none.

    >>> meant("TTFT (ms)"), meant("ttft"), meant("conc"), meant("p99_ttft_ms"), meant("gpu")
    (['ttft_ms'], ['ttft_ms', 'ttft_s'], ['concurrency'], [], [])
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    if len(plain) > MOST_LETTERS or OTHER.search(plain):                     # a 99th percentile is no mean
        return []
    for word, ours in WORDS.items():
        plain = plain.replace(word, ours)
    if plain in ("ttft", "tpot"):
        return [f"{plain}_ms", f"{plain}_s"]
    begun = [name for name in (*LENGTHS, CONCURRENCY) if len(plain) >= LEAST_LETTERS and name.startswith(plain)]
    return begun or difflib.get_close_matches(plain, COLUMNS, n=1, cutoff=0.7)


def looks_like_table(header: Sequence[str]) -> bool:
    """Whether a header has a latency, or nearly a latency and nearly a length."""
    if set(TIMES) & set(header):
        return True
    near = {ours for name in header[:MOST_NAMES] for ours in meant(name)}
    return bool(near & set(TIMES)) and bool(near & set(LENGTHS))


def check_names(place: Place, header: Sequence[str]) -> None:
    """Raise InputError where a column is not there and another may be meant as it; names what is found and what is wanted."""
    near = ((name, meant(name)) for name in header[:MOST_NAMES] if name not in COLUMNS)
    said = [f"{show(name)} as {' or '.join(map(show, ours))}" for name, ours in near if ours and not set(ours) & set(header)]
    if said:
        raise complaint(place.path, place.line, f"a table of measurements has other columns: found {show_names(header)}; wanted "
                        f"{show_names(COLUMNS)}; perhaps {', '.join(said)}")
