"""The command itself: help, version, exit statuses, quiet, and a start that loads only what it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from cli_run import lengths, run, timed

import experiments.compare
from experiments.cli import COMMANDS
from experiments.trace import SUBCOMMANDS
from experiments.version import VERSION

SHORT = ("compare", "--limit", "3", "-q")
POOL = ("--num-gpu-blocks-override", "40")


def python(code, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_help_names_every_command(capsys, flag):
    said = run(capsys, flag)
    assert (said.status, said.err) == (0, "")
    assert "pagedsim compare" in said.out
    assert "example" in said.out


def test_help_of_compare_has_an_example_and_the_contracts_options(capsys):
    said = run(capsys, "compare", "--help")
    assert (said.status, said.err) == (0, "")
    for word in ("examples:", "--format", "--allocator", "--saturate", "--plot", "--requests", "--json", "--limit", "--shuffle",
                 "--max-total-tokens", "--rate", "--seed", "--model", "--gpu", "--placement", "--step-time", "--watermark"):
        assert word in said.out, word
    assert max(map(len, said.out.splitlines())) <= 120


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"pagedsim {VERSION}\n", "")


@pytest.mark.parametrize(("arguments", "named"), [
    (["compere"], "unknown command 'compere': one of compare"),
    (["--plot"], "unknown command '--plot'"),
    (["two\nlines"], r"unknown command 'two\nlines'"),
    ([], "no command: one of compare"),
])
def test_an_unknown_command_is_one_line(capsys, arguments, named):
    said = run(capsys, *arguments)
    assert (said.status, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert named in said.err


def test_options_are_not_abbreviated(capsys):
    said = run(capsys, "compare", "--lim", "3")
    assert (said.status, said.out) == (2, "")
    assert "--lim" in said.err


def test_quiet_says_nothing_on_stderr(capsys, tmp_path):
    trace = lengths(tmp_path, [(20, 5), (30, 6)])
    said = run(capsys, "compare", trace, *POOL)
    assert said.status == 0
    assert said.err.endswith(" s of work\n")
    quiet = run(capsys, "compare", trace, *POOL, "-q")
    assert quiet == (0, said.out, "")
    loud_json = run(capsys, "compare", trace, *POOL, "--json", "-")
    assert "note: " in loud_json.err
    assert run(capsys, "compare", trace, *POOL, "--json", "-", "-q").err == ""


@pytest.mark.parametrize("words", [("plan", "--model", "Llama-3.1-8B", "--gpu", "L4"), ("trace", "info", "TRACE"),
                                   ("compare", "TRACE", *POOL)])
def test_quiet_leaves_the_report_as_it_is(capsys, tmp_path, words):
    trace = lengths(tmp_path, [(20, 5), (30, 6)])
    words = [trace if word == "TRACE" else word for word in words]
    said = run(capsys, *words)
    assert "note " in said.out
    assert run(capsys, *words, "-q") == (0, said.out, "")


def test_quiet_means_the_same_everywhere(capsys):
    for name in [*COMMANDS, *(f"trace {name}" for name in SUBCOMMANDS)]:
        said = " ".join(run(capsys, *name.split(), "--help").out.split())
        assert name == "trace" or "-q, --quiet no progress and no notes on stderr, no word of what was written;" in said, name


def test_one_is_no_plural(capsys, tmp_path):
    trace = timed(tmp_path, [(0, 20, 5), (1, 7, 0)])
    out = [tmp_path / f"{name}.csv" for name in "abc"]
    words = [run(capsys, *command).out for command in (
        ("compare", trace, *POOL), ("trace", "info", trace), ("trace", "convert", trace, out[0]),
        ("trace", "scale", out[0], out[1], "--speed", 2), ("trace", "sample", trace, out[2], "--requests", 1))]
    for said in words:
        assert re.search(r"\b1 requests?\b", said)
        assert not re.search(r"(?<![\d,.])1 (more )?(request|row|line|setting|point|token)s\b", said), said


@pytest.mark.parametrize("name", [*COMMANDS, *(f"trace {name}" for name in SUBCOMMANDS)])
def test_complaints_name_the_command_that_was_typed(capsys, name):
    words = {"plan": ["--model", "no.json"], "quiz": ["--html", "no/such/page.html"], "view": ["no.csv"], "trace": [],
             "reproduce": ["fig2", "--trace", "no.csv", "--json", "no/such/file.json"]}.get(name, ["no.file"])
    words += ["out.csv"] * (name in ("trace convert", "trace cut", "trace scale", "trace sample", "trace merge"))
    said = run(capsys, *name.split(), *words)
    assert said.status == 2 and said.err.startswith(f"pagedsim {name}: error: "), said.err


def test_interrupted(capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiments.compare, "prepare", interrupt)
    assert run(capsys, "compare") == (130, "", "pagedsim: interrupted\n")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["trace", "--help"], ["compare", "--help"]])
def test_a_start_loads_only_what_it_needs(arguments):
    heavy = ["matplotlib"] if arguments[0] == "compare" else ["matplotlib", "simpy", "rich"]
    code = f"""
import sys
from experiments.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
print("loaded:", [name for name in {heavy} if name in sys.modules])
"""
    assert python(code).stdout.endswith("loaded: []\n")


def test_compare_without_a_picture_loads_no_matplotlib(tmp_path):
    trace = lengths(tmp_path, [(20, 5)])
    code = f"""
import sys
from experiments.cli import main
main(["compare", {str(trace)!r}, "-q", "--num-gpu-blocks-override", "40"])
print("loaded:", "matplotlib" in sys.modules)
"""
    assert python(code).stdout.endswith("loaded: False\n")


def test_the_module_runs_and_hands_on_its_status():
    command = [sys.executable, "-m", "experiments.cli"]
    done = subprocess.run([*command, "nothing"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], [*SHORT], [*SHORT, "--json", "-"]])
def test_a_full_disk_under_stdout_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "experiments.cli", *arguments], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (2, "pagedsim: error: cannot write to standard output: No space left on device\n")


def test_a_reader_that_goes_away_is_no_traceback():
    command = [sys.executable, "-m", "experiments.cli", *SHORT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_name_the_terminal_cannot_show_is_escaped(tmp_path):
    trace = lengths(tmp_path, [(20, 5)], "é.csv")
    done = subprocess.run([sys.executable, "-m", "experiments.cli", "compare", str(trace), "-q", *POOL], capture_output=True,
                          timeout=60, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\xe9.csv" in done.stdout
