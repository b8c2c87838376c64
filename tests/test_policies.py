"""Asynchronous scheduling, priorities and preemption by swap, worked out by hand; and `compare` with their options."""

import csv
from bisect import insort
from dataclasses import replace

import numpy as np
import pytest
from cli_run import document, lengths, run, timed
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, config_of, states, trace_of

from experiments.compare import parser
from experiments.crosscheck import audit_for, checks
from sim.catalog import ALLOCATORS
from sim.engine import Engine
from sim.flight import Flight
from sim.run import Observer, Stalled
from sim.scheduler_config import SchedulerConfig
from sim.step_time import ConstantStepTime
from sim.waiting import ArrivalQueue, PriorityQueue
from workloads.request import Trace

MOST_STEPS = 3000


class Watch(Observer):
    """Keeps the steps, counts the tokens delivered to each request, and stops a run that does not end."""

    def __init__(self):
        self.steps, self.starts, self.delivered = [], [], {}

    def started(self, allocator, scheduler):
        if scheduler.flight is not None:
            self._land, scheduler.flight.land = scheduler.flight.land, self._count

    def _count(self):
        landed = self._land()
        for request, token, _ in landed:
            self.delivered[request] = self.delivered.get(request, 0) + token
        return landed

    def scheduled(self, now_us, step):
        self.steps.append(step)
        self.starts.append(now_us)
        assert len(self.steps) < MOST_STEPS, "the run does not end"


def watched(trace, config, allocator="paged"):
    """The facts of a run and its `Watch`; every cross-check of `compare` must pass."""
    watcher, audit = Watch(), audit_for(allocator)
    facts = Engine(trace, config, allocator, observers=[watcher, audit]).run()
    assert [c.name for c in checks(allocator, facts, None, audit) if not c.ok] == []
    assert sum(facts.ledger.total.parts) == facts.allocator.capacity * facts.ledger.total.time_us
    return facts, watcher


def urgent(requests, content=None):
    """Requests as (prompt, output, arrival_us, priority)."""
    return replace(trace_of([r[:3] for r in requests], content), priority=np.array([r[3] for r in requests]))


# ---------------------------------------------------------------------- what is on its way
def arrays(*columns):
    return [np.array(column, np.int64) for column in columns]


def test_flight_by_hand():
    flight = Flight(3)
    flight.send(*arrays([0, 2], [5, 1], [0, 1]))         # a chunk of 5 tokens, and one that samples
    assert (len(flight), flight.full, flight.tokens.tolist()) == (1, False, [5, 0, 1])
    flight.send(*arrays([0], [2], [1]))
    assert (len(flight), flight.full, flight.tokens.tolist()) == (2, True, [7, 0, 1])
    assert flight.land() == [(0, False, False), (2, True, False)]
    assert (len(flight), flight.full, flight.tokens.tolist()) == (1, False, [2, 0, 0])
    assert flight.land() == [(0, True, False)]
    assert (len(flight), flight.tokens.tolist(), flight.stale.tolist()) == (0, [0, 0, 0], [0, 0, 0])


def test_an_empty_step_takes_a_place_and_waits_for_the_oldest():
    flight = Flight(2)
    flight.send(*arrays([1], [4], [1]))
    flight.send(*arrays([], [], []))
    assert (len(flight), flight.full) == (2, True)
    assert flight.land() == [(1, True, False)]
    assert (len(flight), flight.full) == (1, True)       # only the empty one is left: nothing can come of waiting
    assert flight.land() == []


def test_tokens_of_a_preempted_stay_are_stale_and_those_of_the_next_are_not():
    flight = Flight(2)
    flight.send(*arrays([0, 1], [3, 1], [1, 1]))
    assert (flight.preempted(0), flight.preempted(0)) == (True, True)      # asking again changes nothing
    flight.send(*arrays([1], [1], [1]))
    assert (flight.tokens.tolist(), flight.stale.tolist()) == ([3, 2], [3, 0])
    assert flight.land() == [(0, True, True), (1, True, False)]
    assert (flight.tokens.tolist(), flight.stale.tolist()) == ([0, 1], [0, 0])
    assert flight.preempted(0) is False                  # nothing on its way
    flight.send(*arrays([0], [4], [1]))                  # resumed
    assert flight.land() == [(1, True, False)]
    assert flight.land() == [(0, True, False)]


