"""Law 3 from outside: the same command gives the same bytes in any process, environment and folder, installed or not.

Each command runs as a process of its own in an empty folder, first plainly from the source tree. What it prints and every file it
leaves must come again from an installed wheel, with other seeds of Python's hashes, threads, locales and time zones.
"""

from __future__ import annotations

import json
import locale
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_run import mooncake, timed
from installed import ROOT, installed_wheel

POOL = "--num-gpu-blocks-override 200 --max-model-len 2048"
SYNTH = """requests = 60
arrivals = {kind = "gamma", rate = 0.5, burstiness = 0.5}
prompt = {kind = "profile", name = "sharegpt"}
output = {kind = "profile", name = "sharegpt"}
[prefix]
kind = "chat"
system_tokens = 512
turns = {kind = "geometric", mean = 4, most = 20}
think_s = {kind = "lognormal", mean = 30, sigma = 1}
"""
SWEEP = """trace = "shared.jsonl"
num-gpu-blocks-override = 400
max-model-len = 2048
seeds = 2
[sweep]
rate = [2, 8]
block-size = [8, 16]
"""
POINTS = ("concurrency,prompt_tokens,output_tokens,ttft_ms,tpot_ms\n1,1024,128,49.2,11.3\n"
          "16,1024,128,383.0,15.0\n4,3000,200,327.0,13.1\n")
COMMANDS = {
    "compare": f"compare shared.jsonl {POOL} --json a.json --html a.html --plot a.png --requests a.csv --chrome-trace t.json",
    "moving": f"compare plain.csv {POOL} --allocator paged --plot a.gif",
    "prefix": f"prefix shared.jsonl {POOL} --json a.json --html a.html --plot a.png",
    "sweep": "sweep what-if.toml --out sweep --jobs 2",
    "synth": "trace synth chat.toml chat.csv.gz",
    "info": "trace info shared.jsonl --plot a.pdf --json a.json",
    "view": "view --html map.html",
    "plan": "plan --model Llama-3.1-8B --gpu L4 --max-model-len 8192 --json a.json --html a.html --plot a.svg",
    "reproduce": "reproduce seeds --out reproduction",
    "quiz": "quiz --seed 7 --answers --html a.html --json a.json",
    "calibrate": "calibrate points.csv --model Llama-3.1-8B --gpu H100-80GB --out a.toml --plot a.png",
}
FAST = {"compare": f"compare shared.jsonl {POOL}", "info": "trace info shared.jsonl", "quiz": COMMANDS["quiz"]}
PLAIN = {"PYTHONHASHSEED": "0", "THREADS": "1", "LC_ALL": "C", "TZ": "UTC"}
OTHER = {"PYTHONHASHSEED": "1", "THREADS": "4", "LC_ALL": "C.UTF-8", "TZ": "Asia/Kolkata"}
CHANCE = {"PYTHONHASHSEED": "random", "THREADS": "3", "LC_ALL": "POSIX", "TZ": "America/St_Johns"}
GERMAN = {"PYTHONHASHSEED": "random", "THREADS": "2", "LC_ALL": "de_DE.UTF-8", "TZ": "Europe/Berlin"}
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS")


def left_by(folder: Path, command: str, settings: dict[str, str], site: Path | None = None) -> dict[str, bytes]:
    """Standard output and every file that a command leaves in a new folder of inputs; from the tree, or what is in ``site``."""
    folder.mkdir(parents=True)
    mooncake(folder, [(250 * i, prompt := 700 + 37 * i % 400, 20 + 11 * i % 90, [1, 10 + i % 3, 99 + i][:-(-prompt // 512)])
                      for i in range(40)], "shared.jsonl")
    timed(folder, [(0.0, 374, 44), (4.3, 396, 109), (4.4, 879, 55), (4.4, 87, 155)], "plain.csv")
    for name, text in (("chat.toml", SYNTH), ("what-if.toml", SWEEP), ("points.csv", POINTS)):
        (folder / name).write_text(text)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    threads = dict.fromkeys(THREADS, settings["THREADS"])
    done = subprocess.run(
        [sys.executable, *(["-m", "experiments.cli"] if site is None else [str(site / "bin" / "pagedsim")]), *command.split()],
        cwd=folder, env={**inherited, **settings, **threads, "PYTHONPATH": str(site or ROOT), "COLUMNS": "100"},
        stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return {"standard output": done.stdout, **{str(path.relative_to(folder)): path.read_bytes()
                                               for path in sorted(folder.rglob("*")) if path.is_file()}}


def assert_same(found: dict[str, bytes], plain: dict[str, bytes]) -> None:
    """No assertion on the bytes themselves: a difference of two pictures is nothing to print."""
    assert list(found) == list(plain)
    assert [name for name in plain if found[name] != plain[name]] == []


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    return installed_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def plainly(tmp_path_factory):
    """Command -> what it leaves when it is run plainly, once."""
    known: dict[str, dict[str, bytes]] = {}

    def run(command):
        if command not in known:
            known[command] = left_by(tmp_path_factory.mktemp("plain") / "here", command, PLAIN)
        return known[command]
    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_an_installed_wheel_in_another_environment(tmp_path, plainly, site, name):
    assert_same(left_by(tmp_path / "elsewhere" / "deeper", COMMANDS[name], OTHER, site), plainly(COMMANDS[name]))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "moving"])       # which takes ten seconds
def test_the_source_tree_in_another_environment(tmp_path, plainly, name):
    assert_same(left_by(tmp_path / "elsewhere", COMMANDS[name], CHANCE), plainly(COMMANDS[name]))


@pytest.mark.parametrize("name", FAST)
def test_where_a_comma_is_the_decimal_point(tmp_path, plainly, name):
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, GERMAN["LC_ALL"])
    except locale.Error:
        pytest.skip(f"the locale {GERMAN['LC_ALL']} is not installed")
    finally:
        locale.setlocale(locale.LC_ALL, before)
    assert_same(left_by(tmp_path / "da", FAST[name], GERMAN), plainly(FAST[name]))


def test_it_is_the_wheel_that_runs(site):
    where = "import json, sim, workloads, experiments as e; print(json.dumps([p.__file__ for p in (sim, workloads, e)]))"
    said = subprocess.run([sys.executable, "-c", where], env={**os.environ, "PYTHONPATH": str(site)}, cwd=site,
                          capture_output=True, text=True, check=True).stdout
    assert [Path(path).parents[1] for path in json.loads(said)] == [site] * 3


def test_the_wheel_holds_the_packages_and_their_data(site):
    """Every module and data file of the tree is in it, and nothing else."""
    def files(root):
        return {str(path.relative_to(root)) for top in ("sim", "workloads", "experiments") for path in (root / top).rglob("*")
                if path.is_file() and "__pycache__" not in path.parts}
    assert files(site) == files(ROOT)
