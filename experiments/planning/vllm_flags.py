"""The options of ``vllm serve`` that a pasted command may hold, each in one of four classes.

    plan          taken over by ``pagedsim plan`` under the same name             --max-model-len
    speculative   together they are the speculative configuration                 --speculative-config
    ignored       known to vLLM, leaves the memory plan as it is                  --port
    unmodelled    changes the memory, is not modelled; with what it changes       --enable-lora

The last two, of vLLM 0.4 to 0.33, are in data/vllm_flags.json by the values they take: switch, one, many, optional.
"""

from __future__ import annotations

import difflib
import json
from importlib import resources
from typing import NamedTuple, TypeAlias

from workloads.request import InputError

PLAN_SWITCHES = ("enable-prefix-caching", "enable-chunked-prefill", "enable-expert-parallel", "async-scheduling", "enforce-eager",
                 "disable-hybrid-kv-cache-manager")
PLAN_VALUES = ("model", "dtype", "quantization", "kv-cache-dtype", "block-size", "max-model-len", "gpu-memory-utilization",
               "tensor-parallel-size", "pipeline-parallel-size", "decode-context-parallel-size", "data-parallel-size",
               "max-num-seqs", "max-num-batched-tokens", "cpu-offload-gb", "num-gpu-blocks-override", "mamba-cache-mode",
               "mamba-ssm-cache-dtype")
"""Options that `ServeLine.arguments` can hold: ``--NAME`` and ``--no-NAME`` of the switches, ``--NAME=VALUE`` of the others."""

SPECULATIVE = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens",
               "speculative-model": "model", "num-speculative-tokens": "num_speculative_tokens"}


class Flag(NamedTuple):
    """One option: its name without dashes, the values it takes, its class, and what an unmodelled one changes."""

    name: str
    values: str
    kind: str
    why: str = ""


Table: TypeAlias = dict[str, tuple[Flag, bool]]
"""Every spelling, dashes included -> the option, and whether a switch spelled so is on."""


def known_flags() -> Table:
    """All options. A switch ``--x`` has ``--no-x``, and ``--disable-x`` undoes ``--enable-x``.

    >>> flag, on = known_flags()["--disable-prefix-caching"]
    >>> flag.name, flag.kind, on
    ('enable-prefix-caching', 'plan', False)
    """
    data = json.loads(resources.files("experiments.planning").joinpath("data/vllm_flags.json").read_text("utf-8"))
    flags = [Flag(name, "switch", "plan") for name in PLAN_SWITCHES]
    flags += [Flag(name, "one", "plan") for name in (*PLAN_VALUES, "kv-cache-memory-bytes")]
    flags += [Flag(name, "one", "speculative") for name in ("speculative-config", *SPECULATIVE)]
    flags += [Flag(name, values, "ignored") for values, names in data["ignored"].items() for name in names]
    flags += [Flag(name, values, "unmodelled", why) for why, group in data["unmodelled"].items()
              for values, names in group.items() for name in names]
    table = {spelling: (flag, on) for flag in flags for spelling, on in _spellings(flag)}
    return table | {other: table[f"--{name}"] for other, name in data["other_names"].items()}


def _spellings(flag: Flag) -> list[tuple[str, bool]]:
    spellings = [(f"--{flag.name}", True)]
    if flag.values == "switch":
        verb, _, rest = flag.name.partition("-")
        inverse = {"enable": "disable", "disable": "enable"}.get(verb, "no-" + verb)
        spellings += [(f"--no-{flag.name}", False), (f"--{inverse}-{rest}".rstrip("-"), False)]
    return spellings


def look_up(table: Table, name: str) -> str:
    """The spelling that ``name`` means: itself, or the only one that begins so.

    Raises
    ------
    InputError
        If vLLM has no such option; the closest one is named.

    >>> look_up(known_flags(), "--gpu-memory-util")
    '--gpu-memory-utilization'
    """
    if name in table:
        return name
    if name == "--config":
        raise InputError("--config: a file of options is not read: put its options into the command")
    longer = [spelling for spelling in table if name.startswith("--") and spelling.startswith(name)]
    if len(longer) == 1 and name != "--gpu":           # --gpu is an option of plan in the wrong place
        return longer[0]
    close = longer[:3] or difflib.get_close_matches(name, table, n=1)
    hint = f"did you mean {' or '.join(close)}? " if close and name != "--gpu" else ""
    raise InputError(f"vLLM has no option {name}: {hint}options of plan itself go before the --")
