"""Modules that are loaded when something of them is first asked for: what few commands need costs the others no time.

An import stands at the head of a file, where a reader and a type checker see it; at run time a `Later` takes its place:

    if TYPE_CHECKING:
        from workloads import synthetic
    else:
        synthetic = Later("workloads.synthetic")
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

Named = TypeVar("Named")


class Later:
    """Stands for a module; whatever is asked of it is asked of the module.

    Parameters
    ----------
    name : str
        Of the module, in full.

    >>> words = Later("textwrap")
    >>> words.dedent("  two")
    'two'
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


class LaterTable(Mapping[str, Named]):
    """Names and what they stand for, of which only the names are there from the beginning.

    Parameters
    ----------
    places : mapping of name to str
        ``module:attribute``.

    >>> table = LaterTable({"cut": "textwrap:shorten", "fill": "textwrap:fill"})
    >>> list(table), table["fill"]("two words", 5)
    (['cut', 'fill'], 'two\\nwords')
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> Named:
        module, attribute = self._places[name].split(":")
        found: Named = getattr(importlib.import_module(module), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._places                    # without loading what it stands for

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
