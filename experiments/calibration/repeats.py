"""What is given more than once: it would count twice, and make a fit look surer than it is.

    one file under two names, or with the same content        refused
    two measurements whose numbers are all equal              one warning, and they count once
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from experiments.calibration.cases import Case
from experiments.output import real
from workloads.messages import show, show_path
from workloads.readers.packed import STDIN
from workloads.readers.source import Block, Source
from workloads.request import InputError


def check_given_once(paths: Sequence[str]) -> None:
    """Raise InputError, naming the file, where one is given twice, by whatever name.

    >>> check_given_once(["points.csv", "rate.json", "./points.csv"])
    Traceback (most recent call last):
        ...
    workloads.request.InputError: ./points.csv: the same file as points.csv: each is given once
    """
    known: dict[str, str] = {}
    for path in (path for path in paths if path != STDIN):
        found = real(path)
        if found in known:
            raise InputError(f"{show_path(path)}: the same file as {show_path(known[found])}: each is given once")
        known[found] = path


class Contents:
    """What files hold, unpacked, told by a checksum that is taken while they are read."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def watched(self, source: Source) -> tuple[Source, Callable[[], None]]:
        """The source, and what is to be called once it is read to its end: InputError if another had the same content."""
        taken = hashlib.sha256(source.first.data)

        def rest() -> Iterator[Block]:
            for block in source.rest:
                taken.update(block.data)
                yield block

        def check() -> None:
            digest = taken.digest()
            if digest in self._known:
                raise InputError(f"{show_path(source.path)}: the same content as {show_path(self._known[digest])}: each is given "
                                 "once")
            self._known[digest] = source.path

        return replace(source, rest=rest()), check


def counted_once(cases: Sequence[Case]) -> tuple[list[Case], list[str]]:
    """The cases without those that repeat another in every number, and a warning if there are any.

    Parameters
    ----------
    cases : sequence of Case
    """
    kept: dict[bytes, Case] = {}
    again: list[tuple[Case, Case]] = []
    for case in cases:
        numbers = _numbers(case)
        if numbers in kept:
            again.append((case, kept[numbers]))
        kept.setdefault(numbers, case)
    said = [f"warning: not counted again: {len(again):,} of {len(cases):,} measurements, equal to another in every number; the "
            f"first is {show(case.label)}, equal to {show(like.label)}" for case, like in again[:1]]
    return list(kept.values()), said


def _numbers(case: Case) -> bytes:
    """A checksum of all that is simulated and all that was measured."""
    trace, taken = case.trace, hashlib.sha256()
    assert trace.arrival_us is not None
    for column in (trace.prompt_tokens, trace.output_tokens, trace.arrival_us, *(target.seconds for target in case.targets)):
        taken.update(column)
    measured = [(target.metric, target.statistic, len(target.seconds)) for target in case.targets]
    taken.update(repr((len(trace), case.most_in_flight, measured)).encode())
    return taken.digest()
