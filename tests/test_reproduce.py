"""The framework of `reproduce`: verdicts, exit status, JSON, the page of all, what a user may get wrong; fig2 and fig13 small."""

import hashlib
import json
import types

import numpy as np
import pytest
from cli_run import lengths, run

from experiments import reproduce
from experiments.paper import fig2, fig13, in_words, page, setting
from experiments.paper.outcome import Outcome, Row, Table, mean_absolute_difference
from experiments.paper.setting import Lab, PrefillStepTime
from sim.memory.allocator import PARTS
from sim.step_time import StepLoad

KEYS = ["label", "published", "ours", "difference", "tolerance", "ok"]      # what programs read


# ---------------------------------------------------------------------- rows and outcomes
@pytest.mark.parametrize(("row", "ok"), [
    (Row("", 20.0, 20.5, tolerance=0.5), True),
    (Row("", 20.0, 19.5, tolerance=0.5), True),
    (Row("", 20.0, 20.6, tolerance=0.5), False),
    (Row("", 20.0, 19.4, tolerance=0.5), False),
    (Row("", 5, 5, tolerance=0), True),
    (Row("", 5, 6, tolerance=0), False),
    (Row("", None, 4.0, most=4.0), True),
    (Row("", None, 4.1, most=4.0), False),
    (Row("", None, 16, least=16, most=128), True),
    (Row("", None, 15, least=16), False),
    (Row("", 20.0, 20.1, tolerance=0.5, most=20.0), False),     # both have to hold
    (Row("", 20.0, 99.0), None),
    (Row("", None, 3.0), None),
    (Row("", 20.0, None, tolerance=0.5), False),                # nothing computed is not reproduced
    (Row("", None, None), None),
])
def test_verdict_of_a_row(row, ok):
    assert row.ok is ok


def test_a_row_in_json():
    found = Row("a", 20.0, 20.5, "%", 0.75, note="n").json()
    assert list(found)[:6] == KEYS
    assert found == {"label": "a", "published": 20.0, "ours": 20.5, "difference": 0.5, "tolerance": 0.75, "ok": True, "unit": "%",
                     "bounds": None, "note": "n"}
    assert Row("b", None, 3, least=2).json()["bounds"] == [2, None]
    assert Row("c", None, 3).json()["difference"] is None


def test_an_outcome_is_ok_unless_a_row_is_outside():
    assert Outcome([]).ok
    assert Outcome([Row("", 1.0, 2.0), Row("", 1.0, 1.0, tolerance=0)]).ok
    assert not Outcome([Row("", 1.0, 1.0, tolerance=0), Row("", 1.0, 2.0, tolerance=0.5)]).ok


def test_the_mean_difference_goes_without_signs():
    assert mean_absolute_difference([Row("", 1.0, 2.0), Row("", 3.0, 1.0), Row("", None, 9.0)]) == 1.5


def test_rows_for_people():
    assert in_words.cells(Row("a", 20.0, 21.0, "%", 0.5, note="n").json()) == ["a", "20", "21 %", "+1", "0.5", "OUTSIDE", "n"]
    bounded = in_words.cells(Row("b", None, 15_728, least=2, most=9).json())
    assert bounded == ["b", "-", "15,728", "", "from 2 to 9", "OUTSIDE", ""]
    assert in_words.cells(Row("c", 1.0, 1.0).json()) == ["c", "1", "1", "+0", "", "", ""]


# ---------------------------------------------------------------------- the command, on made-up experiments
def experiment(rows, draws):
    """A module in the manner of experiments.paper."""
    def plot(outcome, path):
        draws.append(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write("picture")

    def result(lab):
        lab.progress("some work", 3)(3)
        drawn = int(lab.rng().integers(1000))
        return Outcome(rows, {"drawn": drawn}, [Table("a|b", ["x", "y"], [["1 < 2 | 3", 0.123456], ["none", None]])], ["a note"])

    return types.SimpleNamespace(TITLE="A title", SOURCE="A source", CONFIG=None, run=result, plot=plot)


@pytest.fixture
def draws():
    return []


@pytest.fixture(autouse=True)
def _somewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _made_up(monkeypatch, draws):
    """Two experiments, one right and one wrong."""
    modules = {"right": experiment([Row("r", 1.0, 1.0, tolerance=0.1)], draws),
               "wrong": experiment([Row("w", 1.0, 2.0, tolerance=0.1), Row("x|y", None, 2.0, note="p < q")], draws)}
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {"right": "about right", "wrong": "about wrong"})
    monkeypatch.setattr(reproduce, "load", modules.__getitem__)