# ---------------------------------------------------------------------- asynchronous scheduling under a clock
# Steps of 10 us, blocks of 4, 5 of them. a: 5 + 3 at 0; b: 6 + 1 at 5; c: 3 + 2 at 60.
#   asynchronous                                               synchronous
#   at 0   step 0: a 5 (0-10); step 1: a 6th (10-20)           0-10   a 5
#   at 10  a's first token; step 2: a 7th, b 6 (20-30)         10-20  a 6th, b 6; b leaves at 20
#   at 20  step 3: both have their last token on the way: empty    20-30  a 7th, leaves at 30
#   at 30  both leave
#   at 60  step 4: c 3 (60-70), and as the empty step is there at once, step 5: c 4th (70-80)    60-70, 70-80
#   at 70  step 6: empty         at 80  c leaves
TIMELINE = [(5, 3, 0), (6, 1, 5), (3, 2, 60)]


def clocked(num_blocks=6, **changes):
    return config_of(num_blocks, 4, 12, step_time=ConstantStepTime(10), **changes)


def test_asynchronous_timeline():
    facts, watcher = watched(trace_of(TIMELINE), clocked(async_scheduling=True))
    assert watcher.starts == [0, 0, 10, 20, 60, 60, 70]
    assert [s.new_tokens for s in watcher.steps] == [5, 1, 7, 0, 3, 1, 0]
    assert facts.log.admitted_us.tolist() == [0, 10, 60]
    assert facts.log.first_token_us.tolist() == [10, 30, 70]
    assert facts.log.finished_us.tolist() == [30, 30, 80]
    assert facts.log.residence_us.tolist() == [30, 20, 20]
    assert watcher.delivered == {0: 3, 1: 1, 2: 2}


def test_synchronous_timeline_of_the_same():
    facts, _ = watched(trace_of(TIMELINE), clocked())
    assert facts.log.first_token_us.tolist() == [10, 20, 70]
    assert facts.log.finished_us.tolist() == [30, 20, 80]


def test_asynchronous_ledger():
    # token states | reserved | internal | cached | external | remainder | idle, of 20 slots
    #  0  a 6 states in 8 slots, one more to come                        6 1 1 0 0 0 12
    # 10  a 7 in 8, b 6 in 8; the same at 20, when nothing is scheduled  13 0 3 0 0 0 4
    # 30  nobody                                                         all idle
    # 60  c 4 in 4, until 80                                             4 0 0 0 0 0 16
    facts, booked = states(trace_of(TIMELINE), clocked(async_scheduling=True), "paged")
    assert [(at, part, running) for at, part, running, _ in booked] == [
        (0, (6, 1, 1, 0, 0, 0, 12), 1), (10, (13, 0, 3, 0, 0, 0, 4), 2), (20, (13, 0, 3, 0, 0, 0, 4), 2),
        (30, (0, 0, 0, 0, 0, 0, 20), 0), (60, (4, 0, 0, 0, 0, 0, 16), 1), (70, (4, 0, 0, 0, 0, 0, 16), 1)]
    assert facts.ledger.total.time_us == 80
    assert facts.ledger.total.parts == [6 * 10 + 13 * 20 + 4 * 20, 10, 10 + 3 * 20, 0, 0, 0, 120 + 80 + 600 + 320]


def test_a_prompt_in_chunks_samples_once():
    # Budget 4, steps of 10 us: 4 + 4 + 1 prompt tokens and two more: steps end at 10, 20, 30, 40, 50; the first token at 30.
    facts, watcher = watched(trace_of([(9, 3)]), clocked(async_scheduling=True, max_num_batched_tokens=4, max_num_seqs=4))
    assert [s.new_tokens for s in watcher.steps] == [4, 4, 1, 1, 1, 0]
    assert (facts.log.first_token_us.tolist(), facts.log.finished_us.tolist(), watcher.delivered) == ([30], [50], {0: 3})


