"""`pagedsim plan`: the object of the contract, the refusal, the inverse, the knobs, pasted commands, cost, pictures, errors."""

import json
import math
from pathlib import Path

import pytest

from sim.sizing.hardware import GIB
from tests.cli_run import run

LLAMA = ("--model", "Llama-3.1-8B", "--gpu", "H100", "--max-model-len", "8192")
FIELDS = ("schema", "model", "gpu", "kv_bytes_per_token", "kv_bytes_per_block", "weights_gib", "activation_gib", "overhead_gib",
            "available_kv_gib", "num_blocks", "kv_tokens", "max_model_len", "max_concurrency", "fits", "log_lines", "knobs")


def planned(capsys, *arguments):
    said = run(capsys, "plan", "--json", "-", *arguments)
    assert said.status == 0, said.err
    return json.loads(said.out)


def complaint(capsys, *arguments):
    said = run(capsys, "plan", *arguments)
    assert (said.status, said.out) == (2, "")
    assert said.err.count("\n") == 1 and "Traceback" not in said.err
    return said.err


# ---------------------------------------------------------------------- the object
def test_the_object_of_the_contract(capsys):
    made = planned(capsys, *LLAMA)
    assert [name for name in FIELDS if name not in made] == []
    assert (made["schema"], made["kv_bytes_per_token"], made["kv_bytes_per_block"]) == (1, 131_072, 2_097_152)
    assert made["num_blocks"] == math.floor(made["available_kv_gib"] * GIB / 2_097_152)
    assert made["kv_tokens"] == made["num_blocks"] * 16
    assert made["max_concurrency"] == made["num_blocks"] / 512
    assert made["log_lines"] == [f"GPU KV cache size: {made['kv_tokens']:,} tokens",
                                 f"Maximum concurrency for 8,192 tokens per request: {made['max_concurrency']:.2f}x"]
    usable, *parts = (term["gib"] for term in made["budget"])
    assert usable - sum(parts) == pytest.approx(made["available_kv_gib"], abs=1e-9)
    assert made["weights_gib"] == pytest.approx(14.9888, abs=5e-5)        # as start-up log v001 prints it
    assert all(term["assumption"] for term in made["budget"])
    assert made["fits"] is True and made["refusal"] is None


def test_a_given_budget_is_exact(capsys):
    made = planned(capsys, "--model", "Llama-3.1-8B", "--available-kv-gib", "40", "--max-model-len", "8001")
    assert (made["num_blocks"], made["kv_tokens"], made["available_kv_gib"]) == (20480, 327_066, 40.0)
    assert made["weights_gib"] is None and made["budget"] == [] and made["inverse"]["smallest_gpu"] is None
    assert made["log_lines"][1] == "Maximum concurrency for 8,001 tokens per request: 40.88x"


def test_a_given_pool_needs_no_model(capsys):
    made = planned(capsys, "--num-gpu-blocks-override", "1000", "--max-model-len", "8192")
    assert (made["kv_tokens"], made["max_concurrency"]) == (16_000, 1.953125)
    assert made["model"] is None and made["kv_bytes_per_token"] is None
    assert made["knobs"] == [] and made["fits"] is True
    assert "--max-model-len is wanted" in complaint(capsys, "--num-gpu-blocks-override", "1000")


