"""Pictures of a pool in lines of letters, the same in a terminal and on paper.

    slot       0       8       16                  block       1   2   3   4
               11111...3333333...444               held by    r1  r1  r2   -
                                                   filled    4/4 1/4 2/4   -
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from experiments.quiz.served import Plan, Pool

RULER = 8
MARGIN = 11


class Span(NamedTuple):
    """A reservation: start address and size in slots, and whose it is."""

    start: int
    slots: int
    name: str


def address_bar(spans: Sequence[Span], capacity: int) -> tuple[str, ...]:
    """One letter a slot: the last digit of the holder's name, a dot where it is free.

    >>> for line in address_bar([Span(0, 5, "r1"), Span(8, 7, "r3")], 20): print(line)
    slot       0       8       16
               11111...3333333.....
    """
    letters = ["."] * capacity
    for span in spans:
        letters[span.start:span.start + span.slots] = span.name[-1] * span.slots
    ruler = "".join(f"{address:<{RULER}}" for address in range(0, capacity, RULER))
    return f"{'slot':<{MARGIN}}{ruler}".rstrip(), " " * MARGIN + "".join(letters)


def pool_picture(pool: Pool, plan: Plan) -> tuple[str, ...]:
    """Every block: who holds it, how many of its slots are filled and, where blocks are found again, what it holds."""
    blocks = range(1, plan.num_blocks)
    holders: dict[int, list[str]] = {block: [] for block in blocks}
    filled = dict.fromkeys(blocks, 0)
    for sequence in pool.sequences:
        for place, block in enumerate(sequence.blocks):
            holders[block].append(sequence.name)
            filled[block] = min(max(sequence.computed - place * plan.block_size, 0), plan.block_size)
    rows: list[Sequence[object]] = [
        ("block", *blocks), ("held by", *(" ".join(holders[block]) or "-" for block in blocks)),
        ("filled", *(f"{filled[block]}/{plan.block_size}" if holders[block] else "-" for block in blocks))]
    if plan.content is not None:
        rows.append(("findable", *(pool.holds.get(block, "-") for block in blocks)))
    return columns(rows)


def columns(rows: Sequence[Sequence[object]]) -> tuple[str, ...]:
    """Named rows with cells of one width.

    >>> for line in columns([("block", 1, 2), ("held by", "r1 r2", "-")]): print(line)
    block           1     2
    held by     r1 r2     -
    """
    width = max(len(str(cell)) for row in rows for cell in row[1:]) + 1
    return tuple(f"{row[0]:<{MARGIN}}" + "".join(f"{cell!s:>{width}}" for cell in row[1:]) for row in rows)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of texts, its first row the names: first column left, the others right.

    >>> for line in table([("request", "prompt"), ("r1", "37")]): print(line)
    request  prompt
    r1           37
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(f"{cell:>{width}}" if place else f"{cell:<{width}}"
                      for place, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]
