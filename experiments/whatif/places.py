"""What is wrong at a key of a scenario."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from workloads.request import InputError

T = TypeVar("T")


class Wrong(Exception):
    """Something is wrong at ``section.key``."""

    def __init__(self, problem: str, *keys: str) -> None:
        super().__init__(problem)
        self.problem, self.keys = problem, keys


def at(keys: tuple[str, ...], function: Callable[..., T], *arguments: Any) -> T:
    """The outcome of a function; what it complains about is said with the keys, section first.

    Raises
    ------
    Wrong
    """
    try:
        return function(*arguments)
    except InputError as error:
        raise Wrong(str(error), *keys) from None
