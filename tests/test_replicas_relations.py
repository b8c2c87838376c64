"""Replicas at random: as a naive fleet, a microsecond at a time; jumps nobody sees; what is added up is what there is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_fleet import naive_fleet
from small import LONG, config_of
from test_closed_loop import loop, loops
from test_relations import everything, workloads

import sim.routing
from experiments.crosscheck import audit_for, checks
from sim.catalog import ALLOCATORS, ROUTERS
from sim.config import HostMemory
from sim.engine import Engine
from sim.request_log import NEVER
from sim.result import scenario, tier_counts
from sim.step_time import ConstantStepTime
from workloads.transform import take

MANY = st.sampled_from([2, 2, 3, 5])
NAMES = st.sampled_from(list(ROUTERS))


@st.composite
def fleets(draw):
    """Up to sixteen turns that begin alike, in pools that the largest just fits, and several replicas."""
    size, several = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([False, False, True]))
    rows, ids, last, now = [], [], {}, 0
    for i in range(draw(st.integers(3, 16))):
        session = draw(st.integers(-1, 3))
        waits = session in last and draw(st.booleans())
        begins = draw(st.lists(st.integers(0, 1), max_size=6)) if not waits else last[session][:8]
        prompt, output = len(begins) * size + draw(st.integers(1, 2 * size)), draw(st.integers(1, 4 * size + 3))
        now += 0 if waits else draw(st.sampled_from([0, 0, 0, 1, 2, 5, 30]))
        rows.append((session, prompt, output, now, draw(st.sampled_from([0, 0, 1, 3, 9])) if waits else -1))
        ids.append([*begins, *range(100 * i + 10, 100 * i + 10 + -(-(prompt + output) // size) - len(begins))])
        if session >= 0:
            last[session] = ids[-1]
    columns = {"samples": draw(st.lists(st.integers(1, 2), min_size=len(rows), max_size=len(rows)))} if several else {}
    trace = loop(rows, ids, size, draw(st.booleans()), **columns)
    sequences = np.ones(len(rows), int) if trace.sequences is None else trace.sequences
    ends = trace.prompt_tokens + trace.output_tokens - 1
    most = int((-(-ends // size) * sequences).max())
    special = draw(st.sampled_from(["none", "none", "none", "swap", "static"]))
    config = config_of(1 + most + draw(st.integers(0, 2 * most)), size, int(ends.max()) + 1,
                       max_num_seqs=draw(st.sampled_from([2, 2, 3, 8])), watermark=draw(st.sampled_from([0.0, 0.1])),
                       max_num_batched_tokens=draw(st.sampled_from([None, 8, 32])),
                       swap_blocks=most if special == "swap" else None,
                       batching="static" if special == "static" else "continuous",
                       step_time=ConstantStepTime(draw(st.sampled_from([1, 3]))),
                       data_parallel_size=draw(MANY), router=draw(NAMES))
    return trace, config


@settings(max_examples=400 * LONG, deadline=None)
@given(fleets(), st.booleans(), st.sampled_from([1, 2, 64]))
def test_as_a_naive_fleet(made, caching, apart):
    trace, config = made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim.routing, "MOST_APART", apart)
        run = Engine(trace, config, "paged-prefix" if caching else "paged").run()
    rows, running = naive_fleet(trace, config, config.router, apart, caching)
    log = run.log
    assert list(zip(run.replica.tolist(), run.arrival_us.tolist(), log.admitted_us.tolist(), log.finished_us.tolist(),
                    strict=True)) == rows
    assert dict(run.window.running_us) == dict(run.ledger.total.running_us) == running


def everything_of(run):
    """All that several replicas report."""
    return (run.replica.tolist(), run.arrival_us.tolist(), everything(run), run.window, run.ledger.total,
            [(everything(own), own.window, own.ledger.total) for own in run.replicas])


@pytest.mark.parametrize("name", ALLOCATORS)
@pytest.mark.parametrize("router", ROUTERS)
@settings(max_examples=12 * LONG, deadline=None)
@given(loops(), MANY, st.sampled_from([2, 7, 1024]), st.sampled_from([0, 64]))
def test_jumps_are_not_seen_by_a_router(name, router, made, many, most, apart):
    trace, config = made                               # closed loops, generated blocks that are found, priorities, async, swap
    config = replace(config, data_parallel_size=many, router=router)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim.routing, "MOST_APART", apart)
        jumped, stepped = (everything_of(Engine(trace, replace(config, longest_jump=n), name).run()) for n in (most, 1))
    assert jumped == stepped


@pytest.mark.parametrize("name", ALLOCATORS)
@settings(max_examples=30 * LONG, deadline=None)
@given(workloads(), MANY, NAMES)
def test_jumps_are_not_seen_under_saturation_and_rooflines(name, made, many, router):
    trace, config = made
    config = replace(config, data_parallel_size=many, router=router)
    jumped, stepped = (everything_of(Engine(trace, replace(config, longest_jump=n), name).run()) for n in (1024, 1))
    assert jumped == stepped


@settings(max_examples=100 * LONG, deadline=None)
@given(loops(several=False), MANY, st.integers(1, 30))
def test_nor_by_one_that_looks_at_host_memory(made, many, blocks):
    trace, config = made
    config = replace(config, data_parallel_size=many, router="prefix-aware", host_memory=HostMemory(blocks, 1000, 1_000_000_000),
                     scheduler=replace(config.scheduler, swap_blocks=None))
    jumped, stepped = (Engine(trace, replace(config, longest_jump=n), "paged-prefix").run() for n in (1024, 1))
    assert everything_of(jumped) == everything_of(stepped) and tier_counts(jumped) == tier_counts(stepped)
    each = [tier_counts(own) for own in jumped.replicas]
    assert tier_counts(jumped) == {key: sum(own[key] for own in each) for key in each[0]}


@pytest.mark.parametrize("name", ALLOCATORS)
@settings(max_examples=30 * LONG, deadline=None)
@given(st.one_of(workloads(), loops()), MANY, NAMES)
def test_everybody_is_served_once_and_the_sums_are_sums(name, made, many, router):
    trace, config = made
    config = replace(config, data_parallel_size=many, router=router)
    audits = [audit_for(name) for _ in range(many)]
    run = Engine(trace, config, name, None, lambda number: [audits[number]]).run()
    served = run.verdict == 0
    assert ((run.log.finished_us != NEVER) == served).all() and ((run.replica >= 0) == served).all()
    assert np.bincount(run.replica[served], minlength=many).tolist() == [len(own.demand) for own in run.replicas]
    window, total = run.window, run.ledger.total
    for sums, each, length in ((window, [own.window for own in run.replicas], run.window_us[1] - run.window_us[0]),
                               (total, [own.ledger.total for own in run.replicas], total.time_us)):
        assert {one.time_us for one in (*each, sums)} == {length}
        assert sums.parts == [sum(parts) for parts in zip(*(one.parts for one in each), strict=True)]
        assert sum(sums.parts) == sum(own.ledger.capacity for own in run.replicas) * length
        assert sums.sequence_us == sum(one.sequence_us for one in each) and sum(sums.running_us.values()) == length
        assert (sums.logical, sums.physical, sums.hole) == tuple(sum(getattr(one, n) for one in each)
                                                                 for n in ("logical", "physical", "hole"))
    assert all(check.ok for check in checks(name, run, None, *audits))
    found = scenario(name, run)
    for key in ("completed", "preemptions", "truncated"):
        assert found["requests"][key] == sum(own["requests"][key] for own in found["replicas"])
    assert found["steps"] == sum(own["steps"] for own in found["replicas"])
    if found["sharing"] is not None:
        assert found["sharing"]["copies"] == sum(own["sharing"]["copies"] for own in found["replicas"])


@pytest.mark.parametrize("router", ROUTERS)
@settings(max_examples=20 * LONG, deadline=None)
@given(made=st.one_of(workloads(), loops()), name=st.sampled_from(list(ALLOCATORS)))
def test_one_replica_is_one_server(router, made, name):
    trace, config = made
    plain, routed = (everything(Engine(trace, c, name).run())
                     for c in (config, replace(config, data_parallel_size=1, router=router)))
    assert plain == routed


@pytest.mark.parametrize("name", ALLOCATORS)
@settings(max_examples=40 * LONG, deadline=None)
@given(workloads())
def test_in_turn_is_two_servers_with_half_of_the_trace_each(name, made):
    """What each holds, and when, is that of a server alone; only how long it is idle depends on the other."""
    trace, config = made
    config = replace(config, saturate=False)
    run = Engine(trace, replace(config, data_parallel_size=2, router="round-robin"), name).run()
    served = np.flatnonzero(run.verdict == 0)
    for number, own in enumerate(run.replicas):
        rows = served[number::2]
        assert np.flatnonzero(run.replica == number).tolist() == rows.tolist()
        if not len(rows):
            assert own.ledger.total.running_us[0] == own.ledger.total.time_us
            continue
        alone = Engine(take(trace, rows), config, name).run()
        for column in ("admitted_us", "first_token_us", "finished_us", "hit_tokens", "preemptions", "residence_us"):
            assert getattr(own.log, column).tolist() == getattr(alone.log, column).tolist()
        assert own.ledger.total.parts[:3] == alone.ledger.total.parts[:3] and own.log.token_us == alone.log.token_us
        assert (own.steps, own.preemptions, own.peak_at_limit) == (alone.steps, alone.preemptions, alone.peak_at_limit)
        assert {n: us for n, us in own.ledger.total.running_us.items() if n} \
            == {n: us for n, us in alone.ledger.total.running_us.items() if n}
