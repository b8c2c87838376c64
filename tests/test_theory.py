"""Queueing theory: Little's law to the last microsecond in every queue, and closed forms within intervals over many seeds.

A step lasts ``D`` microseconds, and arrivals are Poisson: at each step boundary a Poisson number of them, or at any time. Nothing
is then approximate but what is drawn. A request of P prompt and O output tokens runs O steps, with P + j tokens in the j-th:

    M/G/infinity   room for all    running ~ Poisson(a E[O]); tokens a E[P O + O (O - 1) / 2], blocks a E[sum ceil((P + j) / B)]
    M/G/1          one at a time   Pollaczek and Khinchine: a step begins when the one before ends, so there is no correction
    M/D/c          c, O = S        Crommelin: N(t + S) = (N(t) - c)+ + Poisson(a S), at step boundaries as at any time
    M/Geo/c        O geometric     N(t + 1) = N(t) - Binomial(min(N(t), c), p) + Poisson(a); for short steps Erlang's C

with ``a`` arrivals a step. Where a sample path has a closed form (what a request adds up; when each is admitted, by Lindley and
by Kiefer and Wolfowitz) runs are held against it with ``==``. A mean over ``SEEDS`` seeds lies outside its 99.9 % interval once
in 1,000 times: of 35 comparisons one would be wrong by chance with a probability under 4 %. The seeds are fixed, and none is.
The closed forms are those of `queueing`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from queueing import admissions, chi_square_tail, constant, erlang_c, geometric, in_line, memoryless
from scenarios import scenarios
from small import LONG, config_of

from experiments.whatif.statistics import estimate
from sim.engine import Engine
from sim.levels import level_of
from sim.request_log import NEVER
from sim.stays import StayLog, running_level, waiting_level
from sim.step_time import ConstantStepTime
from sim.timeline import Timeline
from workloads.request import Trace

D = 10_000
SEEDS = 30
BLOCK = 16
CONFIDENCE = 0.999


# ---------------------------------------------------------------------- Little's law, exactly
@settings(max_examples=80 * LONG, suppress_health_check=list(HealthCheck))
@given(scenarios())
def test_little_in_every_queue(made):
    """The integral of a number is the sum of the times: waiting, running, both, of a server, a fleet, a client; and tokens."""
    s = made.but(longest_jump=1, allocator="paged" if made.allocator == "paged-prefix" else made.allocator, warm=None,
                 host_memory=None, trace={"samples": None, "beam_width": None})
    n = s.config.data_parallel_size
    timelines, logs = [Timeline(most=1 << 30) for _ in range(n)], [StayLog() for _ in range(n)]
    run = Engine(s.trace, s.config, s.allocator, timelines, lambda number: [logs[number]]).run()
    end = run.window_us[0] + run.ledger.total.time_us if not s.config.saturate else int(run.ledger.total.time_us)
    in_queues = in_service = 0
    for number, (own, timeline, log) in enumerate(zip(run.replicas or (run,), timelines, logs, strict=True)):
        rows = np.flatnonzero(run.replica == number) if run.replicas else np.flatnonzero(run.verdict == 0)
        arrival, left = run.arrival_us[rows], run.log.finished_us[rows]
        here, running = int((left - arrival).sum()), int(run.log.residence_us[rows].sum())
        waiting = queued(timeline, arrival, end)
        assert waiting == here - running == waiting_level(log.stays(), arrival, left).integral(0, end)
        assert own.ledger.total.sequence_us == running == running_level(log.stays()).integral(0, end)
        assert own.ledger.total.parts[0] == sum(run.log.token_us[row] for row in rows)
        in_queues, in_service = in_queues + waiting, in_service + running
    served = run.log.finished_us != NEVER
    assert in_queues + in_service == int((run.log.finished_us - run.arrival_us)[served].sum())
    assert run.ledger.total.sequence_us == in_service
    in_flight = level_of(np.concatenate((run.arrival_us[served], run.log.finished_us[served])), np.repeat([1, -1], served.sum()))
    assert in_flight.integral(0, end) == in_queues + in_service
    if s.config.most_in_flight is not None:
        assert in_flight.peak(0, end) <= s.config.most_in_flight


def queued(timeline, arrival_us, end_us):
    """The integral of the scheduler's own queue, as sampled in each step; who comes during a step is there from then on."""
    rows = timeline.columns()
    starts = rows["time_us"]
    if not len(starts):
        return 0
    in_steps = int(rows["waiting"] @ np.diff(np.append(starts, end_us)))
    looked_at = np.append(starts, end_us)[np.searchsorted(starts, arrival_us)]
    return in_steps + int((looked_at - arrival_us).sum())


