"""A tier in host memory: the list itself against an OrderedDict, runs by hand, and what more host memory may never do.

Runs are of blocks of 4 and ids of 4 tokens; a request of 9 prompt and 1 output tokens leaves 2 full blocks.
"""

from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import NaivePool
from small import LONG, config_of, states, trace_of

from sim.config import HostMemory, SimConfig
from sim.engine import Engine
from sim.memory.host_tier import HostTier
from sim.result import prefix_cache, scenario, tier_counts
from sim.scheduler_config import SchedulerConfig
from sim.step_time import ConstantStepTime
from sim.timeline import Timeline

KIB = HostMemory(4, 1000, 400_000_000)                 # a block takes 2.5 us
ONE, TWO = [1, 2, 3], [7, 8, 9]


# ---------------------------------------------------------------------- the list
class SlowTier:
    def __init__(self, size):
        self.size, self.list = size, OrderedDict()
        self.stored = self.kept = self.dropped = 0

    def put(self, hashes):
        for content in hashes:
            if content in self.list:
                self.list.move_to_end(content)
                self.kept += 1
                continue
            self.list[content] = None
            self.stored += 1
            if len(self.list) > self.size:
                self.list.popitem(last=False)
                self.dropped += 1

    def leading(self, hashes):
        for n, content in enumerate(hashes):
            if content not in self.list:
                return n
        return len(hashes)

    def renew(self, hashes):
        for content in reversed(hashes):
            self.list.move_to_end(content)


@settings(max_examples=300 * LONG, deadline=None)
@given(st.integers(1, 7), st.integers(1, 9), st.data())
def test_the_list_is_an_ordered_dict(size, contents, data):
    fast, slow = HostTier(size, contents), SlowTier(size)
    some = st.lists(st.integers(0, contents - 1), max_size=12)
    for _ in range(data.draw(st.integers(1, 60))):
        hashes = data.draw(some)
        if data.draw(st.booleans()):
            fast.put(np.array(hashes, np.int64))
            slow.put(hashes)
        else:
            hashes = list(dict.fromkeys(hashes))
            n = slow.leading(hashes)
            assert fast.leading(np.array(hashes, np.int64)) == n
            fast.renew(np.array(hashes[:n], np.int64))
            slow.renew(hashes[:n])
        assert fast.order().tolist() == list(slow.list) and fast.held == len(slow.list)
        assert (fast.stored, fast.kept, fast.dropped) == (slow.stored, slow.kept, slow.dropped)


def test_a_long_life_needs_no_more_room():
    tier = HostTier(5, 1000)
    room = len(tier._log)
    for i in range(1000):
        tier.put(np.arange(i, i + 3) % 1000)
        tier.renew(tier.order()[-2:])
    assert len(tier._log) == room and tier.held == 5


def test_no_tier_of_no_blocks():
    with pytest.raises(ValueError, match="at least 1 block, not 0"):
        HostTier(0, 5)


# ---------------------------------------------------------------------- by hand
def run_of(requests, content, memory, blocks=4, **changes):
    config = config_of(blocks, 4, 64, step_time=ConstantStepTime(10), host_memory=memory, **changes)
    return Engine(trace_of(requests, content=content), config, "paged-prefix").run()


FOUR = [(9, 1, 0), (9, 1, 20), (9, 1, 40), (9, 1, 100)]


def test_blocks_move_down_come_back_and_cost_their_time():
    # Three usable blocks. The second request evicts ids 2 and 1, in this order; the third loads both (5 us), which evicts 8
    # and 7; the fourth finds 1 and 2 on the GPU; the fifth loads 7 and 8 and evicts 2 and 1, which the host still holds.
    run = run_of([*FOUR, (9, 1, 200)], [ONE, TWO, ONE, ONE, TWO], KIB)
    assert run.log.hit_tokens.tolist() == [0, 0, 8, 8, 8]
    assert run.log.finished_us.tolist() == [10, 30, 55, 110, 215]
    assert tier_counts(run) == {
        "host_blocks": 4, "gpu_hit_tokens": 8, "host_hit_tokens": 16, "resume_gpu_hit_tokens": 0, "resume_host_hit_tokens": 0,
        "loaded_blocks": 4, "load_us": 10, "copied_down": 4, "already_on_host": 2, "dropped_from_host": 0, "on_host_at_end": 4}
    assert prefix_cache(run)["hit_tokens"] == 24 and prefix_cache(run)["hit_blocks"] == 6
    assert prefix_cache(run)["evicted_blocks"] == 6
    assert sum(prefix_cache(run)["hit_tokens_by_origin"].values()) == 24
    content = run.allocator.hashes.span(0, 0, 2).tolist() + run.allocator.hashes.span(1, 0, 2).tolist()
    assert [content.index(one) for one in run.allocator.tier.order().tolist()] == [3, 2, 1, 0]


