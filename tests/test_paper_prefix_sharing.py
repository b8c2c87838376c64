"""One prompt in front of many requests: the gain in throughput, and sharing against defragmenting, by hand and on small cases."""

import json
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from cli_run import run
from hypothesis import given
from hypothesis import strategies as st

from experiments.paper import prefix, sharing
from experiments.paper.prefix import ORACLE, PAGED, SHARED
from experiments.paper.setting import Lab
from sim.engine import simulate
from sim.step_time import ConstantStepTime, StepLoad
from workloads import transform
from workloads.synthetic import behind_one_prompt


# ---------------------------------------------------------------------- the workload
def test_an_example_takes_what_a_request_adds():
    assert (341 - 80) / 4 == 65.25
    assert prefix.OWN_MEAN + prefix.OUTPUT_MEAN == 65


def test_all_prompts_begin_alike_and_go_on_apart():
    trace = prefix.workload(Lab(), "5-shot", 400)
    starts, ids = trace.content.starts, trace.content.ids
    heads = np.array([ids[a:a + 21] for a in starts[:-1]])
    assert (heads == np.arange(21)).all()              # 336 of the 341 tokens lie in whole blocks
    own = np.concatenate([ids[a + 21:b] for a, b in pairwise(starts.tolist())])
    assert len(set(own.tolist())) == len(own) and own.min() == 21
    assert trace.prompt_tokens.mean() == pytest.approx(341 + prefix.OWN_MEAN, abs=1.5)
    assert trace.output_tokens.mean() == pytest.approx(prefix.OUTPUT_MEAN, abs=1.5)


