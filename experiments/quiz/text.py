"""A quiz in lines of text, for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from experiments.quiz.exercise import Question
from experiments.quiz.levels import Given
from experiments.quiz.pictures import table

WIDTH = 108


def lines(quiz: Sequence[Given], answers: bool) -> list[str]:
    """All exercises, numbered from 1; with ``answers`` each question is followed by its own."""
    made: list[str] = []
    for number, given in enumerate(quiz, 1):
        made += ["", ""] if made else []
        made += _exercise(number, given, answers)
    return made


def _exercise(number: int, given: Given, answers: bool) -> Iterator[str]:
    exercise = given.exercise
    yield f"Exercise {number}. {given.title} (level {given.number}: {given.level})"
    yield ""
    yield from textwrap.wrap(exercise.setting, WIDTH)
    yield ""
    yield from (f"    {line}" for line in table(exercise.requests))
    yield ""
    if exercise.picture:
        yield from (f"    {line}" for line in exercise.picture)
        yield ""
    for step in exercise.steps:
        yield from _hanging("  - ", step)
    for place, question in enumerate(exercise.questions, 1):
        yield ""
        yield from _hanging(f"{number}.{place}  ", question.text)
        if answers:
            yield from _answer(question)


def _answer(question: Question) -> Iterator[str]:
    yield from _hanging("     Answer: ", question.answer)
    for sentence in question.working:
        yield from _hanging("       - ", sentence)


def _hanging(lead: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))
