"""`pagedsim reproduce`: a published figure or claim, our number beside it, the difference, the picture."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table as RichTable

from experiments import options as opt
from experiments.figures import check_format
from experiments.output import check_writable, write_json
from experiments.paper.html_page import write_reproduction
from experiments.paper.in_words import further_tables, row_table, trace_sentence, verdict
from experiments.paper.outcome import JsonObject, Outcome
from experiments.paper.page import write_page
from experiments.paper.setting import Lab
from experiments.progress import bars
from experiments.shown import TextTable
from experiments.version import VERSION
from workloads.messages import show_path
from workloads.request import InputError

EXPERIMENTS = {
    "fig2": "shares of the KV memory: Orca's three reservations and vLLM",
    "fig13": "batched requests on average, ShareGPT and Alpaca",
    "fig15": "memory saved by sharing: parallel sampling and beam search",
    "prefix": "throughput with a shared prefix of 80 and 341 tokens, LLaMA-13B",
    "blocksize": "waste and throughput by block size: why 16",
    "waste": "60 to 80 % wasted before, under 4 % with paging; waste by the variance of output lengths",
    "sharing": "one system prompt: where sharing saves more than removing fragmentation",
    "concurrency": "static, contiguous, reserved, paged and shared: running requests and speed of the same bytes",
    "vattention": "virtual-contiguous pages and token-level allocation beside blocks",
    "seeds": "every number of three articles that people size GPUs with",
}
"""Name -> what it shows; each is a module of experiments.paper with TITLE, SOURCE, CONFIG, run(lab) and plot(outcome, path)."""
WITHOUT_TRACE = ("prefix", "sharing", "seeds")
EXAMPLES = """examples:
  pagedsim reproduce fig2
  pagedsim reproduce fig13 --out results
  pagedsim reproduce all --out reproduction

