"""Runs points that are not in the store yet, here or on a cluster, and keeps each as it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.whatif.cluster import Cluster
from experiments.whatif.local import run_local
from experiments.whatif.points import Point, point_key
from experiments.whatif.scenario import Scenario
from experiments.whatif.simulate import Job, run_point
from experiments.whatif.store import FAILED, LOST, Row, Store


@dataclass
class Runner:
    """What runs points of one scenario.

    Parameters
    ----------
    scenario : Scenario
    job : Job
    store : Store
        Open.
    progress : Progress
    jobs : int
        Processes on this machine, where there is no cluster.
    cluster : Cluster, optional
        Connected.
    """

    scenario: Scenario
    job: Job
    store: Store
    progress: Progress
    jobs: int
    cluster: Cluster | None = None
    counts: dict[str, int] = field(default_factory=lambda: {"run": 0, "kept": 0, FAILED: 0, LOST: 0})

    def key(self, point: Point) -> str:
        """The point's name in the store."""
        return point_key(point, self.scenario, self.job.materials.digests)

    def row(self, point: Point) -> Row:
        """The row of a point that was run."""
        return self.store.rows[self.key(point)]

    def run(self, points: Sequence[Point], label: str = "points") -> None:
        """Run those that are not in the store; when this returns all are there."""
        new = {self.key(point): point for point in points if self.key(point) not in self.store.rows}
        self.counts["kept"] += len(points) - len(new)
        task = self.progress.add_task(label, total=len(points), completed=len(points) - len(new))
        with closing(self._rows(list(new.values()))) as rows:           # what cannot be kept is run no further
            for point, row in rows:
                self.store.write(self.key(point), row)
                self._count(task, row)

    def _rows(self, points: Sequence[Point]) -> Generator[tuple[Point, Row], None, None]:
        if points and self.cluster is not None:
            yield from self.cluster.run(run_point, self.job, points, _lost)
        elif points:
            yield from run_local(run_point, self.job, points, self.jobs, self.tell, _lost)

    def _count(self, task: TaskID, row: Row) -> None:
        self.counts["run"] += 1
        if row["status"] in (FAILED, LOST):
            self.counts[row["status"]] += 1
        failed = self.counts[FAILED] + self.counts[LOST]
        self.progress.update(task, advance=1, failed=f"{failed:,} failed" if failed else "")

    def tell(self, line: str) -> None:
        """A line for people, above the bar."""
        teller(self.progress)(line)


def _lost(point: Point, why: str) -> Row:
    return {"allocator": point.allocator, "seed": point.seed, **dict(point.knobs), "status": LOST, "error": why}


def bar(quiet: bool) -> Progress:
    """A bar over points with what is left of the time; hidden when ``quiet`` or stderr is no terminal."""
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[failed]}"),
             TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    return _Bar(*shown, console=Console(stderr=True), disable=quiet or not sys.stderr.isatty())


class _Bar(Progress):
    def add_task(self, description: str, *arguments: object, **fields: object) -> TaskID:
        """With the field that the columns want."""
        return super().add_task(description, *arguments, **{"failed": "", **fields})       # type: ignore[arg-type]

    def stop(self) -> None:
        """Nothing where nobody looks: rich before 15 writes an empty line there."""
        if not self.disable:
            super().stop()


def teller(progress: Progress) -> Callable[[str], None]:
    """What prints a line on stderr without breaking the bar."""
    def tell(line: str) -> None:
        if progress.disable:
            print(f"pagedsim sweep: {line}", file=sys.stderr)
        else:
            progress.console.print(line, markup=False, highlight=False)
    return tell


def lost_or_failed(rows: Iterable[Row]) -> list[Row]:
    """The rows of points that gave no result."""
    return [row for row in rows if row["status"] in (FAILED, LOST)]
