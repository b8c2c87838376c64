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


def admitted(stats, asked):
    stats.admitted(asked, lambda: stats.writers(asked.prefix.blocks))


def test_origins():
    stats = stats_of([7, 7, 8, -1, -1])
    for request in range(5):                           # request r writes blocks 3r + 1 .. 3r + 3
        stats.wrote(np.arange(3 * request + 1, 3 * request + 4), request)
    admitted(stats, ask(0, 22, [1, 4, 7], resumed=True))   # its own, of session 7, of session 8
    assert stats.hit_tokens_by_origin == {"other_request": 4, "same_session": 4, "own_after_preemption": 4}
    assert stats.resume_hit_tokens_by_origin == stats.hit_tokens_by_origin
    admitted(stats, ask(3, 21, [13, 1]))                # no session is no common session
    assert stats.hit_tokens_by_origin == {"other_request": 12, "same_session": 4, "own_after_preemption": 4}
    assert stats.resume_hit_tokens_by_origin == {"other_request": 4, "same_session": 4, "own_after_preemption": 4}
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


def test_twins_prefilled_side_by_side_leave_the_first_ones_blocks_to_be_found():
    # Chunks of 6. Step 0: request 0 fills block 0 and request 1, having hit it, reaches token 10 and fills block 1. Step 1:
    # request 0 fills blocks 1 (a copy) and 2, request 1 blocks 2 (a copy) and 3. Request 2 finds the first of each.
    trace = trace_of([(17, 3, 0), (17, 3, 0), (17, 1, 2)], content=[[1, 2, 3, 4]] * 3)
    config = config_of(20, 4, 40, long_prefill_token_threshold=6, longest_jump=1)
    run, _ = states(trace, config, "paged-prefix")
    pool = run.allocator.pool
    assert run.log.hit_tokens.tolist() == [0, 4, 16] and not pool.ref.any()
    assert run.allocator.stats._writer[pool.lookup(run.allocator.hashes.span(2, 0, 4))].tolist() == [0, 1, 0, 1]
