"""A sweep as a person reads it: the answers first, then the table, the searches, the warnings, and where the files are."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.output import deliver, write_json, write_text
from experiments.prefix_text import percent, table
from experiments.rounding import change, rounded
from experiments.statistics import Estimate
from experiments.version import VERSION
from experiments.whatif.answers import Answer, Effect, answer_json, answers, broken, estimate_json
from experiments.whatif.export import table_columns, write_csv, write_parquet
from experiments.whatif.outcome import Group, Outcome
from experiments.whatif.pictures import draw
from experiments.whatif.points import said_of, shown
from experiments.whatif.search import Found
from experiments.whatif.search_report import search_lines
from experiments.whatif.simulate import CAPACITY, METRICS, SEPARATOR
from experiments.whatif.store import DONE
from sim.steady import parse_warmup
from workloads.messages import show_path

JsonObject = dict[str, Any]
UNLIKE = "one is averaged over the whole run, the other over the time of the traffic"
SCREEN = 16                                            # lines of answers, rows of the table, warnings
WIDEST = 400                                           # the table is as wide as it is: text is for scrolling
SHOWN = (("concurrency_mean", "running", ""), ("queue_p99_s", "queue p99", "s"), ("ttft_p99_s", "TTFT p99", "s"),
         ("tpot_mean_s", "TPOT", "s"), ("output_tokens_per_s", "out tok/s", ""), ("preemptions", "preempt.", ""),
         ("token_states", "useful", "%"), ("hit_rate", "hits", "%"))


def deliver_outcome(outcome: Outcome, folder: str, options: argparse.Namespace) -> None:
    """All files of the folder, then what was asked for on standard output."""
    document = outcome_json(outcome)
    write_csv(outcome, folder)
    write_json(os.path.join(folder, "results.json"), document)
    if options.parquet:
        write_parquet(outcome, folder)
    lines = text_of(outcome)
    write_text(os.path.join(folder, "answers.txt"), lambda file: file.write("\n".join(lines) + "\n") and None)
    drawn = []
    if not options.no_figures:
        drawn = draw(outcome, folder)
    notes = [*_counts(outcome, folder), *(f"drew {name}" for name in drawn)]
    deliver(document, options.json, options.quiet, lambda: _print(lines, notes, options.quiet), notes)


def outcome_json(outcome: Outcome) -> JsonObject:
    """The table, its statistics, the answers and the searches; nothing depends on the wall clock or on the order of the runs."""
    scenario = outcome.scenario
    return {
        "schema": 1, "pagedsim": VERSION, "scenario": os.path.basename(scenario.path), "warm_up": scenario.warm_up,
        "confidence": scenario.confidence, "seeds": list(scenario.seeds),
        "points": [{name: row[name] for name in table_columns(outcome)} for row in outcome.rows],
        "settings": [_group_json(outcome, group) for group in outcome.groups],
        "baseline": outcome.baseline.settings(), "baseline_breaks": broken(outcome, outcome.baseline),
        "answers": [answer_json(answer) for answer in answers(outcome)],
        "searches": [_found_json(outcome, one) for one in outcome.found],
    }


def _group_json(outcome: Outcome, group: Group) -> JsonObject:
    estimates = {name: outcome.estimate(group, name) for name in (*CAPACITY, *METRICS)}
    return {"settings": group.settings(), "error": group.error,
            "metrics": {name: estimate_json(one) for name, one in estimates.items() if one is not None}}


def _found_json(outcome: Outcome, found: Found) -> JsonObject:
    search = outcome.scenario.search
    assert search is not None
    return {"settings": {**dict(found.knobs), "allocator": found.allocator}, "goal": search.goal, "what": search.what,
            "keep": [str(promise) for promise in search.keep], "confidence": outcome.scenario.confidence,
            "answer": None if found.answer is None else found.answer.json(),
            "beyond": None if found.beyond is None else found.beyond.json(), "ended": found.ended or None,
            "tried": [one.json() for one in found.tried]}


# ---------------------------------------------------------------------- text
def _print(lines: Sequence[str], notes: Sequence[str], quiet: bool) -> None:
    console = Console(width=WIDEST, highlight=False)
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    if not quiet:
        for note in notes:
            console.print(Text.assemble(("note    ", "yellow"), note), soft_wrap=True)


def text_of(outcome: Outcome) -> list[str]:
    """The report, line by line, as it goes into answers.txt."""
    text = StringIO()
    Console(width=WIDEST, file=text, highlight=False).print(_table(outcome))
    rows = [line.rstrip() for line in text.getvalue().rstrip("\n").split("\n")]
    hidden = len(outcome.groups) - SCREEN
    rows += [f"{hidden:,} more settings in results.csv"] if hidden > 0 else []
    return [*_answer_lines(outcome), *search_lines(outcome), "", *rows, *_notes(outcome), *_warnings(outcome)]


def _answer_lines(outcome: Outcome) -> Iterator[str]:
    base = outcome.baseline
    seeds = len(outcome.scenario.seeds)
    how = f"{seeds} seeds, ± at {100 * outcome.scenario.confidence:g} % confidence" if seeds > 1 else "one seed: no intervals"
    yield f"baseline: {said_of(base.settings())} ({how})"
    if base.error is not None:
        yield f"    could not be run: {base.error}"
    why = broken(outcome, base)
    if why:
        yield f"    does not keep what is promised: {why}"
    lines = [line for answer in answers(outcome) for line in _sentences(answer, why, broken(outcome, answer.group))]
    yield from lines[:SCREEN]
    if len(lines) > SCREEN:
        yield f"{len(lines) - SCREEN:,} more answers in results.json"


def _sentences(answer: Answer, base_breaks: str | None, breaks: str | None) -> Iterator[str]:
    """A change and its remedies; both arguments as `broken` has them, of the baseline and of the changed setting."""
    yield f"{_changed(answer)}: {_effects(answer)}"
    if answer.tried and base_breaks == breaks == "":
        yield "    still keeps what is promised: nothing to bring back"
        return
    back = "keeps what is promised, as the baseline does not" if base_breaks else "brings it back"
    for remedy in answer.remedies[:2]:
        yield f"    {_changed(remedy)} {back if remedy.back else 'helps'}: {_effects(remedy)}"
    if answer.tried and not answer.remedies:
        yield "    nothing else that was run helps"


def _effects(answer: Answer) -> str:
    if answer.base.error is not None:
        return "nothing to compare with: the baseline could not be run"
    if answer.group.error is not None:
        return f"could not be run: {answer.group.error}"
    told = [_effect(effect) for effect in answer.effects if effect.notable]
    if answer.unlike:
        return ", ".join([*told, f"times and concurrency not compared ({UNLIKE})"])
    return ", ".join(told) or "no difference to speak of"


def _effect(effect: Effect) -> str:
    return change(effect.headline.name, effect.before, effect.after, effect.difference, effect.headline.unit)


def _changed(answer: Answer) -> str:
    return ", ".join(f"{name} {shown(before)} -> {shown(after)}" for name, (before, after) in answer.changes.items())


def _table(outcome: Outcome) -> Table:
    """Knobs that have several values, then the metrics."""
    names = [name for name in outcome.groups[0].settings() if len({str(one.settings()[name]) for one in outcome.groups}) > 1]
    made = table(*(names or ["allocator"]), *(f"{name}, {unit}" if unit else name for _, name, unit in SHOWN))
    for group in outcome.groups[:SCREEN]:
        settings = [shown(group.settings()[name]) for name in names or ["allocator"]]
        cells = [_cell(outcome.estimate(group, metric), unit) for metric, _, unit in SHOWN]
        made.add_row(*settings, *(cells if group.done else ["not run", *[""] * (len(SHOWN) - 1)]))
    return made


def _cell(one: Estimate | None, unit: str) -> str:
    if one is None:
        return "-"
    if unit == "%":
        return percent(one.mean).removesuffix(" %")
    return rounded(one)


def _warnings(outcome: Outcome) -> Iterator[str]:
    """Each kind of warning once, as its first point has it, with how many points have one of the kind; failures likewise."""
    said = []
    for row in outcome.rows[: outcome.grid_points]:
        said += [f"not run: {row['error']}"] if row["status"] != DONE else (row["warnings"] or "").split(SEPARATOR)
    if len(outcome.scenario.seeds) > 1 and all(_alike(group) for group in outcome.groups):
        yield ("warning: every seed gave the same run, since nothing is drawn at random here: intervals mean nothing; "
               "resample = 60 draws minutes of the trace anew, shuffle = true deals the requests out anew")
    yield from _kinds("warning", said, outcome.grid_points)


def _notes(outcome: Outcome) -> Iterator[str]:
    """Where step times come from, and what was assumed or left out."""
    rows = [row for row in outcome.rows[: outcome.grid_points] if row["status"] == DONE]
    yield from _kinds("step time", [row["step_time"] for row in rows], outcome.grid_points)
    yield from _kinds("note", [note for row in rows for note in (row["notes"] or "").split(SEPARATOR)], outcome.grid_points)
    if parse_warmup(outcome.scenario.warm_up).mser and len(outcome.groups) > 1:
        yield ("note: warm-up mser5 cuts every run by itself, so differences are between other requests; a share or a time cuts "
               "off the same in all")


def _kinds(label: str, said: Sequence[str], points: int) -> Iterator[str]:
    """Each kind of line once, as it comes first, with how many points have one of the kind: numbers aside they are the same."""
    kinds: dict[str, list[str]] = {}
    for line in filter(None, said):
        kinds.setdefault(re.sub(r"[\d.,]+", "#", line), []).append(line)
    for alike in list(kinds.values())[:SCREEN]:
        everywhere = len(alike) == points and len(set(alike)) == 1
        how = "" if everywhere else f" ({len(alike):,} of {points:,} points{'' if len(set(alike)) == 1 else ' alike'})"
        yield f"{label}: {alike[0]}{how}"


def _alike(group: Group) -> bool:
    """Whether all seeds came to the same."""
    return len({tuple(row.get(name) for name in METRICS) for row in group.rows}) == 1


def _counts(outcome: Outcome, folder: str) -> Iterator[str]:
    counts, failed = outcome.counts, sum(row["status"] != DONE for row in outcome.rows[: outcome.grid_points])
    points = f"{len(outcome.rows):,} point{'s' * (len(outcome.rows) != 1)}"
    yield (f"{points} in {show_path(folder)}: {counts['run']:,} run now, {counts['kept']:,} kept from before"
           + (f", {failed:,} of the grid without a result" if failed else ""))
    wrong = sum(1 for row in outcome.rows if row["status"] == DONE and not row["checks_ok"])
    if wrong:
        yield f"{wrong:,} points failed a cross-check: see their result"
