"""Which mixer each layer has, from every field that says so, and the states by hand."""

import pytest

from sim.models.config_fields import Fields
from sim.models.layer_kinds import layer_names, layers_of
from sim.models.mixers import Attention, CacheFormat, Latent, State
from sim.models.model_config import load_model
from sim.models.state_layers import STATES, gated_delta_net, kda, lightning, mamba, shared_attention, short_convolution
from workloads.request import InputError

SHORT = {"full_attention": "F", "sliding_attention": "S", "chunked_attention": "C", "none": "-", "mamba": "M", "kda": "K",
         "linear_attention": "G", "lightning": "L", "conv": "V", "attention+mamba": "B"}
MAIN = Attention(8, 128)


def fields(**values):
    return Fields(values, "test")


def letters(model_type, count, **values):
    """One letter a layer."""
    return "".join(SHORT[name] for name in layer_names(fields(**values), model_type, count))


# ---------------------------------------------------------------------- names
@pytest.mark.parametrize(("model_type", "values", "expected"), [
    ("llama", {}, "FFFF"),
    ("mistral", {"sliding_window": 4096}, "SSSS"),
    ("qwen2", {"sliding_window": 4096}, "FFFF"),                                         # only where asked for
    ("qwen2", {"sliding_window": 4096, "use_sliding_window": False}, "FFFF"),
    ("qwen2", {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 3}, "FFFS"),
    ("gpt_oss", {}, "SFSF"),                                                             # the family's rule
    ("gemma3_text", {}, "SSSSSF"), ("cohere2", {}, "SSSF"),
    ("gemma3_text", {"sliding_window": 512, "sliding_window_pattern": 3}, "SSFS"),
    ("any", {"layer_types": ["sliding_attention", "local_attention", "attention", "global_attention"]}, "SSFF"),
    ("any", {"layer_types": ["short_conv", "conv", "full_attention", "Mamba2"]}, "VVFM"),
    ("any", {"layer_types": {"mamba": 3, "attention": 1}}, "MMMF"),                      # each name's last as late as can be
    ("nemotron_h", {"layers_block_type": ["mamba", "moe", "attention", "mlp"]}, "M-F-"),
    ("nemotron_h", {"hybrid_override_pattern": "M-*E"}, "M-F-"),
    ("zamba2", {"layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"]}, "MBMB"),
    ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 1, 1, 0]}, "FSSF"),
    ("minimax_m1", {"attn_type_list": [0, 0, 1, 0]}, "LLFL"),
    ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3]}}, "KKKF"),  # from 1
    ("qwen3_next", {"full_attention_interval": 4}, "GGGFGGGF"),
    ("bamba", {"attn_layer_indices": [2]}, "MMFM"),                                      # from 0
    ("jamba", {"attn_layer_period": 4, "attn_layer_offset": 1}, "MFMM"),
    ("jamba", {"attn_layer_period": 4}, "MMMF"),
    ("llama4_text", {"attention_chunk_size": 8192}, "CCCF"),
    ("llama4_text", {"attention_chunk_size": 8192, "no_rope_layers": [1, 0, 1, 0]}, "CFCF"),
    ("llama4_text", {"attention_chunk_size": 8192, "nope_layer_interval": 2}, "CFCF"),
    ("falcon_h1", {}, "BBBB")])
def test_every_field_that_names_layers(model_type, values, expected):
    assert letters(model_type, len(expected), **values) == expected


@pytest.mark.parametrize(("model_type", "values", "said"), [
    ("any", {"layer_types": ["full_attention"] * 3}, "layer_types has 3 entries for 4 layers"),
    ("any", {"layer_types": ["full_attention"] * 5}, "layer_types has 5 entries for 4 layers"),
    ("any", {"layer_types": {"attention": 1, "mamba": 10**9}}, "layer_types has 1000000001 entries"),
    ("any", {"layer_types": ["full_attention", "retention"] * 2}, "layer_types has retention: .*not understood yet"),
    ("any", {"layer_types": "full_attention"}, "layer_types must be a list of names"),
    ("nemotron_h", {"hybrid_override_pattern": "MXM?"}, "hybrid_override_pattern has .*X: known are M"),
    ("nemotron_h", {"hybrid_override_pattern": ["M"] * 4}, "hybrid_override_pattern must be text"),
    ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 2, 0, 0]}, "hybrid_layer_pattern has type 2"),
    ("minimax_m1", {"attn_type_list": [0, -1, 0, 0]}, "attn_type_list must be a list of whole numbers"),
    ("kimi_linear", {"linear_attn_config": "KKKF"}, "linear_attn_config must be an object"),
    ("jamba", {"attn_layer_period": 0}, "attn_layer_period must be a whole number of at least 1"),
    ("qwen3_next", {}, "full_attention_interval is missing"), ("bamba", {}, "attn_layer_indices is missing"),
    ("zamba2", {}, "layers_block_type is missing")])
def test_lists_that_make_no_sense_are_named(model_type, values, said):
    with pytest.raises(InputError, match=said):
        layer_names(fields(**values), model_type, 4)


