"""What a release says about itself: one version everywhere, bounds that are meant, pages that name what is there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib

import pytest
from installed import ROOT

from experiments.version import VERSION
from workloads.readers import packed, source, values

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MIB = 1 << 20


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version_and_one_date():
    citation = dict(re.findall(r'^([\w-]+): "?([^"\n]+)"?$', text("CITATION.cff"), re.MULTILINE))
    head = re.search(r"^## (.*)$", text("CHANGELOG.md"), re.MULTILINE)[1]
    assert head == f"{VERSION} ({citation['date-released']})"
    assert citation["version"] == VERSION
    assert (citation["cff-version"], citation["license"]) == ("1.2.0", PROJECT["license"])


def test_every_dependency_has_an_oldest_version_and_no_newest():
    for one in PROJECT["dependencies"] + [one for extra in PROJECT["optional-dependencies"].values() for one in extra]:
        assert re.fullmatch(r"[\w-]+>=[\d.]+", one), one


def foreign(top):
    """Third-party modules that the modules of a package import, peers of the benchmarks aside."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / top).rglob("*.py") if "drivers" not in path.parts]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"sim", "workloads", "experiments"}


def test_what_is_imported_is_a_dependency_and_none_is_idle():
    named = {one.split(">=")[0] for one in PROJECT["dependencies"]}
    extras = {"distributed", "pyarrow", "markupsafe"}  # of `sweep`, each with an extra of its own; jinja2's strings
    assert foreign("sim") | foreign("workloads") | foreign("experiments") == named | extras
    assert foreign("sim") | foreign("workloads") == {"numpy", "simpy", "zstandard"}


def test_typed_packages_say_so():
    checked = tomllib.loads(text("pyproject.toml"))["tool"]["mypy"]["files"]
    assert [name for name in checked if not (ROOT / name / "py.typed").is_file()] == []


def test_the_limits_are_those_that_are_promised():
    page = " ".join(text("SECURITY.md").split())
    assert f"more than {packed.BOMB_BYTES // MIB} MiB and over {packed.BOMB_RATIO} times its size" in page
    line, document = source.LONGEST_LINE_BYTES // MIB, source.LARGEST_DOCUMENT_BYTES // MIB
    assert f"may have {line} MiB, a JSON document {document} MiB" in page
    assert (values.MOST_TOKENS, values.MOST_ID, values.MOST_SEQUENCES) == (2**31, 2**63 - 1, 4096)
    assert "below 2**31 tokens, ids below 2**63, samples and beams at most 4,096" in page


@pytest.mark.parametrize("page", ["SECURITY.md", "CONTRIBUTING.md", "docs/index.md", "README.md"])
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)", text(page)):
        assert ((ROOT / page).parent / link).exists(), link
    for name in re.findall(r"`(tests/test_(?!NAME)\w+\.py)`", text(page)):
        assert (ROOT / name).is_file(), name


def test_the_reference_is_made_of_the_docstrings(tmp_path):
    pytest.importorskip("pdoc", reason="pdoc is not installed (the extra docs)")
    command = re.search(r"^pdoc (.*) -o docs/api (.*)$", text("CONTRIBUTING.md"), re.MULTILINE)
    assert f"`{command[0]}`" in text("docs/index.md")
    assert command[2].split() == ["sim", "workloads", "experiments"]
    words = [*command[1].split(), "-o", str(tmp_path), "sim.memory", "sim.kv_formula"]       # all would take half a minute
    done = subprocess.run([sys.executable, "-m", "pdoc", *words], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    made = {str(path.relative_to(tmp_path).with_suffix("")) for path in tmp_path.rglob("*.html")}
    assert made >= {f"sim/memory/{path.stem}" for path in (ROOT / "sim" / "memory").glob("[a-z]*.py")} | {"sim/kv_formula"}
    page = (tmp_path / "sim" / "kv_formula.html").read_text(encoding="utf-8")
    assert "blocks_for" in page and "Raises" in page
