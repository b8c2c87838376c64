"""The laws of the house that can be read off the source: imports point left, one file knows simpy, allocators know no clock."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [p for package in ("workloads", "sim", "experiments") for p in sorted((ROOT / package).rglob("*.py"))]
ORDER = ["workloads", "sim", "experiments"]
OURS = set(ORDER)


def imports(path):
    """(module, whether it is inside a function) of every import."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {id(node) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for node in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in inner) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module, id(node) in inner


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_left(path):
    package = path.relative_to(ROOT).parts[0]
    for module, inside in imports(path):
        top = module.split(".")[0]
        if top in OURS:
            assert ORDER.index(top) <= ORDER.index(package), module
            assert not inside, f"{module} is imported inside a function"


def modules_named(path):
    """Our modules that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in (node for node in nodes if isinstance(node, ast.ImportFrom)):
        inner = {f"{node.module}.{alias.name}" for alias in node.names}
        names |= inner if inner <= set(MODULES) else {node.module, *inner}
    return names & set(MODULES)


MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in FILES}


def test_no_module_needs_itself():
    """Imports go round nowhere."""
    needs = {module: modules_named(path) - {module} for module, path in MODULES.items()}
    while ready := [module for module, wanted in needs.items() if not wanted & set(needs)]:
        for module in ready:
            del needs[module]
    assert not needs


def test_every_document_that_a_source_names_is_there():
    known = {p.name for p in ROOT.rglob("*.md") if ".venv" not in p.parts}
    texts = [*FILES, *(ROOT / "tests").glob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    named = {(path.name, name) for path in texts for name in re.findall(r"[\w-]+\.md\b", path.read_text(encoding="utf-8"))}
    made = {"reproduction.md", "papers.md"}                  # the one a command writes, the other where facts are
    assert sorted((path, name) for path, name in named if name not in known | made) == []


def test_the_trace_imports_nothing_of_ours():
    assert not [m for m, _ in imports(ROOT / "workloads" / "request.py") if m.split(".")[0] in OURS]


def test_only_the_engine_knows_simpy():
    assert [p.name for p in FILES if "simpy" in {m.split(".")[0] for m, _ in imports(p)}] == ["engine.py"]


def test_allocators_know_no_clock_randomness_or_files():
    banned = {"time", "datetime", "random", "simpy", "pathlib", "os", "io"}
    for path in (ROOT / "sim" / "memory").glob("*.py"):
        assert not banned & {m.split(".")[0] for m, _ in imports(path)}, path.name


def test_nothing_evaluates_or_unpickles_input():
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        assert not called & {"eval", "exec"}, path
        assert not {"pickle", "marshal", "socket", "urllib", "http"} & {m.split(".")[0] for m, _ in imports(path)}, path


def test_nothing_prints_inside_sim_or_workloads():
    for path in FILES:
        if path.relative_to(ROOT).parts[0] != "experiments":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert "print" not in {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def test_the_wings_of_sim_do_not_go_round():
    """models <- sizing, and memory knows neither: what a model is needs no GPU, a pool needs no model."""
    for path in (ROOT / "sim" / "models").glob("*.py"):
        assert not [m for m, _ in imports(path) if m.startswith(("sim.sizing", "sim.memory"))], path.name
    for path in (ROOT / "sim" / "memory").glob("*.py"):
        assert not [m for m, _ in imports(path) if m.startswith(("sim.sizing", "sim.models"))], path.name
