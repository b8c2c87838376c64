"""The page of a sweep: its answers, searches, table and figures, what is to be said, the scenario, and the other files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from experiments.html.page import picture, provenance, render, write_page
from experiments.shown import Line, grouped
from experiments.whatif.in_words import answer_sentences, baseline_sentence, checks_sentence, failures, remarks, settings_table
from experiments.whatif.outcome import Outcome
from experiments.whatif.pictures import Drawn
from experiments.whatif.points import shown
from experiments.whatif.search_report import search_sentence
from workloads.messages import counted, show_path

NAME = "report.html"
MOST = 500                                             # settings, answers: a page that can still be read


def write_sweep_page(outcome: Outcome, folder: str, figures: Sequence[Drawn], files: Mapping[str, str], flags: Sequence[str],
                     ) -> None:
    """``report.html`` in the folder; the same bytes however the sweep was run.

    Parameters
    ----------
    outcome : Outcome
    folder : str
        Holds the figures.
    figures : sequence of Drawn
    files : mapping of name to meaning
        What else is in the folder.
    flags : sequence of str
        Of the command line, those that change what there is.
    """
    scenario = outcome.scenario
    name = "-" if scenario.path == "-" else os.path.basename(scenario.path)
    answered, searched = answer_sentences(outcome), search_sentence(outcome)
    checked = checks_sentence(outcome, MOST)
    verdict, ok = _verdict(outcome, checked.text)
    page = render(
        "sweep.html", title=f"What if: {show_path(name)}", facts=grouped(_facts(outcome)), verdict=verdict, ok=ok,
        failed=checked.under,
        baseline=baseline_sentence(outcome), answers=answered[:MOST], more_answers=max(0, len(answered) - MOST),
        searched=searched, table=settings_table(outcome, MOST), more_settings=max(0, len(outcome.groups) - MOST),
        figures=[(one, _image(folder, one)) for one in figures], remarks=list(remarks(outcome, MOST)), text=scenario.text,
        files=files, provenance=provenance(["sweep", name, *flags]))
    write_page(os.path.join(folder, NAME), page)


def _image(folder: str, one: Drawn) -> str:
    with open(os.path.join(folder, one.name), "rb") as file:
        return picture(file.read(), one.about)


def _facts(outcome: Outcome) -> Iterator[Line]:
    scenario, searched = outcome.scenario, len(outcome.rows) - outcome.grid_points
    yield "scenario", show_path(os.path.basename(scenario.path))
    for name, value in scenario.options.items():
        yield name, shown(value)
    yield "runs", (f"{counted(len(outcome.groups), 'setting')} x {counted(len(scenario.seeds), 'seed')} = "
                   f"{counted(outcome.grid_points, 'point')}")
    if searched:
        yield "", f"{counted(searched, 'more point')} of the search"
    yield "warm-up", scenario.warm_up
    if len(scenario.seeds) > 1:
        yield "intervals", f"{100 * scenario.confidence:g} % confidence, Student's t over the seeds"


def _verdict(outcome: Outcome, checked: str) -> tuple[str, bool]:
    """Whether the simulations agree with the formulas, and whether all of the grid could be run."""
    failed, wrong = failures(outcome)
    return checked + (f"; {counted(failed, 'point')} of the grid without a result" if failed else ""), not wrong and not failed