# ---------------------------------------------------------------------- what is drawn
def on_boundaries(rng, a, steps):
    """Poisson arrivals, ``a`` a step, all at boundaries."""
    return np.repeat(np.arange(steps), rng.poisson(a, steps)) * D


def at_any_time(rng, a, steps):
    """The same, anywhere: the times of a Poisson number are uniform."""
    return np.sort(rng.integers(0, steps * D, rng.poisson(a * steps)))


def served(arrival_us, prompt, output, allocator="paged", timeline=None, **changes):
    """The facts and the stays."""
    changes = {"max_num_seqs": None, "max_num_batched_tokens": None, "placement": "first-fit"} | changes
    trace, log = Trace("drawn", prompt, output, arrival_us=arrival_us), StayLog()
    run = Engine(trace, config_of(6000, BLOCK, 1000, step_time=ConstantStepTime(D), **changes), allocator, timeline, [log]).run()
    assert not run.preemptions and not run.verdict.any()
    return run, log.stays()


def agrees(values, theory, within):
    """Whether the theory lies in the interval of the seeds' means, and that interval is a share ``within`` of it, or less."""
    made = estimate(values, CONFIDENCE)
    assert made.half < within * theory, (made.half, theory)
    assert made.low <= theory <= made.high, (made.low, theory, made.high)


# ---------------------------------------------------------------------- room for all: M/G/infinity
OUTPUTS = {"geometric": geometric(160, 16), "uniform": np.full(31, 1 / 31), "two lengths": np.eye(60)[[3, 59]].mean(axis=0)}
PROMPTS = np.full(40, 1 / 40)                          # 1 ... 40, alike
A = 0.9                                                # arrivals a step
HELD = {                                               # slots that a request of P and O holds, steps added up
    "paged": lambda p, o: BLOCK * sum(-(-(p + j) // BLOCK) for j in range(o)),
    "contiguous-oracle": lambda p, o: o * (p + o - 1),
    "contiguous-max": lambda p, o: o * 1000,
}
CASES = [("geometric", "paged"), ("uniform", "paged"), ("two lengths", "paged"), ("two lengths", "contiguous-oracle"),
         ("uniform", "contiguous-max")]


def expected(outputs, of):
    """The mean of a function of a prompt and an output length."""
    return sum(p * q * of(i, j) for i, p in enumerate(PROMPTS, 1) for j, q in enumerate(outputs, 1) if q)


@pytest.mark.parametrize(("lengths", "allocator"), CASES)
def test_occupancy_with_room_for_all(lengths, allocator):
    """Little's law for slots: arrivals a step times the slots that each adds up over its steps; and Poisson's running set."""
    outputs = OUTPUTS[lengths]
    longest, steps = len(outputs), 900
    running, tokens, held, apart = [], [], [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, len(lengths)])
        arrival = on_boundaries(rng, A, steps)
        n = len(arrival)
        prompt, output = rng.integers(1, 41, n), rng.choice(longest, n, p=outputs) + 1
        timeline = Timeline(most=1 << 30)
        run, _ = served(arrival, prompt, output, allocator, timeline, longest_jump=1)
        # exactly, of what was drawn: every request adds up its own
        assert run.ledger.total.parts[0] == D * int((prompt * output + output * (output - 1) // 2).sum())
        of = HELD[allocator]
        assert sum(run.ledger.total.parts[:3]) == D * sum(map(of, prompt.tolist(), output.tolist()))
        rows = on_grid(timeline, longest, steps)
        running.append(rows["running"].mean())
        tokens.append(rows["token_states"].mean())
        held.append((rows["token_states"] + rows["reserved"] + rows["internal"]).mean())
        apart += rows["running"][::longest].tolist()   # nobody is in two of them: they are independent
    mean = A * expected(outputs, lambda p, o: o)
    agrees(running, mean, 0.05)
    agrees(tokens, A * expected(outputs, lambda p, o: p * o + o * (o - 1) / 2), 0.06)
    agrees(held, A * expected(outputs, HELD[allocator]), 0.06)
    assert chi_square_tail(apart, mean) > 1 - CONFIDENCE


def on_grid(timeline, first, stop):
    """One row a step from step ``first`` up to ``stop``, zeros where nobody was there."""
    rows = timeline.columns()
    place = np.searchsorted(rows["time_us"], np.arange(first, stop) * D, "right") - 1
    return {name: column[place] for name, column in rows.items()}


def test_the_tail_of_chi_square():
    # Tables: 9.488 is exceeded with 5 % at 4 degrees of freedom. Poisson(2) in five cells, as expected but for one cell's excess.
    assert math.exp(-9.488 / 2) * (1 + 9.488 / 2) == pytest.approx(0.05, abs=1e-4)
    rng = np.random.default_rng(1)
    assert chi_square_tail(rng.poisson(9, 900), 9) > 0.01 > 1e-6 > chi_square_tail(rng.poisson(10, 900), 9)
    assert chi_square_tail(rng.binomial(18, 0.5, 900), 9) < 1e-6       # the mean alone is not enough


def test_arrivals_at_any_time_wait_half_a_step():
    """While somebody always runs, boundaries do not depend on arrivals: the wait for the next one is uniform."""
    waits, running = [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, 99])
        arrival = at_any_time(rng, 0.9, 900)
        n = len(arrival)
        run, stays = served(arrival, np.full(n, 5), np.full(n, 40))
        later = arrival >= 40 * D
        waits.append((run.log.admitted_us - arrival)[later].mean())
        running.append(running_level(stays).mean(41 * D, 900 * D))
    agrees(waits, D / 2, 0.02)
    agrees(running, 0.9 * 40, 0.03)


# ---------------------------------------------------------------------- one at a time: M/G/1
@pytest.mark.parametrize(("outputs", "load"), [([8], 0.75), ([2, 14], 0.5), ([1, 1, 1, 29], 0.4)])
def test_pollaczek_and_khinchine(outputs, load):
    """Wait = a E[O^2] / (2 (1 - load)) steps; whoever comes to an empty server, with probability 1 - load, waits for nothing."""
    lengths = np.array(outputs)
    a, steps, warm = load / lengths.mean(), 12_000, 1000
    waits, at_once, queue = [], [], []
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, len(outputs), int(100 * load)])
        arrival = at_any_time(rng, a, steps)
        n = len(arrival)
        output = rng.choice(lengths, n)
        run, stays = served(arrival, np.full(n, 4), output, max_num_seqs=1)
        assert run.log.admitted_us.tolist() == admissions(arrival, output * D, 1)
        later = arrival >= warm * D
        wait = (run.log.admitted_us - arrival)[later]
        waits.append(wait.mean() / D)
        at_once.append((wait == 0).mean())
        queue.append(waiting_level(stays, arrival, run.log.finished_us).mean(warm * D, steps * D))
    theory = a * (lengths**2).mean() / (2 * (1 - load))
    agrees(waits, theory, 0.15)
    agrees(queue, a * theory, 0.2)                    # Little's law
    agrees(at_once, 1 - load, 0.08)