@pytest.mark.usefixtures("_made_up")
def test_exit_status_says_whether_all_is_inside(capsys, tmp_path):
    good = run(capsys, "reproduce", "right", "-q")
    assert (good.status, good.err) == (0, "")
    assert "1 of 1 numbers inside their tolerance" in good.out
    bad = run(capsys, "reproduce", "wrong", "-q")
    assert (bad.status, bad.err) == (1, "")
    assert "OUTSIDE" in bad.out
    assert sorted(p.name for p in (tmp_path / "reproduction").iterdir()) == ["right.json", "right.png", "wrong.json", "wrong.png"]


@pytest.mark.usefixtures("_made_up")
def test_json_as_in_the_contract(capsys, draws):
    said = run(capsys, "reproduce", "wrong", "--json", "-", "-q", "--seed", "3", "--limit", "7")
    assert said.status == 1
    assert draws == []
    found = said.json
    assert {key: found[key] for key in ("schema", "name", "ok", "command", "seed")} == {
        "schema": 1, "name": "wrong", "ok": False, "command": "pagedsim reproduce wrong --seed 3 --limit 7", "seed": 3}
    assert [list(row)[:6] for row in found["rows"]] == [KEYS, KEYS]
    assert [row["ok"] for row in found["rows"]] == [False, None]
    assert found["rows"][0]["difference"] == 1.0


@pytest.mark.usefixtures("_made_up")
def test_nothing_but_json_on_standard_output(capsys):
    said = run(capsys, "reproduce", "right", "--json", "-")
    assert said.json["ok"] is True
    assert "A title" in said.err


@pytest.mark.usefixtures("_made_up")
def test_all_on_one_page(capsys, tmp_path, draws):
    said = run(capsys, "reproduce", "all", "--out", tmp_path / "deep" / "out", "-q")
    folder = tmp_path / "deep" / "out"
    assert said.status == 1
    assert sorted(p.name for p in folder.iterdir()) == [
        "reproduction.html", "reproduction.md", "right.json", "right.png", "wrong.json", "wrong.png"]
    assert draws == [str(folder / "right.png"), str(folder / "wrong.png")]
    text = (folder / page.NAME).read_text()
    assert text.startswith("# Published numbers, reproduced\n\n1 of 2 judged numbers are inside their stated tolerances; "
                           "1 more stand beside published ones without a verdict.\n")
    assert "![A title](right.png)" in text
    assert "`pagedsim reproduce right --seed 0` (seed 0). Published: A source." in text
    assert "**outside**" in text
    assert "- a note" in text


@pytest.mark.usefixtures("_made_up")
def test_all_as_json(capsys):
    found = run(capsys, "reproduce", "all", "--json", "-", "-q").json
    assert (found["name"], found["ok"], [r["name"] for r in found["results"]]) == ("all", False, ["right", "wrong"])


@pytest.mark.usefixtures("_made_up")
def test_a_cell_cannot_break_the_table_or_the_page(capsys, tmp_path):
    run(capsys, "reproduce", "all", "--out", tmp_path, "-q")
    text = (tmp_path / page.NAME).read_text()
    assert "| 1 &lt; 2 \\| 3 | 0.1235 |" in text
    assert "| none |  |" in text
    assert "x\\|y" in text
    assert "p &lt; q" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {3, 9}


def test_a_number_of_the_page_keeps_its_digits():
    cells = [page._cell(value) for value in (131072.0, 12345.678, 20.4321, 131072, None)]
    assert cells == ["131072", "12346", "20.43", "131072", ""]


@pytest.mark.usefixtures("_made_up")
def test_same_bytes_on_two_runs(capsys, tmp_path):
    for name in ("a", "b"):
        run(capsys, "reproduce", "all", "--out", tmp_path / name, "-q")
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


@pytest.mark.usefixtures("_made_up")
def test_the_seed_reaches_the_experiment(capsys):
    drawn = [run(capsys, "reproduce", "right", "--json", "-", "-q", "--seed", seed).json["data"]["drawn"] for seed in (0, 0, 1)]
    assert drawn == [int(np.random.default_rng(seed).integers(1000)) for seed in (0, 0, 1)]


