"""Relations that must hold for any workload, each with its reason; random workloads and configurations."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, config_of, trace_of

from sim.catalog import ALLOCATORS
from sim.engine import Engine
from sim.memory.paged import PagedAllocator
from sim.request_log import NEVER
from sim.result import scenario
from sim.step_time import ConstantStepTime, RooflineStepTime

ROOFLINE = RooflineStepTime(weight_bytes=1e6, kv_bytes_per_token=1000, flops_per_token=1e3, flops_per_pair=10.0,
                            bandwidth_bytes_per_s=1e9, peak_flops_per_s=1e9, overhead_us=7.5)


@st.composite
def workloads(draw):
    """Up to 25 requests with shared prefixes of 4-token spans; a pool, limits and a step time."""
    families = draw(st.lists(st.integers(0, 4), min_size=3, max_size=12))
    requests, content = [], []
    for i in range(draw(st.integers(1, 25))):
        prompt, output = draw(st.integers(1, 40)), draw(st.integers(1, 30))
        requests.append((prompt, output, draw(st.integers(0, 60))))
        shared = draw(st.integers(0, min(len(families), prompt // 4)))
        content.append(families[:shared] + [100 + 100 * i + k for k in range(-(-prompt // 4) - shared)])
    order = sorted(range(len(requests)), key=lambda i: requests[i][2])
    trace = trace_of([requests[i] for i in order], [content[i] for i in order])
    budget = draw(st.sampled_from([None, 8, 32]))
    config = config_of(
        draw(st.integers(2, 40)), draw(st.sampled_from([1, 2, 4, 8])), draw(st.integers(8, 80)),
        placement=draw(st.sampled_from(["buddy", "first-fit", "best-fit"])),
        max_num_seqs=draw(st.sampled_from([1, 3, 8])), max_num_batched_tokens=budget,
        watermark=draw(st.sampled_from([0.0, 0.1])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 6])),
        reserve_full_isl=draw(st.booleans()),
        batching=draw(st.sampled_from(["continuous", "continuous", "static"])),
        saturate=draw(st.booleans()),
        step_time=draw(st.sampled_from([ConstantStepTime(1), ConstantStepTime(3), ROOFLINE])))
    return trace, config


def run_of(trace, config, name):
    return Engine(trace, config, name).run()


def everything(run):
    """All that a run reports, for equality."""
    log = run.log
    columns = [getattr(log, c).tolist() for c in ("admitted_us", "first_token_us", "finished_us", "hit_tokens", "preemptions",
                                                  "residence_us")]
    return scenario("x", run), columns, log.token_us, run.ledger.peak_used, run.ledger.internal_excess, run.peak_at_limit


@pytest.mark.parametrize("name", ALLOCATORS)
@settings(max_examples=60 * LONG)
@given(workloads())
def test_jumping_equals_stepping_to_the_last_byte(name, made):
    """Decode steps between two events are alike: making them at once must not be seen anywhere."""
    trace, config = made
    assert everything(run_of(trace, config, name)) == everything(run_of(trace, replace(config, longest_jump=1), name))


@pytest.mark.parametrize("name", ALLOCATORS)
@settings(max_examples=60 * LONG)
@given(workloads())
def test_everybody_is_served_or_refused_and_the_two_sources_agree(name, made):
    """Nothing is lost, nothing waits for ever, and ledger and request log integrate the same sequences (the ledger itself
    raises where the seven parts do not add up)."""
    trace, config = made
    run = run_of(trace, config, name)
    done = run.log.finished_us != NEVER
    assert (done == (run.verdict == 0)).all()
    assert run.ledger.total.sequence_us == sum(run.log.residence_us.tolist())
    shares = scenario(name, run)["memory"]["slot_microseconds"]
    assert sum(v for k, v in shares.items() if k != "capacity") == shares["capacity"]
    if name != "paged-prefix":
        assert run.ledger.total.parts[0] == sum(run.log.token_us)
    if isinstance(run.allocator, PagedAllocator):
        assert run.ledger.internal_excess <= 0 or name == "paged-reserve"
        pool = run.allocator.pool
        assert pool.free == pool.num_blocks - 1 and not pool.ref.any()
        assert sorted(pool.free_queue().tolist()) == list(range(1, pool.num_blocks))
    else:
        assert run.allocator.arena.free == run.allocator.capacity


@settings(max_examples=60 * LONG)
@given(workloads())
def test_first_come_first_served(made):
    """The queue is never overtaken: first admissions are in order of arrival (contiguous never preempts)."""
    trace, config = made
    run = run_of(trace, config, "contiguous-oracle")
    admitted = run.log.admitted_us[run.verdict == 0]
    assert (np.diff(admitted) >= 0).all()


@settings(max_examples=40 * LONG)
@given(workloads())
def test_block_size_one_has_no_internal_fragmentation(made):
    """A block of one slot is full as soon as it is taken."""
    trace, config = made
    run = run_of(trace, replace(config, block_size=1), "paged")
    assert run.ledger.total.parts[2] == 0


@settings(max_examples=40 * LONG)
@given(workloads())
def test_no_shared_content_is_like_no_sharing(made):
    """Without identity a prefix can only be found by its own request after a preemption; without preemption prefix caching
    then changes nothing but the order of the free queue, which no length can see."""
    trace, config = made
    trace = replace(trace, content=None)
    plain, cached = run_of(trace, config, "paged"), run_of(trace, config, "paged-prefix")
    assert cached.allocator.stats.hit_tokens == 0
    if not plain.preemptions:
        assert cached.log.finished_us.tolist() == plain.log.finished_us.tolist()
        assert cached.ledger.total.parts[:3] == plain.ledger.total.parts[:3]


@settings(max_examples=40 * LONG)
@given(workloads(), st.integers(2, 5))
def test_scaling_time_scales_everything(made, k):
    """With a constant step, arrivals and steps k times as long make every time k times as long."""
    trace, config = made
    config = replace(config, step_time=ConstantStepTime(3))
    slow = run_of(replace(trace, arrival_us=trace.arrival_us * k), replace(config, step_time=ConstantStepTime(3 * k)), "paged")
    fast = run_of(trace, config, "paged")
    served = fast.verdict == 0
    # an empty step after a preemption lasts 1 us whatever the clock: in a static batch for those behind it too
    if not fast.preemptions or config.scheduler.batching == "continuous":
        assert (slow.log.finished_us[served] == fast.log.finished_us[served] * k).all()
    if not fast.preemptions:
        assert slow.ledger.total.parts == [p * k for p in fast.ledger.total.parts]


@settings(max_examples=40 * LONG)
@given(workloads())
def test_max_length_as_block_size_is_contiguous_max(made):
    """One block a sequence: paging with blocks of max_model_len runs as many as first-fit reservations do."""
    trace, config = made
    length = config.max_model_len
    blocks = 1 + config.usable_slots // length
    config = replace(config, block_size=length, num_blocks=blocks, placement="first-fit",
                     scheduler=replace(config.scheduler, watermark=0.0))
    paged, plain = run_of(trace, config, "paged"), run_of(trace, config, "contiguous-max")
    assert paged.verdict.tolist() == plain.verdict.tolist()
    assert paged.log.finished_us.tolist() == plain.log.finished_us.tolist()
    assert paged.window.running_us == plain.window.running_us
