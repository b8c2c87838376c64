"""The Chrome trace: a checker of the format, spans and counters against stays and timeline, thinning, and the same bytes."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import zstandard
from cli_run import document, mooncake, run, timed
from hypothesis import given, settings
from hypothesis import strategies as st
from small import LONG, config_of, trace_of
from test_relations import workloads

from experiments import chrome_trace
from experiments.chrome_trace import Traced, write_chrome_trace
from experiments.lanes import lanes
from sim.engine import Engine
from sim.memory.allocator import PARTS
from sim.request_log import NEVER
from sim.result import prefix_cache
from sim.stays import StayLog, running_level, waiting_level
from sim.step_time import ConstantStepTime
from sim.timeline import Timeline

KEYS = {"X": {"ph", "pid", "tid", "name", "ts", "dur", "args"}, "C": {"ph", "pid", "tid", "name", "ts", "args"},
        "M": {"ph", "pid", "tid", "name", "args"}}
NAMES = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name", "thread_sort_index": "sort_index"}


def traced(trace, config, name):
    log, timeline = StayLog(), Timeline(most=1 << 30)
    facts = Engine(trace, config, name, timeline, [log]).run()
    return Traced(name, facts, log.stays(), timeline)


def written(tmp_path, *runs, source="by hand"):
    path = tmp_path / "t.json"
    notes = write_chrome_trace(str(path), runs, source)
    return json.loads(path.read_text(encoding="utf-8")), notes


def checked(made):
    """The events of a trace, if it keeps to the format; every lane's spans are in order and nested."""
    assert set(made) == {"displayTimeUnit", "otherData", "traceEvents"} and made["displayTimeUnit"] in ("ms", "ns")
    lanes_, counters, named = defaultdict(list), defaultdict(list), defaultdict(dict)
    for event in made["traceEvents"]:
        assert set(event) == KEYS[event["ph"]] and type(event["pid"]) is type(event["tid"]) is int
        assert type(event["name"]) is str and type(event["args"]) is dict
        if event["ph"] == "M":
            assert list(event["args"]) == [NAMES[event["name"]]]
            assert named[event["pid"], event["tid"]].setdefault(event["name"], event["args"]) is event["args"]
            continue
        assert type(event["ts"]) is int and event["ts"] >= 0
        if event["ph"] == "X":
            assert type(event["dur"]) is int and event["dur"] >= 0
            lanes_[event["pid"], event["tid"]].append(event)
        else:
            assert event["args"] and all(type(v) in (int, float) for v in event["args"].values())
            counters[event["pid"], event["name"]].append(event)
    for events in counters.values():
        assert all(a["ts"] < b["ts"] for a, b in pairwise(events))
    for lane, events in lanes_.items():
        assert set(named[lane]) == {"thread_name", "thread_sort_index"}
        check_nesting(events)
    return made["traceEvents"]


def check_nesting(events):
    open_, before = [], 0
    for event in events:
        start, end = event["ts"], event["ts"] + event["dur"]
        assert start >= before
        before = start
        while open_ and open_[-1] <= start:
            open_.pop()
        assert not open_ or end <= open_[-1]
        open_.append(end)