# ---------------------------------------------------------------------- c at a time
def test_the_chains_have_the_known_limits():
    # M/D/1: load^2 / (2 (1 - load)); M/M/c as steps get short.
    assert in_line(constant(0.1, 7, 1), 1) == pytest.approx(0.7**2 / (2 * 0.3), rel=1e-9)
    exact = [in_line(memoryless(0.7 * 3 * p, p, 3), 3) for p in (0.1, 0.01, 0.001)]
    off = [abs(one / erlang_c(0.7, 3) - 1) for one in exact]
    assert off[0] > off[1] > off[2] and off[2] < 0.001
    assert erlang_c(0.7, 1) == pytest.approx(0.7**2 / 0.3)


@pytest.mark.parametrize(("c", "size", "load"), [(2, 6, 0.7), (4, 10, 0.75)])
def test_crommelin(c, size, load):
    a = load * c / size
    agrees(queues(a, c, lambda rng, n: np.full(n, size)), in_line(constant(a, size, c), c), 0.15)


@pytest.mark.parametrize(("c", "mean", "load"), [(3, 12, 0.7), (1, 5, 0.6)])
def test_memoryless_lengths(c, mean, load):
    a = load * c / mean
    theory = in_line(memoryless(a, 1 / mean, c), c)
    agrees(queues(a, c, lambda rng, n: rng.geometric(1 / mean, n)), theory, 0.25)
    assert theory == pytest.approx(erlang_c(load, c), rel=0.35)        # as far as steps of a length are from none


def queues(a, c, lengths, steps=8000, warm=1000):
    """Mean waiting requests of each seed, with arrivals at step boundaries and ``max_num_seqs`` of ``c``."""
    found = []
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, c, 5])
        arrival = on_boundaries(rng, a, steps)
        output = lengths(rng, len(arrival))
        run, stays = served(arrival, np.full(len(arrival), 4), output, max_num_seqs=c)
        assert run.log.admitted_us.tolist() == admissions(arrival, output * D, c)
        found.append(waiting_level(stays, arrival, run.log.finished_us).mean(warm * D, steps * D))
    return found
