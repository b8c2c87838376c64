"""`pagedsim quiz`: questions on fragmentation, paging, sharing, eviction and preemption, worked out by the simulator."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from experiments import options as opt
from experiments.html.page import write_page
from experiments.output import check_outputs, write_json
from experiments.quiz.handout import handout
from experiments.quiz.levels import LEVELS, Given, level_named, quiz
from experiments.quiz.text import lines
from experiments.version import VERSION
from workloads.messages import counted, show_path

EXAMPLES = """examples:
  pagedsim quiz                                       one exercise of each level, easy first
  pagedsim quiz --level paging --seed 7               the questions ...
  pagedsim quiz --level paging --seed 7 --answers     ... and the answers, step by step
  pagedsim quiz --level 6 --level 7 --questions 20 --html handout.html
  pagedsim quiz --seed 3 --html solutions.html --answers
"""
MOST_QUESTIONS = 500


def main(argv: list[str]) -> int:
    """Entry of the command; returns the exit status."""
    options = parser().parse_args(argv)
    check_outputs({"--html": options.html, "--json": options.json})
    names = [level_named(text) for text in options.level or LEVELS]
    made = quiz(names, options.seed, options.questions)
    if options.html is not None:
        write_page(options.html, handout(made, options.seed, options.answers, ["quiz", *argv]))
    if options.json is not None:
        write_json(options.json, document(made, options.seed, options.answers))
    if options.html is None and options.json is None:
        print("\n".join(lines(made, options.answers)))
    elif options.json != "-" and not options.quiet:
        asked = sum(len(given.exercise.questions) for given in made)
        files = " and ".join(show_path(path) for path in (options.html, options.json) if path is not None)
        print(f"{counted(len(made), 'exercise')}, {counted(asked, 'question')}: {files}")
    return 0


def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    about = "\n".join(f"  {number}  {name:<14} {text}" for number, (name, text) in enumerate(LEVELS.items(), 1))
    made = opt.OneLineParser("pagedsim quiz", description=f"{__doc__}\n\nlevels:\n{about}", epilog=EXAMPLES, allow_abbrev=False,
                             formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--level", action="append", metavar="LEVEL",
                      help="a name or number of the above; may be repeated (default: all, easy first)")
    made.add_argument("--questions", type=opt.whole(1, MOST_QUESTIONS), metavar="N",
                      help="so many in all, from the levels in turn (default: one exercise a level)")
    made.add_argument("--seed", type=opt.whole(0), default=0, metavar="N", help="the same seed gives the same quiz (default 0)")
    made.add_argument("--answers", action="store_true", help="the answers too, step by step")
    made.add_argument("--html", metavar="FILE", help="a handout to print, with room for answers; with --answers the solutions "
                      "are on pages of their own")
    made.add_argument("--json", metavar="FILE", help="the exercises as JSON; - for standard output")
    opt.add_quiet(made)
    return made


def document(quiz: Sequence[Given], seed: int, answers: bool) -> dict[str, Any]:
    """The quiz as JSON; a question has an ``answer`` and its ``working`` only where answers are asked for."""
    exercises = []
    for given in quiz:
        exercise = asdict(given.exercise)
        if not answers:
            exercise["questions"] = [{"text": question["text"]} for question in exercise["questions"]]
        exercises.append({"level": given.level, "number": given.number, "title": given.title, **exercise})
    return {"schema": 1, "pagedsim": VERSION, "seed": seed, "exercises": exercises}