def test_the_same_command_gives_the_same_bytes(capsys, tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    for path in (first, second):
        assert run(capsys, "plan", *LLAMA, "--json", str(path)).status == 0
    assert first.read_bytes() == second.read_bytes()


def test_three_measured_terms_leave_nothing_for_graphs(capsys):
    made = planned(capsys, "--model", "Llama-3.1-8B", "--gpu", "H100", "--max-model-len", "16000", "--weights-gib", "14.99",
                   "--activation-gib", "4.76", "--non-torch-gib", "0.13", "--total-gpu-gib", "79.18",
                   "--gpu-memory-utilization", "0.9")
    assert made["available_kv_gib"] == pytest.approx(51.38, abs=0.02)     # start-up log v157
    assert made["budget"][-1]["gib"] == 0


def test_measured_terms_replace_predicted_ones(capsys):
    """Start-up log v155: 79.18 x 0.9 - 33.88 - 4.84 - 0.55 leaves 32.0 GiB."""
    made = planned(capsys, "--model", "Llama-3.3-70B", "--gpu", "H100", "-tp", "2", "--gpu-memory-utilization", "0.9",
                   "--max-model-len", "16000", "--weights-gib", "33.88", "--activation-gib", "4.84", "--non-torch-gib", "0.55",
                   "--cuda-graph-gib", "0", "--total-gpu-gib", "79.18")
    assert made["available_kv_gib"] == pytest.approx(32.0, abs=0.02)
    assert [term["assumption"] for term in made["budget"][1:]] == ["measured"] * 4


# ---------------------------------------------------------------------- what it says
def test_what_does_not_start_is_an_answer(capsys):
    made = planned(capsys, "--model", "Llama-3.1-8B", "--gpu", "L4")
    assert made["fits"] is False
    longest = made["inverse"]["longest_max_model_len"]
    assert longest == (made["num_blocks"] - 1) * 16                       # the null block is set aside
    assert f"the longest that fits is {longest:,} tokens" in made["refusal"]
    assert "needs 16.00 GiB" in made["refusal"]
    again = planned(capsys, "--model", "Llama-3.1-8B", "--gpu", "L4", "--max-model-len", str(longest))
    assert again["fits"] is True
    assert planned(capsys, "--model", "Llama-3.1-8B", "--gpu", "L4", "--max-model-len", str(longest + 1))["fits"] is False
    assert planned(capsys, "--model", "Llama-3.1-8B", "--gpu", "L4", "--max-model-len", "auto")["max_model_len"] == longest


def test_nothing_left_is_an_answer_too(capsys):
    made = planned(capsys, "--model", "Llama-3.3-70B", "--gpu", "24GB")
    assert (made["fits"], made["num_blocks"], made["log_lines"]) == (False, 0, [])
    assert "no memory is left" in made["refusal"]
    assert made["available_kv_gib"] < 0 and made["inverse"]["longest_max_model_len"] == 0
    size = made["inverse"]["smallest_tensor_parallel_size"]
    for tensor, fits in ((size, True), (size // 2, False)):
        assert planned(capsys, "--model", "Llama-3.3-70B", "--gpu", "24GB", "-tp", str(tensor))["fits"] is fits


def test_the_smallest_card_serves_and_smaller_ones_do_not(capsys):
    made = planned(capsys, *LLAMA)
    card = made["inverse"]["smallest_gpu"]
    assert planned(capsys, *LLAMA[:2], "--gpu", card["name"], *LLAMA[4:])["fits"] is True
    assert planned(capsys, *LLAMA[:2], "--gpu", "RTX 2060 12GB", *LLAMA[4:])["fits"] is False


def test_knobs_come_in_the_order_they_are_taught(capsys):
    knobs = planned(capsys, *LLAMA)["knobs"]
    names = [knob["name"] for knob in knobs]
    assert names[:3] == ["KV cache dtype", "context limit", "weights"]
    by_name = {knob["name"]: knob for knob in knobs}
    assert by_name["KV cache dtype"]["gain"] == pytest.approx(2, abs=0.01)
    assert by_name["context limit"]["gain"] == pytest.approx(2, abs=0.01)
    for knob in knobs:                                                    # each is what the plan of that change says
        change = [word for word in knob["change"].split() if not word.startswith("(")]
        made = planned(capsys, *LLAMA, *change[:2])
        assert (made["kv_tokens"], made["max_concurrency"]) == (knob["kv_tokens"], knob["max_concurrency"]), knob


def test_hybrids_say_that_tokens_are_no_cost(capsys):
    made = planned(capsys, "--model", "gpt-oss-20b", "--gpu", "H100", "--max-model-len", "131072")
    assert any("no per-token cost" in warning for warning in made["warnings"])
    assert made["kv_bytes_per_token"] == 2 * made["kv_bytes_per_further_token"] == 49_152
    kinds = {group["kind"]: group for group in made["layer_groups"]}
    assert kinds["sliding"]["reach_tokens"] == 128
    assert kinds["sliding"]["blocks_per_request"] == math.ceil((127 + 8192) / 16) + 1
    assert kinds["full"]["blocks_per_request"] == 8192
    assert not any("no per-token cost" in warning for warning in planned(capsys, *LLAMA)["warnings"])


def test_warnings(capsys, tmp_path):
    full = planned(capsys, "--model", "Llama-2-13b", "--gpu", "28GB", "--max-model-len", "512")
    assert any("% of the card" in warning for warning in full["warnings"])
    replicated = planned(capsys, "--model", "Llama-3.1-8B", "--gpu", "H100", "-tp", "16")
    assert any("8 KV heads on 16 GPUs: each is kept 2 times" in warning for warning in replicated["warnings"])
    longer = planned(capsys, "--model", "Llama-3.1-8B", "--gpu", "H100", "--max-model-len", "131073")
    assert any("VLLM_ALLOW_LONG_MAX_MODEL_LEN" in warning for warning in longer["warnings"])
    config = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096, "intermediate_size": 14336,
              "vocab_size": 128256, "max_position_embeddings": 8192, "model_type": "llama"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    inferred = planned(capsys, "--model", str(path), "--gpu", "H100")
    assert any("taken for KV heads" in warning for warning in inferred["warnings"])


# ---------------------------------------------------------------------- parallel
def test_pipeline_stages_and_the_smallest_decides(capsys):
    """126 layers on 4 stages: 31, 32, 32, 31; the stages with 32 layers have the larger block."""
    made = planned(capsys, "--model", "Llama-3.1-405B", "--available-kv-gib", "10", "-tp", "8", "-pp", "4",
                   "--max-model-len", "8192")
    assert made["kv_bytes_per_block"] == 32 * 2 * 128 * 2 * 16
    assert made["num_blocks"] == 10 * GIB // made["kv_bytes_per_block"]


def test_decode_context_parallel_spreads_a_request(capsys):
    made = planned(capsys, "--model", "GLM-5.1", "--kv-cache-dtype", "fp8", "--available-kv-gib", "18.42", "--block-size", "64",
                   "-tp", "8", "-dcp", "2", "--mtp-layers", "1", "--max-model-len", "202752")
    assert made["max_concurrency"] == made["num_blocks"] / 1584


def test_expert_parallel_divides_the_experts_of_replicas(capsys):
    one = planned(capsys, "--model", "DeepSeek-V3", "--gpu", "H200", "-tp", "8")
    wide = planned(capsys, "--model", "DeepSeek-V3", "--gpu", "H200", "-tp", "8", "-dp", "2", "-ep")
    assert wide["weights_gib"] < 0.6 * one["weights_gib"]


def test_offload_moves_weights(capsys):
    before, after = planned(capsys, *LLAMA), planned(capsys, *LLAMA, "--cpu-offload-gb", "4")
    assert before["weights_gib"] - after["weights_gib"] == pytest.approx(4)
    assert after["available_kv_gib"] - before["available_kv_gib"] == pytest.approx(4)


def test_the_report_of_other_versions_is_in_the_object(capsys):
    """Start-up logs v017 (0.11 to 0.20) and v104 are hybrids: the newest rule prints another number for the same bytes."""
    made = planned(capsys, "--model", "gpt-oss-120b", "--available-kv-gib", "5.38")
    counts = {tuple(entry["versions"]): entry["kv_tokens"] for entry in made["by_version"]}
    assert counts["0.10.2", "0.20.2"] == made["num_blocks"] // 2 * 16
    assert made["by_version"][-1]["kv_tokens"] == made["kv_tokens"]
    plain = planned(capsys, *LLAMA)["by_version"]
    assert {entry["kv_tokens"] for entry in plain} == {plain[-1]["kv_tokens"]}


def test_older_versions_have_their_own_rules(capsys):
    arguments = ("--model", "gpt-oss-120b", "--available-kv-gib", "5.38")
    old, new = (planned(capsys, *arguments, *more) for more in (("--vllm-version", "0.19.1"), ()))
    assert old["num_blocks"] == new["num_blocks"]
    assert old["kv_tokens"] == old["num_blocks"] // 2 * 16
    assert new["kv_tokens"] == int(new["max_concurrency"] * 131_072)
    assert any("newest" in note for note in new["notes"]) and not any("newest" in note for note in old["notes"])


def test_the_first_engine_prints_blocks(capsys):
    """Start-up log v131: Llama-3-8B on vLLM 0.5.2 had 2,048 CPU blocks."""
    made = planned(capsys, "--model", "Llama-3-8B", "--available-kv-gib", "25.55", "--vllm-version", "0.5.2")
    assert any("# CPU blocks: 2048" in note for note in made["notes"])


# ---------------------------------------------------------------------- pasted commands
def test_a_pasted_command(capsys):
    pasted = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192 --port 8000 --api-key secret --enable-lora"
    made = planned(capsys, "--gpu", "H100", "--", *pasted.split())
    assert made["max_model_len"] == 8192 and made["model"]["name"].endswith("Llama-3.1-8B")
    notes = " ".join(made["notes"])
    assert "--port, --api-key" in notes and "--enable-lora is not modelled" in notes and "secret" not in notes


def test_own_options_go_before_a_pasted_command(capsys):
    said = run(capsys, "plan", "--gpu", "H100", "--json", "-", "--vllm-version", "0.19", "--max-model-len", "4096", "--",
               "vllm", "serve", "openai/gpt-oss-20b", "--max-model-len", "131072")
    made = json.loads(said.out)
    assert (made["max_model_len"], made["vllm_version"]) == (4096, "0.19")


def test_an_unknown_flag_of_a_pasted_command_is_named(capsys):
    assert "--max-model-lenn" in complaint(capsys, "--", "vllm", "serve", "Qwen/Qwen3-8B", "--max-model-lenn", "8192")


def test_own_options_that_replace_pasted_ones_are_said(capsys):
    made = planned(capsys, "--gpu", "H100", "-tp", "2", "--model", "Qwen3-8B", "--", "vllm", "serve", "Qwen/Qwen3-4B")
    assert made["model"]["name"] == "Qwen/Qwen3-8B"
    assert any("--model=Qwen/Qwen3-4B" in note for note in made["notes"])


@pytest.mark.parametrize("method", ["awq_marlin", "AWQ", "gptq_marlin", "fp8", "modelopt_fp4", "Q4_K_M", "fp32"])
def test_quantisation_methods_as_vllm_names_them(capsys, method):
    made = planned(capsys, "--gpu", "H100", "--", "vllm", "serve", "meta-llama/Llama-3.1-8B", "--quantization", method)
    assert made["weights_gib"] > 3


def test_a_method_that_says_no_bits_takes_the_checkpoint_s(capsys):
    made = planned(capsys, "--gpu", "H100", "-tp", "8", "--", "vllm", "serve", "moonshotai/Kimi-K2-Thinking", "-q",
                   "compressed-tensors")
    assert "w4a16" in made["model"]["weights"]
    assert "has no quantization_config" in complaint(capsys, "--model", "Llama-3.1-8B", "--quantization", "compressed-tensors")


# ---------------------------------------------------------------------- the worst moment, and cost
def test_worst_moment_and_mean(capsys):
    request = planned(capsys, *LLAMA, "--prompt-tokens", "2000", "--output-tokens", "500")["cost"]["request"]
    assert (request["worst_tokens"], request["mean_tokens"]) == (2500, 2250)
    blocks = planned(capsys, *LLAMA)["num_blocks"]
    assert (request["worst_concurrency"], request["mean_concurrency"]) == (blocks / 157, blocks / 141)


def test_a_month_of_an_api_and_the_break_even(capsys):
    cost = planned(capsys, *LLAMA, "--prompt-tokens", "2000", "--output-tokens", "500", "--requests-per-day", "1000",
                   "--price-input", "0.15", "--price-output", "0.6", "--gpu-hour", "2.5", "--throughput", "10000")["cost"]
    assert (cost["api"]["input_tokens_per_month"], cost["api"]["output_tokens_per_month"]) == (60e6, 15e6)
    assert cost["api"]["dollars_per_month"] == 18.0
    assert cost["gpus"]["dollars_per_month"] == 1800.0
    assert cost["gpus"]["dollars_per_million_tokens"] == pytest.approx(2.5 / 3600 / 10_000 * 1e6)
    assert cost["break_even"]["requests_per_day"] == 100_000 and cost["break_even"]["within_throughput"] is True


def test_throughput_from_a_comparison(capsys, tmp_path):
    path = tmp_path / "compare.json"
    assert run(capsys, "compare", "--limit", "50", "--allocator", "paged", "--json", str(path)).status == 0
    measured = json.loads(path.read_text())["scenarios"][0]["throughput"]["total_tokens_per_s"]
    cost = planned(capsys, *LLAMA, "--gpu-hour", "2", "--throughput-from", str(path))["cost"]
    assert cost["gpus"]["tokens_per_s"] == measured
    for text in ("[]", "{", '{"scenarios": [{"throughput": {"total_tokens_per_s": null}}]}'):
        path.write_text(text)
        assert "compare.json" in complaint(capsys, *LLAMA, "--gpu-hour", "2", "--throughput-from", str(path))


# ---------------------------------------------------------------------- output and errors
def test_the_report_for_people(capsys):
    said = run(capsys, "plan", *LLAMA, "--requests-per-day", "10", "--prompt-tokens", "100", "--output-tokens", "10")
    assert said.status == 0 and said.err == ""
    for text in ("GPU KV cache size: ", "Maximum concurrency for 8,192", "left for KV", "KV cache dtype", "x 1.15 + 1 GiB",
                 "79.18 GiB = 85.02 GB, labelled 80 GB", "worst case", "bytes a token"):
        assert text in said.out
    assert max(map(len, said.out.splitlines())) < 200


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_picture_of_the_card(capsys, tmp_path, suffix):
    path = tmp_path / f"memory{suffix}"
    assert run(capsys, "plan", *LLAMA, "--plot", str(path)).status == 0
    assert path.stat().st_size > 2000
    if suffix == ".svg":
        assert "KV cache, 5" in path.read_text()


def test_the_parts_of_the_picture_add_up_to_the_card(capsys):
    from experiments.planning.figure import parts

    made = planned(capsys, *LLAMA)
    assert sum(gib for _, gib in parts(made)) == pytest.approx(made["gpu"]["memory_gib"])


@pytest.mark.parametrize("more", [
    (), ("--max-model-len", "8001"), ("--max-model-len", "8001", "--vllm-version", "0.8.5"),
    ("--vllm-version", "0.13.0", "-pp", "2"),
    ("--max-model-len", "784"), ("--model", "DeepSeek-R1", "-tp", "16"), ("--block-size", "48"),
    ("--model", "gemma-3-27b", "-tp", "2"),
    ("--num-gpu-blocks-override", "300")])
def test_a_plan_keeps_its_identities(capsys, more):
    made = planned(capsys, *LLAMA, *more)
    checks = made["crosscheck"]
    assert [check for check in checks if not check["ok"]] == [] and len(checks) == (2 if "gemma-3-27b" in more else 4)
    size, blocks = made["kv_bytes_per_block"], made["num_blocks"]
    assert (checks[0]["simulated"], checks[1]["analytic"]) == (blocks * size, (blocks + 1) * size - 1)
    assert checks[0]["analytic"] == checks[1]["simulated"] == made["available_kv_gib"] * GIB
    if len(checks) > 2:
        assert checks[2]["simulated"] == made["kv_tokens"]
        assert f"{checks[3]['simulated'] / 100:.2f}x" == made["log_lines"][1].split()[-1]


def test_identities_of_one_plan_by_hand(capsys):
    checks = planned(capsys, *LLAMA)["crosscheck"]
    assert [check["name"] for check in checks[2:]] == ["tokens = blocks x block size",
                                                       "concurrency as printed, hundredths = tokens / max_model_len"]
    assert [check["analytic"] for check in checks[2:]] == [27125 * 16, 5298]       # 27,125 blocks; 434,000 / 8,192 = 52.98
    assert planned(capsys, "--num-gpu-blocks-override", "300", "--max-model-len", "1000")["crosscheck"][0]["analytic"] == 4761


def test_the_picture_of_what_does_not_fit_shows_by_how_much(capsys, tmp_path):
    from matplotlib.figure import Figure

    from experiments.planning.figure import draw_budget, parts

    tight = ("--model", "Mistral-Small-Instruct-2409", "--gpu", "L40S", "--max-model-len", "8192")
    made = planned(capsys, *tight)
    usable, *taken = (term["gib"] for term in made["budget"])
    assert usable == math.ceil(made["gpu"]["memory_gib"] * GIB * 0.92) / GIB            # 40.97 GiB
    assert round(sum(taken) - usable, 2) == 1.01 == -round(made["available_kv_gib"], 2)
    assert parts(made) == [*((term["name"], term["gib"]) for term in made["budget"][1:]), ("over the limit", 1.005880681797862)]
    axes = Figure().subplots()
    draw_budget(axes, made)
    over = axes.patches[-1]
    assert (over.get_x(), round(over.get_width(), 4)) == (usable, 1.0059) and over.get_hatch() and len(axes.patches) == 5
    assert over.get_x() + over.get_width() == pytest.approx(axes.patches[-2].get_x() + axes.patches[-2].get_width(), abs=1e-8)
    path = tmp_path / "memory.svg"
    assert run(capsys, "plan", *tight, "--plot", str(path)).status == 0
    drawn = path.read_text()
    assert all(f"<!-- {text} -->" in drawn for text in ("over the limit, 1.01 GiB", "usable, 40.97 GiB", "memory, 44.53 GiB",
                                                        "mistralai/Mistral-Small-Instruct-2409 on 1 x L40S: does not fit"))
    assert "not used" not in drawn and "KV cache" not in drawn


@pytest.mark.parametrize(("arguments", "said"), [
    (("--model", "Llama-9"), "unknown model 'Llama-9'"),
    (("--gpu", "H1000"), "unknown GPU"),
    (("--model", "Llama-3.1-8B", "--kv-cache-dtype", "fp3"), "--kv-cache-dtype 'fp3'"),
    (("--model", "Llama-3.1-8B", "--quantization", "zip"), "'zip'"),
    (("--model", "Llama-3.1-8B", "-tp", "3"), "tensor_parallel_size 3"),
    (("--model", "Llama-3.1-8B", "-pp", "33"), "pipeline_parallel_size 33"),
    (("--vllm-version", "newest"), "vLLM version 'newest'"), (("--vllm-version", "0.99"), "up to 0.33"),
    (("--max-model-len", "0"), "--max-model-len"), (("--gpu-memory-utilization", "1.2"), "1.2"),
    (("--requests-per-day", "5"), "--prompt-tokens"), (("--throughput", "5"), "--gpu-hour"),
    (("--plot", "memory.txt"), ".png"),
    (("--available-kv-gib", "4", "--plot", "m.png", "--model", "opt-125m"), "no budget to draw"),
    (("--available-kv-gib", "nan"), "nan"), (("--max-model-length", "4"), "--max-model-length"),
    (("--model", "Llama-3.1-8B", "-dcp", "2"), "does not divide tensor_parallel_size 1"),
    (("--model", "Llama-3.1-8B", "-tp", "4", "-dcp", "3"), "does not divide tensor_parallel_size 4"),
    (("--model", "Llama-3.1-8B", "-tp", "8", "-dcp", "2"), "8 KV heads, which leave 1 copies"),
    (("--model", "gemma-3-27b-it", "-tp", "32", "-dcp", "2"), "has windows"),
    (("--max-num-seqs", "1024", "--max-num-batched-tokens", "100"), "must be at least max_num_seqs"),
    (("--no-enable-chunked-prefill", "--max-num-batched-tokens", "300"), "without chunked prefill"),
    (("--weights-gib", "-1"), "--weights-gib"), (("--total-gpu-gib", "0"), "--total-gpu-gib"),
    (("--dtype", "int4"), "--dtype 'int4'"), (("--prompt-tokens", "9000"), "go together"),
    (("--prompt-tokens", "9000", "--output-tokens", "1", "--max-model-len", "4096"), "longer than max_model_len 4,096"),
    (("--model", "x" * 5000), "no name is that long"),
    (("--",), "vllm"), (("--", "trtllm-serve", "x"), "vllm")])
def test_bad_arguments_are_one_line(capsys, arguments, said):
    assert said in complaint(capsys, *arguments)


@pytest.mark.parametrize("text", ['{"num_hidden_layers": 3', "[]", '{"num_hidden_layers": "32"}', '"config"', "",
                                  '{"num_attention_heads": 0, "hidden_size": 64, "num_hidden_layers": 2}', "\x00\xff"])
def test_a_bad_config_is_one_line_that_names_it(capsys, tmp_path, text):
    path = Path(tmp_path) / "config.json"
    path.write_text(text, encoding="utf-8")
    assert "config.json" in complaint(capsys, "--model", str(path))
