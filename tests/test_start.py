"""The start: a command loads what it needs, and names that stand for modules are the modules."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from cli_run import lengths
from hypothesis import given
from hypothesis import strategies as st

from sim.catalog import EVICTION
from sim.result import percentiles
from workloads.later import Later, LaterTable
from workloads.readers import READERS

THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
POOL = ("--num-gpu-blocks-override", "40", "-q")
UNNEEDED = ("matplotlib", "jinja2", "rich.progress", "zstandard", "tomllib", "workloads.synth",
            "workloads.synthetic", "workloads.readers.own_table", "workloads.readers.servegen", "sim.caching.policies",
            "sim.models", "sim.sizing.budget", "sim.sizing.plan", "experiments.animation", "experiments.chrome_trace",
            "experiments.compare_pictures", "experiments.html", "experiments.step_time_file")
if np.lib.NumpyVersion(np.__version__) >= "2.0.0":     # older ones load all of theirs with numpy itself
    UNNEEDED += ("numpy.random", "numpy.ma")


def said(arguments, ask, before="", **environment):
    """What a fresh process says to ``ask`` after a command."""
    code = f"""
{before}
import os, sys
from experiments.cli import main
main({list(arguments)!r})
print({ask})
"""
    known = {name: value for name, value in os.environ.items() if name not in THREADS}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
                          env=known | environment)
    return done.stdout.splitlines()[-1]


def mooncake(tmp_path):
    path = tmp_path / "two.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 20, "output_length": 5, "hash_ids": [0]}\n'
                    '{"timestamp": 9, "input_length": 30, "output_length": 4, "hash_ids": [1]}\n')
    return str(path)


def test_help_and_version_load_no_numpy():
    for flag in ("--help", "--version"):
        assert said([flag], '"numpy" in sys.modules') == "False"


def test_a_comparison_of_a_recorded_trace_loads_what_it_needs(tmp_path):
    arguments = ("compare", mooncake(tmp_path), "--format", "mooncake", *POOL)
    assert said(arguments, f"[name for name in {UNNEEDED!r} if name in sys.modules]") == "[]"


def test_linear_algebra_has_one_thread_unless_somebody_decided(tmp_path):
    arguments, ask = ("compare", str(lengths(tmp_path, [(20, 5)])), *POOL), f"[os.environ.get(name) for name in {THREADS!r}]"
    assert said(arguments, ask) == "['1', None, None]"
    assert said(arguments, ask, OPENBLAS_NUM_THREADS="2") == "['2', None, None]"
    assert said(arguments, ask, OMP_NUM_THREADS="3") == "[None, None, '3']"
    assert said(["--help"], ask) == "[None, None, None]"


def test_what_is_loaded_is_no_garbage_to_look_through(tmp_path):
    arguments = ("compare", str(lengths(tmp_path, [(20, 5)])), *POOL)
    assert said(arguments, "gc.get_freeze_count() > 10_000", before="import gc") == "True"


def test_a_program_that_has_loaded_numpy_keeps_its_settings(tmp_path):
    arguments = ("compare", str(lengths(tmp_path, [(20, 5)])), *POOL)
    ask = f"os.environ.get({THREADS[0]!r}), gc.get_freeze_count()"
    assert said(arguments, ask, before="import gc, numpy") == "None 0"


# ---------------------------------------------------------------------- names that stand for modules
def test_what_is_asked_of_a_later_module_is_asked_of_it():
    import textwrap
    assert Later("textwrap").dedent is textwrap.dedent
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = Later("textwrap").nothing_of_the_kind
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        _ = Later("no_such_module").anything


def test_a_later_module_sees_what_a_test_puts_into_it(monkeypatch):
    words = Later("textwrap")
    assert words.dedent("  a") == "a"
    monkeypatch.setattr("textwrap.dedent", lambda text: "other")
    assert words.dedent("  a") == "other"


def test_a_table_knows_its_names_without_what_they_stand_for():
    table = LaterTable({"here": "textwrap:fill", "gone": "no_such_module:thing"})
    assert (list(table), len(table), "gone" in table, "else" in table) == (["here", "gone"], 2, True, False)
    assert table.get("else") is None
    with pytest.raises(KeyError):
        _ = table["else"]
    with pytest.raises(ModuleNotFoundError):
        _ = table["gone"]


def test_every_format_is_where_the_table_says():
    assert [reader.name for reader in READERS.values()] == list(READERS)


def test_every_policy_is_where_the_table_says():
    assert [policy.__name__.lower() for policy in EVICTION.values()] == [name.replace("-", "") for name in EVICTION]


# ---------------------------------------------------------------------- percentiles without numpy.ma
@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=40), st.lists(st.integers(0, 100), min_size=1, max_size=5))
def test_percentiles_are_numpys_to_the_last_bit(times_us, percents):
    values = np.array(times_us) / 1e6
    assert percentiles(values, percents) == np.percentile(values, percents).tolist()
