"""What a newcomer found: outputs that would destroy inputs, closed streams, values nobody looked at, empty windows."""

import csv
import json
import subprocess
import sys

import pytest

from experiments.cli import main
from sim.memory.allocator import PARTS

POOL = ["--num-gpu-blocks-override", "10", "--block-size", "4"]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("prompt_tokens,output_tokens\n5,3\n6,1\n4,4\n")
    return path


def refused(capsys, *words):
    """Exit status 2, nothing on stdout, one line on stderr: that line."""
    assert main(["compare", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("option", ["--json", "--requests"])
def test_no_output_replaces_the_trace(trace, option, capsys):
    before = trace.read_bytes()
    assert "would overwrite what is read" in refused(capsys, trace, *POOL, option, trace)
    assert trace.read_bytes() == before


def test_no_output_replaces_another(trace, tmp_path, capsys):
    same = tmp_path / "a.out"
    assert "would overwrite the output of --requests" in refused(capsys, trace, *POOL, "--requests", same, "--json", same)
    assert not same.exists()


def test_only_json_goes_to_standard_output(trace, capsys):
    assert "--requests -: only --json" in refused(capsys, trace, *POOL, "--requests", "-")


@pytest.mark.parametrize("words", [("--dtype", "float64"), ("--kv-cache-dtype", "foo")])
def test_values_are_checked_without_a_model_too(trace, words, capsys):
    assert words[1] in refused(capsys, trace, *POOL, *words)


def test_a_rate_has_no_meaning_under_saturation(trace, capsys):
    assert "--rate has no meaning with --saturate" in refused(capsys, trace, *POOL, "--saturate", "--rate", "5")


def test_a_closed_standard_output_is_one_line(trace):
    command = [sys.executable, "-m", "experiments.cli", "compare", str(trace), *POOL, "-q", "--json", "-"]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "standard output" in done.stderr


def test_rejected_and_truncated_requests_keep_the_length_that_was_asked_for(trace, tmp_path):
    rows = tmp_path / "rows.csv"
    trace.write_text("prompt_tokens,output_tokens\n30,4\n10,50\n")
    words = ["--max-model-len", "20", "--allocator", "paged", "--requests", str(rows), "-q"]
    assert main(["compare", str(trace), *POOL, *words]) == 0
    first, second = csv.DictReader(rows.open())
    assert (first["status"], first["output_tokens"], first["generated_tokens"]) == ("prompt_not_below_max_model_len", "4", "0")
    assert (second["status"], second["output_tokens"], second["generated_tokens"]) == ("completed", "50", "10")


def test_where_nobody_is_served_the_pool_lies_idle(trace, capsys):
    trace.write_text("prompt_tokens,output_tokens\n9,9\n")
    words = ["--num-gpu-blocks-override", "6", "--block-size", "4", "--allocator", "contiguous-max", "--json", "-", "-q"]
    assert main(["compare", str(trace), *words]) == 0         # 20 slots, one reservation of 20 needs a buddy block of 32
    memory = json.loads(capsys.readouterr().out)["scenarios"][0]["memory"]
    assert memory["idle"] == 1.0
    assert sum(memory[part] for part in PARTS) == 1.0


def test_the_seed_and_the_cuts_are_in_the_result(trace, capsys):
    assert main(["compare", str(trace), *POOL, "--seed", "7", "--limit", "2", "--shuffle", "--json", "-", "-q"]) == 0
    config = json.loads(capsys.readouterr().out)["config"]
    assert (config["seed"], config["limit"], config["shuffle"], config["max_total_tokens"]) == (7, 2, True, None)