def test_a_list_may_go_on_with_the_layers_for_prediction():
    assert letters("step3p7", 2, layer_types=["attention"] * 3, num_nextn_predict_layers=1) == "FF"


# ---------------------------------------------------------------------- mixers
def test_windows_chunks_and_heads_of_their_own():
    both = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 512}
    assert layers_of(fields(**both), "any", 2, MAIN) == ((Attention(8, 128, window=512),), (MAIN,))
    assert layers_of(fields(**both), "cohere2", 2, MAIN)[0] == (Attention(8, 128, window=513),)
    own = {"num_global_key_value_heads": 2, "global_head_dim": 512}                       # Gemma 4
    assert layers_of(fields(**both, **own), "any", 2, MAIN)[1] == (Attention(2, 512),)
    own = {"swa_num_key_value_heads": 4, "swa_head_dim": 192, "swa_v_head_dim": 96}       # MiMo-V2
    assert layers_of(fields(**both, **own), "any", 2, MAIN)[0] == (Attention(4, 192, 96, window=512),)
    chunked = {"attention_chunk_size": 256}
    assert layers_of(fields(**chunked), "llama4", 4, MAIN) == ((Attention(8, 128, chunk=256),),) * 3 + ((MAIN,),)


def test_layers_that_share_their_cache_keep_none():
    assert layers_of(fields(num_kv_shared_layers=2), "llama", 3, MAIN) == ((MAIN,), (), ())


def test_a_searched_architecture():
    blocks = [{"attention": {"n_heads_in_group": 8}}, {"attention": {"no_op": True}}, {"attention": {"n_heads_in_group": 4}}]
    given = fields(block_configs=blocks, num_attention_heads=64)
    assert layers_of(given, "nemotron-nas", 3, MAIN) == ((MAIN,), (), (Attention(16, 128),))


@pytest.mark.parametrize(("blocks", "said"), [
    ("x", "one entry for each of 1 layers"), ([], "one entry for each"), ([3], "entry 0 has no attention"),
    ([{"attention": 3}], "entry 0 has no attention"), ([{"attention": {}}], "n_heads_in_group None"),
    ([{"attention": {"n_heads_in_group": 0}}], "n_heads_in_group 0"), ([{"attention": {"n_heads_in_group": 7}}], "7 does not"),
    ([{"attention": {"replace_with_linear": True}}], "replace_with_linear is not understood yet")])
def test_blocks_that_make_no_sense(blocks, said):
    with pytest.raises(InputError, match=f"block_configs .*{said}"):
        layers_of(fields(block_configs=blocks, num_attention_heads=64), "nemotron-nas", 1, MAIN)


@pytest.mark.parametrize(("values", "field"), [
    ({"mamba_d_state": 16}, "mamba_d_state"), ({"linear_num_key_heads": 2}, "linear_num_key_heads"),
    ({"conv_L_cache": 3}, "conv_L_cache"), ({"swa_num_key_value_heads": 2}, "swa_num_key_value_heads"),
    ({"cross_attention_layers": [3]}, "cross_attention_layers"), ({"compress_ratios": [4]}, "compress_ratios"),
    ({"is_encoder_decoder": True}, "is_encoder_decoder")])
def test_fields_of_layers_that_were_not_found_are_refused(values, field):
    with pytest.raises(InputError, match=f"{field} is .*not understood yet"):
        layers_of(fields(**values), "llama", 2, MAIN)


@pytest.mark.parametrize("model_type", ["deepseek_v4", "mamba", "rwkv", "gemma3n_text", "mllama"])
def test_model_types_that_are_refused(model_type):
    with pytest.raises(InputError, match=f"model_type is '{model_type}': .*not understood yet"):
        layers_of(fields(), model_type, 2, MAIN)


def test_windows_beside_latent_rows_are_refused():
    with pytest.raises(InputError, match="kv_lora_rank is set beside sliding_attention layers"):
        layers_of(fields(sliding_window=512), "any", 2, Latent(512, 64))


# ---------------------------------------------------------------------- states
def state_bytes(mixer, ranks=1):
    (cache,) = mixer.caches(CacheFormat(tensor_parallel_size=ranks))
    return cache.page_bytes


def state_of(name):
    return next(mixer for layer in load_model(name).mixers for mixer in layer if isinstance(mixer, State))


