"""Shapes: bytes a token and weights of published models, names as people type them, and configs that make no sense."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.sizing.model_config import load_model, shape_from_config
from sim.sizing.model_names import known_models
from workloads.request import InputError

LLAMA = {"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
         "torch_dtype": "bfloat16", "tie_word_embeddings": False}


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
    assert model.routed_parameters == 32 * 8 * 3 * 4096 * 14336
    assert model.parameters - model.active_parameters == model.routed_parameters * 6 // 8
    assert load_model("Llama-2-7b").routed_parameters == 0


def test_attention_work_of_a_pair():
    assert load_model("Llama-3.1-8B").attention_flops_per_pair == 4 * 32 * 32 * 128
    assert load_model("DeepSeek-V3").attention_flops_per_pair == 2 * 61 * 128 * (192 + 128)


def test_weights_that_cannot_be_counted_name_the_field():
    sparse = {"num_experts": 8, "moe_intermediate_size": 9, "decoder_sparse_step": 2}
    for changes, field in (({"vocab_size": None}, "vocab_size"), ({"intermediate_size": None}, "intermediate_size"),
                           ({"num_experts": 8}, "moe_intermediate_size"), (sparse, "decoder_sparse_step")):
        model = shape(**changes)
        assert model.kv_bytes_per_token() == 131_072
        with pytest.raises(InputError, match=field):
            _ = model.parameters


# ---------------------------------------------------------------------- names
@pytest.mark.parametrize(("text", "found", "quantization"), [
    ("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B", None),
    ("META-LLAMA-3.1-8b", "meta-llama/Meta-Llama-3.1-8B", None),
    ("Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B", None),
    ("Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B", None),
    ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "meta-llama/Meta-Llama-3.1-8B", "int4"),
    ("Qwen2.5-14B-Instruct-AWQ", "Qwen/Qwen2.5-14B", "awq"),
    ("Qwen2.5-14B-Instruct-GPTQ-Int8", "Qwen/Qwen2.5-14B", "int8"),
    ("Llama-2-13b-hf", "meta-llama/Llama-2-13b", None), ("Llama-2-13b-chat-hf", "meta-llama/Llama-2-13b", None),
    ("DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1", "fp8"),
    ("mixtral-8x7b-instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1", None),
    ("Qwen3-32B", "Qwen/Qwen3-32B", None), ("Qwen3-32B-FP8", "Qwen/Qwen3-32B-FP8", "fp8"),
    ("Qwen3-32B-FP8-dynamic", "Qwen/Qwen3-32B-FP8", "fp8"), ("Qwen3-32B-AWQ", "Qwen/Qwen3-32B", "awq")])
def test_names_as_people_type_them(text, found, quantization):
    model = load_model(text)
    assert (model.name, model.quantization) == (found, quantization)


def test_words_that_fell_away_are_said():
    note = load_model("Qwen2.5-14B-Instruct-AWQ").note
    assert "read as Qwen/Qwen2.5-14B" in note
    assert "'Instruct', 'AWQ' fell away" in note
    assert "fell away" not in load_model("Meta-Llama-3.1-8B").note
    assert "read as" in load_model("Llama-3.1-8B").note


@pytest.mark.parametrize("text", [
    "", "  ", "chat", "instruct-awq", "Llama-9-8B", "Qwen4-8B", "DeepSeek-R1-Distill-Qwen-32B", "Llama-2-7b\nx",
    "/no/such/config.json", "."])
def test_unknown_names_are_one_line(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        load_model(text)
    assert "\n" not in str(error.value)


def test_unknown_names_come_with_the_closest():
    with pytest.raises(InputError, match=r"unknown model 'Llama-3\.1-9B': closest: .*Llama-3\.1-8B"):
        load_model("Llama-3.1-9B")


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
    assert len(refused) == 41


@pytest.mark.parametrize(("name", "field"), [
    ("gemma-3-27b-it", "model_type"), ("gpt-oss-20b", "model_type"), ("Mistral-7B-v0.1", "sliding_window"),
    ("Qwen3.5-27B", "full_attention_interval"), ("Jamba-v0.1", "model_type"), ("DeepSeek-V3.2", "index_head_dim"),
    ("Llama-4-Scout-17B-16E-Instruct", "attention_chunk_size"), ("Kimi-Linear-48B-A3B", "model_type"),
    ("DeepSeek-V4-Flash", "compress_ratios"), ("gemma-4-26B-A4B", "num_global_key_value_heads"),
    ("Llama-3_3-Nemotron-Super-49B-v1", "model_type"), ("MiMo-V2-Flash", "attention_chunk_size")])
def test_other_layers_of_the_catalogue_are_refused(name, field):
    with pytest.raises(InputError, match=f"{field} (is|has) .*not understood yet"):
        load_model(name)


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


def test_a_window_that_is_off_or_too_long_to_matter_is_fine():
    for changes in ({"sliding_window": None}, {"sliding_window": 4096, "use_sliding_window": False},
                    {"sliding_window": 262_144}, {"sliding_window": 4096, "model_type": "qwen2"},
                    {"layer_types": ["full_attention"] * 32, "sliding_window": 4096}):
        assert shape(**changes).kv_bytes_per_token() == 131_072


def test_nested_text_config():
    model = shape_from_config({"model_type": "qwen3_vl", "tie_word_embeddings": True,
                               "text_config": {**LLAMA, "tie_word_embeddings": None}}, "m", "test")
    assert model.kv_bytes_per_token() == 131_072


def test_falcon_style_multi_query():
    assert shape(num_key_value_heads=None, multi_query=True).kv_heads == 1
    newer = shape(num_key_value_heads=None, multi_query=True, new_decoder_architecture=True, num_kv_heads=8)
    assert newer.kv_heads == 8


def test_unknown_model_types_and_scaled_positions_are_said():
    assert "model_type newcomer: weights as a Llama's" in shape(model_type="newcomer").note
    assert "rope_scaling" in shape(rope_scaling={"type": "yarn", "factor": 4}).note
    assert shape(rope_scaling={"rope_type": "llama3", "factor": 8}).note == ""


def test_quantization_of_a_config():
    assert shape(quantization_config={"quant_method": "fp8"}).quantization == "fp8"
    assert shape(quantization_config={"quant_method": "gptq", "bits": 8}).quantization == "int8"
    assert shape(quantization_config={"quant_method": "gptq", "bits": 4}).quantization == "gptq"


@pytest.mark.parametrize(("text", "said"), [
    ('{"num_hidden_layers": 32,', r"config\.json:1: no valid JSON"), ("", r"config\.json:1: no valid JSON"),
    ("[1, 2]", "must be an object of fields, not a list"), ("null", "must be an object"),
    ("[" * 100_000, r"config\.json")])
def test_files_that_are_no_config(tmp_path, text, said):
    with pytest.raises(InputError, match=said) as error:
        load_model(config_file(tmp_path, text))
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(InputError, match=r"config\.json"):
        load_model(path)


@pytest.mark.parametrize(("changes", "field", "value"), [
    ({"num_attention_heads": "32"}, "num_attention_heads", "'32'"),
    ({"num_attention_heads": 0}, "num_attention_heads", "0"),
    ({"num_key_value_heads": -8}, "num_key_value_heads", "-8"),
    ({"num_key_value_heads": 5}, "num_key_value_heads", "5"),
    ({"num_key_value_heads": [8, 4]}, "num_key_value_heads", r"\[8, 4\]"),
    ({"num_hidden_layers": True}, "num_hidden_layers", "True"),
    ({"num_hidden_layers": None}, "num_hidden_layers", "is missing"),
    ({"num_attention_heads": None}, "num_attention_heads", "is missing"),
    ({"hidden_size": None}, "hidden_size", "is missing"),
    ({"hidden_size": 4096.5}, "hidden_size", "4096.5"),
    ({"hidden_size": 4100}, "hidden_size", "4100"),
    ({"head_dim": 0}, "head_dim", "0"),
    ({"vocab_size": "big"}, "vocab_size", "'big'"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings", "'no'"),
    ({"torch_dtype": "int3"}, "torch_dtype", "'int3'"),
    ({"model_type": 7}, "model_type", "7"),
    ({"text_config": [1]}, "text_config", r"\[1\]"),
    ({"layer_types": 3}, "layer_types", "3"),
    ({"layer_types": ["full_attention"] * 3}, "layer_types", "3"),
    ({"layer_types": ["full_attention", "sliding_attention"] * 16}, "layer_types", "sliding_attention"),
    ({"quantization_config": 8}, "quantization_config", "8"),
    ({"sliding_window": 4096}, "sliding_window", "4096"),
    ({"sliding_window": "4096"}, "sliding_window", "'4096'"),
    ({"v_head_dim": 64}, "v_head_dim", "64"),
    ({"kv_lora_rank": 512}, "qk_rope_head_dim", "is missing"),
    ({"is_encoder_decoder": True}, "is_encoder_decoder", "True"),
    ({"mamba_d_state": 16}, "mamba_d_state", "16")])
def test_fields_that_make_no_sense_are_named_with_file_and_value(tmp_path, changes, field, value):
    config = {key: entry for key, entry in {**LLAMA, **changes}.items() if entry is not None}
    with pytest.raises(InputError, match=rf"config\.json: {field} .*{value}") as error:
        load_model(config_file(tmp_path, config))
    assert "\n" not in str(error.value)


words = st.text(max_size=9)
anything = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | words,
                        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))
fields = st.sampled_from([*LLAMA, "head_dim", "text_config", "layer_types", "sliding_window", "num_experts",
                          "v_head_dim", "kv_lora_rank",
                          "quantization_config", "rope_scaling", "moe_layer_freq", "multi_query"])


@given(fields, anything)
def test_no_field_makes_anything_but_a_shape_or_an_input_error(field, value):
    made = outcome(lambda: shape(**{field: value}).parameters)
    assert made > 0 if isinstance(made, int) else "\n" not in made
