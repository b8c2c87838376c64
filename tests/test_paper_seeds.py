"""The numbers of the articles: all there, each by the library, and the two slips marked as what they are."""

import json

import pytest
from cli_run import run

from experiments.paper import seeds
from experiments.paper.seeds import CONFIG, SLIP, Printed
from experiments.paper.setting import Lab

PRINTED = {                                            # as the articles print them, whatever the order
    "KiB": [512, 320, 128, 16],
    "bytes": [131_072, 0.53],
    "GiB": [2, 64, 16, 128, 40, 160, 13.0, 6.5, 3.3, 24.2, 12.1, 6.1, 130.4, 65.2, 32.6, 29, 3.69, 84.6, 84.486],
    "GB": [1.7, 14, 140, 810, 35, 80, 31],
    "x": [8, 1],
    "requests": [15, 61, 30, 15.75],
    "%": [65, 30, 5],
    "bits": [0.5, 0.25],
    "M tokens": [60, 15],
    "": [0],
}


def test_no_number_is_missing_or_made_up():
    found = {unit: [] for unit in PRINTED}
    for printed in CONFIG:
        found[printed.unit].append(printed.value)
    assert {unit: sorted(values) for unit, values in found.items()} == {unit: sorted(values) for unit, values in PRINTED.items()}


@pytest.mark.parametrize("printed", CONFIG, ids=lambda printed: printed.label)
def test_each_number(printed):
    row = printed.row()
    assert row.ok is (None if row.note.startswith(SLIP) else True)


def test_two_slips_and_their_formulas():
    rows = seeds.run(Lab()).rows
    slips = [i for i, row in enumerate(rows) if row.note.startswith(SLIP)]
    assert [(rows[i].published, round(rows[i].ours, 3), rows[i].ok) for i in slips] == [(0.5, 0.25, None), (84.6, 84.486, None)]
    held = [rows[i + 1] for i in slips]
    assert [(row.published, row.ok) for row in held] == [(0.25, True), (84.486, True)]
    assert [row.ours for row in held] == [rows[i].ours for i in slips]


def test_slips_are_wrong_as_printed():
    """Were they judged like the others, they would fail: the mark is not an excuse for a bug of ours."""
    for printed in CONFIG:
        if printed.note.startswith(SLIP):
            assert Printed(printed.label, printed.value, printed.unit, printed.ours, printed.decimals).row().ok is False


def test_a_number_half_a_digit_away_is_caught():
    assert Printed("", 3.3, "", lambda: 3.2501, 1).row().ok
    assert not Printed("", 3.3, "", lambda: 3.2499, 1).row().ok
    assert not Printed("", 16, "", lambda: 15.999).row().ok


def test_taking_all_heads_for_kv_heads_is_caught(monkeypatch):
    """The usual mistake: the 8B with 32 KV heads."""
    right = seeds.model("Llama-3-8B")
    monkeypatch.setattr(seeds, "model", lambda name: seeds.load_model("Llama-2-7B") if name == "Llama-3-8B" else right)
    wrong = {row.label for row in seeds.run(Lab()).rows if row.ok is False}
    assert {"a token, 8B with 8 KV heads", "at once, 4,096 tokens, 8B"} <= wrong


def test_the_command(capsys, tmp_path):
    said = run(capsys, "reproduce", "seeds", "--out", tmp_path, "-q")
    assert said.status == 0, said.err
    document = json.loads((tmp_path / "seeds.json").read_text())
    assert document["ok"] and len(document["rows"]) == len(CONFIG)
    assert (tmp_path / "seeds.png").stat().st_size > 10_000
    assert "44 of 44 numbers with a verdict inside their tolerance; 2 more without a verdict\n" in said.out
