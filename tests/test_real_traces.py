"""The main job on real traffic, against published and recorded figures; needs the public traces."""

import pytest
from cli_run import SHARED, document

TRACES = SHARED / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces are not here (set PAGEDSIM_SHARED)")
FIVE = ["contiguous-max", "contiguous-pow2", "contiguous-oracle", "paged", "paged-prefix"]


@pytest.mark.parametrize(("trace", "model", "gpu", "limit"), [
    ("azure-2023/AzureLLMInferenceTrace_conv.csv", "Llama-2-13B", "A100-40GB", 800),
    ("mooncake/conversation_trace.jsonl", "Llama-3.1-8B", "H100-80GB", 400),
])
def test_five_allocators_on_real_traffic(capsys, trace, model, gpu, limit):
    result = document(capsys, TRACES / trace, "--model", model, "--gpu", gpu, "--limit", limit)
    assert [s["allocator"] for s in result["scenarios"]] == FIVE
    assert all(check["ok"] for check in result["crosscheck"])
    for s in result["scenarios"]:
        counts = s["requests"]
        assert counts["arrived"] == limit == counts["completed"] + sum(counts["rejected"].values())


def test_figure_2_of_the_paper_orca_max(capsys):
    # PagedAttention paper, Figure 2: token 20.4, reservation 13.3, internal 57.3, external and others 8.9 %; 7 at once.
    result = document(capsys, TRACES / "vllm-sosp23/sharegpt_first_turn_lengths_opt.csv.gz", "--max-total-tokens", 2048,
                      "--model", "opt-13b", "--num-gpu-blocks-override", 984, "--max-model-len", 2048, "--shuffle", "--saturate",
                      "--limit", 12_000, "--allocator", "contiguous-max")
    assert result["trace"]["dropped"] == {"over_max_total_tokens": 84_226 - 79_731}
    scenario = result["scenarios"][0]
    assert scenario["concurrency"] == {"mean": 7.0, "p50": 7, "p99": 7, "peak": 7}
    memory = scenario["memory"]
    others = memory["external"] + memory["remainder"] + memory["idle"]
    ours = (memory["token_states"], memory["reserved"], memory["internal"], others)
    for share, published in zip(ours, (20.4, 13.3, 57.3, 8.9), strict=True):
        assert abs(100 * share - published) <= 1.0


def test_endless_cache_on_mooncake(capsys):
    # Every full 512-token block seen before in the same prefix: 105,592 of them, 0.37338 of all prompt tokens.
    result = document(capsys, TRACES / "mooncake/conversation_trace.jsonl", "--allocator", "paged-prefix",
                      "--block-size", 512, "--num-gpu-blocks-override", 400_000)
    found = result["scenarios"][0]["prefix_cache"]
    assert (found["query_tokens"], found["hit_tokens"], found["evicted_blocks"]) == (144_793_823, 54_063_104, 0)
    assert round(found["hit_rate"], 5) == 0.37338
