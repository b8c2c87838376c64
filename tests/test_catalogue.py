"""Every record of the model catalogue: it makes sense, loads or is refused by a field, and counts the published weights."""

from collections import Counter

import pytest

from sim.models.model_config import load_model
from sim.models.model_names import catalogue, find_name, known_models
from workloads.request import InputError

RECORDS = catalogue()["models"]
MAY_BE_ZERO = {"num_nextn_predict_layers", "attn_layer_offset", "expert_layer_offset", "num_local_experts",
               "num_experts_per_tok", "num_kv_shared_layers", "shared_expert_intermediate_size"}
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
HEADS = ("num_attention_heads", "n_head")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts")


def first(record, names):
    return next((record[name] for name in names if record.get(name) is not None), None)


def outcome(call):
    """What the call gives, or what its `InputError` says."""
    try:
        return call()
    except InputError as error:
        return str(error)


def names_a_field(text, record):
    return "\n" not in text and any(field in text for field in [*record, *LAYERS, *HEADS, *KV_HEADS, *EXPERTS, *PER_TOKEN,
                                                                "is missing", "is not known"])


@pytest.mark.parametrize("name", known_models())
def test_a_record_loads_or_is_refused_by_a_field(name):
    shape = outcome(lambda: load_model(name))
    if isinstance(shape, str):
        assert names_a_field(shape, RECORDS[name])
        return
    assert (shape.name, shape.source) == (name, RECORDS[name]["source"])
    assert shape.layers == first(RECORDS[name], LAYERS)
    counted = outcome(lambda: (shape.active_parameters, shape.parameters))
    if isinstance(counted, str):
        assert names_a_field(counted, RECORDS[name])
        return
    assert 0 < counted[0] <= counted[1]


