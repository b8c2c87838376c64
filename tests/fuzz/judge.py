"""One input, run in this process within limits, and what is wrong with how it ended.

Right are status 0, and status 2 with one line on standard error that names the command and nothing on standard output. All else
is a finding: another exception, several lines, a warning of numpy's, no end in time, or more memory than small files can need.
"""

from __future__ import annotations

import io
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from experiments import setup
from experiments.cli import main
from experiments.conformance import config

from .inputs import Input, lay

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 10.0                                         # of the processor: the machine may be busy
PATIENCE = 30.0                                        # times as long by the clock, for what waits and does nothing
MOST_GROWN = 600 << 20                                 # bytes that one input may add to the largest size of the process
MOST_BLOCKS = 1 << 21
LONGEST_LINE = 2500
NO_MEMORY = ("more memory than there is", "do not fit in memory", "out of memory")
NOT_OUTPUT = "cannot write to standard output"         # a file that could not be read, taken for our own output


class TooLong(BaseException):
    """The input's time is over. No ordinary exception: nobody may catch it."""


@dataclass(frozen=True)
class Ending:
    """``kind`` is ``result``, ``refused`` or what is wrong; ``where`` groups findings of one cause; ``said`` is for people."""

    kind: str
    where: str
    said: str
    seconds: float

    @property
    def wrong(self) -> bool:
        return self.kind not in ("result", "refused")


def judged(one: Input, folder: Path, seconds: float = SECONDS) -> Ending:
    """Run an input in a folder, which is emptied first."""
    lay(one, folder)
    before, largest, started = os.getcwd(), _largest(), time.process_time()
    os.chdir(folder)
    try:
        with _streams(one.stdin) as (out, err), warnings.catch_warnings(), _small_pools():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)
            status, fault = _run(one, seconds)
            said, complained = (stream.buffer.getvalue().decode() for stream in (_flushed(out), _flushed(err)))
    finally:
        os.chdir(before)
    kind, where, text = _verdict(one, status, fault, said, complained)
    if kind in ("result", "refused") and _largest() - largest > MOST_GROWN:
        kind, where, text = "memory", "grown", f"{(_largest() - largest) >> 20} MiB more; {complained[:300]}"
    return Ending(kind, where, text, time.process_time() - started)


def _run(one: Input, seconds: float) -> tuple[object, BaseException | None]:
    def over(*_: object) -> None:
        raise TooLong

    kept = [signal.signal(one, over) for one in (signal.SIGALRM, signal.SIGPROF)]
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)  # again, where a cleaning-up lasts as long
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds, 1.0)
    try:
        return main(list(one.arguments)), None
    except SystemExit as stop:
        return stop.code, None
    except (Exception, TooLong) as error:
        return None, error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for one, handler in zip((signal.SIGALRM, signal.SIGPROF), kept, strict=True):
            signal.signal(one, handler)


def _verdict(one: Input, status: object, fault: BaseException | None, said: str, complained: str) -> tuple[str, str, str]:
    if fault is not None:
        kind = "hang" if isinstance(fault, TooLong) else "traceback"
        return kind, f"{type(fault).__name__} in {_place(fault)}", "".join(traceback.format_exception(fault))[-3000:]
    if any(text in complained for text in NO_MEMORY):
        return "memory", "refused for want of it", complained[:LONGEST_LINE]
    if NOT_OUTPUT in complained:
        return "wrong line", "standard output is blamed", complained[:LONGEST_LINE]
    if status == 0 or (status == 1 and one.may_fail):
        wrong = next((word for word in ("Traceback", "Warning:") if word in complained), None)
        return ("wrong line", wrong, complained[:LONGEST_LINE]) if wrong else ("result", "", "")
    if status != 2:
        return "wrong status", f"status {status!r}", complained[:LONGEST_LINE] + said[-500:]
    problem = _line_problem(one, said, complained)
    return ("wrong line", problem, (complained + said)[:LONGEST_LINE]) if problem else ("refused", "", complained)


def _line_problem(one: Input, said: str, complained: str) -> str:
    """What is wrong with a refusal; nothing if it is one line and all of it."""
    if said and not one.may_fail:                      # what was compared before it is told as well
        return "something on standard output"
    if complained.count("\n") != 1 or not complained.endswith("\n"):
        return f"{complained.count(chr(10))} lines"
    if not complained.startswith("pagedsim ") or ": error: " not in complained:
        return "the command is not named"
    if not complained[:-1].isprintable():
        return "what cannot be shown"
    typed = max(map(len, one.arguments), default=0)    # what somebody typed himself may be said again
    return "too long" if len(complained) > LONGEST_LINE + typed else ""


def _place(fault: BaseException) -> str:
    """The innermost line that is ours."""
    frames = [frame for frame in traceback.extract_tb(fault.__traceback__) if frame.filename.startswith(str(ROOT))]
    frames = [frame for frame in frames if "tests" not in Path(frame.filename).relative_to(ROOT).parts] or frames
    return f"{Path(frames[-1].filename).relative_to(ROOT)}:{frames[-1].name}" if frames else "nowhere of ours"


def _largest() -> int:
    """The largest size this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _flushed(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    stream.flush()
    return stream


@contextmanager
def _small_pools() -> Iterator[None]:
    """The largest pool takes 6 GB, as it must; with smaller ones it shows if memory is taken for another reason."""
    with patch.object(setup, "MOST_BLOCKS", MOST_BLOCKS), patch.dict(config.MOST, num_blocks=MOST_BLOCKS >> 5):
        yield


@contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Standard streams as a process has them, in memory."""
    kept = sys.stdin, sys.stdout, sys.stderr
    made = [io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors=errors)
            for data, errors in ((stdin, "strict"), (b"", "strict"), (b"", "backslashreplace"))]
    sys.stdin, sys.stdout, sys.stderr = made
    try:
        yield made[1], made[2]
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
