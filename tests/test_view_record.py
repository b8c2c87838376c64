"""What the memory map records against the engine, whatever the options; changes that give the pool back; thinning."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from viewed import SMALL, SMALL_CONFIG, WAYS, applied, changed, lane_json, made, seen, state_of

from experiments.viewer.changes import list_change
from experiments.viewer.moments import KINDS, MomentLog, Watcher
from experiments.viewer.thin import kept, kept_together
from sim.engine import Engine
from sim.run import Observer

RUNS = [*((name, "plain") for name in ("contiguous-max", "contiguous-pow2", "contiguous-oracle", "paged", "paged-prefix",
                                       "paged-reserve", "token", "vattention")),
        *(("paged-prefix", way) for way in WAYS), ("contiguous-oracle", "first-fit"), ("paged-prefix", "tier"),
        ("paged-prefix", "samples"), ("paged", "beams"), ("contiguous-oracle", "samples"), ("vattention", "samples")]


@pytest.mark.parametrize(("allocator", "way"), RUNS)
def test_the_ledger_of_every_frame_is_the_engines_and_the_changes_give_the_pool_back(allocator, way):
    trace, config = made(way)
    view = seen(trace, config, allocator)
    at_last = {frame.time_us: frame.pool.parts for frame in view.frames}
    assert {time: at_last[time] for time in view.booked if time in at_last} == \
        {time: parts for time, parts in view.booked.items() if time in at_last} and len(view.booked) > 100
    assert all(sum(parts) == view.run.ledger.capacity for parts in at_last.values())
    lane = lane_json(view.log, view.run)
    states = list(applied(json.loads(json.dumps(lane))))
    keys = view.log.changes.keys
    assert states[1:] == [state_of(frame.pool, keys) for frame in view.frames]
    assert {kind for _, kind, _ in view.sentences} <= set(KINDS)
    assert all(text[-1] == "." and ".." not in text and "  " not in text for _, _, text in view.sentences)


@pytest.mark.parametrize(("allocator", "way"), RUNS)
def test_a_refusal_is_always_for_want_of_something(allocator, way):
    trace, config = made(way)
    for frame in seen(trace, config, allocator).frames:
        short = re.search(r"; ([\d,]+) free.*: (-?[\d,]+) too few\.$", frame.refused)
        hole = re.search(r"needs (?:\d+ times )?([\d,]+) contiguous slots?(?:, rounded up to ([\d,]+) .*)?; .*hole ([\d,]+): ",
                         frame.refused)
        if short:
            assert int(short[2].replace(",", "")) > 0, frame.refused
        elif hole and "times" not in frame.refused:
            assert int((hole[2] or hole[1]).replace(",", "")) > int(hole[3].replace(",", "")), frame.refused
        else:
            assert not frame.refused or "preempts" in frame.refused or "times" in frame.refused


def test_everything_happens_in_the_built_in_workload():
    happened = {name: {kind for _, kind, _ in seen(SMALL, SMALL_CONFIG, name).sentences}
                for name in ("contiguous-max", "contiguous-oracle", "paged", "paged-prefix")}
    assert all("refuse" in kinds for kinds in happened.values())
    assert "preempt" in happened["paged"] and {"preempt", "share", "evict"} <= happened["paged-prefix"]
    oracle = seen(SMALL, SMALL_CONFIG, "contiguous-oracle")
    assert any("external fragmentation" in frame.refused for frame in oracle.frames)


def test_arrivals_are_told_as_they_come_about():
    class Arrivals(Observer):
        def __init__(self):
            self.told = {}

        def arrived(self, now_us, request):
            self.told[request] = now_us

    log = Arrivals()
    told = Engine(SMALL, replace(SMALL_CONFIG, longest_jump=1024), "paged", observers=[log]).run().arrival_us
    assert [log.told[request] for request in range(len(SMALL))] == told.tolist()


# ---------------------------------------------------------------------- thinning
def moments_of(allocator):
    log = MomentLog()
    Engine(SMALL, SMALL_CONFIG, allocator, observers=[log]).run()
    return log.kinds


@pytest.mark.parametrize("allocator", ["contiguous-max", "paged-prefix"])
def test_a_thinned_run_shows_the_same_moments(allocator):
    whole, numbers = seen(SMALL, SMALL_CONFIG, allocator), kept(moments_of(allocator), 120)
    thin = seen(SMALL, SMALL_CONFIG, allocator, numbers)
    assert len(numbers) == len(thin.frames) == 120 and thin.log.moments == len(whole.frames)
    assert [frame.sentences for frame in thin.frames] == [whole.frames[i].sentences for i in numbers]
    assert [frame.refused for frame in thin.frames] == [whole.frames[i].refused for i in numbers]
    assert [frame.left_out for frame in thin.frames] == (np.diff([-1, *numbers]) - 1).tolist()
    states = list(applied(lane_json(thin.log, thin.run)))[1:]
    assert states == [state_of(whole.frames[i].pool, thin.log.changes.keys) for i in numbers]
    assert lane_json(thin.log, thin.run)["notes"] == [
        f"120 of {len(whole.frames):,} moments are on this page: those around refusals, preemptions and evictions before others"]
    assert lane_json(whole.log, whole.run)["notes"] == []


def test_the_interesting_stays():
    kinds = moments_of("paged-prefix")
    rare = [i for i, happened in enumerate(kinds) if happened & {"refuse", "preempt"}]
    numbers = set(kept(kinds, 250))
    assert set(rare) <= numbers and {0, len(kinds) - 1} <= numbers
    assert {i + 1 for i in rare if i + 1 < len(kinds)} <= numbers
    few = kept(kinds, 10)
    assert len(few) == 10 and few[-1] == len(kinds) - 1


@pytest.mark.parametrize("most", [1, 2, 3, 7, 50, 99])
def test_never_more_than_asked_for(most):
    kinds = [frozenset({KINDS[i % len(KINDS)]}) for i in range(100)]
    assert len(kept(kinds, most)) == most and kept(kinds, most)[-1] == 99 and kept(kinds, 100) == list(range(100))


def test_runs_on_one_clock_share_its_room():
    logs = [MomentLog() for _ in range(2)]
    for log, times in zip(logs, (range(100), range(50, 60)), strict=True):
        log.kinds, log.stops = [frozenset({"step"})] * len(times), [(time, 0, 0) for time in times]
    logs[1].kinds[5] = frozenset({"refuse"})
    assert kept_together(logs, 200) == [list(range(100)), list(range(10))]
    thin = kept_together(logs, 20)
    assert len(thin[0]) == 20 and {0, 5, 9} <= set(thin[1]) and {0, 50, 54, 55, 56, 59, 99} <= set(thin[0])


def test_what_must_stay_is_kept_before_refusals():
    log, other = MomentLog(), MomentLog()
    log.kinds, log.stops = [frozenset({"refuse"})] * 50, [(time, 0, 0) for time in range(50)]
    other.kinds, other.stops = [frozenset({"arrive"}), frozenset({"finish"})], [(7, 0, 0), (33, 0, 0)]
    assert kept_together([log, other], 10)[1] == [0, 1]


def test_steps_made_at_once_are_no_moments():
    with pytest.raises(ValueError, match="steps were made at once: moments want longest_jump=1"):
        Engine(SMALL, replace(SMALL_CONFIG, longest_jump=64), "paged", observers=[MomentLog()]).run()


def test_an_allocator_without_one_block_table_is_refused():
    with pytest.raises(ValueError, match="a Odd is not drawn"):
        Watcher().started(type("Odd", (), {})(), None)


def test_list_changes_are_whatever_it_takes():
    rng = np.random.default_rng(0)
    for _ in range(300):
        old, new = (rng.permutation(9)[: rng.integers(0, 9)] for _ in range(2))
        assert changed(old.tolist(), list_change(old, new)) == new.tolist()
    assert list_change(np.arange(100), np.append(np.arange(3, 100), [1, 0])) == [3, [], [], [1, 0]]
