"""`pagedsim trace synth`: a trace out of a recipe."""

from __future__ import annotations

import argparse

from experiments import options as opt
from experiments.traces.info import info
from experiments.traces.making import check, command, finish, parser
from experiments.traces.report import print_info
from workloads.messages import counted
from workloads.request import InputError
from workloads.synth.recipe import recipe_of_text, recipe_text
from workloads.synth.spec import value_of

ABOUT = """Make a trace out of a recipe, a TOML file as docs/synthetic.md describes it. Without OUT, what it would hold."""
EXAMPLES = """examples:
  pagedsim trace synth chat.toml
  pagedsim trace synth chat.toml chat.csv.gz
  pagedsim trace synth chat.toml busy.csv --set arrivals.rate=4 --set output=lognormal:mean=200,sigma=1 --requests 5000 --seed 7
"""
MOST_LINES, LONGEST_LINE = 60, 200                     # of a recipe that goes into the head of the file


def main(argv: list[str]) -> int:
    """Entry of the subcommand; returns the exit status."""
    made = parser("synth", ABOUT, EXAMPLES)
    made.add_argument("recipe", metavar="RECIPE.toml", help="the recipe, or a scenario with [traffic]; - for standard input")
    made.add_argument("out", nargs="?", metavar="OUT", help="the file to write, or - for standard output")
    made.add_argument("--set", action="append", default=[], type=pair, metavar="KEY=VALUE",
                      help="another value for a key of the recipe, as arrivals.rate=4; may be repeated")
    made.add_argument("--requests", type=opt.whole(1), metavar="N", help="how many requests")
    made.add_argument("--seed", type=opt.whole(0), metavar="N", help="seed of everything random")
    made.add_argument("--strict", action="store_true", help="what the format cannot hold is an error")
    options = made.parse_intermixed_args(argv)
    if options.out is not None:
        check(options, [options.recipe])
    elif options.to is not None:
        raise InputError("--output-format is for a file to write, and none was given")
    text = recipe_text(options.recipe)
    trace = recipe_of_text(text, options.recipe, _changes(options))
    if options.out is None:
        print_info(info(trace))
        return 0
    done = f"{counted(len(trace), 'request')} over {trace.duration_s:,.6g} s: {trace.source}"
    return finish(options, trace, command("synth", argv, [options.recipe, options.out]), [], done, comments=comments(text))


def pair(text: str) -> tuple[str, object]:
    """An argparse type: a key and its value.

    >>> pair("arrivals.rate=4"), pair("prompt=constant:value=3")
    (('arrivals.rate', 4), ('prompt', 'constant:value=3'))
    """
    key, sign, value = (part.strip() for part in text.partition("="))
    if not sign or not value or not all(key.split(".")):
        raise argparse.ArgumentTypeError(f"KEY=VALUE is wanted, not {text!r}")
    return key, value_of(value)


def _changes(options: argparse.Namespace) -> dict[str, object]:
    given = {"requests": options.requests, "seed": options.seed}
    return {**dict(options.set), **{key: value for key, value in given.items() if value is not None}}


def comments(text: bytes) -> list[str]:
    """The recipe for the head of the file, where it is short.

    >>> comments(b"requests = 3")
    ['recipe: requests = 3']
    """
    lines = [line for line in text.decode("utf-8").splitlines() if line.strip()]
    short = len(lines) <= MOST_LINES and max(map(len, lines), default=0) <= LONGEST_LINE
    return [f"recipe: {line}" for line in lines] if short else ["recipe: too long to be repeated here"]
