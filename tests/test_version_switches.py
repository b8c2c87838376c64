"""What the pool and the scheduler of another vLLM version do otherwise: each decision on both sides of its boundary, by hand."""

import numpy as np
import pytest
from cli_run import document, lengths, mooncake, run, timed
from small import config_of, trace_of

from experiments import compare
from experiments.setup import prepare
from sim.engine import Engine
from sim.run import Observer
from sim.sizing.versions import parse_version
from workloads.request import InputError, Trace

POOL = ("--block-size", 4, "--step-time", "constant:1s", "--num-gpu-blocks-override")

# Each switch with the last version read without it, the first one read with it, and the two sides of the cut between them.
SWITCHES = {
    "splits_freed": ("0.23.0", "0.25.1", "0.24", "0.25.0"),
    "gates_whole_prompts": ("0.18.0", "0.19.1", "0.18", "0.19.0"),
    "has_watermark": ("0.23.0", "0.25.1", "0.24", "0.25.0"),
    "exempts_lone_prefill": ("0.30.0", "0.32.0", "0.31", "0.32.0"),
    "goes_on_after_own_preemption": ("0.28.0", "0.33.0", "0.28", "0.29.0"),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_boundaries(switch):
    assert [getattr(parse_version(v), switch) for v in SWITCHES[switch]] == [False, True, False, True]


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_series_behaves_as_its_last_patch(switch):
    off, on = SWITCHES[switch][2:]
    below, above = off, on.rsplit(".", 1)[0]
    for older in ("0.8.5", "v0.9.2", "0.10.2rc1", below, f"{below}.7", f"v{below}.0.post1"):
        assert not getattr(parse_version(older), switch)
    for newer in (above, f"{above}.0rc2", f"{above}.3+cu129", "0.33"):
        assert getattr(parse_version(newer), switch)


def setup_of(*arguments):
    return prepare(compare.parser().parse_args(["--num-gpu-blocks-override", "500", *map(str, arguments)]))


@pytest.mark.parametrize(("version", "split", "gate", "alone", "goes_on"), [
    ("0.18", False, False, False, False), ("0.19.0", False, True, False, False), ("0.24", False, True, False, False),
    ("0.25.0", True, True, False, False), ("0.28", True, True, False, False), ("0.29.0", True, True, False, True),
    ("0.31", True, True, False, True), ("0.32.0", True, True, True, True), (None, True, True, True, True),
])
def test_what_a_version_makes_of_the_configuration(version, split, gate, alone, goes_on):
    made = setup_of(*(() if version is None else ("--vllm-version", version)))
    scheduler = made.sim.scheduler
    assert (made.sim.split_freed, scheduler.reserve_full_isl, scheduler.exempt_lone_prefill,
            scheduler.go_on_after_own_preemption) == (split, gate, alone, goes_on)
    assert made.version == (version or "0.33")


class Steps(Observer):
    def __init__(self):
        self.steps = []

    def scheduled(self, now_us, step):
        self.steps.append(step)


def steps_of(trace, config, allocator="paged"):
    watcher = Steps()
    facts = Engine(trace, config, allocator, observers=[watcher]).run()
    return facts, watcher.steps


# ---------------------------------------------------------------------- free order (rule 5)
# Four blocks of 4, one request after the other, one output token each:
#   a  8 tokens   takes 1, 2; both are cached                              queue 3 4 2 1
#   c  3 tokens   takes 3; no full block, so no hash      split: 3 4 2 1,   appended: 4 2 1 3
#   d  8 tokens   split: takes 3, 4    queue 2 1 4 3      appended: takes 4, evicts 2    queue 1 3 2 4
#   e  9 tokens, the first 8 as a
#                 split: finds 1, 2 (8 tokens), evicts 4     appended: finds 1 (4 tokens), takes 3, evicts 2 again
FREE_ORDER = [(8, 1), (3, 2), (8, 3), (9, 1)]


@pytest.mark.parametrize(("split", "queues"), [
    (True, [[3, 4, 2, 1], [3, 4, 2, 1], [2, 1, 4, 3], [4, 3, 2, 1]]),
    (False, [[3, 4, 2, 1], [4, 2, 1, 3], [1, 3, 2, 4], [4, 2, 3, 1]]),
])
def test_free_order_in_the_pool(split, queues):
    for n, queue in enumerate(queues, 1):
        rows = FREE_ORDER[:n]
        trace = trace_of([(p, 1, 10 * i) for i, (p, _) in enumerate(rows)], content=[[c] * -(-p // 12) for p, c in rows], span=12)
        facts = Engine(trace, config_of(5, 4, 12, split_freed=split), "paged-prefix").run()
        assert facts.allocator.pool.free_queue().tolist() == queue


@pytest.mark.parametrize(("version", "hit", "evicted"), [
    ("0.22.1", 4, 2), ("0.24", 4, 2), ("0.25.0", 8, 1), ("0.33", 8, 1)])
def test_free_order_of_a_version(capsys, tmp_path, version, hit, evicted):
    trace = mooncake(tmp_path, [(10_000 * i, p, 1, [c]) for i, (p, c) in enumerate(FREE_ORDER)])
    found = document(capsys, trace, *POOL, 5, "--allocator", "paged-prefix", "--vllm-version", version)
    cache = found["scenarios"][0]["prefix_cache"]
    assert (cache["hit_tokens"], cache["evicted_blocks"]) == (hit, evicted)


# ---------------------------------------------------------------------- whole-prompt gate (rule 27)
# Five blocks of 4, budget 12; a is 8 + 4 (11 states, leaves after step 3), b is 16 + 1.
#   with the gate     step 0: a takes 2 blocks; all of b needs 4, 3 are free: b waits until step 4, then 12 and 4 tokens
#   without           step 0: b's first chunk of 4 needs 1 block and is admitted; step 1: a takes its third block, b wants 11
#                     tokens in 3 more, 1 is free: b preempts itself; steps 2, 3: 11 tokens need 3 blocks, 2 are free; step 4
#                     as above
GATE = [(8, 4), (16, 1)]


@pytest.mark.parametrize(("gate", "tokens", "preempted"), [
    (True, [8, 1, 1, 1, 12, 4], []), (False, [12, 1, 1, 1, 12, 4], [(1, 4)])])
def test_gate_in_the_scheduler(gate, tokens, preempted):
    config = config_of(6, 4, 20, max_num_seqs=8, max_num_batched_tokens=12, reserve_full_isl=gate, longest_jump=1)
    _, steps = steps_of(trace_of(GATE), config)
    assert [s.new_tokens for s in steps] == tokens
    assert [p for s in steps for p in s.preempted] == preempted


@pytest.mark.parametrize(("version", "queue_s", "preemptions"), [
    ("0.11", 0.0, 1), ("0.18", 0.0, 1), ("0.19.0", 2.0, 0), ("0.33", 2.0, 0)])
def test_gate_of_a_version(capsys, tmp_path, version, queue_s, preemptions):
    trace = timed(tmp_path, [(0, p, o) for p, o in GATE])
    found = document(capsys, trace, *POOL, 6, "--max-model-len", 20, "--max-num-seqs", 8,
                     "--max-num-batched-tokens", 12, "--allocator", "paged", "--vllm-version", version)["scenarios"][0]
    assert (found["latency_s"]["queue"]["mean"], found["requests"]["preemptions"]) == (queue_s, preemptions)
    assert found["makespan_s"] == 6


# ---------------------------------------------------------------------- watermark (rule 30)
@pytest.mark.parametrize(("watermark", "peak"), [(0, 2), (0.19, 2), (0.2, 1)])
def test_watermark_by_hand(capsys, tmp_path, watermark, peak):
    # N = 10: 9 blocks of 4. Both prompts take 4; for the second 4 must be at most 5 - int(watermark x 10): 5, 4 and 3.
    trace = timed(tmp_path, [(0, 16, 1), (0, 16, 1)])
    found = document(capsys, trace, *POOL, 10, "--allocator", "paged", "--watermark", watermark,
                     "--vllm-version", "0.25.0")
    assert found["scenarios"][0]["concurrency"]["peak"] == peak
    assert found["config"]["watermark"] == watermark


@pytest.mark.parametrize("version", ["0.8.5", "0.23.0", "0.24"])
def test_a_watermark_asked_of_an_older_version_is_refused(capsys, version):
    said = run(capsys, "compare", "--num-gpu-blocks-override", 500, "--watermark", 0.1, "--vllm-version", version)
    assert (said.status, said.out) == (2, "")
    assert said.err == f"pagedsim compare: error: --watermark: vLLM {version} has none\n"
    assert setup_of("--watermark", 0, "--vllm-version", version).sim.scheduler.watermark == 0


# ---------------------------------------------------------------------- a lone prefill and the threshold (rule 26)
@pytest.mark.parametrize(("exempt", "tokens"), [(True, [10]), (False, [4, 4, 2])])
def test_a_lone_prefill_in_the_scheduler(exempt, tokens):
    config = config_of(10, 4, 20, long_prefill_token_threshold=4, exempt_lone_prefill=exempt, longest_jump=1)
    assert [s.new_tokens for s in steps_of(trace_of([(10, 1)]), config)[1]] == tokens


@pytest.mark.parametrize("exempt", [True, False])
def test_two_in_the_system_are_never_exempt(exempt):
    # 10 and 5 tokens, at most 4 each a step: 4 + 4, 4 + 1 (the second leaves); the last 2 fit the threshold anyway.
    config = config_of(10, 4, 20, long_prefill_token_threshold=4, exempt_lone_prefill=exempt, longest_jump=1)
    assert [s.new_tokens for s in steps_of(trace_of([(10, 1), (5, 1)]), config)[1]] == [8, 5, 2]


@pytest.mark.parametrize(("version", "ttft_s"), [("0.30.0", 3.0), ("0.31", 3.0), ("0.32.0", 1.0), ("0.33", 1.0)])
def test_a_lone_prefill_of_a_version(capsys, tmp_path, version, ttft_s):
    found = document(capsys, lengths(tmp_path, [(10, 1)]), *POOL, 10, "--allocator", "paged",
                     "--long-prefill-token-threshold", 4, "--vllm-version", version)["scenarios"][0]
    assert (found["latency_s"]["ttft"]["mean"], found["steps"]) == (ttft_s, int(ttft_s))


# ---------------------------------------------------------------------- by priority, those behind one that preempted itself
# Three blocks of 4. x is 7 + 4 at 0, priority 1; y is 3 + 2 at 1, priority 0 (more urgent, but behind x in the list).
#   0   x 7 tokens, 2 blocks              1   x its 8th, y 3 tokens in the last block
#   2   x needs a third block and is the least urgent: it preempts itself. y needs none:
#         goes on    y computes its 4th and leaves at 3; x comes back with 7 + 2 tokens at 3, its 10th at 4, leaves at 5
#         stops      nothing is scheduled, a step of 1 us; y computes its 4th in the next, x (3 blocks, 2 free) waits for it
OWN = [(0, 7, 4, 1), (1, 3, 2, 0)]


@pytest.mark.parametrize(("goes_on", "tokens"), [(True, [7, 4, 1, 9, 1]), (False, [7, 4, 0, 1, 9, 1])])
def test_own_preemption_in_the_scheduler(goes_on, tokens):
    at, prompt, output, priority = (np.array(column) for column in zip(*OWN, strict=True))
    trace = Trace("by hand", prompt, output, arrival_us=at, priority=priority)
    config = config_of(4, 4, 12, policy="priority", go_on_after_own_preemption=goes_on, longest_jump=1)
    facts, steps = steps_of(trace, config)
    assert [s.new_tokens for s in steps] == tokens
    assert [s.preempted for s in steps] == [[(0, 8)] if i == 2 else [] for i in range(len(tokens))]
    assert facts.log.finished_us.tolist() == ([5, 3] if goes_on else [6, 4])


@pytest.mark.parametrize(("version", "steps", "makespan_s"), [
    ("0.28.0", 6, 5.000001), ("0.28", 6, 5.000001), ("0.29.0", 5, 5.0), ("0.33", 5, 5.0)])
def test_own_preemption_of_a_version(capsys, tmp_path, version, steps, makespan_s):
    trace = tmp_path / "priority.csv"
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens,priority\n"
                     + "".join(f"{t},{p},{o},{u}\n" for t, p, o, u in OWN))
    arguments = (trace, *POOL, 4, "--max-model-len", 12, "--allocator", "paged", "--vllm-version", version)
    found = document(capsys, *arguments, "--scheduling-policy", "priority")["scenarios"][0]
    assert (found["steps"], found["makespan_s"], found["requests"]["preemptions"]) == (steps, makespan_s, 1)
    # First come, first served, y is the last and makes room for x in step 2, x leaves at 4 and y, back then, at 5, whatever
    # the version.
    found = document(capsys, *arguments)["scenarios"][0]
    assert (found["steps"], found["makespan_s"], found["requests"]["preemptions"]) == (5, 5, 1)


# ---------------------------------------------------------------------- versions as text
@pytest.mark.parametrize("version", ["0", "abc", "", "1", "0.", ".25", "0.25.", "0.25.1.", "0,25", "-0.25", "0.25 x", "0.25/1"])
def test_what_is_no_version_is_one_line(capsys, version):
    said = run(capsys, "compare", "--num-gpu-blocks-override", 500, f"--vllm-version={version}")
    assert (said.status, said.out) == (2, "")
    assert said.err == f"pagedsim compare: error: vLLM version {version!r}: a version such as 0.33 is wanted\n"


@pytest.mark.parametrize("version", ["0.34", "0.34.0", "1.0", "99.9.9"])
def test_a_version_from_the_future_is_one_line(capsys, version):
    said = run(capsys, "compare", "--num-gpu-blocks-override", 500, "--vllm-version", version)
    assert (said.status, said.out) == (2, "")
    assert said.err == f"pagedsim compare: error: vLLM version {version!r}: rules are known up to 0.33\n"
    with pytest.raises(InputError, match="known up to"):
        parse_version(version)


def test_asynchronous_scheduling_asked_of_an_older_version(capsys):
    for version, status in (("0.9", 2), ("0.10", 0)):
        said = run(capsys, "compare", "--limit", 5, "--num-gpu-blocks-override", 500, "--async-scheduling",
                   "--vllm-version", version, "-q")
        error = "pagedsim compare: error: --async-scheduling: vLLM 0.9 has none\n"
        assert (said.status, said.err) == (status, error if status else "")


@pytest.mark.parametrize("option", [("--swap-space", 8), ("--swap-blocks", 100)])
def test_a_swap_space_without_swapping_is_refused(capsys, option):
    said = run(capsys, "compare", "--num-gpu-blocks-override", 500, *option, "-q")
    assert (said.status, said.err) == (2, f"pagedsim compare: error: {option[0]} is for --preemption-mode swap\n")
