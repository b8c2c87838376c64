"""Routers: to which of several replicas a request goes. One class a way, one line each in `catalog.ROUTERS`.

                          +-- replica 0   running 3, waiting 0, holds 512 tokens of this prompt
    request -- router ----+-- replica 1   running 1, waiting 2, holds none
                          +-- replica 2   running 4, waiting 0, holds all of it

A router is asked when a request arrives, once: whoever is preempted stays where it is. It knows no clock and no randomness, and
of the replicas what `Replica` shows, exactly and at this instant. Real balancers know less: vLLM's goes by counts that may be
100 ms old, SGLang's by prefixes that it sent somewhere and that may be gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sim.demand import Demand

WAITING_WEIGHT = 4
LEAST_SHARE = (3, 10)
MOST_APART, MOST_TIMES = 64, (3, 2)


class Replica(Protocol):
    """What a router may see of a replica."""

    @property
    def running(self) -> int:
        """Sequences running."""
        ...

    @property
    def waiting(self) -> int:
        """Requests waiting, those routed here during the step under way among them."""
        ...

    def cached_tokens(self, request: int) -> int:
        """Tokens of the request's prompt that would be found here now, on the host or in the pool."""
        ...


class Router(Protocol):
    """Made with the `Demand` of the trace: prompts and sessions by row."""

    def choose(self, request: int, replicas: Sequence[Replica]) -> int:
        """The replica that a request goes to, by its number."""
        ...


def least_loaded(replicas: Sequence[Replica], among: Sequence[int] | None = None) -> int:
    """The replica with the lowest score, the first of equal ones; ``among`` some of them.

    The score is that of vLLM's own balancing of data-parallel ranks (``DPLBAsyncMPClient`` in vllm/v1/engine/core_client.py):
    waiting requests count four times as much as running ones.

    >>> from types import SimpleNamespace as Shown
    >>> least_loaded([Shown(running=5, waiting=0), Shown(running=0, waiting=1), Shown(running=4, waiting=0)])
    1
    """
    numbers = range(len(replicas)) if among is None else among
    return min(numbers, key=lambda number: WAITING_WEIGHT * replicas[number].waiting + replicas[number].running)


class RoundRobin:
    """One after the other, whatever they do."""

    def __init__(self, demand: Demand) -> None:
        self._next = 0

    def choose(self, request: int, replicas: Sequence[Replica]) -> int:
        chosen = self._next
        self._next = (chosen + 1) % len(replicas)
        return chosen


class LeastLoaded:
    """See `least_loaded`."""

    def __init__(self, demand: Demand) -> None:
        pass

    def choose(self, request: int, replicas: Sequence[Replica]) -> int:
        return least_loaded(replicas)


class SessionAffinity:
    """A session stays where its first turn went; that one, and requests of no session, go by load."""

    def __init__(self, demand: Demand) -> None:
        self._session = demand.session
        self._home: dict[int, int] = {}

    def choose(self, request: int, replicas: Sequence[Replica]) -> int:
        session = int(self._session[request])
        if session < 0:
            return least_loaded(replicas)
        if session not in self._home:
            self._home[session] = least_loaded(replicas)
        return self._home[session]


class PrefixAware:
    """To the replica that holds most of the prompt, while nobody has far more to do than another.

    The rule and its three numbers are those of the cache-aware policy of SGLang's gateway and of the vLLM router
    (``--cache-threshold 0.3 --balance-abs-threshold 64 --balance-rel-threshold 1.5``), except that the prefixes are looked up
    where they are instead of guessed from what was sent there, and that without a hit it is the load that decides:

    - the busiest replica has over 64 requests more than the idlest and over 1.5 times as many: by load;
    - the longest cached prefix is not over 0.3 of the prompt, as a system prompt alone may be: by load;
    - else where the longest prefix is, of equal ones by load.
    """

    def __init__(self, demand: Demand) -> None:
        self._prompt = demand.prompt

    def choose(self, request: int, replicas: Sequence[Replica]) -> int:
        if unbalanced(replicas):
            return least_loaded(replicas)
        cached = [replica.cached_tokens(request) for replica in replicas]
        longest = max(cached)
        part, whole = LEAST_SHARE
        if longest * whole <= part * int(self._prompt[request]):
            return least_loaded(replicas)
        return least_loaded(replicas, [number for number, tokens in enumerate(cached) if tokens == longest])


def unbalanced(replicas: Sequence[Replica]) -> bool:
    """Whether the busiest replica has so much more to do than the idlest that no prefix is worth it.

    >>> from types import SimpleNamespace as Shown
    >>> [unbalanced([Shown(running=n, waiting=1), Shown(running=0, waiting=0)]) for n in (63, 64)]
    [False, True]
    """
    loads = [replica.running + replica.waiting for replica in replicas]
    more, less = max(loads), min(loads)
    return more - less > MOST_APART and more * MOST_TIMES[1] > less * MOST_TIMES[0]
