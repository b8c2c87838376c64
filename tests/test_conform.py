"""Every decision of the real vLLM scheduler, as recorded: block ids, evictions, preemptions, the order of the free queue."""

import copy
import json
from pathlib import Path

import pytest
from cli_run import SHARED, run

from experiments.case_replay import replay
from experiments.cases import build, is_capacity, read_case
from experiments.conform import first_difference
from sim.config import SimConfig
from sim.engine import Engine
from workloads.request import InputError

GOLDEN = Path(__file__).parent / "data" / "golden"
CASES = {path.stem: path for path in sorted(GOLDEN.glob("*.json")) if not path.stem.startswith(("large", "capacity"))}


@pytest.mark.parametrize("name", CASES)
def test_decisions_step_by_step(name):
    case = read_case(str(CASES[name]))
    assert first_difference(replay(case), case) == []


@pytest.mark.parametrize("name", CASES)
def test_decisions_when_decode_steps_are_made_together(name):
    case = read_case(str(CASES[name]))
    assert first_difference(replay(case, longest_jump=50), case) == []


def test_the_cases_cover_what_they_should():
    configs = [read_case(str(path))["config"] for path in CASES.values()]
    assert len(configs) >= 190
    assert sum(config["async_scheduling"] for config in configs) >= 25
    assert sum(config["policy"] == "priority" for config in configs) >= 15
    assert sum(len(config["groups"]) > 1 for config in configs) >= 15
    assert sum(not config["enable_prefix_caching"] for config in configs) >= 8
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
    config = case["config"]
    return (not config["async_scheduling"] and [group["kind"] for group in config["groups"]] == ["full"]
            and config["policy"] == "fcfs" and config["max_model_len"] > 1000 and case["result"]["outcome"] != "max_steps")


PLAIN = [name for name, path in CASES.items() if plain(read_case(str(path)))]


@pytest.mark.parametrize("longest_jump", [1, 50])
@pytest.mark.parametrize("name", PLAIN)
def test_the_engine_s_clock_makes_the_same_decisions(name, longest_jump):
    case = read_case(str(CASES[name]))
    made = replay(case)
    config = case["config"]
    _, trace, scheduler = build(case)
    sim = SimConfig(config["num_blocks"], config["block_size"], config["max_model_len"], scheduler=scheduler.config,
                    step_time=OneStepOneMicrosecond(), refuse_impossible=False, longest_jump=longest_jump)
    facts = Engine(trace, sim, "paged-prefix" if config["enable_prefix_caching"] else "paged").run()
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
    (lambda r: r["step_rows"][20].__setitem__(6, 1), ("row of step 20", "free_queue_crc32 1")),
    (lambda r: r["step_rows"].pop(), ("no such step",)),
    (lambda r: r.update(preemptions=7), ("preemptions: expected 7",)),
    (lambda r: r["prefix_cache"].update(hits=1), ("prefix_cache: expected",)),
    (lambda r: r.update(final_free_queue=[1]), ("final_free_queue",)),
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
    ('{"config": {}, "requests": [], "result": {"events": [], "step_rows": []}}', "config cannot be used"),
    ('{"config": {"num_blocks": 4, "block_size": 16}, "requests": [{"id": "a"}], "result": {"events": [], "step_rows": []}}',
     "a request of the case cannot be used"),
    ('{"config": {"num_blocks": 4, "block_size": 16, "groups": [{"kind": "ring"}]}, "requests": [], "result": {}}',
     "kind of group"),
    ('{"config": {"num_blocks": 4, "block_size": 16, "policy": "sjf"}, "requests": [], "result": {}}', "config cannot be used"),
    ('{"runs": []}', "--totals"), ('{"cases": [{"layers": 3}]}', "layout 0 cannot be used")])
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
    with pytest.raises(InputError, match="cannot be read"):
        read_case("nowhere.json")
    assert is_capacity({"cases": []})
