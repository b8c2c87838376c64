"""Files and commands made up by rule: the right words in all the wrong places."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from copy import deepcopy
from functools import cache
from inspect import Parameter, signature
from io import StringIO
from random import Random
from typing import Any

from experiments.cli import main
from experiments.planning.vllm_flags import known_flags
from sim.models.model_names import catalogue
from workloads.synth.arrivals import ARRIVALS
from workloads.synth.conversations import CONVERSATIONS
from workloads.synth.lengths import LENGTHS
from workloads.synth.prefixes import PREFIXES

from .mutations import NUMBERS, RAW, VALUES
from .vocabulary import BAD_VALUES, CASE_KEYS, CONFIG_NAMES, CSV_NAMES, GOOD_VALUES, JSON_NAMES, WHOLE

TOML_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|[+-]?(nan|inf)|true|0x10")
PLACES: dict[str, tuple[Mapping[str, Any], ...]] = {
    "--synth-prefix": (PREFIXES,), "--synth-output": (LENGTHS,), "--synth-arrivals": (ARRIVALS,),
    "prefix": (PREFIXES, CONVERSATIONS),
    "prompt": (LENGTHS,), "output": (LENGTHS,), "arrivals": (ARRIVALS,)}
"""Where generators stand -> those that may stand there."""


# ---------------------------------------------------------------------- values
def number(draw: Random) -> str:
    """A number as text, reasonable half of the time."""
    return str(draw.choice(WHOLE[:14])) if draw.random() < 0.5 else draw.choice(NUMBERS)


def value(draw: Random, depth: int = 0) -> Any:
    """Anything that JSON can hold."""
    match draw.randrange(6):
        case 0 | 1:
            return draw.choice(WHOLE)
        case 2 if depth < 2:
            return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
        case 3 if depth < 2:
            return {draw.choice((*JSON_NAMES, *CONFIG_NAMES)): value(draw, depth + 1) for _ in range(draw.randrange(4))}
        case _:
            return deepcopy(draw.choice(VALUES))


def toml(draw: Random, depth: int = 0) -> str:
    """A value as TOML writes it."""
    match draw.randrange(8):
        case 0 | 1 | 2:
            text = number(draw)
            return text if TOML_NUMBER.fullmatch(text) or draw.random() < 0.05 else draw.choice(("3", "nan", "-inf", "1e999"))
        case 3 if depth < 2:
            return "[" + ", ".join(toml(draw, depth + 1) for _ in range(draw.randrange(4))) + "]"
        case 4 if depth < 2:
            keys = draw.sample(("from", "to", "step", "steps", "scale", "kind", "rate", "value", "least", "most"),
                               draw.randrange(5))
            return "{" + ", ".join(f"{key} = {toml(draw, depth + 1)}" for key in keys) + "}"
        case 5:
            return draw.choice(("true", "false", '""', "'x'", '"log"', '"\\u0000"', "1979-05-27T07:32:00Z", "07:32:00"))
        case 6:
            return json.dumps(spec(draw, draw.choice(list(PLACES))))
        case _:
            return json.dumps(draw.choice(GOOD_VALUES))


def spec(draw: Random, place: str) -> str:
    """A generator for a place, mostly of a kind and with keys that it has, in its short form."""
    kinds = draw.choice(PLACES[place if draw.random() < 0.95 else draw.choice(list(PLACES))])
    kind = draw.choice(sorted(kinds))
    known = {name: one for name, one in signature(kinds[kind]).parameters.items() if one.kind is Parameter.KEYWORD_ONLY}
    keys = [name for name, one in known.items() if one.default is Parameter.empty or draw.random() < 0.3]
    if draw.random() < 0.15:
        keys = [*keys[1:], draw.choice(("x", "kind", "rate", *keys))]
    return kind + ":" * bool(keys) + ",".join(f"{key}={_spec_value(draw, key)}" for key in keys)


def _spec_value(draw: Random, key: str) -> str:
    if key in ("name", "column") and draw.random() < 0.8:
        return draw.choice(("sharegpt", "prompt", "output"))
    return draw.choice((str(draw.choice(WHOLE[1:10])), draw.choice(("0.5", "1", "2.5")), number(draw),
                        "(uniform:least=1,most=9)",
                        "(lognormal:mean=40,sigma=1)", "(exponential:mean=2)", "true"))


# ---------------------------------------------------------------------- files
def table(draw: Random) -> bytes:
    """A CSV with columns of several formats."""
    names = draw.sample(CSV_NAMES, draw.choice((0, 0, 1, 2, 4)))
    if draw.random() < 0.9 or not names:
        names = [*draw.choice((("prompt_tokens", "output_tokens"), ("ContextTokens", "GeneratedTokens", "TIMESTAMP"),
                               ("num_prefill_tokens", "num_decode_tokens", "arrived_at"), ("Request tokens", "Response tokens"),
                               ("prompt_tokens", "output_tokens", "ttft_ms", "tpot_ms", "concurrency"))), *names]
    rows = [",".join(names)] * (draw.random() < 0.95)
    rows += [",".join(number(draw) if draw.random() < 0.1 else str(draw.choice(WHOLE[1:11])) for _ in names)
             for _ in range(draw.randrange(6))]
    return draw.choice(("\n", "\r\n", "\n\n")).join(rows).encode() + b"\n" * draw.randrange(3)


def records(draw: Random, names: Sequence[str] = JSON_NAMES) -> bytes:
    """JSON lines, or one document, whose keys are those of several formats."""
    keys = draw.sample(names, draw.choice((0, 0, 1, 2, 5)))
    if draw.random() < 0.9 or not keys:
        keys = [*draw.choice((("timestamp", "input_length", "output_length", "hash_ids"), ("input_toks", "output_toks"),
                              ("input_lens", "output_lens"), ("prompt_len", "output_len"), ("conversations",),
                              ("requests", "block_size", "id"), ("input", "output", "timestamp"))), *keys]
    rows: list[Any] = [{key: _of(draw, key) if draw.random() < 0.85 else value(draw) for key in keys}
                       for _ in range(draw.randint(1, 4))]
    if draw.random() < 0.3:
        return json.dumps(draw.choice((rows, rows[0], {"requests": rows}, [rows]))).encode()
    made = "\n".join(map(json.dumps, rows))
    if draw.random() < 0.2:
        made = made.replace(json.dumps(draw.choice(WHOLE[1:9])), draw.choice(RAW), 1)
    return made.encode()


def _of(draw: Random, key: str) -> Any:
    """What stands under a key of a trace."""
    if key in ("hash_ids", "input_tok_ids", "output_tok_ids", "input_lens", "output_lens", "ttfts", "start_times"):
        return [draw.choice(WHOLE[:10]) for _ in range(draw.randint(1, 3))]
    if key == "conversations":
        return [{"from": "human", "value": "x" * 40}, {"from": draw.choice(("gpt", "human")), "value": draw.choice(("hello", "",
                                                                                                                    1))}]
    if key == "requests":
        return [{"t": draw.choice(WHOLE[:9]), "in": 70, "out": draw.choice(WHOLE[:9]),
                 "type": draw.choice(("s", "n", "subagent")),
                 "hash_ids": [1, 2]}]
    return draw.choice(("abc", "")) if key in ("input", "output", "session_id", "type", "id") else draw.choice(WHOLE[1:9])


def config(draw: Random) -> bytes:
    """A config.json out of the fields of all families."""
    known = catalogue()["families"]
    made: dict[str, Any] = {"model_type": draw.choice(sorted(known)), "num_hidden_layers": draw.choice((1, 2, 4, 12, 61)),
                            "num_attention_heads": draw.choice((1, 8, 32)), "hidden_size": draw.choice((64, 4096, 4097)),
                            "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096}
    for name in draw.sample(CONFIG_NAMES, draw.randint(0, 12)):
        made[name] = draw.choice((value(draw), draw.choice(WHOLE), draw.choice(WHOLE[1:8]), _config_part(draw, made)))
    return json.dumps({"text_config": made} if draw.random() < 0.1 else made).encode()


def _config_part(draw: Random, made: dict[str, Any]) -> Any:
    """Lists by layer, patterns and tables as real ones have them."""
    layers = made["num_hidden_layers"]
    layers = layers if isinstance(layers, int) and 0 < layers < 200 else 4
    return draw.choice((
        [draw.choice(("full_attention", "sliding_attention", "linear_attention", "mamba", "attention",
                      1)) for _ in range(layers)],
        [draw.choice((0, 1, 8)) for _ in range(layers)], "".join(draw.choice("M*-E|") for _ in range(layers)),
        {"rope_type": "yarn", "factor": draw.choice((4.0, -1, "x", 10**400)),
         "original_max_position_embeddings": draw.choice(WHOLE)},
        {"quant_method": draw.choice(("fp8", "awq", "gptq", "compressed-tensors", "modelopt", "x", 1)),
         "bits": draw.choice(WHOLE),
         "group_size": draw.choice(WHOLE), "config_groups": {"a": {"weights": {"num_bits": draw.choice(WHOLE)},
                                                                   "targets": value(draw)}},
         "modules_to_not_convert": value(draw), "ignore": value(draw)},
        {"short_conv_kernel_size": 4, "num_heads": draw.choice(WHOLE), "head_dim": draw.choice(WHOLE),
         "full_attn_layers": value(draw),
         "kda_layers": value(draw)}, [{"attention": value(draw), "ffn": value(draw)} for _ in range(layers)]))


def case(draw: Random) -> bytes:
    """A recorded case: requests and a configuration, and sometimes what is expected."""
    def request(n: int) -> Any:
        made: dict[str, Any] = {"id": draw.choice((f"r{n}", "r0", n)), "arrive": draw.choice((0, n, *WHOLE)),
                                "output": draw.choice((1, 2, 5, 40, *WHOLE))}
        made |= draw.choice(({"prompt": [["s", draw.choice((16, 33, *WHOLE))], [f"u{n}", draw.choice((1, 7))]]},
                             {"hash_ids": [1, n], "input_length": draw.choice((600, *WHOLE)),
                              "hash_block": draw.choice((512, *WHOLE))},
                             {"prompt_token_ids": [1, 2, n]}, {"prompt": value(draw)}))
        return made | draw.choice(({}, {"priority": draw.choice(WHOLE)}, {"salt": value(draw)}))
    settings = {"num_blocks": draw.choice((5, 20, 100)), "block_size": draw.choice((1, 8, 16))}
    for key in draw.sample(CASE_KEYS, draw.randint(0, 6)):
        settings[key] = draw.choice((draw.choice(WHOLE), True, False, 0.1, "fcfs", "priority", "full", "steps", value(draw),
                                     [{"kind": draw.choice(("full", "sliding", "chunked_local", "x")),
                                       "window": draw.choice(WHOLE)}]))
    return json.dumps({"name": "x", "config": settings, "requests": [request(n) for n in range(draw.randint(0, 4))]}
                      | draw.choice(({"result": {"steps": 3}}, {"result": {}},
                                     {"result": {"events": [], "outcome": "finished"}}, {},
                                     {"result": value(draw)}))).encode()


def tables(draw: Random, keys: Sequence[str], sections: Sequence[str]) -> bytes:
    """A TOML file of these keys and sections."""
    def line(key: str) -> str:
        return f"{key} = {json.dumps(spec(draw, key)) if key in PLACES and draw.random() < 0.8 else toml(draw)}"
    under = draw.sample(sections, draw.randint(0, min(3, len(sections))))
    lines = [line(key) for key in draw.sample(keys, draw.randint(1, min(5, len(keys)))) if key not in under]
    for section in under:
        own = draw.sample((*keys, "kind", "rate", "value", "from", "to"), draw.randrange(4))
        lines += [f"[{section}]", *map(line, dict.fromkeys(own))]
    return "\n".join(lines).encode()


# ---------------------------------------------------------------------- commands
@cache
def options_of(*command: str) -> tuple[tuple[str, bool], ...]:
    """A command's options out of its own help, and whether each takes a value."""
    said = StringIO()
    with redirect_stdout(said), suppress(SystemExit):
        main([*command, "--help"])
    found = re.findall(r"^  (?:(-\w+)(?: [A-Z.]+)?, )?(--[\w-]+)(?:, (?:-\w+|--[\w-]+)(?: \S+)?)*( [A-Z{]\S*)?",
                       said.getvalue(), re.MULTILINE)
    return tuple((long, bool(taken)) for _, long, taken in found)