def test_a_request_may_end_while_it_is_preempted():
    # Rule 37. Three blocks of 4, steps of 10 us. a: 7 + 4, b: 3 + 2.
    #   at 0   step 0: a 7 in 2 blocks, b 3 in 1; step 1: a 8th, b 4th, its last
    #   at 10  step 2: a needs a third block: b is preempted with its last token on the way
    #   at 20  it arrives: b has ended in the queue and never comes back; step 3: a 10th, its last
    #   at 30  step 4: empty        at 40  a leaves
    # Computed tokens x time: a 8 x 40 + 30 + 20, b 4 x 10.
    facts, watcher = watched(trace_of([(7, 4), (3, 2)]), clocked(4, async_scheduling=True))
    assert [s.preempted for s in watcher.steps] == [[], [], [(1, 4)], [], []]
    assert (facts.log.finished_us.tolist(), facts.log.first_token_us.tolist()) == ([40, 20], [10, 10])
    assert (facts.log.residence_us.tolist(), facts.log.token_us) == ([40, 10], [370, 40])
    assert (facts.log.preemptions.tolist(), facts.preemptions, watcher.delivered) == ([0, 1], 1, {0: 4, 1: 2})
    assert facts.ledger.total.parts[0] == 410


def test_a_token_on_its_way_is_not_computed_again():
    # As above with b: 3 + 4. At 10 its second token is on the way; at 20 it is there: 3 + 2 tokens to compute when it comes
    # back, 1 more is sampled by them and 1 after that. a leaves at 40; b runs 40-50 and 50-60.
    facts, watcher = watched(trace_of([(7, 4), (3, 4)]), clocked(4, async_scheduling=True))
    assert [(i, a[:3]) for i, s in enumerate(watcher.steps) for a in s.admitted if a[3]] == [(5, (1, 0, 5))]
    assert (facts.log.finished_us.tolist(), watcher.delivered) == ([40, 60], {0: 4, 1: 4})


@pytest.mark.parametrize(("asynchronous", "tokens"), [(False, [5, 1] * 3), (True, [5, 1, 0] * 3)])
def test_blocks_come_back_a_step_later(asynchronous, tokens):
    # Rule 35. Two blocks of 4, which a request of 5 + 2 tokens fills: one at a time. The last token on its way, its blocks are
    # not free for the step scheduled then; that empty step ends with the one before and costs no time.
    facts, watcher = watched(trace_of([(5, 2)] * 3), clocked(3, longest_jump=1, async_scheduling=asynchronous))
    assert [s.new_tokens for s in watcher.steps] == tokens
    assert facts.log.finished_us.tolist() == [20, 40, 60]


# ---------------------------------------------------------------------- any small trace
REQUESTS = st.lists(st.tuples(st.integers(1, 14), st.integers(1, 9), st.integers(0, 12), st.integers(-1, 2)),
                    min_size=1, max_size=9)
LIMITS = st.fixed_dictionaries({
    "max_num_seqs": st.integers(1, 5), "max_num_batched_tokens": st.integers(5, 20),
    "policy": st.sampled_from(["fcfs", "priority"]),
    "long_prefill_token_threshold": st.sampled_from([0, 3]), "reserve_full_isl": st.booleans(),
    "go_on_after_own_preemption": st.booleans(), "exempt_lone_prefill": st.booleans(), "watermark": st.sampled_from([0.0, 0.2]),
})


def in_order(requests):
    """The trace, sorted by arrival."""
    requests = sorted(requests, key=lambda r: r[2])
    return urgent([(p, o, at - requests[0][2], u) for p, o, at, u in requests],
                  [[i % 3] * 4 for i in range(len(requests))])


