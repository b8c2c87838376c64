"""What the turns of one conversation share: each prompt holds all before it, the answers too.

    chat      turn 0    [ system | user 0 ] answer 0
              turn 1    [ system | user 0 | answer 0 | user 1 ] answer 1

    agent     call 0    [ system, tools | task ] answer, which calls a tool
              sub-agent [ system, tools | its own task ] ...           one call at a time in the whole tree
              call 1    [ system, tools | task | answer | what the sub-agent said, or the tool's result ] answer

Each generator takes ``(rng, prompt, output)``, the lengths drawn for n rows, and its own keys. Rows are filled up
one after another; the last is cut so that there are n rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from workloads.request import IntArray
from workloads.synth.content import Pieces
from workloads.synth.draws import Draw, Fixed
from workloads.synth.keys import Count, Exponent
from workloads.synth.lengths import Tokens, TokensOrNone
from workloads.synth.prefixes import popular
from workloads.synth.schedule import Rows
from workloads.synth.times import Seconds


def chat(
    rng: np.random.Generator,
    prompt: IntArray,
    output: IntArray,
    *,
    turns: Tokens,
    think_s: Seconds,
    system_tokens: TokensOrNone = Fixed(0),
    prompts: Count = 1,
    exponent: Exponent = 1.0,
) -> Rows:
    """Chats of several turns behind one of some system prompts; ``prompt`` is what the user says in each turn.

    >>> said = chat(np.random.default_rng(0), np.array([5, 6]), np.array([100, 9]), turns=Fixed(2), think_s=Fixed(0))
    >>> said.unit.tolist(), said.own_tokens.tolist()
    ([0, 0], [5, 111])
    """
    length, structure, think = rng.spawn(3)
    unit = _units(turns(length, len(prompt)), len(prompt))
    pieces = _before(structure, unit, prompts, exponent, system_tokens)
    return Rows(unit, _grown(unit, prompt, output), pieces, unit, think_s(think, len(prompt)))


def agent(
    rng: np.random.Generator,
    prompt: IntArray,
    output: IntArray,
    *,
    calls: Tokens,
    result_tokens: Tokens,
    tool_s: Seconds,
    subagents: TokensOrNone = Fixed(0),
    system_tokens: TokensOrNone = Fixed(1024),
    prompts: Count = 1,
    exponent: Exponent = 1.0,
) -> Rows:
    """Agents that call tools, and sub-agents that start with a context of their own behind the same system prompt and tools.

    An agent makes ``calls`` calls. Before each but its first it waits ``tool_s``, and its prompt grows by ``result_tokens``;
    where sub-agents ran in between, by their last answers. A sub-agent makes `calls` calls too and has none of its own; one
    runs between two calls of its agent, so an agent of one call has none. ``prompt`` is the task an agent begins with.

    >>> said = agent(np.random.default_rng(0), np.array([5, 5, 5]), np.array([10, 10, 10]), calls=Fixed(3),
    ...              result_tokens=Fixed(200), tool_s=Fixed(0))
    >>> said.own_tokens.tolist()
    [5, 215, 425]
    """
    layout, structure, result, think = rng.spawn(4)
    unit, stream, sub = _trees(layout, calls, subagents, len(prompt))
    first, before = _first_of_stream(stream)
    ends = np.append(stream[1:] != stream[:-1], True) & sub
    last_words = np.where(ends, output, 0)
    said = np.cumsum(last_words) - last_words          # by sub-agents that ended before each row
    handed = said - said[before]
    new = np.where(first, prompt, np.where(handed > 0, handed, result_tokens(result, len(prompt))))
    pieces = _before(structure, unit, prompts, exponent, system_tokens)
    return Rows(unit, _grown(stream, new, output), pieces, stream, tool_s(think, len(prompt)))


CONVERSATIONS: dict[str, Callable[..., Rows]] = {
    "chat": chat,
    "agent": agent,
}


def _units(turns: IntArray, n: int) -> IntArray:
    """The conversation of each of n rows."""
    ends = np.cumsum(turns)
    return np.searchsorted(ends, np.arange(n), side="right").astype(np.int64)


def _before(rng: np.random.Generator, unit: IntArray, prompts: int, exponent: float, tokens: Draw) -> Pieces:
    units = int(unit.max(initial=-1)) + 1
    return Pieces(popular(rng, units, prompts, exponent)[:, None], tokens(rng, prompts))


def _first_of_stream(stream: IntArray) -> tuple[NDArray[np.bool_], IntArray]:
    """Whether each row is the first of its stream, and the row of the stream before it (itself where there is none)."""
    order = np.argsort(stream, kind="stable")
    first_in_order = np.diff(stream[order], prepend=-1) != 0
    before, first = np.arange(len(stream)), np.zeros(len(stream), bool)
    before[order[1:]] = np.where(first_in_order[1:], order[1:], order[:-1])
    first[order[first_in_order]] = True
    return first, before


def _grown(stream: IntArray, new: IntArray, output: IntArray) -> IntArray:
    """Tokens of each prompt: what is new in it and in the rows of its stream before, and their answers."""
    order = np.argsort(stream, kind="stable")
    both = (new + output)[order]
    sums = np.cumsum(both)
    heads = np.flatnonzero(np.diff(stream[order], prepend=-1))
    counts = np.diff(np.append(heads, len(stream)))
    grown = np.empty_like(new)
    grown[order] = sums - output[order] - np.repeat(sums[heads] - both[heads], counts)
    return grown


def _trees(rng: np.random.Generator, calls: Draw, subagents: Draw, n: int) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
    """Tree, context and whether it is a sub-agent's, of each of n rows; contexts are numbered as they begin."""
    main, subs = calls(rng, n), subagents(rng, n)
    inner = calls(rng, n)                              # of the sub-agents, in the order in which they run
    rows: list[tuple[int, int, int]] = []
    contexts = ran = 0
    for tree in range(n):
        if len(rows) >= n:
            break
        here, contexts = contexts, contexts + 1
        wanted = min(int(subs[tree]), n - ran) if main[tree] > 1 else 0
        gaps = np.sort(rng.integers(1, main[tree], wanted)).tolist() if wanted else []
        done = 0
        for gap in gaps:
            rows += [(tree, here, 0)] * min(gap - done, n) + [(tree, contexts, 1)] * min(int(inner[ran]), n - len(rows))
            done, ran, contexts = gap, ran + 1, contexts + 1
            if len(rows) >= n:
                break
        rows += [(tree, here, 0)] * min(int(main[tree]) - done, n)
    unit, stream, sub = np.array(rows[:n], np.int64).reshape(-1, 3).T
    return unit, stream, sub > 0
