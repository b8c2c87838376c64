"""`pagedsim quiz`: the same seed gives the same quiz, answers come only when asked for, the handout is whole and escapes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_run import run

from experiments.cli import main
from experiments.quiz.exercise import MOST_TRIES, Exercise, Question, tried
from experiments.quiz.handout import LINES, handout
from experiments.quiz.levels import LEVELS, Given, give, load
from experiments.quiz.text import WIDTH, lines

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "quiz.md").read_text(encoding="utf-8")
NUMBERS = r"(?m)^(Exercise )?\d\."
HOSTILE = '<script>alert("1")</script>&'


def said(capsys, *arguments):
    done = run(capsys, "quiz", *arguments)
    assert (done.status, done.err) == (0, "")
    return done.out


# ---------------------------------------------------------------------- what is asked
def test_one_exercise_of_each_level_easy_first(capsys):
    assert re.findall(r"^Exercise (\d)\. .* \(level (\d): (\S+)\)$", said(capsys), re.M) == [
        (f"{i}", f"{i}", name) for i, name in enumerate(LEVELS, 1)]


@pytest.mark.parametrize(("number", "name"), list(enumerate(LEVELS, 1)))
def test_a_level_has_a_number_and_a_name_and_is_the_same_among_others(capsys, number, name):
    alone = said(capsys, "--level", name, "--seed", "4")
    assert alone == said(capsys, "--level", number, "--seed", "4")
    assert re.sub(NUMBERS, "", alone) in re.sub(NUMBERS, "", said(capsys, "--seed", "4"))


def test_the_same_seed_gives_the_same_quiz_in_any_process(capsys):
    here = said(capsys, "--answers", "--seed", "11", "--questions", "50")
    for seed in ("1", "2"):
        done = subprocess.run([sys.executable, "-m", "experiments.cli", "quiz", "--answers", "--seed", "11", "--questions", "50"],
                              env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout == here
    assert said(capsys, "--answers", "--seed", "12", "--questions", "50") != here


def test_answers_come_only_when_asked_for(capsys):
    with_answers = said(capsys, "--seed", "5", "--answers").splitlines()
    without = [line for line in with_answers if not re.match(r"     Answer: |       ", line)]
    kept = [line for line in said(capsys, "--seed", "5").splitlines() if not line.startswith("       ")]
    assert [line for line in without if line] == [line for line in kept if line]
    assert not any("Answer" in line for line in kept) and sum("Answer: " in line for line in with_answers) == 36


@pytest.mark.parametrize("n", [1, 4, 5, 13])
def test_so_many_questions(capsys, n):
    out = said(capsys, "--level", "holes", "--level", "sharing", "--questions", n)
    asked = [f"{exercise}.{place}" for exercise, most in ((1, 4), (2, 5), (3, 4)) for place in range(1, most + 1)]
    assert re.findall(r"^(\d\.\d)  ", out, re.M) == asked[:n]


def test_lines_fit_and_a_long_text_hangs_under_its_beginning():
    every = [line for seed in range(3) for line in lines([give(name, seed, 1) for name in LEVELS], answers=True)]
    assert max(map(len, every)) <= WIDTH + 4
    long = Given("x", 1, "X", Exercise("s", (("a",),), (), (), (Question("word " * 60, "yes", ()),)))
    asked = lines([long], answers=False)[-3:]
    assert asked[0].startswith("1.1  word") and all(line.startswith("     word") for line in asked[1:])


def test_a_plan_that_is_never_worth_it_is_an_error_and_no_endless_loop():
    left = iter(range(MOST_TRIES))
    with pytest.raises(RuntimeError, match=f"none of {MOST_TRIES} plans drawn"):
        tried(np.random.default_rng(0), lambda rng: next(left), lambda plan: False)


@pytest.mark.parametrize("level", LEVELS)
def test_draws_are_far_from_the_bound(level, monkeypatch):
    """A fifth of the tries allowed is enough for every seed here."""
    module = load(level)
    monkeypatch.setattr("experiments.quiz.exercise.MOST_TRIES", MOST_TRIES // 5)
    for seed in range(1000, 1015):
        assert module.draw(np.random.default_rng(seed)) == module.draw(np.random.default_rng(seed))


# ---------------------------------------------------------------------- arguments and files
@pytest.mark.parametrize(("arguments", "named"), [
    (("--level", "8"), "--level '8': a number from 1 to 7 is wanted, or one of holes, "),
    (("--level", "0"), "--level '0'"), (("--level", "page"), "--level 'page'"), (("--level", "٣"), "--level"),
    (("--questions", "0"), "at least 1 is wanted, not 0"), (("--questions", "501"), "at most 500"),
    (("--seed", "-1"), "at least 0 is wanted"), (("--html", "-"), "--html -: only --json goes to standard output"),
    (("--html", "no/such/folder.html"), "no/such/folder.html: cannot write"), (("--html", ""), "no file name"),
    (("--json", "a", "--html", "a"), "would overwrite"), (("extra",), "unrecognized arguments: extra"),
])
def test_a_bad_argument_is_one_line(capsys, tmp_path, monkeypatch, arguments, named):
    monkeypatch.chdir(tmp_path)
    done = run(capsys, "quiz", *arguments)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert named in done.err and list(tmp_path.iterdir()) == []


def test_json(capsys):
    plain, answered = (run(capsys, "quiz", "--level", "3", "--json", "-", *more).json for more in ((), ("--answers",)))
    assert [set(q) for q in plain["exercises"][0]["questions"]] == [{"text"}] * 5
    assert [set(q) for q in answered["exercises"][0]["questions"]] == [{"text", "answer", "working"}] * 5
    exercise = give("paging", 0, 1).exercise
    assert [q["answer"] for q in answered["exercises"][0]["questions"]] == [q.answer for q in exercise.questions]
    assert (plain["schema"], plain["seed"], plain["exercises"][0]["level"]) == (1, 0, "paging")
    assert plain["exercises"][0]["picture"] == list(exercise.picture)


def test_files_are_named_and_quiet_does_not(capsys, tmp_path):
    html, json = tmp_path / "quiz.html", tmp_path / "quiz.json"
    assert said(capsys, "--level", "1", "--html", html, "--json", json) == f"1 exercise, 4 questions: {html} and {json}\n"
    assert html.stat().st_size > 1000 and json.stat().st_size > 1000
    assert said(capsys, "--level", "1", "--html", html, "-q") == ""
    assert said(capsys, "--level", "1", "--html", html, "--json", "-").startswith('{\n "schema": 1')


# ---------------------------------------------------------------------- the handout
def test_the_handout_has_a_sheet_an_exercise_and_room_for_answers(capsys, tmp_path):
    said(capsys, "--seed", "5", "--html", tmp_path / "quiz.html")
    text = (tmp_path / "quiz.html").read_text(encoding="utf-8")
    assert text.count('<section class="sheet">') == 7 and text.count('<div class="line"></div>') == LINES * 36
    assert "Solutions" not in text and 'class="answer"' not in text
    assert ".sheet + .sheet, .solutions { break-before: page; }" in text and "exercises (seed 5)" in text
    assert re.findall(r"https?://|//cdn|@import|url\(", text) == []
    assert f"pagedsim quiz --seed 5 --html {tmp_path}" in text


def test_the_solutions_are_behind_the_sheets(capsys, tmp_path):
    said(capsys, "--seed", "5", "--html", tmp_path / "quiz.html", "--answers")
    sheets, solutions = (tmp_path / "quiz.html").read_text(encoding="utf-8").split('<section class="solutions">')
    assert sheets.count('<section class="sheet">') == 7 and 'class="answer"' not in sheets
    answers = re.findall(r'<span class="answer">(.*?)</span>', solutions)
    assert answers == [q.answer for name in LEVELS for q in give(name, 5, 1).exercise.questions]


def test_the_handout_escapes_what_it_shows():
    given = Given(HOSTILE, 1, HOSTILE, Exercise(HOSTILE, ((HOSTILE,), (HOSTILE,)), (HOSTILE,), (HOSTILE,),
                                                (Question(HOSTILE, HOSTILE, (HOSTILE,)),)))
    text = handout([given], 0, True, ["quiz", "--html", HOSTILE])
    assert "<script" not in text and text.count("&lt;script&gt;") == 11


# ---------------------------------------------------------------------- docs/quiz.md
def test_the_page_shows_what_comes_out(capsys):
    command = "pagedsim quiz --level paging --seed 7 --answers"
    shown, = re.findall(r"^```text\n(.*?)^```", PAGE, re.M | re.S)
    assert f"```console\n$ {command}\n```\n\n```text\n" in PAGE
    assert said(capsys, *shlex.split(command)[2:]) == shown


def test_commands_of_the_page_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ pagedsim (.*)$", PAGE, re.M)
    assert len(commands) == 7
    for command in commands:
        assert main(shlex.split(command, comments=True)) == 0, command
    capsys.readouterr()
    assert {path.name for path in tmp_path.iterdir()} == {"questions.html", "solutions.html"}


def test_the_page_and_the_help_name_every_level(capsys):
    assert re.findall(r"^\| (\d) \| `(\S+)` \|", PAGE, re.M) == [(str(i), name) for i, name in enumerate(LEVELS, 1)]
    out = run(capsys, "quiz", "--help").out
    assert all(f"  {i}  {name} " in out for i, name in enumerate(LEVELS, 1)) and "examples:" in out
