"""The short form of a table for the command line: ``kind:key=value,key=value``.

    system:tokens=512,prompts=20                        {kind = "system", tokens = 512, prompts = 20}
    rag:document_tokens=(lognormal:mean=400,sigma=1)    {..., document_tokens = "lognormal:mean=400,sigma=1"}
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.messages import show
from workloads.request import InputError

LONGEST_SPEC = 10_000                                  # characters


def parse_spec(text: str, where: str = "spec") -> dict[str, object]:
    """The table a short form stands for.

    Whole numbers, other numbers, true and false are read as such, everything else is a string. A value in brackets may hold
    commas: it is a string without them, the short form of a distribution. What the keys mean is not looked at.

    Parameters
    ----------
    text : str
        ``kind`` or ``kind:key=value,key=value``.
    where : str
        What complaints call it.

    Raises
    ------
    InputError
        If there is no kind, a part has no ``=``, a key comes twice, brackets do not match, or it is over 10,000 characters.

    >>> parse_spec("few-shot:families=20,shots=(uniform:least=1,most=5)")
    {'kind': 'few-shot', 'families': 20, 'shots': 'uniform:least=1,most=5'}
    """
    if len(text) > LONGEST_SPEC:
        raise InputError(f"{where}: {len(text):,} characters are too many for {show(text)}")
    kind, colon, rest = text.partition(":")
    if not kind.strip():
        raise InputError(f"{where}: {show(text)} has no kind; the form is kind:key=value,key=value")
    table: dict[str, object] = {"kind": kind.strip()}
    for part in _parts(rest, where) if colon else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not key or not equals or not value:
            raise InputError(f"{where}: {show(part)} in {show(text)} is not key=value")
        if key in table:
            raise InputError(f"{where}: the key {show(key)} comes twice in {show(text)}")
        table[key] = value_of(value)
    return table


def _parts(text: str, where: str) -> Iterator[str]:
    """What stands between the commas outside brackets."""
    depth = start = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
        if character == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if depth:
        raise InputError(f"{where}: the brackets of {show(text)} do not match")
    yield text[start:]


def value_of(text: str) -> object:
    """What a text stands for: a number, true or false, a short form in brackets, else a string.

    >>> value_of("4"), value_of("(uniform:least=1,most=5)")
    (4, 'uniform:least=1,most=5')
    """
    if text.startswith("(") and text.endswith(")"):
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
