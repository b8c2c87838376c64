"""Requests with several sequences, and preemption by swap: by hand, against the naive scheduler, and on the command line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cli_run import document, run, timed
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_scheduler import NaiveScheduler
from small import LONG, config_of, states, trace_of

from sim.catalog import ALLOCATORS, SCHEDULERS
from sim.demand import Demand
from sim.engine import Engine
from sim.memory.allocator import Refusal
from sim.run import Observer
from sim.sequence_groups import mix


def several(requests, samples=None, beams=None, **more):
    """A trace of (prompt, output[, arrival]) with these samples and beam widths."""
    columns = {"samples": samples, "beam_width": beams}
    return replace(trace_of(requests, **more), **{k: np.array(v, np.int64) for k, v in columns.items() if v is not None})


class Events(Observer):
    """When who was admitted, came back, was preempted and left, whatever was jumped between."""

    def __init__(self):
        self.seen = []

    def scheduled(self, now_us, step):
        for kind in ("preempted", "admitted", "swapped_in"):
            self.seen += [(now_us, kind, *event) for event in getattr(step, kind)]

    def updated(self, now_us, finished):
        self.seen += [(now_us, "finished", request) for request in finished]


def outcome(trace, config, allocator):
    events = Events()
    engine = Engine(trace, config, allocator, observers=[events])
    run = engine.run()
    log = run.log
    times = [c.tolist() for c in (log.admitted_us, log.first_token_us, log.finished_us, log.residence_us, log.preemptions)]
    queue = None if allocator.startswith("contiguous") else run.allocator.pool.free_queue().tolist()
    host = engine.scheduler.host and (engine.scheduler.host.used, engine.scheduler.host.swaps)
    return (run.ledger.total, run.ledger.peak_running, run.ledger.peak_used, run.steps, run.preemptions, run.allocator.copies,
            times, log.token_us, queue, host, run.verdict.tolist(), events.seen)


class Play:
    """The scheduler alone, one step after the other; ``arrival_us`` counts steps."""

    def __init__(self, trace, config, allocator="paged"):
        self.arrival, self.made = trace.arrival_us, 0
        demand = Demand(trace, config.max_model_len)
        self.allocator = ALLOCATORS[allocator](demand, config)
        self.real = SCHEDULERS[config.scheduler.batching](demand, self.allocator, config.scheduler, config.num_blocks,
                                                          config.block_size)

    def step(self):
        """Schedule and update; what each running sequence held between the two, and `Step`."""
        for request in (self.arrival == self.made).nonzero()[0].tolist():
            self.real.add(request)
        self.made += 1
        made = self.real.schedule()
        held = self.tables()
        self.finished = self.real.update()
        return held, made

    def tables(self):
        """(request, computed, block table) of each running sequence."""
        batch = self.real.running
        return [(r, c, self.allocator.table(h).tolist())
                for r, c, h in zip(batch.request.tolist(), batch.computed.tolist(), batch.handle.tolist(), strict=True)]

    def free(self):
        return self.allocator.pool.free_queue().tolist()


def steps(play, n):
    """Only the block tables, ``n`` steps long."""
    return [[table for _, _, table in play.step()[0]] for _ in range(n)]


# ---------------------------------------------------------------------- samples by hand: blocks of 4
def test_three_samples_step_by_step():
    # Prompt 6, output 5: each of the three ends with 10 states. After the prompt all hold [1, 2]; block 2 has 2 of 4 slots
    # filled. The first two to write copy it (3 and 4), the last writes in place. The ninth token needs a block of its own.
    trace, config = several([(6, 5)], samples=[3]), config_of(12, 4, 20, longest_jump=1)
    play = Play(trace, config)
    assert steps(play, 5) == [[[1, 2]], [[1, 3], [1, 4], [1, 2]], [[1, 3], [1, 4], [1, 2]],
                              [[1, 3, 5], [1, 4, 6], [1, 2, 7]], [[1, 3, 5], [1, 4, 6], [1, 2, 7]]]
    assert play.finished == [0] and play.allocator.copies == 2 and len(play.free()) == 11 and not play.real.computed
    # 44 slots. Step 2: block 1 counts once: 4 + 3 x 3 states in 4 blocks, one slot left in each of three. Step 4: 4 + 3 x 5
    # states in 7 blocks; of 3 x 3 empty slots the tenth token will fill 3.
    run, seen = states(trace, config, "paged")
    assert seen == [(0, (6, 2, 0, 0, 0, 0, 36), 1, 0), (1, (13, 3, 0, 0, 0, 0, 28), 3, 0), (2, (16, 0, 0, 0, 0, 0, 28), 3, 0),
                    (3, (19, 3, 6, 0, 0, 0, 16), 3, 0), (4, (22, 0, 6, 0, 0, 0, 16), 3, 0)]
    assert (run.ledger.peak_used, run.ledger.peak_running, run.allocator.copies) == (28, 3, 2)
    # Tables: 8 slots, twice three of 8, twice three of 12; blocks: 2, 4, 4, 7, 7.
    assert (run.ledger.total.logical, run.ledger.total.physical) == (8 + 2 * 24 + 2 * 36, 4 * (2 + 4 + 4 + 7 + 7))


def test_a_prompt_of_whole_blocks_is_never_copied():
    # Prompt 8, output 5, 12 states each: 8 + 3 x 1 states in 2 + 3 blocks, and each new block will be filled up.
    trace, config = several([(8, 5)], samples=[3]), config_of(12, 4, 20, longest_jump=1)
    assert steps(Play(trace, config), 2) == [[[1, 2]], [[1, 2, 3], [1, 2, 4], [1, 2, 5]]]
    run, seen = states(trace, config, "paged")
    assert [state[1] for state in seen] == [
        (8, 0, 0, 0, 0, 0, 36), *[(8 + 3 * i, 12 - 3 * i, 0, 0, 0, 0, 24) for i in (1, 2, 3, 4)]]
    assert run.allocator.copies == 0


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_one_output_token_is_the_prompts_step(allocator):
    # No sequence ever computes a token of its own, so nothing branches; the next request runs as if it were the first.
    run, seen = states(several([(6, 1), (6, 2, 5)], samples=[3, 2]), config_of(40, 4, 20, longest_jump=1), allocator)
    assert [(state[0], state[2]) for state in seen] == [(0, 1), (1, 0), (5, 1), (6, 2)]
    assert run.log.finished_us.tolist() == [1, 7]


@pytest.mark.parametrize("swap_blocks", [None, 4])
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_one_sample_is_a_plain_request(allocator, swap_blocks):
    rows = [(7, 30), (9, 14, 2), (3, 20, 3), (12, 6, 4)]
    blocks = 31 if allocator.startswith(("contiguous", "paged-reserve")) else 13
    config = config_of(blocks, 4, 40, longest_jump=1, swap_blocks=swap_blocks, placement="first-fit")
    plain = outcome(trace_of(rows), config, allocator)
    assert plain == outcome(several(rows, samples=[1] * 4, beams=[1] * 4), config, allocator)
    # and the same beside one that has several, which comes when they are gone
    run, before = states(trace_of(rows), config, allocator)
    beside, seen = states(several([*rows, (6, 4, 900)], samples=[1, 1, 1, 1, 3]), config, allocator)
    assert seen[: len(before)] == before and seen[-1][2] == 3
    assert [c.tolist()[:4] for c in vars(beside.log).values() if isinstance(c, np.ndarray)] \
        == [c.tolist() for c in vars(run.log).values() if isinstance(c, np.ndarray)]
    assert beside.log.token_us[:4] == run.log.token_us and beside.preemptions == run.preemptions


def test_samples_end_one_by_one_where_the_budget_is_short():
    # Prompt 2, output 3: 4 states. Two tokens a step: c waits until a and b have ended, then writes in place.
    run, seen = states(several([(2, 3)], samples=[3]),
                       config_of(10, 4, 20, max_num_seqs=None, max_num_batched_tokens=2, longest_jump=1), "paged")
    assert [(state[1], state[2]) for state in seen] == [
        ((2, 2, 0, 0, 0, 0, 32), 1),
        ((8, 4, 0, 0, 0, 0, 24), 3),                   # 3 + 3 + 2 states in three blocks
        ((10, 2, 0, 0, 0, 0, 24), 3),
        ((3, 1, 0, 0, 0, 0, 32), 1),
        ((4, 0, 0, 0, 0, 0, 32), 1)]
    assert run.allocator.copies == 2 and run.log.finished_us.tolist() == [5]


def test_sequences_that_had_ended_stay_ended():
    # Blocks of 1, 12 usable, budget 4: 0 and 1 grow by one block a step, and two of the samples of 2 (prompt 2, 4 states);
    # these end after step 3 (3 + 3 + 2 + 2 x 2 blocks). In step 5 the two need 10 blocks, the third sample holds 3.
    trace = several([(1, 6), (1, 6), (2, 3)], samples=[1, 1, 3])
    play = Play(trace, config_of(13, 1, 20, max_num_seqs=None, max_num_batched_tokens=4))
    made = [play.step() for _ in range(5)]
    assert [len(held) for held, _ in made] == [3, 5, 5, 3, 2] and made[4][1].preempted == [(2, 3)]
    assert play.real.groups.size(2) == 1
    made = [play.step() for _ in range(3)]             # 0 and 1 end; the prompt, then two tokens, by the one left
    assert [[row[:2] for row in held] for held, _ in made] == [[(0, 6), (1, 6)], [(2, 2)], [(2, 4)]]
    assert play.finished == [2] and play.real.groups.promised == 0


def test_max_num_seqs_counts_sequences_to_come():
    # Six tokens a step: 0 computes 6 of 10 prompt tokens, then 4, and 1 gets the other 2: with the two sequences that 0 will
    # fork these are 4. 2 has to wait until 1 has ended, after step 3.
    trace = several([(10, 3), (2, 2), (2, 2)], samples=[3, 1, 1])
    play = Play(trace, config_of(30, 4, 20, max_num_seqs=4, max_num_batched_tokens=6))
    made = [play.step() for _ in range(4)]
    assert [[a[0] for a in step.admitted] for _, step in made] == [[0], [1], [], [2]]
    assert [len(held) for held, _ in made] == [1, 2, 4, 4]
    assert play.real.refused is None                   # not for want of memory


def test_more_sequences_than_max_num_seqs_are_refused_at_arrival():
    run, seen = states(several([(6, 2), (6, 2)], samples=[3, 2]), config_of(30, 4, 20, max_num_seqs=2), "paged")
    assert run.log.finished_us.tolist() == [-1, 2] and seen[-1][2] == 2


# ---------------------------------------------------------------------- beams by hand
def test_mix_is_splitmix64():
    assert mix(0) == 0xE220A8397B1DCDAF                # the published first two outputs for the seed 0
    assert mix(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4
    assert [[mix(6, 0, t, j) % 2 for j in range(2)] for t in (7, 8, 9)] == [[0, 0], [1, 1], [0, 0]]
    assert [[mix(0, 0, t, j) % 3 for j in range(3)] for t in (7, 8, 9)] == [[2, 0, 2], [1, 1, 0], [2, 2, 0]]


def test_two_beams_step_by_step():
    # Prompt 6, output 5. After 7 tokens both are children of beam 0 ([1, 3]), and block 2 is free: block 1 still has holders.
    # The first of them copies block 3 into it. After 8 tokens both are children of beam 1, so 2 is free once more; the ninth
    # tokens need blocks 2 and 4. After 9 both are children of beam 0 ([1, 3, 2]), 4 is free and takes the first one's copy.
    trace, config = several([(6, 5)], beams=[2]), config_of(12, 4, 20, beam_seed=6, longest_jump=1)
    play = Play(trace, config)
    made, free = [], []
    for _ in range(5):
        made.append([table for _, _, table in play.step()[0]])
        free.append(play.free()[0])
    assert made == [[[1, 2]], [[1, 3], [1, 2]], [[1, 2], [1, 3]], [[1, 3, 2], [1, 3, 4]], [[1, 3, 4], [1, 3, 2]]]
    assert free[:4] == [3, 2, 2, 4] and play.allocator.copies == 3 and len(play.free()) == 11
    _, seen = states(trace, config, "paged")
    assert [state[1] for state in seen] == [
        (6, 2, 0, 0, 0, 0, 36), (4 + 3 + 3, 2, 0, 0, 0, 0, 32), (4 + 4 + 4, 0, 0, 0, 0, 0, 32),
        (8 + 1 + 1, 2, 4, 0, 0, 0, 28), (8 + 2 + 2, 0, 4, 0, 0, 0, 28)]


def test_three_beams_step_by_step():
    # 7 tokens: 0 and 2 are children of beam 2, 1 of beam 0, beam 1 frees 4. 8 tokens: 0 and 1 of beam 1, 2 of beam 0, beam 2
    # frees 2. 9 tokens: 0 and 1 of beam 2, 2 of beam 0, beam 1 frees 5 - block 3 stays with the child of beam 0.
    play = Play(several([(6, 5)], beams=[3]), config_of(12, 4, 20))
    made, free = [], []
    for _ in range(5):
        made.append([table for _, _, table in play.step()[0]])
        free.append(play.free()[:2])
    assert made == [[[1, 2]], [[1, 3], [1, 4], [1, 2]], [[1, 4], [1, 3], [1, 2]],
                    [[1, 3, 2], [1, 3, 5], [1, 4, 6]], [[1, 4, 5], [1, 4, 6], [1, 3, 2]]]
    assert free[1:4] == [[4, 5], [2, 5], [5, 7]] and play.allocator.copies == 4


def test_survivors_that_keep_their_own_beam():
    # Seed 6 draws the parents above; whether survivor j is asked to draw one is a draw of its own, below 0.18 only for
    # survivor 1 after 7 tokens (0.715 and 0.155, then 0.203 and 0.802, 0.454 and 0.183). So beam 1 becomes a child of beam 0
    # once, the first to write copies block 3 into 2, and after that each goes on by itself.
    assert [[mix(6, 0, t, j, 1) < 0.18 * 2**64 for j in range(2)] for t in (7, 8, 9)] == [[False, True], [False] * 2, [False] * 2]
    trace = several([(6, 5)], beams=[2])
    made = steps(Play(trace, config_of(12, 4, 20, beam_seed=6, beam_turnover=0.18)), 5)
    assert made == [[[1, 2]], [[1, 3], [1, 2]], [[1, 2], [1, 3]], *[[[1, 2, 4], [1, 3, 5]]] * 2]
    # Nobody is asked below 0.15: two beams are two samples then. Above 0.81 everybody is.
    assert steps(Play(trace, config_of(12, 4, 20, beam_seed=6, beam_turnover=0.15)), 5) == steps(
        Play(several([(6, 5)], samples=[2]), config_of(12, 4, 20)), 5)
    assert steps(Play(trace, config_of(12, 4, 20, beam_seed=6, beam_turnover=0.81)), 5) == steps(
        Play(trace, config_of(12, 4, 20, beam_seed=6)), 5)


def test_less_turnover_shares_less():
    trace = several([(6, 60)] * 8, beams=[4] * 8)
    shares = []
    for turnover in (0.05, 0.3, 1.0):
        total = outcome(trace, config_of(600, 4, 80, beam_turnover=turnover), "paged")[0]
        shares.append(1 - total.physical / total.logical)
    assert 0 < shares[0] < shares[1] < shares[2]


@pytest.mark.parametrize("turnover", [0.0, -0.5, 1.01, float("nan")])
def test_a_turnover_is_a_share(turnover):
    with pytest.raises(ValueError, match=r"beam_turnover must be above 0 and at most 1, not"):
        config_of(12, 4, 20, beam_turnover=turnover)


@pytest.mark.parametrize("allocator", ["paged", "paged-prefix"])
def test_beams_follow_the_seed(allocator):
    trace = several([(6, 30), (9, 20)], beams=[4, 3])
    first, again, other = (outcome(trace, config_of(60, 4, 40, beam_seed=seed), allocator) for seed in (1, 1, 2))
    assert first == again and first[0] != other[0]


def test_beams_are_not_chosen_again_in_a_step_without_a_token():
    # Request 1 goes to the host with 10 tokens: both beams were children of beam 1 then, and would be again.
    assert [mix(0, 1, 10, j) % 2 for j in range(2)] == [1, 1]
    play = Play(several([(8, 8), (6, 6)], beams=[1, 2]), config_of(8, 4, 20, swap_blocks=8))
    back = 0
    while not play.made or len(play.real.running) or len(play.real.waiting):
        held, made = play.step()
        back += len(made.swapped_in)
        for request, _ in made.swapped_in:
            tables = [row for row in held if row[0] == request]
            assert [row for row in play.tables() if row[0] == request] == tables and len(tables) == 2
            assert not set(tables[0][2]) & set(tables[1][2])
    assert back == 1


# ---------------------------------------------------------------------- reservations
def test_every_sequence_has_a_reservation_from_the_start():
    # 56 slots. Request 0 ends with 10 states, three times: 30. Request 1 wants as much at once and has 26: although two of its
    # reservations would fit, nothing is given, and 2 waits behind it. The prompt is computed once, then its states count
    # three times.
    trace = several([(6, 5), (6, 5), (3, 1)], samples=[3, 3, 1])
    run, seen = states(trace, config_of(15, 4, 20, longest_jump=1, placement="first-fit"), "contiguous-oracle")
    growing = [(3 * computed, 30 - 3 * computed) for computed in (7, 8, 9, 10)]
    assert seen == [
        (0, (6, 24, 0, 0, 0, 26, 0), 1, 2), *[(1 + i, (*two, 0, 0, 0, 26, 0), 3, 2) for i, two in enumerate(growing)],
        (5, (6 + 3, 24, 0, 0, 0, 0, 23), 2, 0), *[(6 + i, (*two, 0, 0, 0, 0, 26), 3, 0) for i, two in enumerate(growing)]]
    assert run.ledger.total.logical == run.ledger.total.physical       # nothing is ever shared


def test_a_group_refused_for_its_whole_need_is_no_external_fragmentation():
    # 64 slots, first fit. Requests 0 and 2 end with 25 states, 1 with 8, between them: when it has gone two holes are free,
    # of 8 and 6. Request 3 wants 2 x 14: neither one nor two of them fit, but 14 slots would do for one.
    trace = several([(6, 20), (6, 3), (6, 20), (6, 9)], samples=[1, 1, 1, 2])
    for longest_jump in (1, 1024):
        run, _ = states(trace, config_of(17, 4, 64, longest_jump=longest_jump, placement="first-fit"), "contiguous-oracle")
        assert run.ledger.total.parts[4] == 0 and run.ledger.total.parts[5] == 3 * 6 + 17 * 14


def test_beams_keep_their_reservations():
    # 24 slots are just two reservations: the survivor's states are copied into the place of the beam that is dropped.
    play = Play(several([(8, 5)], beams=[2]), config_of(7, 4, 13, placement="first-fit"), "contiguous-oracle")
    play.real.add(0)
    for step in range(5):
        play.real.schedule()
        placed = [play.allocator.placed(handle) for handle in play.real.running.handle.tolist()]
        assert placed == [(0, 12), (12, 12)][: step + 1]
        finished = play.real.update()
    assert finished == [0] and play.allocator.slots == 0


# ---------------------------------------------------------------------- preemption
PLAIN_AND_SAMPLES = several([(8, 8), (6, 6)], samples=[1, 2])
"""Four blocks at the end, and one shared with two of its own twice, in a pool of seven."""


def test_a_group_is_preempted_as_a_whole_and_computes_its_prompt_once():
    play = Play(PLAIN_AND_SAMPLES, config_of(8, 4, 20))
    assert steps(play, 3)[-1] == [[1, 2, 5], [3, 6], [3, 4]]
    # Step 4: the first sample takes the last block for its ninth token, the second finds none and the request leaves: its
    # second sequence frees 4, then the first 7, 6 and 3.
    held, made = play.step()
    assert held == [(0, 11, [1, 2, 5])] and made.preempted == [(1, 8)] and play.free() == [7, 6, 3, 4]
    assert made.new_tokens == 1 and made.admitted == []
    held, made = play.step()                           # the prompt, once
    assert held == [(0, 12, [1, 2, 5]), (1, 6, [7, 6])] and made.admitted[0][:4] == (1, 0, 6, True) and made.new_tokens == 7
    # Step 6: request 0 takes 3. Each sample has 3 tokens of its own to compute again: a copy and a block, but 4 alone is free.
    held, made = play.step()
    assert held == [(0, 13, [1, 2, 5, 3])] and made.preempted == [(1, 6)] and play.free() == [6, 7, 4]
    play.step()
    held, made = play.step()                           # and once more
    assert made.preempted == [(1, 6)] and play.finished == [0] and play.free() == [3, 5, 2, 1, 7, 6, 4]
    made = [play.step() for _ in range(4)]
    assert [[row[2] for row in held] for held, _ in made] == [[[3, 5]], *[[[3, 2, 1], [3, 5, 7]]] * 3]
    assert [step.new_tokens for _, step in made] == [6, 3 + 3, 2, 2]
    assert play.finished == [1] and play.real.preemptions == 3 and play.allocator.copies == 2 and len(play.free()) == 7


@pytest.mark.parametrize(("exempt", "finished_us"), [(True, [11, 12]), (False, [11, 13])])
def test_a_request_of_two_sequences_can_be_alone(exempt, finished_us):
    """Rule 26 counts requests: 2 + 10 tokens from step 1 on, 2 + 4 from step 6 on, two sequences each, 8 blocks of 4.

    In step 9 the later request is in want of two more blocks and preempted; in step 10 it computes its prompt, beside the other
    one's last tokens, and in step 11, alone, all 3 tokens that each of its sequences still lacks, or only 2 and then the third.
    """
    config = config_of(9, 4, 40, max_num_seqs=8, max_num_batched_tokens=16, reserve_full_isl=False, exempt_lone_prefill=exempt,
                       long_prefill_token_threshold=2)
    run = Engine(several([(2, 10, 1), (2, 4, 6)], samples=[2, 2]), config, "paged").run()
    assert run.log.finished_us.tolist() == finished_us and run.log.preemptions.tolist() == [0, 1]


def test_a_group_comes_back_from_the_host():
    play = Play(PLAIN_AND_SAMPLES, config_of(8, 4, 20, swap_blocks=4))
    host = play.real.host
    steps(play, 3)
    _, made = play.step()                              # 8 tokens twice: four blocks on the host, where nothing is shared
    assert made.preempted == [(1, 8)] and (host.used, host.swaps) == (4, 1) and play.free() == [7, 6, 3, 4]
    held, made = play.step()
    assert held == [(0, 12, [1, 2, 5]), (1, 8, [7, 6]), (1, 8, [3, 4])]
    assert made.swapped_in == [(1, 8)] and made.new_tokens == 1 and host.used == 0 and made.admitted == []
    held, made = play.step()                           # request 0 needs a block: out again
    assert held == [(0, 13, [1, 2, 5, 6])] and host.used == 4 and play.free() == [7, 4, 3]
    assert [(play.step()[1].swapped_in, play.real.refused) for _ in range(2)] == [([], Refusal(16))] * 2
    made = [play.step() for _ in range(4)]
    assert [[row[1:] for row in held] for held, _ in made] == [
        [(8, [6, 5]), (8, [2, 1])], *[[(n, [6, 5, 7]), (n, [2, 1, 4])] for n in (9, 10, 11)]]
    assert [step.new_tokens for _, step in made] == [0, 2, 2, 2]
    assert play.finished == [1] and (host.used, host.swaps) == (0, 2) and play.allocator.copies == 1 and len(play.free()) == 7


@pytest.mark.parametrize(("rows", "samples", "num_blocks", "swap_blocks"), [
    ([(8, 8), (6, 6)], [1, 2], 8, 3),                  # four blocks into three
    ([(8, 8), (6, 6)], [1, 2], 8, 0),
    ([(8, 5), (8, 5)], [3, 3], 9, 100),                # 2 + 3 blocks fit eight, three times three would not
])
def test_where_the_copies_have_no_room_the_request_computes_again(rows, samples, num_blocks, swap_blocks):
    trace = several(rows, samples=samples)
    play = Play(trace, config_of(num_blocks, 4, 20, swap_blocks=swap_blocks))
    steps(play, 50)
    assert not len(play.real.running) and not len(play.real.waiting) and play.real.host.swaps == 0
    with_host, without = (outcome(trace, config_of(num_blocks, 4, 20, swap_blocks=n), "paged") for n in (swap_blocks, None))
    assert with_host[9] == (0, 0) and without[4] > 0
    assert with_host[:9] == without[:9] and with_host[10:] == without[10:]


def test_swap_of_plain_requests():
    # Four blocks of 4 usable, two requests of 4 + 6 tokens, 9 states. In step 6 request 0 needs a third block; request 1 gives
    # 2 and 4 back and comes in front of request 2. In step 7 it comes back, into what request 0 left, and 2 behind it.
    trace = trace_of([(4, 6, 0), (4, 6, 0), (4, 1, 3)])
    config = config_of(5, 4, 20, swap_blocks=2, longest_jump=1)
    play = Play(trace, config)
    host = play.real.host
    steps(play, 5)
    held, made = play.step()
    assert held == [(0, 9, [1, 3, 4])] and made.preempted == [(1, 8)] and host.used == 2 and list(play.real.waiting) == [1, 2]
    held, made = play.step()
    assert held == [(1, 8, [4, 3]), (2, 4, [1])] and made.swapped_in == [(1, 8)] and [a[0] for a in made.admitted] == [2]
    assert made.new_tokens == 4 and host.used == 0
    assert play.step()[0] == [(1, 9, [4, 3, 1])] and play.finished == [1]
    run, seen = states(trace, config, "paged")
    assert run.log.finished_us.tolist() == [6, 8, 7] and run.preemptions == 1
    assert sum(run.log.token_us) == run.ledger.total.parts[0]          # the log counts what lies on the host nowhere, too
    assert sum(run.log.residence_us.tolist()) == run.ledger.total.sequence_us
    assert seen[6][:3] == (6, (12, 0, 0, 0, 0, 0, 4), 2)


def test_the_host_pool_is_one_for_all():
    # Six blocks usable, three requests of 13 states. In step 6 request 2 leaves with 8 tokens: two blocks. In step 10
    # request 1 leaves with 12: three more, but the host has four.
    play = Play(trace_of([(4, 10)] * 3), config_of(7, 4, 20, swap_blocks=4))
    host = play.real.host
    made = [play.step()[1] for _ in range(10)]
    assert [(i, s.preempted) for i, s in enumerate(made, 1) if s.preempted] == [(6, [(2, 8)]), (10, [(1, 12)])]
    assert host.used == 2 and 2 in host and 1 not in host
    held, made = play.step()                           # request 1 computes its 12 tokens and the one sampled, and ends
    assert held[0][:2] == (1, 13) and made.new_tokens == 13 and made.swapped_in == [(2, 8)] and play.finished == [1]


def test_a_prompt_half_computed_goes_on_in_chunks():
    # Three tokens a step, four blocks usable. Request 1 gets 2 a step beside request 0; with 8 of 12 it finds no block in
    # step 6 and leaves. Request 0 ends with 11 states in step 9; step 10 brings request 1 back, then it computes 3 and 1.
    play = Play(trace_of([(4, 8), (12, 1)]), config_of(5, 4, 20, swap_blocks=9, max_num_batched_tokens=3, max_num_seqs=3,
                                                       reserve_full_isl=False))
    made = [play.step() for _ in range(12)]
    assert made[5][1].preempted == [(1, 8)] and [held[0][:2] for held, _ in made[8:]] == [(0, 11), (1, 8), (1, 11), (1, 12)]
    assert play.finished == [1]


def test_no_jump_over_a_return_from_the_host():
    # Five blocks usable. In step 2 request 0 takes a third block, and 2 leaves with 8 tokens. Request 1 ends with step 3; two
    # blocks are free, enough for the 8 tokens, though not for the 9 that a recompute would begin with.
    trace = trace_of([(8, 12), (1, 3), (8, 4)])
    for longest_jump in (1, 1024):
        seen = outcome(trace, config_of(6, 4, 20, swap_blocks=9, longest_jump=longest_jump), "paged")[-1]
        assert [event for event in seen if event[1] in ("preempted", "swapped_in")][:2] == [
            (1, "preempted", 2, 8), (3, "swapped_in", 2, 8)]


def test_a_request_that_does_not_fit_back_changes_nothing():
    # With prefix caching, blocks taken on trial would lose what is cached in them.
    config = config_of(9, 4, 40, swap_blocks=20)
    play = Play(several([(8, 24), (8, 8)], samples=[1, 2], content=[[1, 2], [3, 4]]), config, "paged-prefix")
    refused = 0
    while not play.made or len(play.real.running) or len(play.real.waiting):
        before = play.free()
        held, made = play.step()
        if made.preempted or not play.real.refused or held[0][1] % 4 == 1 or play.finished:
            continue                                   # request 0 took a block, or blocks came free
        assert play.free() == before
        refused += 1 in play.real.host and 0 < len(before) < play.real.host.used
    assert refused and not play.real.host.used


# ---------------------------------------------------------------------- against the naive scheduler
@st.composite
def small_traces(draw):
    """Requests of every kind that begin alike, in a pool that the largest of them just fits."""
    size = draw(st.sampled_from([4, 3, 2, 1]))
    one = st.tuples(st.integers(1, 4 * size), st.integers(1, 5 * size), st.integers(0, 6), st.sampled_from([1, 2, 3, 4]),
                    st.booleans(), st.lists(st.integers(0, 1), max_size=4))
    rows = sorted(draw(st.lists(one, min_size=2, max_size=6)), key=lambda row: row[2])
    sequences, beams = [row[3] for row in rows], [row[4] for row in rows]
    trace = several([row[:3] for row in rows], [1 if b else n for n, b in zip(sequences, beams, strict=True)],
                    [n if b else 1 for n, b in zip(sequences, beams, strict=True)], content=[row[5] for row in rows],
                    span=size * draw(st.integers(1, 2)))
    most = max((p // size) + n * (-(-(p + o - 1) // size) - p // size) for p, o, _, n, _, _ in rows)
    seqs = draw(st.one_of(st.none(), st.integers(max(sequences), max(sequences) + 4)))
    tokens = draw(st.one_of(st.none(), *[st.integers(max(seqs or 1, 2), (seqs or 1) + 2 * size)] * 3))
    chunked = tokens is None or draw(st.sampled_from([True, True, True, False]))
    longest = int((trace.prompt_tokens + trace.output_tokens).max())
    config = config_of(
        1 + most + draw(st.integers(0, 3 + size)), size, longest, max_num_seqs=seqs,
        max_num_batched_tokens=tokens if chunked else max(tokens, longest), enable_chunked_prefill=chunked,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 2, 5])), reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.2])), exempt_lone_prefill=draw(st.booleans()),
        swap_blocks=draw(st.one_of(st.none(), st.integers(0, 3 * most))), beam_seed=draw(st.integers(0, 3)),
        beam_turnover=draw(st.sampled_from([1.0, 1.0, 0.5, 0.1])),
        split_freed=draw(st.booleans()), batching=draw(st.sampled_from(["continuous", "continuous", "static"])))
    return trace, config


def naive_of(trace, config, caching):
    ids, size = trace.content, config.block_size

    def content(request, place):
        own = ids.ids[ids.starts[request]:ids.starts[request + 1]].tolist()
        stop = (place + 1) * size
        if stop <= min(len(own) * ids.span_tokens, int(trace.prompt_tokens[request])):
            return "shared", tuple(own[: (stop - 1) // ids.span_tokens + 1]), place
        return "own", request, place

    requests = list(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(),
                        np.maximum(trace.samples, trace.beam_width).tolist(), (trace.beam_width > 1).tolist(), strict=True))
    return NaiveScheduler(requests, content, config.num_blocks, size, caching, config.split_freed, config.scheduler)


def same_state(real, naive):
    allocator, batch = real.allocator, real.running
    assert list(real.waiting) == naive.waiting
    assert list(zip(batch.request.tolist(), batch.computed.tolist(), (batch.computed < batch.target).tolist(), strict=True)) \
        == [(s.request, s.computed, s.computed < s.target) for s in naive.running]
    tables = [allocator.table(handle).tolist() for handle in batch.handle.tolist()]
    assert tables == [naive.memory.live[s.name].table for s in naive.running]
    assert allocator.pool.free_queue().tolist() == naive.memory.pool.queue
    assert allocator.pool.ref.tolist() == naive.memory.pool.ref
    assert (real.computed, allocator.copies) == (sum(s.computed for s in naive.running), naive.memory.copies)
    assert (0 if real.host is None else real.host.used) == naive.host_used()
    assert (0 if real.groups is None else real.groups.promised) == naive.promised()


@settings(max_examples=300 * LONG)
@given(small_traces(), st.booleans())
def test_step_by_step_as_the_naive_scheduler(made, caching):
    trace, config = made
    demand = Demand(trace, config.max_model_len)
    allocator = ALLOCATORS["paged-prefix" if caching else "paged"](demand, config)
    real = SCHEDULERS[config.scheduler.batching](demand, allocator, config.scheduler, config.num_blocks, config.block_size)
    naive = naive_of(trace, config, caching)
    assert not allocator.impossible().any()
    done, step = 0, 0
    while done < len(trace):
        assert step < 3000, "no progress"
        for request in (trace.arrival_us == step).nonzero()[0].tolist():
            real.add(request)
            naive.add(request)
        made = real.schedule()
        naive.schedule()
        assert [request for request, _ in made.preempted] == naive.preempted
        assert [entry[:4] for entry in made.admitted] == naive.admitted and made.swapped_in == naive.swapped_in
        assert (real.refused is not None) == naive.refused
        same_state(real, naive)
        assert tuple(allocator.counts(real.computed, real.refused)) == naive.memory.parts(naive.refused)
        assert allocator.logical() == sum(len(s.table) for s in naive.memory.live.values()) * config.block_size
        finished = real.update()
        assert finished == naive.update()
        same_state(real, naive)
        done += len(finished)
        step += 1
    assert real.preemptions == naive.preemptions and allocator.pool.free == config.num_blocks - 1


@settings(max_examples=150 * LONG)
@given(small_traces(), st.sampled_from(list(ALLOCATORS)), st.sampled_from(["first-fit", "buddy"]), st.sampled_from([2, 5, 1024]))
def test_jumping_changes_nothing(made, allocator, placement, longest_jump):
    trace, config = made
    if allocator.startswith("contiguous") or allocator in ("paged-reserve", "vattention"):     # room for a few of the largest
        config = replace(config, num_blocks=config.num_blocks * (2 if allocator == "vattention" else 4), placement=placement)
    jumped, stepped = (outcome(trace, replace(config, longest_jump=n), allocator) for n in (longest_jump, 1))
    assert jumped == stepped


@pytest.mark.parametrize("jump", [1, 1024])
def test_by_priority_a_small_arrival_passes_a_head_without_places(jump):
    # Places for two. r0 runs from 0 to 10; r1 wants two places and waits; r2 comes at 3, more urgent, and needs one.
    trace = replace(several([(4, 10, 0), (4, 2, 0), (4, 1, 3)], samples=[1, 2, 1]), priority=np.array([1, 1, 0]))
    run, _ = states(trace, config_of(100, 4, 20, max_num_seqs=2, policy="priority", longest_jump=jump), "paged")
    assert run.log.finished_us.tolist() == [10, 12, 4]


# ---------------------------------------------------------------------- on the command line
TIGHT = ("--num-gpu-blocks-override", 50, "--block-size", 4, "--step-time", "constant:10ms", "--max-model-len", 40)


@pytest.fixture
def crowd(tmp_path):
    return timed(tmp_path, [(0.01 * i, 10 + 3 * (i % 5), 5 + i % 7) for i in range(30)])


@pytest.mark.parametrize(("flags", "samples", "beam_width"), [
    (("--samples", 3), 3, None), (("-n", 2), 2, None), (("--beam-width", 3), None, 3), ((), None, None)])
def test_compare_with_several_sequences(capsys, crowd, flags, samples, beam_width):
    found = document(capsys, crowd, *TIGHT, *flags)
    config = found["config"]
    assert (config["samples"], config["beam_width"]) == (samples, beam_width)
    assert (config["preemption_mode"], config["swap_blocks"]) == ("recompute", None)
    assert all(check["ok"] for check in found["crosscheck"])
    for s in found["scenarios"]:
        assert s["requests"]["completed"] == 30
        if s["sharing"]:
            assert (s["sharing"]["copies"] > 0) is bool(flags)
            assert s["sharing"]["saved_share"] > 0 or not flags
    if beam_width:
        for more in (("--seed", 1), ("--beam-turnover", 0.5)):
            other = document(capsys, crowd, *TIGHT, *flags, *more)
            assert [s["sharing"] for s in other["scenarios"]] != [s["sharing"] for s in found["scenarios"]]
        assert (config["beam_turnover"], other["config"]["beam_turnover"]) == (1.0, 0.5)


def test_compare_with_swap(capsys, crowd):
    mode = ("--preemption-mode", "swap")
    found = document(capsys, crowd, *TIGHT, "-n", 3, *mode, "--swap-blocks", 50)
    assert (found["config"]["preemption_mode"], found["config"]["swap_blocks"]) == ("swap", 50)
    assert all(s["requests"]["completed"] == 30 for s in found["scenarios"])
    recomputed = document(capsys, crowd, *TIGHT, "-n", 3)
    nowhere = document(capsys, crowd, *TIGHT, "-n", 3, *mode, "--swap-blocks", 0)
    assert nowhere["scenarios"] == recomputed["scenarios"]
    paged = [next(s for s in d["scenarios"] if s["allocator"] == "paged") for d in (found, recomputed)]
    assert paged[1]["requests"]["preemptions"] > 0 and paged[0]["steps"] != paged[1]["steps"]
    # 1 GiB at 819,200 bytes a token, 4 tokens a block: 2^30 // 3,276,800 = 327
    sized = document(capsys, crowd, *TIGHT, *mode, "--swap-space", 1, "--model", "meta-llama/Llama-2-13b", "--gpu", "A100-80GB")
    assert sized["config"]["swap_blocks"] == 327


@pytest.mark.parametrize(("flags", "said"), [
    (("--samples", 0), "--samples/-n: at least 1 is wanted, not 0"),
    (("-n", -2), "--samples/-n: at least 1 is wanted, not -2"),
    (("-n", "two"), "--samples/-n: a whole number is wanted, not 'two'"),
    (("--beam-width", 0), "--beam-width: at least 1 is wanted, not 0"),
    (("--beam-width", 1.5), "--beam-width: a whole number is wanted, not '1.5'"),
    (("--beam-width", 2, "-n", 2), "not allowed with argument"),
    (("--beam-turnover", 0.5), "--beam-turnover is for beam searches, and there is none"),
    (("-n", 2, "--beam-turnover", 0.5), "--beam-turnover is for beam searches, and there is none"),
    (("--beam-width", 2, "--beam-turnover", 0), "--beam-turnover: a number above 0 up to 1 is wanted, not '0'"),
    (("--beam-width", 2, "--beam-turnover", 1.5), "--beam-turnover: a number above 0 up to 1 is wanted, not '1.5'"),
    (("-n", 2, "--async-scheduling"), "several sequences a request and asynchronous scheduling do not go together"),
    (("--preemption-mode", "drop"), "invalid choice: 'drop'"),
    (("--preemption-mode", "swap"), "--swap-blocks is wanted"),
    (("--preemption-mode", "swap", "--swap-blocks", -1), "--swap-blocks: at least 0 is wanted, not -1"),
    (("--preemption-mode", "swap", "--swap-blocks", "x"), "--swap-blocks: a whole number is wanted, not 'x'"),
    (("--preemption-mode", "swap", "--swap-space", 0), "--swap-space: a number above 0 is wanted, not '0'"),
    (("--preemption-mode", "swap", "--swap-space", "inf"), "--swap-space: a number above 0 is wanted, not 'inf'"),
    (("--preemption-mode", "swap", "--swap-blocks", 9, "--async-scheduling"),
     "preemption by swap and asynchronous scheduling do not go together"),
])
def test_what_cannot_be_is_one_line(capsys, crowd, flags, said):
    found = run(capsys, "compare", crowd, *TIGHT, *flags)
    assert found.status == 2 and found.out == ""
    assert found.err.count("\n") == 1 and said in found.err
