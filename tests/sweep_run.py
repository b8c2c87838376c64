"""Sweeps as processes of their own: started, killed, resumed, and the folders they leave compared byte by byte."""

from __future__ import annotations

import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

from cli_run import run, timed

ROOT = Path(__file__).resolve().parents[1]


WHOLE = "num-gpu-blocks-override = 400\nmax-model-len = 2048\nwarm-up = 'none'\n"


def trace_of(folder, n=60):
    return timed(folder, [(i * 0.5, 50 + 37 * i % 400, 20 + 11 * i % 120) for i in range(n)])


def start(scenario, folder, *more):
    """`pagedsim sweep` in a process group of its own."""
    return launch([sys.executable, "-m", "experiments.cli", *words(scenario, folder, *more)], Path(scenario).parent)


def words(scenario, folder, *more):
    """The command's words."""
    return ["sweep", str(scenario), "--out", str(folder), "--no-figures", "-q", *more]


def launch(command, folder):
    """A process that leads a group, with our packages on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                            env=environment, cwd=folder)


def finish(process, limit_s=300):
    """Wait for its end; status, standard output and standard error. What does not end is killed with its group."""
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, out, err


def kept(folder):
    """Row id of every finished point by its key: a point that was written again would have another one."""
    path = Path(folder, "results.sqlite")
    if not path.exists():
        return {}
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path, timeout=5)) as db:
        return dict(db.execute("select key, rowid from points"))
    return {}


KILLED = """
import os, signal, sys, threading
from experiments.cli import main
from experiments.whatif.store import Store
write, group, left, pause_s = Store.write, int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
def counting(*arguments):
    global left
    write(*arguments)
    left -= 1
    if left == 0:
        threading.Timer(pause_s, os.killpg, (group, signal.SIGKILL)).start()
Store.write = counting
sys.exit(main(sys.argv[4:]))
"""


def start_killing(scenario, folder, points, pause_s, *more, group=0):
    """The same; some time after so many more points were kept a process group is killed, its own one unless another is named."""
    command = [sys.executable, "-c", KILLED, str(group), str(points), str(pause_s), *words(scenario, folder, *more)]
    return launch(command, Path(scenario).parent)


def files(folder):
    """Name -> bytes of everything a sweep left."""
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def read_store(folder):
    """The rows of a store, in its order."""
    with closing(sqlite3.connect(Path(folder, "results.sqlite"))) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute("select * from points order by number")]


def sweep(capsys, folder, text, *more, status=0):
    """Run it here; what it said, and the rows."""
    (folder / "s.toml").write_text(text)
    os.chdir(folder)
    said = run(capsys, "sweep", "s.toml", "--out", "out", "--jobs", "1", "--no-figures", *more)
    assert said.status == status, said.err
    return said, read_store("out")


def by_command(capsys, command):
    """A row's command, run here; of traffic that is piped in, through a file."""
    made, pipe, compared = command.rpartition(" | ")
    words = shlex.split(compared)
    if pipe:
        synth = shlex.split(made)
        assert synth[:3] == ["pagedsim", "trace", "synth"] and synth[4] == words[2] == "-"
        synth[4] = words[2] = "piped.csv"
        assert run(capsys, *synth[1:]).status == 0
    assert words[:2] == ["pagedsim", "compare"]
    said = run(capsys, *words[1:], "--json", "-", "-q")
    assert said.status == 0, said.err
    return said.json


def direct(capsys, row):
    """What compare says of a point, by its own command."""
    return by_command(capsys, row["command"])["scenarios"][0]
