"""The lessons are true: commands run in the page's order and print what is shown; pictures and tables are the simulator's."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli_run import document, run, shared_trace

from experiments import animation
from experiments.calibration.metrics_page import HISTOGRAMS, NAMES
from experiments.deployment import deployment, model_and_gpu
from experiments.plan import parser
from experiments.whatif.simulate import METRICS, columns
from sim.catalog import ALLOCATORS, ROUTERS
from sim.kv_formula import blocks_for
from sim.measures import LATENCIES
from sim.memory.allocator import PARTS
from sim.sizing.hardware import GIB
from sim.sizing.plan import plan

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = (*(path.stem for path in sorted(DOCS.glob("howto-*.md"))), "tutorial", "explanation")
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
        assert math.prod(map(integer, factors.split(" x "))) == integer(product), factors
    for whole, part, rest in re.findall(r"(\d[\d,]*) - (\d[\d,]*) = (\d[\d,]*)", text):
        assert integer(whole) - integer(part) == integer(rest), whole


def integer(text):
    return int(text.replace(",", ""))


def shown_and_told(text):
    """A page in two: blocks, tables and sums, which are checked; and what is said about them."""
    told, shown, fenced = [], [], False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        (shown if fenced or line.startswith(("|", "    ")) else told).append(line)
    told = "\n".join(told)
    return "\n".join([*shown, *re.findall(r"[\d,x \-]+ = [\d,]+", told)]), re.sub(r"`[^`]*`|\([^)]*\.md[^)]*\)", "", told)


@pytest.mark.parametrize("name", PAGES)
def test_numbers_told_are_numbers_shown(name):
    """Decimals and thousands as they are shown; whole percents rounded from what is shown."""
    shown, told = shown_and_told(page(name))
    numbers = set(re.findall(r"\d[\d,]*(?:\.\d+)?", shown))
    exact = set(re.findall(r"\d+\.\d+|\d{1,3}(?:,\d{3})+", told))
    assert exact <= numbers, exact - numbers
    rounded = {f"{float(number):.0f}" for number in re.findall(r"\d+\.\d+(?= %)", shown)}
    whole = set(re.findall(r"(?<![.\d])\d+(?= %)", told))
    assert whole <= rounded | numbers, whole - rounded


# ---------------------------------------------------------------------- explanation
def test_the_seven_moments_are_those_of_the_engine():
    text = page("explanation")
    program = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    said, names = io.StringIO(), {}
    with contextlib.redirect_stdout(said):
        exec(compile(program, "explanation.md", "exec"), names)
    requests = zip(names["NAMES"], names["TIME"], names["PROMPT"], names["OUTPUT"], strict=True)
    assert [row[:4] for row in rows(text, "request | arrives at")] == [[str(cell) for cell in row] for row in requests]
    pictures = re.split(r"\n(?=time )", re.sub(r" +$", "", said.getvalue(), flags=re.MULTILINE).rstrip())
    shown = [re.sub(r"^    | +$", "", one, flags=re.MULTILINE).rstrip() for one in
             re.findall(r"^    time \d.*\n(?:    .*\n)+", text, re.MULTILINE)]
    assert len(pictures) == 7 and shown == pictures


def rows(text, first):
    """The rows of the table whose head begins with ``first``, as lists of cells."""
    table = re.search(rf"^\| {re.escape(first)}.*\n\|[ \-:|]*\n((?:\|.*\n)+)", text, re.MULTILINE)[1]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()]


def test_the_table_of_parallelism_is_the_plan():
    table = rows(page("explanation"), "model | options")
    assert len(table) == 10
    for model, options, gpus, *numbers in table:
        words, (count, gpu) = options.strip("`").split(), gpus.split()
        asked = parser().parse_args(["--model", model, "--gpu", gpu, "--max-model-len", "8192", *words])
        made = plan(deployment(asked, *model_and_gpu(asked, [])))
        sizes = {flag: int(n) for flag, n in zip(words, [*words[1:], "1"], strict=True) if flag in ("-tp", "-pp", "-dp")}
        replicas = sizes.get("-dp", 1)
        assert int(count) == math.prod(sizes.values())
        tokens, at_once = made.report.kv_tokens, made.report.max_concurrency
        assert numbers == [f"{made.budget.weights.gib:.2f}", f"{made.available_bytes / GIB:.2f}",
                           f"{made.kv_bytes_per_token:,}", f"{tokens:,}", f"{replicas * tokens:,}",
                           f"{replicas * at_once:.2f}"], (model, options)


def test_the_table_of_block_sizes_is_the_simulation(capsys):
    for size, useful, running, blocks in rows(page("explanation"), "block size (slots)"):
        of = document(capsys, "--limit", "200", "--allocator", "paged", "--block-size", size)["scenarios"][0]
        assert (useful, running) == (f"{100 * of['memory']['useful_of_allocated']:.1f} %", f"{of['concurrency']['mean']:.2f}")
        assert blocks == f"{blocks_for(1000, int(size)):,}"


def test_bytes_of_a_token_and_of_the_scores(capsys):
    text = page("explanation")
    per_token = run(capsys, "plan", "--model", "Llama-3.1-8B", "--gpu", "80GiB", "--json", "-", "-q").json["kv_bytes_per_token"]
    assert f"= {per_token:,} bytes" in text
    assert 4_294_967_296 == 4 * GIB == 32_768 * per_token and "4,294,967,296" in text


# ---------------------------------------------------------------------- reference
OPEN = {"trace.dropped", "scenarios[].requests.rejected"}                # objects whose keys are reasons
RICH = ("--limit", "40", "--allocator", "contiguous-max", "--allocator", "paged-prefix", "-dp", "2")


def keys(value, path=""):
    """Dotted paths of all values; entries of a list count as one."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return set().union(*(keys(entry, f"{path}[]") for entry in value))
    if not isinstance(value, dict) or path in OPEN:
        return {path}
    return set().union(*(keys(inner, f"{path}.{name}" if path else name) for name, inner in value.items()))


