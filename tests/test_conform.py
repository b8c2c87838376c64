"""Every decision of the real vLLM scheduler, as recorded: block ids, evictions, preemptions, the order of the free queue."""

import copy
import json
from pathlib import Path

import pytest
from cli_run import SHARED, run

from experiments.conformance.cases import build, is_capacity, read_case
from experiments.conformance.config import CaseConfig
from experiments.conformance.diff import differences
from experiments.conformance.replay import replay
from sim.config import SimConfig
from sim.engine import Engine
from workloads.request import InputError

GOLDEN = Path(__file__).parent / "data" / "golden"
CASES = {path.stem: path for path in sorted(GOLDEN.glob("*.json")) if not path.stem.startswith(("large", "capacity"))}


@pytest.mark.parametrize("name", CASES)
def test_decisions_step_by_step(name):
    case = read_case(str(CASES[name]))
    assert differences(replay(case), case["result"]) == []


@pytest.mark.parametrize("name", CASES)
def test_decisions_when_decode_steps_are_made_together(name):
    case = read_case(str(CASES[name]))
    assert differences(replay(case, longest_jump=50), case["result"]) == []


def test_the_cases_cover_what_they_should():
    configs = [CaseConfig.of(read_case(str(path))["config"]) for path in CASES.values()]
    assert len(configs) >= 200
    assert sum(config.async_scheduling for config in configs) >= 25
    assert sum(config.policy == "priority" for config in configs) >= 15
    assert sum(len(config.groups) > 1 for config in configs) >= 15
    assert sum(not config.enable_prefix_caching for config in configs) >= 8
    runs = [replay(read_case(str(CASES[f"random_0{i}"])), longest_jump=50) for i in range(4)]
    jumped = sum(len(made.rows) - made.schedules for made in runs)
    assert jumped > 100                                # otherwise the jumps would prove nothing


class OneStepOneMicrosecond:
    def duration_us(self, load):
        return load.new_tokens * 0 + 1

    def describe(self):
        return "one microsecond a step"


def plain(case):
    """One group, synchronous, a run that ends, and prompts that a server would take."""
    config = CaseConfig.of(case["config"])
    return (not config.async_scheduling and config.kinds() == [("full", None)] and config.policy == "fcfs"
            and config.max_model_len > 1000 and case["result"]["outcome"] != "max_steps")


PLAIN = [name for name, path in CASES.items() if plain(read_case(str(path)))]


@pytest.mark.parametrize("longest_jump", [1, 50])
@pytest.mark.parametrize("name", PLAIN)
def test_the_engine_s_clock_makes_the_same_decisions(name, longest_jump):
    case = read_case(str(CASES[name]))
    made = replay(case)
    config = CaseConfig.of(case["config"])
    _, trace, scheduler = build(case, config)
    sim = SimConfig(config.num_blocks, config.block_size, config.max_model_len, scheduler=scheduler.config,
                    step_time=OneStepOneMicrosecond(), refuse_impossible=False, longest_jump=longest_jump)
    facts = Engine(trace, sim, "paged-prefix" if config.enable_prefix_caching else "paged").run()
    pool = facts.allocator.pool
    assert (facts.preemptions, pool.evicted, facts.ledger.peak_running) == \
        (made.scheduler.preemptions, made.pool.evicted, made.peak_running)
    assert pool.free_queue().tolist() == made.pool.free_queue().tolist()
    assert len(facts.stuck) == (len(made.stuck) if made.outcome == "stalled" else 0)


# ---------------------------------------------------------------------- the command
def test_all_cases_through_the_command(capsys):
    said = run(capsys, "conform", *map(str, list(CASES.values())[:40]), str(GOLDEN / "capacity.json"))
    assert said.status == 0, said.out
    assert "50 of 50 cases as recorded" in said.out


def tampered(tmp_path, change):
    case = copy.deepcopy(read_case(str(CASES["preempt_caching_on"])))
    change(case["result"])
    path = tmp_path / "tampered.json"
    path.write_text(json.dumps(case))
    return str(path)


