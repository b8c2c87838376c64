"""What requests share, each of them alone: pieces that stand before their own tokens.

Each generator takes ``(rng, n)`` and its own keys, and gives the `Pieces` of n requests. What several turns of one
conversation share is in `conversations`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np

from workloads.request import InputError, IntArray
from workloads.synth.content import MOST_IDS, Pieces, no_pieces
from workloads.synth.draws import Fixed
from workloads.synth.keys import Count, Exponent, Flag, Number
from workloads.synth.lengths import Tokens, TokensOrNone, zipf_numbers

TENANT_TEXTS = 1_000_000                               # (template, tenant) pairs with a text of their own
MOST_PIECES = 1001                                     # before one request
Documents = Annotated[int, Number(1, 1_000_000, whole=True)]


def none(rng: np.random.Generator, n: int) -> Pieces:
    """Nothing is shared: every span has an id of its own.

    >>> none(np.random.default_rng(0), 2).table.shape
    (2, 0)
    """
    return no_pieces(n)


def system(
    rng: np.random.Generator, n: int, *, tokens: Tokens = Fixed(256), prompts: Count = 1, exponent: Exponent = 1.0
) -> Pieces:
    """One of ``prompts`` system prompts before each request, the k-th most popular chosen with a chance of ``k ** -exponent``.

    >>> system(np.random.default_rng(0), 3, tokens=Fixed(64)).table.tolist()
    [[0], [0], [0]]
    """
    return Pieces(popular(rng, n, prompts, exponent)[:, None], tokens(rng, prompts))


def few_shot(
    rng: np.random.Generator,
    n: int,
    *,
    example_tokens: Tokens,
    families: Count = 10,
    shots: Tokens = Fixed(5),
    instruction_tokens: TokensOrNone = Fixed(0),
    exponent: Exponent = 1.0,
) -> Pieces:
    """Families of tasks: an instruction and the first ``shots`` examples of the family, always in the same order.

    >>> pieces = few_shot(np.random.default_rng(0), 1, example_tokens=Fixed(50), families=1, shots=Fixed(2))
    >>> pieces.table.tolist(), pieces.tokens.tolist()
    ([[0, 1, 2]], [0, 50, 50])
    """
    family, shown = popular(rng, n, families, exponent), shots(rng, n)
    most = int(shown.max(initial=1))
    _refuse_too_wide(n, families, most + 1)
    examples = families + family[:, None] * most + np.arange(most)
    table = np.column_stack((family, np.where(np.arange(most) < shown[:, None], examples, -1)))
    return Pieces(table, np.concatenate((instruction_tokens(rng, families), example_tokens(rng, families * most))))


def rag(
    rng: np.random.Generator,
    n: int,
    *,
    document_tokens: Tokens,
    documents: Documents = 1000,
    retrieved: Tokens = Fixed(5),
    exponent: Exponent = 1.0,
    in_order: Flag = False,
    system_tokens: TokensOrNone = Fixed(0),
) -> Pieces:
    """Retrieval: a system prompt, then ``retrieved`` different documents in any order, then the question.

    Documents are drawn one after another by popularity, those drawn already left out, and then shuffled, or with ``in_order``
    sorted by number, which lets more of them be shared.

    >>> pieces = rag(np.random.default_rng(0), 2, document_tokens=Fixed(300), documents=2, retrieved=Fixed(2), in_order=True)
    >>> pieces.table.tolist(), pieces.tokens.tolist()
    ([[0, 1, 2], [0, 1, 2]], [0, 300, 300])
    """
    asked = retrieved(rng, n)
    if n and int(asked.min()) > documents:
        raise ValueError(f"retrieved: {int(asked.min())} different documents are wanted, and there are {documents}")
    wanted = np.minimum(asked, documents)
    most = int(wanted.max(initial=1))
    _refuse_too_wide(n, 1, most + 1)
    chosen = different(rng, n, documents, most, exponent)
    beyond = np.arange(most) >= wanted[:, None]
    keys = np.where(beyond, np.inf, chosen if in_order else rng.random((n, most)))
    ordered = np.take_along_axis(np.where(beyond, -1, chosen + 1), np.argsort(keys, axis=1), axis=1)
    table = np.column_stack((np.zeros(n, np.int64), ordered))
    return Pieces(table, np.concatenate((system_tokens(rng, 1), document_tokens(rng, documents))))


def template(
    rng: np.random.Generator,
    n: int,
    *,
    tokens: Tokens,
    tenant_tokens: TokensOrNone = Fixed(0),
    templates: Count = 5,
    tenants: Count = 10,
    exponent: Exponent = 1.0,
    tenant_exponent: Exponent = 0.0,
    salted: Flag = False,
) -> Pieces:
    """Templates that tenants share, then a text of the tenant's own in that template; ``salted`` tenants share nothing.

    >>> pieces = template(np.random.default_rng(0), 2, tokens=Fixed(100), tenant_tokens=Fixed(7), templates=1, tenants=1)
    >>> pieces.table.tolist(), pieces.tokens.tolist()
    ([[0, 1], [0, 1]], [100, 7])
    """
    if templates * tenants > TENANT_TEXTS:
        raise InputError(f"{templates:,} templates for {tenants:,} tenants are more than {TENANT_TEXTS:,} texts")
    chosen, tenant = popular(rng, n, templates, exponent), popular(rng, n, tenants, tenant_exponent)
    texts = np.concatenate((tokens(rng, templates), tenant_tokens(rng, templates * tenants)))
    pieces = Pieces(np.column_stack((chosen, templates + chosen * tenants + tenant)), texts)
    return pieces.salted(tenant) if salted else pieces


def popular(rng: np.random.Generator, n: int, kinds: int, exponent: float) -> IntArray:
    """Numbers from 0 to ``kinds - 1`` by Zipf's law, 0 the most popular.

    >>> popular(np.random.default_rng(0), 2, 1, 1.0).tolist()
    [0, 0]
    """
    return zipf_numbers(rng, n, exponent, 1, kinds) - 1


def different(rng: np.random.Generator, n: int, kinds: int, width: int, exponent: float) -> IntArray:
    """Rows of ``width`` different numbers below ``kinds``, drawn one after another by Zipf's law, those drawn already left out.

    What is left is drawn from by stepping over what was taken, so nothing is drawn twice; where what is left has less than a
    billionth of all chances, and floats would not do, the most popular of it is taken.

    >>> sorted(different(np.random.default_rng(0), 1, 3, 3, 2.0)[0].tolist())
    [0, 1, 2]
    """
    chance = np.arange(1.0, kinds + 1) ** -exponent
    sums = np.cumsum(chance)
    rows = np.empty((n, width), np.int64)
    for place in range(width):
        taken = np.sort(rows[:, :place], axis=1)
        left = sums[-1] - chance[taken].sum(axis=1)
        at = rng.random(n) * left
        for one in taken.T:
            at += np.where(at >= sums[one] - chance[one], chance[one], 0.0)
        drawn = np.minimum(np.searchsorted(sums, at, side="right"), kinds - 1)
        bad = (taken == drawn[:, None]).any(axis=1) | (left < 1e-9 * sums[-1])
        rows[:, place] = np.where(bad, (taken == np.arange(place)).sum(axis=1), drawn)
    return rows


def _refuse_too_wide(n: int, groups: int, width: int) -> None:
    if width > MOST_PIECES:
        raise InputError(f"{width:,} pieces before one request are more than {MOST_PIECES:,}")
    if max(n, groups) * width > MOST_IDS:
        raise InputError(f"{width:,} pieces for each of {max(n, groups):,} are more than {MOST_IDS:,}")


PREFIXES: dict[str, Callable[..., Pieces]] = {
    "none": none,
    "system": system,
    "few-shot": few_shot,
    "rag": rag,
    "template": template,
}
