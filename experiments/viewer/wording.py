"""Small pieces of sentences: names of sequences, runs of block ids, counted nouns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from experiments.viewer.snapshot import Key

MOST_RUNS = 6
MOST_NAMES = 6


def ids(blocks: Sequence[int]) -> str:
    """Block ids in this order, runs of neighbours joined, the rest of many counted.

    >>> ids([3, 4, 5, 12]), ids([9, 8, 7, 1])
    ('3 to 5, 12', '9 to 7, 1')
    >>> ids(range(1, 20, 2))
    '1, 3, 5, 7, 9, 11 and 4 more'
    """
    runs = _runs(blocks)
    shown = runs[:MOST_RUNS]
    left = len(blocks) - sum(map(len, shown))
    text = ", ".join(_run(run) for run in shown)
    return f"{text} and {left:,} more" if left else text


def _runs(blocks: Sequence[int]) -> list[list[int]]:
    """Stretches of neighbours, upwards or else downwards."""
    up, down = _stretches(blocks, 1), _stretches(blocks, -1)
    return up if len(up) <= len(down) else down


def _stretches(blocks: Sequence[int], step: int) -> list[list[int]]:
    places = groupby(enumerate(blocks), lambda pair: pair[1] - step * pair[0])
    return [[block for _, block in stretch] for _, stretch in places]


def _run(run: Sequence[int]) -> str:
    if len(run) < 3:
        return ", ".join(f"{block}" for block in run)
    return f"{run[0]} to {run[-1]}"


def blocks_text(blocks: Sequence[int]) -> str:
    """Blocks by their ids.

    >>> blocks_text([7]), blocks_text([7, 8])
    ('block 7', 'blocks 7, 8')
    """
    return f"block{'' if len(blocks) == 1 else 's'} {ids(blocks)}"


class Names:
    """What requests and their sequences are called.

    Parameters
    ----------
    labels : sequence of str
        One a request.

    >>> names = Names(["r0", "r1"])
    >>> names.sequence((1, 0)), names.sequence((1, 2)), names.several([(1, 0), (0, 0)])
    ('r1', 'r1.3', 'r1, r0')
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels

    def __getitem__(self, request: int) -> str:
        return self._labels[request]

    def sequence(self, key: Key) -> str:
        """A request by its label; a further sequence of it by its number behind a point."""
        request, member = key
        return self._labels[request] if not member else f"{self._labels[request]}.{member + 1}"

    def several(self, keys: Sequence[Key]) -> str:
        """Names in this order, each once, the rest of many counted."""
        names = list(dict.fromkeys(self.sequence(key) for key in keys))
        shown = ", ".join(names[:MOST_NAMES])
        return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES:,} more"
