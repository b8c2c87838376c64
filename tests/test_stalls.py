"""A pool that can make no progress: one line names the request at fault, at once; and no run goes on for ever."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cli_run import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from relations import most_steps
from scenarios import Steps, scenarios
from small import LONG, config_of, trace_of

from sim.demand import Demand
from sim.engine import Engine
from sim.memory.grouped import GroupedAllocator, GroupKind
from sim.request_log import NEVER
from sim.run import Stalled
from sim.scheduler import Scheduler
from sim.step_time import ConstantStepTime

ALONE = {"refuse_impossible": False, "data_parallel_size": 1, "warm": None}


def several(requests, **columns):
    return replace(trace_of(requests), **{name: np.array(column, np.int64) for name, column in columns.items()})


# name -> (trace, num_blocks of 4 slots, options, allocator, requests that are stuck, what the line says)
NO_ROOM = "waits for {} more slots, of {} there are, and nobody runs: the pool can make no progress"
AGAIN = "preempts itself at {} tokens beside nobody, again and again: it waits for more than the {} slots there are"
WAYS = {
    "a prompt larger than the pool": (
        trace_of([(30, 1), (4, 2)]), 4, {}, "paged", [0, 1], "request 0 (30 + 1 tokens) " + NO_ROOM.format(32, 12)),
    "behind one that is served": (
        trace_of([(4, 2), (30, 1), (4, 2)]), 4, {}, "paged", [1, 2], "request 1 (30 + 1 tokens) " + NO_ROOM.format(32, 12)),
    "a reservation larger than the pool": (
        trace_of([(4, 2)]), 4, {}, "contiguous-max", [0], "request 0 (4 + 2 tokens) " + NO_ROOM.format(40, 12)),
    "an output larger than the pool": (
        trace_of([(4, 20)]), 4, {}, "paged", [0], "request 0 (4 + 20 tokens) " + NO_ROOM.format(16, 12)),
    "in chunks, without the gate": (
        trace_of([(30, 1)]), 4, {"max_num_batched_tokens": 8, "max_num_seqs": 8, "reserve_full_isl": False}, "paged", [0],
        "request 0 (30 + 1 tokens) " + AGAIN.format(8, 12)),
    "under a long-prefill threshold": (
        trace_of([(30, 1)]), 4, {"long_prefill_token_threshold": 3, "exempt_lone_prefill": False, "reserve_full_isl": False},
        "paged", [0], "request 0 (30 + 1 tokens) " + AGAIN.format(12, 12)),
    "in chunks that are found again": (
        trace_of([(30, 1)], [list(range(8))]), 4, {"long_prefill_token_threshold": 3, "exempt_lone_prefill": False,
                                                   "reserve_full_isl": False},
        "paged-prefix", [0], "request 0 (30 + 1 tokens) " + NO_ROOM.format(4, 12)),
    "samples that together do not fit": (
        several([(4, 9)], samples=[3]), 4, {}, "paged", [0], "request 0 (4 + 9 tokens) " + AGAIN.format(4, 12)),
    "beams that together do not fit": (
        several([(4, 9)], beam_width=[3]), 4, {}, "token", [0], "request 0 (4 + 9 tokens) " + AGAIN.format(4, 12)),
    "samples and a host pool too small": (
        several([(4, 9)], samples=[3]), 4, {"swap_blocks": 1}, "paged", [0], "request 0 (4 + 9 tokens) " + AGAIN.format(4, 12)),
    "more sequences than places": (
        several([(4, 2)], samples=[4]), 9, {"max_num_seqs": 3}, "paged", [0],
        "request 0 (4 + 2 tokens) waits for more than 3 sequences or 8192 tokens a step and nobody runs: the pool can make no "
        "progress"),
    "a watermark of almost everything": (trace_of([(4, 2), (4, 2)]), 9, {"watermark": 0.99}, "paged", [], None),
    "asynchronous": (
        trace_of([(30, 1)]), 4, {"max_num_batched_tokens": 8, "max_num_seqs": 8, "reserve_full_isl": False,
                                 "async_scheduling": True}, "paged", [0], "request 0 (30 + 1 tokens) " + AGAIN.format(8, 12)),
    "a static batch": (
        trace_of([(4, 2), (30, 1)]), 4, {"max_num_batched_tokens": 8, "max_num_seqs": 8, "reserve_full_isl": False,
                                         "batching": "static"}, "paged", [1], "request 1 (30 + 1 tokens) " + AGAIN.format(8, 12)),
    "by priority, beside one that ends": (
        several([(30, 1), (2, 9)], priority=[0, 1]), 4,
        {"max_num_batched_tokens": 8, "max_num_seqs": 8, "reserve_full_isl": False, "policy": "priority"}, "paged", [0, 1],
        "request 0 (30 + 1 tokens) " + AGAIN.format(8, 12)),
    "no room for an output token is refused all the same": (trace_of([(40, 1)]), 4, {}, "paged", [], None),
}


@pytest.mark.parametrize("jump", [1, 1024])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_make_no_progress_is_named(way, jump):
    trace, blocks, options, allocator, stuck, said = WAYS[way]
    config = config_of(blocks, 4, 40, longest_jump=jump, refuse_impossible=False, placement="first-fit", **options)
    seen = Steps(60)
    facts = Engine(trace, config, allocator, observers=[seen]).run()
    assert (facts.stuck, facts.stall) == (stuck, said)
    assert [row for row in range(len(trace)) if facts.log.finished_us[row] == NEVER and not facts.verdict[row]] == stuck


@pytest.mark.parametrize("way", WAYS)
def test_with_refusals_nobody_waits_for_the_impossible(way, monkeypatch):
    trace, blocks, options, allocator, stuck, said = WAYS[way]
    config = config_of(blocks, 4, 40, placement="first-fit", **options)
    facts = Engine(trace, config, allocator).run()
    assert facts.stuck == [] and ((facts.log.finished_us != NEVER) == (facts.verdict == 0)).all()
    assert not stuck or facts.verdict[stuck[0]] != 0
    # as if it were not checked at arrival: the same line, as an error
    monkeypatch.setattr(Engine, "_verdicts", lambda engine: np.where(trace.prompt_tokens < 40, 0, 1))
    engine = Engine(trace, config, allocator, observers=[Steps(60)])
    if stuck:
        with pytest.raises(Stalled) as found:
            engine.run()
        assert str(found.value) == said and "\n" not in said
    else:
        engine.run()


def test_one_of_several_replicas_is_named(monkeypatch):
    trace = trace_of([(4, 2), (30, 1), (4, 2)])
    monkeypatch.setattr(Engine, "_verdicts", lambda engine: np.zeros(3, np.int64))
    with pytest.raises(Stalled, match=r"^request 1 \(30 \+ 1 tokens\) waits for 32 more slots, of 12 there are, and nobody runs"):
        Engine(trace, config_of(4, 4, 40, data_parallel_size=2), "paged").run()


@pytest.mark.parametrize("command", ["compare", "view"])
def test_commands_say_it_in_one_line(command, tmp_path, capsys, monkeypatch):
    (tmp_path / "one.csv").write_text("prompt_tokens,output_tokens\n4,9\n")
    options = ("--saturate", "--samples", 3, "--num-gpu-blocks-override", 5, "--block-size", 4, "--max-model-len", 16,
               "--allocator", "paged", *(("--html", tmp_path / "map.html") if command == "view" else ()))
    monkeypatch.setattr(Engine, "_verdicts", lambda engine: np.zeros(1, np.int64))
    said = run(capsys, command, tmp_path / "one.csv", *options)
    assert said.status == 2
    assert said.err.splitlines()[-1] == (f"pagedsim {command}: error: paged: request 0 (4 + 9 tokens) " + AGAIN.format(4, 16))


def test_a_round_in_which_somebody_ends_is_not_the_last():
    # Chunks of 3 of r0 leave one token of 4 for the others. r1 gets its two beside the first round of r0, and r2, who comes at 9,
    # beside a later one: then one more brings nothing.
    options = {"max_num_batched_tokens": 4, "max_num_seqs": 4, "reserve_full_isl": False, "long_prefill_token_threshold": 3}
    trace = trace_of([(30, 1), (2, 1, 0), (2, 1, 9)])
    facts = Engine(trace, config_of(4, 4, 40, refuse_impossible=False, **options), "paged", observers=[Steps(20)]).run()
    assert (facts.stuck, facts.log.finished_us.tolist()) == ([0], [NEVER, 2, 14])
    assert facts.stall == "request 0 (30 + 1 tokens) " + AGAIN.format(12, 12)


def test_a_round_in_which_somebody_gets_further_is_not_the_last():
    # 20 blocks of a slot, chunks of 3. r0 takes 3, 6, ... 18 and wants more. Beside it r1 has 1, 2, 3, 4, 5 states until r0
    # wants its room; computed again 3, 6, 7, 8; and at last 3, 6, 9: all it needs.
    options = {"max_num_batched_tokens": 8, "max_num_seqs": 8, "reserve_full_isl": False, "long_prefill_token_threshold": 3}
    facts = Engine(trace_of([(30, 1), (1, 9)]), config_of(21, 1, 40, refuse_impossible=False, **options), "paged").run()
    assert (facts.stuck, facts.log.preemptions.tolist()[1]) == ([0], 2) and facts.log.finished_us[1] != NEVER
    assert facts.stall == "request 0 (30 + 1 tokens) " + AGAIN.format(16, 20)      # alone in chunks of 8


ANY = settings(max_examples=100 * LONG, suppress_health_check=list(HealthCheck))


@ANY
@given(scenarios(most=7))
def test_nothing_goes_on_for_ever_even_if_it_is_let_in(made):
    """No random configuration makes more steps than `most_steps`; whoever has not ended is stuck, came too late or never."""
    s = made.but(**ALONE)
    facts, _ = s.watched(lambda: Steps(most_steps(s.trace)))
    waiting = (facts.log.finished_us == NEVER) & (facts.verdict == 0)
    assert set(facts.stuck) <= set(np.flatnonzero(waiting).tolist())
    assert bool(facts.stuck) == (facts.stall is not None) == bool(waiting.any())
    if facts.stuck:
        assert facts.stall.count("\n") == 0 and int(facts.stall.split()[1]) in facts.stuck
    # what is possible alone is never at fault
    impossible = facts.allocator.impossible()[: len(s.trace)]
    if facts.demand.sequences is not None:
        impossible |= facts.demand.sequences > s.config.scheduler.max_num_seqs
    assert not facts.stuck or impossible[int(facts.stall.split()[1])]


@ANY
@given(st.data())
def test_groups_of_layers_end_or_stand_still(data):
    """Sliding windows and chunks beside full attention, in steps: with room for each alone all of them end."""
    n, size = data.draw(st.integers(1, 6)), data.draw(st.sampled_from([1, 2, 4]))
    rows = [(data.draw(st.integers(1, 20)), data.draw(st.integers(1, 12))) for _ in range(n)]
    kinds = [GroupKind("full"), GroupKind(data.draw(st.sampled_from(["sliding", "chunked"])), data.draw(st.integers(1, 9)))]
    kinds = kinds[data.draw(st.integers(0, 1)):]
    least = max(-(-(p + o) // size) for p, o in rows) * len(kinds)
    blocks = 1 + data.draw(st.integers(least, 2 * least))
    config = config_of(blocks, size, 40, max_num_seqs=data.draw(st.sampled_from([1, 3, 8])),
                       max_num_batched_tokens=data.draw(st.sampled_from([8, 64])),
                       reserve_full_isl=data.draw(st.booleans())).scheduler
    trace = trace_of(rows)
    demand = Demand(trace, 40)
    scheduler = Scheduler(demand, GroupedAllocator(demand, blocks, size, kinds, True, 8), config, blocks, size)
    for request in range(n):
        scheduler.add(request)
    ended, steps = [], 0
    while len(ended) < n:
        steps += 1
        assert steps <= demand.end.sum() and scheduler.schedule().new_tokens
        ended += scheduler.update()
    assert sorted(ended) == list(range(n))


@pytest.mark.parametrize("longest_jump", [1, 1024])
def test_the_window_of_a_stuck_run_is_all_that_was_booked(longest_jump):
    """4 blocks of 2: the first request takes 7 steps of 10 us, the second goes round in 4 more and stands still for 1 us."""
    config = config_of(5, 2, 40, step_time=ConstantStepTime(10), refuse_impossible=False, longest_jump=longest_jump)
    run = Engine(trace_of([(1, 7), (3, 9)]), config, "paged").run()
    assert run.stuck == [1] and run.window_us == (0, 111) and run.window == run.ledger.total
