"""The lessons are true: commands run in the order of the page and print what is shown, pictures and tables are the simulator's."""

from __future__ import annotations

import contextlib
import io
import math
import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli_run import document, run, shared_trace

from experiments import animation
from sim.kv_formula import blocks_for
from sim.sizing.hardware import GIB

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = tuple(path.stem for path in sorted(DOCS.glob("howto-*.md"))) + ("tutorial", "explanation")
BLOCK = re.compile(r"(?:<!-- wants (\S+) -->\n)?^```(toml|console|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def page(name):
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def one_space(text):
    return " ".join(text.split())


def missing(shown, said):
    """The first of the lines shown that does not come out in this order; None if all do. Spaces do not matter.

    Three dots at the end of a line stand for the rest of it.
    """
    lines = iter([one_space(line) for line in said.splitlines()])
    return next((line for line in shown if not any(matches(one_space(line), one) for one in lines)), None)


def matches(shown, line):
    return line.startswith(shown.removesuffix(" ...")) if shown.endswith(" ...") else line == shown


def commands(text):
    """Each command of a console block with the lines shown below it; three dots stand for lines left out."""
    for piece in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *shown = piece.splitlines()
        yield command, [line for line in shown if line.strip() not in ("", "...")]


def follow(name, capsys, public):
    """Do what a page says, in the folder we are in: its commands in order, or those on public traces."""
    done = 0
    for trace, kind, text in BLOCK.findall(page(name)):
        if kind == "toml":
            Path(re.match(r"# (\S+\.toml)", text)[1]).write_text(text, encoding="utf-8")
        if kind == "text":
            Path("three.csv").write_text(text, encoding="utf-8")
        if kind != "console" or bool(trace) != public:
            continue
        if trace:
            shutil.copy(shared_trace(trace), Path(trace).name)
        for command, shown in commands(text):
            said = run(capsys, *shlex.split(command, comments=True)[1:])
            assert said.status == 0, (command, said.err)
            assert missing(shown, said.out) is None, (command, missing(shown, said.out))
            done += 1
    return done


@pytest.mark.parametrize("name", PAGES)
def test_a_reader_with_the_repository_alone_can_follow(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(animation, "FRAMES", 2)        # the others would only take time
    assert follow(name, capsys, public=False) >= 1


@pytest.mark.parametrize("name", [name for name in PAGES if "<!-- wants" in page(name)])
def test_a_reader_with_the_public_trace_can_go_on(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert follow(name, capsys, public=True) >= 1


def test_what_is_not_printed_is_found_out():
    assert missing(["a  1", "b"], "a 1\nx\n b\n") is None
    assert missing(["b", "a 1"], "a 1\nb\n") == "a 1"
    assert missing(["a ..."], "a 1\n") is None and missing(["a"], "a 1\n") == "a"


@pytest.mark.parametrize("name", [*PAGES, "reference", "glossary", "index"])
def test_links_lead_somewhere_and_sums_are_right(name):
    text = page(name)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert (DOCS / target).exists(), target
    for factors, product in re.findall(r"(\d[\d,]*(?: x \d[\d,]*)+) = (\d[\d,]*)", text):
        assert math.prod(int(f.replace(",", "")) for f in factors.split(" x ")) == int(product.replace(",", "")), factors


# ---------------------------------------------------------------------- explanation
def test_the_seven_moments_are_those_of_the_engine():
    text = page("explanation")
    program = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program, "explanation.md", "exec"), {})
    pictures = re.split(r"\n(?=time )", re.sub(r" +$", "", said.getvalue(), flags=re.MULTILINE).rstrip())
    shown = [re.sub(r"^    | +$", "", one, flags=re.MULTILINE).rstrip() for one in
             re.findall(r"^    time \d.*\n(?:    .*\n)+", text, re.MULTILINE)]
    assert len(pictures) == 7 and shown == pictures


def rows(text, first):
    """The rows of the table whose head begins with ``first``, as lists of cells."""
    table = re.search(rf"^\| {re.escape(first)}.*\n\|[ \-:|]*\n((?:\|.*\n)+)", text, re.MULTILINE)[1]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]


def test_the_table_of_parallelism_is_the_plan(capsys):
    table = rows(page("explanation"), "model | options")
    assert len(table) == 10
    for model, options, gpus, *numbers in table:
        words, (count, gpu) = options.strip("`").split(), gpus.split()
        plan = run(capsys, "plan", "--model", model, "--gpu", gpu, "--max-model-len", "8192", *words, "--json", "-", "-q").json
        sizes = {flag: int(n) for flag, n in zip(words, [*words[1:], "1"], strict=True) if flag in ("-tp", "-pp", "-dp")}
        replicas = sizes.get("-dp", 1)
        assert int(count) == math.prod(sizes.values())
        assert numbers == [f"{plan['weights_gib']:.2f}", f"{plan['available_kv_gib']:.2f}", f"{plan['kv_bytes_per_token']:,}",
                           f"{plan['kv_tokens']:,}", f"{replicas * plan['kv_tokens']:,}",
                           f"{replicas * plan['max_concurrency']:.2f}"], (model, options)


def test_the_table_of_block_sizes_is_the_simulation(capsys):
    for size, useful, running, blocks in rows(page("explanation"), "block size (slots)"):
        of = document(capsys, "--limit", "200", "--allocator", "paged", "--block-size", size)["scenarios"][0]
        assert (useful, running) == (f"{100 * of['memory']['useful_of_allocated']:.1f} %", f"{of['concurrency']['mean']:.2f}")
        assert blocks == f"{blocks_for(1000, int(size)):,}"


def test_bytes_of_a_token_and_of_the_scores(capsys):
    text = page("explanation")
    plan = run(capsys, "plan", "--model", "Llama-3.1-8B", "--gpu", "80GiB", "--json", "-", "-q").json
    assert f"= {plan['kv_bytes_per_token']:,} bytes" in text
    assert 4_294_967_296 == 4 * GIB == 32_768 * plan["kv_bytes_per_token"] and "4,294,967,296" in text
