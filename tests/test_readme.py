"""The README is true: its commands run, its Python runs, its two set-up lines are one line each."""

import re
import shlex
from pathlib import Path

import pytest

from experiments import animation
from experiments.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WEEK = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.3,396,109\n4.4,879,55\n"
POINTS = ("concurrency,prompt_tokens,output_tokens,ttft_ms,tpot_ms\n1,1024,128,49.2,11.3\n"
          "16,1024,128,383.0,15.0\n4,3000,200,327.0,13.1\n")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_first_two_blocks_are_the_two_commands():
    first, second = blocks("sh")[:2]
    for block in (first, second):
        assert block.count("\n") == 1 and block.startswith("python3 -m venv .venv && .venv/bin/pip install ")
    assert first.endswith(".venv/bin/pagedsim compare\n")
    assert second.endswith("python -m pytest -n 2\n") and ".[test]" in second


def commands():
    return [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ pagedsim")]


def test_conform_says_what_is_printed_here(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    shown = next(block for block in blocks("console") if block.startswith("$ pagedsim conform"))
    command, said = shown.split("\n", 1)
    files = [str(path) for path in sorted(Path("tests/data/golden").glob("*.json"))]
    assert command == "$ pagedsim conform tests/data/golden/*.json"
    assert main(["conform", *files]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("command", [command for command in commands() if not command.startswith("pagedsim conform")])
def test_commands_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(animation, "FRAMES", 2)        # the others would only take time
    Path("docs").mkdir()
    assert WEEK.replace("\n", "\\n") in README
    Path("week.csv").write_text(WEEK)
    assert POINTS.replace("\n", "\\n") in README
    Path("points.csv").write_text(POINTS)
    Path("efficiencies.toml").write_text("kind = 'constant'\nus = 20000\n")
    Path("sharegpt_lengths.csv.gz").write_text("prompt_tokens,output_tokens\n" + "200,300\n" * 60)
    row = '{{"timestamp": {0}, "input_length": 1000, "output_length": 9, "hash_ids": [1, {0}]}}\n'
    Path("last_week.csv").write_text("ts,tokens_in,tokens_out,user\n1000,374,44,ann\n5300,396,109,bob\n5400,879,55,ann\n")
    scenario, recipe = blocks("toml")
    Path("what-if.toml").write_text(scenario.replace("seeds = 3", "seeds = 2\nlimit = 40"))
    Path("chat.toml").write_text(recipe)
    assert main(["trace", "synth", "chat.toml", "chat.csv.gz", "-q"]) == 0
    Path("conversation_trace.jsonl").write_text("".join(row.format(i) for i in range(2, 22)))
    assert main(shlex.split(command, comments=True)[1:]) == 0
    out = capsys.readouterr().out
    said = {"compare": "cross-checks ok", "plan": "GPU KV cache size", "reproduce": "published", "trace": "",
            "prefix": "Which number is which", "sweep": "largest rate that keeps ttft p99 <= 2 s",
            "calibrate": "share of the bandwidth", "quiz": "xercise", "view": "opens in any browser"}
    assert said[command.split()[1]] in out
    for name in re.findall(r"(?:--plot|--requests|--json|--out|--html) (\S+)", command):
        assert Path(name).stat().st_size > 0


def test_python_example_runs(capsys):
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert int(capsys.readouterr().out) > 10