def braces(text):
    """All names that a name with braces stands for.

    >>> braces("a.{b,c}")
    ['a.b', 'a.c']
    """
    pieces = [piece.strip("{}").split(",") for piece in re.findall(r"\{[^}]*\}|[^{}]+", text)]
    return ["".join(words) for words in itertools.product(*pieces)]


def described(section, head):
    """First cells of the table below a heading, braces written out."""
    text = re.search(rf"^## {re.escape(section)}.*?\n(.*?)(?=^## |\Z)", page("reference"), re.MULTILINE | re.DOTALL)[1]
    cells = [row[0] for row in rows(text, head)]
    assert all(re.fullmatch(r"`[^`]+`", cell) for cell in cells)
    found = [name for cell in cells for name in braces(cell.strip("`"))]
    assert len(found) == len(set(found))
    return set(found)


def test_every_key_of_compare_is_described_and_no_other(capsys):
    result = document(capsys, *RICH)
    whole = {key for key in keys(result) if not key.startswith("config")} - {"schema", "pagedsim"}
    for section in ("trace", "capacity"):
        inner = {key.removeprefix(f"{section}.") for key in whole if key.startswith(f"{section}.")}
        assert described(f"`{section}`", "key") == inner
    assert described("`crosscheck[]`", "key") == {key.removeprefix("crosscheck[].") for key in whole if "crosscheck" in key}
    scenarios = {re.sub(r"^scenarios\[\]\.(replicas\[\]\.)?", "", key) for key in whole if key.startswith("scenarios")}
    assert described("`scenarios[]`", "key") == scenarios | {"measured"}
    assert scenarios >= {"prefix_cache", "sharing", "replica"}                             # null under contiguous-max
    measured = document(capsys, "--limit", "40", "--allocator", "paged", "--warm-up", "20%")["scenarios"][0]["measured"]
    assert set(measured) == {"warm_up", "warnings", *METRICS}


def test_every_column_of_a_sweep_is_described_and_no_other():
    assert described("A row of a sweep", "column") == set(columns(()))


def test_what_is_said_of_where_and_of_vllms_names_is_so():
    text = page("reference")
    for place in set(re.findall(r"`((?:sim|workloads|experiments)/[^`]*)`", text)):
        assert (DOCS.parent / place).exists(), place
    known = {name for names in (*NAMES.values(), *HISTOGRAMS.values()) for name in names}
    assert set(re.findall(r"`vllm:(\w+)`", text)) <= known
    assert len(set(re.findall(r"`vllm:(\w+)`", text))) >= 10


def test_formulas_hold_in_a_run(capsys):
    """A few that the page states, on a real result."""
    result = document(capsys, "--limit", "120", "--allocator", "paged-prefix", "--warm-up", "20%")
    of, capacity = result["scenarios"][0], result["capacity"]
    memory, cache, slots = of["memory"], of["prefix_cache"], of["memory"]["slot_microseconds"]
    assert slots["capacity"] == capacity["usable_slots"] * (of["window_us"][1] - of["window_us"][0])
    assert sum(slots[part] for part in PARTS) == slots["capacity"]
    assert all(memory[part] == slots[part] / slots["capacity"] for part in PARTS)
    assert capacity["usable_slots"] == (capacity["num_blocks"] - 1) * capacity["block_size"]
    assert cache["hit_rate"] == cache["hit_tokens"] / cache["query_tokens"]
    assert sum(cache["hit_tokens_by_origin"].values()) == cache["hit_tokens"] + cache["resume_hit_tokens"]
    assert of["sharing"]["saved_share"] == (1 - of["sharing"]["physical_slot_microseconds"]
                                            / of["sharing"]["logical_slot_microseconds"])
    assert of["throughput"]["requests_per_s"] == of["requests"]["completed"] / of["makespan_s"]
    held = slots["token_states"] + slots["reserved"] + slots["internal"]
    assert of["measured"]["kv_usage_mean"] == held / slots["capacity"]
    assert memory["useful_of_allocated"] == slots["token_states"] / held


# ---------------------------------------------------------------------- glossary and index
def test_the_glossary_has_the_terms_that_code_is_named_by():
    """The parts of the pool, allocators, metrics and the words of the allocators' and the pool's interfaces."""
    text = page("glossary").lower()
    terms = {part.replace("_", " ") for part in PARTS} | set(ALLOCATORS) | set(ROUTERS) | set(LATENCIES)
    terms |= {"admit", "extend", "fork", "release", "preempt", "evict", "touch"}
    terms |= {"slot", "block", "block table", "block pool", "free queue", "ref count", "prefix hit", "copy-on-write", "watermark",
              "reservation", "null block", "kv cache usage", "concurrency", "predicted concurrency", "cached block",
              "internal fragmentation", "external fragmentation", "refused", "saturate", "session", "think time", "window",
              "warm-up"}
    defined = {one_space(term) for line in re.findall(r"^- ((?:\*\*[^*]+\*\*(?:, )?)+):", text, re.MULTILINE)
               for term in re.findall(r"\*\*([^*]+)\*\*", line)}
    assert terms <= defined, sorted(terms - defined)


def test_the_map_names_every_page():
    text = page("index")
    named = set(re.findall(r"\]\(([\w/-]+\.md)\)", text))
    assert {path.name for path in DOCS.glob("*.md")} - {"index.md"} <= named
    assert "(docs/index.md)" in (DOCS.parent / "README.md").read_text(encoding="utf-8")