@given(shared=st.integers(0, 80), own=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_spans_cover_every_prompt(shared, own):
    trace = behind_one_prompt(np.array(own), np.ones(len(own), np.int64), shared)
    assert np.diff(trace.content.starts).tolist() == [-(-(shared + n) // 16) for n in own]
    firsts = [trace.content.ids[a:a + shared // 16].tolist() for a in trace.content.starts[:-1]]
    assert firsts == [list(range(shared // 16))] * len(own)


# ---------------------------------------------------------------------- prefix
def test_the_second_request_computes_only_its_own_tokens():
    trace = transform.all_at_once(behind_one_prompt(np.array([10, 10, 20]), np.array([3, 3, 3]), 80))
    assert simulate(trace, prefix.CONFIG, "paged-prefix").log.hit_tokens.tolist() == [0, 80, 80]


def test_throughput_counts_what_ends_in_the_window():
    """One at a time fits: 3 requests of 2 steps; the window opens at 0 and closes when the last is admitted, at 4 steps."""
    config = prefix.replace(prefix.CONFIG, num_blocks=2, max_model_len=16, step_time=ConstantStepTime(500_000))
    trace = transform.all_at_once(behind_one_prompt(np.full(3, 10), np.full(3, 2), 0))
    found = simulate(trace, config, "paged")
    assert found.window_us == (0, 2_000_000)
    assert prefix.requests_per_s(found) == 1.0


def test_a_cost_for_each_sequence():
    step = prefix.WithSequenceCost(ConstantStepTime(1000), 7)
    assert step.duration_us(StepLoad(5, 3, 9, 9)) == 1021
    many = StepLoad(np.array([5, 5]), np.array([3, 4]), np.array([9, 9]), np.array([9, 9]))
    assert step.duration_us(many).tolist() == [1021, 1028]
    assert step.describe() == "constant 1 ms, and 0.007 ms a sequence"


def check_directions(requests=1500):
    rates = {shots: {system: prefix.requests_per_s(Lab().run(prefix.workload(Lab(), shots, requests), prefix.CONFIG, name))
                     for system, name in prefix.ALLOCATOR.items()} for shots in prefix.PREFIX_TOKENS}
    gains = {shots: of[SHARED] / of[ORACLE] for shots, of in rates.items()}
    assert 1 < gains["1-shot"] < gains["5-shot"]
    assert all(of[ORACLE] < of[PAGED] < of[SHARED] for of in rates.values())
    return gains


def test_direction_order_and_rough_size():
    rows = prefix.rows(check_directions(), judged=True)
    assert [row.ok for row in rows] == [True] * 3


def test_a_prefix_that_is_not_shared_is_caught(monkeypatch):
    monkeypatch.setitem(prefix.ALLOCATOR, SHARED, "paged")
    with pytest.raises(AssertionError):
        check_directions(400)


def test_verdicts_of_the_gains():
    assert [row.ok for row in prefix.rows({"1-shot": 0.9, "5-shot": 3.0}, judged=True)] == [False, True, True]
    assert [row.ok for row in prefix.rows({"1-shot": 3.0, "5-shot": 2.9}, judged=True)] == [True, True, False]
    assert [row.ok for row in prefix.rows({"1-shot": 3.0, "5-shot": 9.0}, judged=True)] == [True, False, True]
    assert all(row.ok is None for row in prefix.rows({"1-shot": 3.0, "5-shot": 9.0}, judged=False))


def test_the_prefix_command_on_few_requests(capsys, tmp_path):
    said = run(capsys, "reproduce", "prefix", "--limit", 60, "--out", tmp_path, "-q")
    assert said.status == 0, said.err
    document = json.loads((tmp_path / "prefix.json").read_text())
    assert {row["ok"] for row in document["rows"]} == {None}
    assert len(document["tables"][1]["rows"]) == 1 + len(prefix.variants())
    assert (tmp_path / "prefix.png").stat().st_size > 10_000


# ---------------------------------------------------------------------- sharing
def by_hand(monkeypatch, own, output):
    monkeypatch.setattr(sharing, "OWN_TOKENS", own)
    monkeypatch.setattr(sharing, "OUTPUT_TOKENS", output)


def check_three_requests_by_hand():
    """40 tokens of prompt, 10 of their own, 2 generated: 51 slots at the end, 4 blocks; 32 tokens of the prompt can be shared."""
    held = {system: sharing.slots(Lab(), system, 3, 40) for system in sharing.ALLOCATOR}
    assert held == {"Orca (Max)": 3 * 2048, "Orca (Pow2)": 3 * 52, "Orca (Oracle)": 3 * 51, "vLLM": 3 * 64,
                    sharing.SHARED: 32 + 3 * 32}
    assert sharing.saved_by(held, "Orca (Max)") == (3 * (2048 - 64), 2 * 32)


def test_three_requests_by_hand(monkeypatch):
    by_hand(monkeypatch, 10, 2)
    check_three_requests_by_hand()


def test_counting_shared_blocks_once_for_each_holder_is_caught(monkeypatch):
    by_hand(monkeypatch, 10, 2)

    def wrong(lab, system, n, tokens):
        trace = transform.all_at_once(behind_one_prompt(np.full(n, 10), np.full(n, 2), tokens))
        config = sharing.replace(sharing.CONFIG, num_blocks=1000)
        window = simulate(trace, config, sharing.ALLOCATOR[system]).window
        return Fraction(window.logical, window.time_us)
    monkeypatch.setattr(sharing, "slots", wrong)
    with pytest.raises(AssertionError):
        check_three_requests_by_hand()


@pytest.mark.parametrize(("n", "tokens"), [(2, 128), (7, 100), (20, 1024)])
def test_sharing_saves_all_but_one_prompt_in_whole_blocks(n, tokens):
    held = {system: sharing.slots(Lab(), system, n, tokens) for system in ("vLLM", sharing.SHARED)}
    assert held["vLLM"] - held[sharing.SHARED] == (n - 1) * (tokens // 16) * 16


@pytest.mark.parametrize("label", sharing.RESERVING)
def test_the_frontier_is_where_the_two_savings_cross(label):
    at = sharing.overtakes(Lab(), label, 5)
    for tokens, more in ((at, True), (at - 16, False)):
        held = {system: sharing.slots(Lab(), system, 5, tokens) for system in sharing.ALLOCATOR}
        fragmentation, shared = sharing.saved_by(held, label)
        assert (shared > fragmentation) is more


def test_against_the_maximum_the_frontier_is_the_formula():
    """(n - 1) x L > n x (2,048 - L - w), w the blocks a request holds besides, on average over its life."""
    n = 10
    alone = sharing.slots(Lab(), "vLLM", 1, 0)
    exact = n * (2048 - alone) / (2 * n - 1)
    assert exact < sharing.overtakes(Lab(), "Orca (Max)", n) <= exact + 16


def test_one_request_shares_nothing():
    assert sharing.overtakes(Lab(), "Orca (Max)", 1) is None


def test_the_sharing_command(capsys, tmp_path):
    said = run(capsys, "reproduce", "sharing", "--limit", 5, "--out", tmp_path, "-q")
    assert said.status == 0, said.err
    document = json.loads((tmp_path / "sharing.json").read_text())
    assert [row["ok"] for row in document["rows"]] == [True, None, None, None]
    assert (tmp_path / "sharing.png").stat().st_size > 10_000