@settings(max_examples=300 * LONG, deadline=None)
@given(REQUESTS, LIMITS, st.booleans(), st.integers(4, 12), st.sampled_from(list(ALLOCATORS)))
def test_everybody_ends_with_all_tokens(requests, limits, asynchronous, blocks, allocator):
    trace = in_order(requests)
    config = config_of(blocks, 4, 24, step_time=ConstantStepTime(2), async_scheduling=asynchronous, **limits)
    facts, watcher = watched(trace, config, allocator)
    log, served = facts.log, facts.verdict == 0
    ends = log.finished_us[served]
    assert np.all(trace.arrival_us[served] <= log.admitted_us[served])
    assert np.all(log.admitted_us[served] < log.first_token_us[served])
    assert np.all(log.first_token_us[served] <= ends)
    assert np.all(log.residence_us[served] <= ends - trace.arrival_us[served])
    assert np.all(log.finished_us[~served] == -1)
    assert int(log.preemptions.sum()) == facts.preemptions
    if asynchronous:
        assert watcher.delivered == dict(zip(np.flatnonzero(served).tolist(), facts.demand.output[served].tolist(), strict=True))
    if not allocator.startswith("contiguous"):
        pool = facts.allocator.pool
        assert pool.free == pool.num_blocks - 1 and not pool.ref.any()
    if facts.allocator.reserves_ahead and allocator != "vattention":
        assert facts.preemptions == 0


@settings(max_examples=300 * LONG, deadline=None)
@given(REQUESTS, LIMITS, st.integers(4, 9), st.sampled_from(list(ALLOCATORS)))
def test_decode_steps_made_together_change_nothing(requests, limits, blocks, allocator):
    trace = in_order(requests)
    runs = [watched(trace, config_of(blocks, 4, 24, longest_jump=jump, **limits), allocator)[0] for jump in (1, 1024)]
    single, together = ((run.steps, run.preemptions, run.ledger.total, run.log.token_us, run.log.finished_us.tolist())
                        for run in runs)
    assert single == together


# ---------------------------------------------------------------------- those that can never move
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("policy", "stuck"), [("fcfs", [0, 1]), ("priority", [0])])
def test_a_prompt_larger_than_the_pool_is_reported(asynchronous, policy, stuck):
    # Rule 34: 30 tokens in 3 blocks of 4 never fit; who is more urgent goes before it, who came later does not.
    config = config_of(4, 4, 40, policy=policy, async_scheduling=asynchronous, refuse_impossible=False)
    facts, _ = watched(urgent([(30, 1, 0, 0), (4, 2, 0, -1)]), config)
    assert facts.stuck == stuck
    assert [i for i in (0, 1) if facts.log.finished_us[i] < 0] == stuck
    facts, _ = watched(urgent([(30, 1, 0, 0), (4, 2, 0, -1)]), replace(config, refuse_impossible=True))
    assert (facts.stuck, facts.verdict.tolist(), facts.log.finished_us.tolist()) == ([], [2, 0], [-1, 2])


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_an_output_larger_than_the_pool_is_reported(asynchronous, policy, monkeypatch):
    # It runs up to 12 states, preempts itself for a 13th, and 13 tokens do not fit again.
    config = config_of(4, 4, 40, policy=policy, async_scheduling=asynchronous, refuse_impossible=False)
    facts, _ = watched(urgent([(4, 20, 0, 0)]), config)
    assert (facts.stuck, facts.preemptions, facts.log.residence_us.tolist()) == ([0], 1, [8 if asynchronous else 9])
    monkeypatch.setattr(Engine, "_verdicts", lambda engine: np.zeros(1, np.int64))     # as if it were not checked at arrival
    engine = Engine(urgent([(4, 20, 0, 0)]), replace(config, refuse_impossible=True), "paged")
    with pytest.raises(Stalled, match=r"request 0 \(4 \+ 20 tokens\)"):
        engine.run()


# ---------------------------------------------------------------------- the queue by priority (rule 29)
@settings(max_examples=100 * LONG, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.lists(st.integers(0, 99), max_size=60))
def test_priority_queue_against_a_sorted_list(urgency, moves):
    queue, model = PriorityQueue(np.array(urgency)), []
    outside = set(range(len(urgency)))
    for move in moves:
        request = move % len(urgency)
        if request in outside:
            (queue.add if move % 2 else queue.put_back)(request)
            insort(model, (urgency[request], request))
            outside.discard(request)
        elif move % 3:
            taken = queue.pop()
            assert taken == model.pop(0)[1]
            outside.add(taken)
        else:
            queue.discard(request)
            model.remove((urgency[request], request))
            outside.add(request)
        assert list(queue) == [r for _, r in model] and len(queue) == len(model)
        assert not model or queue.head() == model[0][1]


