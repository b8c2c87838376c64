"""Tokens of texts without a tokenizer: four bytes of UTF-8 a token, as a rule of thumb for English.

A text is known by its bytes, so equal beginnings can be found: 64 bytes are 16 tokens, one id.

    bytes     0 ......... 63 | 64 ........ 127 | 128 .. 140
    tokens    16             | 16              | 4 (13 bytes)
"""

from __future__ import annotations

from array import array

import numpy as np

from workloads.messages import Place, bad_value, show
from workloads.readers.values import TOO_FEW
from workloads.request import ContentIds

BYTES_A_TOKEN = 4
SPAN_TOKENS = 16
ESTIMATE = f"the file has texts and no token counts: {BYTES_A_TOKEN} bytes are taken for a token"


def estimated_tokens(text: str) -> int:
    """Tokens of a text, by its length in bytes.

    >>> estimated_tokens("thirteen let.")
    4
    """
    return -(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN)


def tokens_of_text(text: str, column: str, place: Place, strict: bool) -> int:
    """The same of a text in a file; InputError if it is empty and that is not allowed."""
    tokens = estimated_tokens(text)
    if strict and not tokens:
        raise bad_value(place, column, f"{show(text)} {TOO_FEW}")
    return tokens


class Chunks:
    """Content ids of sequences of anything that can be compared: bytes, or tuples of token ids.

    >>> chunks = Chunks(2)
    >>> chunks.add([5, 6, 7])
    >>> chunks.add([5, 6])
    >>> chunks.content(cover_output=False).ids.tolist()
    [0, 1, 0]
    """

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._known: dict[object, int] = {}
        self._flat, self._starts = array("q"), array("q", [0])

    def add(self, sequence: bytes | list[int]) -> None:
        """The next request."""
        known = self._known
        whole = sequence if isinstance(sequence, bytes) else tuple(sequence)
        for start in range(0, len(whole), self._chunk):
            self._flat.append(known.setdefault(whole[start:start + self._chunk], len(known)))
        self._starts.append(len(self._flat))

    def content(self, cover_output: bool) -> ContentIds:
        """The ids of all requests added."""
        return ContentIds(np.array(self._flat, np.int64), np.array(self._starts, np.int64), SPAN_TOKENS, cover_output,
                          local=True)
