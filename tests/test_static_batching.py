"""Static batching: a batch is formed when nothing runs and ends together. By hand, in blocks of 4; steps of one microsecond."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cli_run import document, lengths, run, timed
from hypothesis import given, settings
from small import LONG, config_of, states, trace_of
from test_relations import run_of, workloads
from test_sequences import Play

from sim.engine import Engine
from sim.request_log import NEVER
from sim.result import scenario
from sim.run import Observer
from sim.scheduler_config import SchedulerConfig


def static(*pool, **changes):
    return config_of(*pool, batching="static", **{"longest_jump": 1, **changes})


class Loads(Observer):
    """What each step computes, as a step-time model sees it."""

    def __init__(self):
        self.seen = []

    def scheduled(self, now_us, step):
        self.seen.append(tuple(step.load))


# ---------------------------------------------------------------------- a batch ends together
THREE = trace_of([(4, 4), (4, 1), (4, 2)])


def test_who_has_its_last_token_stays_until_the_last_one_has():
    # Two at once. b has its only token after step 1 and holds its block of 4 states until a has its fourth, after step 4:
    # only then c begins. a's second block: 5 of 8 slots, then 6 and 7, one never.
    run_, seen = states(THREE, static(9, 4, 20, max_num_seqs=2), "paged")
    assert [(s[1], s[2], s[3]) for s in seen] == [
        ((8, 0, 0, 0, 0, 0, 24), 2, 1), ((9, 2, 1, 0, 0, 0, 20), 2, 1), ((10, 1, 1, 0, 0, 0, 20), 2, 1),
        ((11, 0, 1, 0, 0, 0, 20), 2, 1), ((4, 0, 0, 0, 0, 0, 28), 1, 0), ((5, 0, 3, 0, 0, 0, 24), 1, 0)]
    log = run_.log
    assert log.admitted_us.tolist() == [0, 0, 4] and log.first_token_us.tolist() == [1, 1, 5]
    assert log.finished_us.tolist() == [4, 4, 6] and log.residence_us.tolist() == [4, 4, 2]
    assert log.token_us == [4 + 5 + 6 + 7, 4 * 4, 4 + 5] and sum(log.token_us) == run_.ledger.total.parts[0]


def test_reservations_are_kept_too():
    run_, seen = states(THREE, static(9, 4, 20, max_num_seqs=2, placement="first-fit"), "contiguous-oracle")
    assert [s[1] for s in seen] == [(8, 3, 0, 0, 0, 0, 21), (9, 2, 0, 0, 0, 0, 21), (10, 1, 0, 0, 0, 0, 21),
                                    (11, 0, 0, 0, 0, 0, 21), (4, 1, 0, 0, 0, 0, 27), (5, 0, 0, 0, 0, 0, 27)]
    assert run_.log.finished_us.tolist() == [4, 4, 6]


def test_an_ended_sequence_is_not_computed():
    # prompts of 4 and 4: 8 tokens, 4 x 5 / 2 pairs each; then a alone, its context 5, 6, 7; then c.
    loads = Loads()
    Engine(THREE, static(9, 4, 20, max_num_seqs=2), "paged", observers=[loads]).run()
    assert loads.seen == [(8, 2, 8, 20), (1, 1, 5, 5), (1, 1, 6, 6), (1, 1, 7, 7), (4, 1, 4, 10), (1, 1, 5, 5)]


def test_an_arrival_waits_for_the_batch():
    # c arrives in step 1 and would have room in every way.
    run_, _ = states(trace_of([(4, 4), (4, 1), (4, 2, 1)]), static(9, 4, 20), "paged")
    assert run_.log.admitted_us.tolist() == [0, 0, 4]


def test_memory_closes_a_batch_and_only_then_is_the_head_refused():
    # Five blocks. a and b take two each, c wants two: a remainder of one. In step 2 the batch is closed, and c waits for its
    # end, not for memory: what is free lies idle.
    run_, seen = states(trace_of([(6, 2), (8, 1), (8, 1)]), static(6, 4, 20), "paged")
    assert [s[1] for s in seen] == [(14, 1, 1, 0, 0, 4, 0), (15, 0, 1, 0, 0, 0, 4), (8, 0, 0, 0, 0, 0, 12)]
    assert run_.log.finished_us.tolist() == [2, 2, 3]


def test_a_batch_is_formed_in_one_step():
    # Six tokens: a's 4 and 2 of b's. In step 2 three are left, but the batch is closed: c begins in step 3.
    config = static(9, 4, 20, max_num_seqs=4, max_num_batched_tokens=6)
    run_, seen = states(trace_of([(4, 2), (4, 1), (2, 1)]), config, "paged")
    assert [(s[1][0], s[2]) for s in seen] == [(6, 2), (9, 2), (2, 1)]
    assert run_.log.finished_us.tolist() == [2, 2, 3] and run_.log.first_token_us.tolist() == [1, 2, 3]


# ---------------------------------------------------------------------- preemption
def test_the_victim_is_the_last_that_has_not_ended():
    # Four blocks, one each. Step 2: a takes the last one; b finds none, and c, behind it, has ended and keeps its own: b
    # leaves and waits for the next batch, with 5 tokens to compute. What it left is not had for want of a place in the batch.
    trace = trace_of([(4, 6), (4, 6), (4, 1)])
    run_, seen = states(trace, static(5, 4, 20), "paged")
    assert [(s[1], s[2]) for s in seen] == [
        ((12, 0, 0, 0, 0, 0, 4), 3), ((9, 3, 0, 0, 0, 4, 0), 2), ((10, 2, 0, 0, 0, 0, 4), 2), ((11, 1, 0, 0, 0, 0, 4), 2),
        ((12, 0, 0, 0, 0, 0, 4), 2), ((13, 0, 3, 0, 0, 0, 0), 2),
        *[((n, 8 - n, 0, 0, 0, 0, 8), 1) for n in (5, 6, 7, 8)], ((9, 0, 3, 0, 0, 0, 4), 1)]
    assert run_.log.finished_us.tolist() == [6, 11, 6] and run_.preemptions == 1
    assert sum(run_.log.token_us) == run_.ledger.total.parts[0]


def test_the_most_urgent_are_kept():
    # The same by priority, c last in the list and least urgent, but ended.
    trace = replace(trace_of([(4, 6), (4, 6), (4, 1)]), priority=np.array([1, 0, 2]))
    run_, _ = states(trace, static(5, 4, 20, policy="priority"), "paged")
    assert run_.log.preemptions.tolist() == [1, 0, 0] and run_.log.finished_us.tolist() == [11, 6, 6]


def test_where_the_last_one_left_preempts_itself_the_batch_ends():
    # Three blocks: a has one, b two and its only token. In step 2 a finds no room; the step is empty, b leaves, a begins anew.
    run_, seen = states(trace_of([(4, 6), (8, 1)]), static(4, 4, 20), "paged")
    assert [(s[1], s[2]) for s in seen[:3]] == [
        ((12, 0, 0, 0, 0, 0, 0), 2), ((8, 0, 0, 0, 0, 4, 0), 1), ((5, 3, 0, 0, 0, 0, 4), 1)]
    assert run_.log.finished_us.tolist() == [7, 2]


def test_swapped_out_until_the_next_batch():
    # As above; b comes back with its 4 tokens when a and c have left, which takes a step, and computes five more.
    trace = trace_of([(4, 6), (4, 6), (4, 1)])
    run_, seen = states(trace, static(5, 4, 20, swap_blocks=4), "paged")
    assert [s[1][0] for s in seen] == [12, 9, 10, 11, 12, 13, 4, 5, 6, 7, 8, 9]
    assert run_.log.finished_us.tolist() == [6, 12, 6]


# ---------------------------------------------------------------------- several sequences
def test_samples_that_ended_keep_their_blocks():
    # Two tokens a step for three samples of 4 states: a and b have ended after step 3, c after step 5.
    trace = replace(trace_of([(2, 3), (2, 1, 1)]), samples=np.array([3, 1]))
    run_, seen = states(trace, static(10, 4, 20, max_num_seqs=None, max_num_batched_tokens=2), "paged")
    assert [(s[1], s[2]) for s in seen] == [
        ((2, 2, 0, 0, 0, 0, 32), 1), ((8, 4, 0, 0, 0, 0, 24), 3), ((10, 2, 0, 0, 0, 0, 24), 3), ((11, 1, 0, 0, 0, 0, 24), 3),
        ((12, 0, 0, 0, 0, 0, 24), 3), ((2, 0, 2, 0, 0, 0, 32), 1)]
    assert run_.log.finished_us.tolist() == [5, 6]


def test_samples_that_ended_do_not_wait_for_one_that_is_preempted():
    # Blocks of 1, 12 usable, four tokens a step: two requests of 6 states, and three samples of 4 behind a prompt of 2. Two of
    # these have ended after step 3 (3 + 3 + 2 + 2 x 2 blocks). In step 4 two blocks are left for three: the third sample leaves
    # with its 2 tokens, and the blocks of the other two are free. In the next batch it is alone.
    trace = replace(trace_of([(1, 6), (1, 6), (2, 3)]), samples=np.array([1, 1, 3]))
    play = Play(trace, static(13, 1, 20, max_num_seqs=None, max_num_batched_tokens=4))
    made = [play.step() for _ in range(4)]
    assert [len(held) for held, _ in made] == [3, 5, 5, 2] and made[3][1].preempted == [(2, 2)]
    assert (play.real.groups.size(2), len(play.free()), play.real.computed) == (1, 4, 8)
    play.step()
    assert play.finished == [] and play.step()[0][1][:2] == (1, 6) and play.finished == [0, 1]
    assert [[row[:2] for row in play.step()[0]] for _ in range(3)] == [[(2, 2)], [(2, 3)], [(2, 4)]] and play.finished == [2]
    assert len(play.free()) == 12 and play.real.groups.promised == 0


@pytest.mark.parametrize("column", ["samples", "beam_width"])
def test_one_output_token_of_several_sequences(column):
    # Nothing ever branches, and the request waits for its neighbour as it is.
    trace = replace(trace_of([(6, 1), (4, 3)]), **{column: np.array([3, 1])})
    run_, seen = states(trace, static(10, 4, 20), "paged")
    assert [(s[1][0], s[2]) for s in seen] == [(10, 2), (11, 2), (12, 2)] and run_.log.finished_us.tolist() == [3, 3]


def test_beams_that_have_ended_are_not_chosen_among_again():
    # Two beams of prompt 6, output 3 (8 states) beside a longer request: their blocks stay as their last token left them.
    trace = replace(trace_of([(6, 3), (4, 9)]), beam_width=np.array([2, 1]))
    run_, seen = states(trace, static(12, 4, 20, beam_seed=6), "paged")
    alone, _ = states(replace(trace_of([(6, 3)]), beam_width=np.array([2])), config_of(12, 4, 20, beam_seed=6), "paged")
    assert run_.allocator.copies == alone.allocator.copies == 2
    assert [s[2] for s in seen] == [2, *[3] * 8] and run_.log.finished_us.tolist() == [9, 9]


# ---------------------------------------------------------------------- any workload
class Batches(Observer):
    """That nobody joins a batch, and that all who are left leave it at once."""

    def started(self, allocator, scheduler):
        self._scheduler, self._before = scheduler, 0

    def scheduled(self, now_us, step):
        joined = len(step.admitted) + len(step.swapped_in)
        assert not joined or len(self._scheduler.running) == joined

    def updated(self, now_us, finished):
        assert not finished or not len(self._scheduler.running)


@settings(max_examples=100 * LONG)
@given(workloads())
def test_batches_do_not_mix(made):
    trace, config = made
    config = replace(config, scheduler=replace(config.scheduler, batching="static"))
    for name in ("paged", "contiguous-pow2"):
        facts = Engine(trace, config, name, observers=[Batches()]).run()
        assert ((facts.log.finished_us != NEVER) == (facts.verdict == 0)).all()


@settings(max_examples=50 * LONG)
@given(workloads())
def test_one_at_a_time_is_one_at_a_time(made):
    """Batches of one are what continuous batching makes of max_num_seqs 1; only who is told to be refused may differ."""
    trace, config = made
    both = [run_of(trace, replace(config, scheduler=replace(config.scheduler, max_num_seqs=1, batching=batching)), "paged")
            for batching in ("static", "continuous")]
    one, other = (scenario("x", facts) for facts in both)
    assert both[0].log.finished_us.tolist() == both[1].log.finished_us.tolist() and one["latency_s"] == other["latency_s"]


# ---------------------------------------------------------------------- what cannot be, and the command line
@pytest.mark.parametrize(("changes", "message"), [
    ({"batching": "dynamic"}, "batching must be one of continuous, static, not 'dynamic'"),
    ({"batching": "static", "async_scheduling": True}, "static batching and asynchronous scheduling do not go together"),
])
def test_what_a_configuration_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        SchedulerConfig(**changes)


POOL = ("--num-gpu-blocks-override", 60, "--block-size", 4, "--max-model-len", 40, "--step-time", "constant:10ms")


def test_compare_with_static_batching(capsys, tmp_path):
    crowd = timed(tmp_path, [(0.01 * i, 10 + 3 * (i % 5), 5 + i % 7) for i in range(30)])
    found, usual = (document(capsys, crowd, *POOL, "--batching", batching) for batching in ("static", "continuous"))
    assert (found["config"]["batching"], usual["config"]["batching"]) == ("static", "continuous")
    assert usual == document(capsys, crowd, *POOL)
    assert all(check["ok"] for check in found["crosscheck"])
    for slow, fast in zip(found["scenarios"], usual["scenarios"], strict=True):
        assert slow["requests"]["completed"] == 30
        assert slow["latency_s"]["queue"]["mean"] > fast["latency_s"]["queue"]["mean"]
    said = run(capsys, "compare", crowd, *POOL, "--batching", "static")
    assert "static batching" in " ".join(said.out.split())


def test_static_and_asynchronous_is_one_line(capsys, tmp_path):
    said = run(capsys, "compare", lengths(tmp_path, [(5, 3)]), *POOL, "--batching", "static", "--async-scheduling")
    assert (said.status, said.out) == (2, "")
    assert said.err == "pagedsim compare: error: static batching and asynchronous scheduling do not go together\n"
