"""The levels, easy first, and a quiz made of them: the same seed gives the same exercises in any process."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol

import numpy as np

from experiments.quiz.exercise import Exercise
from workloads.request import InputError

LEVELS = {
    "holes": "contiguous reservations: first fit, best fit, external fragmentation",
    "rounding": "bytes a token, blocks that fit, internal fragmentation",
    "paging": "block tables, the free queue, who fits",
    "sharing": "prefix hits, ref counts, slots saved",
    "copy-on-write": "samples that branch: who copies, and into which block",
    "eviction": "the order of the free queue with cached blocks in it, who is evicted",
    "preemption": "who leaves when the pool runs out, what is computed again",
}
"""Name -> what it asks; each is a module of experiments.quiz with TITLE, draw(rng) and work(plan)."""


class Level(Protocol):
    """What a module of a level offers."""

    TITLE: str

    def draw(self, rng: np.random.Generator) -> Any:
        """A plan worth asking about."""
        ...

    def work(self, plan: Any) -> Exercise:
        """The exercise, its answers read off the simulator."""
        ...


@dataclass(frozen=True)
class Given:
    """An exercise of a quiz: its level by name and number, and the level's title."""

    level: str
    number: int
    title: str
    exercise: Exercise


def load(name: str) -> Level:
    """The module of one level."""
    module: Any = importlib.import_module(f"experiments.quiz.{name.replace('-', '_')}")
    return module  # type: ignore[no-any-return]


def level_named(text: str) -> str:
    """The level that a name or a number from 1 on stands for.

    Raises
    ------
    InputError

    >>> level_named("3"), level_named("eviction")
    ('paging', 'eviction')
    """
    name = {str(number): name for number, name in enumerate(LEVELS, 1)}.get(text, text)
    if name not in LEVELS:
        raise InputError(f"--level {text!r}: a number from 1 to {len(LEVELS)} is wanted, or one of {', '.join(LEVELS)}")
    return name


def give(name: str, seed: int, turn: int) -> Given:
    """The exercise of a level for a seed; ``turn`` counts a level's exercises from 1.

    >>> give("holes", 0, 1) == give("holes", 0, 1), give("holes", 0, 1) == give("holes", 0, 2)
    (True, False)
    """
    level, number = load(name), list(LEVELS).index(name) + 1
    return Given(name, number, level.TITLE, level.work(level.draw(np.random.default_rng([seed, number, turn]))))


def quiz(names: Sequence[str], seed: int, questions: int | None = None) -> list[Given]:
    """Exercises of these levels in turn.

    Parameters
    ----------
    names : sequence of str
    seed : int
    questions : int, optional
        How many in all: exercises are given until there are so many, and the last has only the first of its questions. Not said:
        one exercise a level.

    >>> [(given.level, len(given.exercise.questions)) for given in quiz(["holes"], 0, questions=6)]
    [('holes', 4), ('holes', 2)]
    """
    if questions is None:
        return [give(name, seed, 1) for name in names]
    made: list[Given] = []
    for turn, name in ((turn, name) for turn in count(1) for name in names):
        given = give(name, seed, turn)
        kept = given.exercise.questions[:questions]
        made.append(replace(given, exercise=replace(given.exercise, questions=kept)))
        questions -= len(kept)
        if not questions:
            break
    return made