@pytest.mark.usefixtures("_made_up")
@pytest.mark.parametrize(("arguments", "words"), [
    (["fig99"], ["fig99", "right", "wrong", "all"]),
    ([], ["NAME"]),
    (["right", "--plot", "picture.gif"], ["picture.gif", ".png"]),
    (["right", "--plot", "no/such/folder/p.png"], ["no/such/folder/p.png", "No such file"]),
    (["right", "--json", "no/such/folder/p.json"], ["no/such/folder/p.json"]),
    (["right", "--out", "file/deep"], ["file/deep", "cannot be made"]),
    (["right", "--out", "file"], ["file", "cannot be made"]),
    (["all", "--plot", "p.png"], ["--plot"]),
    (["all", "--json", "p.json"], ["--json"]),
    (["right", "--limit", "0"], ["--limit"]),
    (["right", "--seed", "-1"], ["--seed"]),
])
def test_what_a_user_gets_wrong_is_one_line(capsys, tmp_path, draws, arguments, words):
    (tmp_path / "file").write_text("")
    said = run(capsys, "reproduce", *arguments)
    assert said.status == 2
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert all(word in said.err for word in words)
    assert draws == []                                  # said before the work, not after it


# ---------------------------------------------------------------------- the real ones
def test_every_experiment_is_there():
    for name in reproduce.EXPERIMENTS:
        module = reproduce.load(name)
        for part in ("TITLE", "SOURCE", "CONFIG", "run", "plot"):
            assert hasattr(module, part), f"{name} has no {part}"


@pytest.mark.parametrize("name", ["fig2", "fig13", "blocksize", "waste", "concurrency", "vattention"])
def test_a_missing_trace_is_said(capsys, monkeypatch, tmp_path, name):
    monkeypatch.setenv("PAGEDSIM_SHARED", str(tmp_path))
    said = run(capsys, "reproduce", name, "--out", tmp_path, "-q")
    assert (said.status, said.out, len(said.err.splitlines())) == (2, "", 1)
    for word in ("84,226", "prompt_tokens,output_tokens", "--trace FILE", "../shared", "$PAGEDSIM_SHARED", setting.FILE):
        assert word in said.err