def test_arrival_queue_puts_the_preempted_in_front():
    queue = ArrivalQueue()
    queue.add(0), queue.add(1), queue.put_back(7), queue.put_back(6), queue.discard(1)
    assert (queue.head(), len(queue), list(queue)) == (6, 3, [6, 7, 0])
    assert [queue.pop() for _ in range(3)] == [6, 7, 0]


# Three blocks of 4, a microsecond a step. x 2 + 4 at 0, priority 0; y 2 + 5 at 1, priority 5; z 2 + 4 at 2, priority 1;
# w 4 + 1 at 3, priority 3, arrives while y, preempted, waits.
#   0  x 2        1  x 3, y 2        2  x 4, y 3, z 2: three blocks        3  x needs a second one; w has come
#   by priority   y, in the middle of the list, is preempted with 3 states; x 5, its last, z 3
#     4           x has left with 2 blocks; w is more urgent than y: w 4 tokens, y 4 again; z 4
#   first come    z, the last, is preempted with 2 states; x 5, y 4
#     4           z is in front of w: z 3 again, y 5; w has to wait for a block
def test_the_victim_is_the_least_urgent_wherever_it_is():
    rows = [(2, 4, 0, 0), (2, 5, 1, 5), (2, 4, 2, 1), (4, 1, 3, 3)]
    _, watcher = watched(urgent(rows), config_of(4, 4, 12, policy="priority", longest_jump=1))
    assert [s.preempted for s in watcher.steps[:4]] == [[], [], [], [(1, 3)]]
    assert watcher.steps[3].new_tokens == 2
    assert [a[:4] for a in watcher.steps[4].admitted] == [(3, 0, 4, False), (1, 0, 4, True)]
    _, watcher = watched(urgent(rows), config_of(4, 4, 12, longest_jump=1))
    assert [s.preempted for s in watcher.steps[:4]] == [[], [], [], [(2, 2)]]
    assert [a[:4] for a in watcher.steps[4].admitted] == [(2, 0, 3, True)]


def test_tokens_of_a_victim_scheduled_before_return_to_the_budget():
    # Four blocks of 4, budget 4, no gate. x 4 + 9 at 0, priority 5; y 3 + 9 at 1, priority 0; z 8 + 1 at 2, priority 1.
    #   0  x 4        1  x 5 (2 blocks), y 3        2  x 6, y 4, z a chunk of 2: four blocks
    #   3  x 7; y needs a second block: x goes with 6 states and 2 blocks; its token is free: y 5, z 3 of its 6, 4 in all
    config = config_of(5, 4, 16, policy="priority", max_num_seqs=4, max_num_batched_tokens=4, reserve_full_isl=False,
                       longest_jump=1)
    _, watcher = watched(urgent([(4, 9, 0, 5), (3, 9, 1, 0), (8, 1, 2, 1)]), config)
    assert [s.new_tokens for s in watcher.steps[:4]] == [4, 4, 4, 4]
    assert (watcher.steps[3].preempted, watcher.steps[3].uneven, watcher.steps[3].admitted) == ([(0, 6)], [(2, 3)], [])


def test_of_equal_priorities_the_later_row_makes_room():
    # Two alike at the same instant, three blocks of 4: in step 1 the first takes the third block, the second finds none.
    rows = [(4, 5, 0, 2), (4, 5, 0, 2)]
    for policy in ("priority", "fcfs"):
        _, watcher = watched(urgent(rows), config_of(4, 4, 12, policy=policy, longest_jump=1))
        assert watcher.steps[1].preempted == [(1, 4)]


def test_equals_do_not_take_each_others_blocks_for_ever():
    # Without the whole-prompt gate, everybody at one instant: with a tie the first in the list would go, and again, for ever.
    limits = {"max_num_seqs": 2, "max_num_batched_tokens": 5, "long_prefill_token_threshold": 3, "reserve_full_isl": False}
    facts, _ = watched(urgent([(3, 4, 0, 0), (8, 2, 0, 0)]),
                       config_of(4, 4, 12, policy="priority", exempt_lone_prefill=False, longest_jump=1, **limits))
    assert facts.log.finished_us.min() > 0


