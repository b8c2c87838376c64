"""A config.json that makes no sense is one line that names file, field and value; nothing else ever escapes."""

import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.mixers import CacheFormat
from sim.models.model_config import load_model, shape_from_config
from sim.models.model_names import catalogue
from sim.sizing.weights import Shards, format_of, rank_bytes, weight_bytes
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


@pytest.mark.parametrize(("text", "said"), [
    ('{"num_hidden_layers": 32,', r"config\.json:1: no valid JSON: cut off at character 26$"),
    ('{"model_type": "lla', r"config\.json:1: no valid JSON: cut off in the string that begins at character 16$"),
    ("", r"config\.json:1: no valid JSON"),
    ("[1, 2]", r"must be an object of fields, not \[1, 2\]"), ("null", "must be an object"),
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
    ({"layer_types": ["full_attention"] * 33}, "layer_types", "33"),
    ({"layer_types": ["full_attention", "strange"] * 16}, "layer_types", "strange"),
    ({"layer_types": ["full_attention", "sliding_attention"] * 16}, "sliding_window", "is missing"),
    ({"quantization_config": 8}, "quantization_config", "8"),
    ({"quantization_config": [1]}, "quantization_config", r"\[1\]"),
    ({"num_hidden_layers": 10**7}, "num_hidden_layers", "10000000"),
    ({"hidden_size": 10**12}, "hidden_size", "more than any model has"),
    ({"rope_scaling": [4]}, "rope_scaling", r"\[4\]"),
    ({"rope_scaling": {"type": "linear", "factor": "4"}}, "rope_scaling", "'4'"),
    ({"rope_scaling": {"type": 4}}, "rope_scaling", "4"),
    ({"rope_parameters": {"rope_type": "yarn", "original_max_position_embeddings": 1.5}}, "rope_parameters", "1.5"),
    ({"linear_attn_config": "kda"}, "linear_attn_config", "'kda'"),
    ({"block_configs": {"attention": 1}}, "block_configs", "one entry for each"),
    ({"hybrid_override_pattern": "MXMX" * 8}, "hybrid_override_pattern", "X"),
    ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok", "9"),
    ({"sliding_window": 0}, "sliding_window", "0"),
    ({"sliding_window": "4096"}, "sliding_window", "'4096'"),
    ({"v_head_dim": 0}, "v_head_dim", "0"),
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


STRANGE = [None, True, False, 0, -1, 1, 3, 64, 10**9, 10**400, 1.5, float("inf"), float("nan"), "", "32", "*M-E", [], [0], [None],
           ["mamba"] * 80, ["hybrid"] * 80, {}, {"mamba": 1}, {"a": 10**12}, {"factor": "4"}, {"quant_method": ["x"]},
           {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"*": "FP8", "re:(": "NVFP4"}},
           {"quant_method": "fp8", "ignore": ["[", "{", "{a,*", "\\"]},
           {"quant_method": "compressed-tensors", "config_groups": [1]},
           {"full_attn_layers": [2], "num_heads": 2, "head_dim": 4, "short_conv_kernel_size": 1},
           [{"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": float("inf")}}] * 80]
QUESTIONS = [
    lambda model: model.caches(), lambda model: model.caches(CacheFormat(1, 16, 4), 1), lambda model: model.parameters,
    lambda model: model.active_parameters, lambda model: weight_bytes(model), lambda model: format_of(model).describe(),
    lambda model: rank_bytes(model, Shards(2, 2, 2, expert_parallel=True, mtp_layers=1))]


def test_changed_records_make_nothing_but_shapes_and_input_errors():
    chance, said = random.Random(0), Counter()
    records = list(catalogue()["models"].values())
    names = [*sorted({field for record in records for field in record}), "rope_scaling", "text_config"]
    for _ in range(1500):
        record = dict(chance.choice(records))
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            record[chance.choice(sorted(record) if chance.random() < 0.6 else names)] = chance.choice(STRANGE)
        made = outcome(shape_from_config, record, "m", "test")
        answers = [made] if isinstance(made, str) else [outcome(question, made) for question in QUESTIONS]
        assert all("\n" not in answer for answer in answers if isinstance(answer, str))
        said[isinstance(made, str)] += 1
    assert min(said.values()) > 200                    # both were tried
