"""Decisions of the scheduler that the recorded cases do not pin down, step by step by hand."""

from dataclasses import replace

import numpy as np
import pytest
from small import config_of, trace_of

from sim.demand import Demand
from sim.engine import Engine
from sim.memory.paged import PagedAllocator
from sim.run import Observer, Stalled
from sim.scheduler import Scheduler
from sim.scheduler_config import SchedulerConfig
from sim.step_time import ConstantStepTime


class Steps(Observer):
    def __init__(self):
        self.steps = []

    def scheduled(self, now_us, step):
        self.steps.append(step)


def steps_of(trace, config, allocator="paged"):
    watcher = Steps()
    Engine(trace, config, allocator, observers=[watcher]).run()
    return watcher.steps


def test_nobody_is_admitted_in_a_step_that_preempted_even_if_the_first_chunk_would_fit():
    # Rule 24. Five blocks of 4, budget 8, no whole-prompt gate. In step 3 request 1 needs a fourth block, none is free and
    # it is the last: it preempts itself. Three blocks are free then and its first chunk needs two, but it has to wait.
    config = config_of(6, 4, 40, max_num_seqs=8, max_num_batched_tokens=8, reserve_full_isl=False, longest_jump=1)
    steps = steps_of(trace_of([(4, 10), (12, 3)]), config)
    assert [len(s.preempted) for s in steps[:5]] == [0, 0, 0, 1, 0]
    assert steps[3].admitted == []
    assert [(a[0], a[2], a[3]) for a in steps[4].admitted] == [(1, 7, True)]


def test_budget_goes_to_running_sequences_in_order_of_admission():
    # Rule 22: a long prefill before it in the list takes the budget, the decoding request behind it gets nothing.
    config = config_of(40, 4, 80, max_num_seqs=4, max_num_batched_tokens=8, long_prefill_token_threshold=6, longest_jump=1)
    steps = steps_of(trace_of([(30, 1), (2, 4)]), config)
    assert [(s.new_tokens, s.sequences) for s in steps[:2]] == [(8, 2), (7, 2)]
    assert steps[1].uneven == [(0, 6)]


def test_a_decode_may_starve_behind_prefill_chunks():
    config = config_of(60, 4, 80, max_num_seqs=4, max_num_batched_tokens=8, long_prefill_token_threshold=4, longest_jump=1)
    steps = steps_of(trace_of([(40, 1), (40, 1), (2, 4, 1)]), config)
    # From step 0 on the two chunks of 4 use up the budget: request 2 is admitted only when they are done.
    first = next(i for i, s in enumerate(steps) if any(a[0] == 2 for a in s.admitted))
    assert first == 10
    assert all(s.new_tokens == 8 for s in steps[:10])


def test_without_chunked_prefill_a_prompt_waits_for_a_step_with_room():
    config = config_of(40, 4, 8, max_num_seqs=4, max_num_batched_tokens=8, enable_chunked_prefill=False, longest_jump=1)
    steps = steps_of(trace_of([(5, 1), (5, 1)]), config)
    assert [s.new_tokens for s in steps] == [5, 5]


def test_load_of_a_step():
    # Two prompts of 3 and 5 tokens: 3 + 5 new tokens, context 8, pairs 1+2+3 + 1+2+3+4+5 = 21; then one decode each.
    steps = steps_of(trace_of([(3, 2), (5, 2)]), config_of(10, 4, 20, longest_jump=1))
    assert tuple(steps[0].load) == (8, 2, 8, 21) and type(steps[0].load.attention_pairs) is int
    assert tuple(steps[1].load) == (2, 2, 10, 10)


def test_load_of_a_step_with_a_chunk():
    # Request 0 decodes, request 1 computes 10 tokens in chunks of 7 and 3 beside it. Step 1: token 4 of request 0 attends to 4;
    # tokens 1 to 7 to 1 + ... + 7 = 28. Step 2: 5, and 8 + 9 + 10 = 27.
    config = config_of(10, 4, 20, max_num_seqs=8, max_num_batched_tokens=8, longest_jump=1)
    steps = steps_of(trace_of([(3, 4), (10, 2, 1)]), config)
    assert [tuple(step.load) for step in steps[:3]] == [(3, 1, 3, 6), (8, 2, 11, 32), (4, 2, 15, 32)]
    assert (steps[2].uneven, steps[2].sampling, steps[1].sampling) == ([(1, 3)], [1], [])


def test_chunks_of_requests_that_will_be_several_sequences():
    config = config_of(20, 4, 20, max_num_seqs=8, max_num_batched_tokens=16, long_prefill_token_threshold=4, longest_jump=1)
    steps = steps_of(replace(trace_of([(10, 2), (10, 2)]), samples=np.array([2, 2])), config)
    assert [s.uneven for s in steps[:3]] == [[], [(0, 4), (1, 4)], [(0, 2), (1, 2)]]
    assert [s.new_tokens for s in steps] == [8, 8, 4, 4]


def test_sequences_to_come_take_places():
    config = config_of(20, 4, 20, max_num_seqs=4, max_num_batched_tokens=16, long_prefill_token_threshold=4, longest_jump=1)
    steps = steps_of(replace(trace_of([(10, 2), (10, 2)]), samples=np.array([3, 2])), config)
    assert [[a[0] for a in s.admitted] for s in steps[:5]] == [[0], [], [], [], [1]]       # 3 of the 4 are the first one's


