"""Sessions whose later turns give only what they add: made into whole prompts.

    file       turn 1: 40 tokens    answer 24    turn 2: 16 more tokens
    prompts    40                                40 + 24 + 16 = 80, of which the first 64 were there before
"""

from __future__ import annotations

from workloads.pieces import PrefixTree
from workloads.request import ContentIds, IntArray

SPAN_TOKENS = 16                                       # added pieces begin anywhere, so spans have to be short
MOST_TOKENS = 1 << 29


def whole_prompts(prompt: IntArray, output: IntArray, session: IntArray, content: ContentIds | None,
                  ) -> tuple[IntArray, ContentIds | None]:
    """Prompts with all turns and answers of their session before them, and their ids.

    Parameters
    ----------
    prompt, output, session : int64, shape (rows,)
        In order of time; rows with session -1 stand for themselves.
    content : ContentIds or None
        Ids of what each row adds.

    Returns
    -------
    prompt : int64, shape (rows,)
    content : ContentIds or None
        With the answers, so that a turn finds the one before it.

    Raises
    ------
    ValueError
        If that is more than memory may hold.

    >>> import numpy as np
    >>> lengths = np.array([40, 16]), np.array([24, 5]), np.array([0, 0])
    >>> prompt, content = whole_prompts(*lengths, ContentIds(np.array([7, 8, 9, 3]), np.array([0, 3, 4]), 16))
    >>> prompt.tolist(), [ids.tolist()[:4] for ids in np.split(content.ids, content.starts[1:-1])]
    ([40, 80], [[0, 2, 5, 6], [0, 2, 5, 6]])
    """
    tree = PrefixTree(SPAN_TOKENS)
    before: dict[int, list[tuple[object, int]]] = {}
    whole = prompt.copy()
    for row, number in enumerate(session.tolist()):
        told = before.get(number, []) if number >= 0 else []
        asked = _pieces(row, int(prompt[row]), content)
        whole[row] += sum(tokens for _, tokens in told)
        told = [*told, *asked, *([(("answer", row), int(output[row]))] if output[row] else [])]
        before[number] = told
        tree.add(told)
    if content is None:
        return whole, None
    total = int(whole.sum() + output.sum())
    if total > MOST_TOKENS:                            # memory goes by tokens here, not by bytes of the file
        raise ValueError(f"{total} tokens in all turns together: at most {MOST_TOKENS} can be known")
    return whole, tree.content(cover_output=True)


def _pieces(row: int, tokens: int, content: ContentIds | None) -> list[tuple[object, int]]:
    """What a row adds: one piece an id, or one of its own."""
    if content is None:
        return [(("row", row), tokens)] if tokens else []
    span = content.span_tokens
    ids = content.ids[content.starts[row]:content.starts[row + 1]].tolist()
    return [(("id", one), min(span, tokens - span * i)) for i, one in enumerate(ids)]
