"""The request log by hand: token-microseconds of a stay with cached tokens, chunks and a preemption."""

import numpy as np

from sim.request_log import NEVER, RequestLog, merged


def test_a_stay_with_a_hit_a_chunk_and_single_tokens():
    # Steps start at 10, 20, 40, 50 and the request leaves at 70. It finds 8 tokens and computes 3 at 10, 5 at 20, then one
    # each: 11 x 60 + 5 x 50 + 1 x 30 + 1 x 20 token-microseconds.
    log = RequestLog(2)
    log.step_started(3)                                # a step before it came
    log.admit(1, 10, hit=8, new=3)
    log.step_started(10)
    log.uneven(1, 20, 5)
    log.step_started(20)
    log.sampled(1, 40)
    log.step_started(40)
    log.step_started(50)
    log.finish(1, 70, computed=18)
    assert log.token_us == [0, 11 * 60 + 5 * 50 + 30 + 20]
    assert (log.residence_us[1], log.admitted_us[1], log.first_token_us[1], log.hit_tokens[1]) == (60, 10, 40, 8)
    assert log.finished_us.tolist() == [NEVER, 70]


def test_stays_add_up_over_a_preemption_and_the_first_admission_counts():
    log = RequestLog(1)
    log.admit(0, 0, hit=0, new=4)
    log.step_started(0)
    log.preempt(0, 5, computed=4)                      # at the start of a step it takes no part in
    log.step_started(5)
    log.admit(0, 8, hit=4, new=1)
    log.step_started(8)
    log.close(12, [(0, 5)])
    assert log.residence_us.tolist() == [5 + 4]
    assert log.token_us == [4 * 5 + 5 * 4]
    assert (log.admitted_us[0], log.hit_tokens[0], log.preemptions[0]) == (0, 0, 1)


def test_logs_of_several_servers_are_one():
    one, other = RequestLog(3), RequestLog(3)
    for log, request, start in ((one, 0, 0), (other, 2, 7)):
        log.admit(request, start, hit=request, new=4)
        log.step_started(start)
        log.sampled(request, start + 5)
        log.finish(request, start + 5, computed=request + 4)
    both = merged([one, other])
    assert (both.admitted_us.tolist(), both.first_token_us.tolist()) == ([0, NEVER, 7], [5, NEVER, 12])
    assert both.finished_us.tolist() == [5, NEVER, 12]
    assert (both.hit_tokens.tolist(), both.residence_us.tolist(), both.token_us) == ([0, 0, 2], [5, 0, 5], [20, 0, 30])
    assert both.preemptions.tolist() == [0, 0, 0]
    part = both.part(np.array([2, 1]))
    assert (part.finished_us.tolist(), part.hit_tokens.tolist(), part.token_us) == ([12, NEVER], [2, 0], [30, 0])
