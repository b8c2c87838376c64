"""Points on a running Dask cluster; results come as they end.

Dask gives the tasks of a worker that vanishes to the others, and gives up a task whose worker vanished again and again: that
point is lost, the others end. When no worker is left for a minute, or the scheduler is gone, the sweep ends; what ended is kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from experiments.version import VERSION
from experiments.whatif.local import VANISHED, Tell
from workloads.messages import show, show_path
from workloads.request import InputError

Task = TypeVar("Task")
Result = TypeVar("Result")
PATIENCE_S = 60.0                                      # without any worker
ANSWER_S = 10.0                                        # until a scheduler answers
LOOK_S = 1.0                                           # how often workers are counted
AHEAD = 4                                              # tasks sent for each thread of the cluster


class Cluster:
    """A connection to a scheduler.

    Parameters
    ----------
    address : str
        As ``tcp://10.0.0.1:8786`` or ``10.0.0.1:8786``.
    tell : callable
        Is told when workers come or vanish.
    patience_s : float
        How long to wait for a worker when there is none.
    """

    def __init__(self, address: str, tell: Tell, patience_s: float = PATIENCE_S) -> None:
        self.address, self._tell, self._patience_s = address, tell, patience_s
        self._client: Any = None
        self._workers: dict[str, int] = {}
        self._empty_since: float | None = None

    def connect(self) -> None:
        """Reach the scheduler and its workers, which must have this version of pagedsim.

        Raises
        ------
        InputError
        """
        try:
            from distributed import Client
        except ImportError:
            raise InputError("--dask needs the package distributed: pip install 'pagedsim[cluster]'") from None
        for name in ("distributed", "distributed.client", "distributed.core"):
            logging.getLogger(name).setLevel(logging.CRITICAL)           # what matters is told here
        try:
            self._client = Client(self.address, timeout=ANSWER_S)
        except (OSError, ValueError, TimeoutError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"--dask {show_path(self.address)}: no scheduler answers there ({reason[:120]})") from None
        while not self._look():
            time.sleep(LOOK_S / 4)
        self._same_version()

    def close(self) -> None:
        """Leave; scheduler and workers stay."""
        if self._client is not None:
            self._client.close(timeout=2)

    def run(self, function: Callable[[Any, Task], Result], shared: Any, tasks: Sequence[Task],
            lost: Callable[[Task, str], Result]) -> Iterator[tuple[Task, Result]]:
        """As `local.run_local`, on the workers."""
        from distributed import wait
        queue, sent = list(reversed(tasks)), {}
        held = self._spread(shared)
        while queue or sent:
            while queue and len(sent) < AHEAD * max(1, sum(self._workers.values())):
                task = queue.pop()
                sent[self._asking(self._client.submit, function, held, task, pure=False)] = task
            try:
                ended = wait(list(sent), timeout=LOOK_S, return_when="FIRST_COMPLETED").done
            except (TimeoutError, CancelledError):
                ended = [future for future in sent if future.status == "cancelled"]
            self._look()
            for future in [one for one in sent if one in ended]:
                task = sent.pop(future)
                try:
                    outcome = self._outcome(future, task, lost)
                except CancelledError:                 # what it works on went with the last worker that held it
                    held = self._spread(shared)
                    queue.append(task)
                else:
                    yield task, outcome

    def _spread(self, shared: Any) -> Any:
        """Put what all tasks share on every worker."""
        while not self._look():
            time.sleep(LOOK_S / 4)
        return self._asking(self._client.scatter, shared, broadcast=True)

    def _outcome(self, future: Any, task: Task, lost: Callable[[Task, str], Result]) -> Result:
        from distributed import KilledWorker
        try:
            outcome: Result = self._asking(future.result)
            return outcome
        except KilledWorker:
            return lost(task, VANISHED)

    def _look(self) -> bool:
        """Count the workers; tell who vanished. Returns whether there are any."""
        now = dict(self._asking(self._client.nthreads))
        gone = [name for name in self._workers if name not in now]
        for name in gone:
            self._tell(f"worker {name} vanished: its points go to the others ({len(now)} left)")
        self._workers = now
        if now:
            self._empty_since = None
            return True
        if self._empty_since is None:
            self._empty_since = time.monotonic()
            self._tell(f"{self.address} has no worker: waiting for one")
        if time.monotonic() - self._empty_since > self._patience_s:
            raise InputError(f"--dask {show_path(self.address)}: no worker for {self._patience_s:g} s; what ended before is "
                             "kept, and --resume goes on with it")
        return False

    def _same_version(self) -> None:
        """Other versions may give other bytes."""
        answers = self._asking(self._client.run, _version, on_error="return")
        for worker, version in answers.items():
            if version != VERSION:
                said = "no pagedsim that can be imported" if isinstance(version, Exception) else f"pagedsim {show(version)}"
                raise InputError(f"--dask {show_path(self.address)}: worker {worker} has {said}, and {VERSION} is wanted")

    def _asking(self, question: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What the scheduler answers; a scheduler that is gone is one line."""
        try:
            return question(*arguments, **options)
        except (OSError, TimeoutError) as error:
            raise InputError(f"--dask {show_path(self.address)}: the scheduler is gone ({type(error).__name__}); what ended "
                             "before is kept, and --resume goes on with it") from None


def _version() -> str:
    return VERSION