@pytest.mark.parametrize(("change", "words"), [
    (lambda r: r["events"][7].__setitem__(1, 9), ("first difference: decision 8", "expected", "got", "before", "queue")),
    (lambda r: r["events"].pop(), ("no further decision",)),
    (lambda r: r["events"].append(["finish", 99, "r9"]), ("no further decision", "finish r9")),
    (lambda r: r["step_rows"][20].__setitem__(6, 1),
     ("row of step 20", "decisions of it as recorded", "free_queue_crc32: expected 1, got")),
    (lambda r: r["step_rows"].pop(), ("no such step: it ends before",)),
    (lambda r: r.update(preemptions=7), ("preemptions: expected 7",)),
    (lambda r: r["prefix_cache"].update(hits=1), ("prefix_cache, hits: expected 1, got",)),
    (lambda r: r["final_free_queue"].__setitem__(slice(4, 6), r["final_free_queue"][5:3:-1]), ("final_free_queue: place 4 of",)),
    (lambda r: (r["step_rows"][5].__setitem__(4, 99), r["events"].pop()), ("row of step 5", "free_after_schedule: expected 99")),
    (lambda r: r["step_columns"].reverse(), ("row of step",)),
    (lambda r: r["events"][9].__setitem__(2, True), ("first difference",)),
    (lambda r: r.update(outcome="stalled", stuck=["r0"]), ("outcome: expected stalled", "stuck"))])
def test_a_difference_is_told_as_a_person_would_want_it(capsys, tmp_path, change, words):
    said = run(capsys, "conform", tampered(tmp_path, change))
    assert said.status == 1
    assert "DIFFERS tampered" in said.out and "0 of 1 cases as recorded" in said.out
    assert [word for word in words if word not in said.out] == []


def test_json(capsys, tmp_path):
    wrong = tampered(tmp_path, lambda r: r["events"].pop())
    said = run(capsys, "conform", "--json", "-", str(CASES["touch_free_block"]), wrong)
    document = json.loads(said.out)
    assert said.status == 1 and document["ok"] is False
    assert [entry["ok"] for entry in document["cases"]] == [True, False]


@pytest.mark.parametrize(("text", "said"), [
    ("{", "no valid JSON"), ("[]", "no recorded case"), ("{}", "no recorded case"),
    ('{"config": {}, "requests": []}', "no result"),
    ('{"config": 3, "requests": [], "result": {}}', "config is no object"),
    ('{"config": {"lora": true}, "requests": [], "result": {}}', "key that is not known: 'lora'"),
    ('{"config": {"block_size": 0}, "requests": [], "result": {}}', "block_size '0': a number from 1"),
    ('{"config": {"num_blocks": 1000000000000}, "requests": [], "result": {}}', "num_blocks"),
    ('{"config": {"enable_prefix_caching": "x"}, "requests": [], "result": {}}', "enable_prefix_caching 'x': bool is wanted"),
    ('{"config": {"watermark": NaN}, "requests": [], "result": {}}', "watermark"),
    ('{"config": {"groups": [{"kind": "ring"}]}, "requests": [], "result": {}}', "the kind of a group is one of"),
    ('{"config": {"groups": [{"kind": "sliding"}]}, "requests": [], "result": {}}', "a window or chunk"),
    ('{"config": {"policy": "sjf"}, "requests": [], "result": {}}', "one of fcfs, priority"),
    ('{"config": {"max_num_seqs": 1.5}, "requests": [], "result": {}}', "max_num_seqs '1.5': a whole number"),
    ('{"config": {}, "requests": 3, "result": {}}', "requests are no list"),
    ('{"config": {}, "requests": [3], "result": {}}', "request 0 of the case is no object"),
    ('{"config": {}, "requests": [{"id": "a"}], "result": {}}', "request 'a' of the case"),
    ('{"config": {}, "requests": [{"id": "a", "prompt": [["x", 100000000000]]}], "result": {}}',
     "a prompt of 100000000000 tokens"),
    ('{"config": {}, "requests": [{"id": "a", "prompt": [["x", 9]]}, {"id": "a", "prompt": [["x", 9]]}], "result": {}}',
     "'a' of the case is there more than once"),
    ('{"config": {}, "requests": [{"hash_ids": [1], "input_length": 600}], "result": {}}', "uncovered"),
    ('{"config": {}, "requests": [{"prompt": [["x", 9]], "arrive": -1}], "result": {}}', "arrive '-1'"),
    ('{"config": {}, "requests": [], "result": {"events": [null]}}', "event 1 is none"),
    ('{"config": {}, "requests": [], "result": {"step_rows": [[1, 2]]}}', "row 1 is none"),
    ('{"config": {}, "requests": [], "result": {"step_columns": ["step"]}}', "step_columns"),
    ('{"cases": []}', "no layouts"), ('{"runs": []}', "--totals"), ('{"cases": [{"layers": 3}]}', "layout 0 cannot be used")])
def test_a_bad_case_is_one_line(capsys, tmp_path, text, said):
    path = tmp_path / "bad.json"
    path.write_text(text)
    got = run(capsys, "conform", str(path))
    assert (got.status, got.out) == (2, "")
    assert got.err.count("\n") == 1 and "bad.json" in got.err and said in got.err


