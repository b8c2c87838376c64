"""A warm start: the pool as an earlier trace left it, by hand and against one long run of both traces; nothing else is changed.

Blocks of 4, ids of 4 tokens; the server takes 10 us a step.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, config_of, states, trace_of
from test_host_tier import KIB, ONE, TWO, VARIANTS, traffic

from sim.catalog import ALLOCATORS
from sim.engine import Engine, simulate
from sim.result import prefix_cache, scenario, tier_counts
from sim.step_time import ConstantStepTime
from sim.timeline import Timeline
from sim.warm import Warmth


def config(blocks, **changes):
    return config_of(blocks, 4, 64, step_time=ConstantStepTime(10), **changes)


def earlier(ids, prompt=9):
    return replace(trace_of([(prompt, 1)] * len(ids), content=ids), source="earlier")


# ---------------------------------------------------------------------- by hand
def test_the_pool_as_it_was_left():
    # Five usable blocks: 1 2 3, then 3 4 5. The open one lies in front, the others with the tail first.
    engine = Engine(trace_of([(9, 1, 0)], content=[ONE]), config(6), "paged-prefix", warm=earlier([ONE, TWO]))
    pool = engine.allocator.pool
    assert pool.free_queue().tolist() == [5, 2, 1, 4, 3]
    assert engine.facts.warm == Warmth(2, 0, 4, 0)
    assert (pool.evicted, pool.taken, pool.touched, pool.cached_free, pool.free) == (0, 0, 0, 4, 5)


def test_the_first_request_finds_what_was_left_and_the_ledger_has_it_as_cached():
    timeline = Timeline(most=1 << 30)
    trace = trace_of([(9, 1, 0), (5, 1, 30)], content=[ONE, [50, 51]])
    run = Engine(trace, config(6), "paged-prefix", timeline, warm=earlier([ONE, TWO])).run()
    assert run.log.hit_tokens.tolist() == [8, 0] and run.log.finished_us.tolist() == [10, 40]
    found = prefix_cache(run)
    assert (found["query_tokens"], found["hit_tokens"], found["evicted_blocks"]) == (14, 8, 1)
    assert found["hit_tokens_by_origin"] == {"other_request": 8, "same_session": 0, "own_after_preemption": 0}
    # 9 states and 3 open slots of 3 blocks, 2 cached; then 1 idle beside 4 cached; then blocks 3 and 4 (once id 8) are taken
    rows = np.stack(list(timeline.columns().values()), axis=1).tolist()
    assert rows == [[0, 9, 0, 3, 8, 0, 0, 0, 1, 0], [10, 0, 0, 0, 16, 0, 0, 4, 0, 0], [30, 5, 0, 3, 12, 0, 0, 0, 1, 0]]
    assert run.window_us == (0, 40) and run.steps == 2 and len(run.log.hit_tokens) == len(run.demand) == 2
    assert scenario("paged-prefix", run)["requests"]["arrived"] == 2


def test_a_pool_that_is_too_small_keeps_the_last():
    # Three usable blocks: of the two requests only the second is left.
    run = simulate(trace_of([(9, 1, 0), (9, 1, 20)], content=[TWO, ONE]), config(4), "paged-prefix", earlier([ONE, TWO]))
    assert run.log.hit_tokens.tolist() == [8, 0] and run.warm == Warmth(2, 0, 2, 0)


def test_what_was_evicted_is_in_the_tier():
    run = simulate(trace_of([(9, 1, 0), (9, 1, 20)], content=[TWO, ONE]), config(4, host_memory=KIB), "paged-prefix",
                   earlier([ONE, TWO]))
    assert run.log.hit_tokens.tolist() == [8, 8] and run.warm == Warmth(2, 0, 2, 2)
    assert run.log.finished_us.tolist() == [10, 35]
    counts = tier_counts(run)
    assert (counts["copied_down"], counts["loaded_blocks"], counts["on_host_at_end"]) == (2, 2, 4)
    assert prefix_cache(run)["hit_tokens_by_origin"]["other_request"] == 16


def test_a_row_of_the_trace_itself_is_never_taken_for_an_earlier_one():
    # Row 0 of the trace and row 0 of the earlier one have nothing in common but their number, and no session either.
    trace = trace_of([(9, 1, 0)], content=[ONE], session=[0])
    warm = replace(earlier([ONE]), session=np.array([0]))
    assert prefix_cache(simulate(trace, config(6), "paged-prefix", warm))["hit_tokens_by_origin"]["other_request"] == 8


def test_generated_tokens_lie_there_too_and_open_blocks_do_not():
    # 8 + 5 tokens end with 12 states: 3 full blocks, of which the third holds generated tokens that no id names.
    warm = trace_of([(8, 5)], content=[[1, 2]])
    engine = Engine(trace_of([(13, 1)], content=[[1, 2, 3, 4]]), config(9), "paged-prefix", warm=warm)
    assert engine.facts.warm == Warmth(1, 0, 3, 0)
    assert engine.run().log.hit_tokens.tolist() == [8]


def test_who_cannot_be_served_is_left_out():
    warm = trace_of([(9, 1), (64, 1), (40, 1)], content=[ONE, [], []])
    run = simulate(trace_of([(9, 1)], content=[ONE]), config(6), "paged-prefix", warm)
    assert run.warm == Warmth(1, 2, 2, 0) and run.log.hit_tokens.tolist() == [8]


@pytest.mark.parametrize("name", [name for name in ALLOCATORS if name != "paged-prefix"])
def test_allocators_without_a_cache_start_as_ever(name):
    trace = trace_of([(9, 3, 0), (9, 2, 5)], content=[ONE, TWO])
    cold, warm = (scenario(name, Engine(trace, config(60), name, warm=w).run()) for w in (None, earlier([ONE])))
    assert cold == warm


@pytest.mark.parametrize(("other", "said"), [
    ({"content": None}, "earlier has no prefix identity"),
    ({"span": 8}, "an id of earlier stands for 8 tokens and one of by hand for 4"),
    ({"cover": True}, "the ids of earlier go on over generated tokens and those of by hand do not")])
def test_ids_must_be_of_one_kind(other, said):
    warm = earlier([ONE])
    content = None if "content" in other else replace(warm.content, span_tokens=other.get("span", 4),
                                                      cover_output=other.get("cover", False))
    with pytest.raises(ValueError, match=said):
        simulate(trace_of([(9, 1)], content=[ONE]), config(6), "paged-prefix", replace(warm, content=content))


# ---------------------------------------------------------------------- against one long run
PAUSE = 100_000


@settings(max_examples=80 * LONG, deadline=None)
@given(traffic(gap=1000), traffic(), st.integers(9, 14), st.sampled_from([None, 1, 4, 50]),
       st.sampled_from([*VARIANTS, {"async_scheduling": True}]))
def test_a_warm_start_is_the_second_half_of_one_run(first, second, blocks, tier, changes):
    """The earlier requests by themselves, a long pause, then the trace: from there on all is alike."""
    asked = config(blocks, host_memory=None if tier is None else replace(KIB, blocks=tier), **changes)
    n = len(first[0])
    later = [(prompt, output, PAUSE + now) for prompt, output, now in second[0]]
    whole = simulate(trace_of(first[0] + later, content=first[1] + second[1]), asked, "paged-prefix")
    warm = simulate(trace_of(second[0], content=second[1]), asked, "paged-prefix", trace_of(first[0], content=first[1]))
    assert warm.log.hit_tokens.tolist() == whole.log.hit_tokens[n:].tolist()
    assert (warm.log.finished_us + PAUSE).tolist() == whole.log.finished_us[n:].tolist()
    assert warm.allocator.pool.free_queue().tolist() == whole.allocator.pool.free_queue().tolist()
    before = simulate(trace_of(*first[:1], content=first[1]), asked, "paged-prefix")
    assert warm.allocator.pool.evicted == whole.allocator.pool.evicted - before.allocator.pool.evicted
    assert warm.warm.cached_blocks == before.allocator.pool.cached_free
    if tier is not None:
        counts, after, start = tier_counts(warm), tier_counts(whole), tier_counts(before)
        assert counts["on_host_at_end"] == after["on_host_at_end"] and warm.warm.host_blocks == start["on_host_at_end"]
        for name in ("host_hit_tokens", "loaded_blocks", "load_us", "copied_down", "already_on_host", "dropped_from_host"):
            assert counts[name] == after[name] - start[name]


@settings(max_examples=30 * LONG, deadline=None)
@given(traffic(), st.integers(9, 14), st.sampled_from(VARIANTS))
def test_an_empty_earlier_trace_changes_nothing(made, blocks, changes):
    trace = trace_of(made[0], content=made[1])
    nobody = trace_of([(64, 1)], content=[[]])         # too long to be served
    run, seen = states(trace, config(blocks, **changes), "paged-prefix")
    timeline = Timeline(most=1 << 30)
    warm = Engine(trace, config(blocks, **changes), "paged-prefix", timeline, warm=nobody).run()
    assert scenario("", run) == scenario("", warm)
    assert np.stack(list(timeline.columns().values()), axis=1)[:, 0].tolist() == [row[0] for row in seen]
