"""Every relation of the table holds over random configurations of the whole simulator, and fails with a bug planted."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from relation_bugs import BUGS
from relations import RELATIONS
from scenarios import ROOFLINE, Refused, everything, run_of, scenarios
from small import LONG, config_of, trace_of

from sim.catalog import ALLOCATORS
from sim.engine import Engine
from sim.memory.paged import PagedAllocator
from sim.request_log import NEVER
from sim.result import scenario
from sim.run import Stalled
from sim.step_time import ConstantStepTime
from sim.waiting import ArrivalQueue

ANY = settings(max_examples=60 * LONG, suppress_health_check=list(HealthCheck))
"""Relations narrow what they are given, and pass over what they do not speak of."""


@pytest.mark.parametrize("name", RELATIONS)
@ANY
@given(scenarios(), st.integers(2, 6))
def test_a_relation_holds(name, made, k):
    RELATIONS[name].holds(made, k)


@pytest.mark.parametrize("name", RELATIONS)
def test_a_planted_bug_is_seen(name, monkeypatch):
    owner, attribute, wrong = BUGS[name]
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))

    @settings(ANY, max_examples=250, phases=[Phase.generate], derandomize=True, database=None)
    @given(scenarios(), st.integers(2, 6))
    def holds(made, k):
        RELATIONS[name].holds(made, k)
    with pytest.raises((AssertionError, Stalled)):     # a broken invariant is one
        holds()


def test_who_was_preempted_may_not_go_to_the_back_of_the_queue(monkeypatch):
    monkeypatch.setattr(ArrivalQueue, "put_back", ArrivalQueue.add)

    @settings(ANY, max_examples=1500, phases=[Phase.generate], derandomize=True, database=None)
    @given(scenarios())
    def holds(made):
        RELATIONS["nobody_starves_under_fcfs"].holds(made, 2)
    with pytest.raises(AssertionError):
        holds()


def test_every_relation_has_a_reason_and_a_bug():
    assert list(BUGS) == list(RELATIONS)
    assert all(one.reason.endswith((".", ".)")) for one in RELATIONS.values())


# ---------------------------------------------------------------------- what does not hold
def saturated_mean(requests, slots):
    """Mean concurrency of `paged` with blocks of one slot, all requests at once, and how many were preempted."""
    config = config_of(1 + slots, 1, 8, saturate=True, max_num_seqs=None, max_num_batched_tokens=None)
    run = run_of(trace_of(requests), config, "paged")
    return Fraction(run.window.sequence_us, run.window.time_us) if run.window.time_us else None, run.preemptions


def test_a_larger_pool_can_lower_the_saturated_mean_of_paging():
    # Steps of 1 us, a slot a token. a: 1 + 1 tokens, one state; b and c: 1 + 2, two states each.
    # Two slots: a, b | b | c ...         c waits at once; until it is admitted at 2 two and one run: 3 / 2.
    # Three:     a, b, c | b | c ...      all run, nobody waits; b's second state takes the slot that a left, c preempts itself
    #                                     for its own and waits from 1 to 2, beside b alone: 1.
    requests = [(1, 1), (1, 2), (1, 2)]
    assert saturated_mean(requests, 2) == (Fraction(3, 2), 0)
    assert saturated_mean(requests, 3) == (1, 1)


def compositions(total, parts):
    """All ways to write ``total`` as a sum of so many numbers from 1 on, in order."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        yield from ((first, *rest) for rest in compositions(total - first, parts - 1))


def lowered(requests):
    """Sizes of the pool, each with a larger one that has a lower saturated mean; in all of them somebody waits."""
    most = [prompt + output - 1 for prompt, output in requests]
    means = [(slots, saturated_mean(requests, slots)[0]) for slots in range(max(most), sum(most))]
    known = [(slots, mean) for slots, mean in means if mean is not None and refused(requests, slots)]
    return [(small, large) for small, low in known for large, high in known if small < large and high < low]


def refused(requests, slots):
    """Whether somebody waits for memory at some time."""
    seen = Refused()
    config = config_of(1 + slots, 1, 40, saturate=True, max_num_seqs=None, max_num_batched_tokens=None)
    Engine(trace_of(requests), config, "paged", observers=[seen]).run()
    return seen.ever


def test_no_smaller_example_has_it():
    """Fewer requests or, of three, fewer tokens; of two none has it up to 39 tokens either, which takes longer."""
    def pairs(total, n):
        return (list(zip(numbers[::2], numbers[1::2], strict=True)) for numbers in compositions(total, 2 * n))
    assert not any(lowered(requests) for total in range(4, 9 + LONG) for requests in pairs(total, 2))
    assert not any(lowered(requests) for total in (6, 7) for requests in pairs(total, 3))
    assert lowered([(1, 1), (1, 2), (1, 2)]) == [(2, 3)]


# ---------------------------------------------------------------------- each allocator, and how it is left
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
