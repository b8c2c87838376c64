"""The long mode: ``python -m tests.fuzz --inputs 100000``. What is found is told with its number, and kept to be run again.

    python -m tests.fuzz --door cases --number 1234      one of them again, with all it says
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from .doors import DOORS, made_input
from .inputs import Input, lay
from .judge import PATIENCE, SECONDS, Ending, judged

MEMORY_MIB = 4096
KEPT = 3                                               # findings of one cause that are kept
DEAF = 2.0                                             # times its patience, before a process that says nothing is ended
Task = tuple[str, int]


def main() -> int:
    """Run them; 1 if anything was found."""
    options = _parser().parse_args()
    doors = options.door or list(DOORS)
    if options.number is not None:
        return _one(options, doors[0])
    weight = sum(DOORS[door].weight for door in doors)
    counts = {door: -(-options.inputs * DOORS[door].weight // weight) for door in doors}
    folder = Path(options.keep or tempfile.mkdtemp(prefix="found-"))
    told = _Told(options.seed, folder)
    for door in doors:                                 # what they begin with is read once, not by each process
        made_input(options.seed, door, 0)
    started = time.perf_counter()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.default_int_handler)
    with suppress(KeyboardInterrupt):                  # what is done by then is told
        for k, (task, ending) in enumerate(_endings(options, _tasks(counts)), 1):
            told.add(task, ending)
            if k % 2000 == 0:
                print(f"{k:,} inputs, {told.found} findings, {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    told.report(time.perf_counter() - started)
    return 1 if told.found else 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--inputs", type=int, default=100_000, help="how many in all (default 100,000)")
    made.add_argument("--seed", type=int, default=0, help="other inputs (default 0)")
    made.add_argument("--door", action="append", choices=list(DOORS), help="only this one; may be repeated")
    made.add_argument("--number", type=int, help="only the input of this number of the door")
    made.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    made.add_argument("--seconds", type=float, default=SECONDS, help="of the processor for one input (default %(default)s)")
    made.add_argument("--memory-mib", type=int, default=MEMORY_MIB, help="of a process's addresses (default %(default)s)")
    made.add_argument("--keep", metavar="DIR", help="where findings are kept (default: a new folder)")
    return made


def _tasks(counts: dict[str, int]) -> Iterator[Task]:
    """All doors in turn, so that every part of a run has some of each."""
    most = max(counts.values())
    for k in range(most):
        for door, count in counts.items():
            if k * count // most != (k + 1) * count // most:
                yield door, k * count // most


def _one(options: argparse.Namespace, door: str) -> int:
    """One input, told in full and kept."""
    one, folder = made_input(options.seed, door, options.number), Path(options.keep or tempfile.mkdtemp(prefix="found-"))
    print([word if len(word) < 500 else f"{word[:500]}..." for word in one.arguments])
    with tempfile.TemporaryDirectory() as work:
        ending = judged(one, Path(work), options.seconds)
    lay(Input(one.arguments, {**one.files, "stdin": one.stdin}), folder)
    print(f"{ending.kind}: {ending.where} ({ending.seconds:.2f} s)\n{ending.said}\nits files: {folder}")
    return int(ending.wrong)


# ---------------------------------------------------------------------- processes
def _endings(options: argparse.Namespace, tasks: Iterator[Task]) -> Iterator[tuple[Task, Ending]]:
    """How each input ended; a process that dies or says nothing is a finding, and another goes on."""
    workers: list[_Worker] = []
    try:
        workers = [_Worker(options) for _ in range(options.jobs)]
        busy = {worker: worker.begin(task) for worker, task in zip(workers, tasks, strict=False)}
        while busy:
            multiprocessing.connection.wait([worker.pipe for worker in busy], timeout=0.5)
            for worker in list(busy):
                ending = worker.ending()
                if ending is None:
                    continue
                yield worker.task, ending
                del busy[worker]
                task = next(tasks, None)
                if task is not None:
                    busy[worker] = worker.begin(task)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that runs inputs, one after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options, self.task = options, ("", 0)
        self._start()

    def _start(self) -> None:
        self.pipe, far = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=_work, args=(far, self._options.seed, self._options.seconds, self._options.memory_mib), daemon=False)
        self._process.start()
        far.close()

    def begin(self, task: Task) -> float:
        self.task, self._begun = task, time.perf_counter()
        self.pipe.send(task)
        return self._begun

    def ending(self) -> Ending | None:
        """None while it is at work."""
        seconds = time.perf_counter() - self._begun
        if self.pipe.poll():
            try:
                made: Ending = self.pipe.recv()
                return made
            except EOFError:
                self._process.join()
                made = Ending("died", f"exit code {self._process.exitcode}", "the process ended", seconds)
        elif seconds < DEAF * PATIENCE * self._options.seconds:
            return None
        else:
            self._process.kill()
            made = Ending("hang", "deaf to signals", "", seconds)
        self.end()
        self._start()
        return made

    def end(self) -> None:
        with suppress(OSError):
            self.pipe.send(None)
        self._process.join(2)
        if self._process.is_alive():
            self._process.kill()


def _work(pipe: Connection, seed: int, seconds: float, memory_mib: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)       # the one who asks for inputs ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        parent = os.getppid()
        while True:
            while not pipe.poll(5):
                if os.getppid() != parent:             # it was killed, and pipes of others keep ours open
                    return
            task = pipe.recv()
            if task is None:
                return
            door, number = task
            pipe.send(judged(made_input(seed, door, number), Path(folder) / "w", seconds))


# ---------------------------------------------------------------------- what was found
class _Told:
    """Counts by door, and findings by cause."""

    def __init__(self, seed: int, folder: Path) -> None:
        self._seed, self._folder = seed, folder
        self._counts: dict[str, Counter[str]] = {}
        self._seconds: Counter[str] = Counter()
        self._causes: Counter[tuple[str, str, str]] = Counter()
        self.found = 0

    def add(self, task: Task, ending: Ending) -> None:
        door, number = task
        self._counts.setdefault(door, Counter())[ending.kind if not ending.wrong else "found"] += 1
        self._seconds[door] += ending.seconds          # type: ignore[assignment]
        if not ending.wrong:
            return
        self.found += 1
        cause = door, ending.kind, ending.where
        self._causes[cause] += 1
        if self._causes[cause] <= KEPT:
            one, place = made_input(self._seed, door, number), self._folder / f"{door}-{number}"
            lay(Input(one.arguments, {**one.files, "stdin": one.stdin}), place)
            (place / "FOUND").write_text(f"{one.arguments!r}\n{ending.kind}: {ending.where}\n{ending.said}\n",
                                         errors="backslashreplace")
            text = f"--- {door} {number}: {ending.kind}: {ending.where}\n{repr(one.arguments)[:300]}\n{ending.said[-700:]}"
            print(text.encode("utf-8", "backslashreplace").decode(), flush=True)

    def report(self, seconds: float) -> None:
        print(f"\n{'door':<14}{'inputs':>9}{'results':>9}{'refused':>9}{'found':>7}{'seconds':>9}")
        for door, counts in self._counts.items():
            print(f"{door:<14}{counts.total():>9,}{counts['result']:>9,}{counts['refused']:>9,}{counts['found']:>7,}"
                  f"{self._seconds[door]:>9.0f}")
        every = sum(self._counts.values(), Counter())
        print(f"{'all':<14}{every.total():>9,}{every['result']:>9,}{every['refused']:>9,}{every['found']:>7,}{seconds:>9.0f}")
        for (door, kind, where), count in self._causes.most_common():
            print(f"{count:>6} x {door}: {kind}: {where}")
        if self.found:
            print(f"kept in {self._folder}; again with: python -m tests.fuzz --seed {self._seed} --door DOOR --number N")


if __name__ == "__main__":
    sys.exit(main())
