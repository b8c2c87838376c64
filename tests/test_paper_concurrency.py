"""Static, contiguous, reserved, paged, shared; pages and single tokens: counts by hand, and the machinery on a stand-in."""

from dataclasses import replace

import numpy as np
import pytest
from cli_run import lengths, run, shared_trace
from small import config_of, trace_of

from experiments.paper import concurrency, setting, vattention
from experiments.paper.concurrency import MAX, ORACLE, PAGED, POW2, RESERVE, SHARED, STATIC, Point
from experiments.paper.measures import finished_per_s, mean_running, waste_of_allocated
from experiments.paper.setting import Lab
from experiments.paper.vattention import LARGE, SMALL, Server
from sim.engine import simulate
from workloads.request import Trace


@pytest.fixture
def stand_in(tmp_path):
    """Lengths in the manner of ShareGPT's: enough to fill the paper's pool."""
    rng = np.random.default_rng(7)
    return lengths(tmp_path, [(int(p), int(o)) for p, o in zip(rng.integers(10, 700, 90), rng.integers(1, 900, 90), strict=True)])


# ---------------------------------------------------------------------- by hand
def test_a_static_batch_lasts_as_long_as_its_longest():
    # Two places of 8 slots; outputs 2, 6, 2, 6. Static: {2, 6} then {2, 6}: 12 steps. Continuous: the third joins at step 3,
    # the fourth at step 5: 10 steps.
    trace = trace_of([(2, 2), (2, 6), (2, 2), (2, 6)])
    steps = {batching: simulate(trace, config_of(5, 4, 8, saturate=True, batching=batching), "contiguous-max").steps
             for batching in ("static", "continuous")}
    assert steps == {"static": 12, "continuous": 10}


def test_every_way_gets_the_same_slots():
    assert {config.usable_slots for config in concurrency.CONFIG.values()} == {15_728}
    assert concurrency.CONFIG[STATIC].scheduler.batching == "static"
    assert {concurrency.CONFIG[way].scheduler.batching for way in concurrency.WAYS if way != STATIC} == {"continuous"}


def test_requests_behind_a_common_prompt():
    found = concurrency.behind_common_prompt(Trace("three", np.array([17, 1200, 1]), np.array([5, 600, 3])))
    assert found.prompt_tokens.tolist() == [529, 513]  # 512 + 1,200 + 600 is over 2,048
    assert found.dropped == {"over_max_total_tokens": 1}
    starts, ids = found.content.starts.tolist(), found.content.ids
    assert starts == [0, 34, 67]                       # 32 common spans, and 2 or 1 of their own
    assert ids[:32].tolist() == ids[34:66].tolist() == list(range(32))
    own = [*ids[32:34].tolist(), int(ids[66])]
    assert len(set(own)) == 3
    assert min(own) >= 32


def test_a_common_prompt_is_kept_once():
    trace = concurrency.behind_common_prompt(Trace("alike", np.full(6, 16), np.full(6, 1)))
    config = replace(concurrency.CONFIG[SHARED], num_blocks=40)
    peaks = {way: simulate(trace, config, concurrency.WAYS[way]).ledger.peak_running for way in (PAGED, SHARED)}
    assert peaks == {PAGED: 1, SHARED: 6}              # 33 blocks each of 39; or 32 common ones and 6 more


def check_what_is_reserved(trace):
    # 128 blocks of 16 hold two reservations of 1,024 slots; the longer output has its own.
    config = config_of(129, 16, 2048, saturate=True, max_num_batched_tokens=None, max_num_seqs=None)
    assert simulate(trace, config, "paged-reserve").ledger.peak_running == 2


def test_guaranteed_no_evict_reserves_what_clients_ask_for():
    check_what_is_reserved(replace(trace_of([(16, 9)] * 5), max_tokens=np.full(5, 1009)))


def test_a_reservation_of_the_output_alone_is_caught():
    with pytest.raises(AssertionError):
        check_what_is_reserved(replace(trace_of([(16, 9)] * 5), max_tokens=np.full(5, 9)))


def rates(**changes):
    per_s = {STATIC: 0.4, MAX: 0.9, POW2: 1.2, ORACLE: 1.5, RESERVE: 1.4, PAGED: 3.0, **changes}
    return {way: Point(1.0, 1.0, 1.0, value, 0.8 * value, 0) for way, value in per_s.items()}


def test_rows_judge_what_is_published_and_quote_the_rest():
    found = concurrency.rows(rates(), judged=True)
    assert [row.ok for row in found] == [True, True, True, None, None, None, None]
    assert [row.published for row in found] == [None, None, None, None, 24.0, 22.0, 3.5]
    assert [round(row.ours, 3) for row in found] == [3.333, 2.0, 2.5, 1.6, 7.5, 7.5, 3.333]
    assert [row.ok for row in concurrency.rows(rates(**{ORACLE: 2.0, MAX: 1.2}), judged=True)][:2] == [False, False]
    assert {row.ok for row in concurrency.rows(rates(), judged=False)} == {None}