def test_an_urgent_arrival_goes_before_a_refused_head():
    # Five blocks of 4. a 8 + 8 at 0 leaves at 8; b 16 + 1 at 1 needs 4 blocks of the 2 left: refused. c 4 + 1 at 4, more
    # urgent, needs one: it runs in the step at 4, although a's decode steps could be made together; else with b at 8.
    rows = [(8, 8, 0, 0), (16, 1, 1, 0), (4, 1, 4, -1)]
    for jump in (1, 1024):
        facts, _ = watched(urgent(rows), config_of(6, 4, 20, policy="priority", longest_jump=jump))
        assert facts.log.finished_us.tolist() == [8, 9, 5]
        facts, _ = watched(urgent(rows), config_of(6, 4, 20, longest_jump=jump))
        assert facts.log.finished_us.tolist() == [8, 9, 9]


@settings(max_examples=200 * LONG, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 14), st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=9),
       LIMITS, st.integers(4, 9), st.booleans())
def test_without_priorities_and_ties_it_is_first_come_first_served(requests, limits, blocks, asynchronous):
    arrival = np.cumsum([gap for _, _, gap in requests])
    rows = [(p, o, int(at - arrival[0])) for (p, o, _), at in zip(requests, arrival, strict=True)]
    limits = {**limits, "async_scheduling": asynchronous}
    both = [states(trace_of(rows), config_of(blocks, 4, 24, **{**limits, "policy": policy}, longest_jump=1), "paged")
            for policy in ("fcfs", "priority")]
    assert both[0][1] == both[1][1]
    assert both[0][0].log.token_us == both[1][0].log.token_us


# ---------------------------------------------------------------------- `compare` with these options
POOL = ("--num-gpu-blocks-override", 4, "--block-size", 4, "--max-model-len", 12, "--step-time", "constant:1s")


def rows_of(capsys, tmp_path, *arguments):
    """Rows of --requests for `paged`, and the JSON."""
    path = tmp_path / "rows.csv"
    found = document(capsys, *arguments, "--allocator", "paged", "--requests", path)
    with path.open() as file:
        return list(csv.DictReader(file)), found


def test_priorities_come_as_a_column(capsys, tmp_path):
    # One at a time, all at 0: 2 steps each. By priority: the third, the first, the second (equal ones by row).
    trace = tmp_path / "urgent.csv"
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens,priority\n0,4,2,0\n0,4,2,0\n0,4,2,-1\n")
    rows, found = rows_of(capsys, tmp_path, trace, *POOL, "--max-num-seqs", 1, "--scheduling-policy", "priority")
    assert [r["e2e_s"] for r in rows] == ["4.0", "6.0", "2.0"]
    assert not any("has no priorities" in note for note in found["config"]["notes"])
    rows, _ = rows_of(capsys, tmp_path, trace, *POOL, "--max-num-seqs", 1)
    assert [r["e2e_s"] for r in rows] == ["2.0", "4.0", "6.0"]


def test_a_trace_without_priorities_is_said(capsys, tmp_path):
    trace = timed(tmp_path, [(0, 4, 2), (1, 4, 2), (2, 4, 2)])
    rows, found = rows_of(capsys, tmp_path, trace, *POOL, "--scheduling-policy", "priority")
    assert any("has no priorities" in note for note in found["config"]["notes"])
    same, other = rows_of(capsys, tmp_path, trace, *POOL)
    assert rows == same and found["scenarios"] == other["scenarios"]
    assert not any("has no priorities" in note for note in other["config"]["notes"])


