"""Sweeps as processes of their own: started, killed, resumed, and the folders they leave compared byte by byte."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def start(scenario, folder, *more):
    """`pagedsim sweep` in a process group of its own."""
    command = [sys.executable, "-m", "experiments.cli", "sweep", str(scenario), "--out", str(folder), "--no-figures", "-q", *more]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                            env=environment, cwd=Path(scenario).parent)


def finish(process, limit_s=300):
    """Wait for its end; status, standard output and standard error."""
    out, err = process.communicate(timeout=limit_s)
    return process.returncode, out, err


def kept(folder):
    """Row id of every finished point by its key: a point that was written again would have another one."""
    path = Path(folder, "results.sqlite")
    if not path.exists():
        return {}
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path, timeout=5)) as db:
        return dict(db.execute("select key, rowid from points"))
    return {}


def kill_after_a_point(process, folder, before, pause_s):
    """Kill it with all its processes once one more point is kept and some time went by; the rows kept, or None if it ended."""
    while process.poll() is None:
        if len(kept(folder)) > before:
            time.sleep(pause_s)
            break
        time.sleep(0.01)
    if process.poll() is not None:
        return None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return kept(folder)


def files(folder):
    """Name -> bytes of everything a sweep left."""
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
