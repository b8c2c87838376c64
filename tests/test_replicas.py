"""Replicas and routers by hand: who goes where, with equal instants; one window for all; what is added up and how."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small import config_of, trace_of
from test_closed_loop import loop

from sim.catalog import ROUTERS
from sim.config import HostMemory, SimConfig
from sim.demand import Demand
from sim.engine import Engine, simulate
from sim.result import scenario, tier_counts
from sim.routing import least_loaded, unbalanced
from sim.run import Observer
from sim.step_time import ConstantStepTime
from sim.timeline import Timeline
from sim.warm import Warmth
from workloads.request import Trace

TEN = ConstantStepTime(10)
JUMPS = pytest.mark.parametrize("jump", [1, 1024])


def served(trace, router, replicas=2, allocator="paged", blocks=100, size=4, longest=64, **changes):
    changes = {"step_time": TEN, **changes}
    return Engine(trace, config_of(blocks, size, longest, data_parallel_size=replicas, router=router, **changes), allocator).run()


class Shown:
    """A replica as a router sees it, written down."""

    def __init__(self, running, waiting, cached=0):
        self.running, self.waiting, self.cached = running, waiting, cached

    def cached_tokens(self, request):
        return self.cached


def chosen(router, replicas, prompt=10, session=None):
    trace = Trace("one", np.array([prompt]), np.array([1]), session=None if session is None else np.array([session]))
    return ROUTERS[router](Demand(trace, 1 << 20)).choose(0, [Shown(*shown) for shown in replicas])


# ---------------------------------------------------------------------- routers alone
@pytest.mark.parametrize(("loads", "number"), [
    ([(0, 0), (0, 0)], 0), ([(1, 0), (0, 0)], 1), ([(3, 0), (0, 1)], 0), ([(5, 0), (0, 1)], 1), ([(4, 0), (0, 1)], 0),
    ([(9, 1), (1, 3), (12, 0)], 2), ([(2, 2), (10, 0), (6, 1)], 0)])
def test_waiting_counts_four_times_and_the_first_of_equals_is_taken(loads, number):
    assert least_loaded([Shown(*load) for load in loads]) == number
    assert chosen("least-loaded", loads) == chosen("session-affinity", loads) == chosen("prefix-aware", loads) == number


@pytest.mark.parametrize(("loads", "verdict"), [
    ([(65, 0), (1, 0)], False), ([(66, 0), (1, 0)], True), ([(0, 66), (1, 0)], True), ([(40, 26), (0, 1)], True),
    ([(195, 0), (130, 0)], False), ([(196, 0), (130, 0)], True), ([(200, 0), (135, 0)], False), ([(64, 0), (0, 0)], False)])
def test_too_far_apart_is_more_than_64_and_more_than_half_as_many_again(loads, verdict):
    assert unbalanced([Shown(*load) for load in loads]) is verdict


@pytest.mark.parametrize(("replicas", "number"), [
    ([(0, 0, 0), (9, 9, 4)], 1),                       # the prefix is worth more than a queue
    ([(0, 0, 0), (9, 9, 3)], 0),                       # 3 of 10 tokens are not over 0.3
    ([(0, 0, 4), (9, 9, 8)], 1),                       # the longest
    ([(5, 0, 8), (4, 0, 8), (0, 0, 4)], 1),            # of equal ones by load
    ([(4, 0, 8), (4, 0, 8), (0, 0, 4)], 0),
    ([(0, 0, 0), (65, 0, 8)], 0),                      # one has over 64 more to do
    ([(0, 0, 0), (64, 0, 8)], 1)])
def test_the_longest_prefix_unless_it_is_short_or_its_replica_is_drowned(replicas, number):
    assert chosen("prefix-aware", replicas) == number


def test_in_turn_whatever_they_do():
    router = ROUTERS["round-robin"](Demand(trace_of([(4, 1)] * 5), 64))
    assert [router.choose(i, [Shown(9, 9), Shown(0, 0), Shown(5, 0)]) for i in range(5)] == [0, 1, 2, 0, 1]


def test_a_session_stays_and_others_go_by_load():
    trace = trace_of([(4, 1)] * 6, session=[7, -1, 7, 8, -1, 7])
    router = ROUTERS["session-affinity"](Demand(trace, 64))
    shown = [[(1, 0), (0, 0)], [(0, 0), (1, 0)], [(0, 0), (9, 9)], [(0, 0), (9, 9)], [(3, 0), (0, 0)], [(0, 0), (9, 9)]]
    assert [router.choose(i, [Shown(*load) for load in loads]) for i, loads in enumerate(shown)] == [1, 0, 1, 0, 1, 1]


# ---------------------------------------------------------------------- equal instants
@JUMPS
def test_at_one_instant_everybody_is_routed_at_once_by_row(jump):
    # Four come at 0, before anybody runs: 0, 1, then on either one waits: 0, 1. At 5 two run on either: r4 goes to 0. At 10 r1
    # and r3 have ended, and 1 is empty: r5; then 4 there against 2 + 4 on 0: r6; then 8 against 6: r7 goes to 0.
    trace = trace_of([(4, 3), (4, 1), (4, 3), (4, 1), (4, 1, 5), (4, 1, 10), (4, 1, 10), (4, 1, 10)])
    run = served(trace, "least-loaded", longest_jump=jump)
    assert run.replica.tolist() == [0, 1, 0, 1, 0, 1, 1, 0]
    assert run.log.admitted_us.tolist() == [0, 0, 0, 0, 10, 10, 10, 10]
    assert run.log.finished_us.tolist() == [30, 10, 30, 10, 20, 20, 20, 20]
    assert served(trace, "round-robin", longest_jump=jump).replica.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]


@JUMPS
@pytest.mark.parametrize(("at", "number"), [(29, 0), (30, 1), (31, 1), (49, 1), (50, 1)])
def test_who_ends_at_an_instant_is_gone_when_somebody_arrives_then(jump, at, number):
    # r0 runs on 0 until 80, r1 on 1 until 30. Before 30 one runs on each.
    run = served(trace_of([(4, 8), (4, 3), (4, 1, at)]), "least-loaded", longest_jump=jump)
    assert run.replica.tolist() == [0, 1, number]
    assert run.log.finished_us[:2].tolist() == [80, 30]


@JUMPS
def test_a_replica_in_a_step_takes_who_was_sent_there_at_its_end(jump):
    # r0 and r1 run to 50. r2 comes at 12 to 0: the step there ends at 20. r3 at 20: two run on 0, one on 1.
    run = served(trace_of([(4, 5), (4, 5), (4, 1, 12), (4, 2, 20)]), "round-robin", longest_jump=jump)
    assert run.replica.tolist() == [0, 1, 0, 1] and run.log.admitted_us.tolist() == [0, 0, 20, 20]
    assert run.log.finished_us.tolist() == [50, 50, 30, 40] and [own.steps for own in run.replicas] == [5, 5]


@JUMPS
def test_an_end_here_brings_an_arrival_there(jump):
    # A closed loop over two replicas. r0 runs on 0 to 20, r1 on 1 to 60. r2 follows r0 without a thought, at 20: 0 is empty.
    # r3 follows r2, which ends at 30, after 5: at 35 nobody runs on 0. r4 follows r1.
    trace = loop([(0, 4, 2, 0, -1), (1, 4, 6, 0, -1), (0, 8, 1, 0, 0), (0, 12, 2, 0, 5), (1, 12, 1, 0, 1)])
    run = served(trace, "least-loaded", longest_jump=jump)
    assert run.arrival_us.tolist() == [0, 0, 20, 35, 61] and run.replica.tolist() == [0, 1, 0, 0, 0]
    assert run.log.finished_us.tolist() == [20, 60, 30, 55, 71]
    # In turn r2 goes to 0 and r3 to 1, where it waits for the end of the step under way.
    run = served(trace, "round-robin", longest_jump=jump)
    assert run.replica.tolist() == [0, 1, 0, 1, 0]
    assert run.log.admitted_us.tolist() == [0, 0, 20, 40, 61] and run.log.finished_us.tolist() == [20, 60, 30, 60, 71]


def test_the_preempted_stay_where_they_are():
    # Three blocks of 4 each. r0 and r2 share replica 0 and cannot both grow; replica 1 has nothing to do after r1.
    run = served(trace_of([(4, 9), (4, 1), (4, 9)]), "round-robin", blocks=4, longest=12)
    assert run.preemptions == 1 and run.log.preemptions.tolist() == [0, 0, 1] and run.replica.tolist() == [0, 1, 0]
    assert [own.preemptions for own in run.replicas] == [1, 0] and run.log.finished_us[1] == 10


# ---------------------------------------------------------------------- accounts
@JUMPS
def test_one_window_for_all_and_idle_time_is_idle(jump):
    # Pools of 3 blocks of 4. r0 has 5 + 2 tokens: 5 and 6 states in two blocks at 4 and 14; r1 (4 + 1) runs from 30 to 40.
    run = served(trace_of([(5, 2, 4), (4, 1, 30)]), "round-robin", blocks=4, longest=12, longest_jump=jump)
    first, second = run.replicas
    assert run.window_us == first.window_us == second.window_us == (4, 40)
    assert first.window.parts == [10 * 5 + 10 * 6, 10, 20 + 20, 0, 0, 0, 20 * 4 + 16 * 12]
    assert second.window.parts == [10 * 4, 0, 0, 0, 0, 0, 26 * 12 + 10 * 8]
    assert run.window.parts == [a + b for a, b in zip(first.window.parts, second.window.parts, strict=True)]
    assert sum(run.window.parts) == 24 * 36 and run.ledger.capacity == 24
    found = scenario("paged", run)
    assert found["memory"]["slot_microseconds"]["capacity"] == 24 * 36
    assert found["memory"]["token_states"] == 150 / (24 * 36) and found["replicas"][1]["memory"]["token_states"] == 40 / (12 * 36)
    assert (found["makespan_s"], found["replicas"][0]["makespan_s"]) == (36e-6, 36e-6)
    assert [own["latency_s"]["e2e"]["mean"] for own in found["replicas"]] == [20e-6, 10e-6]
    assert found["latency_s"]["e2e"]["mean"] == np.mean([20e-6, 10e-6])


@JUMPS
def test_concurrency_is_of_the_sum_at_each_moment(jump):
    # r0 runs on 0 from 0 to 100, r1 on 1 from 40 to 60, r2 on 0 from 50 (it comes at 45) to 70: one, two, three, two, one.
    run = served(trace_of([(4, 10), (4, 2, 40), (4, 2, 45)]), "round-robin", longest_jump=jump)
    assert run.window.running_us == {1: 40 + 30, 2: 10 + 10, 3: 10} == run.ledger.total.running_us
    found = scenario("paged", run)
    assert found["concurrency"] == {"mean": 1.4, "p50": 1, "p99": 3, "peak": 3}
    assert [own["concurrency"] for own in found["replicas"]] == [{"mean": 1.2, "p50": 1, "p99": 2, "peak": 2},
                                                                  {"mean": 0.2, "p50": 0, "p99": 1, "peak": 1}]


@JUMPS
def test_under_saturation_the_window_is_from_the_first_refusal_anywhere_to_the_last_empty_queue(jump):
    # One request fits into a pool. In turn: 0 has r0 and r2 (10 and 30 us), 1 has r1 and r3 (20 and 10). r2 and r3 are refused at
    # 0; r2 is admitted at 10, r3 at 20: nobody waits from then on. They end at 40 and 30.
    run = served(trace_of([(8, 1), (8, 2), (8, 3), (8, 1)]), "round-robin", blocks=4, longest=12, saturate=True,
                 longest_jump=jump, max_num_seqs=None, max_num_batched_tokens=None)
    assert run.log.admitted_us.tolist() == [0, 0, 10, 20] and run.log.finished_us.tolist() == [10, 20, 40, 30]
    assert run.window_us == (0, 20) and [own.window_us for own in run.replicas] == [(0, 20)] * 2
    assert run.window.running_us == {2: 20} and run.ledger.total.running_us == {2: 30, 1: 10}
    # 0: 8 states of r0 and 4 slots left over; then r2, 8 states, and nobody refused. 1: 8 and 9 states of r1, r3 refused.
    assert run.replicas[0].window.parts == [80 + 80, 0, 0, 0, 0, 40, 40]
    assert run.replicas[1].window.parts == [80 + 90, 0, 30, 0, 0, 40, 0]
    assert run.ledger.total.parts[0] == 80 + 80 + 90 + 100 + 80 + 90 + 80


@JUMPS
def test_a_window_that_opens_at_one_replica_in_the_midst_of_a_run(jump):
    # Two places and 3 blocks of 4 each. 0 has r0 (until 10), r2 (5 tokens and 8 steps, until 80) and r4, who has no place before
    # 10 and then no second block before 80. 1 has r1 (until 30) and r3 (until 10), and refuses nobody. Four run before it.
    requests = [(4, 1), (4, 3), (5, 8), (4, 1), (8, 1)]
    flags = {"blocks": 4, "longest": 13, "saturate": True, "longest_jump": jump, "max_num_seqs": 2}
    run = served(trace_of(requests), "round-robin", **flags)
    assert run.log.admitted_us.tolist() == [0, 0, 0, 0, 80] and run.log.finished_us.tolist() == [10, 30, 80, 10, 90]
    assert run.window_us == (10, 80) and run.window.running_us == {2: 20, 1: 50}
    assert scenario("paged", run)["concurrency"]["peak"] == 2 and run.ledger.peak_running == 4
    alone = served(trace_of(requests[::2]), "least-loaded", replicas=1, **flags)
    assert alone.window_us == (10, 80) and alone.window == run.replicas[0].window


def test_without_a_refusal_the_window_is_the_ordinary_one():
    run = served(trace_of([(4, 2), (4, 3)]), "least-loaded", saturate=True)
    assert run.window_us == (0, 30) and run.window.parts == run.ledger.total.parts


def test_nobody_is_served():
    run = served(trace_of([(90, 2), (80, 3)]), "least-loaded")
    assert run.window_us == (0, 0) and run.replica.tolist() == [-1, -1]
    found = scenario("paged", run)
    assert found["requests"]["rejected"] == {"prompt_not_below_max_model_len": 2} and found["memory"]["idle"] == 1.0
    assert [own["requests"]["arrived"] for own in found["replicas"]] == [0, 0]


def test_holes_are_those_of_one_pool():
    # 16 slots each, first fit, one request of 4 for 10 us on either at once: the hole is 12 in both.
    name = "contiguous-oracle"
    run = served(trace_of([(4, 1), (4, 1)]), "round-robin", allocator=name, blocks=5, placement="first-fit", longest=16)
    assert scenario(name, run)["memory"]["largest_hole_mean"] == 12.0


# ---------------------------------------------------------------------- prefixes
A, B = [1, 2, 3, 4], [5, 6, 7, 8]


def families(names, gap=100):
    """One after the other, each alone: 16 tokens of its family and one of its own, one token out."""
    rows = [(17, 1, gap * i) for i in range(len(names))]
    return trace_of(rows, [[*(A if name == "A" else B), 100 + i] for i, name in enumerate(names)])


@pytest.mark.parametrize(("router", "hits"), [
    ("round-robin", [0, 0, 0, 0, 0, 0, 0, 0]),         # A, B, A, B ... on either: each evicts the other
    ("prefix-aware", [0, 0, 16, 16, 16, 16, 16, 16]),  # A on 0; B on 1, since 0 is busy with A
    ("least-loaded", [0, 0, 0, 0, 16, 0, 16, 0])])
def test_pools_that_hold_one_family(router, hits):
    # Pools of 5 blocks hold one prompt. r0 (A) and r1 (B) overlap; the others come one by one, to empty replicas.
    trace = families("ABBAABBA")
    trace = replace(trace, arrival_us=np.array([0, 5, *range(200, 800, 100)]))
    run = served(trace, router, allocator="paged-prefix", blocks=6, longest=20)
    assert run.log.hit_tokens.tolist() == hits
    assert scenario("paged-prefix", run)["prefix_cache"]["hit_tokens"] == sum(hits)
    where = {"round-robin": [0, 1] * 4, "prefix-aware": [0, 1, 1, 0, 0, 1, 1, 0], "least-loaded": [0, 1, 0, 0, 0, 0, 0, 0]}
    assert run.replica.tolist() == where[router]


def test_hits_of_all_are_added_up():
    run = served(families("ABBAABBA"), "round-robin", allocator="paged-prefix")
    found = scenario("paged-prefix", run)
    assert [own["prefix_cache"]["hit_tokens"] for own in found["replicas"]] == [32, 32]        # each learns both families
    total = found["prefix_cache"]
    assert (total["query_tokens"], total["hit_tokens"], total["hit_rate"]) == (8 * 17, 64, 64 / 136)
    assert total["hit_tokens_by_origin"] == {"other_request": 64, "same_session": 0, "own_after_preemption": 0}
    assert total["query_blocks"] == 32 and total["hit_blocks"] == 16


@JUMPS
@pytest.mark.parametrize(("at", "number", "hit"), [(40, 1, 0), (41, 0, 8), (70, 0, 8), (71, 0, 12), (165, 0, 12)])
def test_what_a_jump_has_written_is_seen(jump, at, number, hit):
    # r0 runs on 0 alone, with 4 + k states from 10 k on; what it generates can be found. 4 of r1's 14 tokens are not worth it; 8
    # are there from the step at 40 on, 12 from the one at 80. An arrival at 40 comes before that step, and is admitted with one.
    trace = trace_of([(4, 17), (14, 1, at)], [list(range(21)), [*range(12), 900, 901, 902]], span=1)
    trace = replace(trace, content=replace(trace.content, cover_output=True))
    run = served(trace, "prefix-aware", allocator="paged-prefix", longest_jump=jump)
    assert run.replica.tolist() == [0, number] and run.log.hit_tokens.tolist() == [0, hit]


@JUMPS
@pytest.mark.parametrize(("at", "number"), [(150, 0), (151, 0), (190, 0), (191, 1)])
def test_what_a_jump_has_evicted_is_not(jump, at, number):
    # 6 blocks. r0 leaves two cached ones behind on 0. r1 runs there from 20 on and takes a fifth block at 150, evicting the
    # second of them, and a sixth at 190, evicting the first, which alone is 4 of r2's 10 tokens.
    trace = trace_of([(9, 1), (4, 21, 20), (10, 1, at)], [[1, 2, 90], [91], [1, 2, 92]])
    run = served(trace, "prefix-aware", allocator="paged-prefix", blocks=7, longest=28, longest_jump=jump)
    assert run.replica.tolist() == [0, 0, number]


def test_a_prompt_that_is_all_cached_leaves_a_token_to_compute():
    # r0 leaves one block on 0, where r1 runs when r2 comes, with the same 4 tokens or 5: of 4 nothing is found, of 5 a block.
    for tokens, number in ((4, 1), (5, 0)):
        trace = trace_of([(4, 1), (4, 9, 20), (tokens, 1, 50)], [[1], [9], [1, 2][:tokens - 3]])
        assert served(trace, "prefix-aware", allocator="paged-prefix").replica.tolist() == [0, 0, number]


def test_host_memory_of_each():
    # Pools that hold one family: the third and fourth prompt of either replica load 4 blocks, 1 us each.
    memory = HostMemory(100, bytes_per_block=1000, bytes_per_s=1_000_000_000)
    run = served(families("ABBAABBA"), "round-robin", allocator="paged-prefix", blocks=6, longest=20, host_memory=memory)
    assert [tier_counts(own)["load_us"] for own in run.replicas] == [8, 8] and tier_counts(run)["load_us"] == run.load_us == 16
    assert (tier_counts(run)["loaded_blocks"], tier_counts(run)["host_blocks"]) == (16, 200)


def test_only_who_can_join_cuts_a_jump():
    # r2 comes to 0 at 105, during the step that began at 100. With a place left it joins at 110; else nothing changes till 500.
    class Jumps(Observer):
        def __init__(self):
            self.seen = []

        def jumped(self, jump):
            self.seen.append((jump.start_us, jump.run.steps))
    for places, seen in ((1, [(10, 49)]), (2, [(10, 10), (120, 38)])):
        followers = [Jumps(), Jumps()]
        config = config_of(100, 4, 64, data_parallel_size=2, router="round-robin", step_time=TEN, max_num_seqs=places)
        Engine(trace_of([(4, 50), (4, 1, 55), (4, 1, 105)]), config, "paged", None, lambda number, f=followers: [f[number]]).run()
        assert followers[0].seen == seen and followers[1].seen == []


# ---------------------------------------------------------------------- a warm start
def test_earlier_requests_are_dealt_out():
    # Two families, three earlier requests each. By load the fewest so far get the next; with prefixes a family stays together.
    earlier, trace = families("AAABBB"), families("AB")
    config = config_of(100, 4, 64, data_parallel_size=2, router="least-loaded")
    run = simulate(trace, config, "paged-prefix", earlier)
    assert [own.warm for own in run.replicas] == [Warmth(3, 0, 8, 0)] * 2 and run.warm == Warmth(6, 0, 16, 0)
    run = simulate(trace, replace(config, router="prefix-aware"), "paged-prefix", earlier)
    # A, A, A on 0, then B where nobody was served yet, and it stays there.
    assert [own.warm for own in run.replicas] == [Warmth(3, 0, 4, 0)] * 2
    assert run.replica.tolist() == [0, 1] and run.log.hit_tokens.tolist() == [16, 16]
    sessions = replace(families("ABAB"), session=np.array([9, 4, 9, 4]))
    run = simulate(trace, replace(config, router="session-affinity"), "paged-prefix", sessions)
    assert [own.warm for own in run.replicas] == [Warmth(2, 0, 4, 0)] * 2
    run = simulate(trace, config, "paged-prefix", replace(earlier, prompt_tokens=np.array([99, 17, 17, 17, 17, 17])))
    assert run.warm.skipped == 1 and run.warm.served == 5
    assert simulate(trace, config, "paged", earlier).warm is None


def test_sessions_of_the_earlier_trace_are_others():
    # Session 3 of either: the earlier one is on 1, since 0 had served one; the later one goes by load.
    earlier = replace(families("AB"), session=np.array([-1, 3]))
    config = config_of(100, 4, 64, data_parallel_size=2, router="session-affinity")
    run = simulate(replace(families("B"), session=np.array([3])), config, "paged-prefix", earlier)
    assert run.replica.tolist() == [0]
    assert run.allocators[0].demand.session.tolist() == [3, -1, 7]


# ---------------------------------------------------------------------- followers and bad arguments
def test_each_replica_has_its_own_followers():
    class Ends(Observer):
        def __init__(self):
            self.seen = []

        def updated(self, now_us, finished):
            self.seen += [(now_us, request) for request in finished]
    followers, timelines = [Ends(), Ends()], [Timeline(), Timeline()]
    config = config_of(6, 4, 8, data_parallel_size=2, step_time=TEN)
    Engine(trace_of([(4, 2), (4, 1), (4, 1, 25)]), config, "paged", timelines, lambda number: [followers[number]]).run()
    assert [each.seen for each in followers] == [[(20, 0), (35, 2)], [(10, 1)]]
    times = [line.columns()["time_us"].tolist() for line in timelines]
    assert times[0][0] == 0 and times[0][-1] == 25 and times[1] == [0, 10]


def test_bad_arguments():
    trace, config = trace_of([(4, 1)]), config_of(6, 4, 8, data_parallel_size=2)
    with pytest.raises(ValueError, match="unknown router 'nobody': one of round-robin, least-loaded, session-affinity, prefix"):
        Engine(trace, replace(config, router="nobody"), "paged")
    with pytest.raises(ValueError, match="2 servers are not followed by the same observers"):
        Engine(trace, config, "paged", None, [Observer()])
    with pytest.raises(ValueError, match="2 servers want as many timelines, not 1"):
        Engine(trace, config, "paged", Timeline())
    with pytest.raises(ValueError, match="data_parallel_size must be at least 1, not 0"):
        SimConfig(10, data_parallel_size=0)
    with pytest.raises(ValueError, match="not with several replicas"):
        SimConfig(10, data_parallel_size=2, refuse_impossible=False)
    with pytest.raises(ValueError, match="2 replicas have an allocator each"):
        _ = Engine(trace, config, "paged").run().allocator
