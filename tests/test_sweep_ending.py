"""Sweeps that end before their time: by a signal, killed, on a full disk; one line at most, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cli_run import lengths, run
from sweep_run import ROOT, files, finish, kept, launch, start, start_killing, words

from experiments.whatif import stopping
from experiments.whatif.local import run_local
from experiments.whatif.stopping import Stopped, born_deaf, stoppable

TEXT = "num-gpu-blocks-override = 400\nmax-model-len = 2048\nlimit = 100\n[sweep]\nrate = {from = 1, to = 40, step = 1}\n"
MEMORY = Path("/dev/shm")
LIMIT_S = 300
posix_memory = pytest.mark.skipif(not MEMORY.is_dir(), reason="shared memory is no folder here")


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def begin(folder, *more, points=2, launched=start):
    """A sweep of which some points are kept."""
    (folder / "s.toml").write_text(TEXT)
    process = launched(folder / "s.toml", folder / "out", *more)
    end = time.monotonic() + LIMIT_S
    while len(kept(folder / "out")) < points and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert process.poll() is None
    return process


def in_memory(process):
    """What a process and its workers have in shared memory."""
    return [path.name for path in MEMORY.glob(f"*[-_]{process.pid}[-_]*")]


def ended(process):
    """As `finish`: it returns when the last process that can write to standard error has ended, workers and trackers too."""
    return finish(process, LIMIT_S)


# ---------------------------------------------------------------------- signals
@pytest.mark.parametrize(("whom", "jobs"), [("process", "1"), ("process", "2"), ("group", "2")])
@pytest.mark.parametrize(("name", "status"), [("INT", 130), ("TERM", 143), ("HUP", 129)])
def test_a_signal_ends_it_with_one_line_and_leaves_nothing(name, status, whom, jobs, tmp_path):
    """A terminal and a batch system tell the whole group, `kill` tells one process."""
    process = begin(tmp_path, "--jobs", jobs)
    (os.kill if whom == "process" else os.killpg)(process.pid, getattr(signal, f"SIG{name}"))
    said = ended(process)
    points = len(kept(tmp_path / "out"))
    line = f"pagedsim sweep: interrupted: {points} of 40 points are kept in {tmp_path}/out; go on with --resume\n"
    assert said == (status, "", line) and 2 <= points < 40
    assert in_memory(process) == [] and set(files("out")) == {".lock", "results.sqlite"}


def test_interrupted_and_resumed_leaves_the_bytes_of_an_undisturbed_one(tmp_path):
    process = begin(tmp_path, "--jobs", "2")
    process.terminate()
    assert ended(process)[0] == 143
    before = kept("out")
    assert ended(start(tmp_path / "s.toml", tmp_path / "out", "--jobs", "2", "--resume"))[::2] == (0, "")
    assert before and ended(start(tmp_path / "s.toml", tmp_path / "new", "--jobs", "2"))[::2] == (0, "")
    assert files("out") == files("new")


def test_before_the_first_point_nothing_was_run(tmp_path):
    """It waits for a trace that nobody writes."""
    os.mkfifo("trace.csv")
    Path("s.toml").write_text("trace = 'trace.csv'\npool = 50\n")
    process = start(tmp_path / "s.toml", tmp_path / "out")
    end = time.monotonic() + LIMIT_S
    pipe = None
    while pipe is None and time.monotonic() < end:
        try:
            pipe = os.open("trace.csv", os.O_WRONLY | os.O_NONBLOCK)    # there is none until somebody reads
        except OSError:
            time.sleep(0.01)
    while process.poll() is None and time.monotonic() < end:           # a signal just before it waits is heard with the next one
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2)
    assert ended(process) == (143, "", "pagedsim sweep: interrupted: nothing was run\n") and not Path("out").exists()
    os.close(pipe)


def test_with_a_search_more_points_may_come(tmp_path, monkeypatch, capsys):
    text = "pool = 400\nmax-model-len = 2048\nlimit = 20\n[search]\nlargest = 'rate'\nkeep = 'ttft p99 <= 2 s'\n"
    Path("s.toml").write_text(text)

    def stop(*arguments):
        signal.raise_signal(signal.SIGTERM)
    monkeypatch.setattr("experiments.sweep.run_all", stop)
    said = run(capsys, "sweep", "s.toml", "--out", "out", "--jobs", "1")
    assert (said.status, said.err) == (143, "pagedsim sweep: interrupted: 1 of at least 1 points are kept in out; go on with "
                                            "--resume\n")


def test_what_is_ignored_stays_ignored(tmp_path):
    """Under nohup a terminal may close."""
    def under_nohup(*arguments):
        command = [sys.executable, "-m", "experiments.cli", *words(*arguments)]
        return launch(["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command], tmp_path)
    process = begin(tmp_path, "--jobs", "2", launched=under_nohup)
    os.killpg(process.pid, signal.SIGHUP)
    status, _, err = ended(process)
    assert (status, err) == (0, "") and len(kept("out")) == 40


def test_a_burst_of_signals_is_one_and_handlers_come_back(monkeypatch):
    now = [5.0]
    monkeypatch.setattr(stopping.time, "monotonic", lambda: now[0])
    before = [signal.getsignal(number) for number in stopping.SIGNALS]
    with stoppable():
        with pytest.raises(Stopped) as caught:
            signal.raise_signal(signal.SIGTERM)
        assert (caught.value.number, caught.value.status) == (signal.SIGTERM, 143)
        now[0] += stopping.BURST_S
        signal.raise_signal(signal.SIGHUP)             # what is being ended is not disturbed
        now[0] += stopping.BURST_S + 0.001
        with pytest.raises(Stopped):                   # a person who means it
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in stopping.SIGNALS] == before


# ---------------------------------------------------------------------- killed
def test_workers_end_when_their_parent_was_killed_and_clean_up_without_a_word(tmp_path):
    process = begin(tmp_path, "--jobs", "2")
    process.kill()
    assert ended(process) == (-signal.SIGKILL, "", "")
    assert in_memory(process) == []


@posix_memory
def test_what_a_killed_group_left_in_memory_is_gone_after_resume(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    process = start_killing(tmp_path / "s.toml", tmp_path / "out", 3, 0, "--jobs", "2")
    assert ended(process)[0] == -signal.SIGKILL
    assert in_memory(process) and Path("out", f".pagedsim-{process.pid}.running").exists()
    status, _, err = ended(start(tmp_path / "s.toml", tmp_path / "out", "--jobs", "2", "--resume"))
    assert (status, err) == (0, "") and in_memory(process) == []
    assert not list(Path("out").glob(".pagedsim-*"))


@posix_memory
def test_memory_of_a_process_that_lives_is_left_alone():
    mine = MEMORY / f"sem.loky-{os.getpid()}-test"
    mine.touch()
    stopping.drop_memory_of(os.getpid())
    assert mine.exists()
    mine.unlink()


def _square_or_die(shared, number):
    if number == shared:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return number * number


def test_a_worker_process_that_dies_loses_its_point_only():
    told = []
    done = dict(run_local(_square_or_die, 7, list(range(12)), 2, told.append, lambda task, why: why))
    assert done == {**{n: n * n for n in range(12)}, 7: "its worker process died (killed, or out of memory)"}
    assert len(told) == 2 and "go on one at a time" in told[0]


# ---------------------------------------------------------------------- a full disk
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_full_disk_is_one_clear_line(jobs, tmp_path):
    """A limit on the size of files is a disk that is full, as far as the program can see."""
    trace = lengths(tmp_path, [(40, 30), (60, 20)])
    (tmp_path / "s.toml").write_text(f"trace = '{trace}'\npool = 50\n[sweep]\nrate = {{from = 1, to = 60, step = 1}}\n")
    shell = f"ulimit -f 60; exec \"$0\" -m experiments.cli sweep s.toml --out out --no-figures -q --jobs {jobs}"
    full = subprocess.run(["bash", "-c", shell, sys.executable], capture_output=True, text=True, cwd=tmp_path, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert full.returncode == 2 and full.stderr.count("\n") == 1, full.stderr
    assert "results.sqlite: cannot write: " in full.stderr and "--resume goes on" in full.stderr
    assert 0 < len(kept("out")) < 60
    status, _, err = ended(start(tmp_path / "s.toml", tmp_path / "out", "--resume", "--jobs", "1"))
    assert (status, err) == (0, "") and len(kept("out")) == 60


def test_a_full_shared_memory_is_one_clear_line(tmp_path):
    """Traces of more than a megabyte lie there."""
    trace = lengths(tmp_path, [(40, 30)] * 300_000)
    (tmp_path / "s.toml").write_text(f"trace = '{trace}'\npool = 50\nlimit = 20\n[sweep]\nrate = [1, 2, 3]\n")
    shell = "ulimit -f 1000; exec \"$0\" -m experiments.cli sweep s.toml --out out --no-figures -q --jobs "
    ends = [subprocess.run(["bash", "-c", shell + jobs, sys.executable], capture_output=True, text=True, cwd=tmp_path,
                           timeout=LIMIT_S, env={**os.environ, "PYTHONPATH": str(ROOT)}) for jobs in ("2", "1 --resume")]
    assert [end.returncode for end in ends] == [2, 0] and ends[1].stderr == ""
    assert ends[0].stderr.startswith("pagedsim sweep: error: cannot hand the traces to the workers: OSError: ")
    assert ends[0].stderr.count("\n") == 1 and "--resume --jobs 1" in ends[0].stderr


def test_a_signal_waits_until_processes_are_begun():
    # A thread that blocks nothing is told; the handler runs in the main thread all the same, in the middle of a beginning.
    go, reached = threading.Event(), []

    def told():
        go.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    other = threading.Thread(target=told)
    other.start()

    def begin():
        with stoppable():
            with born_deaf():
                go.set()
                other.join()
                reached.append("begun")
            reached.append("behind")
    with pytest.raises(Stopped) as stop:
        begin()
    assert reached == ["begun"] and stop.value.status == 143
