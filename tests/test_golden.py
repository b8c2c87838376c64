"""Every decision of the real scheduler, as recorded: block ids, order of the free queue, statistics."""

import pytest
from golden_case import GOLDEN, load, replay

NOT_YET = {
    "async_scheduling": "asynchronous scheduling",
    "preempt_priority": "priority policy",
    "sliding_window": "sliding-window groups",
    "hybrid_full_sliding": "several KV cache groups",
}
CASES = sorted(p.stem for p in GOLDEN.glob("*.json")
               if p.stem not in {"large", "capacity", "capacity_more"} and p.stem not in NOT_YET)


def in_order_within_a_step(events):
    """The recorder interleaves preemptions and evictions as they happen; here their order within a step is not held."""
    kinds = {"preempt": 0, "evict": 1, "admit": 2, "resume": 2, "grow": 3, "finish": 4}
    return sorted(events, key=lambda e: (e[1], kinds[e[0]]))


@pytest.mark.parametrize("name", CASES)
def test_decisions(name):
    case = load(name)
    expected = case["result"]
    _, recorder = replay(case)
    assert in_order_within_a_step(recorder.events) == in_order_within_a_step(expected["events"])
    assert recorder.rows == expected["step_rows"]
    assert recorder.cached == expected["cached_tokens_at_admission"]


def outcome(run):
    pool = run.allocator.pool
    stats = run.allocator.stats
    return {
        "stuck": len(run.stuck), "preemptions": run.preemptions, "blocks_evicted": pool.evicted,
        "peak_running": run.ledger.peak_running, "peak_used": run.ledger.peak_used // run.config.block_size,
        "queries": stats and stats.query_tokens, "hits": stats and stats.hit_tokens,
        "preempted_queries": stats and stats.resume_query_tokens, "preempted_hits": stats and stats.resume_hit_tokens,
        "final_free_blocks": pool.free, "final_cached_blocks": int((pool.hash_of >= 0).sum()),
        "final_free_queue": pool.free_queue().tolist(),
    }


@pytest.mark.parametrize("name", CASES)
def test_totals(name):
    case = load(name)
    want = case["result"]
    got = outcome(replay(case)[0])
    prefix = want["prefix_cache"] if case["config"]["enable_prefix_caching"] else {}
    assert got == {
        "stuck": len(want["stuck"]), "preemptions": want["preemptions"], "blocks_evicted": want["blocks_evicted"],
        "peak_running": want["peak_running"], "peak_used": want["peak_used_blocks"],
        **{k: prefix.get(k) for k in ("queries", "hits", "preempted_queries", "preempted_hits")},
        "final_free_blocks": want["final_free_blocks"], "final_cached_blocks": want["final_cached_blocks"],
        "final_free_queue": want["final_free_queue"],
    }


@pytest.mark.parametrize("name", CASES)
def test_jumping_equals_stepping(name):
    case = load(name)
    stepped, jumped = replay(case)[0], replay(case, longest_jump=50)[0]
    assert outcome(jumped) == outcome(stepped)
    assert jumped.window == stepped.window
    assert jumped.steps == stepped.steps
    for column in ("admitted_us", "first_token_us", "finished_us", "residence_us", "token_us"):
        assert list(getattr(jumped.log, column)) == list(getattr(stepped.log, column)), column
