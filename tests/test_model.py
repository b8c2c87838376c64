"""Shapes: bytes a token and weights of published models, and what is read from a config.json."""

import json
from fractions import Fraction

import pytest

from sim.models.model_config import load_model, shape_from_config
from sim.models.model_names import known_models
from sim.sizing.weights import Shards, rank_bytes, weight_bytes
from workloads.request import InputError

LLAMA = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
         "torch_dtype": "bfloat16", "tie_word_embeddings": False}


def kept_alike(model):
    return {cache.kind for layer in model.caches() for cache in layer} == {"full"}


def shape(**changes):
    return shape_from_config({**LLAMA, **changes}, "m", "test")


def outcome(call, *arguments, **named):
    """The shape, or what the `InputError` says; anything else goes through."""
    try:
        return call(*arguments, **named)
    except InputError as error:
        return str(error)


def config_file(folder, text):
    path = folder / "config.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


# ---------------------------------------------------------------------- bytes a token
@pytest.mark.parametrize(("name", "expected"), [
    ("Llama-3.1-8B", 131_072), ("Llama-2-7b", 524_288), ("Llama-2-13b", 819_200), ("opt-13b", 819_200),
    ("Llama-2-70b", 327_680), ("opt-125m", 36_864), ("Qwen2.5-1.5B", 28_672), ("Qwen3-4B", 147_456),
    ("Phi-4-mini", 131_072), ("MiniMax-M2.5", 253_952), ("GLM-4.7", 376_832), ("DeepSeek-R1", 70_272)])
def test_bytes_per_token_as_servers_show_them(name, expected):
    assert load_model(name).kv_bytes_per_token() == expected


@pytest.mark.parametrize(("name", "ranks", "element", "expected"), [
    ("Llama-2-70b", 2, 2, 163_840),                # start-up log v127
    ("Llama-2-70b", 16, 2, 40_960),                # 8 heads on 16 ranks: one each, held twice
    ("Qwen3-235B-A22B", 4, 2, 48_128),             # v004
    ("GLM-4.7", 4, 1, 47_104),                     # v070, fp8
    ("MiniMax-M2.5", 4, 2, 63_488),                # v106
    ("Llama-3.3-70B-Instruct", 1, 1, 163_840),     # v083, fp8
    ("Llama-3.1-8B", 1, Fraction(1, 2), 32_768),
    ("DeepSeek-R1", 8, 2, 70_272),                 # v136: the latent row is whole on every rank
    ("DeepSeek-V3", 8, 1, 35_136)])
def test_bytes_per_token_over_ranks_and_formats(name, ranks, element, expected):
    assert load_model(name).kv_bytes_per_token(element, ranks) == expected


def test_ranks_that_heads_cannot_be_shared_over_are_refused():
    for name, ranks in (("Llama-3.1-8B", 3), ("Llama-3.1-8B", 0), ("Llama-3.1-8B", 64), ("phi-4", 4),
                        ("DeepSeek-R1", 3)):
        with pytest.raises(InputError, match=f"tensor_parallel_size {ranks} .*{name}"):
            load_model(name).kv_bytes_per_token(2, ranks)
    assert load_model("phi-4").kv_bytes_per_token(2, 2) == 102_400    # 10 KV heads: 5 each


# ---------------------------------------------------------------------- weights
@pytest.mark.parametrize(("name", "exact"), [    # as Hugging Face counts the published checkpoints
    ("Llama-2-7b", 6_738_415_616), ("Llama-2-13b", 13_015_864_320), ("Llama-2-70b", 68_976_648_192),
    ("Llama-3.1-8B", 8_030_261_248), ("Llama-3.1-70B", 70_553_706_496), ("Llama-3.2-1B", 1_235_814_400),
    ("Mixtral-8x7B-v0.1", 46_702_792_704), ("Qwen2.5-7B", 7_615_616_512), ("Qwen3-8B", 8_190_735_360),
    ("Qwen3-30B-A3B", 30_532_122_624), ("opt-125m", 125_239_296), ("Mistral-7B-v0.3", 7_248_023_552)])