def spans(events, pid=1):
    """(lane, name, start, end) of every span, lanes by name."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == pid}
    return [(names[e["tid"]], e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == pid]


def counter(events, name, pid=1):
    found = [(e["ts"], e["args"]) for e in events if e["ph"] == "C" and e["name"] == name and e["pid"] == pid]
    return [(ts, args["value"]) for ts, args in found] if found and "value" in found[0][1] else found


# ---------------------------------------------------------------------- by hand
def test_a_preemption_by_hand(tmp_path):
    # Three blocks of 4, 10 us a step: b leaves when a takes the third block and computes its 4 + 1 tokens when a has ended.
    made = traced(trace_of([(4, 5), (4, 5)]), config_of(4, 4, 12, step_time=ConstantStepTime(10)), "paged")
    document_, notes = written(tmp_path, made)
    events = checked(document_)
    assert spans(events) == [
        ("running 0", "request 0", 0, 50), ("running 0", "prefill", 0, 10), ("running 0", "decode", 10, 50),
        ("running 1", "request 1", 0, 10), ("running 1", "prefill", 0, 10),
        ("running 0", "request 1", 50, 90), ("running 0", "resumed", 50, 90), ("preempted 0", "preempted: 1", 10, 50)]
    outer = [e["args"] for e in events if e["name"].startswith("request")]
    assert outer[0] == {"prompt_tokens": 4, "output_tokens": 5, "hit_tokens": 0, "arrival_us": 0, "ends": "finished"}
    assert [args["ends"] for args in outer] == ["finished", "preempted", "finished"]
    assert counter(events, "vllm:num_requests_running") == [(0, 2), (10, 1), (90, 0)]
    assert counter(events, "vllm:num_requests_waiting") == [(10, 1), (50, 0)]
    assert counter(events, "vllm:num_preemptions_total") == [(0, 0), (10, 1)]
    assert counter(events, "vllm:kv_cache_usage_perc")[:2] == [(0, round(8 / 12, 6)), (10, round(8 / 12, 6))]
    assert counter(events, "pagedsim:kv_pool_slots")[0] == (0, dict(zip(PARTS, (8, 0, 0, 0, 0, 0, 4), strict=True)))
    assert notes == [f"the Chrome trace holds {len(events)} events of 1 server"]
    assert not [e for e in events if "prefix_cache" in e["name"]]


def test_who_waits_and_who_is_rejected(tmp_path):
    # One at a time: b, arrived at 3, waits for a; the third prompt is too long and leaves no trace.
    config = config_of(9, 4, 12, step_time=ConstantStepTime(10), max_num_seqs=1)
    events = checked(written(tmp_path, traced(trace_of([(4, 2), (4, 1, 3), (20, 1, 4)]), config, "paged"))[0])
    assert spans(events) == [
        ("running 0", "request 0", 0, 20), ("running 0", "prefill", 0, 10), ("running 0", "decode", 10, 20),
        ("running 0", "request 1", 20, 30), ("running 0", "prefill", 20, 30), ("waiting 0", "waiting: 1", 3, 20)]


def test_a_preemption_in_the_prompt(tmp_path):
    # Two usable slots, asynchronous: b's one token comes when it has been put out (tests/test_stays.py).
    made = traced(trace_of([(1, 2), (1, 1)]), config_of(3, 1, 12, async_scheduling=True), "paged")
    events = checked(written(tmp_path, made)[0])
    assert ("preempted 0", "preempted: 1", 0, 1) in spans(events) and counter(events, "vllm:num_preemptions_total")[-1] == (0, 1)


def test_prefix_hits_are_counted_as_vllm_does(tmp_path):
    # The second request finds 8 of its 9 tokens, the third, at the same instant, as well.
    trace = trace_of([(9, 2), (9, 2, 50), (9, 2, 50)], [[1, 2, 3], [1, 2, 4], [1, 2, 5]])
    events = checked(written(tmp_path, traced(trace, config_of(20, 4, 16), "paged-prefix"))[0])
    assert counter(events, "vllm:prefix_cache_queries_total") == [(0, 9), (50, 27)]
    assert counter(events, "vllm:prefix_cache_hits_total") == [(0, 0), (50, 16)]
    assert [e["args"]["hit_tokens"] for e in events if e["name"].startswith("request")] == [0, 8, 8]


def test_nobody_served(tmp_path):
    events = checked(written(tmp_path, traced(trace_of([(20, 3)]), config_of(9, 4, 12), "paged"))[0])
    assert spans(events) == [] and counter(events, "vllm:num_requests_running") == []


def test_names_are_escaped(tmp_path):
    made = traced(trace_of([(4, 2)]), config_of(9, 4, 12), "paged")
    odd = 'a "quoted"\n\\ \u2028 \udcff</script>'
    document_, _ = written(tmp_path, replace(made, name=odd), source=odd)
    assert document_["otherData"]["trace"] == odd and checked(document_)[0]["args"] == {"name": odd}


# ---------------------------------------------------------------------- lanes
@settings(max_examples=200 * LONG)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=40), st.none() | st.integers(1, 4))
def test_lanes_hold_one_span_at_a_time_and_are_as_few_as_can_be(drawn, most):
    spans_ = sorted((start, start + length) for start, length in drawn)
    start, end = (np.array([s[i] for s in spans_], np.int64) for i in (0, 1))
    found = lanes(start, end, most)
    for lane in set(found.tolist()) - {-1}:
        mine = np.flatnonzero(found == lane)
        assert (end[mine][:-1] <= start[mine][1:]).all()
    overlap = max([sum(a <= t < b for a, b in spans_) for t in range(40)], default=0)
    assert int(found.max(initial=-1)) + 1 == min(overlap, most or overlap)
    assert (found == -1).any() == (most is not None and overlap > most)
    for i in np.flatnonzero(found == -1).tolist():
        assert sum(start[j] <= start[i] < end[j] and found[j] >= 0 for j in range(i)) == most


# ---------------------------------------------------------------------- any workload
@settings(max_examples=60 * LONG)
@given(workloads(), st.sampled_from(["paged", "paged-prefix", "contiguous-pow2"]), st.integers(0, 2**32))
def test_spans_and_counters_are_those_of_the_run(tmp_path_factory, made, name, seed):
    one = traced(*made, name)
    facts, stays = one.run, one.stays
    events = checked(written(tmp_path_factory.mktemp("trace"), one)[0])
    found = spans(events)
    last = int(facts.log.finished_us.max(initial=0))
    assert all(0 <= start < end <= last for _, _, start, end in found)
    outer = sorted((n.split()[1], start, end) for _, n, start, end in found if n.startswith("request"))
    assert outer == sorted(zip(map(str, stays.request.tolist()), stays.admitted_us.tolist(), stays.left_us.tolist(), strict=True))
    inner = sum(end - start for _, n, start, end in found if n in ("prefill", "decode", "resumed"))
    assert inner == int(facts.log.residence_us.sum())
    out = sum(end - start for lane, _, start, end in found if not lane.startswith("running"))
    done = facts.log.finished_us != NEVER
    assert out == int((facts.log.finished_us - facts.arrival_us - facts.log.residence_us)[done].sum())
    assert len({lane for lane, *_ in found if lane.startswith("running")}) == running_level(stays).peak(0, 1 << 60)
    assert sum(e["name"].startswith("request") and e["args"]["ends"] == "preempted" for e in events) == facts.preemptions
    check_counters(events, one, np.random.default_rng(seed).integers(0, last + 1, 20))


def check_counters(events, one, instants):
    """At any instant a counter's last value is the level's; pool parts are the timeline's samples."""
    facts, stays = one.run, one.stays
    waiting = waiting_level(stays, facts.arrival_us[facts.verdict == 0], facts.log.finished_us)
    for name, level in (("running", running_level(stays)), ("waiting", waiting)):
        points = counter(events, f"vllm:num_requests_{name}")
        said = [max((p for p in points if p[0] <= t), default=(0, 0))[1] for t in instants.tolist()]
        assert said == level.at(instants).tolist()
    if facts.steps:
        assert counter(events, "vllm:num_preemptions_total")[-1][1] == facts.preemptions
    columns = one.timeline.columns()
    rows = zip(columns["time_us"].tolist(), zip(*(columns[p].tolist() for p in PARTS), strict=True), strict=True)
    parts = list({t: (t, dict(zip(PARTS, values, strict=True))) for t, values in rows}.values())      # the last of an instant
    shown = counter(events, "pagedsim:kv_pool_slots")
    assert shown[:len(parts)] == parts
    if len(stays):                                     # and behind them what is left when the last request has gone: nothing held
        (time, left), = shown[len(parts):]
        parts.append((time, left))
        assert time == stays.left_us.max() and sum(left.values()) == facts.ledger.capacity
        assert left["token_states"] == left["reserved"] == left["internal"] == left["external"] == left["remainder"] == 0
    held = [round(sum(args[p] for p in PARTS[:3]) / facts.ledger.capacity, 6) for _, args in parts]
    assert [v for _, v in counter(events, "vllm:kv_cache_usage_perc")] == held
    assert held[-1:] in ([0], [])
    cache = prefix_cache(facts)
    if cache is not None and facts.steps:
        for kind, total in (("queries", cache["query_tokens"]), ("hits", cache["hit_tokens"])):
            assert counter(events, f"vllm:prefix_cache_{kind}_total")[-1][1] == total


