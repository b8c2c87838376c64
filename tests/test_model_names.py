"""Names of models as people and logs type them: what is found, what falls away, what is no guess."""

import pytest

from sim.models.model_config import load_model
from sim.sizing.weights import weight_bytes
from workloads.request import InputError


@pytest.mark.parametrize(("text", "found", "quantization"), [
    ("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B", None),
    ("META-LLAMA-3.1-8b", "meta-llama/Meta-Llama-3.1-8B", None),
    ("Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B", None),
    ("Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B", None),
    ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "meta-llama/Meta-Llama-3.1-8B", "bitsandbytes"),
    ("Qwen2.5-14B-Instruct-AWQ", "Qwen/Qwen2.5-14B", "awq"),
    ("Qwen2.5-14B-Instruct-GPTQ-Int8", "Qwen/Qwen2.5-14B", "int8"),
    ("Llama-2-13b-hf", "meta-llama/Llama-2-13b", None), ("Llama-2-13b-chat-hf", "meta-llama/Llama-2-13b", None),
    ("DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1", "fp8"),
    ("mixtral-8x7b-instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1", None),
    ("Qwen3-32B", "Qwen/Qwen3-32B", None), ("Qwen3-32B-FP8", "Qwen/Qwen3-32B-FP8", "fp8"),
    ("Qwen3-32B-FP8-dynamic", "Qwen/Qwen3-32B-FP8", "fp8"), ("Qwen3-32B-AWQ", "Qwen/Qwen3-32B", "awq"),
    ("Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct", None),       # never the FP8 record of that name
    ("Nemotron-3-Ultra-550B-A55B", "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", None),
    ("Llama-3.2-3B-Instruct Q8_0 GGUF", "meta-llama/Llama-3.2-3B", "Q8_0"),
    ("Qwen3-8B-q4_k_m", "Qwen/Qwen3-8B", "Q4_K_M"),
    ("Llama-3.1-8B NVFP4 (inferred)", "meta-llama/Meta-Llama-3.1-8B", "nvfp4"),
    ("Qwen3.5-122B-A10B NVFP4 +MTP1", "nvidia/Qwen3.5-122B-A10B-NVFP4", "nvfp4"),
    ("GLM-5.1-NVFP4-MTP", "nvidia/GLM-5.1-NVFP4", "nvfp4"), ("GLM-5 FP8", "zai-org/GLM-5-FP8", "fp8"),
    ("Mixtral-8x7B-Instruct AWQ", "mistralai/Mixtral-8x7B-v0.1", "awq"),
    ("Llama-3.1-70B-Instruct AWQ-INT4", "meta-llama/Llama-3.1-70B-Instruct", "awq"),
    ("Phi-4-mini fine-tune (phi4 in path)", "microsoft/Phi-4-mini", None),
    ("Qwen2.5-0.5B 4-bit", "Qwen/Qwen2.5-0.5B", "int4"), ("Qwen3-8B-EXL3", "Qwen/Qwen3-8B", "exl3"),
    ("Llama-3.1-8B + LoRA", "meta-llama/Meta-Llama-3.1-8B", None), ("Zamba2-2.7B-class", "Zyphra/Zamba2-2.7B", None),
    ("Qwen2 0.5B", "Qwen/Qwen2-0.5B", None), ("command-r-plus", "CohereForAI/c4ai-command-r-plus", None),
    ("vicuna-7b", "lmsys/vicuna-7b-v1.5", None), ("Llama-2-7b-v1.0", "meta-llama/Llama-2-7b", None)])
def test_names_as_people_type_them(text, found, quantization):
    model = load_model(text)
    assert (model.name, model.quantization) == (found, quantization)


def test_words_that_fell_away_are_said():
    note = load_model("Qwen2.5-14B-Instruct-AWQ").note
    assert "read as Qwen/Qwen2.5-14B" in note
    assert "'Instruct', 'AWQ' fell away" in note
    assert "fell away" not in load_model("Meta-Llama-3.1-8B").note
    assert "read as" in load_model("Llama-3.1-8B").note
    assert "'NVFP4', '(inferred)' fell away" in load_model("Llama-3.1-8B NVFP4 (inferred)").note
    for word in ("arch", "class", "reasoning", "LoRA", "+MTP3", "v1.0", "INT4", "fine-tune"):
        assert "fell away" in load_model(f"Qwen3-8B {word}").note
    assert "\n" not in load_model("Qwen3-8B\nAWQ").note


@pytest.mark.parametrize(("text", "said"), [
    ("Mistral-7B-Instruct", r"it could be .*v0\.1.*v0\.3"),            # three versions
    ("Mistral-7B-v0.9", "closest: .*Mistral-7B"), ("DeepSeek-V3.5", "closest: .*DeepSeek-V3"), ("deepseek-chat", "it could be"),
    ("DeepSeek-V4 FP8", "closest"), ("MiniMax-M2.x FP8", "closest"), ("Qwen3.x-27B EXL3 +MTP3", "closest")])
def test_names_that_fit_several_models_are_no_guess(text, said):
    with pytest.raises(InputError, match=f"unknown model .*{said}"):
        load_model(text)


def test_weights_in_an_unknown_format_are_not_counted():
    assert load_model("Qwen3-8B-EXL3").kv_bytes_per_token() == 147_456
    with pytest.raises(InputError, match="'exl3' weights is not known"):
        weight_bytes(load_model("Qwen3-8B-EXL3"))


@pytest.mark.parametrize("text", [
    "", "  ", "chat", "instruct-awq", "Llama-9-8B", "Qwen4-8B", "DeepSeek-R1-Distill-Qwen-99B", "Llama-2-7b\nx", "()", "v1.0",
    "/no/such/config.json", "."])
def test_unknown_names_are_one_line(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        load_model(text)
    assert "\n" not in str(error.value)


def test_unknown_names_come_with_the_closest():
    with pytest.raises(InputError, match=r"unknown model 'Llama-3\.1-9B': closest: .*Llama-3\.1-8B"):
        load_model("Llama-3.1-9B")