def test_parameters_are_exact_where_we_say_so(name, exact):
    assert load_model(name).parameters == exact


@pytest.mark.parametrize(("name", "total", "active"), [    # billions, from the published names and cards
    ("opt-13b", 12.85, 12.85), ("opt-66b", 65.7, 65.7), ("opt-175b", 175, 175), ("Qwen3-235B-A22B", 235, 22),
    ("Qwen3-Coder-480B-A35B-Instruct", 480, 35), ("DeepSeek-V3", 671, 37), ("Kimi-K2-Instruct", 1026, 32.6),
    ("Mixtral-8x22B-v0.1", 141, 39), ("DeepSeek-V2-Lite", 15.7, 2.66), ("MiniMax-M2.5", 229, 11),
    ("phi-2", 2.78, 2.78)])
def test_parameters_are_close_elsewhere(name, total, active):
    model = load_model(name)
    assert model.parameters / 1e9 == pytest.approx(total, rel=0.01)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.03)


def test_routed_experts_are_the_difference_between_all_and_active():
    model = load_model("Mixtral-8x7B-v0.1")    # 8 experts, 2 a token
    routed = 32 * 8 * 3 * 4096 * 14336
    assert sum(model.layer_parts(i)["routed experts"] for i in range(32)) == routed
    assert model.parameters - model.active_parameters == routed * 6 // 8
    assert "routed experts" not in load_model("Llama-2-7b").layer_parts(0)


def test_attention_work_of_a_pair():
    assert load_model("Llama-3.1-8B").attention_flops_per_pair == 4 * 32 * 32 * 128
    assert load_model("DeepSeek-V3").attention_flops_per_pair == 2 * 61 * 128 * (192 + 128)