def test_asynchronous_by_hand(capsys, tmp_path):
    # The timeline above in units of 10 s; a's first token after 10, b's 25 after it came at 5.
    trace = timed(tmp_path, [(at, p, o) for p, o, at in TIMELINE])
    options = ("--num-gpu-blocks-override", 6, "--block-size", 4, "--max-model-len", 12, "--step-time", "constant:10s")
    rows, found = rows_of(capsys, tmp_path, trace, *options, "--async-scheduling")
    assert [(r["queue_s"], r["ttft_s"], r["e2e_s"], r["residence_s"]) for r in rows] == [
        ("0.0", "10.0", "30.0", "30.0"), ("5.0", "25.0", "25.0", "20.0"), ("0.0", "10.0", "20.0", "20.0")]
    scenario = found["scenarios"][0]
    assert (scenario["steps"], scenario["makespan_s"], scenario["window_us"]) == (7, 80, [0, 80_000_000])
    assert scenario["memory"]["slot_microseconds"]["token_states"] == 400_000_000
    assert found["config"]["async_scheduling"] is True
    rows, found = rows_of(capsys, tmp_path, trace, *options, "--no-async-scheduling")
    assert [r["e2e_s"] for r in rows] == ["30.0", "15.0", "20.0"]
    assert found["config"]["async_scheduling"] is False


def test_all_allocators_with_everything_on(capsys, tmp_path):
    trace = tmp_path / "urgent.csv"
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens,priority\n"
                     + "".join(f"{i // 3},{8 + 7 * i % 19},{3 + i % 8},{i % 4}\n" for i in range(30)))
    for saturate in ((), ("--saturate",)):
        found = document(capsys, trace, "--num-gpu-blocks-override", 14, "--block-size", 4, "--scheduling-policy", "priority",
                         "--async-scheduling", *saturate)
        assert [s["requests"]["completed"] for s in found["scenarios"]] == [30] * 5
        assert all(c["ok"] for c in found["crosscheck"])
        assert found["scenarios"][3]["requests"]["preemptions"] > 0


@pytest.mark.parametrize(("options", "e2e_s"), [
    ((), "7.0"), (("--preemption-mode", "recompute"), "7.0"),
    (("--preemption-mode", "swap", "--swap-blocks", 1), "7.000001"), (("--preemption-mode", "swap", "--swap-blocks", 0), "7.0"),
])
def test_swap_by_hand(capsys, tmp_path, options, e2e_s):
    # Three blocks of 4. a 7 + 5 takes the third one in step 2, b 3 + 4 is preempted with 4 states in one block until a leaves
    # at 5. By recompute b computes 5 tokens in one step, then 1. From the host its coming back is a step in which nothing is
    # computed (1 us), then 1 and 1. Where the host has no room, as by recompute.
    rows, found = rows_of(capsys, tmp_path, timed(tmp_path, [(0, 7, 5), (0, 3, 4)]), *POOL, *options)
    assert [r["e2e_s"] for r in rows] == ["5.0", e2e_s]
    assert [r["preemptions"] for r in rows] == ["0", "1"]
    swapped = "swap" in options
    assert found["config"]["preemption_mode"] == ("swap" if swapped else "recompute")
    assert found["config"]["swap_blocks"] == (options[-1] if swapped else None)


@pytest.mark.parametrize(("options", "blocks"), [
    # OPT-13B: 2 x 40 layers x 40 heads x 128 x 2 bytes = 819,200 bytes a token, 13,107,200 a block of 16; 2^30 a GiB:
    # 4 GiB hold 327.68 blocks; half of a block's bytes on each of two GPUs, so twice as many; blocks of 32, half as many.
    ((), 327), (("--swap-space", 1), 81), (("--swap-space", 0.5), 40), (("--swap-space", 0.001), 0),
    (("--block-size", 32), 163), (("--tensor-parallel-size", 2), 655), (("--swap-blocks", 7, "--swap-space", 1), 7),
])
def test_swap_space_is_in_gib_a_gpu(capsys, tmp_path, options, blocks):
    found = document(capsys, lengths(tmp_path, [(20, 3)]), "--model", "opt-13b", "--num-gpu-blocks-override", 200, "--allocator",
                     "paged", "--preemption-mode", "swap", *options)
    assert (found["config"]["preemption_mode"], found["config"]["swap_blocks"]) == ("swap", blocks)