def words(draw: Random, command: Sequence[str], most: int = 4, never: Sequence[str] = ()) -> list[str]:
    """Some options of a command with some values."""
    made = []
    for name, takes in draw.choices([pair for pair in options_of(*command) if pair[0] not in ("--help", *never)],
                                    k=draw.randint(1, most)):
        text = draw.choice((draw.choice(GOOD_VALUES), draw.choice(BAD_VALUES), number(draw), number(draw)))
        if name in PLACES:
            text = spec(draw, name)
        made += draw.choice(([f"{name}={text}"], [name, text])) if takes and draw.random() < 0.95 else [name]
    return made


def serve(draw: Random) -> str:
    """A vLLM server command out of the options that vLLM has."""
    flags = sorted(known_flags())
    made = [draw.choice((*["vllm serve"] * 6, "python -m vllm.entrypoints.openai.api_server",
                         "docker run vllm/vllm-openai:v0.9.1", "vllm", ""))]
    made += [draw.choice(("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "--model meta-llama/Llama-3.1-8B", "--model=''",
                          "facebook/opt-13b"))]
    for _ in range(draw.randrange(6)):
        name = draw.choice(flags)
        text = draw.choice((draw.choice(GOOD_VALUES), draw.choice(BAD_VALUES), number(draw), json.dumps(value(draw)), ""))
        quoted = text if draw.random() < 0.3 else "'" + text.replace("'", "'\\''") + "'"
        made.append(name + draw.choice((" ", "=", ".x ", "_")) + quoted)
    return draw.choice((" ", "\n", " \\\n ")).join(made)
