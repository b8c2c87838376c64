"""The memory map's recording: sentences and frames by hand, changes that give the pool back, thinning, and what is written."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_run import lengths, mooncake, run
from small import config_of, trace_of
from viewed import applied, changed, lane_json, seen, small, state_of

import experiments.view
from experiments.html.page import data_block
from experiments.viewer.changes import list_change
from experiments.viewer.document import LaneLog, document
from experiments.viewer.moments import KINDS, MomentLog, Watcher
from experiments.viewer.thin import kept
from experiments.viewer.wording import Names
from experiments.viewer.workload import MAX_MODEL_LEN, NUM_BLOCKS, small_workload
from sim.config import HostMemory, SimConfig
from sim.engine import Engine
from sim.run import Observer
from sim.step_time import ConstantStepTime

WORKED = [(5, 3), (6, 1)]                              # the worked example of the ledger: 20 slots, blocks of 4


# ---------------------------------------------------------------------- by hand
def test_the_ledgers_worked_example_frame_by_frame():
    view = small(WORKED, "paged", 6, max_model_len=8)
    assert view.sentences == [
        (0, "arrive", "r0 arrives: 5 prompt tokens, 3 tokens to generate; nobody else waits."),
        (0, "arrive", "r1 arrives: 6 prompt tokens, 1 token to generate; 1 waits already."),
        (0, "admit", "r0 admitted: takes blocks 1, 2; 5 tokens computed in this step."),
        (0, "admit", "r1 admitted: takes blocks 3, 4; 6 tokens computed in this step."),
        (1, "finish", "r1 has its last token and leaves: its 2 blocks are given back."),
        (1, "step", "A step begins: 1 sequence computes 1 token."),
        (2, "step", "A step begins: 1 sequence computes 1 token."),
        (3, "finish", "r0 has its last token and leaves: its 2 blocks are given back."),
    ]
    assert [frame.pool.parts for frame in view.frames] == [
        (0, 0, 0, 0, 0, 0, 20), (0, 0, 0, 0, 0, 0, 20), (11, 2, 3, 0, 0, 0, 4), (5, 2, 1, 0, 0, 0, 12), (6, 1, 1, 0, 0, 0, 12),
        (7, 0, 1, 0, 0, 0, 12), (0, 0, 0, 0, 0, 0, 20)]
    assert view.frames[2].pool.rows[1, 0].blocks == (3, 4) and view.frames[3].pool.queue.tolist() == [4, 3, 5]
    assert [frame.pool.waiting for frame in view.frames[:3]] == [(0,), (0, 1), ()]


def test_a_reservation_that_finds_too_little_is_refused_for_the_remainder():
    view = small([*WORKED, (5, 3)], "contiguous-max", 6, max_model_len=8)
    assert view.said("admit")[0] == "r0 admitted: reserves 8 slots in a row from address 0 on, of which it will fill 7; " \
                                    "5 tokens computed in this step."
    assert view.said("refuse") == ["r2 refused: needs 8 contiguous slots; 4 free, largest hole 4: too few in total (remainder)."]
    first = next(frame for frame in view.frames if frame.pool.rows)
    assert first.pool.parts == (11, 2, 3, 0, 0, 4, 0) and first.pool.holes == ((16, 4),)
    assert view.said("finish")[0] == "r1 has its last token and leaves: 8 slots at address 8 are free again, 2 of them were " \
                                     "empty."


def test_holes_that_do_not_lie_in_a_row_are_external_fragmentation():
    # 20 slots: a 4, b 8, c 4, d 4; a and c end at once, and 8 in a row are not there.
    view = small([(4, 1), (2, 7), (4, 1), (2, 3), (7, 2)], "contiguous-oracle", 6, placement="first-fit")
    assert view.said("refuse") == [
        "r4 refused: needs 8 contiguous slots; 0 free, largest hole 0: too few in total (remainder).",
        "r4 refused: needs 8 contiguous slots; 8 free, largest hole 4: external fragmentation."]
    second = next(frame for frame in view.frames if "external" in frame.refused)
    assert second.pool.holes == ((0, 4), (12, 4)) and second.pool.parts[4] == 8


def test_buddy_rounding_is_told():
    view = small([(5, 1), (9, 1)], "contiguous-oracle", 5)
    assert view.said("admit")[0].startswith("r0 admitted: reserves 5 slots in a row from address 0 on, rounded up to 8 by the "
                                            "buddy allocator, of which it will fill 5;")
    assert view.said("refuse") == ["r1 refused: needs 9 contiguous slots, rounded up to 16 by the buddy allocator; 8 free, "
                                   "largest hole 8: too few in total (remainder)."]


def test_a_preemption_says_what_becomes_of_the_blocks():
    view = small([(8, 6), (8, 6)], "paged", 6)         # 5 blocks: both take 2, then 1 is left for two that need one
    assert view.said("preempt") == ["r1 preempted, as no block is left for the others: its 2 blocks are given back; its 8 "
                                    "computed tokens will have to be computed again; it waits at the head of the queue."]
    assert view.said("grow")[0] == "r0 takes block 5."
    barred, short = view.said("refuse")[0], [frame.refused for frame in view.frames if "free" in frame.refused]
    assert barred == "r1 refused: nobody is admitted in a step that preempts."
    assert short[0] == "r1 refused: needs 3 new blocks; 2 free: 1 too few."
    assert view.said("admit")[2].startswith("r1 admitted again: takes blocks")


def test_a_block_taken_at_once_is_told():
    view = small([(8, 6), (8, 6)], "paged", 5)         # 4 blocks, none left when the first must grow
    assert "its 2 blocks are given back (1 is taken at once by r0)" in view.said("preempt")[0]


SHARED = [[1, 2, 3], [1, 2, 4]]


def test_what_is_shared_and_with_whom():
    view = small([(9, 4), (10, 4, 1)], "paged-prefix", 20, content=SHARED)
    assert view.said("share") == ["r1 finds 8 tokens of its prompt in the prefix cache: blocks 1, 2 shared with r0."]
    assert view.said("admit")[1] == "r1 admitted: takes block 4; 2 tokens computed in this step."
    assert view.said("finish")[0] == "r0 has its last token and leaves: its 3 blocks are given back (1 stay cached, 2 stay " \
                                     "with others that share them)."
    shared = next(frame for frame in view.frames if len(frame.pool.rows) == 2).pool
    assert shared.holders([1, 3]) == {1: [(0, 0), (1, 0)], 3: [(0, 0)]} and shared.parts[0] == 9 + 1 + 2


def test_cached_blocks_are_found_again_or_evicted():
    again = small([(9, 1), (9, 1, 5)], "paged-prefix", 20, content=[[1, 2, 3], [1, 2, 3]])
    assert again.said("share") == ["r1 finds 8 tokens of its prompt in the prefix cache: blocks 1, 2 held by nobody else."]
    gone = small([(8, 1), (20, 1, 5)], "paged-prefix", 6, content=[[1, 2], [5, 6, 7, 8, 9]])
    assert gone.said("evict") == ["2 cached blocks evicted to be used anew: 2 (written by r0, now held by r1), 1 (written by r0, "
                                  "now held by r1); their contents are no longer findable."]
    before = next(frame for frame in gone.frames if frame.time_us == 1)
    assert before.pool.parts[3] == 8 and before.pool.queue.tolist() == [3, 4, 5, 2, 1]


def test_its_own_prefix_in_the_free_queue_does_not_help():
    # 6 blocks. r0 leaves 3 cached; r1 takes 2 of the 3 others; r2 finds 2 of the cached and needs 4 more: 1 + 3 free.
    view = small([(12, 1), (7, 9, 2), (24, 1, 3)], "paged-prefix", 7, content=[[1, 2, 3], [8, 9], [1, 2, 4, 5, 6, 7]])
    assert view.said("refuse") == ["r2 refused: needs 4 new blocks, 2 free blocks of its own prefix to be kept; 4 free (3 of "
                                   "them cached): 2 too few."]


def test_the_watermark_is_told():
    view = small([(4, 5), (12, 1)], "paged", 6, watermark=0.4)
    assert view.said("refuse") == ["r1 refused: needs 3 new blocks, 2 blocks must stay free (watermark); 4 free: 1 too few."]


def test_samples_branch_and_copy():
    trace = replace(trace_of([(6, 3)]), samples=np.array([2]))
    view = seen(trace, config_of(9, 4, 32, longest_jump=1), "paged")
    assert view.said("fork", "copy") == [
        "r0 branches: 2 sequences hold the same blocks.",
        "r0 writes into block 2, which others hold too: it goes on in a copy, block 3 (copy-on-write)."]
    assert view.said("finish") == ["r0 has its last token and leaves: its 3 blocks are given back."]


def test_reservations_of_sequences_to_come_are_theirs():
    trace = replace(trace_of([(6, 3)]), samples=np.array([2]))
    view = seen(trace, config_of(9, 4, 32, longest_jump=1), "contiguous-oracle")
    first = next(frame for frame in view.frames if frame.pool.rows).pool
    assert {key: (row.computed, row.place) for key, row in first.rows.items()} == {(0, 0): (6, (0, 8, 8)), (0, 1): (0, (8, 8, 8))}
    assert "(and 1 reservation as large for its other sequences)" in view.said("admit")[0]


def test_swapped_requests_come_back():
    view = small([(8, 6), (8, 6)], "paged", 6, swap_blocks=8)
    assert "they are copied to host memory, from which it will go on; it waits" in view.said("preempt")[0]
    assert any("8 token states come back from host memory" in text for text in view.said("admit"))


# ---------------------------------------------------------------------- against the engine, whatever the options
SMALL = small_workload()
SMALL_CONFIG = SimConfig(NUM_BLOCKS, 16, MAX_MODEL_LEN, longest_jump=1, page_slots=48)
PLAIN = config_of(NUM_BLOCKS, 16, MAX_MODEL_LEN, longest_jump=1, step_time=ConstantStepTime(20_000))
WAYS = {
    "async": {"async_scheduling": True}, "priority": {"policy": "priority"}, "static": {"batching": "static"},
    "swap": {"swap_blocks": 50}, "watermark": {"watermark": 0.1}, "budget": {"max_num_batched_tokens": 40, "max_num_seqs": 40},
    "ungated": {"reserve_full_isl": False, "max_num_batched_tokens": 40, "max_num_seqs": 40},
}
RUNS = [*((name, "plain") for name in ("contiguous-max", "contiguous-pow2", "contiguous-oracle", "paged", "paged-prefix",
                                       "paged-reserve", "token", "vattention")),
        *(("paged-prefix", way) for way in WAYS), ("contiguous-oracle", "first-fit"), ("paged-prefix", "tier"),
        ("paged-prefix", "samples"), ("paged", "beams"), ("contiguous-oracle", "samples"), ("vattention", "samples")]


def made(allocator, way):
    trace, config = SMALL, SMALL_CONFIG
    if way in WAYS:
        config = replace(config, scheduler=replace(config.scheduler, **WAYS[way]))
    if way == "first-fit":
        config = replace(config, placement="first-fit")
    if way == "tier":
        config = replace(config, host_memory=HostMemory(40, 1000, 10**9))
    if way in ("samples", "beams"):
        trace = replace(trace, **{"samples" if way == "samples" else "beam_width": np.array([1, 2, 3, 1] * 10)})
    return trace, config


@pytest.mark.parametrize(("allocator", "way"), RUNS)
def test_the_ledger_of_every_frame_is_the_engines_and_the_changes_give_the_pool_back(allocator, way):
    trace, config = made(allocator, way)
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
    trace, config = made(allocator, way)
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


# ---------------------------------------------------------------------- the document and the command
def test_stops_are_common_and_in_the_order_of_what_happens():
    lanes = [(view.log, view.run) for view in (small(WORKED, name, 6, max_model_len=8) for name in ("paged", "contiguous-max"))]
    made = document(lanes, ["a", "b"])
    assert made["us"] == [0, 0, 0, 1, 1, 2, 3] and made["labels"] == {"0": "a", "1": "b"}
    assert [lane["at"] for lane in made["lanes"]] == [[0, 1, 2, 3, 4, 5, 6]] * 2
    assert made["lanes"][0]["names"] == ["r0", "r1"] and made["lanes"][1]["arena"]


def test_times_that_javascript_would_round_are_text():
    late = 2**53 + 1
    view = small([(5, 3), (6, 1, late)], "paged", 6, max_model_len=8)
    made = document([(view.log, view.run)], ["a", "b"])
    assert str(late) in made["us"] and late not in made["us"]
    assert str(late) in str(data_block("run", made))


def test_rejected_requests_are_named():
    view = small([(5, 3), (31, 2)], "paged", 6)
    assert lane_json(view.log, view.run)["notes"] == ["rejected at arrival (larger than pool): r1"]


@pytest.mark.parametrize("sized", [("--num-gpu-blocks-override", 97, "--max-model-len", 256),
                                   ("--num-gpu-blocks-override", 20_000, "--max-model-len", 256)], ids=["small", "large"])
def test_2000_events_are_under_3_megabytes(capsys, tmp_path, sized):
    recipe, trace, page = tmp_path / "recipe.toml", tmp_path / "trace.csv", tmp_path / "map.html"
    recipe.write_text('requests = 250\narrivals = "poisson:rate=16"\nprompt = "uniform:least=8,most=48"\n'
                      'output = "uniform:least=8,most=120"\nprefix = "system:tokens=48,prompts=2"\n')
    assert run(capsys, "trace", "synth", recipe, trace, "-q").status == 0
    assert run(capsys, "view", trace, *sized, "--html", page, "-q").status == 0
    lanes = document_of(page)["lanes"]
    assert page.stat().st_size < 3_000_000 and sum(len(lane["frames"]) for lane in lanes) == 2000
    assert all(lane["notes"][0].startswith("500 of ") for lane in lanes)


def document_of(page):
    return json.loads(re.search(r'id="run">(.*?)</script>', page.read_text(), re.S)[1])


def test_the_command_writes_one_page_that_is_the_same_again(capsys, tmp_path):
    page = tmp_path / "map.html"
    said = run(capsys, "view", "--html", page)
    assert said.status == 0 and said.out.startswith(f"wrote {page}: 0.") and "no trace, no --model" in said.err
    first = page.read_bytes()
    assert run(capsys, "view", "--html", page, "-q").err == ""
    again = page.read_bytes()
    assert first.replace(b" -q", b"") == again.replace(b" -q", b"")
    names = [lane["name"] for lane in document_of(page)["lanes"]]
    assert names == ["contiguous-max", "contiguous-oracle", "paged", "paged-prefix"]


def test_the_file_has_a_name_of_its_own(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "view", "--allocator", "paged", "-q", "--limit", 5).out.startswith("wrote memory-map.html: ")
    assert (tmp_path / "memory-map.html").exists()


def test_a_trace_of_ones_own_with_a_model_says_bytes(capsys, tmp_path):
    page = tmp_path / "map.html"
    trace = mooncake(tmp_path, [(0, 40, 5, [1, 2, 3]), (10, 40, 5, [1, 2, 4])])
    said = run(capsys, "view", trace, "--model", "Llama-3.1-8B", "--available-kv-gib", 1, "--max-model-len", 4096,
               "--html", page, "-q", "--allocator", "paged-prefix")
    assert said.status == 0
    [lane] = document_of(page)["lanes"]
    assert lane["fixed"][1] == "bytes: 8,176 slots × 131,072 bytes a token = 1,071,644,672 bytes = 1.00 GiB"


@pytest.mark.parametrize(("options", "named"), [
    (("--html", "-"), "--html -: "), (("--events", 3), "at least 10 is wanted"),
    (("--data-parallel-size", 2), "--data-parallel-size"),
    (("--allocator", "page"), "--allocator"), (("--warm-trace", "x.csv"), "--warm-trace is for a trace file"),
    (("--rate", 1e-12), "--rate 1e-12: "),
    (("--num-gpu-blocks-override", 3, "--max-model-len", 256), "fewer than one request"),
])
def test_what_cannot_be_is_one_line(capsys, tmp_path, options, named):
    said = run(capsys, "view", "--html", tmp_path / "map.html", *options)
    assert said.status == 2 and said.err.count("\n") == 1 and named in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_page_does_not_overwrite_its_trace(capsys, tmp_path):
    trace = lengths(tmp_path, [(20, 5)])
    said = run(capsys, "view", trace, "--html", trace)
    assert said.status == 2 and "--html would overwrite what is read" in said.err


def test_hostile_labels_are_data():
    labels = ["<script>alert(1)</script>", "</script>"]
    log = LaneLog("paged", Names(labels))
    facts = Engine(trace_of(WORKED), config_of(6, 4, 8, longest_jump=1), "paged", observers=[log]).run()
    assert str(data_block("run", document([(log, facts)], labels))).count("<") == 2


def commands():
    text = (Path(__file__).resolve().parents[1] / "docs" / "view.md").read_text(encoding="utf-8")
    return [line[2:] for line in text.splitlines() if line.startswith("$ pagedsim ")]


@pytest.mark.parametrize("command", commands())
def test_the_commands_of_the_page_run(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    lengths(tmp_path, [(20, 5), (30, 6)], "trace.csv")
    assert run(capsys, *shlex.split(command, comments=True)[1:]).out.startswith("wrote map.html: ")


def test_a_heavy_page_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(experiments.view, "HEAVY_BYTES", 1000)
    said = run(capsys, "view", "--html", tmp_path / "map.html", "--allocator", "paged")
    assert "note: a page of 0.1 MB: fewer --events, --limit or fewer allocators make it lighter" in said.err