def test_one_bad_file_does_not_hide_the_others(capsys, tmp_path):
    bad, large = tmp_path / "bad.json", tmp_path / "large.json"
    bad.write_text("{")
    large.write_text('{"runs": []}')
    good = str(CASES["touch_free_block"])
    said = run(capsys, "conform", str(bad), good, str(large), "-q")
    assert said.status == 2 and "1 of 1 cases as recorded" in said.out
    assert "bad.json" in said.err and "note: " in said.err and "--totals" in said.err
    said = run(capsys, "conform", good, str(large), "-q")
    assert said.status == 0 and "note: " in said.err


def test_totals_of_a_large_run(capsys, tmp_path):
    requests = {"config": {}, "requests": [{"id": f"r{i}", "arrive": 0, "prompt": [[f"u{i}", 100 + i]], "output": 20}
                                           for i in range(50)]}
    path, large = tmp_path / "requests.json", tmp_path / "large.json"
    path.write_text(json.dumps(requests))
    config = {"num_blocks": 200, "block_size": 16, "max_num_seqs": 16, "max_num_batched_tokens": 512, "max_model_len": 4096,
              "enable_prefix_caching": True, "async_scheduling": False}
    large.write_text(json.dumps({"runs": [{"workload": "small", "config": config, "totals": {"steps": 1}}]}))
    said = run(capsys, "conform", "--totals", str(large), "--run", "0", "--json", "-", str(path))
    ours = json.loads(said.out)["cases"][0]["totals"]
    assert said.status == 1 and ours["requests"] == 50 and ours["input_tokens"] == sum(100 + i for i in range(50))
    large.write_text(json.dumps({"runs": [{"workload": "small", "config": config, "totals": ours}]}))
    assert run(capsys, "conform", "--totals", str(large), "--run", "0", str(path)).status == 0
    for arguments in (("--totals", str(large), str(path)), ("--totals", str(large), "--run", "1", str(path)),
                      ("--run", "0", str(path))):
        assert run(capsys, "conform", *arguments).status == 2


@pytest.mark.skipif(not (SHARED / "golden" / "large.json").exists(), reason="the recorded large runs are not here")
def test_a_recorded_large_run(capsys, tmp_path):
    import random

    rng, sigma = random.Random(0), 0.8

    def draw(mean):
        return max(1, round(rng.lognormvariate(0, sigma) * mean / 2.718281828 ** (sigma**2 / 2)))
    path = tmp_path / "lognormal.json"
    path.write_text(json.dumps({"config": {}, "requests": [
        {"id": f"r{i}", "arrive": 0, "prompt": [[f"u{i}", min(draw(1000), 16000)]], "output": min(draw(200), 4000)}
        for i in range(20000)]}))
    for number in ("0", "1"):                          # synchronous and asynchronous
        assert run(capsys, "conform", "--totals", str(SHARED / "golden" / "large.json"), "--run", number, str(path)).status == 0


def test_a_case_needs_a_known_shape():
    with pytest.raises(InputError, match=r"\Anowhere.json: no such file or directory\Z"):
        read_case("nowhere.json")
    assert is_capacity({"cases": []})


def test_what_was_not_recorded_is_said(capsys, tmp_path):
    path = tampered(tmp_path, lambda r: [r.pop(name) for name in ("stuck", "prefix_cache")])
    said = run(capsys, "conform", path)
    assert said.status == 0 and "not recorded, so not compared: stuck, prefix_cache" in said.err


@pytest.mark.parametrize(("runs", "requests", "says"), [
    ('{"runs": [{"config": 3, "totals": {"steps": 1}}]}', '{"config": {}, "requests": []}', "no config, or no totals"),
    ('{"runs": [{"config": {}, "totals": {}}]}', '{"config": {}, "requests": []}', "no config, or no totals"),
    ('{"runs": [{"config": {}, "totals": {"stepz": 1}}]}', '{"config": {}, "requests": []}', "not known: 'stepz'"),
    ('{"runs": [{"config": {}, "totals": {"steps": 1}}]}', '{"runs": []}', "no requests in it")])
def test_a_large_run_that_cannot_be_used(capsys, tmp_path, runs, requests, says):
    large, path = tmp_path / "large.json", tmp_path / "requests.json"
    large.write_text(runs)
    path.write_text(requests)
    said = run(capsys, "conform", "--totals", str(large), "--run", "0", str(path))
    assert said.status == 2 and says in said.err and said.err.count("\n") == 1
