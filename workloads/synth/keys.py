"""What may stand in a table: the keyword-only parameters of a generator are its keys, their annotations what they take.

    def gamma(rng, n, *, rate: Rate, burstiness: Burstiness = 1.0)        [arrivals]
                         ^^^^        ^^^^^^^^^^                           kind = "gamma"
                         required    may be left out                      rate = 2.0

So a new generator is one function and one line in its dict of names: the keys, their defaults and the complaints follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter, signature
from typing import Annotated, Any, Protocol, TypeVar, get_type_hints

from workloads.messages import show
from workloads.request import InputError
from workloads.synth.spec import parse_spec

T = TypeVar("T")

MOST_TOKENS = 10_000_000                               # no model reads as much: a number above it is a slip
MOST_KINDS = 1_000_000                                 # prompts, documents, users to choose from


class Key(Protocol):
    """Turns what stands in a table into an argument, or says on one line what is wrong with it."""

    def read(self, value: object, where: str) -> Any:
        """The argument; ``where`` names table and key."""


@dataclass(frozen=True)
class Number:
    """A number from ``least`` to ``most``; ``above`` leaves ``least`` itself out.

    >>> Number(0.0, 10.0).read(2, "arrivals.rate")
    2.0
    """

    least: float
    most: float
    above: bool = False
    whole: bool = False

    def read(self, value: object, where: str) -> float:
        """The number, an int where it is a whole one."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            raise InputError(f"{where}: {display(value)} is not a {'whole ' if self.whole else ''}number")
        if not (self.least < value if self.above else self.least <= value) or not value <= self.most:
            from_ = f"above {self.least:,}" if self.above else f"from {self.least:,}"
            raise InputError(f"{where}: must be {from_} to {self.most:,}, not {display(value)}")
        return value if self.whole else float(value)


@dataclass(frozen=True)
class Switch:
    """True or false."""

    def read(self, value: object, where: str) -> bool:
        """The value, as it is."""
        if not isinstance(value, bool):
            raise InputError(f"{where}: must be true or false, not {display(value)}")
        return value


@dataclass(frozen=True)
class Word:
    """One of some words."""

    words: Callable[[], tuple[str, ...]]

    def read(self, value: object, where: str) -> str:
        """The word."""
        if not isinstance(value, str) or value not in self.words():
            raise InputError(f"{where}: unknown {display(value)}; there are {', '.join(self.words())}")
        return value


@dataclass(frozen=True)
class Kind:
    """A table with the ``kind`` of a generator and its keys."""

    kinds: Mapping[str, Callable[..., Any]] = field(hash=False)

    def read(self, value: object, where: str) -> Callable[..., Any]:
        """The generator, its keys filled in."""
        return pick(self.kinds, value, where)


Count = Annotated[int, Number(1, MOST_KINDS, whole=True)]
CountOrNone = Annotated[int, Number(0, MOST_KINDS, whole=True)]
Exponent = Annotated[float, Number(0.0, 20.0)]
Share = Annotated[float, Number(0.0, 1.0)]
Flag = Annotated[bool, Switch()]


def display(value: object) -> str:
    """A value on one line, whatever it is; the thousands of digits of a huge number are not written out.

    >>> display(3), display(2**99999)
    ('3', 'a number of 100,000 bits')
    """
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length():,} bits"
    return show(value)


def keys_of(function: Callable[..., Any]) -> Iterator[tuple[str, Key, Any]]:
    """Name, kind of value and default (`Parameter.empty` where it is required) of each key of a generator."""
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in signature(function).parameters.items():
        if parameter.kind is Parameter.KEYWORD_ONLY:
            yield name, hints[name].__metadata__[0], parameter.default


def bind(function: Callable[..., Any], table: Mapping[str, object], where: str, also: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments a table gives a generator; keys that are ``also`` known are read elsewhere.

    Raises
    ------
    InputError
        For a key it does not have, one that is missing, or a value it does not take.

    >>> def grow(rng, n, *, tokens: Count, share: Share = 0.5): ...
    >>> bind(grow, {"tokens": 3}, "prefix")
    {'tokens': 3}
    """
    known = {name: (key, default) for name, key, default in keys_of(function)}
    here, inside = (f"{where}: ", f"{where}.") if where else ("", "")
    for name in table:
        if name not in known:
            raise InputError(f"{here}unknown key {display(name)}; the keys are {', '.join([*known, *also])}")
    for name, (_, default) in known.items():
        if default is Parameter.empty and name not in table:
            raise InputError(f"{here}needs the key {display(name)}")
    return {name: known[name][0].read(value, f"{inside}{name}") for name, value in table.items()}


def table_of(value: object, where: str) -> dict[str, object]:
    """A table, given as one or in its short form.

    >>> table_of("poisson:rate=2", "arrivals")
    {'kind': 'poisson', 'rate': 2}
    """
    if isinstance(value, str):
        return parse_spec(value, where)
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: must be a table, not {display(value)}")
    return {str(name): one for name, one in value.items()}


def pick(kinds: Mapping[str, Callable[..., Any]], value: object, where: str, also: Sequence[str] = ()) -> Callable[..., Any]:
    """The generator a table names with its ``kind``, the other keys filled in.

    Raises
    ------
    InputError
        If there is no such kind (lists those there are), or as `bind`.
    """
    table = table_of(value, where)
    kind = table.pop("kind", None)
    if kind is None:
        raise InputError(f"{where}: needs a kind; the kinds are {', '.join(kinds)}")
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{where}: unknown kind {display(kind)}; the kinds are {', '.join(kinds)}")
    return partial(kinds[kind], **bind(kinds[kind], table, where, also))


def told(where: str, function: Callable[..., T], *arguments: Any) -> T:
    """The outcome of a function; what it complains about is said with its place in the table."""
    try:
        return function(*arguments)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None