def test_weights_that_cannot_be_counted_name_the_field():
    for changes, field in (({"vocab_size": None}, "vocab_size"), ({"intermediate_size": None}, "intermediate_size"),
                           ({"num_experts": 8}, "moe_intermediate_size"),
                           ({"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input")):
        model = shape(**changes)
        assert model.kv_bytes_per_token() == 131_072
        for count in (lambda model: model.parameters, lambda model: rank_bytes(model, Shards())):
            with pytest.raises(InputError, match=f"m: {field}"):
                count(model)
    with pytest.raises(InputError, match="num_kv_shared_layers is set"):
        weight_bytes(shape(num_kv_shared_layers=4))
    assert shape(num_kv_shared_layers=4).kv_bytes_per_token() == 131_072 * 28 // 32


def test_weights_of_a_model_with_every_other_layer_sparse():
    sparse = shape(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=9, decoder_sparse_step=2)
    assert sparse.mlps == ("dense", "moe") * 16
    assert shape().parameters - sparse.parameters == 16 * 4096 * (3 * 14336 - 8 * 3 * 9 - 8)


# ---------------------------------------------------------------------- the catalogue
def test_corrected_catalogue_records():
    for size in ("7b", "13b", "70b"):
        model = load_model(f"Llama-2-{size}")
        assert model.max_position_embeddings == 4096
        assert "2048" in model.note
    assert load_model("opt-1.3b").intermediate_size == 8192


def test_every_record_is_understood_or_refused_by_field():
    said = [outcome(load_model, name) for name in known_models()]
    refused = [f"{name}: {text}" for name, text in zip(known_models(), said, strict=True) if isinstance(text, str)]
    assert all(text.endswith("not understood yet") for text in refused)
    assert len(refused) == 10
    assert all("DeepSeek-V4" in text or "gemma-3n" in text or "Vision" in text for text in refused)


@pytest.mark.parametrize(("name", "field"), [
    ("DeepSeek-V4-Flash", "compress_ratios"), ("DeepSeek-V4-Pro", "compress_ratios"), ("gemma-3n-E4B-it", "model_type"),
    ("Llama-3.2-11B-Vision", "cross_attention_layers")])
def test_other_layers_of_the_catalogue_are_refused(name, field):
    with pytest.raises(InputError, match=f"{field} (is|has) .*not understood yet"):
        load_model(name)


@pytest.mark.parametrize(("name", "expected"), [    # all layers that keep tokens, whatever their window
    ("gemma-3-27b-it", 62 * 2 * 16 * 128 * 2), ("gpt-oss-20b", 24 * 2 * 8 * 64 * 2), ("Mistral-7B-v0.1", 131_072),
    ("Qwen3.5-27B", 16 * 2 * 4 * 256 * 2), ("Jamba-v0.1", 4 * 2 * 8 * 128 * 2),
    ("DeepSeek-V3.2", 61 * (576 * 2 + 132)),                              # with the index: 128 bytes and a scale of 4
    ("Llama-4-Scout-17B-16E-Instruct", 48 * 2 * 8 * 128 * 2), ("Kimi-Linear-48B-A3B", 7 * 576 * 2),
    ("gemma-4-26B-A4B", 25 * 2 * 8 * 256 * 2 + 5 * 2 * 2 * 512 * 2),
    ("Llama-3_3-Nemotron-Super-49B-v1", 49 * 2 * 8 * 128 * 2),            # 31 of 80 layers have no attention
    ("MiMo-V2-Flash", 9 * 4 * (192 + 128) * 2 + 39 * 8 * (192 + 128) * 2)])
def test_bytes_per_token_of_models_with_several_kinds_of_layers(name, expected):
    model = load_model(name)
    assert model.kv_bytes_per_token() == expected
    assert not kept_alike(model) or name in ("DeepSeek-V3.2", "Llama-3_3-Nemotron-Super-49B-v1")


# ---------------------------------------------------------------------- config.json
def test_a_file_and_its_folder_read_alike(tmp_path):
    path = config_file(tmp_path, LLAMA)
    model = load_model(path)
    assert model.kv_bytes_per_token() == load_model(str(tmp_path)).kv_bytes_per_token() == 131_072
    assert model.parameters == 8_030_261_248
    assert model.source == str(path)


def test_defaults_of_fields_that_may_be_left_out(tmp_path):
    config = {"model_type": "opt", "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768,
              "ffn_dim": 3072, "vocab_size": 50272, "max_position_embeddings": 2048}
    model = load_model(config_file(tmp_path, config))
    assert (model.kv_heads, model.head_dim, model.tied_embeddings) == (12, 64, True)
    assert model.parameters == 125_239_296
    assert "num_key_value_heads not given" in model.note


def test_a_window_that_is_off_changes_nothing():
    for changes in ({"sliding_window": None}, {"sliding_window": 4096, "use_sliding_window": False},
                    {"sliding_window": 4096, "model_type": "qwen2"},
                    {"layer_types": ["full_attention"] * 32, "sliding_window": 4096}):
        assert shape(**changes).kv_bytes_per_token() == 131_072
        assert kept_alike(shape(**changes))
    assert not kept_alike(shape(sliding_window=262_144))


def test_nested_text_config():
    model = shape_from_config({"model_type": "qwen3_vl", "tie_word_embeddings": True,
                               "text_config": {**LLAMA, "tie_word_embeddings": None}}, "m", "test")
    assert model.kv_bytes_per_token() == 131_072


def test_falcon_style_multi_query():
    assert shape(num_key_value_heads=None, multi_query=True).kv_heads == 1
    newer = shape(num_key_value_heads=None, multi_query=True, new_decoder_architecture=True, num_kv_heads=8)
    assert newer.kv_heads == 8


def test_unknown_model_types_are_said():
    assert "model_type newcomer: not known, taken for a Llama" in shape(model_type="newcomer").note
    for field in ("kv_share_layers", "compressor_ratio", "state_size", "attention_window_pattern"):
        with pytest.raises(InputError, match=f"{field} is 4, which may set the cache, and model_type 'newcomer' is not known"):
            shape(model_type="newcomer", **{field: 4})
    assert shape().note == ""
    assert "keys of the index are not counted" in load_model("MiniMax-M3").note


@pytest.mark.parametrize(("changes", "expected"), [
    ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 4 * 131_072),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 2 * 131_072),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": None}}, 131_072),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, 131_072),
    ({"rope_scaling": {"type": "su", "factor": 8}}, 131_072), ({"rope_scaling": {"type": "mrope"}}, 131_072),
    ({"rope_scaling": {"type": "longrope", "factor": 8, "original_max_position_embeddings": 4096}}, 131_072),
    ({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}}, 131_072),
    ({"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 1e4}}, 2 * 131_072),
    ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8},
                          "sliding_attention": {"rope_type": "linear", "factor": 8}}}, 8 * 131_072),
    ({"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8}, "sliding_window": 512}, 131_072),
    ({"max_seq_len": 8192}, 8192), ({"seq_length": 262_144}, 131_072), ({"model_max_length": 262_144}, 262_144),
    ({"max_position_embeddings": None, "n_ctx": 2048}, 2048), ({"max_position_embeddings": None}, None)])
