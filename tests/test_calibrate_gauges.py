"""A server's own gauges, and a client with a limit: by hand, against a journal of every step, made at once and one by one."""

from dataclasses import replace

import numpy as np
import pytest
from served import Journal, requests, serve, server
from small import config_of, trace_of

from sim import gauges
from sim.arrivals import InFlight
from sim.engine import Engine
from sim.gauges import Recent, RecentHits, simulate_gauges
from workloads.request import ContentIds, Trace


def shared_requests(n, seed, rate):
    """Requests of which half begin with one of three prefixes of 20 blocks."""
    trace = requests(n, seed, rate)
    rng = np.random.default_rng(seed + 100)
    rows, starts = [], [0]
    for row, tokens in enumerate(trace.prompt_tokens.tolist()):
        own = 10_000 * (row + 1) + np.arange(-(-tokens // 16))
        if rng.random() < 0.5:
            own[: min(20, len(own))] = 1000 * int(rng.integers(1, 4)) + np.arange(min(20, len(own)))
        rows.append(own)
        starts.append(starts[-1] + len(own))
    return replace(trace, content=ContentIds(np.concatenate(rows), np.array(starts), 16))


# ---------------------------------------------------------------------- gauges
def test_by_hand():
    """Block 4, one microsecond a step. r0: 5 + 3 tokens at 0, r1: 6 + 1 at 0, r2: 9 + 2 at 1: it waits for the step's end."""
    trace = trace_of([(5, 3), (6, 1), (9, 2, 1)])
    _, table = simulate_gauges(trace, config_of(8, 4, 16), "paged", np.arange(6))
    columns = table[:, [gauges.RUNNING, gauges.WAITING, gauges.USED, gauges.PROMPT, gauges.GENERATED]].tolist()
    assert columns == [
        [0, 0, 0, 0, 0],           # the first step is under way
        [1, 0, 2, 11, 2],          # r0 and r1 have their first token, and r1 has left; r2 came at this instant
        [2, 0, 5, 20, 4],          # r0's second, r2's first: 2 + 3 blocks
        [0, 0, 0, 20, 6],          # r0's third, r2's second: both have left
        [0, 0, 0, 20, 6], [0, 0, 0, 20, 6]]


def test_a_request_that_arrives_during_a_step_waits_from_the_end_of_the_next_one_on():
    trace = trace_of([(4, 9), (4, 3, 2)])
    config = config_of(8, 4, 16, max_num_seqs=1)
    _, table = simulate_gauges(trace, config, "paged", np.arange(5))
    assert table[:, gauges.WAITING].tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("allocator", ["paged", "paged-prefix"])
@pytest.mark.parametrize(("blocks", "seqs"), [(400, 64), (3000, 1024), (3000, 6)])
def test_at_once_is_one_by_one(blocks, seqs, allocator, asynchronous):
    trace = shared_requests(60, blocks, 12.0)
    config = server(blocks)
    config = replace(config, scheduler=replace(config.scheduler, max_num_seqs=seqs, async_scheduling=asynchronous),
                     max_model_len=2048)
    instants = np.append(np.arange(0, 30_000_000, 41_003), 10**12)
    run, slow = simulate_gauges(trace, config, allocator, instants)
    _, fast = simulate_gauges(trace, replace(config, longest_jump=1024), allocator, instants)
    assert np.array_equal(slow, fast)
    assert slow[-1, gauges.GENERATED] == run.demand.output.sum() and slow[-1, gauges.PROMPT] == run.demand.prompt.sum()
    assert slow[-1, gauges.PREEMPTIONS] == run.preemptions
    assert slow[:, gauges.WAITING].max() > (10 if seqs == 6 else -1)
    if blocks == 400:
        assert run.preemptions > 0


@pytest.mark.parametrize("seed", range(3))
def test_as_a_journal_of_every_step_says(seed):
    """Kept in full by a test that looks at reference counts and counts tokens one by one, without preemption."""
    trace, config, journal = shared_requests(80, seed, 20.0), server(), Journal()
    run, _, _ = serve(trace, config, observers=[journal])
    assert not run.preemptions
    instants = np.random.default_rng(seed).integers(0, int(run.log.finished_us.max()) + 1000, 300)
    instants.sort()
    _, table = simulate_gauges(trace, replace(config, longest_jump=1024), "paged-prefix", instants)
    columns = [gauges.RUNNING, gauges.WAITING, gauges.USED, gauges.PROMPT, gauges.COMPUTED, gauges.GENERATED, gauges.QUERIES,
               gauges.HITS]
    assert table[:, columns].tolist() == [list(journal.at(int(time))[1:]) for time in instants]
    assert table[-1, gauges.HITS] > 0


def test_the_window_is_the_last_thousand_requests_by_whole_steps():
    recent = RecentHits()
    recent.add(Recent(600, 6000, 6000))
    recent.add(Recent(400, 4000, 0))
    assert (recent.queries, recent.hits) == (10_000, 6000)
    recent.add(Recent(1, 10, 10))                      # 1,001: the first step leaves as a whole
    assert (recent.queries, recent.hits) == (4010, 10)
    recent.add(Recent(2000, 20_000, 1))                # one step alone may hold more
    assert (recent.queries, recent.hits) == (20_000, 1)


def test_a_resumed_request_has_what_it_generated():
    """Two sequences of 8 + 12 tokens in 6 usable blocks of 4: one is preempted; generated tokens never go back."""
    trace = trace_of([(8, 12), (8, 12)])
    run, table = simulate_gauges(trace, config_of(7, 4, 24, max_num_seqs=2, max_num_batched_tokens=3), "paged", np.arange(90))
    generated = table[:, gauges.GENERATED]                                   # the recompute takes several steps
    assert run.preemptions == 1 and np.all(np.diff(generated) >= 0) and generated[-1] == 24
    assert table[-1, gauges.PREEMPTIONS] == 1 and table[-1, gauges.PROMPT] == 16


def test_tokens_on_their_way_have_not_come():
    """Asynchronous scheduling: one request alone gets its tokens at the same times, though two steps are under way."""
    trace = trace_of([(4, 6)])
    columns = [simulate_gauges(trace, config_of(8, 4, 16, async_scheduling=ahead), "paged", np.arange(9))[1][:, gauges.GENERATED]
               for ahead in (False, True)]
    assert columns[0].tolist() == columns[1].tolist() == [0, 1, 2, 3, 4, 5, 6, 6, 6]


def test_only_block_pools_and_one_sequence_a_request():
    trace = trace_of([(4, 3)])
    with pytest.raises(ValueError, match="block pool"):
        simulate_gauges(trace, config_of(8, 4, 16), "contiguous-max", np.arange(3))
    with pytest.raises(ValueError, match="one sequence"):
        simulate_gauges(replace(trace, samples=np.array([2])), config_of(8, 4, 16), "paged", np.arange(3))


# ---------------------------------------------------------------------- at most so many in flight
def naive_places(scheduled, ends_of, most):
    """Each request goes when its time has come and one of the places is free, in order."""
    free, starts = [0] * most, []
    for row, time in enumerate(scheduled):
        place = min(range(most), key=lambda i: free[i])
        starts.append(max(time, free[place]))
        free[place] = ends_of[row]
    return starts


@pytest.mark.parametrize("most", [1, 3, 8, 100])
@pytest.mark.parametrize("rate", [4.0, 1e6])
def test_requests_go_when_a_place_is_free(most, rate):
    trace = requests(60, 5, rate)
    config = server(most_in_flight=most)
    run = Engine(trace, config, "paged").run()
    assert run.arrival_us.tolist() == naive_places(trace.arrival_us.tolist(), run.log.finished_us.tolist(), most)
    assert run.ledger.peak_running <= most
    fast = Engine(trace, replace(config, longest_jump=1024), "paged").run()
    assert np.array_equal(fast.log.finished_us, run.log.finished_us) and np.array_equal(fast.arrival_us, run.arrival_us)


def test_no_limit_that_bites_is_no_limit():
    trace = requests(40, 1, 5.0)
    free, limited = (Engine(trace, server(most_in_flight=most), "paged").run() for most in (None, 40))
    assert np.array_equal(free.log.finished_us, limited.log.finished_us) and np.array_equal(limited.arrival_us, trace.arrival_us)


def test_who_is_rejected_takes_no_place():
    trace = trace_of([(4, 3), (90, 3), (4, 3)])        # the second is longer than max_model_len
    run = Engine(trace, config_of(8, 4, 16, most_in_flight=1), "paged").run()
    assert run.log.finished_us.tolist() == [3, -1, 6] and run.arrival_us.tolist() == [0, 0, 3]


def test_a_closed_loop_and_a_limit_do_not_go_together():
    loop = Trace("loop", np.array([4, 4]), np.array([2, 2]), np.array([0, 0]), session=np.array([1, 1]),
                 think_us=np.array([-1, 5]))
    with pytest.raises(ValueError, match="one of them"):
        InFlight(loop, np.ones(2, bool), 1)
    with pytest.raises(ValueError, match="most_in_flight must be at least 1"):
        config_of(8, 4, 16, most_in_flight=0)
