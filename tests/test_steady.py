"""Warm-up rules against hand and brute force; rows of measures against the whole run's own numbers; what is said about them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, config_of, trace_of
from test_relations import workloads
from test_stays import served

from sim.cautions import quarters, still_grows, warnings
from sim.levels import Level
from sim.measures import measures
from sim.result import concurrency, scenario
from sim.steady import WarmUp, fixed_cut_us, mser5, parse_warmup
from sim.step_time import ConstantStepTime
from workloads.request import Trace

TIMES = ("queue", "ttft", "tpot", "e2e")


# ---------------------------------------------------------------------- MSER-5
def brute_mser5(series):
    """White's definition, batch by batch in fractions."""
    means = [Fraction(sum(series[i:i + 5]), 5) for i in range(0, len(series) - len(series) % 5, 5)]
    errors = []
    for cut in range(len(means) // 2 + 1):
        kept = means[cut:]
        if kept:
            mean = Fraction(sum(kept), len(kept))
            errors.append(sum((x - mean) ** 2 for x in kept) / len(kept) ** 2)
    if not errors:
        return None
    best = errors.index(min(errors))
    return None if best == len(means) // 2 else 5 * best


def batches(*means):
    return np.repeat(np.array(means, np.int64), 5)


def test_mser5_by_hand():
    # Batch means 6 2 1 2 1 2. Errors: cut 0: mean 14/6, squares 50 - 196/6 = 17 1/3, over 36 = 0.4815; cut 1: mean 8/5,
    # 14 - 64/5 = 1.2, over 25 = 0.048; cut 2: mean 6/4, 10 - 9 = 1, over 16 = 0.0625; cut 3: 9 - 25/3 = 2/3, over 9 = 0.074.
    assert mser5(batches(6, 2, 1, 2, 1, 2)) == 5


def test_what_is_inside_a_batch_does_not_matter_and_a_rest_is_left_out():
    series = np.concatenate((batches(6, 2, 1, 2, 1, 2) + np.tile([-2, -1, 0, 1, 2], 6), [900, 900, 900, 900]))
    assert mser5(series) == 5


def test_no_steady_state():
    # A ramp: the later the cut the less is left to differ, up to the edge of the half.
    assert mser5(batches(1, 2, 3, 4, 5, 6)) is None
    assert mser5(np.arange(100)) is None and mser5(np.arange(100)[::-1]) is None
    assert mser5(batches(1, 9)) is None and mser5(batches(7)) is None and mser5(np.array([1, 2, 3])) is None
    # Of three batches the half ends behind the first.
    assert mser5(batches(9, 1, 1)) is None and mser5(batches(9, 1, 1, 1)) == 5


def test_a_constant_series_is_steady_from_the_start():
    assert mser5(batches(4, 4)) == 0 and mser5(np.zeros(1000, np.int64)) == 0


def test_equal_errors_are_cut_as_early_as_possible():
    # 1 4 0 0 1 3: cut 0: 27 - 81/6 = 13.5, over 36; cut 2: 10 - 16/4 = 6, over 16: both 3/8. The others are above.
    assert mser5(batches(1, 4, 0, 0, 1, 3)) == 0


@settings(max_examples=500 * LONG)
@given(st.lists(st.integers(0, 6) | st.integers(0, 10**12), max_size=70))
def test_mser5_is_the_brute_force(series):
    assert mser5(np.array(series, np.int64)) == brute_mser5(series)


def test_mser5_finds_the_end_of_a_transient():
    noise = np.random.default_rng(3).integers(900, 1100, 2000)
    series = noise + np.maximum(0, 3000 - 10 * np.arange(2000))
    assert 250 <= mser5(series) <= 320 and mser5(series) == brute_mser5(series.tolist())


# ---------------------------------------------------------------------- rules
@pytest.mark.parametrize(("text", "rule"), [
    ("none", WarmUp()), ("mser5", WarmUp(mser=True)), ("300s", WarmUp(time_us=300_000_000)), ("0.5 s", WarmUp(time_us=500_000)),
    ("5min", WarmUp(time_us=300_000_000)), ("2h", WarmUp(time_us=7_200_000_000)), ("20ms", WarmUp(time_us=20_000)),
    ("10%", WarmUp(share=Fraction(1, 10))), ("0%", WarmUp()), ("33.3%", WarmUp(share=Fraction(333, 1000))),
])
def test_rules_by_name(text, rule):
    assert parse_warmup(text) == rule


@pytest.mark.parametrize("text", ["", "mser", "MSER5", "10", "-1s", "5 days", "1e3s", "nan%", "10%%", "s", "9" * 13 + "s", "٣s"])
def test_other_rules_are_refused(text):
    with pytest.raises(ValueError, match="the warm-up is mser5, none, a time such as 300s or 5min, or a share such as 10%, not "):
        parse_warmup(text)


def test_a_share_that_leaves_nothing():
    with pytest.raises(ValueError, match="a warm-up of 100% leaves nothing to measure"):
        parse_warmup("100%")


def test_cuts_are_moments():
    assert [fixed_cut_us(parse_warmup(t), 10, 51) for t in ("none", "0.015ms", "99.9%")] == [10, 25, 50]


# ---------------------------------------------------------------------- a row by hand
BY_HAND = [(4, 2, 0), (4, 1, 10), (4, 3, 14), (4, 1, 30)]


def slow(**changes):
    return config_of(9, 4, 8, step_time=ConstantStepTime(10), max_num_seqs=1, **changes)


def test_a_row_by_hand():
    # One at a time, 10 us a step: a runs 0-20, b (came at 10) 20-30, c (14) 30-60, d (30) 60-70.
    # From 10 on: b, c, d; the window is 10 to 30, 1 runs all the time; waiting 1 from 10 to 14, 2 from 14 to 20, 1 up to 30.
    run, stays = served(trace_of(BY_HAND), slow(), "paged")
    row = measures(run, stays, "0.01ms")
    assert (row["warmup_s"], row["warmup_requests"], row["window_s"], row["measured_requests"]) == (1e-5, 1, 2e-5, 3)
    assert [row[f"concurrency_{k}"] for k in ("mean", "p50", "p99", "peak")] == [1.0, 1, 1, 1]
    assert [row[f"waiting_{k}"] for k in ("mean", "p99", "peak")] == [(4 + 12 + 10) / 20, 2, 2]
    assert row["queue_mean_s"] == (10 + 16 + 30) / 3 / 1e6 and row["queue_p50_s"] == 16 / 1e6
    assert row["e2e_mean_s"] == (20 + 46 + 40) / 3 / 1e6 and row["ttft_mean_s"] == (20 + 26 + 40) / 3 / 1e6
    assert row["tpot_mean_s"] == 10 / 1e6
    # a ends at 20 and b at 30, inside the window
    assert (row["requests_per_s"], row["output_tokens_per_s"], row["total_tokens_per_s"]) == (2 / 2e-5, 3 / 2e-5, 11 / 2e-5)
    assert (row["completed"], row["steps"], row["makespan_s"], row["hit_rate"]) == (4, 7, 7e-5, None)
    # token states in steps of 10 us: 4 5 | 4 | 4 5 6 | 4; one or two blocks of 4: 4 8 4 4 8 8 4 of 32 slots
    assert row["token_states"] == 32 / (7 * 32) and row["kv_usage_mean"] == 40 / (7 * 32) and row["useful_of_allocated"] == 0.8


def test_who_ends_at_the_cut_ended_before_it():
    # From 20, where a ends, to 30, where b does.
    row = measures(*served(trace_of(BY_HAND), slow(), "paged"), "0.02ms")
    assert (row["window_s"], row["requests_per_s"], row["measured_requests"]) == (1e-5, 1 / 1e-5, 1)


def test_long_requests_of_the_warm_up_do_not_make_the_traffic_short():
    # The first runs 200 us, the later ones 10 each over 20 us.
    row = measures(*served(trace_of([(4, 20), (4, 1, 300), (4, 1, 320)]), config_of(9, 4, 40, step_time=ConstantStepTime(10)),
                           "paged"), "0.3ms")
    assert (row["window_s"], row["measured_requests"]) == (2e-5, 2)


def test_who_never_came_is_unfinished_and_not_measured():
    # a is stuck in a pool of two blocks, so its follower b does not come.
    trace = replace(trace_of([(4, 7), (4, 1)], session=[1, 1]), think_us=np.array([-1, 5]))
    row = measures(*served(trace, config_of(3, 4, 12, refuse_impossible=False), "paged"))
    assert (row["unfinished"], row["measured_requests"], row["warmup_requests"], row["e2e_mean_s"]) == (2, 1, 0, None)


NAMES = ["warmup_s", "warmup_requests", "window_s", "measured_requests", "whole_run", "concurrency_mean", "concurrency_p50",
         "concurrency_p99", "concurrency_peak", "waiting_mean", "waiting_p99", "waiting_peak",
         *[f"{t}_{k}_s" for t in TIMES for k in ("mean", "p50", "p90", "p95", "p99")],
         "requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "preemptions", "completed", "unfinished", "rejected",
         "truncated", "token_states", "reserved", "internal", "cached", "external", "remainder", "idle", "useful_of_allocated",
         "kv_usage_mean", "hit_rate", "evicted_blocks", "makespan_s", "steps"]


def test_the_names_of_a_row():
    run, stays = served(trace_of(BY_HAND), slow(), "paged-prefix")
    row = measures(run, stays)
    assert list(row) == NAMES and all(type(v) in (int, float) for v in row.values())


def test_mser_finds_no_cut_and_cuts_nothing():
    run, stays = served(trace_of(BY_HAND), slow(), "paged")
    assert measures(run, stays, "mser5") == measures(run, stays, "none")


def test_the_cut_of_mser():
    # Two bursts of five on an idle server, then one by one: the burst waits, later ones do not.
    rows = [(4, 1, 0)] * 5 + [(4, 1, 100 * i) for i in range(1, 41)]
    run, stays = served(trace_of(rows), slow(), "paged")
    row = measures(run, stays, "mser5")
    assert (row["warmup_requests"], row["warmup_s"], row["measured_requests"], row["queue_mean_s"]) == (5, 1e-4, 40, 0.0)


def test_nobody_served():
    run, stays = served(trace_of([(20, 3), (30, 1, 5)]), slow(), "paged")
    row = measures(run, stays, "50%")
    assert list(row) == NAMES and (row["rejected"], row["measured_requests"], row["window_s"]) == (2, 0, 0.0)
    assert row["queue_p99_s"] is None and row["idle"] == 1.0 and row["kv_usage_mean"] == 0.0 and row["concurrency_mean"] == 0.0
    assert warnings(run, stays, row) == ["nobody was served: there is nothing to measure"]


@pytest.mark.parametrize("rule", ["none", "mser5", "50%", "1s"])
@pytest.mark.parametrize("rows", [[(4, 3, 7)], [(4, 3)] * 4, [(4, 8), (4, 8, 7)]])
def test_too_short_a_traffic_is_measured_whole(rows, rule):
    # One request; four at once; two within 7 us that run longer: from the first arrival to the last end.
    run, stays = served(trace_of(rows), config_of(9, 4, 20), "paged")
    row = measures(run, stays, rule)
    assert (row["warmup_s"], row["measured_requests"], row["window_s"]) == (0.0, len(rows), run.ledger.total.time_us / 1e6)
    assert row["whole_run"] == 1
    assert {f"concurrency_{k}": v for k, v in concurrency(run.window).items()}.items() <= row.items()
    assert row["requests_per_s"] == scenario("x", run)["throughput"]["requests_per_s"]


def test_a_traffic_just_long_enough():
    # Both run 8 us; the second comes after 8 us: the window is these 8. A microsecond earlier it is the whole run.
    for gap, window in ((8, 8), (7, 15)):
        run, stays = served(trace_of([(4, 8), (4, 8, gap)]), config_of(9, 4, 20), "paged")
        assert (measures(run, stays)["window_s"], measures(run, stays)["whole_run"]) == (window / 1e6, int(window == 15))


def test_the_same_requests_are_cut_off_whoever_is_rejected():
    # The first and the last are too long for 8 tokens, not for 40: by the span of all arrivals the cut lies at 50 us either way.
    rows = [(9, 1, 0), (4, 1, 45), (4, 1, 60), (4, 1, 80), (9, 1, 100)]
    for longest, rejected, cut in ((8, 2, 1), (40, 0, 2)):
        run, stays = served(trace_of(rows), config_of(20, 4, longest), "paged")
        row = measures(run, stays, "50%")
        assert (row["rejected"], row["warmup_requests"], row["warmup_s"], row["window_s"]) == (rejected, cut, 5e-5, 5e-5)
        assert row["measured_requests"] == 5 - rejected - cut and row["whole_run"] == 0
        assert not [line for line in warnings(run, stays, row) if "whole run" in line]


def test_a_warm_up_longer_than_the_traffic_cuts_nothing():
    run, stays = served(trace_of(BY_HAND), slow(), "paged")
    row = measures(run, stays, "5min")
    assert (row["warmup_s"], row["measured_requests"], row["window_s"]) == (0.0, 4, 7e-5)


def test_a_closed_loop_goes_by_the_arrivals_that_came_about():
    # Two sessions of two turns, one at a time, 10 us a step, think time 5: a 0-20, b (0) 20-30; a2 comes at 25 and runs 30-40,
    # b2 comes at 35 and runs 40-60.
    trace = replace(trace_of([(4, 2), (4, 1), (4, 1), (4, 2)], session=[1, 2, 1, 2]), think_us=np.array([-1, -1, 5, 5]))
    run, stays = served(trace, slow(), "paged")
    assert run.arrival_us.tolist() == [0, 0, 25, 35]
    row = measures(run, stays, "0.02ms")
    # From 20 to 35 is 15 us, and the two run 10 and 20.
    assert (row["warmup_requests"], row["window_s"], row["measured_requests"], row["concurrency_mean"]) == (2, 15e-6, 2, 1.0)
    assert measures(run, stays)["window_s"] == 35e-6


def test_an_order_of_arrival_that_is_not_the_rows():
    # b's second turn (row 3) comes at 25, a's (row 2) at 145: the series of waits is by time.
    trace = replace(trace_of([(4, 2), (4, 1), (4, 1), (4, 2)], session=[1, 2, 1, 2]), think_us=np.array([-1, -1, 125, 5]))
    run, stays = served(trace, slow(), "paged")
    assert run.arrival_us.tolist() == [0, 0, 145, 35]
    assert measures(run, stays, "0.1ms")["measured_requests"] == 1 and measures(run, stays)["window_s"] == 145e-6


# ---------------------------------------------------------------------- against the whole run
@settings(max_examples=100 * LONG)
@given(workloads(), st.sampled_from(["none", "mser5", "40%", "0.02ms"]))
def test_rows_agree_with_the_scenario(made, rule):
    trace, config = made
    for name in ("paged-prefix", "contiguous-pow2"):
        run, stays = served(trace, config, name)
        row, whole = measures(run, stays, rule), scenario(name, run)
        assert list(row) == NAMES
        assert row["measured_requests"] + row["warmup_requests"] == int((run.verdict == 0).sum())
        if rule == "none" or not row["warmup_requests"]:
            assert all(row[f"{t}_{k}_s"] == v for t in TIMES for k, v in whole["latency_s"][t].items())
        assert all(row[part] == whole["memory"][part] for part in NAMES[NAMES.index("token_states"):][:8])
        assert all(row[k] == whole["requests"][k] for k in ("completed", "unfinished", "preemptions", "truncated"))
        if config.saturate:
            assert all(row[f"concurrency_{k}"] == v for k, v in whole["concurrency"].items()) and row["warmup_requests"] == 0
        said = warnings(run, stays, row)
        assert all("\n" not in line for line in said) and len(said) == len(set(said))


# ---------------------------------------------------------------------- what is said
def single_server(rate_per_s, seed, requests=2000):
    """A single server that takes 100 ms a request, with Poisson arrivals: M/D/1 but for steps of 10 ms."""
    gaps = np.random.default_rng(seed).exponential(1e6 / rate_per_s, requests).astype(np.int64)
    ones = np.ones(requests, np.int64)
    trace = Trace("M/D/1", 4 * ones, 10 * ones, arrival_us=np.cumsum(gaps) - gaps[0])
    return served(trace, config_of(9, 4, 16, step_time=ConstantStepTime(10_000), max_num_seqs=1), "paged")


def about(run, stays, rule="none"):
    return warnings(run, stays, measures(run, stays, rule))


@pytest.mark.parametrize("seed", range(8))
def test_a_stable_queue_does_not_grow(seed):
    said = about(*single_server(7, seed))
    assert not [line for line in said if "queue still grows" in line]


def test_an_overloaded_queue_grows_and_has_no_steady_state():
    # MSER-5 takes a lull for steadiness now and then; the queue's growth is seen in every one.
    said = [" ".join(about(*single_server(12, seed))) for seed in range(8)]
    assert all("the queue still grows at the end: " in line for line in said)
    assert sum("no steady state by MSER-5: times to first token" in line for line in said) >= 6


def test_the_mean_wait_is_that_of_the_formula():
    # Pollaczek and Khinchine: rho / (2 (1 - rho)) service times, at 70 % 1.1667 of 100 ms; a step that is on its way adds little.
    waits = [measures(*single_server(7, seed, 5000), "mser5")["queue_mean_s"] for seed in range(6)]
    assert 0.105 < np.mean(waits) < 0.13


def test_few_requests_and_a_short_window():
    run, stays = single_server(7, 0, requests=499)
    assert [line[:28] for line in about(run, stays) if "p99" in line] == ["499 requests measured: a p99"]
    run, stays = single_server(7, 0, requests=500)
    assert not [line for line in about(run, stays) if "p99" in line]
    assert [line[:28] for line in about(run, stays, "5%") if "p99" in line] != []


def test_a_short_window_is_named():
    # Three requests of 8 us in a window of 79 or 80.
    for last, short in ((79, True), (80, False)):
        run, stays = served(trace_of([(4, 8), (4, 8, 40), (4, 8, last)]), config_of(9, 4, 20), "paged")
        found = [line for line in about(run, stays) if "the window of" in line]
        assert bool(found) == short
    run, stays = served(trace_of([(4, 8), (4, 8, 40), (4, 8, 79)]), config_of(9, 4, 20), "paged")
    assert "the window of 7.9e-05 s is short: requests run 8e-06 s on average, and 10 times that is wanted" in about(run, stays)


def test_a_window_is_held_against_the_mean_residence():
    # 8, 8 and 14 us, 10 on average: 100 us will do.
    run, stays = served(trace_of([(4, 8), (4, 8, 40), (4, 14, 100)]), config_of(9, 4, 20), "paged")
    assert not [line for line in about(run, stays) if "the window of" in line]


def test_averages_over_the_whole_run_are_named():
    run, stays = served(trace_of([(4, 3)] * 4), config_of(9, 4, 20), "paged")
    assert about(run, stays)[0].startswith("all requests arrive at once: averages are over the whole run")
    run, stays = served(trace_of([(4, 8), (4, 8, 7)]), config_of(9, 4, 20), "paged")
    assert about(run, stays)[0].startswith("requests arrive over 7e-06 s, too short a time") and len(about(run, stays)) == 2
    run, stays = served(trace_of([(4, 3)] * 9), config_of(3, 4, 8, saturate=True), "paged")
    assert not [line for line in about(run, stays) if "whole run" in line or "grows" in line or "MSER" in line]


def test_growth_by_hand():
    # 100 requests: more than 2 x sqrt(50) = 14.14 from the second quarter to the last, without a dip in between.
    def level(*means):
        return Level(np.arange(4) * 10, np.array(means))
    assert quarters(level(1, 2, 3, 9), 0, 40) == [1, 2, 3, 9]
    assert still_grows(level(50, 0, 10, 15), 0, 40, 100) and not still_grows(level(0, 0, 10, 14), 0, 40, 100)
    assert not still_grows(level(0, 10, 10, 90), 0, 40, 100) and not still_grows(level(0, 0, 90, 90), 0, 40, 100)
