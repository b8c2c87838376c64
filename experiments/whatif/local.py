"""Points on the cores of one machine, by joblib; results come as they end.

A worker process that dies (killed, out of memory) takes its point with it and joblib then gives up the whole pool. What had not
ended goes on one point at a time in a process of its own, so that it is known whose worker died: that point is lost, the others
end.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from experiments.whatif.stopping import born_deaf, end_with
from workloads.request import InputError

Task = TypeVar("Task")
Result = TypeVar("Result")
Tell = Callable[[str], None]
VANISHED = "its worker process died (killed, or out of memory)"


def cores() -> int:
    """Cores that this process may use."""
    import joblib
    return int(joblib.cpu_count())


def run_local(function: Callable[[Any, Task], Result], shared: Any, tasks: Sequence[Task], jobs: int, tell: Tell,
              lost: Callable[[Task, str], Result]) -> Iterator[tuple[Task, Result]]:
    """Yield every task with its result, in the order in which they end.

    Parameters
    ----------
    function : callable
        (shared, task) -> result; found by its name in another process.
    jobs : int
        Processes; 1 runs everything in this one.
    tell : callable
        Is told when a worker vanished.
    lost : callable
        (task, why) -> the result of a task whose worker died.
    """
    if jobs == 1 or len(tasks) == 1:
        for task in tasks:
            yield task, function(shared, task)
        return
    from joblib.externals.loky.process_executor import TerminatedWorkerError
    left = dict(enumerate(tasks))
    try:
        for number, result in _pool(function, shared, left, jobs):
            yield left.pop(number), result
    except TerminatedWorkerError:
        tell(f"a worker process died (killed, or out of memory): {len(left):,} points go on one at a time")
        for number in list(left):
            task = left.pop(number)
            try:
                (_, result), = _pool(function, shared, {number: task}, 2)       # one process would be this one
            except TerminatedWorkerError:
                tell(f"the worker of {task} died again")
                result = lost(task, VANISHED)
            yield task, result


def _pool(function: Callable[[Any, Task], Result], shared: Any, tasks: dict[int, Task], jobs: int,
          ) -> Iterator[tuple[int, Result]]:
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import PicklingError
    parallel = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1, pre_dispatch=2 * jobs,
                        initializer=end_with, initargs=(os.getpid(),))
    with ExitStack() as stack:
        with born_deaf():
            ended = parallel(delayed(_numbered)(function, shared, number, task) for number, task in list(tasks.items()))
            stack.callback(_abandon, ended)
        try:
            yield from (one for one in ended)          # not ended itself, which would then be closed aloud
        except PicklingError as error:                 # traces lie in shared memory, and that may be full
            reason = str(error.__cause__).strip(' \n"').splitlines()[-1]
            raise InputError(f"cannot hand the traces to the workers: {reason}; what ended before is kept, and --resume --jobs 1 "
                             "goes on with it without workers") from None


def _abandon(running: Generator[Any, None, None]) -> None:
    """End the workers of what has not ended; joblib warns of results that nobody takes, and nobody shall."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        running.close()


def _numbered(function: Callable[[Any, Task], Result], shared: Any, number: int, task: Task) -> tuple[int, Result]:
    return number, function(shared, task)