# ---------------------------------------------------------------------- bounds
def test_long_runs_are_thinned(tmp_path, monkeypatch):
    monkeypatch.setattr(chrome_trace, "MOST_SPANS", 30)
    monkeypatch.setattr(chrome_trace, "MOST_POINTS", 20)
    monkeypatch.setattr(chrome_trace, "MOST_WAITING_LANES", 3)
    config = config_of(9, 4, 12, max_num_seqs=2)
    one = traced(trace_of([(4, 1 + i % 5, 0 if i < 20 else 30 * i) for i in range(50)]), config, "paged")
    document_, notes = written(tmp_path, one)
    events = checked(document_)
    found = spans(events)
    assert sum(n.startswith("request") for _, n, *_ in found) == 30
    assert {lane for lane, *_ in found if lane.startswith("waiting")} == {"waiting 0", "waiting 1", "waiting 2"}
    waits = sum(n.startswith("waiting") for _, n, *_ in found)
    assert notes == [f"the Chrome trace holds {len(events)} events of 1 server; 20 stays and {18 - waits} waits have no span, "
                     "counters have them all"]
    level = running_level(one.stays)
    points = counter(events, "vllm:num_requests_running")
    assert len(points) == 20 and points[0] == (0, 2) and points[-1][1] == 0
    assert [v for _, v in points] == level.at(np.array([t for t, _ in points])).tolist()
    assert max(len(counter(events, n)) for n in ("vllm:kv_cache_usage_perc", "pagedsim:kv_pool_slots")) <= 20