def test_fields_of_the_configuration(capsys, tmp_path):
    trace = lengths(tmp_path, [(5, 3)])
    fields = ("async_scheduling", "scheduling_policy", "preemption_mode", "swap_blocks", "vllm_version")

    def found(*options):
        config = document(capsys, trace, *POOL, *options)["config"]
        return [config[name] for name in fields]
    assert found() == [False, "fcfs", "recompute", None, "0.33"]
    assert found("--async-scheduling", "--scheduling-policy", "priority", "--vllm-version", "v0.11.0rc2") == \
        [True, "priority", "recompute", None, "0.11.0"]
    assert found("--preemption-mode", "swap", "--swap-blocks", "2k", "--vllm-version", "0.28") == \
        [False, "fcfs", "swap", 2000, "0.28"]


def test_they_are_said_to_a_person(capsys, tmp_path):
    trace = lengths(tmp_path, [(5, 3)])
    said = run(capsys, "compare", trace, *POOL, "-q").out
    assert "synchronous scheduling" in said and "asynchronous" not in said and "policy" not in said and "swap" not in said
    said = run(capsys, "compare", trace, *POOL, "-q", "--async-scheduling", "--scheduling-policy", "priority").out
    assert "asynchronous scheduling" in said and "policy priority" in said
    said = run(capsys, "compare", trace, *POOL, "-q", "--preemption-mode", "swap", "--swap-blocks", 1234).out
    assert "preemption by swap to 1,234 host blocks" in said


@pytest.mark.parametrize(("options", "words"), [
    (("--scheduling-policy", "sjf"), "argument --scheduling-policy: invalid choice: 'sjf'"),
    (("--preemption-mode", "drop"), "argument --preemption-mode: invalid choice: 'drop'"),
    (("--swap-blocks", -1), "argument --swap-blocks: at least 0 is wanted, not -1"),
    (("--swap-blocks", "few"), "argument --swap-blocks: a whole number is wanted, not 'few'"),
    (("--swap-blocks", 1 << 60), "argument --swap-blocks: 1152921504606846976 is too large"),
    (("--swap-space", 0), "argument --swap-space: a number above 0 is wanted, not '0'"),
    (("--swap-space", "inf"), "argument --swap-space: a number above 0 is wanted, not 'inf'"),
    (("--swap-space", "nan"), "argument --swap-space: a number above 0 is wanted, not 'nan'"),
    (("--async-scheduling=1",), "argument --async-scheduling/--no-async-scheduling: ignored explicit argument '1'"),
    (("--preemption-mode", "swap"), "--preemption-mode swap without a --model: --swap-blocks is wanted"),
    (("--preemption-mode", "swap", "--swap-blocks", 3, "--async-scheduling"),
     "preemption by swap and asynchronous scheduling do not go together"),
    (("--samples", 2, "--async-scheduling"), "several sequences a request and asynchronous scheduling do not go together"),
    (("--beam-width", 2, "--async-scheduling"), "several sequences a request and asynchronous scheduling do not go together"),
    (("--vllm-version",), "argument --vllm-version: expected one argument"),
])
def test_what_cannot_be_asked_for_is_one_line(capsys, tmp_path, options, words):
    said = run(capsys, "compare", lengths(tmp_path, [(5, 3)]), *POOL, *options)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith(f"pagedsim compare: error: {words}") and said.err.count("\n") == 1


@pytest.mark.parametrize(("changes", "message"), [
    ({"policy": "sjf"}, "scheduling_policy must be one of fcfs, priority, not 'sjf'"),
    ({"swap_blocks": -1}, "swap_blocks must be 0 or more, not -1"),
    ({"swap_blocks": 0, "async_scheduling": True}, "do not go together"),
])
def test_what_a_configuration_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        SchedulerConfig(**changes)


def test_several_samples_and_asynchronous_scheduling_are_refused():
    trace = Trace("two samples", np.array([4]), np.array([2]), arrival_us=np.array([0]), samples=np.array([2]))
    with pytest.raises(ValueError, match="do not go together"):
        Engine(trace, config_of(9, 4, 12, async_scheduling=True), "paged")


def test_help_names_them():
    said = " ".join(parser().format_help().split())
    for words in ("--scheduling-policy {fcfs,priority}", "--async-scheduling, --no-async-scheduling",
                  "--preemption-mode {recompute,swap}", "--swap-space GIB", "--swap-blocks N", "--vllm-version V"):
        assert words in said
