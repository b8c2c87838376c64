"""The size of weights: by format, part and rank, by hand for small models."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from sim.models.model_config import load_model, shape_from_config
from sim.sizing.weights import Shards, format_of, nominal_bytes, rank_bytes, weight_bytes, weight_format
from workloads.request import InputError

SMALL = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "hidden_size": 32, "intermediate_size": 64, "vocab_size": 100, "torch_dtype": "bfloat16"}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
# a layer: q 32 x 32, k and v 32 x 16, o 32 x 32; MLP 3 x 32 x 64 or 4 experts of 3 x 32 x 16 and a router; two norms
ATTENTION, MLP, ROUTED, ROUTER, NORMS, TABLE = 3072, 6144, 6144, 128, 64, 3200


def model(**changes):
    return shape_from_config({**SMALL, **changes}, "m", "test")


def quantised(section, **changes):
    return model(quantization_config=section, **changes)


# ---------------------------------------------------------------------- formats
@pytest.mark.parametrize(("name", "bits"), [
    ("float32", 32), ("float16", 16), ("bfloat16", 16), ("fp8", 8), ("int8", 8), ("mxfp8", 8.25), ("int4", 4), ("gptq", 4.25),
    ("awq", 4.25), ("w4a16", 4.125), ("nvfp4", 4.5), ("mxfp4", 4.25), ("bitsandbytes", 4.5), ("Q8_0", 8.5008),
    ("q4_k_m", 4.8944), ("Q4_0", 4.5)])
def test_bits_a_weight(name, bits):
    assert float(weight_format(name).bits) == bits


def test_groups_and_bits_of_grouped_formats():
    assert float(weight_format("gptq", 4, 128).bits) / 8 == 0.53125
    assert float(weight_format("awq", 4, 64).bits) == 4.5
    assert float(weight_format("gptq", 3, 128).bits) == 3.25
    assert float(weight_format("w4a16", 4, 32).bits) == 4.5
    assert nominal_bytes(8e9, Fraction(17, 4)) == 4.25e9


@pytest.mark.parametrize("name", ["exl3", "gguf", "Q9_9", "", "compressed-tensors", "float64"])
def test_formats_that_are_not_known_come_with_the_known(name):
    with pytest.raises(InputError, match=r"weights is not known: one of float32, .*awq.*Q4_K_M"):
        weight_format(name)
    with pytest.raises(InputError, match=r"m: the size of .* weights is not known"):
        weight_bytes(replace(model(), quantization=name or "x"))


def test_bytes_of_a_small_model_by_format():
    matrices, rest, whole = 4 * (ATTENTION + MLP), 4 * NORMS + 32 + 2 * TABLE, 43_552
    assert matrices + rest == whole == model().parameters
    assert weight_bytes(model()) == 2 * whole
    assert weight_bytes(model(), "float32") == 4 * whole
    for method, bits in (("fp8", 8), ("awq", 4.25), ("nvfp4", 4.5)):
        assert weight_bytes(replace(model(), quantization=method)) == matrices * bits / 8 + 2 * rest
    assert weight_bytes(replace(model(), quantization="Q8_0")) == math.ceil(whole * 8.5008 / 8)
    routed = 4 * ROUTED
    sparse = replace(model(**EXPERTS), quantization="mxfp4")
    assert weight_bytes(sparse) == routed * 4.25 / 8 + 2 * (sparse.parameters - routed)


# ---------------------------------------------------------------------- ranks
def test_stages():
    assert [list(stage) for stage in Shards(pipeline=3).stages(4)] == [[0], [1, 2], [3]]
    assert [len(stage) for stage in Shards(pipeline=4).stages(63)] == [16, 16, 16, 15]
    assert [len(stage) for stage in Shards(pipeline=2).stages(5)] == [3, 2]
    assert [len(stage) for stage in Shards().stages(7)] == [7]
    with pytest.raises(InputError, match="pipeline_parallel_size 5 is more than the 4 layers"):
        rank_bytes(model(), Shards(pipeline=5))


def test_tensor_parallel_ranks_hold_norms_whole_and_the_rest_in_parts():
    shared = 4 * (ATTENTION + MLP) + 2 * TABLE
    for size in (1, 2, 4):
        assert rank_bytes(model(), Shards(tensor=size)) == [2 * (shared // size + 4 * NORMS + 32)]


def test_pipeline_stages_hold_their_layers_and_the_ends():
    layer = ATTENTION + MLP + NORMS
    assert rank_bytes(model(), Shards(pipeline=2)) == [2 * (2 * layer + TABLE), 2 * (2 * layer + 32 + TABLE)]
    assert rank_bytes(model(), Shards(pipeline=3)) == [2 * (layer + TABLE), 4 * layer, 2 * (layer + 32 + TABLE)]
    tied = model(tie_word_embeddings=True)
    assert rank_bytes(tied, Shards()) == [2 * (4 * layer + 32 + TABLE)]
    assert rank_bytes(tied, Shards(pipeline=2)) == rank_bytes(model(), Shards(pipeline=2))  # the table on both ends


def test_learned_positions_are_on_the_first_stage_only():
    first = {"model_type": "gpt2", "n_layer": 4, "n_head": 4, "n_embd": 32, "n_positions": 10, "vocab_size": 100}
    made = shape_from_config(first, "m", "test")
    assert made.extra_parameters == 320
    layer = made.layer_parameters(0)
    assert rank_bytes(made, Shards(pipeline=2)) == [2 * (2 * layer + 3200 + 320), 2 * (2 * layer + 64 + 3200)]


@pytest.mark.parametrize(("shards", "share"), [
    (Shards(tensor=2), 1 / 2), (Shards(data=2), 1 / 2), (Shards(tensor=2, data=2), 1 / 4),
    (Shards(tensor=2, expert_parallel=True), 1 / 2), (Shards(data=3, expert_parallel=True), 2 / 4),   # 2 of 4 experts
    (Shards(data=8, expert_parallel=True), 1 / 4)])
def test_routed_experts_are_shared_out_over_tensor_and_data_ranks(shards, share):
    one = ATTENTION // shards.tensor + ROUTED * share + ROUTER + NORMS
    assert rank_bytes(model(**EXPERTS), shards) == [2 * (4 * one + 32 + 2 * TABLE // shards.tensor)]


def test_low_rank_projections_are_whole_on_every_rank():
    latent = {"kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "q_lora_rank": 8}
    made = model(**latent)
    low = 8 * 33 + 32 * 20 + 16                            # down to both ranks, and their norms
    assert made.layer_parts(0)["low-rank projections"] == low
    assert made.layer_parts(0)["attention"] == 8 * 4 * 8 + 4 * 16 * (4 + 8)
    assert made.layer_parts(0)["attention output"] == 4 * 8 * 32
    shared = made.parameters - 4 * (low + NORMS) - 32
    assert rank_bytes(made, Shards(tensor=2)) == [2 * (shared // 2 + 4 * (low + NORMS) + 32)]


def test_layers_for_prediction_are_on_the_last_stage():
    extra = 2 * (ATTENTION + MLP + NORMS + 2 * 32 * 32 + 3 * 32)
    plain, more = (rank_bytes(model(), Shards(pipeline=2, mtp_layers=layers)) for layers in (0, 2))
    assert more == [plain[0], plain[1] + 2 * extra]
    hybrid = load_model("NVIDIA-Nemotron-3-Super-120B-A12B-BF16")    # attention and experts, though its last layer has none
    assert hybrid.layer_parameters(hybrid.layers) > hybrid.layer_parameters(7) + hybrid.layer_parameters(86)


# ---------------------------------------------------------------------- which parts a checkpoint quantises
def covered(section, **changes):
    """Parts in 8 bits, by layer."""
    made = quantised({"quant_method": "fp8", **section}, **changes)
    return [sorted(parts) for parts in made.layout.parts] if made.layout else None


ALL = ["attention", "attention output", "dense MLPs"]


@pytest.mark.parametrize(("section", "expected"), [
    ({}, None), ({"ignore": []}, None),
    ({"modules_to_not_convert": ["lm_head", "gate"]}, [ALL] * 5),
    ({"modules_to_not_convert": ["self_attn"]}, [["dense MLPs"]] * 5),
    ({"exclude_modules": ["model.layers.*.self_attn.q_proj"]}, [ALL] * 5),              # only one of three
    ({"ignore": ["model.layers.*.self_attn*"]}, [["dense MLPs"]] * 5),
    ({"ignore": ["*.mlp.*"]}, [["attention", "attention output"]] * 5),
    ({"ignore": ["re:.*self_attn.(q|k|v)_proj"]}, [["attention output", "dense MLPs"]] * 5),
    ({"ignore": ["model.layers.{0,2}.*", "model.layers.1.mlp"]}, [[], ["attention", "attention output"], [], ALL, ALL]),
    ({"ignore": ["language_model.model.layers.3*", "mtp*"]}, [ALL, ALL, ALL, [], []]),
    ({"ignore": ["model.layers.4*"]}, [ALL] * 4 + [[]]),                                # the layer for prediction
    ({"ignore": ["mtp.layers.0*", "model.visual.blocks.0*"]}, [ALL] * 4 + [[]])])
def test_what_a_list_of_exceptions_leaves_in_16_bits(section, expected):
    assert covered(section) == expected


def test_exceptions_are_counted_in_16_bits():
    made = quantised({"quant_method": "fp8", "ignore": ["model.layers.*.self_attn*", "model.layers.0*"]})
    assert weight_bytes(made) == 3 * MLP + 2 * (made.parameters - 3 * MLP)
    assert format_of(made).describe() == "fp8, 8 bits a weight, attention, attention output, embeddings and output layer in 16"
    forced = replace(made, quantization="awq")                                          # not the checkpoint's own
    assert "attention" not in format_of(forced).describe()


def test_experts_shared_experts_and_states():
    section = {"quant_method": "fp8", "ignore": ["model.layers.*.mlp.shared_expert*", "re:.*self_attn.*"]}
    made = quantised(section, **EXPERTS, shared_expert_intermediate_size=16)
    assert set(made.layout.parts) == {frozenset({"routed experts"})}
    assert format_of(made).describe() == "fp8, 8 bits a weight, all but the routed experts in 16"
    beside = {"layers.*.mlp*": frozenset({"attention", "attention output", "routed experts"})}
    for pattern, expected in beside.items():                                            # experts beside a dense MLP
        made = quantised({"quant_method": "fp8", "ignore": [pattern]}, **EXPERTS, enable_moe_block=True)
        assert made.layout.parts[0] == expected
    names = [format_of(load_model(name)).describe() for name in ("GLM-5.1-NVFP4", "Qwen3.5-122B-A10B-NVFP4", "Kimi-K3")]
    assert all("all but the routed experts in 16" in name for name in names)


def test_mixed_precision():
    listed = {"model.layers.*.mlp.up_proj": "NVFP4", "model.layers.*.self_attn.q_proj": {"quant_algo": "FP8"}, "lm_head": "MXFP8"}
    made = quantised({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed})
    assert made.quantization == "mixed_precision"
    attention = ATTENTION - 1024                                                        # without the output projection
    rest = 4 * (1024 + NORMS) + 32 + TABLE
    assert weight_bytes(made) == 4 * attention + 4 * MLP * 4.5 / 8 + TABLE * 8.25 / 8 + 2 * rest
    assert format_of(made).describe() == "mixed precision: attention fp8, dense MLPs nvfp4, output layer mxfp8, all else in 16"


def test_groups_of_compressed_tensors():
    def group(targets, bits, kind, size=None):
        return {"targets": targets, "weights": {"num_bits": bits, "type": kind, "group_size": size}}

    def stored(*groups, **more):
        return quantised({"quant_method": "compressed-tensors", "config_groups": dict(enumerate(groups)), **more}, **EXPERTS)
    assert stored(group(["Linear"], 8, "float")).quantization == "fp8"
    assert stored(group(["Linear"], 4, "float", 16)).quantization == "nvfp4"
    assert stored(group(["Linear"], 4, "float", 32)).quantization == "mxfp4"
    four = stored(group(["Linear"], 4, "int", 32), ignore=["re:.*self_attn.*"])
    assert (four.quantization, four.quantization_bits, four.group_size) == ("w4a16", 4, 32)
    assert four.layout.parts[0] == frozenset({"routed experts"})
    two = stored(group(["re:.*experts.*"], 4, "float", 16), group(["re:.*self_attn.*"], 8, "float"))
    assert dict(two.layout.formats) == {"attention": "fp8", "attention output": "fp8", "routed experts": "nvfp4"}
    with pytest.raises(InputError, match="5-bit"):
        weight_bytes(stored(group(["Linear"], 5, "int")))


@pytest.mark.parametrize(("section", "said"), [
    ([], r"must be an object of fields, not \[\]"), ({}, "must have a quant_method"), ({"quant_method": 3}, "quant_method"),
    ({"quant_method": "gptq", "bits": "4"}, "bits must be 2 to 8, not '4'"),
    ({"quant_method": "fp8", "ignore": "lm_head"}, "ignore must be a list of names, not 'lm_head'"),
    ({"quant_method": "fp8", "ignore": [3]}, r"ignore must be a list of names, not \[3\]"),
    ({"quant_method": "fp8", "ignore": ["re:("]}, "has a pattern that cannot be read"),
    ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quantized_layers must be an object, not None"),
    ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"*": "W3"}}, "'W3': known are FP8"),
    ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"x": "FP8"}}, "names no matrices")])
def test_sections_that_make_no_sense(section, said):
    with pytest.raises(InputError, match=f"quantization_config .*{said}") as error:
        quantised(section)
    assert "\n" not in str(error.value)