def test_waits_are_as_many_as_stays_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(chrome_trace, "MOST_SPANS", 12)
    document_, notes = written(tmp_path, traced(trace_of([(4, 2)] * 20), config_of(9, 4, 12, max_num_seqs=2), "paged"))
    assert [w for _, w, *_ in spans(checked(document_)) if w.startswith("waiting")] == [f"waiting: {i}" for i in range(2, 14)]
    assert notes[0].endswith("8 stays and 6 waits have no span, counters have them all")


def test_the_preempted_are_seen_while_many_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(chrome_trace, "MOST_WAITING_LANES", 2)
    one = traced(trace_of([(4, 5)] * 12), config_of(4, 4, 12), "paged")
    found = spans(checked(written(tmp_path, one)[0]))
    assert one.run.preemptions > 0 and sum(n.startswith("preempted") for _, n, *_ in found) == one.run.preemptions


# ---------------------------------------------------------------------- the command line
POOL = ("--num-gpu-blocks-override", 40, "--block-size", 4, "--max-model-len", 64, "--step-time", "constant:10ms")


@pytest.fixture
def crowd(tmp_path):
    return timed(tmp_path, [(0.05 * i, 10 + 3 * (i % 5), 5 + i % 17) for i in range(60)])


def test_compare_writes_a_process_an_allocator(capsys, tmp_path, crowd):
    path = tmp_path / "out.json"
    found = document(capsys, crowd, *POOL, "--chrome-trace", path)
    events = checked(json.loads(path.read_text()))
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == [s["allocator"] for s in found["scenarios"]]
    for pid, scenario in enumerate(found["scenarios"], 1):
        done = {n for _, n, *_ in spans(events, pid) if n.startswith("request")}
        assert len(done) == scenario["requests"]["completed"]
        assert max(v for _, v in counter(events, "vllm:num_requests_running", pid)) == scenario["concurrency"]["peak"]
    assert f"the Chrome trace holds {len(events):,} events of 5 servers" in found["config"]["notes"]


