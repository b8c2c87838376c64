"""docs/sweep.md and docs/measuring.md are true: their scenarios run, their tables name what there is, their commands work."""

import re
import shlex
from pathlib import Path

import pytest
from cli_run import mooncake, run
from small import LONG
from sweep_run import read_store

from experiments.whatif.options import SHORT, option_name
from experiments.whatif.search_spec import GOALS

ROOT = Path(__file__).resolve().parents[1]
SWEEP = (ROOT / "docs" / "sweep.md").read_text(encoding="utf-8")
MEASURING = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
TABLES = re.findall(r"^```toml\n(.*?)^```", SWEEP, re.MULTILINE | re.DOTALL)
FILES = {re.match(r"# (\S+\.toml)", text)[1]: text for text in TABLES}
SCENARIOS = {name: text for name, text in FILES.items() if f"$ pagedsim sweep {name}" in SWEEP}
SYNTH, = re.findall(r"^\$ (pagedsim trace synth .*)$", SWEEP, re.MULTILINE)
PYTHON, = re.findall(r"^```python\n(.*?)^```", SWEEP, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for file, text in FILES.items():
        Path(file).write_text(re.sub(r"seeds = 5", "seeds = 2\nlimit = 40", text))
    assert run(capsys, *shlex.split(SYNTH)[1:]).status == 0
    said = run(capsys, "sweep", name, "--jobs", "1")
    assert said.status == 0 and said.out.startswith("baseline: ")
    rows = read_store(f"{name.removesuffix('.toml')}.results")
    assert rows and all(row["status"] == "done" for row in rows[:4])
    if name == "what-if.toml":
        assert {path.name for path in Path("what-if.results").iterdir()} >= {
            "results.sqlite", "results.csv", "results.json", "answers.txt", "heat.png", "lines-ttft.png"}
    if name == "ranges.toml":
        assert {row["speed"] for row in rows} == {0.5, 1.0, 1.5, 2.0} and {row["max-num-seqs"] for row in rows} == {16, 64, 256}


def test_every_file_of_the_page_is_used():
    assert set(FILES) - set(SCENARIOS) == {"traffic.toml"} == {word for word in shlex.split(SYNTH) if word.endswith(".toml")}


def test_the_example_in_python_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.chdir(tmp_path)
    Path("what-if.toml").write_text(re.sub(r"seeds = 5", "seeds = 2\nlimit = 40", SCENARIOS["what-if.toml"]))
    assert run(capsys, "sweep", "what-if.toml", "--jobs", "1", "--no-figures").status == 0
    exec(PYTHON, {})
    printed = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()[1:-1]]
    rows = read_store("what-if.results")
    each = [[row["ttft_p99_s"] for row in rows if (row["rate"], row["kv-cache-dtype"]) == setting]
            for setting in ((1, "auto"), (1, "fp8"), (2, "auto"), (2, "fp8"))]
    assert printed == pytest.approx([sum(seeds) / 2 for seeds in each], abs=1e-6)


@pytest.mark.parametrize("name", ["what-if.toml", pytest.param("capacity.toml", marks=pytest.mark.skipif(
    LONG == 1, reason="95 points: set PAGEDSIM_LONG"))])
def test_what_is_printed_there_comes_out(name, tmp_path, monkeypatch, capsys):
    """Line by line; an ellipsis leaves out the rest of a line."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(SCENARIOS[name])
    shown = re.search(rf"\$ pagedsim sweep {name}\n```\n\n((?:    .*\n)+)", SWEEP)[1].splitlines()
    said = run(capsys, "sweep", name, "--no-figures").out.splitlines()
    assert len(shown) >= 4
    for line in shown:
        pieces = line[4:].removesuffix(", ...").split(", ") if line.endswith(", ...") else [line[4:]]
        assert any(all(piece.split(" (")[0] in one for piece in pieces) for one in said), line


def test_the_page_names_what_there_is():
    for short, option in SHORT.items():
        assert f"`{short}`" in SWEEP or short == "n"
        assert option_name(short) == option
    for goal, values in GOALS.items():
        assert goal in SWEEP and all(f'"{value}"' in SWEEP for value in values)


@pytest.mark.parametrize("command", re.findall(r"^\$ (pagedsim .*)$", MEASURING, re.MULTILINE))
def test_commands_of_the_page_on_measuring_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mooncake(tmp_path, [(9500 * i, 700, 44, [1, i + 2]) for i in range(80)], "conversation_trace.jsonl")
    assert run(capsys, *shlex.split(command, comments=True)[1:]).status == 0
