"""Nothing is lost: sweeps killed at any moment and resumed leave the bytes of an undisturbed one, and repeat no point."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from itertools import pairwise

import pytest
from cli_run import SHARED, lengths, run, timed
from sweep_run import ROOT, files, finish, kept, start, start_killing

KILLS = 10
MADE_UP = [(i * 0.7, 100 + 37 * i % 900, 20 + 11 * i % 300) for i in range(60)]
"""Where the real trace is not at hand."""


def scenario(folder, trace, name="what-if.toml"):
    path = folder / name
    path.write_text(f"""
trace = "{trace}"
num-gpu-blocks-override = 900
max-model-len = 12000
limit = 40
seeds = [0, 1]
allocators = ["paged", "contiguous-oracle"]
shuffle = true
max-total-tokens = 11000
[sweep]
rate = {{from = 0.5, to = 5, step = 0.5}}
max-num-seqs = [2, 4, 8, 16, 32]
""")
    return path


def disturbed(path, folder, seed, *more):
    """Killed ten times, each time with at least one point more; then resumed to the end. Keys that were kept after each kill."""
    draw = random.Random(seed)
    seen = []
    for kill in range(KILLS):
        before = len(kept(folder))
        status, _, err = finish(start_killing(path, folder, draw.randint(1, 12), draw.uniform(0, 0.03), "--resume", *more))
        assert (status, err) == (-signal.SIGKILL, ""), f"kill {kill}"
        seen.append(kept(folder))
        assert len(seen[-1]) > before
    status, _, err = finish(start(path, folder, "--resume", *more))
    assert (status, err) == (0, "")
    return seen


def assert_same(one, other):
    assert list(files(one)) == list(files(other))
    for name, data in files(one).items():
        assert data == files(other)[name], name


def check_two_hundred(tmp_path, trace):
    path = scenario(tmp_path, trace)
    status, out, err = finish(start(path, tmp_path / "whole", "--jobs", "2"))
    assert (status, err) == (0, "") and "baseline: rate 0.5, max-num-seqs 2, paged" in out
    assert len(kept(tmp_path / "whole")) == 200
    seen = disturbed(path, tmp_path / "killed", 3, "--jobs", "2")
    for earlier, later in pairwise(seen):
        assert earlier.items() <= later.items()        # no finished point was written again
    assert_same(tmp_path / "whole", tmp_path / "killed")
    status, _, _ = finish(start(path, tmp_path / "one", "--jobs", "1"))
    assert status == 0
    assert_same(tmp_path / "whole", tmp_path / "one")  # on any number of workers


def test_two_hundred_points_of_a_real_trace_killed_ten_times(tmp_path):
    real = SHARED / "traces" / "azure-2023" / "AzureLLMInferenceTrace_conv.csv"
    check_two_hundred(tmp_path, real if real.exists() else timed(tmp_path, MADE_UP))


DYING = """
import os, signal, sys
from experiments.cli import main
replace, left = os.replace, int(sys.argv[1])
def dying(*paths):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*paths)
os.replace = dying
sys.exit(main(sys.argv[2:]))
"""


def test_killed_whenever_a_file_is_about_to_take_its_place(tmp_path):
    """The store when it begins and when it is put in order, then each file of results: as many moments as there are files."""
    (tmp_path / "s.toml").write_text("num-gpu-blocks-override = 400\nmax-model-len = 2048\nlimit = 20\n[sweep]\nrate = [1, 2]\n")
    (tmp_path / "dying.py").write_text(DYING)
    command = ["sweep", "s.toml", "--no-figures", "-q", "--jobs", "1", "--out"]
    statuses = []
    for moment in range(1, 9):
        ended = subprocess.run([sys.executable, "dying.py", str(moment), *command, f"out{moment}"], cwd=tmp_path,
                               env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60)
        statuses.append(ended.returncode)
        if ended.returncode:
            assert finish(start(tmp_path / "s.toml", tmp_path / f"out{moment}", "--resume", "--jobs", "1"))[0] == 0
    assert statuses == [-signal.SIGKILL] * 6 + [0] * 2
    for moment in range(1, 8):
        assert_same(tmp_path / "out8", tmp_path / f"out{moment}")


def test_resume_of_a_finished_sweep_runs_nothing(tmp_path, monkeypatch, capsys):
    trace = lengths(tmp_path, [(40, 30), (60, 20)])
    (tmp_path / "s.toml").write_text(f"trace = '{trace}'\npool = 50\nrate = 1\n[sweep]\nblock-size = [8, 16]\n")
    monkeypatch.chdir(tmp_path)
    arguments = ("sweep", "s.toml", "--out", "out", "--no-figures", "--jobs", "1")
    assert run(capsys, *arguments).status == 0
    first = files("out")
    again = run(capsys, *arguments)
    assert again.status == 2 and "holds results already: --resume" in again.err and files("out") == first
    resumed = run(capsys, *arguments, "--resume")
    assert resumed.status == 0 and "0 run now, 2 kept from before" in resumed.out and files("out") == first


def test_a_grid_may_grow_and_may_not_shrink(tmp_path, monkeypatch, capsys):
    trace = lengths(tmp_path, [(40, 30), (60, 20)])
    monkeypatch.chdir(tmp_path)
    text = f"trace = '{trace}'\nnum-gpu-blocks-override = 50\nrate = 1\nseeds = SEEDS\n[sweep]\nblock-size = [8, 16]\n"
    (tmp_path / "s.toml").write_text(text.replace("SEEDS", "2"))
    arguments = ("sweep", "s.toml", "--out", "out", "--no-figures", "--jobs", "1", "--resume")
    assert run(capsys, *arguments).status == 0
    (tmp_path / "s.toml").write_text(text.replace("SEEDS", "3"))
    assert "2 run now, 4 kept from before" in run(capsys, *arguments).out
    grown = files("out")
    run(capsys, "sweep", "s.toml", "--out", "new", "--no-figures", "--jobs", "1")
    assert files("new") == grown
    (tmp_path / "s.toml").write_text(text.replace("SEEDS", "2"))
    refused = run(capsys, *arguments)
    assert refused.status == 2 and "holds points that this scenario does not have" in refused.err
    assert files("out") == grown


@pytest.mark.parametrize("change", ["trace", "option"])
def test_another_input_is_never_taken_for_the_same(change, tmp_path, monkeypatch, capsys):
    trace = lengths(tmp_path, [(40, 30), (60, 20)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(f"trace = '{trace}'\nnum-gpu-blocks-override = 50\nrate = 1\n")
    arguments = ("sweep", "s.toml", "--out", "out", "--no-figures", "--jobs", "1", "--resume")
    assert run(capsys, *arguments).status == 0
    if change == "trace":
        lengths(tmp_path, [(40, 30), (60, 21)])
    else:
        (tmp_path / "s.toml").write_text(f"trace = '{trace}'\nnum-gpu-blocks-override = 51\nrate = 1\n")
    said = run(capsys, *arguments)
    assert said.status == 2 and "does not have" in said.err


def test_a_second_sweep_is_kept_out(tmp_path, monkeypatch, capsys):
    trace = lengths(tmp_path, [(40, 30), (60, 20)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(f"trace = '{trace}'\nnum-gpu-blocks-override = 50\nrate = 1\n")
    (tmp_path / "out").mkdir()
    other = sqlite3.connect(tmp_path / "out" / ".lock")
    other.execute("begin exclusive")
    said = run(capsys, "sweep", "s.toml", "--out", "out", "--no-figures", "--jobs", "1")
    assert (said.status, said.err) == (2, "pagedsim sweep: error: out: another sweep writes there\n")
    other.close()
    assert run(capsys, "sweep", "s.toml", "--out", "out", "--no-figures", "--jobs", "1").status == 0


def test_a_failed_point_is_recorded_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    trace = lengths(tmp_path, [(40, 30), (60, 20)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(f"trace = '{trace}'\nmax-model-len = 100\nrate = 1\n[sweep]\npool = [50, 3, 60]\n")
    said = run(capsys, "sweep", "s.toml", "--out", "out", "--no-figures", "--jobs", "1")
    assert said.status == 1
    with sqlite3.connect("out/results.sqlite") as db:
        rows = db.execute("select number, status, error, completed from points order by number").fetchall()
    assert [(row[0], row[1], row[3]) for row in rows] == [(0, "done", 2), (1, "failed", None), (2, "done", 2)]
    assert "holds 32 tokens, fewer than one request of max_model_len 100" in rows[1][2]
    assert "32 tokens" in said.out and "1 of the grid without a result" in said.out
    again = run(capsys, "sweep", "s.toml", "--out", "out", "--no-figures", "--jobs", "1", "--resume")
    assert again.status == 1 and "0 run now, 3 kept" in again.out
    again = run(capsys, "sweep", "s.toml", "--out", "out", "--no-figures", "--jobs", "1", "--resume", "--retry")
    assert again.status == 1 and "1 run now, 2 kept" in again.out


def test_with_a_search_too_a_changed_input_is_refused_and_what_was_tried_serves_another_promise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = "pool = POOL\nmax-model-len = 2048\nlimit = 40\n[search]\nlargest = 'rate'\nkeep = 'ttft p99 <= LIMIT s'\nfrom = 1\n"
    (tmp_path / "s.toml").write_text(text.replace("POOL", "400").replace("LIMIT", "2"))
    arguments = ("sweep", "s.toml", "--out", "out", "--no-figures", "--jobs", "1", "--resume")
    assert run(capsys, *arguments).status == 0
    before = files("out")
    (tmp_path / "s.toml").write_text(text.replace("POOL", "401").replace("LIMIT", "2"))
    said = run(capsys, *arguments)
    assert said.status == 2 and "does not have" in said.err and files("out") == before
    (tmp_path / "s.toml").write_text(text.replace("POOL", "400").replace("LIMIT", "3"))
    said = run(capsys, *arguments)
    assert said.status == 0 and " 0 kept from before" not in said.out
    assert run(capsys, *(word if word != "out" else "new" for word in arguments)).status == 0
    assert files("new") == files("out")