def test_what_is_found_is_renewed_before_room_is_made():
    # A tier of 3: [2, 1] is found and then 8 and 7 come, so 2, the older, is dropped.
    run = run_of(FOUR[:3], [ONE, TWO, ONE], replace(KIB, blocks=3))
    assert run.log.hit_tokens.tolist() == [0, 0, 8]
    content = run.allocator.hashes.span(0, 0, 2).tolist() + run.allocator.hashes.span(1, 0, 2).tolist()
    assert [content.index(one) for one in run.allocator.tier.order().tolist()] == [0, 3, 2]
    assert run.allocator.tier.dropped == 1


def test_a_tier_of_one_block_holds_the_head():
    # Of [2, 1] only 1 stays: one block is loaded, 2.5 us that are 2 (half to even), and the rest computed.
    run = run_of(FOUR[:3], [ONE, TWO, ONE], replace(KIB, blocks=1))
    assert run.log.hit_tokens.tolist() == [0, 0, 4] and run.log.finished_us.tolist() == [10, 30, 52]
    assert (run.allocator.tier.stored, run.allocator.tier.dropped) == (4, 3)


def test_the_gpu_first_and_then_the_host():
    # Four usable blocks. The second request takes one that was never used, 4, the open one, 3, and the one of id 2.
    # The third finds id 1 on the GPU and 2 on the host.
    run = run_of([(9, 1, 0), (9, 1, 20), (9, 1, 40)], [ONE, TWO, ONE], KIB, blocks=5)
    assert run.log.hit_tokens.tolist() == [0, 0, 8] and run.log.finished_us.tolist() == [10, 30, 52]
    counts = tier_counts(run)
    assert (counts["gpu_hit_tokens"], counts["host_hit_tokens"], counts["loaded_blocks"]) == (4, 4, 1)


def test_the_last_token_is_computed_wherever_the_prompt_lies():
    # 8 tokens seen before: only the first block may be found.
    run = run_of([(8, 1, 0), (12, 1, 20), (8, 1, 40)], [ONE[:2], TWO, ONE[:2]], KIB)
    assert run.log.hit_tokens.tolist() == [0, 0, 4]


def test_origin_is_who_computed_it():
    # The third request loads what the first computed; the fourth, of the first one's session, finds that on the GPU.
    trace = trace_of(FOUR, content=[ONE, TWO, ONE, ONE], session=[5, 6, 9, 5])
    run = Engine(trace, config_of(4, 4, 64, step_time=ConstantStepTime(10), host_memory=KIB), "paged-prefix").run()
    assert prefix_cache(run)["hit_tokens_by_origin"] == {"other_request": 8, "same_session": 8, "own_after_preemption": 0}


def test_what_one_loads_another_finds_on_the_gpu_in_the_same_step():
    # Six usable blocks: the third request evicts ids 2 and 1. The fourth loads both, and the fifth finds them in its blocks.
    run = run_of([(9, 1, 0), (9, 1, 20), (9, 1, 20), (9, 1, 40), (9, 1, 40)], [ONE, TWO, [4, 5, 6], ONE, ONE],
                 replace(KIB, blocks=9), blocks=7)
    assert run.log.hit_tokens.tolist() == [0, 0, 0, 8, 8]
    counts = tier_counts(run)
    assert (counts["loaded_blocks"], counts["host_hit_tokens"], counts["gpu_hit_tokens"], counts["load_us"]) == (2, 8, 8, 5)
    assert run.log.finished_us.tolist()[3:] == [55, 55]


def test_a_preempted_request_finds_its_blocks_on_the_host():
    trace = trace_of([(8, 9), (8, 9)], content=[ONE, TWO])
    config = config_of(7, 4, 24, host_memory=replace(KIB, blocks=50), longest_jump=1)
    run, _ = states(trace, config, "paged-prefix")
    assert run.preemptions >= 1
    counts, found = tier_counts(run), prefix_cache(run)
    assert (found["hit_tokens"], found["resume_hit_tokens"], counts["load_us"]) == (0, 12, 2)
    assert (counts["resume_gpu_hit_tokens"], counts["resume_host_hit_tokens"]) == (8, 4)
    assert found["hit_tokens_by_origin"] == {"other_request": 0, "same_session": 0, "own_after_preemption": 12}