def test_the_longest_context(changes, expected):
    assert shape(**changes).max_position_embeddings == expected


def test_stretched_positions_are_said():
    assert shape(rope_scaling={"type": "linear", "factor": 2}).note == "max_position_embeddings 131,072 x 2 (linear scaling)"
    yarn = {"type": "yarn", "factor": 4, "original_max_position_embeddings": 131_072}
    assert shape(rope_scaling=yarn).note == "yarn: 131,072 as it stands; vLLM up to 0.28 took 131,072 x 4"
    long = shape(original_max_position_embeddings=4096, rope_scaling={"type": "longrope", "long_factor": [1.0]})
    assert long.note == "longrope: without --max-model-len vLLM serves the original 4,096"


def test_quantization_of_a_config():
    assert shape(quantization_config={"quant_method": "fp8"}).quantization == "fp8"
    assert shape(quantization_config={"quant_method": "gptq", "bits": 8}).quantization == "int8"
    assert shape(quantization_config={"quant_method": "gptq", "bits": 4}).quantization == "gptq"


def test_kv_heads_layer_by_layer():
    """Searched models list them: 4 + 2 + 1 + 1 heads of 128 in 16 bits are 8 x 2 x 128 x 2 bytes a token."""
    for field in ("num_key_value_heads_per_layer", "num_key_value_heads", "num_kv_heads"):
        model = shape(**{"num_hidden_layers": 4, "num_key_value_heads": None, field: [4, 2, 1, 1]})
        assert model.kv_bytes_per_token() == 8 * 2 * 128 * 2 and model.kv_heads == 4
    for bad in ([4, 2], [4, 2, 1, 0], [4, 2, 1, "1"]):
        with pytest.raises(InputError, match="num_kv_heads must"):
            shape(num_hidden_layers=4, num_key_value_heads=None, num_kv_heads=bad)


def test_encoders_are_refused():
    with pytest.raises(InputError, match="model_type is 'bert': an encoder keeps no cache"):
        shape(model_type="bert")


def test_what_a_text_config_may_leave_out_is_filled_in_and_said():
    """google/gemma-3-4b-it gives five fields; the rest are defaults of its class: 8 heads, 4 KV heads of 256."""
    model = shape_from_config({"model_type": "gemma3", "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "sliding_window": 1024}}, "gemma-3-4b-it", "test")
    assert (model.attention_heads, model.kv_heads, model.head_dim, model.vocab_size) == (8, 4, 256, 262_208)
    assert model.kv_bytes_per_token() == 34 * 2 * 4 * 256 * 2
    assert "num_key_value_heads 4" in model.note
    assert [layer[0].window for layer in model.mixers[:6]] == [1024] * 5 + [None]
