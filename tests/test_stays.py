"""Stays and the levels made of them: by hand, and the ledger's own concurrency to the last digit."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, config_of, trace_of
from test_relations import workloads

from sim.engine import Engine
from sim.levels import Level, level_of
from sim.request_log import NEVER
from sim.result import concurrency
from sim.run import Observer
from sim.stays import StayLog, Stays, concatenated, running_level, waiting_level
from sim.step_time import ConstantStepTime

NONE = np.zeros(0, np.int64)


def served(trace, config, allocator, *observers):
    """The facts and the stays of a run."""
    log = StayLog()
    return Engine(trace, config, allocator, observers=[log, *observers]).run(), log.stays()


def rows(stays):
    return list(zip(stays.request.tolist(), stays.admitted_us.tolist(), stays.left_us.tolist(), strict=True))


def shown(level):
    return list(zip(level.times_us.tolist(), level.values.tolist(), strict=True))


def queue(run, stays):
    return waiting_level(stays, run.arrival_us[run.verdict == 0], run.log.finished_us)


def spread(level, window):
    return {"mean": level.mean(*window), "p50": level.percentile(50, *window), "p99": level.percentile(99, *window),
            "peak": level.peak(*window)}


# ---------------------------------------------------------------------- levels
def test_a_level_by_hand():
    level = level_of(np.array([10, 20, 40]), np.array([1, 1, -2]))
    assert shown(level) == [(10, 1), (20, 2), (40, 0)]
    values, held = level.stretches(15, 50)
    assert (values.tolist(), held.tolist()) == ([1, 2, 0], [5, 20, 10])
    assert level.integral(15, 50) == 45 and level.mean(15, 50) == 45 / 35
    # 20 us of 0, 10 of 1, 20 of 2
    assert [level.percentile(p, 0, 50) for p in (1, 40, 41, 60, 61, 100)] == [0, 0, 1, 1, 2, 2]
    assert (level.peak(0, 20), level.peak(0, 21), level.peak(40, 90)) == (1, 2, 0)


def test_a_window_before_behind_and_without_length():
    level = level_of(np.array([10]), np.array([3]))
    assert (level.mean(0, 10), level.mean(10, 30), level.integral(5, 12)) == (0.0, 3.0, 6)
    assert spread(level, (20, 20)) == {"mean": 0.0, "p50": 0, "p99": 0, "peak": 0}
    assert shown(level_of(NONE, NONE)) == [] and spread(level_of(NONE, NONE), (0, 5))["mean"] == 0.0


def test_changes_of_one_instant_cancel_or_add_up():
    assert shown(level_of(np.array([7, 3, 7, 9, 3]), np.array([1, 1, -1, -2, 1]))) == [(3, 2), (9, 0)]


def test_integrals_beyond_64_bits_are_exact():
    assert Level(np.array([0]), np.array([3 << 40])).integral(0, 1 << 40) == 3 << 80
    assert Level(np.array([0, 1 << 31]), np.array([2, 1 << 31])).integral(0, 1 << 32) == (1 << 32) + (1 << 62)
    assert Level(np.array([0, 1]), np.array([1 << 32, 1])).integral(0, 1 << 32) == (1 << 33) - 1
    assert Level(np.array([0]), np.array([3])).integral(0, (1 << 62) - 1) == 3 * ((1 << 62) - 1)


@settings(max_examples=200 * LONG)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(-3, 3)), max_size=12), st.integers(0, 20), st.integers(1, 20))
def test_a_level_is_the_same_microsecond_by_microsecond(changes, start, length):
    times, by = (np.array([c[i] for c in changes], np.int64) for i in (0, 1))
    level = level_of(times, by)
    slow = [sum(b for t, b in changes if t <= now) for now in range(start, start + length)]
    window = (start, start + length)
    assert level.at(np.arange(*window)).tolist() == slow
    assert level.integral(*window) == sum(slow) and level.peak(*window) == max(0, *slow)
    for percent in (1, 50, 99, 100):
        assert level.percentile(percent, *window) == min(v for v in slow if sum(u <= v for u in slow) * 100 >= percent * length)


# ---------------------------------------------------------------------- stays by hand
def test_a_stay_an_admission():
    # Three blocks of 4, steps of 1 us. a (4 + 5) and b (4 + 5) have one block each; in step 2 a takes the third, b is
    # preempted, waits until a has ended after step 5, and computes its 4 + 1 known tokens in one step.
    run, stays = served(trace_of([(4, 5), (4, 5)]), config_of(4, 4, 12), "paged")
    assert rows(stays) == [(0, 0, 5), (1, 0, 1), (1, 5, 9)]
    assert shown(running_level(stays)) == [(0, 2), (1, 1), (9, 0)]
    assert shown(queue(run, stays)) == [(1, 1), (5, 0)]


def test_arrivals_wait_for_the_end_of_a_step():
    # a's steps begin at 0, 10, 20; b arrives at 3 and is admitted at 10.
    run, stays = served(trace_of([(4, 3), (4, 1, 3)]), config_of(9, 4, 12, step_time=ConstantStepTime(10)), "paged")
    assert rows(stays) == [(0, 0, 30), (1, 10, 20)]
    assert shown(queue(run, stays)) == [(3, 1), (10, 0)]


def test_the_rejected_do_not_wait_and_have_no_stay():
    run, stays = served(trace_of([(20, 3), (4, 1, 5)]), config_of(9, 4, 12), "paged")
    assert rows(stays) == [(1, 5, 6)] and shown(queue(run, stays)) == []


def test_who_never_comes_does_not_wait():
    # Closed loop: b follows a, which is stuck for ever: it never arrives.
    trace = replace(trace_of([(4, 7), (4, 1)], session=[1, 1]), think_us=np.array([-1, 5]))
    run, stays = served(trace, config_of(3, 4, 12, refuse_impossible=False), "paged")
    assert run.arrival_us.tolist() == [0, NEVER] and shown(queue(run, stays)) == [(5, 1)]


def test_nobody_served():
    _, stays = served(trace_of([(20, 3)]), config_of(9, 4, 12), "paged")
    assert len(stays) == 0 and shown(running_level(stays)) == []


def test_stays_are_ordered_by_admission():
    # The same with the first request less urgent: it is preempted, and comes back behind the other's stay.
    trace = replace(trace_of([(4, 5), (4, 5)]), priority=np.array([1, 0]))
    _, stays = served(trace, config_of(4, 4, 12, policy="priority"), "paged")
    assert rows(stays) == [(0, 0, 1), (1, 0, 5), (0, 5, 9)]


def test_who_ends_in_the_queue_has_no_further_stay():
    # Asynchronous: two usable slots of 1. The step of 0 computes both prompts; that of 1, at the same instant, gives b's slot to
    # a and preempts b, whose one token is on its way: it is there at 1, and b ends as it waits.
    run, stays = served(trace_of([(1, 2), (1, 1)]), config_of(3, 1, 12, async_scheduling=True), "paged")
    assert rows(stays) == [(0, 0, 2), (1, 0, 0)] and run.log.finished_us.tolist() == [2, 1]
    assert shown(running_level(stays)) == [(0, 1), (2, 0)] and shown(queue(run, stays)) == [(0, 1), (1, 0)]


def test_samples_count_as_sequences():
    # A prompt of 4, three samples of 3 outputs: one sequence in step 1, three in steps 2 and 3.
    trace = replace(trace_of([(4, 3), (4, 9)]), samples=np.array([3, 1]))
    _, stays = served(trace, config_of(12, 4, 16), "paged")
    assert rows(stays) == [(0, 0, 3), (1, 0, 9)]
    assert shown(running_level(stays)) == [(0, 2), (1, 4), (3, 1), (9, 0)]


def test_a_run_that_is_stuck_ends_its_stays_at_the_last_event():
    # Without refusals: two blocks of 4; the request needs three, preempts itself and waits for ever.
    run, stays = served(trace_of([(4, 7)]), config_of(3, 4, 12, refuse_impossible=False), "paged")
    assert run.stuck == [0] and rows(stays) == [(0, 0, 5)]
    assert stays.left_us.sum() - stays.admitted_us.sum() == run.log.residence_us.sum()


def test_stays_that_are_open_end_now():
    # A log asked while its run goes on: three samples and another request, after the first step and after the second.
    class Asking(Observer):
        seen: ClassVar[list] = []

        def updated(self, now_us, finished):
            made = log.stays()
            self.seen.append((rows(made), shown(running_level(made))))

    log = StayLog()
    trace = replace(trace_of([(4, 3), (4, 9, 1)]), samples=np.array([3, 1]))
    Engine(trace, config_of(12, 4, 16, longest_jump=1), "paged", observers=[log, Asking()]).run()
    assert Asking.seen[:2] == [([(0, 0, 1)], [(0, 1), (1, 0)]), ([(0, 0, 2), (1, 1, 2)], [(0, 1), (1, 4), (2, 0)])]


def test_stays_of_two_servers_add_up():
    one = Stays(np.array([0]), np.array([2]), np.array([9]), np.array([3, 9]), np.array([2, -2]))
    two = Stays(np.array([4]), np.array([5]), np.array([7]), NONE, NONE)
    both = concatenated([one, two])
    assert rows(both) == [(0, 2, 9), (4, 5, 7)]
    assert shown(running_level(both)) == [(2, 1), (3, 3), (5, 4), (7, 3), (9, 0)]
    assert len(concatenated([])) == 0


# ---------------------------------------------------------------------- against the ledger, the log and the scheduler
CHANGES = [{}, {"batching": "static"}, {"swap_blocks": 6}, {"policy": "priority"},
           {"async_scheduling": True, "batching": "continuous"}, {"saturate": True}]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: next(iter(c), "plain"))
@settings(max_examples=40 * LONG)
@given(workloads())
def test_the_ledgers_concurrency(changes, made):
    trace, config = made
    top = {name: changes[name] for name in changes if name == "saturate"}
    rest = {name: changes[name] for name in changes if name != "saturate"}
    config = replace(config, **top, scheduler=replace(config.scheduler, **rest))
    for name in ("paged", "paged-prefix", "contiguous-pow2"):
        run, stays = served(trace, config, name)
        level = running_level(stays)
        assert spread(level, run.window_us) == concurrency(run.window)
        assert level.peak(0, 1 << 60) == run.ledger.peak_running
        inside = np.bincount(stays.request, stays.left_us - stays.admitted_us, len(trace))
        assert inside.tolist() == run.log.residence_us.tolist()
        queued = queue(run, stays)
        done = run.log.finished_us != NEVER
        assert queued.integral(0, 1 << 60) == int((run.log.finished_us - run.arrival_us - run.log.residence_us)[done].sum())
        assert int(queued.values.min(initial=0)) == 0


@settings(max_examples=60 * LONG)
@given(workloads(), st.sampled_from(["samples", "beam_width"]), st.integers(0, 99))
def test_the_ledgers_concurrency_with_several_sequences(made, column, seed):
    trace, config = made
    several = np.random.default_rng(seed).integers(1, 4, len(trace))
    trace = replace(trace, **{column: several})
    for name in ("paged", "contiguous-pow2"):
        run, stays = served(trace, replace(config, scheduler=replace(config.scheduler, max_num_seqs=None)), name)
        assert spread(running_level(stays), run.window_us) == concurrency(run.window)


class Queues(Observer):
    """The scheduler's own queue at the start of every step made by itself."""

    def started(self, allocator, scheduler):
        self._scheduler, self.seen = scheduler, []

    def scheduled(self, now_us, step):
        self.seen.append((now_us, len(self._scheduler.waiting)))


@settings(max_examples=60 * LONG)
@given(workloads())
def test_the_schedulers_queue(made):
    trace, config = made
    queues = Queues()
    run, stays = served(trace, config, "paged", queues)
    times, lengths = (np.array([row[i] for row in queues.seen], np.int64) for i in (0, 1))
    assert queue(run, stays).at(times).tolist() == lengths.tolist()