# ---------------------------------------------------------------------- bytes and time
def test_time_is_bytes_over_bandwidth_rounded_half_to_even():
    assert [KIB.load_us(n) for n in (1, 2, 3, 4, 5)] == [2, 5, 8, 10, 12]
    assert HostMemory(1, 1 << 50, 1).load_us(1 << 20) == (1 << 70) * 1_000_000


@pytest.mark.parametrize("field", ["blocks", "bytes_per_block", "bytes_per_s"])
def test_bad_host_memory(field):
    with pytest.raises(ValueError, match=f"{field} of the host memory"):
        replace(KIB, **{field: -1})


def test_not_beside_swap():
    with pytest.raises(ValueError, match="preemption by swap do not go together"):
        SimConfig(9, host_memory=KIB, scheduler=SchedulerConfig(swap_blocks=4))


# ---------------------------------------------------------------------- against a slow model
@st.composite
def traffic(draw, gap=0, most=14):
    """Prompts over a small tree of ids: (requests, ids); the arrivals ``gap`` apart, or close together."""
    n = draw(st.integers(2, most))
    ids, requests, now = [], [], 0
    for _ in range(n):
        length = draw(st.integers(1, 5))
        base = draw(st.integers(0, 2))
        tail = draw(st.integers(0, 2))
        cut = draw(st.integers(0, 5))
        ids.append([10 * base + i if i < cut else 100 * (tail + 1) + 10 * base + i for i in range(length)])
        prompt = draw(st.integers(4 * (length - 1) + 1, 4 * length))
        requests.append((prompt, draw(st.integers(1, 9)), now))
        now += gap or draw(st.integers(0, 40))
    return requests, ids


def run_traffic(made, blocks, memory, **changes):
    return run_of(*made, memory, blocks=blocks, **changes)