def test_a_trace_that_is_not_there(capsys):
    said = run(capsys, "reproduce", "fig2", "--trace", "nowhere.csv", "-q")
    assert (said.status, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert "nowhere.csv" in said.err


@pytest.fixture
def stand_in(tmp_path):
    """Lengths that fill the paper's pool."""
    rng = np.random.default_rng(7)
    return lengths(tmp_path, [(int(p), int(o)) for p, o in zip(rng.integers(10, 700, 80), rng.integers(1, 900, 80), strict=True)])


def test_the_columns_of_figure_2():
    parts = dict(zip(PARTS, (20.0, 10.0, 5.0, 1.0, 30.0, 4.0, 30.0), strict=True))   # ..., cached, external, remainder, idle
    assert fig2.columns(parts) == [20.0, 10.0, 5.0, 65.0]


def test_the_rows_of_figure_2():
    published = {label: [v or 0.0 for v in values] for label, values in fig2.PUBLISHED.items()}
    exact = fig2.rows(published, whole=True)
    assert len(exact) == 13                             # twelve that are published, and the mean of their differences
    assert [row.ok for row in exact] == [True] * 13
    off = {**published, "Orca (Max)": [20.4 + 0.9, 13.3, 57.3, 8.9]}
    assert [row.label for row in fig2.rows(off, whole=True) if row.ok is False] == ["Orca (Max): token states"]
    assert {row.ok for row in fig2.rows(off, whole=False)} == {None}


def test_figure_2_on_a_stand_in(capsys, stand_in, tmp_path):
    files = [tmp_path / name for name in ("one.svg", "two.svg")]
    for file in files:
        said = run(capsys, "reproduce", "fig2", "--trace", stand_in, "--plot", file, "-q")
        assert (said.status, said.err) == (0, "")
    assert files[0].read_bytes() == files[1].read_bytes()
    outcome = fig2.run(Lab(str(stand_in)))
    for shares in outcome.data["ours"].values():
        assert sum(shares) == pytest.approx(100)
    assert outcome.data["ours"]["vLLM"][0] > outcome.data["ours"]["Orca (Max)"][0]
    assert all(row.ok is None for row in outcome.rows)


def test_step_time_by_littles_law():
    # A batch of 30.42 at 2 requests a second is 15.21 s a request, in 337.99 steps; 132.44 at 30 is 4.41 s in 58.45.
    assert fig13.step_us("ShareGPT") == round(15.21e6 / 337.99) == 45_001
    assert fig13.step_us("Alpaca") == round(132.44 / 30 / 58.45 * 1e6) == 75_529


def test_lognormal_lengths_have_their_mean():
    found = fig13.lognormal(58.45, 0.9, 200_000, np.random.default_rng(0))
    assert found.min() >= 1
    assert found.mean() == pytest.approx(58.45, rel=0.01)


def test_figure_13_on_a_stand_in(capsys, stand_in, tmp_path):
    said = run(capsys, "reproduce", "fig13", "--trace", stand_in, "--limit", 60, "--out", tmp_path / "out", "-q")
    assert (said.status, said.err) == (0, "")
    assert (tmp_path / "out" / "fig13.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "out" / "fig13.json").read_text())
    assert len(found["rows"]) == 8
    assert {row["ok"] for row in found["rows"]} == {None}


def test_a_prompt_makes_a_step_longer():
    model = PrefillStepTime(20, 80)
    assert model.duration_us(StepLoad(5, 5, 9, 9)) == 20
    assert model.duration_us(StepLoad(9, 5, 9, 9)) == 100
    assert model.duration_us(StepLoad(*[np.array([3, 3])] * 4)).tolist() == [20, 20]
    assert model.describe() == "0.02 ms, and 0.08 ms more for a prompt"


def test_a_trace_of_requests_that_are_all_too_long_is_an_error(capsys, tmp_path):
    trace = lengths(tmp_path, [(3000, 4)])
    for name in ("fig2", "fig13", "fig15", "waste", "blocksize", "concurrency", "vattention"):
        said = run(capsys, "reproduce", name, "--trace", trace, "--json", "-", "-q")
        assert (said.status, said.out) == (2, "")
        assert said.err.strip() == f"pagedsim reproduce: error: {trace}: every request has more than 2,048 tokens"


@pytest.mark.parametrize(("arguments", "message"), [
    (("prefix", "--trace", "x.csv"), "--trace: prefix reads no trace"),
    (("sharing", "--trace", "x.csv"), "--trace: sharing reads no trace"),
    (("seeds", "--trace", "x.csv"), "--trace: seeds reads no trace"),
    (("seeds", "--limit", "3"), "--limit: seeds serves no requests"),
    (("seeds", "--out", ""), "--out: no folder name"),
])
def test_what_would_have_no_effect_is_refused(capsys, arguments, message):
    said = run(capsys, "reproduce", *arguments)
    assert (said.status, said.err.strip()) == (2, f"pagedsim reproduce: error: {message}")


def test_another_trace_than_the_papers_gets_no_verdict(monkeypatch, tmp_path):
    monkeypatch.setattr(fig13, "_mean_batch", lambda *_: 7.0)
    trace = lengths(tmp_path, [(5, 3)] * 7200)         # as many as the experiment takes, but another file
    assert {row.ok for row in fig13.run(Lab(str(trace))).rows} == {None}
    monkeypatch.setattr(setting, "ALL_ROWS", 7200)
    assert {row.ok for row in fig13.run(Lab(str(trace))).rows if row.label.startswith("ShareGPT")} == {True, False}


def test_the_trace_that_was_read_is_told(tmp_path):
    trace = lengths(tmp_path, [(5, 3), (2000, 49), (2000, 48)])
    lab = Lab(str(trace))
    assert lab.read() is None
    lab.sharegpt()
    digest = hashlib.sha256(trace.read_bytes()).hexdigest()
    assert lab.read() == {"source": trace.name, "requests": 2, "sha256": digest, "artifact": False}


@pytest.mark.usefixtures("_made_up")
def test_what_a_limit_leaves_without_a_verdict_is_told(capsys, tmp_path):
    said = run(capsys, "reproduce", "all", "-q", "--limit", 7)
    assert ("0 of 1 numbers with a verdict inside their tolerance; 1 more without a verdict (--limit 7: a part is not judged)\n"
            in said.out)
    text = (tmp_path / "reproduction" / page.NAME).read_text()
    assert "1 more stand beside published ones without a verdict (--limit 7: a part is not judged).\n" in text


def test_shares_of_a_pool_of_which_a_part_is_unused():
    assert fig2.of_the_whole([50.0, 20.0, 10.0, 20.0], 0.5) == [25.0, 10.0, 5.0, 60.0]
    assert fig2.of_the_whole([50.0, 20.0, 10.0, 20.0], 1.0) == [50.0, 20.0, 10.0, 20.0]
