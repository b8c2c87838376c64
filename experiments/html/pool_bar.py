"""Where the slots of a pool are, as one bar an allocator: its segments, and the patterns they are filled with.

    contiguous-max   57.0 % useful
    [ token states 57.0 % |/ reserved 8.1 % /|x internal 30.2 % x|  ...  ]

Colours and hatches are those of the figures, so that a part looks alike on the whole page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.figures import STYLES
from experiments.numbers import percent
from experiments.parts import LABELS
from sim.memory.allocator import PARTS

JsonObject = dict[str, Any]
STROKES = {"": "", "///": "M-2 2L2 -2M0 8L8 0M6 10L10 6", "\\\\\\": "M-2 6L2 10M0 0L8 8M6 -2L10 2",
           "xx": "M0 0L8 8M8 0L0 8", "..": "M2 2h1M6 6h1", "++": "M4 0V8M0 4H8"}
"""A hatch as matplotlib names it -> a path in a square of eight units."""
LEAST_TOLD = 12.0                                      # per cent of the pool: a narrower segment has no room for its number


@dataclass(frozen=True)
class Pattern:
    """How a part is filled: a colour and a path over it."""

    part: str
    colour: str
    strokes: str


@dataclass(frozen=True)
class Segment:
    """A part of a bar; ``start`` and ``width`` in per cent of the pool, ``told`` is empty where there is no room for it."""

    part: str
    start: float
    width: float
    told: str

    @property
    def middle(self) -> float:
        """Where its number stands."""
        return self.start + self.width / 2


@dataclass(frozen=True)
class Bar:
    """One allocator: its name, its segments, and all of them in words."""

    name: str
    segments: list[Segment]
    said: str


def patterns() -> list[Pattern]:
    """One a part of the pool, in their order."""
    return [Pattern(part, STYLES[part][0], STROKES[STYLES[part][1]]) for part in PARTS]


def bars(scenarios: list[JsonObject]) -> list[Bar]:
    """One an allocator, from the mean shares of the JSON.

    >>> shares = dict.fromkeys(PARTS, 0.0) | {"token_states": 0.75, "idle": 0.25}
    >>> [bar] = bars([{"allocator": "paged", "memory": shares}])
    >>> [(one.part, one.start, one.width, one.told) for one in bar.segments]
    [('token_states', 0.0, 75.0, '75.0 %'), ('idle', 75.0, 25.0, '25.0 %')]
    >>> bar.said
    'paged: token states (useful) 75.0 %, idle, nobody refused 25.0 %'
    """
    return [_bar(scenario["allocator"], scenario["memory"]) for scenario in scenarios]


def _bar(name: str, shares: JsonObject) -> Bar:
    segments, start = [], 0.0
    for part in PARTS:
        width = 100 * shares[part]
        if width:
            segments.append(Segment(part, start, width, percent(shares[part]) if width >= LEAST_TOLD else ""))
        start += width
    said = ", ".join(f"{LABELS[one.part]} {percent(one.width / 100)}" for one in segments)
    return Bar(name, segments, f"{name}: {said}")
