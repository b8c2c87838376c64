"""How a sweep ends before its time: what signals mean, and that no worker outlives it.

    INT (Ctrl-C), TERM, HUP     Stopped is raised in the main thread: running points are abandoned, workers ended, one line said
    KILL                        nobody can say anything: each worker sees that its parent is gone, and ends

Workers are deaf to the first three, which terminals and batch systems send to the whole process group: the parent alone decides.
"""

from __future__ import annotations

import multiprocessing.resource_tracker
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
BURST_S = 1.0                                          # TERM and HUP come one right after the other, and are one wish
LOOK_S = 0.5                                           # how often a worker looks for its parent
SHARED_MEMORY = "/dev/shm"


class Stopped(KeyboardInterrupt):
    """The sweep shall end; a KeyboardInterrupt, since what is able to end in order ends in order for those.

    Parameters
    ----------
    number : int
        Of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)                       # SimPy makes another one of these of its arguments
        self.number = number

    @property
    def kept(self) -> str:
        """What is left of the work, as was noted on the way."""
        return "; ".join(getattr(self, "__notes__", ["nothing was run"]))

    @property
    def status(self) -> int:
        """Exit status, as shells have it.

        >>> Stopped(signal.SIGTERM).status
        143
        """
        return 128 + self.number


class _Births:
    """Whether processes are being begun: one that is left half begun complains of it aloud."""

    under_way = False
    late: int | None = None                            # the signal that waits until they are


_births = _Births()


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, a signal raises `Stopped`; one that is ignored (HUP under nohup, INT behind a shell's &) stays ignored."""
    if threading.current_thread() is not threading.main_thread():       # only that one is told of signals
        yield
        return
    last = float("-inf")

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before <= BURST_S:
            return
        if _births.under_way:                          # a thread that does not block signals was told
            _births.late = number
            return
        raise Stopped(number)

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    were = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in were.items():
            signal.signal(number, handler)


@contextmanager
def born_deaf() -> Iterator[None]:
    """Processes begun inside never hear `SIGNALS`: they inherit what is blocked; this one hears them when the block ends."""
    if not hasattr(signal, "pthread_sigmask"):         # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    _births.under_way = True
    try:
        _begin_trackers()                              # deaf too, or a terminal that closes would end them before they cleaned up
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)                # beginning them unblocks some
        yield
    finally:
        _births.under_way = False
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    late, _births.late = _births.late, None
    if late is not None:
        raise Stopped(late)


def _begin_trackers() -> None:
    """Begin what cleans up after processes that were killed, and let it do so without a word."""
    from joblib.externals.loky.backend import resource_tracker
    were = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore"
    try:
        for tracker in (multiprocessing.resource_tracker, resource_tracker):
            tracker.ensure_running()
    finally:
        del os.environ["PYTHONWARNINGS"]
        if were is not None:
            os.environ["PYTHONWARNINGS"] = were


def end_with(parent: int) -> None:
    """Let this process, a worker, end when its parent has; then the resource trackers see nobody any more, clean up and end too.

    A thread that looks at the parent's id does on every POSIX system what prctl(PR_SET_PDEATHSIG) does on Linux alone, and goes
    by the process, not by the thread that began this one; between two looks at most `LOOK_S` pass.
    """
    def watch() -> NoReturn:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(1)
    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def drop_memory_of(process: int) -> None:
    """Remove semaphores and arrays in shared memory of a process that was killed together with all that would have cleaned up."""
    if _alive(process):                                # another one that got its number
        return
    for folder in {SHARED_MEMORY, tempfile.gettempdir(), os.environ.get("JOBLIB_TEMP_FOLDER", SHARED_MEMORY)}:
        for path in Path(folder).glob(f"sem.loky-{process}-*"):
            with suppress(OSError):
                path.unlink()
        for path in Path(folder).glob(f"joblib_memmapping_folder_{process}_*"):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:                                    # somebody else's
        return True
    return True
