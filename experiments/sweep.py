"""`pagedsim sweep`: a grid of scenarios, resumable, on one machine or a Dask cluster, and what follows from it."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments import options as opt
from experiments.deployment import model_and_gpu
from experiments.output import check_outputs
from experiments.version import VERSION
from experiments.whatif.changed import changes_since
from experiments.whatif.cluster import Cluster
from experiments.whatif.export import check_parquet
from experiments.whatif.forecast import search_line
from experiments.whatif.local import cores
from experiments.whatif.materials import gather
from experiments.whatif.options import parse
from experiments.whatif.outcome import Outcome
from experiments.whatif.points import Knobs, Point, grid
from experiments.whatif.report import deliver_outcome
from experiments.whatif.runner import Runner, bar, lost_or_failed, teller
from experiments.whatif.scenario import Scenario, read_scenario
from experiments.whatif.search import Found, check_search, looks, run_all, searched_options
from experiments.whatif.simulate import SEARCH, Job, columns
from experiments.whatif.stopping import Stopped, stoppable
from experiments.whatif.store import DONE, FAILED, LOST, Row, Store
from workloads.messages import show_path
from workloads.request import InputError

NAMES = ("--model", "--gpu", "--dtype", "--kv-cache-dtype", "--quantization", "--num-gpu-blocks-override", "--available-kv-gib")
EXAMPLES = """examples:
  pagedsim sweep what-if.toml
  pagedsim sweep what-if.toml --out results --resume
  pagedsim sweep what-if.toml --out results --dask tcp://10.0.0.1:8786
