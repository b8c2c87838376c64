"""A real Dask cluster of separate processes: the same bytes as on one machine, also when a worker is killed on the way."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from cli_run import timed
from sweep_run import ROOT, files, finish, kept, start

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")


class RealCluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        self.file = folder / "scheduler.json"
        self.scheduler = self.launch("scheduler", "--port", "0")

    def launch(self, *words):
        command = [sys.executable, "-m", "dask", *words, "--scheduler-file", str(self.file), "--host", "127.0.0.1",
                   "--no-dashboard"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                   cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
        self.processes.append(process)
        return process

    def address(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                return json.loads(self.file.read_text())["address"]
            except (OSError, ValueError, KeyError):
                time.sleep(0.05)
        raise TimeoutError("no scheduler")

    def worker(self):
        self.address()
        return self.launch("worker", "--nthreads", "1", "--no-nanny")

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    made = RealCluster(tmp_path)
    yield made
    made.close()


def scenario(folder, limit=60):
    trace = timed(folder, [(i * 0.7, 100 + 37 * i % 900, 20 + 11 * i % 300) for i in range(200)])
    path = folder / "what-if.toml"
    path.write_text(f"""
trace = "{trace}"
model = "Llama-3.1-8B"
gpu = "L4"
max-model-len = 2048
limit = {limit}
seeds = 2
shuffle = true
[sweep]
rate = [1, 2, 4, 8, 16]
max-num-seqs = [2, 4, 8, 16]
""")
    return path


def assert_same(one, other):
    assert files(one) == files(other)


def test_two_workers_one_of_them_killed(tmp_path, cluster):
    path = scenario(tmp_path, 200)
    assert finish(start(path, tmp_path / "here", "--jobs", "2"))[0] == 0
    first, _ = cluster.worker(), cluster.worker()
    process = start(path, tmp_path / "there", "--dask", cluster.address())
    while len(kept(tmp_path / "there")) < 5 and process.poll() is None:
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    at_kill = len(kept(tmp_path / "there"))
    status, _, err = finish(process)
    assert status == 0, err
    assert 5 <= at_kill < 40, "it was killed in the middle"
    assert err.count("\n") == 1 and "vanished: its points go to the others (1 left)" in err
    assert_same(tmp_path / "here", tmp_path / "there")


def test_killed_and_resumed_on_a_cluster(tmp_path, cluster):
    path = scenario(tmp_path)
    assert finish(start(path, tmp_path / "here", "--jobs", "2"))[0] == 0
    cluster.worker(), cluster.worker()
    process = start(path, tmp_path / "there", "--dask", cluster.address())
    while len(kept(tmp_path / "there")) < 3 and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    before = kept(tmp_path / "there")
    assert 3 <= len(before) < 40
    status, _, err = finish(start(path, tmp_path / "there", "--resume", "--dask", cluster.address()))
    assert (status, err) == (0, "")
    assert_same(tmp_path / "here", tmp_path / "there")


def test_a_scheduler_that_vanishes_is_one_line_and_what_ended_is_kept(tmp_path, cluster):
    path = scenario(tmp_path, 200)
    cluster.worker()
    process = start(path, tmp_path / "there", "--dask", cluster.address())
    while len(kept(tmp_path / "there")) < 3 and process.poll() is None:
        time.sleep(0.01)
    os.killpg(cluster.scheduler.pid, signal.SIGKILL)
    status, _, err = finish(process)
    assert status == 2 and "the scheduler is gone" in err and "--resume goes on with it" in err and "Traceback" not in err
    assert len(kept(tmp_path / "there")) >= 3


def test_nobody_answers(tmp_path):
    status, _, err = finish(start(scenario(tmp_path), tmp_path / "out", "--dask", "tcp://127.0.0.1:1"))
    assert status == 2 and err.count("\n") == 1 and "--dask tcp://127.0.0.1:1: no scheduler answers there" in err
