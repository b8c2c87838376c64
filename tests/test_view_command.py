"""The document of the memory map and the command that writes it: clock, sizes, labels, errors, the commands of docs/view.md."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from cli_run import lengths, mooncake, run
from small import config_of, trace_of
from viewed import WORKED, lane_json, small

import experiments.view
from experiments.html.page import data_block
from experiments.viewer.document import LaneLog, document
from experiments.viewer.wording import Names
from sim.catalog import ALLOCATORS
from sim.engine import Engine


def test_stops_are_common_and_in_the_order_of_what_happens():
    lanes = [(view.log, view.run) for view in (small(WORKED, name, 6, max_model_len=8) for name in ("paged", "contiguous-max"))]
    made = document(lanes, ["a", "b"])
    assert made["us"] == [0, 0, 0, 1, 1, 2, 3] and made["labels"] == {"0": "a", "1": "b"}
    assert [lane["at"] for lane in made["lanes"]] == [[0, 1, 2, 3, 4, 5, 6]] * 2
    assert made["lanes"][0]["names"] == ["r0", "r1"] and made["lanes"][1]["arena"]


def test_times_that_javascript_would_round_are_text():
    late = 2**53 + 1
    view = small([(5, 3), (6, 1, late)], "paged", 6, max_model_len=8)
    made = document([(view.log, view.run)], ["a", "b"])
    assert str(late) in made["us"] and late not in made["us"]
    assert str(late) in str(data_block("run", made))


def test_rejected_requests_are_named():
    view = small([(5, 3), (31, 2)], "paged", 6)
    assert lane_json(view.log, view.run)["notes"] == ["rejected at arrival (larger than the pool): r1"]


@pytest.mark.parametrize("sized", [("--num-gpu-blocks-override", 97, "--max-model-len", 256),
                                   ("--num-gpu-blocks-override", 20_000, "--max-model-len", 256)], ids=["small", "large"])
def test_2000_events_are_under_3_megabytes(capsys, tmp_path, sized):
    recipe, trace, page = tmp_path / "recipe.toml", tmp_path / "trace.csv", tmp_path / "map.html"
    recipe.write_text('requests = 430\narrivals = "poisson:rate=16"\nprompt = "uniform:least=8,most=48"\n'
                      'output = "uniform:least=8,most=120"\nprefix = "system:tokens=48,prompts=2"\n')
    assert run(capsys, "trace", "synth", recipe, trace, "-q").status == 0
    assert run(capsys, "view", trace, *sized, "--html", page, "-q").status == 0
    made = document_of(page)
    assert page.stat().st_size < 3_000_000 and len(made["us"]) == 2000
    assert re.fullmatch(r"2,000 of [\d,]+ events \(--events 2,000\)", made["thinned"])


def test_a_page_is_held_under_its_bound_and_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(experiments.view, "HEAVY_BYTES", 1_000_000)
    recipe, trace, page = tmp_path / "recipe.toml", tmp_path / "trace.csv", tmp_path / "map.html"
    recipe.write_text('requests = 300\narrivals = "poisson:rate=50"\nprompt = "uniform:least=200,most=1500"\n'
                      'output = "uniform:least=2,most=300"\nprefix = "system:tokens=64,prompts=4"\n')
    assert run(capsys, "trace", "synth", recipe, trace, "-q").status == 0
    said = run(capsys, "view", trace, "--num-gpu-blocks-override", 1998, "--max-model-len", 2048, "--html", page,
               "--events", 10_000, "--allocator", "paged", "--allocator", "paged-prefix")
    made = document_of(page)
    assert 800_000 < page.stat().st_size < 1_000_000
    assert re.fullmatch(rf"{len(made['us']):,} of [\d,]+ events \(a page is held under 1 MB\)", made["thinned"])
    assert f" MB, {made['thinned']}, opens" in said.out


def document_of(page):
    return json.loads(re.search(r'id="run">(.*?)</script>', page.read_text(), re.S)[1])


def test_the_command_writes_one_page_that_is_the_same_again(capsys, tmp_path):
    page = tmp_path / "map.html"
    said = run(capsys, "view", "--html", page)
    assert said.status == 0 and said.out.startswith(f"wrote {page}: 0.") and "no trace, no --model" in said.err
    first = page.read_bytes()
    assert run(capsys, "view", "--html", page, "-q") == (0, "", "")
    again = page.read_bytes()
    assert first.replace(b" -q", b"") == again.replace(b" -q", b"")
    names = [lane["name"] for lane in document_of(page)["lanes"]]
    assert names == ["contiguous-max", "contiguous-oracle", "paged", "paged-prefix"]


def test_what_is_drawn_is_there_as_json(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("view", "--allocator", "paged", "--limit", 5)
    made = run(capsys, *words, "--json", "-").json
    assert list(tmp_path.iterdir()) == []                  # no page where JSON alone is asked for
    said = run(capsys, *words, "--json", "map.json", "--html", "map.html")
    assert said.out.startswith("wrote map.html: ") and json.loads((tmp_path / "map.json").read_text()) == made
    drawn = document_of(tmp_path / "map.html")
    assert {name: made[name] for name in drawn} == drawn
    assert (made["schema"], made["trace"]["requests"], set(made) - set(drawn)) == (
        1, 5, {"schema", "pagedsim", "trace", "block_size", "notes"})


def test_the_file_has_a_name_of_its_own(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "view", "--allocator", "paged", "--limit", 5).out.startswith("wrote memory-map.html: ")
    assert (tmp_path / "memory-map.html").exists()


def test_a_trace_of_ones_own_with_a_model_says_bytes(capsys, tmp_path):
    page = tmp_path / "map.html"
    trace = mooncake(tmp_path, [(0, 40, 5, [1, 2, 3]), (10, 40, 5, [1, 2, 4])])
    said = run(capsys, "view", trace, "--model", "Llama-3.1-8B", "--available-kv-gib", 1, "--max-model-len", 4096,
               "--html", page, "-q", "--allocator", "paged-prefix")
    assert said.status == 0
    [lane] = document_of(page)["lanes"]
    assert lane["fixed"][1] == "bytes: 8,176 slots × 131,072 bytes a token = 1,071,644,672 bytes = 1.00 GiB"


@pytest.mark.parametrize(("options", "named"), [
    (("--html", "-"), "--html -: only --json goes to standard output"), (("--events", 3), "at least 10 is wanted"),
    (("-dp", 2), "--data-parallel-size 2: replicas are not drawn"),
    (("--allocator", "page"), "--allocator"), (("--warm-trace", "x.csv"), "--warm-trace is for a trace file"),
    (("--rate", 1e-12), "--rate 1e-12: "),
    (("--num-gpu-blocks-override", 3, "--max-model-len", 256), "fewer than one request"),
])
def test_what_cannot_be_is_one_line(capsys, tmp_path, options, named):
    said = run(capsys, "view", "--html", tmp_path / "map.html", *options)
    assert said.status == 2 and said.err.count("\n") == 1 and named in said.err
    assert list(tmp_path.iterdir()) == []


def test_the_help_says_what_is_built_in(capsys):
    assert "40 requests behind 2 system prompts of 48 tokens" in " ".join(run(capsys, "view", "--help").out.split())


def test_a_page_does_not_overwrite_its_trace(capsys, tmp_path):
    trace = lengths(tmp_path, [(20, 5)])
    said = run(capsys, "view", trace, "--html", trace)
    assert said.status == 2 and "--html would overwrite what is read" in said.err


def test_hostile_labels_are_data():
    labels = ["<script>alert(1)</script>", "</script>"]
    log = LaneLog("paged", Names(labels))
    facts = Engine(trace_of(WORKED), config_of(6, 4, 8, longest_jump=1), "paged", observers=[log]).run()
    assert str(data_block("run", document([(log, facts)], labels))).count("<") == 2


def commands():
    text = (Path(__file__).resolve().parents[1] / "docs" / "view.md").read_text(encoding="utf-8")
    return [line[2:] for line in text.splitlines() if line.startswith("$ pagedsim ")]


@pytest.mark.parametrize("command", commands())
def test_the_commands_of_the_page_run(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    lengths(tmp_path, [(20, 5), (30, 6)], "trace.csv")
    assert run(capsys, *shlex.split(command, comments=True)[1:]).out.startswith("wrote map.html: ")


def test_a_heavy_page_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(experiments.view, "HEAVY_BYTES", 1000)
    said = run(capsys, "view", "--html", tmp_path / "map.html", "--allocator", "paged")
    assert ", 10 of " in said.out
    assert "note: a page of 0.1 MB: fewer --events, --limit or fewer allocators make it lighter" in said.err


def test_an_allocator_of_ones_own_is_drawn(capsys, tmp_path, monkeypatch):
    """One line in the catalogue is enough."""
    monkeypatch.setitem(ALLOCATORS, "mine", ALLOCATORS["paged"])
    page = tmp_path / "map.html"
    trace = lengths(tmp_path, [(9, 3)] * 3)
    said = run(capsys, "view", trace, "--num-gpu-blocks-override", "9", "--allocator", "mine", "--html", page)
    assert said.status == 0 and '"about":"mine"' in page.read_text().replace(": ", ":")
