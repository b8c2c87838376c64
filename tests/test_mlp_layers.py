"""Which layers have a dense MLP, experts or none, and how wide they are, from every field that says so."""

import pytest

from sim.models.config_fields import Fields
from sim.models.family import Experts, Family
from sim.models.mlp_layers import experts_of, mlp_layers, mlp_parts, mlp_widths
from workloads.request import InputError


def fields(**values):
    return Fields(values, "test")


@pytest.mark.parametrize(("values", "expected"), [
    ({}, "EEEE"), ({"first_k_dense_replace": 2}, "DDEE"), ({"mlp_only_layers": [1, 3]}, "EDED"),
    ({"moe_layers_enum": "1, 3"}, "DEDE"), ({"expert_layer_period": 2, "expert_layer_offset": 1}, "DEDE"),
    ({"moe_layer_freq": [0, 1, 1, 0]}, "DEED"), ({"moe_layer_freq": 2}, "EDED"), ({"decoder_sparse_step": 2}, "DEDE"),
    ({"interleave_moe_layer_step": 1}, "EEEE"), ({"moe_layer_start_index": 1}, "DEEE"), ({"enable_moe_block": True}, "2222"),
    ({"hybrid_override_pattern": "ME*-"}, "-E-D"), ({"layers_block_type": ["mamba", "moe", "attention", "mlp"]}, "-E-D"),
    ({"layers_block_type": ["mamba", "hybrid", "mamba", "mamba"]}, "----"),
    ({"layers_block_type": ["mamba", "attention", "mamba", "mamba"]}, "EEEE")])
def test_which_layers_have_experts(values, expected):
    found = mlp_layers(fields(**values), 4, has_experts=True)
    assert "".join({"dense": "D", "moe": "E", "none": "-", "dense+moe": "2"}[kind] for kind in found) == expected


@pytest.mark.parametrize("values", [{"hybrid_override_pattern": "ME"}, {"layers_block_type": ["mamba", "moe"]}])
def test_lists_that_are_too_short(values):
    with pytest.raises(InputError, match=f"{next(iter(values))} has 2 entries for 4 layers"):
        mlp_layers(fields(**values), 4, has_experts=True)


def test_without_experts_all_are_dense():
    assert mlp_layers(fields(first_k_dense_replace=1), 2, has_experts=False) == ("dense", "dense")


@pytest.mark.parametrize(("values", "family", "expected"), [
    ({}, Family(), None), ({"num_experts": 0}, Family(), None),
    ({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}, Family(), Experts(8, 2, 64)),
    ({"num_local_experts": 8, "intermediate_size": 96}, Family(), Experts(8, None, None)),
    ({"num_local_experts": 8, "intermediate_size": 96}, Family(expert_width_is_intermediate=True), Experts(8, None, 96)),
    ({"num_local_experts": 8, "intermediate_size": 96},                                          # Llama 4
     Family(expert_width_is_intermediate=True, shared_width_is_intermediate=True), Experts(8, None, 96, 96)),
    ({"n_routed_experts": 8, "n_shared_experts": 2, "moe_intermediate_size": 64}, Family(), Experts(8, None, 64, 128)),
    ({"num_experts": 8, "shared_expert_intermediate_size": 9, "moe_intermediate_size": 64}, Family(), Experts(8, None, 64, 9)),
    ({"n_routed_experts": 8, "n_shared_experts": 1, "moe_intermediate_size": 64,                 # Nemotron 3 Super
      "moe_shared_expert_intermediate_size": 90, "moe_latent_size": 16}, Family(), Experts(8, None, 64, 90, 16)),
    ({"num_experts": 8, "num_shared_experts": 2, "moe_intermediate_size": 64,                    # Kimi-K3
      "routed_expert_hidden_size": 16}, Family(), Experts(8, None, 64, 128, 16)),
    ({"num_experts": 8, "top_k_experts": 4, "moe_intermediate_size": 64}, Family(), Experts(8, 4, 64))])
def test_experts_by_the_fields_of_several_families(values, family, expected):
    assert experts_of(fields(**values), family) == expected


def test_widths_of_dense_layers():
    assert mlp_widths(fields(intermediate_size=8, intermediate_size_mlp=16), Family(), 2, 4) == (16, ())     # Llama 4
    assert mlp_widths(fields(intermediate_size=8, dense_intermediate_size=32), Family(), 2, 4) == (32, ())   # MiniMax-M3
    assert mlp_widths(fields(), Family(mlp_is_four_hidden=True), 2, 4) == (16, ())
    assert mlp_widths(fields(), Family(), 2, 4) == (None, ())
    with pytest.raises(InputError, match="num_experts_per_tok is 9, more than the 8 experts"):
        experts_of(fields(num_experts=8, num_experts_per_tok=9), Family())


def test_widths_of_a_searched_architecture():
    widths = [{"ffn_mult": 5.25}, {"ffn_mult": 0.5}, {"no_op": True}, {"intermediate_size": 300}]
    given = fields(block_configs=[{"ffn": width} for width in widths], hidden_size=8192)
    # 2/3 x 5.25 x 8192 = 28672; 2/3 x 0.5 x 8192 = 2730, rounded up to 256
    assert mlp_widths(given, Family(), 4, 8192) == (28672, (28672, 2816, 0, 300))
    assert mlp_layers(given, 4, has_experts=False) == ("dense", "dense", "none", "dense")


@pytest.mark.parametrize("ffn", [{}, {"ffn_mult": "2"}, {"ffn_mult": 0}, {"ffn_mult": True}, {"ffn_mult": float("inf")},
                                 {"ffn_mult": float("nan")}, {"intermediate_size": -1}, {"intermediate_size": 10**12}])
def test_widths_of_blocks_that_make_no_sense(ffn):
    with pytest.raises(InputError, match="block_configs entry 0: ffn"):
        mlp_widths(fields(block_configs=[{"ffn": ffn}], hidden_size=64), Family(), 1, 64)


# ---------------------------------------------------------------------- weights
def test_weights_of_mlps_by_hand():
    assert mlp_parts("dense", 64, None, Family(), 32) == {"dense MLPs": 3 * 32 * 64}
    assert mlp_parts("dense", 64, None, Family(mlp_matrices=2, all_bias=True), 32) == {"dense MLPs": 2 * 32 * 64 + 64 + 32}
    assert mlp_parts("none", None, None, Family(), 32) == {}
    experts = Experts(4, 2, 16, 24)
    assert mlp_parts("moe", None, experts, Family(), 32) == {
        "routed experts": 4 * 3 * 32 * 16, "shared experts": 3 * 32 * 24, "low-rank projections": 0, "rest": 32 * 4}
    both = mlp_parts("dense+moe", 64, experts, Family(), 32)
    assert both["dense MLPs"] == 3 * 32 * 64 and both["routed experts"] == 4 * 3 * 32 * 16
    narrow = mlp_parts("moe", None, Experts(4, 2, 16, 24, 8), Family(), 32)      # experts on 8 of 32 channels, two projections
    assert (narrow["routed experts"], narrow["low-rank projections"]) == (4 * 3 * 8 * 16, 2 * 32 * 8)


def test_widths_that_are_not_known_are_named():
    with pytest.raises(InputError, match="intermediate_size is not known"):
        mlp_parts("dense", None, None, Family(), 32)
    with pytest.raises(InputError, match="moe_intermediate_size is not known"):
        mlp_parts("moe", None, Experts(4, 2, None), Family(), 32)