"""


def main(argv: list[str]) -> int:
    """Entry of the command; returns the exit status."""
    options = _parser().parse_args(argv)
    try:
        with stoppable():
            return _sweep(options)
    except Stopped as stop:
        print(f"pagedsim sweep: interrupted: {stop.kept}", file=sys.stderr)
        return stop.status


def _sweep(options: argparse.Namespace) -> int:
    started = time.perf_counter()
    scenario = read_scenario(options.scenario)
    points = checked_grid(scenario)
    folder = options.out or f"{Path(options.scenario).stem if options.scenario != '-' else 'sweep'}.results"
    if options.dry_run:
        return _dry_run(scenario, points)
    check_outputs({"--json": options.json}, [options.scenario], inputs_are="the scenario")
    if options.parquet:
        check_parquet()
    outcome = _run(scenario, points, folder, options)
    if not options.quiet:
        print(f"{time.perf_counter() - started:.1f} s of work", file=sys.stderr)
    wrong = [row for row in outcome.rows if row["status"] == DONE and not row["checks_ok"]]
    return 1 if wrong or lost_or_failed(outcome.rows[: outcome.grid_points]) else 0


def _parser() -> argparse.ArgumentParser:
    made = opt.OneLineParser("pagedsim sweep", description=__doc__, epilog=EXAMPLES,
                             formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    made.add_argument("scenario", metavar="FILE.toml", help="the scenario (docs/sweep.md), or - for standard input")
    made.add_argument("--out", metavar="DIR", help="folder of the results (default: FILE.results)")
    made.add_argument("--resume", action="store_true", help="go on with what is in the folder; finished points are not run again")
    made.add_argument("--retry", action="store_true", help="as --resume, and points that failed are run again")
    made.add_argument("--jobs", type=opt.whole(1, 4096), metavar="N", help="processes on this machine (default: its cores)")
    made.add_argument("--dask", metavar="ADDRESS", help="scheduler of a running Dask cluster, as tcp://10.0.0.1:8786")
    made.add_argument("--dry-run", action="store_true", help="say what would be run, with a search how much, and run nothing")
    made.add_argument("--json", metavar="FILE", help="answers and table as JSON; - for standard output")
    made.add_argument("--parquet", action="store_true", help="write results.parquet too (pip install 'pagedsim[parquet]')")
    made.add_argument("--no-figures", action="store_true", help="draw nothing")
    opt.add_quiet(made)
    return made


def checked_grid(scenario: Scenario) -> list[Point]:
    """All points; every setting is looked at before anything is run: a slip in the last one is no news after an hour.

    Raises
    ------
    InputError
    """
    check_search(scenario)
    points = grid(scenario)
    seen: set[tuple[str, ...]] = set()
    for point in points:
        words = tuple(word for word in point.arguments if not word.startswith("--seed="))
        named = tuple(word for word in words if word.split("=")[0] in NAMES)
        try:
            if words not in seen:
                options = parse(point.arguments)
                if named not in seen:                  # names of models and GPUs are looked up once
                    model_and_gpu(options, [])
            seen |= {words, named}
        except InputError as error:
            raise InputError(f"{show_path(scenario.path)}: {error}") from None
    return points


def _dry_run(scenario: Scenario, points: Sequence[Point]) -> int:
    for point in points:
        print(point.name())
    print(f"{len(points):,} point{'s' * (len(points) != 1)}")
    if scenario.search is not None:
        print(search_line(scenario.search, len({point.group for point in points}), len(scenario.seeds)))
    return 0


# ---------------------------------------------------------------------- running
def _run(scenario: Scenario, points: list[Point], folder: str, options: argparse.Namespace) -> Outcome:
    """Run what is missing, and write what came of it."""
    searched = () if scenario.search is None else searched_options(scenario.search)
    job = Job(gather(points), scenario.path, scenario.traffic, searched)
    store = Store(folder, columns((*(knob.name for knob in scenario.knobs), *searched)), _facts(scenario), scenario.text,
                  lambda text: changes_since(text, scenario, points))
    store.open(options.resume or options.retry)
    progress = bar(options.quiet)
    cluster = None if options.dask is None else Cluster(options.dask, teller(progress))
    try:
        with progress:
            if cluster is not None:
                cluster.connect()
            runner = Runner(scenario, job, store, progress, options.jobs or cores(), cluster)
            _drop(runner, points, options)
            store.accept()
            outcome = _everything(runner, points)
        deliver_outcome(outcome, folder, options)
        return outcome
    except Stopped as stop:
        kept = store.count()
        number = "at least " * (scenario.search is not None) + f"{max(len(points), kept):,}"
        stop.add_note(f"{kept:,} of {number} points are kept in {show_path(folder)}; go on with --resume")
        raise
    finally:
        if cluster is not None:
            cluster.close()
        store.close()


def _everything(runner: Runner, points: list[Point]) -> Outcome:
    runner.run(points)
    found: list[Found] = []
    if runner.scenario.search is not None:
        groups: dict[tuple[Knobs, str], list[Row]] = {}
        for point in points:
            groups.setdefault(point.group, []).append(runner.row(point))

        def run(asked: Sequence[Point], round_: int) -> list[Row]:
            runner.run(asked, f"search, round {round_}")
            return [runner.row(point) for point in asked]
        found = run_all(looks(runner.scenario, groups), run)
    every = list(dict.fromkeys([*points, *itertools.chain.from_iterable(one.points for one in found)]))
    keys = [runner.key(point) for point in every]
    runner.store.finish(keys)
    return Outcome(runner.scenario, every, [runner.store.rows[key] for key in keys], len(points), found, dict(runner.counts),
                   runner.store.columns)


def _drop(runner: Runner, points: Sequence[Point], options: argparse.Namespace) -> None:
    """What is tried again; and no point of the store may vanish because the scenario no longer has it."""
    again = {LOST, FAILED} if options.retry else {LOST}
    runner.store.forget([key for key, row in runner.store.rows.items() if row["status"] in again])
    wanted = {runner.key(point) for point in points}
    other = next((row for key, row in runner.store.rows.items() if key not in wanted
                  and row["part"] != SEARCH), None)
    if other is not None:
        raise InputError(f"{show_path(runner.store.path)} holds points that this scenario does not have, as allocator "
                         f"{other['allocator']}, seed {other['seed']}: {runner.store.changes()}; --out DIR writes elsewhere")


def _facts(scenario: Scenario) -> dict[str, str]:
    """What must be the same to go on; a grid may grow."""
    return {"pagedsim": VERSION, "warm-up": scenario.warm_up}