Published numbers come with their sources; docs/reproduce.md tells the settings. Exit status 1: a number is outside its stated
tolerance. All but prefix, sharing and seeds want the ShareGPT lengths of the PagedAttention paper's artifact.
"""


class Experiment(Protocol):
    """What a module of experiments.paper offers."""

    TITLE: str
    SOURCE: str
    CONFIG: Any

    def run(self, lab: Lab) -> Outcome:
        """Do it."""
        ...

    def plot(self, outcome: Outcome, path: str) -> None:
        """Draw it."""
        ...


def main(argv: list[str]) -> int:
    """Entry of the command; returns the exit status: 1 where a number is outside its tolerance."""
    options = parser().parse_args(argv)
    names = list(EXPERIMENTS) if options.name == "all" else [options.name]
    if options.name == "all" and (options.plot is not None or options.json not in (None, "-")):
        raise InputError("--plot and --json name one file; reproduce all writes its files into --out")
    if options.trace is not None and options.name in WITHOUT_TRACE:
        raise InputError(f"--trace: {options.name} reads no trace")
    if options.limit is not None and options.name == "seeds":
        raise InputError("--limit: seeds serves no requests")
    folder = _folder(options)
    console = Console(stderr=options.json == "-", width=None if sys.stdout.isatty() else 130)
    documents = [_one(name, options, folder, console) for name in names]
    if options.name == "all" and folder is not None:
        pages = [write_page(folder, documents), write_reproduction(folder, documents, _words("all", options))]
        console.print(f"all on one page: {' and '.join(show_path(str(page)) for page in pages)}", highlight=False)
    if options.json == "-":
        write_json("-", documents[0] if options.name != "all" else {"schema": 1, "name": "all", "results": documents,
                                                                    "ok": all(d["ok"] for d in documents)})
    return 0 if all(document["ok"] for document in documents) else 1


def _one(name: str, options: argparse.Namespace, folder: Path | None, console: Console) -> JsonObject:
    experiment = load(name)
    started = time.perf_counter()
    with bars(options.quiet) as progress:
        def begin(text: str, total: int) -> Any:
            task = progress.add_task(text, total=total)
            return lambda done: progress.advance(task, done)
        lab = Lab(options.trace, options.seed, options.limit, begin)
        outcome = experiment.run(lab)
    document = {**to_json(name, experiment, outcome, options), "trace": lab.read()}
    print_outcome(document, console)
    picture = options.plot or (folder and str(folder / f"{name}.png"))
    if picture:
        experiment.plot(outcome, picture)
    if options.json not in (None, "-"):
        write_json(options.json, document)
    elif folder is not None:
        write_json(str(folder / f"{name}.json"), document)
    if not options.quiet:
        print(f"{name}: {time.perf_counter() - started:.1f} s of work", file=sys.stderr)
    return document


def load(name: str) -> Experiment:
    """The module of one experiment."""
    module: Any = importlib.import_module(f"experiments.paper.{name}")
    return module  # type: ignore[no-any-return]


def to_json(name: str, experiment: Experiment, outcome: Outcome, options: argparse.Namespace) -> JsonObject:
    """The JSON: rows and whether all are inside, with limit, title, tables and notes."""
    return {"schema": 1, "name": name, "rows": [row.json() for row in outcome.rows], "ok": outcome.ok,
            "command": shlex.join(["pagedsim", *_words(name, options)]), "pagedsim": VERSION, "seed": options.seed,
            "limit": None if name == "seeds" else options.limit, "title": experiment.TITLE, "source": experiment.SOURCE,
            "tables": [table.json() for table in outcome.tables], "notes": outcome.notes, "data": outcome.data}


def _words(name: str, options: argparse.Namespace) -> list[str]:
    """The command that gives the same numbers, wherever its files go."""
    words = ["reproduce", name, "--seed", str(options.seed)]
    words += ["--limit", str(options.limit)] if options.limit and name != "seeds" else []
    words += ["--trace", show_path(Path(options.trace).name)] if options.trace and name not in WITHOUT_TRACE else []
    return words


# ---------------------------------------------------------------------- for people
def print_outcome(document: JsonObject, console: Console) -> None:
    """Rows, tables and notes."""
    console.print(f"[bold]{document['title']}[/]", highlight=False)
    console.print(f"published: {document['source']}", style="dim", highlight=False)
    _print_table(row_table(document), RichTable(box=None, padding=(0, 2, 0, 0)), console)
    for title, table in further_tables(document):
        _print_table(table, RichTable(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0)), console)
    for note in document["notes"]:
        console.print(f"note: {note}", highlight=False, markup=False)
    if (read := trace_sentence([document])) is not None:
        console.print(read, highlight=False, markup=False)
    if (line := verdict([document])) is not None:
        console.print(f"{line}\n", highlight=False, markup=False)


def _print_table(table: TextTable, made: RichTable, console: Console) -> None:
    for i, column in enumerate(table.columns):
        made.add_column(column, justify="left" if table.is_words(i) else "right", no_wrap=i in table.words)
    for section in table.sections:
        for cells in section.rows:
            made.add_row(*cells)
    console.print(made, highlight=False)


# ---------------------------------------------------------------------- options
def parser() -> argparse.ArgumentParser:
    """All options of the command."""
    about = "\n".join(f"  {name:<12} {text}" for name, text in EXPERIMENTS.items())
    made = opt.OneLineParser("pagedsim reproduce", description=f"{__doc__}\n\n{about}\n  {'all':<12} all of them, on one page",
                             epilog=EXAMPLES, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("name", metavar="NAME", choices=(*EXPERIMENTS, "all"), help="one of the above")
    made.add_argument("--trace", metavar="FILE",
                      help="the ShareGPT lengths (default: traces/... in ../shared or $PAGEDSIM_SHARED)")
    made.add_argument("--limit", type=opt.whole(1), metavar="N", help="at most N requests: a first look, without a verdict")
    made.add_argument("--seed", type=opt.whole(0), default=0, metavar="N", help="seed of everything random (default 0)")
    made.add_argument("--out", metavar="DIR", help="where NAME.png and NAME.json go (default reproduction)")
    made.add_argument("--plot", metavar="FILE", help="the picture here instead: .png, .svg or .pdf")
    made.add_argument("--json", metavar="FILE", help="the result here instead; - for standard output, and nothing is drawn")
    opt.add_quiet(made)
    return made


def _folder(options: argparse.Namespace) -> Path | None:
    """Where files go that were not named; made if need be. None where nothing is to be written."""
    if options.plot is not None:
        check_format(options.plot)
        check_writable(options.plot)
    if options.json not in (None, "-"):
        check_writable(options.json)
    if options.out is None and (options.json is not None or options.plot is not None):
        return None
    if options.out == "":
        raise InputError("--out: no folder name")
    folder = Path(options.out or "reproduction")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{show_path(str(folder))}: cannot be made: {error.strerror}") from None
    check_writable(str(folder / "all.json"))
    return folder
