"""Relations that hold for any workload and any configuration, each with its reason: a table that `test_relations` runs.

A relation is a function of a random `Scenario` of the whole simulator and a small number. It narrows the scenario to what it
speaks of (`Scenario.but`) and compares runs with ``==``, for there is nothing random in them. Those between several servers and
one are in `test_replicas_relations`, those against naive models beside the models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from hypothesis import assume
from scenarios import (
    MICROSECONDS_A_SECOND,
    PLAIN,
    InTurn,
    Recount,
    Refused,
    Scenario,
    Steps,
    disjoint,
    everything,
    one_sequence,
    plain,
    times,
)

from sim.request_log import NEVER
from sim.result import scenario
from sim.step_time import ConstantStepTime


@dataclass(frozen=True)
class Relation:
    """Why it holds, and what raises AssertionError where it does not."""

    reason: str
    holds: Callable[[Scenario, int], None]


RELATIONS: dict[str, Relation] = {}


def relation(reason):
    """Put a function into the table under its name."""
    def add(holds):
        RELATIONS[holds.__name__] = Relation(reason, holds)
        return holds
    return add


# ---------------------------------------------------------------------- nothing is lost
@relation("The seven parts are a partition: after every event they add up to the pool, what is held is what tables hold, and so "
          "their integrals add up to pool x time.")
def the_ledger_sums_at_every_event(s, k):
    run, _ = s.watched(Recount)
    for own in run.replicas or (run,):
        assert sum(own.ledger.total.parts) == own.ledger.capacity * own.ledger.total.time_us
        assert sum(own.ledger.total.running_us.values()) == own.ledger.total.time_us


@relation("Every request that arrives is refused then or ends: of those that fit alone nobody waits for ever. In between it is "
          "admitted, has its first token, and ends, in this order; its stays are the ledger's.")
def completed_rejected_and_unfinished_are_all_that_arrived(s, k):
    run = s.run()
    counts, log, served = scenario("x", run)["requests"], run.log, run.verdict == 0
    assert counts["completed"] + sum(counts["rejected"].values()) + counts["unfinished"] == counts["arrived"] == len(s.trace)
    assert counts["unfinished"] == 0 and ((log.finished_us != NEVER) == served).all()
    order = np.stack((run.arrival_us, log.admitted_us, log.first_token_us, log.finished_us))[:, served]
    assert (np.diff(order, axis=0) >= 0).all()
    if s.trace.sequences is None:
        assert run.ledger.total.sequence_us == log.residence_us.sum()
    assert sum(scenario("x", own)["requests"]["completed"] for own in run.replicas or (run,)) == counts["completed"]


@relation("First come, first served: nobody who waits is overtaken, for the first time or after a preemption, so on each server "
          "first admissions are in order of arrival; and as the oldest sequence moves in every step, somebody ends after no more "
          "steps than tokens are ahead.")
def nobody_starves_under_fcfs(s, k):
    run, seen = s.but(policy="fcfs").watched(InTurn)
    for number, steps in enumerate(seen):
        rows = np.flatnonzero(run.replica == number if run.replicas else run.verdict == 0)
        order = rows[np.lexsort((rows, run.arrival_us[rows]))]
        assert (np.diff(run.log.admitted_us[order]) >= 0).all()
        scheduler = s.config.scheduler
        if scheduler.batching == "continuous" and scheduler.swap_blocks is None and not scheduler.async_scheduling:
            assert not steps.empty and steps.steps <= run.demand.end[rows].sum()


def most_steps(trace):
    """A bound on the steps of any run: in each the most urgent of the oldest moves on, and whoever is preempted began again
    because one more urgent came; two more a request where a batch or an output on its way ends without a token.

    >>> from small import trace_of
    >>> most_steps(trace_of([(5, 3), (2, 2)]))
    48
    """
    return (len(trace) + 1) * int((trace.prompt_tokens + trace.output_tokens + 2).sum())


@relation("Nothing is computed for ever: a run has at most (requests + 1) x (tokens + 2 a request) steps, whatever is preempted.")
def no_run_goes_on_for_ever(s, k):
    s.watched(lambda: Steps(most_steps(s.trace)))


# ---------------------------------------------------------------------- other sizes
@relation("Places of one size with memory alone as the limit: while somebody waits every place is taken, so the mean is the "
          "number of places, and a larger pool has no fewer. (Of `paged` it can: `test_relations`.)")
def a_larger_pool_of_places_lowers_no_saturated_mean(s, k):
    s = one_sequence(s).but(
        allocator="contiguous-max", saturate=True, max_num_seqs=None, max_num_batched_tokens=None, batching="continuous",
        most_in_flight=None, data_parallel_size=1, step_time=ConstantStepTime(3), async_scheduling=False)
    mean, places = [], []
    for blocks in (s.config.num_blocks, s.config.num_blocks + k):
        run, (refused,) = s.but(num_blocks=blocks).watched(Refused)
        assume(refused.ever)
        mean.append(Fraction(run.window.sequence_us, run.window.time_us))
        places.append(run.allocator.capacity // run.allocator.arena.rounded(s.config.max_model_len))
    assert mean == places and mean[0] <= mean[1]


@relation("Memory that nobody waited for does not matter: where nobody is refused or preempted, a larger pool changes no time.")
def a_pool_nobody_waited_for_may_be_larger(s, k):
    s = plain(s, k).but(watermark=0.0)
    run, seen = s.but(num_blocks=60 * k).watched(Refused)
    assume(not any(one.ever for one in seen))
    assert times(run) == times(s.but(num_blocks=61 * k).run())


@relation("A block of one slot is full as soon as it is taken.")
def blocks_of_one_slot_have_no_internal_fragmentation(s, k):
    s = s.but(block_size=1, allocator=("paged", "paged-prefix", "token")[k % 3], host_memory=None)
    run = s.run()
    assert run.ledger.total.parts[2] == 0
    assert all(own.ledger.peak_used <= own.ledger.capacity for own in run.replicas or (run,))


@relation("One block a sequence, as long as any may get: paging then gives out places, as reservations of that length do.")
def max_model_len_as_block_size_is_places(s, k):
    length = s.config.max_model_len
    s = one_sequence(s).but(block_size=length, num_blocks=1 + s.config.usable_slots // length, placement="first-fit",
                            watermark=0.0, swap_blocks=None, host_memory=None, warm=None)
    places = s.but(allocator="contiguous-max").run()
    for name in ("paged", "paged-reserve"):
        run = s.but(allocator=name).run()
        assert run.verdict.tolist() == places.verdict.tolist() and times(run) == times(places)
        assert run.window.running_us == places.window.running_us
        assert run.ledger.total.parts[0] == places.ledger.total.parts[0]


@relation("`token` is paging with blocks of one slot.")
def the_token_allocator_is_paged_with_blocks_of_one(s, k):
    s = s.but(warm=None, host_memory=None, swap_blocks=None)
    ones = s.but(allocator="paged", block_size=1, num_blocks=s.config.usable_slots + 1)
    assert everything(s.but(allocator="token").run()) == everything(ones.run())


# ---------------------------------------------------------------------- other contents and names
@relation("Prompts that have nothing in common cannot share, and without a preemption nobody finds its own blocks again: prefix "
          "caching then changes only the order of the free queue, which no length can see.")
def disjoint_prompts_are_no_sharing(s, k):
    s = disjoint(s).but(warm=None, host_memory=None)
    s = s.but(trace={"think_us": None})                # a turn would find nothing; sessions stay for the router
    none, cached = s.but(allocator="paged").run(), s.but(allocator="paged-prefix").run()
    assert sum(one.stats.hit_tokens for one in cached.allocators) == 0
    if not none.preemptions:
        assert times(cached) == times(none) and cached.ledger.total.parts[:3] == none.ledger.total.parts[:3]


@relation("What was served before and has nothing in common is evicted before it is in the way.")
def a_warm_start_with_other_contents_changes_no_time(s, k):
    s = disjoint(s).but(allocator="paged-prefix", host_memory=None)
    assume(s.warm is not None)
    cold = s.but(warm=None).run()
    assume(not cold.preemptions)
    assert times(s.run()) == times(cold)


@relation("Contents and sessions are told apart by their numbers, which mean nothing else.")
def numbers_of_contents_and_sessions_are_names(s, k):
    def renamed(trace):
        ids = trace.content.ids
        return {"content": replace(trace.content, ids=(ids * (2 * k + 1)) + 7 * k)}
    session = np.where(s.trace.session < 0, -1, 17 - 3 * s.trace.session)
    warm = None if s.warm is None else replace(s.warm, **renamed(s.warm))
    assert everything(s.run()) == everything(s.but(trace={**renamed(s.trace), "session": session}, warm=warm).run())


@relation("Those who come at one instant stand in the order of their rows, and where nobody waits for another that order means "
          "nothing: permuted rows have permuted times, and the pool is the same.")
def permuting_equal_arrivals_changes_nothing_but_ids(s, k):
    trace = s.trace
    s = plain(s, k).but(num_blocks=200 * len(trace), max_num_seqs=None, max_num_batched_tokens=None, watermark=0.0,
                        trace={"beam_width": None, "think_us": None, "arrival_us": trace.arrival_us // 50 * 50},
                        long_prefill_token_threshold=0, most_in_flight=None, data_parallel_size=1)
    order = np.lexsort((np.arange(len(trace)) * (2 * k + 1) % 31, s.trace.arrival_us))
    names = ("prompt_tokens", "output_tokens", "session", "priority", "samples", "max_tokens")
    there = {name: getattr(s.trace, name) for name in names}
    moved = s.but(trace={name: column[order] for name, column in there.items() if column is not None} | {"content": None})
    one, two = s.run(), moved.run()
    assert [np.array(column)[order].tolist() for column in times(one)] == times(two)
    assert replace(one.ledger.total, hole=0) == replace(two.ledger.total, hole=0)       # holes are where the others are not
    assert one.steps == two.steps


# ---------------------------------------------------------------------- other times
@relation("With a constant step nothing but arrivals and steps has a length, so both k times as long make every time k times as "
          "long. (Only an empty step lasts 1 us whatever the clock.)")
def scaling_time_scales_every_time(s, k):
    trace, host = s.trace, s.config.host_memory
    s = s.but(step_time=ConstantStepTime(3))
    run, seen = s.watched(Steps)
    assume(not any(steps.empty for steps in seen))
    longer = {"arrival_us": trace.arrival_us * k}
    if trace.think_us is not None:
        longer["think_us"] = np.where(trace.think_us < 0, -1, trace.think_us * k)
    loads = None if host is None else replace(host, bytes_per_block=host.bytes_per_block * k, bytes_per_s=MICROSECONDS_A_SECOND)
    slow = s.but(trace=longer, step_time=ConstantStepTime(3 * k), host_memory=loads).run()
    scaled = [np.where(np.array(column) < 0, -1, np.array(column) * (1 if i == 4 else k)) for i, column in enumerate(times(run))]
    assert times(slow) == [column.tolist() for column in scaled]
    assert slow.ledger.total.parts == [part * k for part in run.ledger.total.parts] and slow.steps == run.steps


@relation("There is no time of day: all arrivals later by the same make every time later by it.")
def everything_later_is_the_same(s, k):
    s = s.but(saturate=False)
    late = s.but(trace={"arrival_us": s.trace.arrival_us + k})
    one, two = s.run(), late.run()
    for i, (early, later) in enumerate(zip(times(one), times(two), strict=True)):
        assert later == [us if us == NEVER or i > 3 else us + k for us in early]
    assert one.ledger.total == two.ledger.total


@relation("A server that has nothing left to do is as new: the same requests again, after the last has gone, take as long.")
def what_has_ended_is_forgotten(s, k):
    s = plain(s, k).but(trace={"beam_width": None, "think_us": None, "content": None}, saturate=False, data_parallel_size=1)
    once = s.run()
    later = int(once.log.finished_us.max()) + int(s.trace.arrival_us.max()) + k
    columns = {name: getattr(s.trace, name) for name in ("prompt_tokens", "output_tokens", "priority", "samples", "max_tokens",
                                                         "session", "arrival_us")}
    twice = {name: np.concatenate((column, column + later * (name == "arrival_us")))
             for name, column in columns.items() if column is not None}
    run, n = s.but(trace=twice).run(), len(s.trace)
    for i, (both, first) in enumerate(zip(times(run), times(once), strict=True)):
        assert both[:n] == first and both[n:] == [us if us == NEVER or i > 3 else us + later for us in first]


@relation("Decode steps between two events are alike: made at once or one by one, nothing that is reported differs.")
def jumping_is_stepping(s, k):
    assert everything(s.but(longest_jump=1024).run()) == everything(s.but(longest_jump=1).run())


# ---------------------------------------------------------------------- other rules that come to the same
@relation("Where all are equally urgent the order by priority is the order of arrival, and the least urgent is the last running.")
def equal_priorities_are_first_come_first_served(s, k):
    s = s.but(trace={"priority": np.full(len(s.trace), k)}, most_in_flight=None)
    assert everything(s.but(policy="priority").run()) == everything(s.but(policy="fcfs").run())


@relation("A host pool without room takes nobody: every preemption is by recompute.")
def a_host_pool_of_nothing_is_recompute(s, k):
    s = s.but(async_scheduling=False, host_memory=None)
    assert everything(s.but(swap_blocks=0).run()) == everything(s.but(swap_blocks=None).run())


@relation("A limit beyond all that there is limits nothing.")
def limits_beyond_everything_are_none(s, k):
    s = s.but(trace={"think_us": None}, most_in_flight=None)
    trace = s.trace
    sequences = int(trace.sequences.sum()) if trace.sequences is not None else len(trace)
    tokens = int((trace.prompt_tokens + trace.output_tokens).sum()) * 3
    none = s.but(max_num_seqs=None, max_num_batched_tokens=None)
    some = s.but(max_num_batched_tokens=tokens + sequences + s.config.max_model_len).but(max_num_seqs=sequences)
    some = some.but(most_in_flight=len(trace), long_prefill_token_threshold=s.config.scheduler.long_prefill_token_threshold)
    assert everything(none.run()) == everything(some.run())


@relation("Whoever has all it may need from the start never wants more: reservations are never preempted.")
def reservations_are_never_preempted(s, k):
    names = [name for name in PLAIN if "contiguous" in name or "reserve" in name]
    assert s.but(allocator=names[k % len(names)], warm=None, host_memory=None).run().preemptions == 0
