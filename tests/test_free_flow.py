"""Free flow: whole stretches at once are the steps one by one, to the last byte; by hand, at random, and where they end."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from scenarios import ROOFLINE, everything
from small import LONG, config_of, trace_of

from sim import free_flow
from sim.catalog import ALLOCATORS as ALL_ALLOCATORS
from sim.catalog import SCHEDULERS
from sim.engine import Engine
from sim.flow import Flow, takes_of
from sim.memory.block_pool import BlockPool
from sim.memory.paged import PagedAllocator
from sim.run import Observer
from sim.scheduler import Scheduler
from sim.stays import StayLog
from sim.step_time import ConstantStepTime, RooflineStepTime
from sim.timeline import Timeline
from workloads.request import Trace

COMPUTING = RooflineStepTime(weight_bytes=1e3, kv_bytes_per_token=1, flops_per_token=5e4, flops_per_pair=2e3,
                             bandwidth_bytes_per_s=1e9, peak_flops_per_s=1e10, overhead_us=3.0)
ALLOCATORS = ("paged", "paged-prefix", "token", "vattention")


@dataclass(frozen=True)
class Shared:
    """A step time that is none where nobody runs: by the mean context, which it takes from a table."""

    def duration_us(self, load):
        return 10 + np.arange(100)[np.asarray(load.context_tokens // load.sequences)] + np.asarray(load.new_tokens) % 7

    def describe(self):
        return "by the mean context"


class Stretches:
    """The stretches of an engine, short ones among them."""

    def __init__(self, monkeypatch, **limits):
        self.made, limits = [], {"FEW": 1} | limits
        plan = free_flow.FreeFlow.plan

        def planned(flows, now):
            stretch = plan(flows, now)
            if stretch is not None:
                self.made.append(stretch)
            return stretch
        monkeypatch.setattr(free_flow.FreeFlow, "plan", planned)
        for name, value in limits.items():
            monkeypatch.setattr(free_flow, name, value)

    @property
    def steps(self):
        return sum(stretch.flow.steps for stretch in self.made)


def left(engine):
    """What is in the pool when all is over."""
    pool = engine.allocator.pool
    return (pool.free_queue().tolist(), pool.ref.tolist(), pool.hash_of.tolist(), pool.cached_free,
            pool.taken, pool.evicted, pool.touched, engine.allocator.slots, engine.allocator.fillable)


def outcome(trace, config, allocator):
    """All that a run reports and leaves behind."""
    log = StayLog()
    engine = Engine(trace, config, allocator, observers=[log])
    run = engine.run()
    stays = log.stays()
    return (everything(run), left(engine), sorted(run.ledger.total.running_us.items()), run.steps, engine.scheduler.computed,
            engine.scheduler.urgency.tolist(), [column.tolist() for column in (stays.request, stays.admitted_us, stays.left_us)])


# ---------------------------------------------------------------------- by hand
def test_two_requests_by_hand(monkeypatch):
    """Steps of 10 us, blocks of 4: 6 + 3 tokens at 0 take steps 0 to 2, 5 + 2 tokens at 12 us steps 2 and 3.

    Token states 6, 7, 8 + 5 and 6; blocks 2, 2, 4 and 2. The first gives back 1 and 2, both full; the second 3 and, not full, 4.
    """
    seen = Stretches(monkeypatch)
    engine = Engine(trace_of([(6, 3, 0), (5, 2, 12)]), config_of(8, 4, 20, step_time=ConstantStepTime(10)), "paged-prefix")
    run = engine.run()
    assert [(stretch.flow.steps, stretch.arrivals) for stretch in seen.made] == [(4, 2)]
    assert run.steps == 4 and run.ledger.total.time_us == 40
    assert run.ledger.total.parts[0] == 10 * (6 + 7 + 13 + 6) and run.ledger.total.physical == 10 * 4 * (2 + 2 + 4 + 2)
    assert run.ledger.total.running_us == {1: 30, 2: 10} and run.ledger.peak_used == 16
    assert run.log.admitted_us.tolist() == [0, 20] and run.log.first_token_us.tolist() == [10, 30]
    assert run.log.finished_us.tolist() == [30, 40]
    assert run.log.token_us == [30 * 6 + 20 + 10, 20 * 5 + 10]
    assert engine.allocator.pool.free_queue().tolist() == [4, 5, 6, 7, 2, 1, 3]
    assert engine.allocator.pool.hash_of.tolist() == [-1, 0, 1, 2, -1, -1, -1, -1]


@pytest.mark.parametrize(("steps", "taken"), [(6, [1, 1, 4]), (5, [1, 1, 4]), (4, [1, 1]), (2, [1, 1]), (1, [])])
def test_no_block_is_taken_after_the_stretch(steps, taken):
    """Blocks of 4: the first row has 7 of 10 tokens, the second arrives in step 1 with 6 of 9."""
    flow = Flow([0], *np.array([[4, 5], [0, 1], [7, 0], [1, 6], [10, 9]]), starts_us=np.arange(10)).cut(steps)
    assert takes_of(flow, 4).step.tolist() == taken


def test_who_arrives_in_a_stretch_has_its_place_by_priority_and_arrival(monkeypatch):
    """The second prompt does not fit into a step beside the first request, and while it is computed in two the next five wait.

    The last of these is still in line when the last stretch begins, in which the last two requests arrive.
    """
    seen, priority = Stretches(monkeypatch), np.array([2, 0, 1, 2, 0, 1, 2, 3, 1])
    trace = trace_of([(4, 30, 0), (8, 3, 15), *((4, 3, 16 + i) for i in range(5)), (4, 3, 250), (4, 3, 255)])
    config = config_of(50, 4, 40, step_time=ConstantStepTime(10), max_num_seqs=2, max_num_batched_tokens=8)
    engine = Engine(replace(trace, priority=priority), config, "paged")
    engine.run()
    assert [(stretch.waited, stretch.arrivals) for stretch in seen.made] == [(0, 1), (2, 2), (1, 3)]
    assert engine.scheduler.urgency.tolist() == (9 * priority + np.arange(9)).tolist()


class Tables(Observer):
    """The blocks of all tables in each step, as stretches tell them."""

    follows_flow = True

    def __init__(self):
        self.seen = []

    def flowed(self, flow, flowed):
        self.seen.append([flowed.tables.held_in(step).tolist() for step in range(flow.steps)])


def test_who_holds_which_blocks_in_each_step_by_hand():
    """Blocks of 4: 4 + 3 tokens in steps 0 to 2, 5 + 6 in 2 to 7, 4 + 9 in 4 to 12, 4 + 2 in 8 and 9; one stretch ends with 7.

    What is given back has no hash and is taken before all others, the last block of a table first.
    """
    tables, trace = Tables(), trace_of([(4, 3, 0), (5, 6, 12), (4, 9, 35), (4, 2, 75)])
    with pytest.MonkeyPatch.context() as patch:
        Stretches(patch)
        Engine(trace, config_of(8, 4, 20, step_time=ConstantStepTime(10), longest_jump=8), "paged", observers=[tables]).run()
    assert tables.seen == [[[1], [1, 2], [1, 2, 3, 4], [3, 4], [3, 4, 2], [3, 4, 2, 1], [3, 4, 5, 2, 1], [3, 4, 5, 2, 1]],
                           [[2, 1, 5], [2, 1, 4, 5, 3], [2, 1, 4], [2, 1, 4], [2, 1, 4]]]


@pytest.mark.parametrize(("requests", "limits", "steps"), [
    ([(4, 9, 0), (4, 9, 15)], {}, 11),                                     # step 2 to step 10
    ([(4, 9, 0), (4, 9, 15)], {"max_num_seqs": 1}, 18),                    # a place for the second one in step 9
    ([(4, 9, 0), (4, 9, 15)], {"max_num_batched_tokens": 5, "max_num_seqs": 5}, 11),    # 1 + 4 tokens in step 2
    ([(4, 9, 0), (5, 9, 15)], {"max_num_batched_tokens": 5, "max_num_seqs": 5}, 2),
    ([(4, 9, 0), (4, 9, 150)], {}, 9),                                     # nobody runs in step 9
    ([(4, 9, 0), (8, 9, 25)], {"num_blocks": 6}, 5),                       # of 5 blocks 2 + 2 in step 3, 2 + 3 in 4, 3 + 3 in 5
    ([(4, 9, 0), (8, 9, 15), (8, 9, 15)], {"num_blocks": 6}, 2),           # 2 + 2 + 2 in step 2
    ([(4, 6, 0), (12, 9, 55)], {"num_blocks": 6}, 15),                     # in step 6 all 3 blocks are back, two of them full
    ([(4, 9, 0), (4, 9, 15)], {"watermark": 0.7, "num_blocks": 6}, 2),     # 4 of 6 blocks are to stay free beside others
    ([(4, 9, 0), (4, 9, 15)], {"longest_jump": 7}, 7),
    ([(4, 9, 0), (4, 9, 15)], {"longest_jump": 2}, 2),
])
def test_a_stretch_ends_where_something_would_not_suffice(monkeypatch, requests, limits, steps):
    seen = Stretches(monkeypatch)
    config = config_of(**{"num_blocks": 50, "block_size": 4, "max_model_len": 40, "step_time": ConstantStepTime(10)} | limits)
    trace = trace_of(requests)
    assert outcome(trace, config, "paged") == outcome(trace, replace(config, longest_jump=1), "paged")
    assert seen.made[0].flow.steps == steps


def test_who_came_before_is_not_forgotten(monkeypatch):
    """The pool runs out in a stretch's way, somebody is preempted, and stretches go on with who runs then."""
    seen = Stretches(monkeypatch)
    rng = np.random.default_rng(5)
    requests = [(int(p), int(o), 55 * i) for i, (p, o) in enumerate(zip(rng.integers(1, 30, 300), rng.integers(1, 30, 300),
                                                                        strict=True))]
    trace, config = trace_of(requests), config_of(28, 4, 64, step_time=ConstantStepTime(10))
    for allocator in ALLOCATORS:
        seen.made.clear()
        assert outcome(trace, config, allocator) == outcome(trace, replace(config, longest_jump=1), allocator)
        engine = Engine(trace, config, allocator)
        assert engine.run().preemptions > 10 and len(seen.made) > 10
        assert not any(request in engine.allocator._left for request in range(300))        # what it left behind, who has ended
        assert any(stretch.flow.running for stretch in seen.made)


