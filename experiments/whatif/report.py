"""The files of a sweep, and what is printed: the answers first, then the searches, the table, the warnings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.text import Text

from experiments.output import deliver, write_json, write_text
from experiments.shown import drawn
from experiments.version import VERSION
from experiments.whatif.answers import answer_json, answers, broken, estimate_json
from experiments.whatif.export import table_columns, write_csv, write_parquet
from experiments.whatif.in_words import answer_sentences, baseline_sentence, checks_sentence, failures, remarks, settings_table
from experiments.whatif.outcome import Group, Outcome
from experiments.whatif.page import write_sweep_page
from experiments.whatif.pictures import draw
from experiments.whatif.search import Found
from experiments.whatif.search_report import search_sentence
from experiments.whatif.simulate import CAPACITY, METRICS
from workloads.messages import counted, show_path

JsonObject = dict[str, Any]
FILES = {
    "results.sqlite": "every simulation: knobs, metrics, the command that runs it by itself, and the whole JSON of compare",
    "results.csv": "the same table without the JSON", "results.json": "the table, means and intervals, answers, searches",
    "answers.txt": "what was printed",
}
PARQUET = {"results.parquet": "the table for data frames"}
SCREEN = 16                                            # lines of answers, rows of the table, warnings
WIDEST = 400                                           # the table is as wide as it is: text is for scrolling


def deliver_outcome(outcome: Outcome, folder: str, options: argparse.Namespace) -> None:
    """All files of the folder, then what was asked for on standard output."""
    document = outcome_json(outcome)
    write_csv(outcome, folder)
    write_json(os.path.join(folder, "results.json"), document)
    if options.parquet:
        write_parquet(outcome, folder)
    lines = text_of(outcome)
    write_text(os.path.join(folder, "answers.txt"), lambda file: file.write("\n".join(lines) + "\n") and None)
    figures = [] if options.no_figures else draw(outcome, folder)
    files = FILES | (PARQUET if options.parquet else {})
    flags = [flag for flag, given in (("--no-figures", options.no_figures), ("--parquet", options.parquet)) if given]
    write_sweep_page(outcome, folder, figures, files, flags)
    notes = [*_counts(outcome, folder), *(f"drew {one}" for one in figures)]
    deliver(document, options.json, options.quiet, lambda: _print(lines, notes), notes)


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
def _print(lines: Sequence[str], notes: Sequence[str]) -> None:
    console = Console(width=WIDEST, highlight=False)
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    for note in notes:
        console.print(Text.assemble(("note    ", "yellow"), note), soft_wrap=True)


def text_of(outcome: Outcome) -> list[str]:
    """The report, line by line, as it goes into answers.txt."""
    text = StringIO()
    Console(width=WIDEST, file=text, highlight=False).print(drawn(settings_table(outcome, SCREEN)))
    rows = [line.rstrip() for line in text.getvalue().rstrip("\n").split("\n")]
    hidden = len(outcome.groups) - SCREEN
    rows += [f"{counted(hidden, 'more setting')} in results.csv"] if hidden > 0 else []
    searched = search_sentence(outcome)
    return [*_answer_lines(outcome), *([] if searched is None else ["", *searched.written()]), "", *rows,
            *(f"{label}: {said}" for label, said in remarks(outcome, SCREEN)), *checks_sentence(outcome, SCREEN).written()]


def _answer_lines(outcome: Outcome) -> Iterator[str]:
    yield from baseline_sentence(outcome).written()
    lines = [line for sentence in answer_sentences(outcome) for line in sentence.written()]
    yield from lines[:SCREEN]
    if len(lines) > SCREEN:
        yield f"{counted(len(lines) - SCREEN, 'more answer')} in results.json"


def _counts(outcome: Outcome, folder: str) -> Iterator[str]:
    counts, (failed, wrong) = outcome.counts, failures(outcome)
    points = f"{len(outcome.rows):,} point{'s' * (len(outcome.rows) != 1)}"
    yield (f"{points} in {show_path(folder)}: {counts['run']:,} run now, {counts['kept']:,} kept from before"
           + (f", {failed:,} of the grid without a result" if failed else ""))
    if wrong:
        yield f"{counted(wrong, 'point')} failed a cross-check: see their result"