# ---------------------------------------------------------------------- pages and tokens
@pytest.mark.parametrize(("model", "gpus", "page", "tokens"), [
    ("Yi-6B", 1, SMALL, 64), ("Yi-6B", 1, LARGE, 2048), ("Llama-3-8B", 1, SMALL, 32), ("Llama-3-8B", 1, LARGE, 1024),
    ("Llama-3-8B", 2, SMALL, 64), ("Llama-3-8B", 2, LARGE, 2048), ("Llama-3-8B", 16, SMALL, 256)])  # 8 heads: one a GPU at 8
def test_tokens_in_a_page(model, gpus, page, tokens):
    assert Server(model, gpus).page_slots(page) == tokens


def test_the_arithmetic_is_exact_and_a_wrong_head_count_is_caught(monkeypatch):
    assert {row.ok for row in vattention.arithmetic()} == {True}
    assert [row.difference for row in vattention.arithmetic()][:7] == [0] * 7
    right = vattention.kv_formula.tokens_per_page
    monkeypatch.setattr(vattention.kv_formula, "tokens_per_page", lambda page, heads, width: right(page, 32, width))
    assert not all(row.ok for row in vattention.arithmetic())


def test_pools_of_the_same_bytes():
    one, two = (vattention.CONFIG[server]["blocks of 16"].usable_slots for server in vattention.SERVERS)
    assert (one, two) == (12 * 2**30 // 131_072, 12 * 2**30 // 65_536)


def test_calls_of_a_request():
    # 100, 1 and 65 token states in pages of 64: 2, 1 and 2 page groups of K and V in 32 layers.
    trace = Trace("three", np.array([90, 1, 65]), np.array([11, 1, 1]))
    assert Server("Llama-3-8B", 2).mappings == 64
    assert vattention.calls_of(Server("Llama-3-8B", 2), 64, trace) == 64 * 5 / 3


def test_a_page_as_large_as_the_reservation_wastes_as_much():
    trace = trace_of([(2, 3), (3, 2), (1, 4), (4, 4)])
    config = config_of(9, 2, 8, saturate=True, page_slots=8)
    found = {name: simulate(trace, config, name) for name in ("contiguous-max", "vattention", "token")}
    assert waste_of_allocated(found["vattention"]) == waste_of_allocated(found["contiguous-max"]) > 0
    assert mean_running(found["vattention"]) == mean_running(found["contiguous-max"])
    assert waste_of_allocated(found["token"]) == 0


# ---------------------------------------------------------------------- the machinery
def test_concurrency_on_a_stand_in(capsys, stand_in, tmp_path):
    picture = tmp_path / "c.svg"
    said = run(capsys, "reproduce", "concurrency", "--trace", stand_in, "--plot", picture, "-q")
    assert (said.status, said.err) == (0, "")
    assert "step time of all: roofline (25.7 GB" in said.out
    assert picture.read_text().startswith("<?xml")
    outcome = concurrency.run(Lab(str(stand_in)))
    plain = dict(zip(concurrency.WAYS, outcome.data[concurrency.PLAIN]["per_s"], strict=False))
    assert plain[PAGED] > plain[ORACLE] > plain[MAX] > plain[STATIC]
    assert SHARED not in plain
    prompted = dict(zip(concurrency.WAYS, outcome.data[concurrency.PROMPTED]["running"], strict=True))
    assert prompted[SHARED] > prompted[PAGED]
    reserved = outcome.tables[-1].rows                 # 512, 1,024 and 2,048: the more they ask for, the fewer run
    assert reserved[0][1] > reserved[1][1] > reserved[2][1]
    assert all(row.ok is None for row in outcome.rows)


def test_vattention_on_a_stand_in(capsys, stand_in, tmp_path):
    picture = tmp_path / "v.svg"
    said = run(capsys, "reproduce", "vattention", "--trace", stand_in, "--plot", picture, "-q")
    assert (said.status, said.err) == (0, "")
    assert "9 of 9 numbers with a verdict inside their tolerance; 1 more" in said.out   # arithmetic wants no trace
    assert picture.read_text().startswith("<?xml")


# ---------------------------------------------------------------------- the real lengths
@pytest.fixture(scope="module")
def sharegpt():
    return Lab(str(shared_trace(setting.FILE)))


def test_published_gains_on_the_real_lengths(sharegpt):
    trace = sharegpt.sharegpt(1500)
    ways = [way for way in concurrency.WAYS if way not in (SHARED, RESERVE)]
    per_s = {way: finished_per_s(sharegpt.run(trace, concurrency.CONFIG[way], concurrency.WAYS[way])) for way in ways}
    found = concurrency.rows(rates(**per_s), judged=True)
    assert [row.label for row in found if row.ok is False] == []
    assert per_s[MAX] > 2 * per_s[STATIC]


def test_pages_on_the_real_lengths(sharegpt):
    trace = sharegpt.sharegpt(1500)
    server = vattention.SERVERS[0]
    waste = {way: waste_of_allocated(sharegpt.run(trace, vattention.CONFIG[server][way], name))
             for way, (name, _) in vattention.WAYS.items()}
    assert list(waste) == sorted(waste, key=waste.__getitem__, reverse=True)
    assert waste["single tokens"] == 0
