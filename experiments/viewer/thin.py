"""Which moments of a run a page keeps: all of a short run; of a long one those that tell something, and what is beside them.

    class 0   the first moment, the last, and the first of each kind
    class 1   refusals and preemptions          class 2   the moments right before and after these
    class 3   evictions, copies, forks          class 4   admissions, shared prefixes, ends
    class 5   arrivals and growth               class 6   all others

Classes are taken in this order while there is room; of the class that does not fit, moments spread evenly over it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CLASSES = (frozenset({"refuse", "preempt"}), frozenset({"evict", "copy", "fork"}), frozenset({"admit", "share", "finish"}),
           frozenset({"arrive", "grow"}))


def kept(kinds: Sequence[frozenset[str]], most: int) -> list[int]:
    """Numbers of the moments that are kept, ascending.

    Parameters
    ----------
    kinds : sequence of frozenset of str
        Of each moment.
    most : int
        How many may be kept, at least 1; the last moment is always among them.

    Examples
    --------
    >>> dull, refused = frozenset({"step"}), frozenset({"refuse"})
    >>> kept([dull] * 3, 3)
    [0, 1, 2]
    >>> kept([dull] * 50 + [refused] + [dull] * 49, 5)
    [0, 49, 50, 51, 99]
    """
    n = len(kinds)
    if n <= most:
        return list(range(n))
    chosen: dict[int, None] = {}
    for numbers in _classes(kinds):
        new = [number for number in dict.fromkeys(numbers) if number not in chosen]
        room = most - len(chosen)
        chosen.update(dict.fromkeys(new if len(new) <= room else evenly(new, room)))
    return sorted(chosen)


def shares(moments: Sequence[int], most: int) -> list[int]:
    """How many moments of each run are kept where there is room for ``most`` of all: as many of each, short runs whole.

    >>> shares([600, 40, 900], 1000), shares([600, 40, 200], 1000)
    ([480, 40, 480], [600, 40, 200])
    """
    left, made = most, [0] * len(moments)
    for i, run in enumerate(sorted(range(len(moments)), key=lambda run: moments[run])):
        made[run] = min(moments[run], left // (len(moments) - i))
        left -= made[run]
    return made


def evenly(numbers: Sequence[int], room: int) -> list[int]:
    """``room`` of the numbers, spread evenly over them.

    >>> evenly([3, 4, 5, 6, 7, 8], 3)
    [3, 5, 7]
    """
    return [numbers[i * len(numbers) // room] for i in range(room)]


def _classes(kinds: Sequence[frozenset[str]]) -> list[list[int]]:
    n = len(kinds)
    first: dict[str, int] = {}
    for number, happened in enumerate(kinds):
        for kind in sorted(happened):
            first.setdefault(kind, number)
    of_class = [[i for i, happened in enumerate(kinds) if happened & wanted] for wanted in CLASSES]
    beside = np.unique([i + side for i in of_class[0] for side in (-1, 1) if 0 <= i + side < n]).tolist()
    return [[n - 1, 0, *sorted(first.values())], of_class[0], beside, *of_class[1:], list(range(n))]
