"""Some inputs for every door of the program: each ends in a result or in one line. `tests/fuzz` makes and judges them; its long
mode, ``python -m tests.fuzz``, a hundred thousand. PAGEDSIM_LONG=N makes N times as many here."""

from collections import Counter

import pytest
from fuzz.doors import DOORS, made_input
from fuzz.inputs import Input
from fuzz.judge import judged
from small import LONG

INPUTS = 3                                             # for each unit of a door's weight
LEAST = 40


@pytest.mark.parametrize("door", DOORS)
def test_a_result_or_one_line(door, tmp_path):
    kinds, found = Counter(), []
    for number in range(max(LEAST, INPUTS * DOORS[door].weight) * LONG):
        ending = judged(made_input(0, door, number), tmp_path / "w")
        kinds[ending.kind] += 1
        if ending.wrong:
            found.append(f"{door} {number}: {ending.kind}: {ending.where}: {ending.said[-300:]}")
    assert not found
    assert kinds["result"], "nothing ends well any more"
    assert kinds["refused"], "nothing is refused any more"


def test_an_input_is_the_same_every_time():
    for door in DOORS:
        assert made_input(5, door, 7) == made_input(5, door, 7)
        assert any(made_input(5, door, 7) != made_input(5, door, number) for number in range(8, 12))


# ---------------------------------------------------------------------- the judge
def ending_of(monkeypatch, tmp_path, main, **more):
    monkeypatch.setattr("fuzz.judge.main", main)
    return judged(Input(("compare",)), tmp_path / "w", **more)


def says(text, status=2, out=""):
    def main(_):
        import sys
        sys.stderr.write(text)
        sys.stdout.write(out)
        return status
    return main


@pytest.mark.parametrize(("main", "kind", "where"), [
    (says("", 0), "result", ""), (says("note: x\n", 0), "result", ""), (says("pagedsim compare: error: x\n"), "refused", ""),
    (says("pagedsim compare: error: x\ny\n"), "wrong line", "2 lines"), (says("pagedsim compare: error: x"), "wrong line",
                                                                         "0 lines"),
    (says("pagedsim compare: error: \u202e\n"), "wrong line", "what cannot be shown"),
    (says("no\n"), "wrong line", "the command is not"),
    (says("pagedsim compare: error: x\n", out="y"), "wrong line", "something on standard output"),
    (says("", 1), "wrong status", "status 1"), (says("Traceback (most recent call last)\n", 0), "wrong line", "Traceback"),
    (says("pagedsim compare: error: this takes more memory than there is\n"), "memory", "refused"),
    (says("pagedsim: error: cannot write to standard output: Is a directory\n"), "wrong line", "standard output is blamed"),
    (says("pagedsim compare: error: " + "x" * 9999 + "\n"), "wrong line", "too long")])
def test_what_is_right_and_what_is_wrong(monkeypatch, tmp_path, main, kind, where):
    ending = ending_of(monkeypatch, tmp_path, main)
    assert ending.kind == kind
    assert ending.where.startswith(where)


def test_other_exceptions_warnings_and_hangs_are_found(monkeypatch, tmp_path):
    import numpy as np

    def endless(_):
        while True:
            pass
    assert ending_of(monkeypatch, tmp_path, lambda _: [][0]).where.startswith("IndexError in ")
    assert ending_of(monkeypatch, tmp_path, lambda _: int("9" * 5000)).kind == "traceback"
    assert ending_of(monkeypatch, tmp_path, lambda _: np.array([1e300]) * 1e300 and 0).where.startswith("RuntimeWarning in ")
    assert ending_of(monkeypatch, tmp_path, endless, seconds=0.05).kind == "hang"


def test_memory_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr("fuzz.judge.MOST_GROWN", 1 << 20)

    def greedy(_):
        bytearray(b"x") * (2 << 30 >> 2)
        return 0
    assert ending_of(monkeypatch, tmp_path, greedy).kind == "memory"