def test_who_waits_with_tokens_of_its_own_is_no_arrival(monkeypatch):
    """Prompts in one piece: the last two are preempted at 41 and 81 us, and at 91 us 13 tokens come back of one of them.

    Beside these the 5 tokens of the other one, 2 of them output, are too many for a step of 16, though there are blocks enough.
    It comes back at 101 us, and its third output token is its last.
    """
    seen = Stretches(monkeypatch)
    trace = trace_of([(1, 1, 0), (2, 8, 11), (7, 7, 12), (3, 3, 12)])
    config = config_of(7, 4, 16, max_num_seqs=4, max_num_batched_tokens=16, enable_chunked_prefill=False,
                       step_time=ConstantStepTime(10))
    run = Engine(trace, config, "paged").run()
    assert run.log.finished_us.tolist() == [10, 91, 101, 111] and run.log.preemptions.tolist() == [0, 0, 1, 1] and seen.made
    assert outcome(trace, config, "paged") == outcome(trace, replace(config, longest_jump=1), "paged")


# ---------------------------------------------------------------------- at random
@st.composite
def traffic(draw):
    """Requests nobody shares a prefix with, and a server that is now and then too small for them."""
    n = draw(st.integers(1, 40))
    gap = draw(st.sampled_from([1, 5, 20, 60]))
    requests, now = [], 0
    for _ in range(n):
        now += draw(st.integers(0, gap))
        requests.append((draw(st.integers(1, 30)), draw(st.integers(1, 20)), now))
    content = [[100 * i + k for k in range(-(-request[0] // 4))] for i, request in enumerate(requests)]
    trace = trace_of(requests, draw(st.sampled_from([None, content])))
    size, length = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([50, 50, 25]))
    largest = -(-min(length, max(prompt + output for prompt, output, _ in requests)) // size)
    budget = draw(st.sampled_from([None, 32, 64]))
    config = config_of(
        1 + draw(st.integers(largest, 4 * largest)), size, length,
        max_num_seqs=draw(st.sampled_from([16, 4, 2])), max_num_batched_tokens=budget,
        enable_chunked_prefill=draw(st.booleans()) or (budget is not None and budget < length),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1])), reserve_full_isl=draw(st.booleans()),
        swap_blocks=draw(st.sampled_from([None, None, 9])), split_freed=draw(st.sampled_from([True, True, False])),
        longest_jump=draw(st.sampled_from([1024, 1024, 7])),
        step_time=draw(st.sampled_from([ConstantStepTime(1), ConstantStepTime(10), ROOFLINE, COMPUTING, Shared()])))
    return trace, config


@pytest.mark.parametrize("allocator", ALLOCATORS)
@settings(max_examples=150 * LONG)
@given(made=traffic(), ahead=st.sampled_from([1, 3, 256]), rounds=st.sampled_from([1, 3, 16]),
       blocks=st.sampled_from([9, 1 << 20, 1 << 20]))
def test_stretches_equal_steps_to_the_last_byte(allocator, made, ahead, rounds, blocks):
    trace, config = made
    with pytest.MonkeyPatch.context() as patch:
        seen = Stretches(patch, AHEAD=ahead, MOST_ROUNDS=rounds, MOST_BLOCKS=blocks)
        whole = outcome(trace, config, allocator)
        event(f"stretches: {min(len(seen.made), 3)}")
    assert whole == outcome(trace, replace(config, longest_jump=1), allocator)


@settings(max_examples=100 * LONG)
@given(made=traffic(), rounds=st.integers(1, 8), time=st.sampled_from([ROOFLINE, COMPUTING, Shared()]))
def test_the_times_of_steps_and_who_begins_in_them_fit_together(made, rounds, time):
    """However early it stops looking: durations are those of the steps' loads, and everybody begins in the first step after
    its arrival in which there is a place."""
    trace, config = made
    with pytest.MonkeyPatch.context() as patch:
        seen = Stretches(patch, MOST_ROUNDS=rounds)
        run = Engine(trace, replace(config, step_time=time), "paged").run()
    for flow, *_ in seen.made:
        assert np.diff(flow.starts_us).tolist() == time.duration_us(flow.loads).tolist()
        came = slice(flow.running, None)
        begins, arrival_us = flow.begin[came], run.arrival_us[flow.request[came]]
        assert (flow.starts_us[begins] >= arrival_us).all()
        full = flow.places == config.scheduler.max_num_seqs
        assert ((begins == 0) | (flow.starts_us[begins - 1] < arrival_us) | full[begins - 1]).all()


def test_most_of_a_calm_run_is_in_stretches(monkeypatch):
    seen = Stretches(monkeypatch, FEW=free_flow.FEW)
    rng = np.random.default_rng(1)
    trace = Trace("calm", rng.integers(1, 200, 2000), rng.integers(1, 50, 2000), arrival_us=np.cumsum(rng.integers(0, 60, 2000)))
    run = Engine(trace, config_of(400, 16, 300, step_time=ConstantStepTime(10)), "paged-prefix").run()
    assert seen.steps > 0.9 * run.steps and sum(stretch.arrivals for stretch in seen.made) > 1900
    assert len(seen.made) < 20


def test_short_stretches_are_looked_for_less_and_less_often(monkeypatch):
    """Requests that always find nobody else: each would be a stretch, and after a look 2, 4, ... 256 instants go by."""
    looks = []
    planned = free_flow.FreeFlow._planned
    monkeypatch.setattr(free_flow.FreeFlow, "_planned", lambda self, now: looks.append(now) or planned(self, now))
    seen = Stretches(monkeypatch, FEW=free_flow.FEW)
    trace = trace_of([(5, 3, 1000 * i) for i in range(1000)])
    Engine(trace, config_of(9, 4, 20, step_time=ConstantStepTime(10)), "paged").run()
    assert not seen.made and 8 < len(looks) < 20


# ---------------------------------------------------------------------- who looks on
def test_nobody_who_wants_each_step_is_passed_over(monkeypatch):
    seen = Stretches(monkeypatch)
    trace, config = trace_of([(6, 3, 0), (5, 2, 12)]), config_of(8, 4, 20, step_time=ConstantStepTime(10))
    Engine(trace, config, "paged", observers=[Observer()]).run()
    Engine(trace, config, "paged", timeline=Timeline()).run()
    assert not seen.made
    Engine(trace, config, "paged", observers=[StayLog()]).run()
    assert seen.made


def facts_of(**changes):
    return config_of(**{"num_blocks": 50, "block_size": 4, "max_model_len": 40} | changes)


@pytest.mark.parametrize(("config", "trace", "allocator"), [
    (facts_of(longest_jump=1), {}, "paged"), (facts_of(saturate=True), {}, "paged"), (facts_of(policy="priority"), {}, "paged"),
    (facts_of(batching="static"), {}, "paged"), (facts_of(async_scheduling=True), {}, "paged"),
    (facts_of(long_prefill_token_threshold=2), {}, "paged"), (facts_of(data_parallel_size=2), {}, "paged"),
    (facts_of(most_in_flight=2), {}, "paged"), (facts_of(), {}, "paged-reserve"), (facts_of(), {}, "contiguous-max"),
    (facts_of(split_freed=False), {}, "paged-prefix"), (facts_of(), {"samples": np.array([1, 2])}, "paged"),
    (facts_of(), {"session": np.array([1, 1]), "think_us": np.array([-1, 5])}, "paged"),
])
def test_where_there_are_none(monkeypatch, config, trace, allocator):
    seen = Stretches(monkeypatch)
    Engine(replace(trace_of([(6, 3, 0), (5, 2, 1)]), **trace), config, allocator).run()
    assert not seen.made


def test_not_where_others_may_find_a_block(monkeypatch):
    seen = Stretches(monkeypatch)
    Engine(trace_of([(6, 3, 0), (5, 2, 1)], [[7, 8], [7, 9]]), facts_of(), "paged-prefix").run()
    assert not seen.made


@pytest.mark.parametrize(("us", "some"), [(1 << 52, False), (1 << 50, False), (1 << 45, True)])
def test_numbers_that_could_be_too_large_are_added_up_step_by_step(monkeypatch, us, some):
    """Slots times microseconds of a stretch stay below 2 ** 62; not so 196 slots for 11 steps of 2 ** 52 us."""
    seen = Stretches(monkeypatch)
    trace, config = trace_of([(4, 9, 0), (4, 9, 15)]), facts_of(step_time=ConstantStepTime(us + 1))
    assert outcome(trace, config, "paged") == outcome(trace, replace(config, longest_jump=1), "paged")
    assert bool(seen.made) == some


def test_times_are_added_up_exactly_in_a_small_pool(monkeypatch):
    """Few slots, and times beyond what floats hold: 9 steps of 2 ** 51 + 1 us are 2 ** 54 and more."""
    Stretches(monkeypatch)
    trace, config = trace_of([(1, 9, 0), (1, 3, 1)]), config_of(4, 4, 12, step_time=ConstantStepTime((1 << 51) + 1))
    assert outcome(trace, config, "paged") == outcome(trace, replace(config, longest_jump=1), "paged")


# ---------------------------------------------------------------------- the pool alone
@settings(max_examples=150 * LONG)
@given(data=st.data())
def test_a_pool_that_flows_is_one_asked_in_turn(data):
    """Tables that are taken bit by bit and given back, by `flow` and by single takes and releases."""
    one, other, free, tables, evicted = BlockPool(30, caching=True), BlockPool(30, caching=True), 29, [], []
    for number in range(data.draw(st.integers(1, 8))):
        n, leaves = data.draw(st.integers(0, free)), data.draw(st.booleans())
        full = data.draw(st.integers(max(n - 1, 0), n))
        before, blocks = other.evicted, other.take(n)
        lost = other.evicted - before
        evicted += [False] * (n - lost) + [True] * lost
        hashes = np.concatenate((100 * number + np.arange(full), np.full(n - full, -1)))
        if leaves:
            other.mark(blocks[:full], hashes[:full])
            other.release(blocks)
        tables.append((n, full, leaves, hashes))
        free -= 0 if leaves else n
    order = sorted(range(len(tables)), key=lambda i: not tables[i][2])     # those that leave first
    first, at = {}, 0
    for i in order:
        first[i], at = at, at + tables[i][0]
    where, leaving = [], []
    for i, (n, full, leaves, _) in enumerate(tables):
        where += range(first[i], first[i] + n)
        if leaves:
            leaving.append((len(where), first[i], first[i] + full, first[i] + n))
    blocks = np.zeros(at, np.int64)
    flags = one.flow(blocks, np.array(where, np.int64), leaving)
    assert flags.dtype == np.bool_ and flags.tolist() == evicted
    gone = sum(tables[i][0] for i in order if tables[i][2])
    hashes = np.concatenate([tables[i][3] for i in order])
    one.settle(blocks[:gone], 0, hashes[:gone])
    one.settle(blocks[gone:], 1, -1)
    assert one.free_queue().tolist() == other.free_queue().tolist()
    assert one.ref.tolist() == other.ref.tolist() and one.hash_of.tolist() == other.hash_of.tolist()
    assert (one.cached_free, one.taken, one.evicted) == (other.cached_free, other.taken, other.evicted)


# ---------------------------------------------------------------------- made from ours
class Generous(PagedAllocator):
    """Takes a block more than it needs."""

    def need(self, ask):
        return super().need(ask) + self.block_size


class Backwards(Scheduler):
    """Whoever came last is looked at first."""

    def _ask_head(self, *limits):
        self.waiting._queue.rotate()
        return super()._ask_head(*limits)


class Slow(ConstantStepTime):
    """Prompts take longer."""

    def duration_us(self, load):
        return super().duration_us(load) + load.new_tokens


@dataclass(frozen=True)
class Table:
    """A step time by the new tokens, with an entry for each number up to the budget."""

    def duration_us(self, load):
        return np.arange(10, 27)[load.new_tokens]

    def describe(self):
        return "by the new tokens"


class Counting(StayLog):
    """And the steps."""

    steps = 0

    def scheduled(self, now_us, step):
        super().scheduled(now_us, step)
        self.steps += 1

    def jumped(self, jump):
        self.steps += jump.run.steps


def test_a_step_time_derived_from_a_constant_is_none(monkeypatch):
    seen = Stretches(monkeypatch)
    trace, config = trace_of([(6, 3, 0), (5, 2, 12)]), facts_of(step_time=Slow(10))
    run = Engine(trace, config, "paged").run()
    assert seen.made and run.log.finished_us.tolist() == [16 + 16 + 12] * 2            # of 6, 1 + 5 and 1 + 1 tokens


def test_a_step_time_is_not_asked_about_more_tokens_than_the_budget(monkeypatch):
    """Twelve prompts of 9 tokens at once, of 16 in a step: together they would be 108."""
    seen = Stretches(monkeypatch)
    trace = trace_of([(3, 5, 0), (4, 6, 1), *[(9, 4, 40)] * 12])
    config = facts_of(step_time=Table(), max_num_batched_tokens=16, max_num_seqs=16)
    assert outcome(trace, config, "paged") == outcome(trace, replace(config, longest_jump=1), "paged") and seen.made


def test_an_observer_derived_from_one_that_follows_is_told_each_step(monkeypatch):
    seen, log = Stretches(monkeypatch), Counting()
    run = Engine(trace_of([(6, 3, 0), (5, 2, 12)]), facts_of(), "paged", observers=[log]).run()
    assert not seen.made and log.steps == run.steps


@pytest.mark.parametrize("look_on", [
    lambda engine, told: engine.allocator.pool.watch(told.append),
    lambda engine, told: setattr(engine.allocator, "release", lambda handle, returns=False: told.append(handle))])
def test_whoever_looks_on_below_is_told(monkeypatch, look_on):
    seen, told = Stretches(monkeypatch), []
    engine = Engine(trace_of([(6, 3, 0), (5, 2, 12)]), facts_of(), "paged-prefix")
    look_on(engine, told)
    engine.run()
    assert not seen.made


def test_what_is_made_from_ours_goes_by_events(monkeypatch):
    seen = Stretches(monkeypatch)
    trace, config = trace_of([(6, 3, 0), (5, 2, 12)]), facts_of(step_time=ConstantStepTime(10))
    monkeypatch.setitem(ALL_ALLOCATORS, "generous",
                        lambda demand, config: Generous(demand, config.num_blocks, config.block_size, caching=False))
    Engine(trace, config, "generous").run()
    monkeypatch.setitem(SCHEDULERS, "continuous", Backwards)
    Engine(trace, config, "paged").run()
    assert not seen.made
