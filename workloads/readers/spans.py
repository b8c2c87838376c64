"""Content ids as files have them: lists that cover the prompt, each id for so many tokens, the last perhaps for fewer.

    input_length 1,100    hash_ids [0, 1, 2]    512 + 512 + 76 tokens: ceil(1,100 / 512) ids

Where ids name whole prefixes none can stand twice in one request.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from workloads.messages import Place, bad_value
from workloads.request import ContentIds, IntArray


def refuse_twice(place: Place, column: str, ids: list[int]) -> None:
    """An InputError for an id that stands twice in one request."""
    if len(set(ids)) < len(ids):
        counts = Counter(ids)
        twice = next(one for one in ids if counts[one] > 1)
        raise bad_value(place, column, f"id {twice} stands there twice, but an id names a whole prefix")


class Spans:
    """The ids of a file, request by request.

    Parameters
    ----------
    likely : tuple of int
        Tokens an id may stand for, the likeliest first.
    chained : bool
        Whether ids name whole prefixes.
    """

    def __init__(self, likely: tuple[int, ...], chained: bool = True) -> None:
        self.likely, self.chained = likely, chained
        self._flat, self._starts, self._lines = array("q"), array("q", [0]), array("q")
        self._column = ""

    def add(self, place: Place, column: str, ids: list[int]) -> None:
        """The next request.

        Raises
        ------
        InputError
            If an id of whole prefixes stands there twice.
        """
        if self.chained:
            refuse_twice(place, column, ids)
        self._flat.extend(ids)
        self._starts.append(len(self._flat))
        self._lines.append(place.line)
        self._column = column

    def extend(self, lines: Sequence[int], column: str, flat: array[int], counts: list[int]) -> None:
        """Several requests, the ids of all one behind the other; none stands twice in one of whole prefixes."""
        before = self._starts[-1]
        self._flat.extend(flat)
        self._starts.extend(before + end for end in accumulate(counts))
        self._lines.extend(lines)
        self._column = column

    def content(self, path: str, prompt_tokens: IntArray, span_tokens: int | None = None) -> ContentIds:
        """All ids, each for ``span_tokens`` tokens; where that is not given, for as many as all requests agree on.

        Raises
        ------
        InputError
            If ids do not cover a prompt; names the first such row.
        """
        starts = np.array(self._starts, np.int64)
        counts = np.diff(starts)
        spans = self.likely if span_tokens is None else (span_tokens,)
        fits = [-(-prompt_tokens // span) == counts for span in spans]
        best = int(np.argmax([int(fit.sum()) for fit in fits]))          # the first of equals
        if not fits[best].all():
            row = int(fits[best].argmin())
            needed = -(-int(prompt_tokens[row]) // spans[best])
            hint = "" if span_tokens else "; --hash-block-size N sets another size"
            raise bad_value(Place(path, self._lines[row]), self._column, f"{counts[row]} ids, but input_length "
                            f"{prompt_tokens[row]} takes {needed} of {spans[best]} tokens each{hint}")
        return ContentIds(np.array(self._flat, np.int64), starts, spans[best])
