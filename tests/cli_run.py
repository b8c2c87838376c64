"""The command line from inside a test: `Command` runs it in this process and keeps what it said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.cli import main

SHARED = Path(os.environ.get("PAGEDSIM_SHARED", Path(__file__).resolve().parents[1].parent / "shared"))


class Said(NamedTuple):
    """Exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def run(capsys, *arguments):
    """`pagedsim` with these arguments; argparse's exit counts as a status."""
    capsys.readouterr()
    try:
        status = main([str(a) for a in arguments])
    except SystemExit as stop:
        status = stop.code
    return Said(status, *capsys.readouterr())


def document(capsys, *arguments):
    """The JSON of `compare`, which must end well."""
    said = run(capsys, "compare", *arguments, "--json", "-", "-q")
    assert (said.status, said.err) == (0, "")
    return said.json


def lengths(folder, rows, name="lengths.csv"):
    """A trace of (prompt, output) without times."""
    path = folder / name
    path.write_text("prompt_tokens,output_tokens\n" + "".join(f"{p},{o}\n" for p, o in rows))
    return path


def timed(folder, rows, name="timed.csv"):
    """A trace of (arrival in seconds, prompt, output)."""
    path = folder / name
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{t},{p},{o}\n" for t, p, o in rows))
    return path


def mooncake(folder, rows, name="mooncake.jsonl"):
    """A trace of (arrival in ms, prompt, output, hash ids)."""
    path = folder / name
    path.write_text("".join(json.dumps({"timestamp": t, "input_length": p, "output_length": o, "hash_ids": ids}) + "\n"
                            for t, p, o, ids in rows))
    return path


def shared_trace(name):
    """A file of the shared traces, or the test is skipped."""
    path = SHARED / "traces" / name
    if not path.exists():
        pytest.skip(f"no trace {name} (set PAGEDSIM_SHARED)")
    return path
