"""Hits by origin, counted by hand: own before the same session before another request."""

import numpy as np
from small import config_of, states, trace_of

from sim.demand import Demand
from sim.memory.allocator import Ask, Prefix
from sim.memory.prefix_stats import PrefixStats
from sim.result import prefix_cache


def stats_of(session):
    trace = trace_of([(20, 5)] * len(session), session=session)
    return PrefixStats(Demand(trace, 100), num_blocks=20, block_size=4)


def ask(request, known, blocks, resumed=False):
    return Ask(request, known, Prefix(4 * len(blocks), np.array(blocks, np.int32)), known, True, resumed=resumed)


def test_origins():
    stats = stats_of([7, 7, 8, -1, -1])
    for request in range(5):                           # request r writes blocks 3r + 1 .. 3r + 3
        stats.wrote(np.arange(3 * request + 1, 3 * request + 4), request)
    stats.admitted(ask(0, 22, [1, 4, 7], resumed=True))   # its own, of session 7, of session 8
    assert stats.hit_tokens_by_origin == {"other_request": 4, "same_session": 4, "own_after_preemption": 4}
    stats.admitted(ask(3, 21, [13, 1]))                # no session is no common session
    assert stats.hit_tokens_by_origin == {"other_request": 12, "same_session": 4, "own_after_preemption": 4}
    assert (stats.requests, stats.query_tokens, stats.query_blocks, stats.hit_tokens, stats.hit_blocks) == (1, 21, 5, 8, 2)
    assert (stats.resumes, stats.resume_query_tokens, stats.resume_hit_tokens) == (1, 22, 12)


def test_a_preempted_request_that_finds_its_own_blocks_is_no_sharing():
    # Two requests without common content in 4 blocks of 4: request 1 is preempted with two full blocks and finds one again.
    trace = trace_of([(4, 8), (8, 4)])
    run, _ = states(trace, config_of(5, 4, 16, longest_jump=1), "paged-prefix")
    assert run.preemptions >= 1
    found = prefix_cache(run)
    assert found["hit_tokens"] == 0 and found["hit_rate"] == 0.0
    assert found["resume_hit_tokens"] == found["hit_tokens_by_origin"]["own_after_preemption"] > 0
    assert found["hit_tokens_by_origin"]["other_request"] == 0