def test_load_of_a_prefix_hit_counts_only_what_is_computed():
    trace = trace_of([(9, 1, 0), (9, 1, 5)], content=[[1, 2, 3], [1, 2, 3]])
    steps = steps_of(trace, config_of(10, 4, 20, longest_jump=1), "paged-prefix")
    assert tuple(steps[1].load) == (1, 1, 9, 9)         # one new token that attends to 8 cached ones and itself


@pytest.mark.parametrize(("changes", "message"), [
    ({"max_num_seqs": 0}, "max_num_seqs must be at least 1"),
    ({"max_num_batched_tokens": 100, "max_num_seqs": 101}, r"tokens \(100\) must be at least max_num_seqs \(101\)"),
    ({"watermark": 1.0}, "watermark must be in"),
    ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold must be 0 or more"),
])
def test_what_vllm_refuses_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SchedulerConfig(**changes)


def test_a_pool_that_can_make_no_progress_names_the_request(monkeypatch):
    monkeypatch.setattr(Engine, "_verdicts", lambda engine: np.zeros(1, np.int64))     # as if it were not checked at arrival
    engine = Engine(trace_of([(30, 1)]), config_of(3, 4, 40), "paged")
    with pytest.raises(Stalled, match=r"request 0 \(30 \+ 1 tokens\)"):
        engine.run()


def test_an_arrival_at_the_very_end_of_a_step_is_scheduled_at_once():
    # At one instant update, then all arrivals, then schedule. Steps of 10 us; request 2 arrives as one ends.
    config = config_of(10, 4, 20, step_time=ConstantStepTime(10), longest_jump=1)
    run = Engine(trace_of([(4, 3, 0), (4, 1, 5), (4, 1, 10)]), config, "paged").run()
    assert run.log.admitted_us.tolist() == [0, 10, 10]


def test_of_equal_priority_the_one_that_arrived_first():
    trace = trace_of([(4, 1)] * 4)
    demand = Demand(trace, 16)
    scheduler = Scheduler(demand, PagedAllocator(demand, 10, 4, caching=False), SchedulerConfig(policy="priority"), 10, 4)
    for request in (1, 3, 0, 2):
        scheduler.add(request)
    assert list(scheduler.waiting) == [1, 3, 0, 2] and scheduler.urgency.tolist() == [2, 0, 3, 1]


def test_a_head_that_finds_what_is_being_generated_is_not_jumped_over():
    # 5 blocks of 4. The second prompt, of 5 blocks, begins with the first one's tokens: 4 are free beside a block of 3 tokens
    # that nobody finds yet; with its fourth token, in the next step, it is full and found.
    trace = trace_of([(3, 14), (17, 1)], content=[[1, 2, 3, 4], [1, 2, 3, 4]])
    trace = replace(trace, content=replace(trace.content, cover_output=True))
    run = Engine(trace, config_of(6, 4, 20), "paged-prefix").run()
    assert run.log.admitted_us.tolist() == [0, 1]


def test_an_arrival_in_the_middle_of_a_jump_is_admitted_at_once():
    run = Engine(trace_of([(4, 20, 0), (4, 1, 5)]), config_of(20, 4, 40), "paged").run()
    assert run.log.admitted_us.tolist() == [0, 5] and run.log.finished_us.tolist() == [20, 6]


def test_a_prompt_goes_on_in_chunks_beside_one_that_comes_back_from_the_host():
    # Six blocks of 4; request 0 computes 4 tokens a step, 1 and 2 decode. In step 2 it takes the last block of 2, which comes
    # back with its 5 tokens in step 3, as 1 has ended, has to leave again in step 4 and stays away until the prompt is done.
    config = config_of(7, 4, 40, max_num_seqs=8, max_num_batched_tokens=16, long_prefill_token_threshold=4, swap_blocks=9,
                       longest_jump=1)
    steps = steps_of(trace_of([(24, 1), (4, 3), (4, 10)]), config)
    assert [s.new_tokens for s in steps[:7]] == [12, 6, 5, 4, 4, 4, 0]
    assert [s.preempted for s in steps[:7]] == [[], [], [(2, 5)], [], [(2, 5)], [], []]
    assert [s.swapped_in for s in steps[:7]] == [[], [], [], [(2, 5)], [], [], [(2, 5)]]


def test_two_prompts_go_on_in_chunks_one_of_them_back_from_the_host():
    # Four blocks of 4, chunks of 2. In step 4 request 1 would need a third block; it comes back in step 5 with 8 of its 10
    # tokens, as 0 has ended, and 2 is admitted in the same step: both compute two tokens in the next.
    config = config_of(5, 4, 16, max_num_seqs=2, max_num_batched_tokens=16, long_prefill_token_threshold=2, swap_blocks=9,
                       reserve_full_isl=False, longest_jump=1)
    steps = steps_of(trace_of([(2, 5), (10, 1), (4, 1)]), config)
    assert [s.new_tokens for s in steps] == [4, 3, 3, 3, 1, 2, 4]
    assert [(s.preempted, s.swapped_in) for s in steps[4:6]] == [([(1, 8)], []), ([], [(1, 8)])]
    assert [(a[0], a[2]) for a in steps[5].admitted] == [(2, 2)] and sorted(steps[6].sampling) == [1, 2]
