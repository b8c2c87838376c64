"""A real Dask cluster of separate processes: the same bytes as on one machine, also when a worker is killed on the way."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from cli_run import run, timed
from sweep_run import ROOT, files, finish, kept, start, start_killing

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

    def wait_for_workers(self, count):
        from distributed import Client
        with Client(self.address(), set_as_default=False) as client:
            client.wait_for_workers(count, timeout=60)
        return self.address()

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


def test_two_workers_one_of_them_killed(tmp_path, cluster):
    path = scenario(tmp_path, 200)
    assert finish(start(path, tmp_path / "here", "--jobs", "2"))[0] == 0
    first, _ = cluster.worker(), cluster.worker()
    address = cluster.wait_for_workers(2)
    status, _, err = finish(start_killing(path, tmp_path / "there", 5, 0.01, "--dask", address, group=first.pid))
    assert status == 0, err
    assert err.count("\n") == 1 and "vanished: its points go to the others (1 left)" in err
    assert files(tmp_path / "here") == files(tmp_path / "there")


def test_killed_and_resumed_on_a_cluster(tmp_path, cluster):
    path = scenario(tmp_path)
    assert finish(start(path, tmp_path / "here", "--jobs", "2"))[0] == 0
    cluster.worker(), cluster.worker()
    address = cluster.wait_for_workers(2)
    assert finish(start_killing(path, tmp_path / "there", 3, 0, "--dask", address))[0] == -signal.SIGKILL
    before = kept(tmp_path / "there")
    assert 3 <= len(before) < 40
    status, _, err = finish(start(path, tmp_path / "there", "--resume", "--dask", address))
    assert (status, err) == (0, "")
    assert files(tmp_path / "here") == files(tmp_path / "there")


def test_a_scheduler_that_vanishes_is_one_line_and_what_ended_is_kept(tmp_path, cluster):
    path = scenario(tmp_path, 200)
    cluster.worker()
    address = cluster.wait_for_workers(1)
    process = start_killing(path, tmp_path / "there", 3, 0, "--dask", address, group=cluster.scheduler.pid)
    status, _, err = finish(process)
    assert status == 2 and "the scheduler is gone" in err and "--resume goes on with it" in err and "Traceback" not in err
    assert 3 <= len(kept(tmp_path / "there")) < 40


def test_nobody_answers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("experiments.whatif.cluster.ANSWER_S", 0.5)
    said = run(capsys, "sweep", scenario(tmp_path), "--out", tmp_path / "out", "--dask", "tcp://127.0.0.1:1")
    assert said.status == 2 and said.err.count("\n") == 1
    assert "--dask tcp://127.0.0.1:1: no scheduler answers there" in said.err