def test_nothing_else_changes(capsys, tmp_path, crowd):
    plain, made = document(capsys, crowd, *POOL), document(capsys, crowd, *POOL, "--chrome-trace", tmp_path / "out.json")
    assert made["config"].pop("notes")[:-1] == plain["config"].pop("notes") and made == plain


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.zst"])
def test_the_same_bytes_whatever_they_are_packed_in(capsys, tmp_path, crowd, suffix):
    paths = [tmp_path / f"{name}{suffix}" for name in ("a", "b")]
    for path in paths:
        document(capsys, crowd, *POOL, "--allocator", "paged", "--chrome-trace", path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    unpack = {".json": bytes, ".json.gz": gzip.decompress, ".json.zst": zstandard.ZstdDecompressor().decompressobj().decompress}
    checked(json.loads(unpack[suffix](first)))


def test_closed_loops_saturation_and_hits(capsys, tmp_path):
    chat = tmp_path / "chat.csv"
    chat.write_text("time,prompt,output,session,think\n"
                    + "".join(f"{i},{9 + i % 5},4,{i % 6},{'' if i < 6 else 1}\n" for i in range(40)))
    columns = "time=time,prompt=prompt,output=output,session=session,think=think"
    moon = mooncake(tmp_path, [(100 * i, 16, 3, [i % 4]) for i in range(30)])
    for options in ((chat, "--columns", columns), (moon, "--hash-block-size", 16), (moon, "--hash-block-size", 16, "--saturate"),
                    (chat, "--columns", columns, "--open-loop", "--samples", 3)):
        path = tmp_path / "out.json"
        document(capsys, *options, *POOL, "--chrome-trace", path)
        assert spans(checked(json.loads(path.read_text())), 5)


def test_what_is_refused(capsys, tmp_path, crowd):
    said = run(capsys, "compare", crowd, *POOL, "--chrome-trace", tmp_path / "no" / "out.json")
    assert said.status == 2 and said.err.endswith("out.json: cannot write: No such file or directory\n")
    said = run(capsys, "compare", crowd, *POOL, "--chrome-trace", crowd)
    assert said.err == f"pagedsim compare: error: {crowd}: --chrome-trace would overwrite what is read\n"
    said = run(capsys, "compare", crowd, *POOL, "--chrome-trace", "-")
    assert said.err == "pagedsim compare: error: --chrome-trace -: only --json goes to standard output\n"


def test_each_replica_is_a_process_with_its_own_requests(tmp_path, capsys):
    target = tmp_path / "t.json"
    said = run(capsys, "compare", "--limit", "60", "--num-gpu-blocks-override", "300", "--max-model-len", "2048", "--allocator",
               "paged-prefix", "-dp", "3", "--chrome-trace", target, "--requests", tmp_path / "r.csv", "-q")
    assert said.status == 0
    events = json.loads(target.read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert list(names.values()) == [f"paged-prefix, replica {number}" for number in range(3)]
    with open(tmp_path / "r.csv", newline="") as file:
        served = {int(row["request"]): int(row["replica"]) for row in csv.DictReader(file) if row["status"] == "completed"}
    spans = {}
    for event in events:
        if event["ph"] == "X" and event["name"].startswith("request "):
            spans.setdefault(int(event["name"].split()[1]), set()).add(event["pid"] - 1)
    assert spans == {request: {replica} for request, replica in served.items()}
    last, lowest = {}, {}
    for event in events:
        if event["ph"] == "C" and "value" in event["args"]:
            key = event["name"], event["pid"]
            last[key], lowest[key] = event["args"]["value"], min(lowest.get(key, 0), event["args"]["value"])
    assert min(lowest.values()) == 0
    for name in ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"):
        assert [last[name, pid] for pid in names] == [0, 0, 0]
    whole = run(capsys, "compare", "--limit", "60", "--num-gpu-blocks-override", "300", "--max-model-len", "2048", "--allocator",
                "paged-prefix", "-dp", "3", "--json", "-", "-q").json["scenarios"][0]["prefix_cache"]
    assert sum(last["vllm:prefix_cache_queries_total", pid] for pid in names) == whole["query_tokens"]
    assert sum(last["vllm:prefix_cache_hits_total", pid] for pid in names) == whole["hit_tokens"]
