"""Closed loops: a turn arrives think time after the answer before it. By hand, and step by step against a naive loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cli_run import run as command
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, config_of, trace_of
from test_sequences import outcome

from experiments.crosscheck import audit_for, checks
from sim.catalog import ALLOCATORS, SCHEDULERS
from sim.demand import Demand
from sim.engine import Engine
from sim.memory.allocator import PARTS
from sim.result import scenario
from sim.step_time import ConstantStepTime

TEN = ConstantStepTime(10)


def loop(rows, content=None, span=1, cover_output=True, **columns):
    """``rows`` as (session, prompt, output, arrival_us, think_us)."""
    session, prompt, output, arrival, think = zip(*rows, strict=True)
    trace = trace_of(list(zip(prompt, output, arrival, strict=True)), content, span, session)
    if content is not None:
        trace = replace(trace, content=replace(trace.content, cover_output=cover_output))
    return replace(trace, think_us=np.array(think, np.int64), **{k: np.array(v, np.int64) for k, v in columns.items()})


def times(trace, allocator="paged", blocks=100, longest=64, size=4, **changes):
    """(arrival, admission, end) of each request, ten microseconds a step."""
    run = Engine(trace, config_of(blocks, size, longest, **{"step_time": TEN, **changes}), allocator).run()
    return run, list(zip(run.arrival_us.tolist(), run.log.admitted_us.tolist(), run.log.finished_us.tolist(), strict=True))


# ---------------------------------------------------------------------- arrivals by hand
@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("jump", [1, 1024])
def test_two_sessions(allocator, jump):
    # r0 makes the steps at 0, 10 and 20; r1 comes at 5, joins at 10 and ends with r0 at 30. r2 comes 7 after that, alone: steps
    # at 37 and 47; r3 comes 30 after it, at 60. Seven microseconds and three nobody is there.
    trace = loop([(0, 4, 3, 0, -1), (1, 4, 2, 5, -1), (0, 9, 2, 6, 7), (1, 7, 1, 8, 30)])
    run, seen = times(trace, allocator, blocks=129, longest_jump=jump, placement="first-fit")
    assert seen == [(0, 0, 30), (5, 10, 30), (37, 37, 57), (60, 60, 70)]
    assert (run.steps, run.window_us, run.ledger.total.sequence_us) == (6, (0, 70), 30 + 20 + 20 + 10)
    assert trace.arrival_us.tolist() == [0, 5, 6, 8]                   # the trace is left as it was
    latency = scenario("x", run)["latency_s"]
    assert latency["e2e"]["mean"] == np.mean([30e-6, 25e-6, 20e-6, 10e-6]) and latency["queue"]["mean"] == 5e-6 / 4


def test_without_think_time_nobody_misses_a_step():
    # r0 ends at 20 and r2 takes its place in the step that starts then; r1 runs from 0 to 50.
    run, seen = times(loop([(0, 4, 2, 0, -1), (1, 4, 5, 0, -1), (0, 8, 3, 0, 0)]))
    assert seen == [(0, 0, 20), (0, 0, 50), (20, 20, 50)] and run.steps == 5


def test_what_comes_during_a_step_waits_for_the_next_in_order_of_arrival():
    # One at a time. r0 ends at 10, r1 runs from 10 to 50; r2 (at 10 + 25) and r3 (at 33) come meanwhile: r3 goes first.
    # By row, or by the trace's times, r2 would.
    rows = [(0, 4, 1, 0, -1), (1, 4, 4, 0, -1), (0, 8, 1, 0, 25), (2, 4, 1, 33, -1)]
    for policy in ("fcfs", "priority"):
        assert times(loop(rows), max_num_seqs=1, policy=policy)[1] == [(0, 0, 10), (0, 10, 50), (35, 60, 70), (33, 50, 60)]


def test_at_one_instant_the_lower_row_comes_first():
    # One at a time; r0 ends at 30. Who arrives then: by the trace's time, or because it waited for r0 and thought no time.
    trace = loop([(0, 4, 3, 0, -1), (0, 8, 1, 0, 0), (1, 4, 1, 30, -1)])
    assert times(trace, max_num_seqs=1)[1] == [(0, 0, 30), (30, 30, 40), (30, 40, 50)]
    trace = loop([(0, 4, 3, 0, -1), (1, 4, 1, 30, -1), (0, 8, 1, 30, 0)])
    assert times(trace, max_num_seqs=1)[1] == [(0, 0, 30), (30, 30, 40), (30, 40, 50)]
    # Two ends in one step: r0 stands before r1 in the batch, but r2, whom r1 has, is the lower row.
    trace = loop([(0, 4, 2, 0, -1), (1, 4, 2, 0, -1), (1, 8, 1, 0, 5), (0, 8, 1, 0, 5)])
    assert times(trace, max_num_batched_tokens=8, max_num_seqs=8)[1] == [(0, 0, 20), (0, 0, 20), (25, 25, 35), (25, 35, 45)]


def test_a_turn_with_a_time_of_its_own_does_not_wait():
    # r1 comes at 5 though r0 runs until 30; r2 waits for r1, which ends at 20.
    assert times(loop([(0, 4, 3, 0, -1), (0, 4, 1, 5, -1), (0, 8, 1, 5, 3)]))[1] == [(0, 0, 30), (5, 10, 20), (23, 30, 40)]


# ---------------------------------------------------------------------- rejected, stuck, truncated
def test_after_a_rejected_turn_the_wait_goes_on_from_its_arrival():
    # r0 ends at 20; r1 (25) and r2 (32) have prompts of 12 tokens and more, r3 comes 10 after r2.
    trace = loop([(0, 4, 2, 0, -1), (0, 12, 1, 0, 5), (0, 13, 1, 0, 7), (0, 3, 1, 0, 10)])
    run, seen = times(trace, longest=12)
    assert seen == [(0, 0, 20), (25, -1, -1), (32, -1, -1), (42, 42, 52)] and run.verdict.tolist() == [0, 1, 1, 0]
    # The first of a session is rejected at 3; the next one comes 4 later, and opens the window.
    run, seen = times(loop([(0, 20, 1, 3, -1), (0, 4, 1, 3, 4)]), longest=12)
    assert seen == [(3, -1, -1), (7, 7, 17)] and run.window_us == (7, 17)
    # 3 blocks of 4 never hold 13 states.
    run, seen = times(loop([(0, 10, 4, 0, -1), (0, 4, 1, 0, 6)]), blocks=4, longest=20)
    assert seen == [(0, -1, -1), (6, 6, 16)] and run.verdict.tolist() == [2, 0]
    assert scenario("x", run)["requests"]["rejected"] == {"larger_than_pool": 1}


def test_who_follows_one_that_never_ends_never_arrives():
    # 10 + 4 tokens never end in 3 blocks of 4. r1 and r2 would follow; r3 is served.
    trace = loop([(1, 4, 1, 0, -1), (0, 10, 4, 0, -1), (0, 4, 1, 0, 6), (0, 4, 1, 0, 6)])
    run, seen = times(trace, blocks=4, longest=20, refuse_impossible=False)
    assert [arrival for arrival, _, _ in seen] == [0, 0, -1, -1] and run.stuck == [1]
    counts = scenario("x", run)["requests"]
    assert (counts["arrived"], counts["completed"], counts["unfinished"], counts["rejected"]) == (4, 1, 3, {})


def test_a_truncated_answer_ends_where_it_is_cut():
    # 6 + 10 tokens in 12: six tokens are made, the next turn comes at 60 + 5 and is rejected if it holds the whole conversation.
    run, seen = times(loop([(0, 6, 10, 0, -1), (0, 17, 1, 0, 5), (0, 3, 1, 0, 5)]), longest=12)
    assert seen == [(0, 0, 60), (65, -1, -1), (70, 70, 80)] and run.demand.truncated.tolist() == [True, False, False]


# ---------------------------------------------------------------------- when a request has ended
def test_a_static_batch_answers_when_all_of_it_has_ended():
    trace = loop([(0, 4, 3, 0, -1), (1, 4, 1, 0, -1), (1, 8, 1, 0, 0)])
    assert times(trace, batching="static")[1] == [(0, 0, 30), (0, 0, 30), (30, 30, 40)]


def test_the_last_of_several_sequences_ends_a_request():
    for jump in (1, 1024):
        trace = loop([(0, 4, 3, 0, -1), (0, 8, 1, 0, 4)], samples=[3, 1])
        assert times(trace, longest_jump=jump)[1] == [(0, 0, 30), (34, 34, 44)]


def test_asynchronous_steps_end_later_than_they_are_scheduled():
    # Steps are scheduled at 0, 0, 10, ...; the second output is there at 20, and the answer with it.
    assert times(loop([(0, 4, 2, 0, -1), (0, 8, 1, 0, 4)]), async_scheduling=True)[1][:2] == [(0, 0, 20), (24, 24, 34)]


# ---------------------------------------------------------------------- the scheduler's order is that of the actual arrivals
def test_by_priority_and_actual_arrival():
    # One at a time. r2 runs from 10 to 210; meanwhile r3 comes at 50, r4, more urgent, at 60 and r1 at 10 + 100.
    rows = [(0, 4, 1, 0, -1), (0, 4, 1, 0, 100), (1, 4, 20, 1, -1), (2, 4, 1, 50, -1), (3, 4, 1, 60, -1)]
    trace = loop(rows, priority=[7, 7, 7, 7, -3])
    seen = times(trace, max_num_seqs=1, policy="priority")[1]
    assert seen == [(0, 0, 10), (110, 230, 240), (1, 10, 210), (50, 220, 230), (60, 210, 220)]
    assert [end for _, _, end in times(trace, max_num_seqs=1)[1]] == [10, 240, 210, 220, 230]


def test_the_victim_by_priority_is_the_last_to_have_arrived():
    # 3 blocks of 4. r2 comes at 5: 4 states at 10, 5 (a second block) at 20, 6 at 30, when r1 takes the third block. At 40 r1,
    # here since 30, wants a second one and makes room itself; at 60 r2 has left. By the trace's times r2 would be the victim.
    trace = loop([(0, 1, 1, 0, -1), (0, 4, 5, 0, 20), (1, 4, 5, 5, -1)])
    run, seen = times(trace, blocks=4, longest=12, policy="priority")
    assert seen == [(0, 0, 10), (30, 30, 100), (5, 10, 60)] and run.log.preemptions.tolist() == [0, 1, 0]


# ---------------------------------------------------------------------- generated blocks are found again
def session_of(turns, think=5):
    """One conversation, an id a token: each turn has all before it and ``new`` tokens; ``turns`` as (new, output)."""
    rows, content, said = [], [], 0
    for i, (new, output) in enumerate(turns):
        rows.append((0, said + new, output, 0, think if i else -1))
        said += new + output
        content.append(list(range(said)))
    return rows, content


@pytest.mark.parametrize(("size", "turns", "blocks"), [
    (4, [(6, 5), (4, 2)], [0, 2]),                     # 10 states are 2 blocks; prompts alone would have shared one
    (4, [(6, 7), (1, 1)], [0, 3]),                     # 12 states are 3
    (4, [(6, 6), (1, 1)], [0, 2]),                     # 12 tokens, but the last sampled one is never computed (rule 19)
    (4, [(6, 6), (3, 2), (9, 1)], [0, 2, 4]),          # the third turn: 15 + 2 - 1 = 16 states
    (1, [(3, 4), (2, 3), (1, 1)], [0, 6, 11]),
])
def test_a_turn_finds_the_answer_before_it(size, turns, blocks):
    rows, content = session_of(turns)
    run, _ = times(loop(rows, content), "paged-prefix", size=size)
    assert run.log.hit_tokens.tolist() == [size * n for n in blocks]
    assert blocks[1:] == [(rows[i][1] + rows[i][2] - 1) // size for i in range(len(rows) - 1)]
    assert run.allocator.stats.hit_tokens_by_origin["same_session"] == size * sum(blocks)
    prompts, _ = times(loop(rows, content, cover_output=False), "paged-prefix", size=size)
    assert prompts.log.hit_tokens.tolist()[1] == rows[0][1] // size * size


def test_a_turn_finds_what_a_truncated_answer_has():
    # Blocks of 2. 6 + 10 tokens in 12: 11 states, 5 blocks; the client keeps the first 11 tokens as the next prompt.
    content = [list(range(16)), list(range(11))]
    run, seen = times(loop([(0, 6, 10, 0, -1), (0, 11, 1, 0, 5)], content), "paged-prefix", size=2, longest=12)
    assert seen[1] == (65, 65, 75) and run.log.hit_tokens.tolist() == [0, 10]


def test_a_turn_finds_an_answer_that_was_preempted():
    # 5 blocks of 4. x 8 + 5; y 6 + 6, preempted at 30 for want of a third block with 8 states, which x, at its end, has not
    # overwritten: y goes on at 50 from them and ends at 80 with 11 states. Its next turn finds two blocks.
    rows = [(0, 8, 5, 0, -1), (1, 6, 6, 0, -1), (1, 14, 1, 0, 15)]
    content = [list(range(100, 113)), list(range(12)), list(range(15))]
    run, seen = times(loop(rows, content), "paged-prefix", blocks=6, longest=16)
    assert seen == [(0, 0, 50), (0, 0, 80), (95, 95, 105)] and run.log.preemptions.tolist() == [0, 1, 0]
    assert run.log.hit_tokens.tolist() == [0, 0, 8] and run.allocator.stats.resume_hit_tokens == 8


# ---------------------------------------------------------------------- saturation
def test_saturation_knows_no_think_times():
    rows = [(0, 4, 3, 0, -1), (0, 9, 2, 6, 7), (1, 4, 2, 9, -1), (1, 9, 2, 9, 0)]
    run, seen = times(loop(rows), saturate=True)
    assert seen == [(0, 0, 30), (0, 0, 20), (0, 0, 20), (0, 0, 20)]
    assert outcome(loop(rows), run.config, "paged") == outcome(replace(loop(rows), think_us=None), run.config, "paged")


# ---------------------------------------------------------------------- at random
@st.composite
def loops(draw, several=True):
    """Up to twenty turns of up to six sessions, in a pool that is short; every turn goes on with an earlier prompt."""
    rows, ids, said, now = [], [], {}, 0
    for i in range(draw(st.integers(2, 20))):
        session = draw(st.integers(-1, 5))
        known = said.get(session, [])
        think = draw(st.sampled_from([-1, 0, 1, 3, 8, 40])) if session in said else -1
        prompt = known[:24] + [1000 * i + k for k in range(draw(st.integers(1, 12)))]
        output = [1000 * i + 500 + k for k in range(draw(st.integers(1, 12)))]
        now += draw(st.integers(0, 9)) if think < 0 else 0
        rows.append((session, len(prompt), len(output), now, think))
        ids.append(prompt + output)
        if session >= 0:
            said[session] = prompt + output
    columns = {"priority": draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))}
    if several and draw(st.booleans()):
        columns["samples"] = draw(st.lists(st.integers(1, 3), min_size=len(rows), max_size=len(rows)))
    trace = loop(rows, ids, cover_output=draw(st.booleans()), **columns)
    special = draw(st.sampled_from(["none", "none", "swap", "static", *(["async"] if "samples" not in columns else [])]))
    return trace, config_of(
        draw(st.integers(8, 40)), draw(st.sampled_from([1, 2, 4])), draw(st.integers(12, 60)),
        placement=draw(st.sampled_from(["buddy", "first-fit"])), policy=draw(st.sampled_from(["fcfs", "priority"])),
        max_num_seqs=draw(st.sampled_from([2, 3, 8])), max_num_batched_tokens=draw(st.sampled_from([None, 8, 32])),
        watermark=draw(st.sampled_from([0.0, 0.1])), swap_blocks=20 if special == "swap" else None,
        batching="static" if special == "static" else "continuous", async_scheduling=special == "async",
        step_time=ConstantStepTime(draw(st.sampled_from([1, 3]))))


@pytest.mark.parametrize("allocator", ALLOCATORS)
@settings(max_examples=60 * LONG, deadline=None)
@given(loops(), st.sampled_from([2, 7, 1024]))
def test_jumping_equals_stepping(allocator, made, most):
    trace, config = made
    (jumped, at), (stepped, also_at) = (
        (outcome(trace, one, allocator), Engine(trace, one, allocator).run().arrival_us.tolist())
        for one in (replace(config, longest_jump=most), replace(config, longest_jump=1)))
    assert (jumped, at) == (stepped, also_at)


def naive(trace, config, allocator, verdict):
    """Arrivals and ends when everybody is looked at before every step; ``config`` of a constant step time."""
    n, tick = len(trace), config.step_time.us
    demand = Demand(trace, config.max_model_len)
    scheduler = SCHEDULERS[config.scheduler.batching](demand, ALLOCATORS[allocator](demand, config), config.scheduler,
                                                      config.num_blocks, config.block_size)
    arrival, end = [None] * n, [None] * n
    outside, now = set(range(n)), 0
    while True:
        for r in range(n):                             # rows before r are settled
            before = max((q for q in range(r) if trace.session[q] == trace.session[r]), default=None)
            if trace.think_us[r] < 0:
                arrival[r] = int(trace.arrival_us[r])
            elif arrival[before] is not None and (end[before] is not None or verdict[before]):
                arrival[r] = int(trace.think_us[r]) + (arrival[before] if verdict[before] else end[before])
        coming = sorted((arrival[r], r) for r in outside if arrival[r] is not None and not verdict[r])
        for at, r in coming:
            if at <= now:
                outside.discard(r)
                scheduler.add(r)
        if not len(scheduler.waiting) and not len(scheduler.running):
            if not coming:
                return arrival, [-1 if at is None else at for at in end]
            now = coming[0][0]
            continue
        now += tick if scheduler.schedule().new_tokens else 1
        for r in scheduler.update():
            end[r] = now


@settings(max_examples=200 * LONG, deadline=None)
@given(loops(), st.sampled_from(["paged", "paged-prefix", "contiguous-oracle"]))
def test_arrivals_and_ends_as_in_a_naive_loop(made, allocator):
    trace, config = made
    config = replace(config, scheduler=replace(config.scheduler, async_scheduling=False))
    run = Engine(trace, config, allocator).run()
    assert (run.arrival_us.tolist(), run.log.finished_us.tolist()) == naive(trace, config, allocator, run.verdict.tolist())


@pytest.mark.parametrize("allocator", ALLOCATORS)
@settings(max_examples=40 * LONG, deadline=None)
@given(loops(several=False))
def test_the_books_still_close(allocator, made):
    trace, config = made
    audit = audit_for(allocator)
    run = Engine(trace, config, allocator, None, [audit]).run()
    assert all(check.ok for check in checks(allocator, run, None, audit))           # Little's law among them
    total = run.ledger.total
    assert sum(total.parts) == run.ledger.capacity * total.time_us and len(total.parts) == len(PARTS)
    counts = scenario(allocator, run)["requests"]
    assert counts["completed"] + counts["unfinished"] + sum(counts["rejected"].values()) == counts["arrived"] == len(trace)
    waits = trace.think_us >= 0
    assert not counts["unfinished"] and (run.arrival_us >= 0).all()
    assert (run.log.admitted_us >= run.arrival_us)[run.verdict == 0].all()
    assert (run.arrival_us == trace.arrival_us)[~waits].all()


# ---------------------------------------------------------------------- `compare`
POOL = ("--num-gpu-blocks-override", 120, "--block-size", 4, "--max-model-len", 64, "--step-time", "constant:1s",
        "--allocator", "paged-prefix")


@pytest.fixture
def given_trace(monkeypatch, tmp_path):
    """The trace as talk.csv in the current folder, in our own format."""
    def give(trace):
        columns = {"arrival_us": trace.arrival_us, "prompt_tokens": trace.prompt_tokens, "output_tokens": trace.output_tokens,
                   "session": trace.session, "think_us": trace.think_us}
        there = {name: column.tolist() for name, column in columns.items() if column is not None}
        lines = [",".join(there), *(",".join(map(str, row)) for row in zip(*there.values(), strict=True))]
        (tmp_path / "talk.csv").write_text("\n".join(lines) + "\n")
        monkeypatch.chdir(tmp_path)
    return give


ROWS = [(0, 4, 3, 0, -1), (1, 4, 2, 2_000_000, -1), (0, 9, 2, 3_000_000, 7_000_000), (1, 7, 1, 4_000_000, 30_000_000)]


def compared(capsys, *options):
    said = command(capsys, "compare", "talk.csv", *POOL, "--json", "-", *options)
    assert said.status == 0, said.err
    return said.json["config"], said.json["scenarios"][0], [line[6:] for line in said.err.splitlines() if line[:6] == "note: "]


def test_compare_says_that_the_loop_is_closed(capsys, given_trace, tmp_path):
    given_trace(loop(ROWS))
    config, found, notes = compared(capsys, "--requests", tmp_path / "rows.csv")
    # r0 0 to 3, r1 2 to 4; r2 10 to 12; r3 34 to 35 (seconds)
    assert (config["closed_loop"], config["think_time"], found["makespan_s"]) == (True, None, 35.0)
    assert "closed loop: 2 of 4 requests arrive after the answer before them, mean think time 18.5 s" in notes
    rows = [line.split(",") for line in (tmp_path / "rows.csv").read_text().splitlines()]
    assert [float(row[rows[0].index("arrival_s")]) for row in rows[1:]] == [0.0, 2.0, 10.0, 34.0]


def test_compare_with_the_loop_open(capsys, given_trace):
    given_trace(loop(ROWS))
    config, found, notes = compared(capsys, "--open-loop")
    assert (config["closed_loop"], found["makespan_s"]) == (False, 5.0)              # r0 0 to 3, r1 2 to 4, r2 3 to 5, r3 4 to 5
    assert "open loop: the think times of talk.csv are not used, every request arrives at its own time" in notes


def test_compare_closes_the_loop(capsys, given_trace):
    given_trace(replace(loop(ROWS), think_us=None))
    config, found, notes = compared(capsys, "--think-time", 1.5)
    # r1 ends at 4, r3 comes at 5.5; r0 ends at 3, r2 comes at 4.5 and runs to 6.5; r3 joins at 5.5 and ends at 6.5
    assert (config["closed_loop"], config["think_time"], found["makespan_s"]) == (True, 1.5, 6.5)
    assert "closed loop: 2 of 4 requests arrive after the answer before them, mean think time 1.5 s" in notes
    given_trace(loop(ROWS))
    config, found, notes = compared(capsys, "--think-time", 0)
    assert found["makespan_s"] == 5.0 and "--think-time takes the place of the think times of talk.csv" in notes
    given_trace(replace(loop(ROWS), think_us=None))
    assert not compared(capsys)[0]["closed_loop"]


def test_compare_saturated(capsys, given_trace):
    given_trace(loop(ROWS))
    config, found, notes = compared(capsys, "--saturate")
    assert (config["closed_loop"], found["makespan_s"]) == (False, 3.0)
    assert "the think times of talk.csv are not used: with --saturate all requests arrive at once" in notes
    assert not [note for note in notes if note.startswith("closed loop")]


def test_compare_cuts_a_closed_loop(capsys, given_trace):
    given_trace(loop(ROWS))
    _, _, notes = compared(capsys, "--limit", 3)
    assert "closed loop: 1 of 3 requests arrive after the answer before them, mean think time 7 s" in notes
    config, _, notes = compared(capsys, "--limit", 2)
    assert not config["closed_loop"] and not [note for note in notes if note.startswith("closed loop")]
    assert not compared(capsys, "--shuffle", "--open-loop")[0]["closed_loop"]
    assert not compared(capsys, "--shuffle", "--saturate")[0]["closed_loop"]


@pytest.mark.parametrize(("options", "sessions", "said"), [
    (("--think-time", 2), False, "talk.csv has no sessions: --think-time is for traces of conversations"),
    (("--open-loop",), False, "talk.csv has no sessions: --open-loop is for traces of conversations"),
    (("--think-time", 2, "--open-loop"), True, "--think-time closes the loop and --open-loop opens it: one of them"),
    (("--think-time", 2, "--saturate"), True, "--think-time has no meaning with --saturate: all requests arrive at once"),
    (("--shuffle",), True, "the turns of talk.csv follow each other: --shuffle needs --open-loop (or --saturate)"),
    (("--think-time", -1), True, "argument --think-time: a number from 0 up to 1e+06 is wanted, not '-1'"),
    (("--think-time", "nan"), True, "argument --think-time: a number from 0 up to 1e+06 is wanted, not 'nan'"),
])
def test_compare_refuses(capsys, given_trace, options, sessions, said):
    trace = loop(ROWS)
    given_trace(trace if sessions else replace(trace, session=None, think_us=None))
    found = command(capsys, "compare", "talk.csv", *POOL, *options)
    assert found.status == 2 and len(found.err.splitlines()) == 1 and said in found.err


def test_the_built_in_workload_has_no_sessions(capsys):
    found = command(capsys, "compare", *POOL, "--think-time", 2)
    assert found.status == 2 and "has no sessions" in found.err
