"""What is measured behind a warm-up: the numbers of a row of a sweep, for one run, with what is to be said about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.shown import TextTable
from sim.cautions import warnings
from sim.measures import measures
from sim.run import Run
from sim.stays import Stays, concatenated

JsonObject = dict[str, Any]
SHOWN = (
    ("requests cut off", "warmup_requests", ",d", 1), ("window (s)", "window_s", ",.1f", 1),
    ("requests measured", "measured_requests", ",d", 1),
    ("running at once, mean (sequences)", "concurrency_mean", ",.2f", 1),
    ("waiting at once, mean (requests)", "waiting_mean", ",.2f", 1), ("waiting, p99 (s)", "queue_p99_s", ",.2f", 1),
    ("first token, mean (s)", "ttft_mean_s", ",.2f", 1), ("first token, p99 (s)", "ttft_p99_s", ",.2f", 1),
    ("per output token, mean (ms)", "tpot_mean_s", ",.1f", 1000), ("end to end, mean (s)", "e2e_mean_s", ",.2f", 1),
    ("requests a second", "requests_per_s", ",.2f", 1), ("output tokens a second", "output_tokens_per_s", ",.1f", 1))


def measured_json(run: Run, stays: Sequence[Stays], rule: str) -> JsonObject:
    """The object ``measured`` of a scenario: the rule, `sim.measures.measures` and ``warnings``.

    Parameters
    ----------
    run : Run
    stays : sequence of Stays
        Of each replica.
    rule : str
        As `sim.steady.parse_warmup`.
    """
    together = concatenated(stays)
    row = measures(run, together, rule)
    return {"warm_up": rule, **row, "warnings": warnings(run, together, row)}


def measured_table(scenarios: Sequence[JsonObject]) -> TextTable | None:
    """A column an allocator; None where nothing was measured so."""
    if not all("measured" in scenario for scenario in scenarios):
        return None
    made = TextTable((f"behind a warm-up of {scenarios[0]['measured']['warm_up']}",
                      *(scenario["allocator"] for scenario in scenarios)), frozenset({0}))
    for label, name, form, times in SHOWN:
        values = [scenario["measured"][name] for scenario in scenarios]
        made.add_row(label, *("-" if value is None else format(value * times, form) for value in values))
    return made


def measured_warnings(scenarios: Sequence[JsonObject]) -> Iterator[str]:
    """What is to be said about them, by allocator."""
    for scenario in scenarios:
        for line in scenario.get("measured", {"warnings": ()})["warnings"]:
            yield f"{scenario['allocator']}: {line}"
