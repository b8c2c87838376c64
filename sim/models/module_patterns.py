"""Lists of modules in a ``quantization_config``, and the matrices of each part of a layer under the names of many families.

    "lm_head", "mlp.gate"                      a module, the one that holds it, or the end of its name
    "model.layers.*.self_attn*"                a wildcard; "layers.{0,78}.*" is one of these
    "re:.*mlp\\.(gate|up|down)_proj.*"         a regular expression, from the start of the name
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sim.models.weight_formats import ATTENTION, DENSE, HEAD, LOW_RANK, OUT, ROUTED, SHARED, STATE

_BLOCKS = ("mlp", "block_sparse_moe", "mixer", "feed_forward")
_PREFIXES = ("model.", "language_model.model.", "model.language_model.", "backbone.")
_OWN_PREFIX = re.compile(r"^(?:(?:model|language_model|backbone)\.)+(?=layers\.)")
_MODULES: dict[str, tuple[tuple[str, ...], ...]] = {
    ATTENTION: (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.qkv_proj",),
                ("self_attn.q_b_proj", "self_attn.kv_b_proj"), ("mixer.q_proj", "mixer.k_proj", "mixer.v_proj")),
    LOW_RANK: (("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"), ("mixer.fc1_latent_proj", "mixer.fc2_latent_proj")),
    OUT: (("self_attn.o_proj",), ("mixer.o_proj",)),
    STATE: (("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"),
            ("linear_attn.in_proj_qkvz", "linear_attn.out_proj"), ("mixer.in_proj", "mixer.out_proj"),
            ("mamba.in_proj", "mamba.out_proj"), ("conv.in_proj", "conv.out_proj")),
    DENSE: (*((f"{block}.up_proj", f"{block}.down_proj") for block in _BLOCKS), ("mlp.gate_up_proj", "mlp.down_proj")),
    SHARED: tuple((f"{block}.{name}.up_proj", f"{block}.{name}.down_proj") for block in _BLOCKS
                  for name in ("shared_expert", "shared_experts")),
    ROUTED: tuple((f"{block}.experts.0.{up}", f"{block}.experts.0.{down}") for block in _BLOCKS
                  for up, down in (("up_proj", "down_proj"), ("w1", "w2"))),
}


class Patterns:
    """Modules by name, wildcard or regular expression.

    Raises
    ------
    ValueError
        If a regular expression cannot be read.

    >>> Patterns(["model.layers.*.self_attn*"]).match("layers.3.self_attn.q_proj")
    True
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        plain = [_OWN_PREFIX.sub("", each) for each in patterns if not each.startswith("re:")]
        self.any = bool(patterns)
        self._names = {each for each in plain if "*" not in each and "{" not in each}
        globs = [_glob(each) for each in plain if each not in self._names]
        try:
            self._glob = re.compile("|".join(globs)) if globs else None
            self._regexes = [re.compile(each[3:]) for each in patterns if each.startswith("re:")]
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(" ".join(str(error).split())) from None

    def match(self, module: str) -> bool:
        """Whether a pattern names the module, one that holds it, or the end of its name."""
        words = module.split(".")
        starts = [i for i in range(len(words)) if words[0] != "mtp" or i not in (1, 2)]  # mtp.layers.0 is no layers.0
        pieces = [".".join(words[start:end]) for start in starts for end in range(start + 1, len(words) + 1)]
        if any(piece in self._names for piece in pieces):
            return True
        if self._glob is not None and any(map(self._glob.fullmatch, pieces)):
            return True
        return any(regex.match(prefix + module) for regex in self._regexes for prefix in _PREFIXES)


def modules(part: str, layer: int, is_last: bool, delta: bool, beside_dense: bool) -> list[list[str]]:
    """The matrices of a part of a layer: one list for each way to name them.

    Parameters
    ----------
    is_last : bool
        The layer is that of multi-token prediction, which has a second name.
    delta : bool
        States go by the names of attention (KDA, lightning attention).
    beside_dense : bool
        The experts stand beside a dense MLP, so they are no part of the block of that name.

    >>> modules("attention output", 3, is_last=False, delta=False, beside_dense=False)
    [['layers.3.self_attn.o_proj'], ['layers.3.mixer.o_proj']]
    """
    if part == HEAD:
        return [["lm_head"]]
    ways = _MODULES[ATTENTION] if part == STATE and delta else _MODULES[part]
    places = [f"layers.{layer}."] + (["mtp.layers.0."] if is_last else [])
    named = [[place + name for name in way] for way in ways for place in places]
    if part == ROUTED and beside_dense:
        named = [[name.replace(".mlp.experts", ".experts") for name in way] for way in named]
    return named


def _glob(pattern: str) -> str:
    """``*`` is anything, ``{1,2}`` one of these."""
    text = re.escape(pattern).replace(r"\*", ".*")
    return re.sub(r"\\\{([^{}]*?)\\\}", lambda found: f"(?:{found[1].replace(',', '|')})", text)
