"""A quiz as a page to print: an exercise a page, lines to write on, and the solutions on pages of their own."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.html.page import provenance, render
from experiments.quiz.levels import Given

LINES = 2


def handout(quiz: Sequence[Given], seed: int, answers: bool, words: Sequence[str]) -> str:
    """The page.

    Parameters
    ----------
    quiz : sequence of Given
    seed : int
        It was made with.
    answers : bool
        Whether the solutions follow.
    words : sequence of str
        Of the command that made it, ``pagedsim`` left out.
    """
    return render("quiz.html", title=f"Paged attention: exercises (seed {seed})", quiz=list(quiz), answers=answers, lines=LINES,
                  provenance=provenance(words))