@settings(max_examples=100 * LONG, deadline=None)
@given(traffic(gap=1000), st.integers(9, 14), st.integers(1, 12))
def test_one_at_a_time_against_lists(made, blocks, size):
    requests, ids = made
    run = run_traffic(made, blocks, replace(KIB, blocks=size))
    pool, tier = NaivePool(blocks), SlowTier(size)
    host_hits = loaded = 0
    for row, (prompt, output, _) in enumerate(requests):
        full = (prompt + output - 1) // 4
        content = [tuple(ids[row][: k + 1]) if 4 * (k + 1) <= prompt else ("own", row, k) for k in range(full)]
        findable = content[: (prompt - 1) // 4]
        found = pool.lookup(findable)
        loads = tier.leading(findable[len(found):])
        assert run.log.hit_tokens[row] == 4 * (len(found) + loads)
        tier.renew(findable[len(found):len(found) + loads])
        pool.touch(found)
        table = list(found)
        for _ in range(-(-(prompt + output - 1) // 4) - len(found)):
            evicted = pool.hash_of[pool.queue[0]]
            table += pool.take(1)
            tier.put([] if evicted is None else [evicted])
        pool.cache(table[len(found):full], content[len(found):])
        pool.release(table)
        host_hits, loaded = host_hits + 4 * loads, loaded + loads
        start, steps = 1000 * row, output
        assert run.log.finished_us[row] == start + 10 * steps + run.config.load_us(loads)
    counts = tier_counts(run)
    assert (counts["host_hit_tokens"], counts["loaded_blocks"]) == (host_hits, loaded)
    assert (counts["copied_down"], counts["already_on_host"], counts["dropped_from_host"], counts["on_host_at_end"]) == \
        (tier.stored, tier.kept, tier.dropped, len(tier.list))
    assert counts["copied_down"] + counts["already_on_host"] == run.allocator.pool.evicted == len(pool.evicted)


@settings(max_examples=60 * LONG, deadline=None)
@given(traffic(gap=1000, most=25), st.integers(9, 12))
def test_more_host_memory_never_finds_less_and_an_endless_one_finds_all(made, blocks):
    tiers = [replace(KIB, blocks=size) for size in (0, 1, 2, 3, 5, 8, 13, 1000)]
    hits = [run_traffic(made, blocks, tier).log.hit_tokens for tier in tiers]
    assert all((less <= more).all() for less, more in pairwise(hits))
    endless = run_traffic(made, 1000, None)
    assert not endless.allocator.pool.evicted
    assert hits[-1].tolist() == endless.log.hit_tokens.tolist()


# ---------------------------------------------------------------------- many at once
def facts(trace, config):
    timeline = Timeline(most=1 << 30)
    run = Engine(trace, config, "paged-prefix", timeline).run()
    log = run.log
    columns = (log.admitted_us, log.first_token_us, log.finished_us, log.hit_tokens, log.preemptions)
    return run, scenario("paged-prefix", run), tier_counts(run), [column.tolist() for column in columns], run.ledger.total


VARIANTS = [{}, {"reserve_full_isl": False, "max_num_batched_tokens": 8, "max_num_seqs": 8}, {"policy": "priority"},
            {"batching": "static"}, {"watermark": 0.2}, {"split_freed": False}]


@settings(max_examples=40 * LONG, deadline=None)
@given(traffic(most=20), st.integers(9, 14), st.integers(1, 12), st.sampled_from(VARIANTS), st.sampled_from([None, 2]))
def test_jumping_is_stepping(made, blocks, size, changes, samples):
    trace = trace_of(made[0], content=made[1])
    if samples:
        trace = replace(trace, samples=np.where(np.arange(len(trace)) % 3 == 0, samples, 1))
    config = config_of(blocks, 4, 64, step_time=ConstantStepTime(10), host_memory=replace(KIB, blocks=size), **changes)
    run, *jumped = facts(trace, config)
    _, *stepped = facts(trace, replace(config, longest_jump=1))
    assert jumped == stepped
    counts = tier_counts(run)
    assert counts["copied_down"] + counts["already_on_host"] == run.allocator.pool.evicted
    assert counts["copied_down"] - counts["dropped_from_host"] == counts["on_host_at_end"] <= size
    assert sum(prefix_cache(run)["hit_tokens_by_origin"].values()) == sum(counts[k] for k in counts if k.endswith("hit_tokens"))


def test_a_head_may_ask_for_less_when_the_tier_drops_what_it_found():
    # Without the gate the last request asks for room for what it found and 1 token more. It is refused; as the others grow,
    # the tier of 2 drops what it found, and room for 1 token there is: no jump may pass that step.
    requests = [(19, 1, 0), (20, 2, 0), (15, 1, 100), (8, 20, 100), (6, 8, 130), (20, 1, 160)]
    a, b = [10, 11, 12, 13, 14], [0, 1, 2, 3, 4]
    trace = trace_of(requests, content=[a, b, a[:4], b[:2], a[:2], b])
    config = config_of(9, 4, 40, step_time=ConstantStepTime(10), host_memory=replace(KIB, blocks=2), reserve_full_isl=False,
                       max_num_batched_tokens=3, max_num_seqs=3)
    for jump in (1, 1024):
        run = Engine(trace, replace(config, longest_jump=jump), "paged-prefix").run()
        assert run.log.admitted_us.tolist() == [0, 60, 140, 152, 162, 192]


@settings(max_examples=40 * LONG, deadline=None)
@given(traffic(most=20), st.integers(9, 14), st.sampled_from([*VARIANTS, {"async_scheduling": True}]))
def test_a_tier_of_nothing_is_no_tier(made, blocks, changes):
    trace = trace_of(made[0], content=made[1])
    config = config_of(blocks, 4, 64, step_time=ConstantStepTime(10), **changes)
    _, *without = facts(trace, config)
    _, *nothing = facts(trace, replace(config, host_memory=replace(KIB, blocks=0)))
    assert without == nothing and without[1] is None


@settings(max_examples=30 * LONG, deadline=None)
@given(traffic(most=20), st.integers(9, 14), st.integers(1, 12))
def test_asynchronously_everybody_is_served_and_time_is_added_up(made, blocks, size):
    trace = trace_of(made[0], content=made[1])
    config = config_of(blocks, 4, 64, step_time=ConstantStepTime(10), async_scheduling=True,
                       host_memory=replace(KIB, blocks=size))
    run, _, counts, *_ = facts(trace, config)
    assert (run.log.finished_us >= 0).all() and not run.allocator.pool.ref.any()
    assert counts["copied_down"] + counts["already_on_host"] == run.allocator.pool.evicted


def test_a_roofline_step_takes_its_time_and_the_transfer():
    class Twice(ConstantStepTime):
        def duration_us(self, load):
            return self.us + load.new_tokens
    trace = trace_of(FOUR[:3], content=[ONE, TWO, ONE])
    run = Engine(trace, config_of(4, 4, 64, step_time=Twice(10), host_memory=KIB), "paged-prefix").run()
    assert run.log.finished_us.tolist() == [19, 39, 40 + 11 + 5]      # 9, 9 and, but for what was found, 1 new token
