"""What `--out` may turn out to be, and what keeps a sweep from going on: said for what it is, and nothing is touched."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from cli_run import lengths, run
from sweep_run import ROOT, files, read_store

from experiments.version import VERSION

BASE = {"trace": "'t.csv'", "pool": 50, "rate": 2, "seeds": "[0, 1]", "sweep.block-size": "[8, 16]"}
AWAY = "; move it away, or --out DIR writes elsewhere\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lengths(tmp_path, [(40, 30), (60, 20)], "t.csv")


def write(**changes):
    """The scenario, with other values or without some; a double underscore stands for a table's dot, one for a dash."""
    said = {**BASE, **{key.replace("__", ".").replace("_", "-"): value for key, value in changes.items()}}
    top = [f"{key} = {value}" for key, value in said.items() if value is not None and "." not in key]
    tables = [f"{key} = {value}" for key, value in said.items() if value is not None and "." in key]
    Path("s.toml").write_text("\n".join([*top, *tables]) + "\n")


def sweep(capsys, *more):
    return run(capsys, "sweep", "s.toml", "--out", "out", "--no-figures", "--jobs", "1", "-q", *more)


def begun(capsys):
    """A sweep that has ended; what it left."""
    write()
    assert sweep(capsys).status == 0
    return files("out")


def refused(capsys, *more):
    """The line that refuses, without its beginning."""
    said = sweep(capsys, *more)
    assert said.status == 2 and said.out == "" and said.err.count("\n") == 1
    return said.err.removeprefix("pagedsim sweep: error: ")


# ---------------------------------------------------------------------- what it may be
def garbage(path):
    path.write_bytes(b"id,name\n1,somebody\n" * 100)


def short(path):
    path.write_bytes(path.read_bytes()[:50])


def truncated(path):
    path.write_bytes(path.read_bytes()[:8192])


def scribbled(path):
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


def made_of(*statements):
    def make(path):
        path.unlink()
        with sqlite3.connect(path) as db:
            for statement in statements:
                db.execute(statement)
        db.close()
    return make


FACTS = ("create table scenario (key text primary key, value text)", "insert into scenario values ('pagedsim', '9.9.9')")
NO_STORES = {
    "no database": (garbage, "is not a sweep's store: file is not a database" + AWAY),
    "its beginning": (short, "is damaged: database disk image is malformed" + AWAY),
    "truncated": (truncated, "is damaged: database disk image is malformed" + AWAY),
    "scribbled over": (scribbled, "is damaged: database disk image is malformed" + AWAY),
    "another database": (made_of("create table people (name)"), "is not a sweep's store: no such table: scenario" + AWAY),
    "another scenario": (made_of("create table scenario (name)"), "is not a sweep's store: no such column: key" + AWAY),
    "an empty one": (made_of(FACTS[0]), "is not a sweep's store: it does not say what made it" + AWAY),
    "without points": (made_of(FACTS[0], f"insert into scenario select 'warm-up', '20%' union select 'pagedsim', '{VERSION}'"),
                       "is not a sweep's store: it has no points" + AWAY),
    "a newer one": (made_of(*FACTS, "insert into scenario values ('warm-up', '20%')", "create table points2 (id)"),
                    f"holds results of another pagedsim: '9.9.9', not '{VERSION}'; --out DIR writes elsewhere\n"),
}


@pytest.mark.parametrize("kind", NO_STORES)
def test_what_is_no_store_is_said_and_left_alone(kind, capsys):
    begun(capsys)
    make, line = NO_STORES[kind]
    make(Path("out/results.sqlite"))
    before = files("out")
    assert refused(capsys, "--resume") == f"out/results.sqlite {line}"
    assert files("out") == before


def test_without_resume_too_what_is_no_store_is_not_called_results(capsys):
    begun(capsys)
    garbage(Path("out/results.sqlite"))
    assert refused(capsys) == f"out/results.sqlite is not a sweep's store: file is not a database{AWAY}"


def test_a_file_or_a_folder_in_its_place(capsys):
    write()
    Path("out").write_text("mine")
    assert refused(capsys) == "out is a file, and a folder is wanted for the results: --out DIR names one\n"
    assert Path("out").read_text() == "mine"
    assert refused(capsys, "--out", "out/more") == "out/more: cannot write in this folder: Not a directory\n"
    Path("there/results.sqlite").mkdir(parents=True)
    assert refused(capsys, "--out", "there") == "there/results.sqlite: cannot write: Is a directory\n"
    Path("locked/.lock").mkdir(parents=True)
    assert refused(capsys, "--out", "locked") == f"locked/.lock cannot be locked: unable to open database file{AWAY}"


