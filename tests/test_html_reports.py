"""Reports as pages: their numbers are those of the JSON, what users name is text, nothing asks a network, same bytes twice."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from cli_run import lengths, mooncake, run, timed
from page_parts import Page

from experiments import reproduce
from experiments.crosscheck import Check
from experiments.figures import STYLES
from experiments.html.pool_bar import STROKES, bars
from experiments.paper.html_page import write_reproduction
from experiments.paper.outcome import Row
from experiments.parts import LABELS, PARTS_IN_WORDS
from experiments.shown import Sentence, TextTable, drawn
from sim.memory.allocator import PARTS

ROOT = Path(__file__).resolve().parents[1]
POOL = ("--num-gpu-blocks-override", 120, "--block-size", 4, "--step-time", "constant:10ms")
COLUMN = "a column an allocator"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def traffic(tmp_path):
    return timed(tmp_path, [(0.1 * i, 20 + 7 * (i % 5), 3 + 5 * (i % 4)) for i in range(40)], "week.csv").name


@pytest.fixture
def shared(tmp_path):
    return mooncake(tmp_path, [(200 * i, 48 + 16 * (i % 2), 5 + i % 4, [1, 2, 3 + i % 4, *([10 + i] * (i % 2))])
                               for i in range(30)], "talk.jsonl").name


def pages(capsys, tmp_path, *words):
    """The page and the JSON of one command."""
    outputs = ("--html", "page.html", "--json", "out.json", "-q")
    said = run(capsys, words[0], *outputs, *words[1:])
    assert (said.err, said.status) == ("", 0)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    return Page(text), json.loads((tmp_path / "out.json").read_text())


# ---------------------------------------------------------------------- compare
def test_compare_shows_the_numbers_of_its_json(capsys, tmp_path, traffic):
    page, found = pages(capsys, tmp_path, "compare", traffic, *POOL)
    scenarios = found["scenarios"]
    table = page.tables[COLUMN]
    assert table[0] == ["", *(s["allocator"] for s in scenarios)]
    for part in PARTS:
        assert page.row(COLUMN, LABELS[part]) == [f"{100 * s['memory'][part]:.1f} %" for s in scenarios]
    assert page.row(COLUMN, "mean") == [f"{s['concurrency']['mean']:,.2f}" for s in scenarios]
    assert page.row(COLUMN, "whole run (s)") == [f"{s['makespan_s']:,.1f}" for s in scenarios]
    assert page.row(COLUMN, "completed") == ["40"] * len(scenarios)
    checks = page.tables["Cross-checks"][1:]
    assert checks == [[c["scenario"], c["name"], f"{c['simulated']:,}", "=" if c["exact"] else "<=", f"{c['analytic']:,}", "ok"]
                      for c in found["crosscheck"]]
    assert page.text.count(f"all {len(checks)} cross-checks ok") == 2
    assert "40 requests, 1,360 prompt + 420 output tokens" in page.text
    assert "Maximum concurrency for" in page.text
    assert all(about in page.text for about in PARTS_IN_WORDS.values())


def test_bars_are_the_shares_of_the_json(capsys, tmp_path, traffic):
    page, found = pages(capsys, tmp_path, "compare", traffic, *POOL)
    drawn_bars, expected = [], []
    for tag, attributes in page.tags:
        if tag == "svg" and attributes.get("role") == "img":
            drawn_bars.append((attributes["aria-label"].split(":")[0], []))
        if tag == "rect" and "x" in attributes:
            drawn_bars[-1][1].append((attributes["fill"], float(attributes["x"][:-1]), float(attributes["width"][:-1])))
    for scenario in found["scenarios"]:
        start, rects = 0.0, []
        for part in PARTS:
            share = 100 * scenario["memory"][part]
            if share:
                rects.append((f"url(#of-{part})", round(start, 4), round(share, 4)))
            start += share
        assert start == pytest.approx(100, abs=1e-9)
        expected.append((scenario["allocator"], rects))
    assert drawn_bars == expected


def test_a_narrow_segment_has_no_number_and_is_said():
    shares = dict.fromkeys(PARTS, 0.0) | {"token_states": 0.8801, "idle": 0.1199}
    [bar] = bars([{"allocator": "paged", "memory": shares}])
    assert [one.told for one in bar.segments] == ["88.0 %", ""]
    assert bar.said == "paged: token states (useful) 88.0 %, idle, nobody refused 12.0 %"


def test_every_part_has_a_word_a_colour_and_strokes_of_its_hatch():
    assert list(PARTS_IN_WORDS) == list(PARTS)
    assert {hatch for _, hatch in STYLES.values()} == set(STROKES)


def test_replicas_and_a_warm_up_have_their_tables(capsys, tmp_path, traffic):
    page, found = pages(capsys, tmp_path, "compare", traffic, *POOL, "--data-parallel-size", 2, "--warm-up", "20%", "--allocator",
                        "paged", "--allocator", "contiguous-max")
    assert page.tables["allocator"][0][3] == "running,\nmean"
    assert page.text.index("All numbers") < page.text.index("Replicas allocator replica") < page.text.index("Cross-checks:")
    assert [row[:2] for row in page.tables["allocator"][1:]] == [["paged", "0"], ["", "1"], ["contiguous-max", "0"], ["", "1"]]
    measured = page.tables["behind a warm-up of 20%"]
    assert measured[0] == ["behind a warm-up of 20%", "paged", "contiguous-max"]
    assert page.row("behind a warm-up of 20%", "requests cut off") == [str(s["measured"]["warmup_requests"])
                                                                      for s in found["scenarios"]]
    warned = [line for s in found["scenarios"] for line in s["measured"]["warnings"]]
    assert warned and all(line in page.text for line in warned)
    assert "those of each replica added up" in page.text


def test_a_failed_cross_check_is_shown(capsys, tmp_path, traffic, monkeypatch):
    monkeypatch.setattr("experiments.crosscheck.probe_paged", lambda name, config: Check("probe", name, 3, 4, True))
    said = run(capsys, "compare", traffic, *POOL, "--allocator", "paged", "--html", "page.html", "-q")
    assert said.status == 1
    page = Page((tmp_path / "page.html").read_text())
    assert page.row("Cross-checks", "paged")[-1] == "ok"
    assert page.tables["Cross-checks"][-1] == ["paged", "probe", "3", "=", "4", "FAILED"]
    failed = re.search(r"1 of \d cross-checks FAILED", said.out)[0]
    assert page.text.count(failed) == 2 and "cross-checks ok" not in page.text
    assert {"class": "verdict bad"} in page.of("p") and {"class": "verdict good"} not in page.of("p")
    assert [a["class"] for a in page.of("td") if "bad" in a["class"]] == ["w bad"]


# ---------------------------------------------------------------------- prefix
def test_prefix_shows_the_numbers_of_its_json(capsys, tmp_path, shared):
    page, found = pages(capsys, tmp_path, "prefix", shared, "--model", "Llama-3.1-8B", "--available-kv-gib",
                        "0.05", "--max-model-len", 80, "--step-time", "constant:10ms")
    tables = list(page.tables)
    costs = page.tables[next(name for name in tables if name.startswith("What a share of hits costs"))]
    assert [row[1] for row in costs[1:]] == [f"{row['vllm']['blocks']:,}" for row in found["goals"]]
    served = next(name for name in tables if name.startswith("Serving view"))
    runs = [found["serving"]["without"], *found["serving"]["pools"]]
    assert page.row(served, "running at once, mean") == [f"{r['concurrency']['mean']:,.2f}" for r in runs]
    assert page.row(served, "tokens from another request") == [
        "-", *(f"{r['first_admissions']['hit_tokens_by_origin']['other_request']:,}" for r in runs[1:])]
    assert page.tables[served][0][1].startswith("no caching\ntoday's pool\n")
    sizes = page.tables[next(name for name in tables if name.startswith("What the block size takes away"))]
    assert [row[1:3] for row in sizes[1:]] == [[f"{r['query_blocks']:,}", f"{r['hit_blocks']:,}"] for r in found["block_sizes"]]
    assert f"{100 * found['endless']['hit_rate_tokens']:.1f} % of tokens with a cache that never forgets" in page.text
    assert all(text in page.text for text in found["legend"].values())
    checks = [check for run in (*runs, *found["tiers"]["rows"][1:]) for check in run["crosscheck"]]
    assert [row[:3] for row in page.tables["Cross-checks"][1:]] == [
        [c["scenario"], c["name"], f"{c['simulated']:,}"] for c in checks]
    assert {c["scenario"] for c in checks} >= {f"{r['allocator']}, {r['blocks']:,} blocks" for r in runs} and len(checks) > 20
    assert f"all {len(checks)} cross-checks ok" in page.text
    assert all(note in page.text for note in found["notes"])


def test_a_failed_cross_check_of_the_serving_view_is_an_error(capsys, tmp_path, shared, monkeypatch):
    monkeypatch.setattr("experiments.crosscheck.probe_paged", lambda name, config: Check("probe", name, 3, 4, True))
    words = ("prefix", shared, "--num-gpu-blocks-override", 60, "--pool-blocks", 59, "--policy", "lru", "-q",
             "--html", "page.html")
    said = run(capsys, *words)
    assert said.status == 1 and re.search(r"2 of \d+ cross-checks FAILED\n$", said.out)
    assert said.err.splitlines() == [f"pagedsim prefix: cross-check failed: {name}, 59 blocks: probe: 3 against 4"
                                     for name in ("paged", "paged-prefix")]
    page = Page((tmp_path / "page.html").read_text())
    assert page.tables["Cross-checks"][-1] == ["paged-prefix, 59 blocks", "probe", "3", "=", "4", "FAILED"]
    assert {"class": "verdict bad"} in page.of("p")
    said = run(capsys, *words, "--no-serving")
    assert said.status == 0 and "cross-check" not in said.out and "Cross-checks" not in (tmp_path / "page.html").read_text()


# ---------------------------------------------------------------------- plan
def test_plan_shows_the_numbers_of_its_json(capsys, tmp_path):
    page, found = pages(capsys, tmp_path, "plan", "--model", "Llama-3.1-8B", "--gpu", "H100", "--max-model-len", 8192)
    before = (tmp_path / "page.html").read_bytes()
    budget = page.tables["Memory of one GPU"]
    assert [row[0] for row in budget[1:]] == [*(term["name"] for term in found["budget"]), "left for KV"]
    assert budget[-1][1] == f"{found['available_kv_gib']:,.2f}" and [a for a in page.of("tr") if a] == [{"class": "total"}]
    assert page.tables["Requests at once"] == [[f"{entry['tokens']:,}" for entry in found["concurrency_at"]],
                                               [f"{entry['max_concurrency']:,.2f}" for entry in found["concurrency_at"]]]
    assert [row[3] for row in page.tables["What each knob buys"][1:]] == [f"{knob['kv_tokens']:,}" for knob in found["knobs"]]
    assert all(line in page.text for line in (*found["log_lines"], *found["notes"], *found["warnings"]))
    assert "It fits." in page.text and {"class": "verdict good"} in page.of("p")
    checks = [[check["name"], f"{check['simulated']:,}"] for check in found["crosscheck"]]
    assert [row[1:3] for row in page.tables["Cross-checks"][1:]] == checks
    assert "all 4 cross-checks ok" in page.text
    stands_alone(page)
    pages(capsys, tmp_path, "plan", "--model", "Llama-3.1-8B", "--gpu", "H100", "--max-model-len", 8192)
    assert (tmp_path / "page.html").read_bytes() == before


def test_a_plan_that_does_not_fit_and_one_without_a_budget(capsys, tmp_path):
    page, found = pages(capsys, tmp_path, "plan", "--gpu", "L4", "--", "vllm", "serve", "meta-llama/Llama-3.3-70B-Instruct")
    assert "It does not fit." in page.text and f"no: {found['refusal']}" in page.text and {"class": "verdict bad"} in page.of("p")
    page, _ = pages(capsys, tmp_path, "plan", "--num-gpu-blocks-override", 300, "--max-model-len", 1000)
    assert page.of("img") == [] and list(page.tables) == ["Requests at once", "Cross-checks"] and page.of("title") != []
    said = run(capsys, "plan", "--num-gpu-blocks-override", 300, "--max-model-len", 1000, "--html", "-")
    assert (said.status, said.err) == (2, "pagedsim plan: error: --html -: only --json goes to standard output\n")


# ---------------------------------------------------------------------- reproduce
@pytest.fixture
def reproduced(capsys, tmp_path, monkeypatch):
    """The page of two experiments that are soon done, and their documents."""
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {name: reproduce.EXPERIMENTS[name] for name in ("seeds", "sharing")})
    said = run(capsys, "reproduce", "all", "--limit", 30, "--out", "out", "-q")
    assert (said.err, said.status) == ("", 0)
    assert said.out.endswith("all on one page: out/reproduction.md and out/reproduction.html\n")
    text = (tmp_path / "out" / "reproduction.html").read_text()
    return Page(text), [json.loads((tmp_path / "out" / f"{name}.json").read_text()) for name in ("seeds", "sharing")]


def test_reproduce_all_shows_every_number_and_figure(reproduced, tmp_path):
    page, documents = reproduced
    judged = [row["ok"] for document in documents for row in document["rows"] if row["ok"] is not None]
    more = sum(len(document["rows"]) for document in documents) - len(judged)
    assert (f"{sum(judged)} of {len(judged)} numbers with a verdict inside their tolerance; {more} more without a verdict "
            "(--limit 30: a part is not judged)") in page.text
    assert page.of("span")[0] == {"class": "verdict soft"}             # not green
    for document in documents:
        rows = page.tables[f"{document['title']}, published and ours"]
        assert rows[0] == ["", "published", "ours", "difference", "tolerance", "", ""]
        assert [row[0] for row in rows[1:]] == [row["label"] for row in document["rows"]]
        assert [row[5] for row in rows[1:]] == [{True: "ok", False: "OUTSIDE", None: ""}[r["ok"]] for r in document["rows"]]
        assert all(table["title"] in page.tables and note in page.text
                   for table in document["tables"] for note in document["notes"])
        assert f"Ours: {document['command']}" in page.text
    pictures = [base64.b64decode(attributes["src"].split(",")[1]) for attributes in page.of("img")]
    assert pictures == [(tmp_path / "out" / f"{name}.png").read_bytes() for name in ("seeds", "sharing")]
    links = [attributes["href"] for attributes in page.of("a")]
    assert links == ["#seeds", "#sharing"] and [a["id"] for a in page.of("h2")] == ["seeds", "sharing"]
    assert "Made by pagedsim reproduce all --seed 0 --limit 30" in page.text
    stands_alone(page)


def test_numbers_of_the_articles(reproduced):
    page, _ = reproduced
    name = next(name for name in page.tables if name.startswith("The numbers of three articles"))
    assert page.row(name, "a token, 7B with a KV head for each head") == ["512", "512 KiB", "+0", "1e-09", "ok", ""]
    assert page.row(name, "weights, 7B in 16 bits") == ["13", "13.04 GiB", "+0.03852", "0.05", "ok", ""]


def test_a_number_outside_is_shown(tmp_path):
    document = {"name": "one", "title": "A <b>title</b>", "source": "A source", "command": "pagedsim reproduce one", "ok": False,
                "limit": None, "trace": None, "rows": [Row("r", 1.0, 2.0, "GiB", tolerance=0.5, note="<s>n</s>").json()],
                "notes": ["1 < 2"],
                "tables": [{"title": "<u>t</u>", "columns": ["<u>c</u>", "y"], "rows": [["<s>x</s>", "<s>y</s>"]]}]}
    (tmp_path / "one.png").write_bytes(b"x")
    page = Page(write_reproduction(tmp_path, [document], ["reproduce", "all"]).read_text())
    assert page.tables["A <b>title</b>, published and ours"][1] == ["r", "1", "2 GiB", "+1", "0.5", "OUTSIDE", "<s>n</s>"]
    assert page.tables["<u>t</u>"] == [["<u>c</u>", "y"], ["<s>x</s>", "<s>y</s>"]]
    assert page.of("s") == page.of("u") == page.of("b")[1:] == [] and "note1 < 2" in page.outline[-1][1]
    assert [a["class"] for a in page.of("span")] == ["verdict bad"] * 3 and page.of("td")[4] == {"class": "w bad"}
    unjudged = document | {"rows": [Row("r", 1.0, 2.0).json()], "ok": True}
    page = Page(write_reproduction(tmp_path, [unjudged], ["reproduce", "all"]).read_text())
    assert page.text.count("without a verdict") == 3 and [a["class"] for a in page.of("span")[1:]] == ["verdict soft"] * 2


def test_the_trace_and_what_of_it_gets_no_verdict_are_told(tmp_path):
    read = {"source": "a&b.csv", "requests": 79_731, "sha256": "ab12", "artifact": True}
    document = {"name": "one", "title": "T", "source": "S", "command": "c", "ok": True, "limit": None, "trace": read, "notes": [],
                "rows": [Row("r", 1.0, 1.0, tolerance=0.5).json(), Row("q", 1.0, 2.0).json()], "tables": []}
    (tmp_path / "one.png").write_bytes(b"x")

    def told(**changes):
        page = Page(write_reproduction(tmp_path, [document | changes], ["reproduce", "all"]).read_text())
        return page.text, page.of("span")[0]["class"]
    text, colour = told()
    assert "1 of 1 numbers with a verdict inside their tolerance; 1 more without a verdict ." in text and colour == "verdict good"
    assert "Trace: a&b.csv, 79,731 requests of at most 2,048 tokens, SHA-256 ab12." in text
    text, colour = told(limit=150)
    assert "1 more without a verdict (--limit 150: a part is not judged)" in text and colour == "verdict soft"
    text, colour = told(trace=read | {"artifact": False})
    assert "1 more without a verdict (a&b.csv is not the paper's trace)" in text and colour == "verdict soft"
    assert told(limit=150, ok=False)[1] == "verdict bad"


# ---------------------------------------------------------------------- sweep
SCENARIO = """# <script>alert(3)</script> & notes
trace = "week.csv"
num-gpu-blocks-override = 40
max-model-len = 128
seeds = 2
shuffle = true
[sweep]
max-num-seqs = [2, 8]
[search]
largest = "speed"
keep = "ttft p99 <= 2 s"
from = 0.5
to = 8
resolution = 0.5
"""


def swept(capsys, folder, text, *more, status=0):
    """The page of a sweep and its JSON."""
    (folder / "s.toml").write_text(text)
    said = run(capsys, "sweep", "s.toml", "--out", "out", "--jobs", "1", *more)
    assert said.status == status, said.err
    return Page((folder / "out" / "report.html").read_text()), json.loads((folder / "out" / "results.json").read_text()), said


@pytest.mark.usefixtures("traffic")
def test_a_sweep_shows_the_numbers_of_its_json(capsys, tmp_path):
    page, found, said = swept(capsys, tmp_path, SCENARIO)
    assert page.tables["All settings"][0][:3] == ["max-num-seqs", "running", "queue p99, s"]
    for row, setting in zip(page.tables["All settings"][1:], found["settings"], strict=True):
        assert row[0] == str(setting["settings"]["max-num-seqs"])
        mean = setting["metrics"]["token_states"]["mean"]
        assert row[7] == f"{100 * mean:.1f}"
    lines = said.out.splitlines()
    assert f"{lines[0]} " in page.text and lines[0].startswith("baseline: max-num-seqs 2, paged-prefix (2 seeds, ")
    table_at = next(i for i, line in enumerate(lines) if line.endswith("hits, %"))
    indented = [line for line in lines[:table_at] if line.startswith(("max-num-seqs 2 -> 8", "    "))]
    outline = [(depth, text.strip()) for depth, text in page.outline]
    assert [text for _, text in outline][: len(indented)] == [line.strip() for line in indented]
    hung = len("    max-num-seqs 2, paged-prefix: ")
    assert [depth for depth, _ in outline][: len(indented)] == [2 if line.startswith(" " * hung) else 1 for line in indented]
    assert {depth for depth, _ in outline} == {1, 2}
    said_besides = [line.replace(": ", "", 1) for line in lines if line.startswith(("warning: ", "step time: ", "note: "))]
    assert len(said_besides) > 2 and [text for _, text in outline][len(indented):] == said_besides
    assert "shuffle on runs 2 settings x 2 seeds = 4 points" in page.text and "of the search" in page.text
    points = len(found["points"])
    told = re.search(r"([\d,]+) cross-checks of (\d+) points: all ok$", (tmp_path / "out" / "answers.txt").read_text().strip())
    with contextlib.closing(sqlite3.connect(tmp_path / "out" / "results.sqlite")) as store:
        results = [json.loads(text) for (text,) in store.execute("SELECT result FROM points")]
    assert told.groups() == (f"{sum(len(one['crosscheck']) for one in results):,}", str(points)) and told[0] in page.text
    assert "# <script>alert(3)</script> & notes trace = " in page.text
    stands_alone(page)
    drawn_files = [path.read_bytes() for name in ("concurrency", "ttft", "throughput")
                   for path in [tmp_path / "out" / f"lines-{name}.png"]]
    assert [base64.b64decode(attributes["src"].split(",")[1]) for attributes in page.of("img")] == drawn_files
    assert "running sequences, mean, over max-num-seqs, sequences" in page.text
    for path in (tmp_path / "out").iterdir():
        assert path.name in page.text or path.name in ("report.html", ".lock")
    assert "Made by pagedsim sweep s.toml pagedsim" in page.text


@pytest.mark.usefixtures("traffic")
def test_a_sweep_says_what_it_could_not_run_and_which_checks_failed(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.crosscheck.probe_paged", lambda name, config: Check("probe", name, 3, 4, True))
    text = SCENARIO.split("[search]")[0].replace("[2, 8]", "[8]\nnum-gpu-blocks-override = [40, 4]").replace(
        "num-gpu-blocks-override = 40\n", "", 1)
    page, _, _ = swept(capsys, tmp_path, text, "--no-figures", status=1)
    failed = [f"max-num-seqs 8, num-gpu-blocks-override 40, paged-prefix, seed {seed}: probe: 3 against 4" for seed in (0, 1)]
    said = (tmp_path / "out" / "answers.txt").read_text().splitlines()[-2:]
    assert [line.strip() for line in said] == failed == [text for _, text in page.outline[:2]]
    assert re.search(r"\d+ cross-checks of 2 points: 2 FAILED; 2 points of the grid without a result", page.text)
    assert {"class": "verdict bad"} in page.of("p") and page.of("img") == []
    assert page.tables["All settings"][2][:2] == ["4", "not run"]
    assert "could not be run: the pool of 4 blocks" in page.text
    assert "Made by pagedsim sweep s.toml --no-figures" in page.text


def test_sentences_keep_their_structure():
    one = Sentence("a", (Sentence("b", (Sentence("c"),), 7), Sentence("d")))
    assert list(one.written()) == ["a", "    b", "           c", "    d"]


# ---------------------------------------------------------------------- every page
COMMANDS = {"compare": ("compare", "week.csv", *POOL),
            "prefix": ("prefix", "talk.jsonl", "--num-gpu-blocks-override", 60, "--policy", "belady")}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("traffic", "shared")
def test_a_page_stands_alone_and_is_the_same_in_another_process(capsys, tmp_path, name):
    page, _ = pages(capsys, tmp_path, *COMMANDS[name])
    before = (tmp_path / "page.html").read_bytes()
    words = [str(word) for word in (name, "--html", "page.html", "--json", "out.json", "-q", *COMMANDS[name][1:])]
    subprocess.run([sys.executable, "-m", "experiments.cli", *words], cwd=tmp_path, check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"})
    assert (tmp_path / "page.html").read_bytes() == before
    stands_alone(page)
    assert f"Made by pagedsim {name} " in page.text and "--html page.html" in page.text
    assert re.search(r"pagedsim \d\S*, Python 3\S*, numpy \d", page.text)


def stands_alone(page):
    """Nothing to fetch, no script, a text for every figure."""
    assert page.asks() == []
    assert page.of("script") == [] and page.of("iframe") == []
    assert page.of("img")
    for attributes in page.of("img"):
        assert attributes["src"].startswith("data:image/png;base64,") and len(attributes["alt"]) > 20
    assert all("aria-label" in attributes or "aria-hidden" in attributes for attributes in page.of("svg"))
    identities = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identities) == len(set(identities))


HOSTILE = "<script>alert(1)<"                          # with a slash behind it, a folder that ends the name of a tag


@pytest.mark.parametrize("command", ["compare", "prefix"])
def test_what_users_name_is_text(capsys, tmp_path, command):
    folder = tmp_path / HOSTILE
    folder.mkdir()
    model = tmp_path / "<img src=x onerror=alert(2)>"
    model.mkdir()
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
              "hidden_size": 64, "intermediate_size": 128, "vocab_size": 1000, "max_position_embeddings": 4096,
              "torch_dtype": "bfloat16"}
    (model / "config.json").write_text(json.dumps(config))
    mooncake(folder, [(200 * i, 40, 5, [1, 2, 3]) for i in range(20)], "script>.jsonl")
    page, found = pages(capsys, tmp_path, command, f"{HOSTILE}/script>.jsonl", "--model", model.name,
                        "--available-kv-gib", "0.01", "--step-time", "constant:10ms")
    assert found["trace"]["source"] == "<script>alert(1)</script>.jsonl"
    assert "trace <script>alert(1)</script>.jsonl" in page.text
    assert found["config"]["model"] in page.text and "<" in found["config"]["model"]
    stands_alone(page)
    assert page.of("b") == [a for a in page.of("b") if not a] and "<img src=x" in page.text


@pytest.mark.parametrize("command", ["compare", "prefix"])
def test_file_names_that_are_no_text(capsys, tmp_path, command):
    name = os.fsdecode(b"bad\xff\nname.jsonl")
    mooncake(tmp_path, [(200 * i, 48, 5, [1, 2, 3]) for i in range(10)], name)
    page, _ = pages(capsys, tmp_path, command, name, "--num-gpu-blocks-override", 60)
    assert "trace 'bad\\udcff\\nname.jsonl'" in page.text
    assert f"pagedsim {command} --html page.html --json out.json -q $'bad\\xff\\x0aname.jsonl' --num" in page.text


def test_notes_that_hold_html_are_text(capsys, tmp_path):
    trace = lengths(tmp_path, [(20, 5)] * 10, "<i>a.csv").name
    page, found = pages(capsys, tmp_path, "compare", trace, *POOL, "--allocator", "paged-reserve", "--max-model-len", 64)
    assert any("<i>a.csv" in note for note in found["config"]["notes"])
    assert all(note in page.text for note in found["config"]["notes"])
    assert page.of("i") == []


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("traffic", "shared")
@pytest.mark.parametrize(("more", "says"), [
    (["--html", "-"], "--html -: only --json goes to standard output"),
    (["--html", "no/such/page.html"], "no/such/page.html: cannot write: No such file or directory"),
    (["--html", "."], ".: cannot write: Is a directory"),
    (["--html", "out.json", "--json", "out.json"], "out.json: --json would overwrite the output of --html"),
    (["--html", "week.csv"], "week.csv: --html would overwrite what is read"),
])
def test_outputs_that_cannot_be(capsys, tmp_path, name, more, says):
    if "week.csv" in more and name == "prefix":
        more, says = ["--html", "talk.jsonl"], "talk.jsonl: --html would overwrite the trace"
    before = sorted(path.name for path in tmp_path.iterdir())
    said = run(capsys, *COMMANDS[name], *more)
    assert (said.status, said.out, said.err) == (2, "", f"pagedsim {name}: error: {says}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


# ---------------------------------------------------------------------- tables as data
def test_a_table_in_a_terminal():
    made = TextTable(("name", "contiguous-max-x", ""), frozenset({0}))
    made.add_row("a")
    made.add_section("Time")
    made.add_row("b", "1", "<- here")
    assert [section.rows for section in made.sections] == [[("a", "", "")], [("b", "1", "<- here")]]
    wide, narrow = drawn(made), drawn(made, narrow=True)
    assert [(c.header, c.justify) for c in wide.columns] == [("name", "left"), ("contiguous-max-x", "right"), ("", "left")]
    assert narrow.columns[1].header == "contiguous\nmax-x"
    assert [str(cell) for cell in wide.columns[0].cells] == ["a", "", "Time", "  b"]


def test_a_part_of_the_built_in_workload_is_called_one(capsys, tmp_path):
    page, found = pages(capsys, tmp_path, "compare", "--limit", 30, "--allocator", "paged")
    assert "Where the KV cache goes: built-in chat workload (30 of 1,000 requests, " in page.text
    assert found["trace"]["source"].startswith("built-in chat workload (30 of 1,000 requests, ShareGPT lengths")
