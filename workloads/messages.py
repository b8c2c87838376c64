"""How a bad input is named: one line with file, line, column and value, however odd these are."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from json import JSONDecodeError
from typing import NamedTuple

from workloads.request import InputError

LONGEST_WORD = 1000                                    # a path may be that long
LONGEST_VALUE = 60
REASONS = {
    "prompt_not_below_max_model_len": "prompt not below max_model_len", "larger_than_pool": "larger than the pool",
    "more_sequences_than_max_num_seqs": "more sequences than max_num_seqs",
    "zero_prompt": "no prompt tokens", "zero_output": "no output tokens",
    "over_max_total_tokens": "over --max-total-tokens",
    "session_of_one_over_max_total_tokens": "in the session of one over --max-total-tokens",
}
_BEGUN = re.compile(r"(t(ru?)?|f(a(ls?)?)?|n(ul?)?|-|\.|[eE][+-]?|u[0-9a-fA-F]{0,3})?\s*")  # what may be left of a value
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = LONGEST_VALUE
_SHORT.maxdict = _SHORT.maxlist = 3


class Place(NamedTuple):
    """Where a value stands; ``within`` says where in the line, or in a document that is not read line by line."""

    path: str
    line: int
    within: str = ""


def complaint(path: str, line: int, problem: str) -> InputError:
    """An InputError that names file and line."""
    return InputError(f"{show_path(path)}:{line}: {problem}")


def bad_value(place: Place, column: str, problem: str) -> InputError:
    """An InputError that names file, line and column.

    >>> print(bad_value(Place("a.csv", 7), "ContextTokens", f"{show(-3)} is negative"))
    a.csv:7: column 'ContextTokens': -3 is negative
    >>> print(bad_value(Place("a.json", 1, "requests[2]"), "in", f"{show(-3)} is negative"))
    a.json:1: requests[2]: column 'in': -3 is negative
    """
    within = f"{place.within}: " if place.within else ""
    return complaint(place.path, place.line, f"{within}column {show(column)}: {problem}")


def missing_column(place: Place, column: str, present: Sequence[str]) -> InputError:
    """An InputError that names the column and those there are."""
    return bad_value(place, column, f"missing; the columns are {show_names(present)}")


def show(value: object) -> str:
    """A value on one line, in at most about 60 characters.

    >>> show("two\\nlines"), len(show("x" * 1000)) < 70
    ("'two\\\\nlines'", True)
    """
    text = str(value) if isinstance(value, Decimal) else _SHORT.repr(value)
    if len(text) <= LONGEST_VALUE + 2:
        return text
    return text[:40] + "..." + text[-15:]


def show_names(names: Iterable[str]) -> str:
    """The first dozen names, quoted.

    >>> show_names(["a", "b"])
    "'a', 'b'"
    """
    shown = [show(name) for name in islice(names, 13)]
    return ", ".join(shown[:12]) + (", ..." if len(shown) > 12 else "") if shown else "none"


def printable(text: str) -> str:
    """A text on one line: what cannot be printed is escaped, white space is one blank, an endless word has its ends.

    >>> printable("two\\nlines of\\0 \u202eodd letters")
    'two lines of\\\\x00 \\\\u202eodd letters'
    """
    text = " ".join(word if len(word) <= LONGEST_WORD else f"{word[:200]}...{word[-40:]}" for word in text.split())
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show_path(path: str) -> str:
    """A path as it is, quoted only where it would break the line or vanish."""
    return path if path.isprintable() and path else repr(path)


def json_failed(path: str, error: Exception) -> InputError:
    """The InputError for a file that is no JSON, or such that it cannot be taken in.

    >>> print(json_failed("a.json", RecursionError()))
    a.json: no valid JSON: nested too deep
    """
    if isinstance(error, JSONDecodeError):
        return complaint(path, error.lineno, f"no valid JSON: {json_fault(error, error.colno)}")
    reason = "nested too deep" if isinstance(error, RecursionError) else \
        f"byte {error.start:,} is not UTF-8" if isinstance(error, UnicodeDecodeError) else "a number of too many digits"
    return InputError(f"{show_path(path)}: no valid JSON: {reason}")


def reading_failed(path: str, error: Exception) -> InputError:
    """The InputError for a file that cannot be opened or read.

    >>> print(reading_failed("a\\nb", FileNotFoundError(2, "No such file or directory")))
    'a\\nb': no such file or directory
    """
    reason = getattr(error, "strerror", None)
    return InputError(f"{show_path(path)}: {reason.lower() if reason else f'cannot be read: {type(error).__name__}'}")


def json_fault(error: JSONDecodeError, character: int) -> str:
    """What is wrong, and at which ``character`` of its line; text that ends too early is said to be cut off.

    >>> import json
    >>> for text in ('{"a": 1 "b": 2}', '{"a": "b', '{"a": [1, tr'):
    ...     try: json.loads(text)
    ...     except json.JSONDecodeError as error: print(json_fault(error, error.pos + 1))
    Expecting ',' delimiter at character 9
    cut off in the string that begins at character 7
    cut off at character 11
    """
    if error.msg.startswith("Unterminated string"):
        return f"cut off in the string that begins at character {character}"
    if _BEGUN.fullmatch(error.doc, error.pos):
        return f"cut off at character {character}"
    return f"{error.msg.removesuffix(' at')} at character {character}"


def counted(number: int, what: str) -> str:
    """A number of things, in the plural unless it is one.

    >>> counted(1, "line"), counted(1200, "line")
    ('1 line', '1,200 lines')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def reason_in_words(name: str) -> str:
    """Why a request was dropped or rejected, as people read it.

    >>> reason_in_words("zero_prompt")
    'no prompt tokens'
    """
    return REASONS.get(name, name.replace("_", " "))


def reasons_in_words(dropped: Mapping[str, int]) -> str:
    """How many were dropped, by reason, on one line.

    >>> reasons_in_words({"zero_prompt": 1200, "zero_output": 1})
    'no prompt tokens (1,200), no output tokens (1)'
    """
    return ", ".join(f"{reason_in_words(name)} ({number:,})" for name, number in dropped.items())


def dropped_lines(dropped: Mapping[str, int]) -> list[str]:
    """The same, a line a reason.

    >>> list(dropped_lines({"zero_output": 1}))
    ['1 more request dropped: no output tokens']
    """
    return [f"{counted(number, 'more request')} dropped: {reason_in_words(name)}" for name, number in dropped.items()]