@pytest.mark.parametrize(("name", "ranks", "expected"), [
    # (2 x 16 x 128 + 32 x 128) channels x 3 inputs x 2 bytes + 32 heads x 128 x 128 x 4 bytes, over 2 ranks
    ("Qwen3.5-9B", 2, (8192 * 3 * 2 + 32 * 128 * 128 * 4) // 2),
    # 64 heads x 64 + 2 x 8 groups x 128: 6144 channels; states in float32
    ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 1, 6144 * 3 * 2 + 64 * 64 * 128 * 4),
    ("NVIDIA-Nemotron-Nano-9B-v2", 4, (10240 + 2048) // 4 * 3 * 2 + 32 * 80 * 128 * 4),
    # one group for 4 ranks: each keeps it
    ("Bamba-9B-v1", 4, (8192 + 4 * 2 * 128) // 4 * 3 * 2 + 32 * 64 * 128 * 2),
    ("Jamba-v0.1", 1, 8192 * 3 * 2 + 8192 * 16 * 2),                    # Mamba 1: 2 x 4096 channels, 16 elements each
    ("Kimi-Linear-48B-A3B", 1, 3 * 4096 * 3 * 2 + 32 * 128 * 128 * 4),
    ("LFM2-1.2B", 1, 2048 * 2 * 2), ("MiniMax-M1-80k", 8, 8 * 128 * 128 * 2),
    ("Zamba2-2.7B", 1, (5120 + 128) * 3 * 2 + 80 * 64 * 64 * 2)])
def test_states_by_hand(name, ranks, expected):
    assert state_bytes(state_of(name), ranks) == expected


def test_the_state_of_a_start_up_log():
    assert state_bytes(state_of("Qwen3.5-9B"), 2) == 1_073_152           # v104


def test_states_of_a_blocks_dtype():
    given = {"mamba_d_state": 4, "mamba_d_conv": 4, "hidden_size": 8, "mamba_n_heads": 2, "mamba_d_head": 8}
    assert mamba(fields(**given)).state_dtype is None
    assert mamba(fields(**given, mamba_ssm_dtype="float32")).state_dtype == "float32"
    assert mamba(fields(**given, model_type="nemotron_h")).state_dtype == "float32"
    for wrong in ("int4", 4, ["float32"]):
        with pytest.raises(InputError, match="mamba_ssm_dtype must be one of float32"):
            mamba(fields(**given, mamba_ssm_dtype=wrong))


def test_weights_of_states_by_hand():
    net = gated_delta_net(fields(linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=4,
                                 linear_value_head_dim=4, linear_conv_kernel_dim=4, hidden_size=10))
    # in 10 x (16 + 8 + 2 + 2), convolution 16 x 4, two values a head, a norm, out 8 x 10
    assert net.parameters == 280 + 64 + 4 + 4 + 80
    assert short_convolution(fields(hidden_size=10, conv_L_cache=3)).parameters == 3 * 100 + 100 + 30
    assert lightning(fields(num_attention_heads=2, head_dim=5, hidden_size=10)).parameters == 5 * 100 + 10
    heads = mamba(fields(mamba_d_state=4, mamba_d_conv=4, hidden_size=10, mamba_n_heads=2, mamba_d_head=8, mamba_n_groups=1))
    # 16 channels, 24 through the convolution: in 10 x (16 + 24 + 2), taps and bias, A, D and dt, a norm, out
    assert heads.parameters == 420 + 24 * 5 + 6 + 16 + 160
    first = mamba(fields(mamba_d_state=4, mamba_d_conv=4, hidden_size=10, mamba_dt_rank=3))
    # 20 channels: in, taps and bias, x to rank and two states, dt with bias, A, D, out
    assert first.parameters == 400 + 100 + 20 * 11 + 80 + 80 + 20 + 200
    delta = kda(fields(hidden_size=10, linear_attn_config={"num_heads": 2, "head_dim": 4, "short_conv_kernel_size": 4}))
    assert delta.parameters == 4 * 80 + 3 * 8 * 4 + 2 * (40 + 32) + 20 + 8 + 2 + 4


def test_states_that_make_no_sense():
    with pytest.raises(InputError, match="mamba_num_heads 3 does not divide the 20 channels"):
        mamba(fields(mamba_d_state=4, mamba_d_conv=4, hidden_size=10, mamba_n_heads=3))
    with pytest.raises(InputError, match="conv_L_cache is 1"):
        short_convolution(fields(hidden_size=8, conv_L_cache=1))
    with pytest.raises(InputError, match="linear_key_head_dim is missing"):
        gated_delta_net(fields(linear_num_key_heads=2, linear_num_value_heads=2))
    assert set(STATES) == {"linear_attention", "kda", "mamba", "lightning", "conv"}


def test_shared_blocks_count_once_and_every_hybrid_layer_keeps_a_cache():
    model = load_model("Zamba2-2.7B")
    hybrid = [layer for layer in model.mixers if len(layer) == 2]
    assert len(hybrid) == 9
    assert model.kv_bytes_per_token() == 9 * 32 * (160 + 160) * 2
    weights = [attention.parameters for attention, _ in hybrid]
    assert weights[0] == weights[1] > weights[2] == weights[8]            # two blocks, used in turn
    assert weights[0] - weights[2] == 4 * 5120 * 5120 - 5120 * 2560 + 3 * 2560 * 10240 + 5120 + 2560
    assert {cache.block_size for layer in model.caches() for cache in layer} == {48}  # start-up log v085
    with pytest.raises(InputError, match="adapter_rank is missing"):
        shared_attention(fields(num_attention_heads=2, attention_head_dim=4, hidden_size=8, intermediate_size=8), 0)
