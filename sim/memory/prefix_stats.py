"""What prefix caching found, counted as vLLM counts it and split by where the hits came from.

Token-weighted counts are vLLM's ``PrefixCacheStats`` (rule 15 of docs/rules.md): once per admission, first admissions apart
from resumes, so that a request that finds its own blocks after a preemption does not look like sharing. The origin of a
hit block is the request that wrote it: the request itself before one of the same session before another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sim.demand import Demand
from sim.memory.allocator import Ask
from workloads.request import IntArray

ORIGINS = ("other_request", "same_session", "own_after_preemption")


class PrefixStats:
    """Counters of one run, all in tokens unless named blocks.

    ``query_*`` and ``hit_*`` are of first admissions, ``resume_*`` of resumed ones; ``hit_tokens_by_origin`` covers both,
    so its sum is ``hit_tokens + resume_hit_tokens``, and ``resume_hit_tokens_by_origin`` is the resumes' part of it.
    ``host_hit_tokens`` and ``resume_host_hit_tokens`` are those parts of the hits that a tier in host memory had.
    """

    def __init__(self, demand: Demand, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._session = demand.session
        self._writer: IntArray = np.full(num_blocks, -1, np.int64)
        self.start_counting()

    def start_counting(self) -> None:
        """Counters begin at 0 now; who wrote what stays known."""
        self.requests = self.resumes = 0
        self.query_tokens = self.hit_tokens = self.query_blocks = self.hit_blocks = 0
        self.resume_query_tokens = self.resume_hit_tokens = 0
        self.hit_tokens_by_origin, self.resume_hit_tokens_by_origin = dict.fromkeys(ORIGINS, 0), dict.fromkeys(ORIGINS, 0)
        self.host_hit_tokens = self.resume_host_hit_tokens = 0

    def wrote(self, blocks: IntArray, request: int | IntArray) -> None:
        """Remember who was given ``blocks``: one request for all of them, or one each."""
        self._writer[blocks] = request

    def writers(self, blocks: IntArray) -> IntArray:
        """Who wrote the contents of ``blocks``."""
        return self._writer[blocks]

    def admitted(self, ask: Ask, writers: Callable[[], IntArray]) -> None:
        """Count one successful admission; ``writers`` says who wrote each block that was found, if that matters."""
        hit = ask.prefix.tokens
        if ask.resumed:
            self.resumes += 1
            self.resume_query_tokens += ask.known
            self.resume_hit_tokens += hit
        else:
            self.requests += 1
            self.query_tokens += ask.known
            self.query_blocks += ask.known // self._block_size
            self.hit_tokens += hit
            self.hit_blocks += len(ask.prefix.blocks) + ask.prefix.loads
        if hit:
            blocks = len(ask.prefix.blocks)
            if ask.resumed or self._session[ask.request] >= 0:
                self._by_origin(ask, writers())
            else:                                      # it has written nothing and is of no session
                self.hit_tokens_by_origin["other_request"] += blocks * self._block_size

    def found_nothing(self, known: IntArray) -> None:
        """Count first admissions of so many tokens each."""
        self.requests += len(known)
        self.query_tokens += int(known.sum())
        self.query_blocks += int((known // self._block_size).sum())

    def loaded(self, ask: Ask, writer: IntArray) -> None:
        """Count the hits of an admission that came from the host tier, given who wrote each block."""
        tokens = len(writer) * self._block_size
        if ask.resumed:
            self.resume_host_hit_tokens += tokens
        else:
            self.host_hit_tokens += tokens
        self._by_origin(ask, writer)

    def _by_origin(self, ask: Ask, writer: IntArray) -> None:
        session = self._session[ask.request]
        own = int(np.count_nonzero(writer == ask.request)) if ask.resumed else 0       # before that it has not written anything
        same = 0
        if session >= 0:
            same = int(np.count_nonzero((self._session[writer] == session) & (writer >= 0))) - own
        for origin, blocks in zip(ORIGINS, (len(writer) - own - same, same, own), strict=True):
            self.hit_tokens_by_origin[origin] += blocks * self._block_size
            if ask.resumed:
                self.resume_hit_tokens_by_origin[origin] += blocks * self._block_size
