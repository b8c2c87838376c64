"""CONTRIBUTING.md is true: its four examples are followed to the letter in a copy of the tree, and every command ends well."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from installed import ROOT, copied

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = ("An allocator", "An eviction policy", "A trace format", "An experiment")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TREE = ("tests", "docs", "CONTRIBUTING.md")


def section(name):
    return re.search(rf"^## {name}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)[1]


def changed(text, lines):
    """The text with each run of ``+`` lines put after the run of lines above it, which must stand there once."""
    before = "".join(line[1:] for line in lines if line.startswith(" "))
    after = "".join(line[1:] for line in lines)
    assert lines[-1].startswith("+") and text.count(before) == 1, before
    return text.replace(before, after)


def follow(folder, name):
    """Do what a section says; its commands come in the order of the page."""
    (new,) = re.findall(r"`([\w/]+\.py)`:\n\n```python", section(name))
    for kind, block in BLOCK.findall(section(name)):
        if kind == "python":
            (folder / new).write_text(block)
        elif kind == "diff":
            head, *lines = block.splitlines(keepends=True)
            path = folder / head.removeprefix("# ").strip()
            path.write_text(changed(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
        else:
            yield from re.findall(r"^\$ (.*)$", block, re.MULTILINE)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree with the two commands that the page types on the path."""
    folder = copied(tmp_path_factory.mktemp("contributing") / "tree", *TREE)
    (folder / "bin").mkdir()
    for name, words in (("pagedsim", "-m experiments.cli"), ("python", "")):
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("name", SECTIONS)
def test_a_newcomer_follows_the_page(tree, name):
    path = os.pathsep.join([str(tree / "bin"), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(tree), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    count = 0
    for command in follow(tree, name):
        done = subprocess.run(command, shell=True, cwd=tree, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=300)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        if " -k " in command:
            assert re.search(r"^\d+ passed|\.\s+\[100%\]", done.stdout, re.MULTILINE), done.stdout
        count += 1
    assert count >= 2


def test_what_the_page_makes_is_clean(tmp_path):
    """By the checks that the page asks for; of types those files alone, as the whole takes minutes."""
    tree = copied(tmp_path / "tree", *TREE)
    for name in SECTIONS:
        assert list(follow(tree, name))
    new = [re.findall(r"`([\w/]+\.py)`:\n\n```python", section(name))[0] for name in SECTIONS]
    for command in (["-m", "ruff", "check", *new], ["-m", "mypy", *(name for name in new if not name.startswith("experiments"))]):
        done = subprocess.run([sys.executable, *command], cwd=tree, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_names_files_that_are_there():
    named = set(re.findall(r"`((?:sim|workloads|experiments|tests|\.ci)/[\w/]+(?:\.py)?)`", PAGE))
    new = {name for text in SECTIONS for name in re.findall(r"`([\w/]+\.py)`:\n\n```python", section(text))}
    assert len(new) == len(SECTIONS)
    assert [name for name in sorted(named - new - {"tests/test_NAME.py"}) if not Path(ROOT, name).exists()] == []
    assert not [name for name in new if Path(ROOT, name).exists()]