@pytest.mark.parametrize("name", known_models())
def test_the_numbers_of_a_record_make_sense(name):
    record = RECORDS[name]
    assert record["source"]
    assert record["model_type"]
    assert "head_dim_derived" not in record or "head_dim" not in record
    for field, value in record.items():
        assert value is not None, field
        if isinstance(value, int) and not isinstance(value, bool):
            assert value >= (0 if field in MAY_BE_ZERO else 1), field
    for field in ("tie_word_embeddings", "attention_bias", "use_qk_norm", "use_sliding_window", "multi_query"):
        assert isinstance(record.get(field, True), bool), field
    assert record.get("torch_dtype", "bfloat16") in ("float32", "bfloat16", "float16")
    assert 16_384 < first(record, ("vocab_size", "padded_vocab_size")) < 300_000
    assert first(record, ("max_position_embeddings", "n_positions", "seq_length")) > 1_000
    heads, kv_heads, hidden = first(record, HEADS), first(record, KV_HEADS), first(record, ("hidden_size", "n_embd"))
    assert heads % (kv_heads or 1) == 0
    if "kv_lora_rank" in record:
        assert {"qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"} <= set(record)
    elif "head_dim" not in record and "kv_channels" not in record:
        assert hidden % heads == 0
        assert record.get("head_dim_derived", hidden // heads) == hidden // heads
    experts = first(record, EXPERTS)
    if experts:
        assert 1 <= first(record, PER_TOKEN) < experts
    section = record.get("quantization_config", {"quant_method": "none"})
    assert isinstance(section["quant_method"], str)
    assert section.get("kv_cache_quant_algo", "FP8") == "FP8"


@pytest.mark.parametrize("name", known_models())
def test_lists_have_one_entry_a_layer(name):
    record = RECORDS[name]
    layers, drafts = first(record, LAYERS), record.get("num_nextn_predict_layers", 0)
    for field in ("layer_types", "layers_block_type", "hybrid_override_pattern", "hybrid_layer_pattern", "attn_type_list",
                  "block_configs", "indexer_types"):
        value = record.get(field)
        if value is not None:
            assert (sum(value.values()) if isinstance(value, dict) else len(value)) == layers, field
    assert len(record.get("compress_ratios", [0] * layers)) in (layers, layers + drafts)
    assert all(layer < layers for field in ("attn_layer_indices", "cross_attention_layers") for layer in record.get(field, []))
    section = record.get("linear_attn_config")
    if section:
        assert sorted(section["kda_layers"] + section["full_attn_layers"]) == list(range(1, layers + 1))
    every = record.get("full_attention_interval")
    if every:
        assert Counter(record["layer_types"])["full_attention"] == layers // every


def test_a_last_part_of_a_name_belongs_to_one_record():
    parts = Counter(name.split("/")[-1].lower() for name in known_models())
    assert [part for part, count in parts.items() if count > 1] == []


def test_the_catalogue_has_the_popular_families():
    types = {record["model_type"] for record in RECORDS.values()}
    assert len(known_models()) > 300
    assert types >= {
        "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen2_5_vl_text", "qwen3", "qwen3_moe", "qwen3_next",
        "qwen3_5_text", "qwen3_5_moe_text", "gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "phi", "phi3",
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "kimi_k2", "kimi_linear", "glm4_moe", "glm_moe_dsa",
        "minimax_m1", "minimax_m2", "gpt_oss", "falcon", "falcon_h1", "opt", "gpt2", "bloom", "gpt_bigcode", "starcoder2",
        "cohere", "cohere2", "granite", "granitemoehybrid", "nemotron", "nemotron_h", "nemotron-nas", "jamba", "zamba2",
        "bamba", "llama4_text", "chatglm", "baichuan", "internlm2"}


# ---------------------------------------------------------------------- published weights
@pytest.mark.parametrize(("name", "exact"), [    # as Hugging Face counts the published checkpoints
    ("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080), ("gpt2-xl", 1_557_611_200),
    ("llama-7b", 6_738_415_616), ("llama-13b", 13_015_864_320), ("llama-30b", 32_528_943_616),
    ("LLaMA-65B", 65_285_660_672), ("Llama-3.1-8B", 8_030_261_248), ("Llama-3.1-405B", 405_853_388_800),
    ("Llama-3.2-3B", 3_212_749_824), ("SmolLM2-135M", 134_515_008), ("SmolLM2-1.7B", 1_711_376_384),
    ("Mistral-7B-Instruct-v0.2", 7_241_732_096), ("Mistral-Nemo-Base-2407", 12_247_782_400),
    ("Mistral-Small-24B-Base-2501", 23_572_403_200), ("Mistral-Large-Instruct-2407", 122_610_069_504),
    ("Codestral-22B-v0.1", 22_247_282_688), ("Mixtral-8x7B-v0.1", 46_702_792_704),
    ("Mixtral-8x22B-v0.1", 140_620_634_112), ("Qwen2.5-0.5B", 494_032_768), ("Qwen2.5-3B", 3_085_938_688),
    ("Qwen2.5-14B", 14_770_033_664), ("Qwen2.5-32B", 32_763_876_352), ("Qwen2.5-72B", 72_706_203_648),
    ("Qwen1.5-110B", 111_209_914_368), ("DeepSeek-R1-Distill-Qwen-1.5B", 1_777_088_000),
    ("Qwen3-0.6B", 596_049_920), ("Qwen3-14B", 14_768_307_200), ("Qwen3-32B", 32_762_123_264),
    ("Qwen3-235B-A22B", 235_093_634_560), ("Yi-34B", 34_388_917_248), ("deepseek-coder-33b", 33_342_991_360),
    ("internlm3-8b-instruct", 8_804_241_408), ("gemma-2b", 2_506_172_416), ("gemma-7b", 8_537_680_896),
    ("Phi-3-mini-4k-instruct", 3_821_079_552), ("Phi-3-medium-4k-instruct", 13_960_238_080),
    ("phi-4", 14_659_507_200), ("granite-3.1-8b", 8_170_848_256), ("starcoder2-15b", 15_957_889_024),
    ("gpt-neox-20b", 20_554_567_680), ("bloom", 176_247_271_424), ("bloom-7b1", 7_069_016_064),
    ("gpt_bigcode-santacoder", 1_124_886_528), ("starcoder", 15_517_456_384)])
def test_published_counts_are_met_exactly(name, exact):
    assert load_model(name).parameters == exact


@pytest.mark.parametrize(("name", "published"), [    # biases and norms of a few layers are left out
    ("DeepSeek-V3", 671_026_419_200), ("DeepSeek-V2", 235_741_434_880), ("DeepSeek-V2-Lite", 15_706_484_224),
    ("Moonlight-16B-A3B", 15_960_111_936), ("Qwen2-57B-A14B", 57_409_119_232), ("GLM-4.5-Air", 106_852_251_264),
    ("Kimi-K2-Instruct", 1_026_408_232_448), ("phi-2", 2_779_683_840), ("gemma-2-9b", 9_241_705_984),
    ("gemma-3-27b-it", 27_009_346_304), ("Qwen3-Next-80B-A3B", 79_674_391_296), ("falcon-40b", 41_303_293_952),
    ("gpt-oss-20b", 20_914_757_184), ("gpt-oss-120b", 116_829_156_672), ("Falcon-H1-34B", 33_642_516_224),
    ("Jamba-v0.1", 51_570_323_328), ("NVIDIA-Nemotron-Nano-9B-v2", 8_888_227_328), ("Bamba-9B-v1", 9_780_235_392),
    ("LFM2-1.2B", 1_170_340_608), ("OLMoE-1B-7B-0924", 6_919_161_856),
    ("gpt-j-6b", 6_050_882_784), ("opt-350m", 331_196_416), ("granite-20b-code", 20_067e6),
    ("granite-34b-code", 33_716e6), ("granite-4.0-h-small", 32_207e6), ("granite-4.0-h-tiny", 6_939e6),
    ("Phi-3.5-MoE-instruct", 41_873e6), ("dbrx-base", 131_597e6), ("Llama-4-Scout-17B-16E-Instruct", 107_770e6),
    ("Llama-4-Maverick-17B-128E-Instruct", 400_712e6), ("Llama-3_3-Nemotron-Super-49B-v1", 49_867e6),
    ("NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 549_300e6), ("NVIDIA-Nemotron-3-Super-120B-A12B-BF16", 120_670e6),
    ("NVIDIA-Nemotron-3.5-Lightning-30B-A3B", 31_580e6), ("Kimi-K3", 2_780e9), ("gemma-4-26B-A4B", 25_200e6)])
def test_published_counts_are_met_within_a_third_of_a_percent(name, published):
    assert load_model(name).parameters == pytest.approx(published, rel=0.0033)


@pytest.mark.parametrize(("name", "published"), [("grok-1", 314e9), ("Zamba2-7B", 7.36e9), ("Zamba2-2.7B", 2.69e9)])
def test_published_counts_are_met_within_a_hundredth_or_so(name, published):
    assert load_model(name).parameters == pytest.approx(published, rel=0.012)


def test_all_weights_can_be_counted_where_a_model_is_understood():
    for name in known_models():
        shape = outcome(lambda name=name: load_model(name))
        assert isinstance(shape, str) or shape.parameters >= shape.active_parameters > 1e8, name


# ---------------------------------------------------------------------- names
@pytest.mark.parametrize(("text", "found"), [
    ("Kimi-K2-Thinking", "moonshotai/Kimi-K2-Thinking"), ("Kimi-K2-Instruct-0905", "moonshotai/Kimi-K2-Instruct"),
    ("Qwen3-235B-A22B-FP8", "Qwen/Qwen3-235B-A22B-FP8"), ("Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B"),
    ("Qwen3-30B-A3B-Thinking-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507"), ("Qwen3-4B", "Qwen/Qwen3-4B"),
    ("GLM-5.1", "zai-org/GLM-5.1"), ("GLM-4.7", "zai-org/GLM-4.7"), ("gpt-oss-120b", "openai/gpt-oss-120b"),
    ("Llama-3-70B", "meta-llama/Meta-Llama-3-70B"), ("Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B"),
    ("Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B"), ("Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"),
    ("Llama-3.1-70B-Instruct-AWQ-INT4", "meta-llama/Llama-3.1-70B-Instruct"),
    ("Llama-3.1-405B-Instruct-FP8", "meta-llama/Llama-3.1-405B-Instruct-FP8"),
    ("Llama-3.1-405B", "meta-llama/Meta-Llama-3.1-405B"), ("Llama-3.1-405B-Instruct", "meta-llama/Meta-Llama-3.1-405B"),
    ("Llama-3.3-70B-Instruct-FP8-dynamic", "meta-llama/Llama-3.3-70B-Instruct"),
    ("Qwen3-Next-80B-A3B", "Qwen/Qwen3-Next-80B-A3B"), ("Qwen2.5-VL-72B", "Qwen/Qwen2.5-VL-72B-Instruct"),
    ("Qwen2.5-Coder-0.5B-int8", "Qwen/Qwen2.5-Coder-0.5B"), ("Chinese-Alpaca-2-7B", "hfl/chinese-alpaca-2-7b"),
    ("DeepSeek-V3.2-Exp", "deepseek-ai/DeepSeek-V3.2-Exp"), ("DeepSeek-V4-Flash", "deepseek-ai/DeepSeek-V4-Flash"),
    ("DeepSeek-R1-Distill-Llama-70B", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"),
    ("gemma-3-27b", "google/gemma-3-27b-it"), ("Gemma-3-1B", "google/gemma-3-1b-it"),
    ("gemma-4-31b-it", "google/gemma-4-31B-it"), ("Gemma-4-31B", "google/gemma-4-31B-it"),
    ("Mistral-Nemo-Instruct-2407", "mistralai/Mistral-Nemo-Base-2407"), ("opt-175b", "facebook/opt-175b"),
    ("Qwen3.6-27B", "Qwen/Qwen3.6-27B"), ("Qwen3.5-122B-A10B", "Qwen/Qwen3.5-122B-A10B"),
    ("Qwen3.5-122B-A10B-NVFP4", "nvidia/Qwen3.5-122B-A10B-NVFP4"), ("MiniMax-M2", "MiniMaxAI/MiniMax-M2"),
    ("granite-3.3-8b-instruct", "ibm-granite/granite-3.3-8b"), ("LLaMA-65B", "meta-llama/LLaMA-65B"),
    ("Falcon-H1-7B-Instruct", "tiiuae/Falcon-H1-7B"), ("c4ai-command-r-plus", "CohereForAI/c4ai-command-r-plus")])
def test_names_of_servers_and_of_questions_are_found(text, found):
    assert find_name(text, is_folder=False)[0] == found
