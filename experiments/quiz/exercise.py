"""What an exercise is: what is shown, what is asked, and the answers, read off the simulator's own allocators.

A level is a module with two functions and nothing random in the second:

    draw(rng)  -> plan        a small pool and a few requests; drawn again until something happens that is worth asking
    work(plan) -> Exercise    plays the plan on the real allocators and writes down what they did
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Drawn = TypeVar("Drawn")
MOST_TRIES = 5000


@dataclass(frozen=True)
class Question:
    """A question, its answer, and how one comes to it, sentence by sentence."""

    text: str
    answer: str
    working: tuple[str, ...]


@dataclass(frozen=True)
class Exercise:
    """What is shown before the questions.

    Parameters
    ----------
    setting : str
        The pool and its rules.
    requests : tuple of tuple of str
        A table, its first row the names of the columns.
    picture : tuple of str
        Lines of equally wide letters: the pool at the moment the questions begin.
    steps : tuple of str
        What happens from then on.
    questions : tuple of Question
    """

    setting: str
    requests: tuple[tuple[str, ...], ...]
    picture: tuple[str, ...]
    steps: tuple[str, ...]
    questions: tuple[Question, ...]


def tried(rng: np.random.Generator, propose: Callable[[np.random.Generator], Drawn], is_worth: Callable[[Drawn], bool]) -> Drawn:
    """The first plan drawn that is worth asking about.

    Raises
    ------
    RuntimeError
        After `MOST_TRIES` that are not.

    >>> tried(np.random.default_rng(0), lambda rng: int(rng.integers(10)), lambda plan: plan == 7)
    7
    """
    for _ in range(MOST_TRIES):
        plan = propose(rng)
        if is_worth(plan):
            return plan
    raise RuntimeError(f"none of {MOST_TRIES} plans drawn is worth asking about")


def name_of(row: int) -> str:
    """What a request is called: row 0 of the trace is r1."""
    return f"r{row + 1}"


def between(rng: np.random.Generator, least: int, most: int) -> int:
    """A whole number from ``least`` to ``most``, both included."""
    return int(rng.integers(least, most + 1))


def listed(things: Iterable[object], none: str = "none") -> str:
    """Things one after the other, as questions want block ids.

    >>> listed([7, 3]), listed([])
    ('7, 3', 'none')
    """
    return ", ".join(map(str, things)) or none


def together(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> together(["r1"]), together(["r1", "r2", "r3"])
    ('r1', 'r1, r2 and r3')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
