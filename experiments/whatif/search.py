"""Capacity search: for each combination of knobs, the largest rate, smallest pool or fewest GPUs that keep every promise.

Every value is run as points like those of the grid, the same seeds with the same draws: the ends of a bracket lie in the results
and can be looked at. `judging` says what keeps a promise. A search ends early where larger values bring about the very same runs,
since the queue waits for something else, or where a value cannot be run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from experiments.whatif.hunt import LEAST, Bracket, Range, hunt
from experiments.whatif.judging import Verdict, judge, nearest, same_run, spared
from experiments.whatif.points import Knobs, Point, make_point
from experiments.whatif.scenario import Scenario
from experiments.whatif.search_spec import Search
from experiments.whatif.store import DONE, FAILED, Row
from experiments.whatif.values import Scalar
from workloads.request import InputError

OPTION = {"pool": "num-gpu-blocks-override"}
START = {"rate": 1.0, "speed": 1.0, "num-gpu-blocks-override": 1024.0, "max-num-seqs": 16.0, "max-model-len": 2048.0}
SMALLEST = {"max-model-len": 2.0}                      # a token of prompt and one of output
WHOLE = ("num-gpu-blocks-override", "max-num-seqs", "max-model-len")
PACES = ("rate", "speed")
BOTH = ("max-num-seqs", "max-model-len")               # few sequences make a queue; short ones are rejected
Asks = Generator[list[Point], Sequence[Row], "Found"]


@dataclass(frozen=True)
class Found:
    """The outcome for one combination of knobs and allocator; ``ended`` says why it went no further, if not by itself."""

    knobs: Knobs
    allocator: str
    answer: Verdict | None
    beyond: Verdict | None
    tried: tuple[Verdict, ...]
    points: tuple[Point, ...]
    ended: str = ""


def searched_options(search: Search) -> tuple[str, ...]:
    """The options whose values a search chooses."""
    return tuple(search.splits) if search.splits is not None else (OPTION.get(search.what, search.what),)


def range_of(search: Search) -> Range:
    """Where a search by bisection looks."""
    option = searched_options(search)[0]
    return Range(search.goal == "largest", option in WHOLE, search.resolution, START[option], search.low, search.high,
                 SMALLEST.get(option, LEAST), option in BOTH)


def check_search(scenario: Scenario) -> None:
    """Raise InputError where a search chooses what the scenario says already."""
    if scenario.search is None:
        return
    for option in searched_options(scenario.search):
        if option in scenario.options or any(knob.name == option for knob in scenario.knobs):
            raise InputError(f"{scenario.path}: [search] chooses {option}, and the scenario says it as well: one of them")


def looks(scenario: Scenario, groups: Mapping[tuple[Knobs, str], Sequence[Row]]) -> list[Asks]:
    """One search for each setting of the grid; each yields the points it wants to know about.

    Parameters
    ----------
    groups : mapping of (knobs, allocator) to rows
        What the grid came to, a row a seed.
    """
    assert scenario.search is not None
    look = _fewest if scenario.search.goal == "fewest" else _bisect
    return [look(_Ask(scenario, knobs, allocator, spared(rows))) for (knobs, allocator), rows in groups.items()]


def run_all(searches: Sequence[Asks], run: Callable[[Sequence[Point], int], Sequence[Row]]) -> list[Found]:
    """Let all searches go on side by side, a round at a time.

    Parameters
    ----------
    run : callable
        (points, round) -> their rows.
    """
    found: dict[int, Found] = {}
    wanted = {number: next(search) for number, search in enumerate(searches)}
    for round_ in itertools.count(1):
        if not wanted:
            return [found[number] for number in sorted(found)]
        points = list(itertools.chain.from_iterable(wanted.values()))
        rows = iter(run(points, round_))
        for number, asked in list(wanted.items()):
            try:
                wanted[number] = searches[number].send([next(rows) for _ in asked])
            except StopIteration as end:
                found[number] = end.value
                del wanted[number]
    raise AssertionError("unreachable")


# ---------------------------------------------------------------------- one search
@dataclass(frozen=True)
class _Ask:
    """One setting that is searched for."""

    scenario: Scenario
    knobs: Knobs
    allocator: str
    excused: Mapping[str, Sequence[int] | None]

    @property
    def search(self) -> Search:
        assert self.scenario.search is not None
        return self.scenario.search

    def points(self, settings: Mapping[str, Scalar]) -> list[Point]:
        """A point a seed."""
        every = (*self.knobs, *settings.items())
        return [make_point(self.scenario, every, self.allocator, seed) for seed in self.scenario.seeds]

    def judge(self, settings: Mapping[str, Scalar], rows: Sequence[Row]) -> Verdict:
        """Whether the rows keep every promise."""
        return judge(self.search, settings, rows, self.scenario.confidence, self.excused)


def _bisect(ask: _Ask) -> Asks:
    option = searched_options(ask.search)[0]
    tried: dict[float, Verdict] = {}
    ran: dict[float, Sequence[Row]] = {}
    points: list[Point] = []
    ends: list[str] = []
    steps, said = hunt(range_of(ask.search)), None
    while True:
        try:
            value = steps.send(said)
        except StopIteration as end:
            bracket: Bracket = end.value
            beyond = _of(tried, bracket.broken) if bracket.kept is not None else nearest(ask.search, list(tried.values()))
            return Found(ask.knobs, ask.allocator, _of(tried, bracket.kept), beyond, tuple(tried.values()), tuple(points),
                         "; ".join(ends))
        end_here = ""
        if value not in tried:
            asked = ask.points({option: value})
            points += asked
            ran[value] = yield asked
            tried[value] = ask.judge({option: value}, ran[value])
            end_here = _end(option, tried, ran, value)
        ends += [end_here] if end_here else []
        said = None if end_here else tried[value].kept


def _end(option: str, tried: Mapping[float, Verdict], ran: Mapping[float, Sequence[Row]], value: float) -> str:
    """Why nothing is to be learned behind ``value``, the last that was tried; empty where something is."""
    if tried[value].lost:
        return f"{option} {value:.10g} cannot be run: {tried[value].why}"
    below = max((other for other in tried if other < value), default=None)
    above = min((other for other in tried if other > value), default=None)
    if above is None and below is not None and not any(verdict.kept for verdict in tried.values()) \
            and all(row["status"] == FAILED for row in ran[value]):
        return f"{option} {value:.10g} cannot be run: {tried[value].why}"
    if above is None and below is not None and same_run(option, ran[below], ran[value]):
        return f"from {option} {below:.10g} on nothing changes: more of it is not used"
    if below is None and above is not None and not any(row["completed"] for row in ran[value] if row["status"] == DONE):
        return f"at {option} {value:.10g} nobody is served"
    if below is None and above is not None and option in PACES and tried[value].metrics == tried[above].metrics != {}:
        return f"below {option} {above:.10g} nothing changes: an idle server breaks it too"
    return ""


def _of(tried: Mapping[float, Verdict], value: float | None) -> Verdict | None:
    return None if value is None else tried[value]


def _fewest(ask: _Ask) -> Asks:
    """Numbers of GPUs from one up, every way to split them; the answer is the first that keeps the promise."""
    search = ask.search
    assert search.splits is not None
    names = list(search.splits)
    splits = sorted(itertools.product(*search.splits.values()), key=lambda split: (_gpus(split), split))
    tried: list[Verdict] = []
    points: list[Point] = []
    for gpus, group in itertools.groupby(splits, key=_gpus):
        if (search.low or 0) > gpus or (search.high or gpus) < gpus:
            continue
        settings = [dict(zip(names, split, strict=True)) for split in group]
        asked = [ask.points(one) for one in settings]
        points += itertools.chain.from_iterable(asked)
        rows = iter((yield list(itertools.chain.from_iterable(asked))))
        verdicts = [ask.judge(one, [next(rows) for _ in some]) for one, some in zip(settings, asked, strict=True)]
        before = tried[-1] if tried else None
        tried += verdicts
        kept = [verdict for verdict in verdicts if verdict.kept]
        if kept:
            best = min(kept, key=lambda verdict: [upper for _, upper in verdict.metrics.values()])
            return Found(ask.knobs, ask.allocator, best, before, tuple(tried), tuple(points))
    return Found(ask.knobs, ask.allocator, None, nearest(search, tried), tuple(tried), tuple(points))


def _gpus(split: Sequence[Scalar]) -> int:
    count = 1
    for size in split:
        count *= int(size)
    return count
