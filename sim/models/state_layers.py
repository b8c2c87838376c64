"""Layers with a fixed state, from the fields of config.json: linear attention, Mamba 1 and 2, short convolutions.

                        past inputs of the convolution              recurrent state a head
    gated delta net     2 x key channels + value channels           value dim x key dim
    KDA                 3 x channels                                head dim x head dim           float32
    Mamba 2             channels + 2 x groups x state               head dim x state
    Mamba 1             channels                                    state, a channel
    lightning           none                                        head dim x head dim
    short convolution   hidden size                                 none
"""

from __future__ import annotations

from collections.abc import Callable

from sim.models.config_fields import Fields
from sim.models.mixers import STATE_ELEMENT_BYTES, Attention, State
from sim.models.model_names import shortened


def _state_dtype(fields: Fields) -> str | None:
    name = fields.get("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    if name is None and fields.text("model_type") == "nemotron_h":
        return "float32"                               # the default of these models' configuration
    if name is not None and (not isinstance(name, str) or name not in STATE_ELEMENT_BYTES):
        raise fields.fail("mamba_ssm_dtype", f"must be one of {', '.join(STATE_ELEMENT_BYTES)}, not {shortened(name)}")
    return name


def gated_delta_net(fields: Fields) -> State:
    """Qwen3-Next, Qwen3.5.

    >>> fields = {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    ...           "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "hidden_size": 2048}
    >>> gated_delta_net(Fields(fields, "doc")).conv_width
    8192
    """
    key_heads, value_heads = fields.need("linear_num_key_heads"), fields.need("linear_num_value_heads")
    key_dim, value_dim = fields.need("linear_key_head_dim"), fields.need("linear_value_head_dim")
    kernel, hidden = fields.need("linear_conv_kernel_dim"), fields.need("hidden_size")
    keys, values = key_heads * key_dim, value_heads * value_dim
    width = 2 * keys + values
    weights = hidden * (width + values + 2 * value_heads) + width * kernel + 2 * value_heads + value_dim + values * hidden
    return State(width, kernel, value_heads, key_dim * value_dim, state_dtype=_state_dtype(fields), parameters=weights,
                 kind="linear_attention")


def kda(fields: Fields) -> State:
    """Kimi Linear's delta attention."""
    section = Fields(fields.section("linear_attn_config") or {}, "linear_attn_config")
    heads, width = section.need("num_heads"), section.need("head_dim")
    kernel, hidden = section.need("short_conv_kernel_size"), fields.need("hidden_size")
    channels = heads * width
    gates = 2 * (hidden * width + width * channels) + hidden * heads + channels + heads + width
    weights = 4 * hidden * channels + 3 * channels * kernel + gates
    return State(3 * channels, kernel, heads, width * width, state_dtype="float32", parameters=weights, kind="kda")


def mamba(fields: Fields) -> State:
    """Mamba 2 where heads are given, else Mamba 1."""
    hidden = fields.need("hidden_size")
    size, kernel = fields.need("ssm_state_size", "mamba_d_state", "state_size"), fields.need("mamba_d_conv", "conv_kernel")
    expand = fields.count("mamba_expand", "expand") or 2
    heads = fields.count("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    if heads is None:
        channels = fields.count("mamba_d_inner") or expand * hidden
        rank = fields.count("mamba_dt_rank", "time_step_rank") or -(-hidden // 16)
        weights = hidden * 2 * channels + channels * (kernel + 1) + channels * (rank + 2 * size) + (rank + 1) * channels \
            + channels * size + channels + channels * hidden
        return State(channels, kernel, channels, size, state_dtype=_state_dtype(fields), speculates=False, parameters=weights,
                     kind="mamba")
    width = fields.count("mamba_head_dim", "mamba_d_head", "mamba_headdim")
    channels = fields.count("mamba_d_ssm") or (heads * width if width else expand * hidden)
    if channels % heads:
        raise fields.fail("mamba_num_heads", f"{heads} does not divide the {channels} channels")
    groups = fields.count("n_groups", "mamba_n_groups", "mamba_ngroups") or 1
    convolved = channels + 2 * groups * size
    weights = hidden * (channels + convolved + heads) + convolved * (kernel + 1) + 3 * heads + channels + channels * hidden
    return State(channels, kernel, heads, channels // heads * size, groups, 2 * size, _state_dtype(fields), parameters=weights,
                 kind="mamba2")


def lightning(fields: Fields) -> State:
    """MiniMax's lightning attention: no convolution."""
    heads, hidden = fields.need("num_attention_heads"), fields.need("hidden_size")
    width = fields.count("head_dim") or hidden // heads
    return State(0, 0, heads, width * width, speculates=False, parameters=5 * hidden * heads * width + heads * width,
                 kind="lightning")


def short_convolution(fields: Fields) -> State:
    """LFM2's gated short convolution."""
    hidden, kernel = fields.need("hidden_size"), fields.need("conv_L_cache")
    width = fields.count("conv_dim") or hidden
    if kernel < 2:
        raise fields.fail("conv_L_cache", f"is {kernel}: nothing would be kept")
    return State(width, kernel, parameters=4 * hidden * width + width * kernel, speculates=False, kind="conv")


def shared_attention(fields: Fields, passed: int) -> Attention:
    """Zamba2's attention of a hybrid layer; a shared block's weights count in the first layer that uses it.

    Every such layer keeps its own K and V, and has its own adapter to the shared MLP and a projection back.

    Parameters
    ----------
    passed : int
        Hybrid layers before this one.

    >>> fields = {"num_attention_heads": 32, "attention_head_dim": 160, "hidden_size": 2560, "intermediate_size": 10240,
    ...           "num_mem_blocks": 2, "adapter_rank": 128}
    >>> [shared_attention(Fields(fields, "doc"), passed).parameters for passed in (0, 2)]
    [179904000, 9502720]
    """
    heads, width, hidden = fields.need("num_attention_heads"), fields.need("attention_head_dim"), fields.need("hidden_size")
    inner, inputs = fields.need("intermediate_size"), fields.count("attention_hidden_size") or 2 * hidden
    rank = fields.need("adapter_rank")
    own = hidden * hidden + rank * (hidden + 2 * inner)
    if fields.flag("use_shared_attention_adapter"):
        own += 3 * rank * (inputs + heads * width)
    block = 3 * inputs * heads * width + heads * width * hidden + 3 * hidden * inner + inputs + hidden
    return Attention(heads, width, parameters=own + (block if passed < (fields.count("num_mem_blocks") or 1) else 0))


STATES: dict[str, Callable[[Fields], State]] = {
    "linear_attention": gated_delta_net, "kda": kda, "mamba": mamba, "lightning": lightning, "conv": short_convolution,
}