def test_a_folder_where_nothing_can_be_written(tmp_path):
    """Root may write everywhere unless it gives that up."""
    (tmp_path / "out").mkdir(mode=0o555)
    write()
    command = [sys.executable, "-m", "experiments.cli", "sweep", "s.toml", "--out", "out"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root, and there is no setpriv")
        command = ["setpriv", "--inh-caps=-dac_override", "--bounding-set=-dac_override", *command]
    ended = subprocess.run(command, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (2, "pagedsim sweep: error: out: cannot write in this folder: Permission denied\n")


# ---------------------------------------------------------------------- what changed
CHANGES = {
    "a value": ({"rate": 3}, "rate = 2 -> 3"),
    "another name": ({"pool": None, "num_gpu_blocks_override": 51}, "num-gpu-blocks-override = 50 -> 51"),
    "a key more": ({"max_model_len": 100}, "max-model-len = not set -> 100"),
    "a key less": ({"rate": None}, "rate = 2 -> not set"),
    "a switch": ({"shuffle": "true", "rate": 2.5}, "rate = 2 -> 2.5, shuffle = not set -> true"),
    "a seed less": ({"seeds": "[0, 5]"}, "seeds without 1"),
    "values less": ({"sweep__block_size": "[32]"}, "sweep.block-size without 8 and 1 more"),
    "an allocator": ({"allocators": "['paged']"}, "allocators without 'paged-prefix'"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_refusal_names_what_changed(kind, capsys):
    before = begun(capsys)
    changes, line = CHANGES[kind]
    write(**changes)
    said = refused(capsys, "--resume")
    assert said.startswith("out/results.sqlite holds points that this scenario does not have, as allocator paged-prefix, seed ")
    assert said.endswith(f": {line}; --out DIR writes elsewhere\n") and files("out") == before


def test_other_knobs_are_named(capsys):
    before = begun(capsys)
    write(rate=None, sweep__rate="[1, 2]")
    assert refused(capsys, "--resume") == (
        "out/results.sqlite has other columns, since the knobs of [sweep] or [search] are others now: rate = 2 -> not set, "
        "sweep.rate = not set -> [1, 2]; --out DIR writes elsewhere\n")
    assert files("out") == before


def test_a_table_of_traffic_and_a_file_that_changed_are_named(tmp_path, capsys):
    begun(capsys)
    lengths(tmp_path, [(40, 30), (60, 21)], "t.csv")
    assert refused(capsys, "--resume").endswith(": what t.csv holds changed; --out DIR writes elsewhere\n")
    text = "pool = 50\n[traffic]\nrequests = 5\nprompt = 40\noutput = 9\nprefix = {kind = 'system', tokens = TOKENS}\n"
    for tokens, more in ((16, []), (32, ["--resume"])):
        Path("s.toml").write_text(text.replace("TOKENS", str(tokens)))
        said = sweep(capsys, "--out", "new", *more)
    assert said.status == 2 and ": traffic.prefix.tokens = 16 -> 32; " in said.err


def test_what_is_compared_with_is_the_scenario_that_was_last_gone_on_with(capsys):
    begun(capsys)
    write(seeds="[0, 1, 2]")
    assert sweep(capsys, "--resume").status == 0
    write(seeds="[0, 1]")
    assert "seeds without 2;" in refused(capsys, "--resume")


# ---------------------------------------------------------------------- --retry, folders
def test_retry_goes_on_by_itself(capsys):
    write(max_model_len=100, sweep__block_size=None, sweep__pool="[50, 3]", pool=None)
    assert sweep(capsys).status == 1
    with sqlite3.connect("out/results.sqlite") as db:
        db.execute("update points set error = 'old' where status = 'failed'")
    db.close()
    assert sweep(capsys, "--resume").status == 1 and [row["error"] for row in read_store("out")][2:] == ["old", "old"]
    assert sweep(capsys, "--retry").status == 1
    assert all("32 tokens" in row["error"] for row in read_store("out")[2:])
    assert "as --resume, and points that failed are run again" in run(capsys, "sweep", "--help").out


def test_any_file_of_a_warm_folder_counts(tmp_path, capsys):
    """A folder of sessions: what each holds is input."""
    from experiments.whatif.materials import gather
    from experiments.whatif.points import grid
    from experiments.whatif.scenario import read_scenario
    Path("warm").mkdir()
    Path("warm/config.json").write_text("{}")
    digests = []
    for text in ("one", "two"):
        Path("warm/other.json").write_text(text)
        write(warm_trace="'warm'")
        digests.append(gather(grid(read_scenario("s.toml"))).digests["warm"])
    assert digests[0] != digests[1]
