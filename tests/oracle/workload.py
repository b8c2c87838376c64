"""Cases as they stand in the JSON files: defaults, checks and the expansion of prompts to tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DETAILS = ("full", "steps", "none")

DEFAULT_CONFIG: dict[str, Any] = {
    "mode": "scheduler",
    "num_blocks": 100,
    "block_size": 16,
    "enable_prefix_caching": True,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 256,
    "max_model_len": 131072,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "reserve_full_isl": True,
    "watermark": 0.0,
    "policy": "fcfs",
    "async_scheduling": False,
    "groups": [{"kind": "full"}],
    "max_steps": 1_000_000,
    "detail": "full",
}


@dataclass(frozen=True)
class Entry:
    """One request of a case.

    Attributes
    ----------
    rid : str
        Its name.
    arrive : int
        The step before which it is handed to the scheduler.
    output : int
        Tokens to generate; there is no end-of-sequence token.
    prompt : list of int
        Prompt token ids.
    salt : str or None
        `cache_salt`.
    priority : int
        Used by policy ``priority`` only; smaller goes first.

    """

    rid: str
    arrive: int
    output: int
    prompt: list[int] = field(repr=False)
    salt: str | None = None
    priority: int = 0


class Streams:
    """Named, endless, pairwise different token streams.

    Only equality of tokens matters to the scheduler, so a stream is just a range of integers of its own. Spans of
    `hash_ids` have one token value per id: the hash of a block covers its whole prefix, so repeating a token inside
    a span cannot make two different positions equal.
    """

    # Wide enough for any prompt here; narrow enough that the ids of some thousand streams stay ordinary integers.
    WIDTH = 1 << 22

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def token(self, name: str, index: int) -> int:
        """Return token `index` of stream `name`."""
        return self._start(name) + index

    def take(self, name: str, count: int) -> list[int]:
        """Return the first `count` tokens of stream `name`."""
        start = self._start(name)
        return list(range(start, start + count))

    def _start(self, name: str) -> int:
        # The first range is left to the ids of `hash_ids`.
        return self._first.setdefault(name, self.WIDTH * (len(self._first) + 1))


def output_stream(rid: str) -> str:
    """Name the stream that a request generates."""
    return f"out:{rid}"


def complete_config(given: dict[str, Any]) -> dict[str, Any]:
    """Fill in defaults and refuse what the recorder does not know.

    Parameters
    ----------
    given : dict
        The `config` of a case.

    Returns
    -------
    dict
        All keys of `DEFAULT_CONFIG`, in that order.

    """
    strange = sorted(given.keys() - DEFAULT_CONFIG.keys())
    if strange:
        raise ValueError(f"config keys the recorder does not know: {', '.join(strange)}")
    config = DEFAULT_CONFIG | given
    if config["mode"] != "scheduler":
        raise ValueError("only mode 'scheduler' is recorded")
    if config["detail"] not in DETAILS:
        raise ValueError(f"detail must be one of {DETAILS}")
    # vLLM refuses more sequences than tokens per step.
    config["max_num_seqs"] = min(config["max_num_seqs"], config["max_num_batched_tokens"])
    return config


def prompt_tokens(request: dict[str, Any], streams: Streams) -> list[int]:
    """Expand the prompt of one request.

    Parameters
    ----------
    request : dict
        Holds `prompt` (parts of streams) or `hash_ids` with `input_length`.
    streams : Streams
        Shared by all requests of a case.

    """
    if "prompt" in request:
        return [token for name, count in request["prompt"] for token in streams.take(name, count)]
    span, length = request.get("hash_block", 512), request["input_length"]
    ids = request["hash_ids"]
    if len(ids) * span < length:
        raise ValueError(f"request {request.get('id')}: {len(ids)} hash ids of {span} tokens do not cover {length}")
    return [ids[position // span] + 1 for position in range(length)]


def expand(requests: list[dict[str, Any]], streams: Streams) -> list[Entry]:
    """Expand all requests, ordered by arrival; those of one step keep the order of the file."""
    entries = [
        Entry(
            rid=str(raw.get("id", f"r{number}")),
            arrive=int(raw.get("arrive", 0)),
            output=int(raw.get("output", raw.get("output_length", 1))),
            prompt=prompt_tokens(raw, streams),
            salt=raw.get("salt"),
            priority=int(raw.get("priority", 0)),
        )
        for number, raw in enumerate(requests)
    ]
    return sorted(entries, key=lambda entry: entry.arrive)


def load_case(path: Path) -> dict[str, Any]:
    """Read a case and check that it has what is needed to record it."""
    case = json.loads(path.read_text(encoding="utf-8"))
    missing = [key for key in ("config", "requests") if key not in case]
    if missing:
        raise ValueError(f"{path}: not a case, no {' and no '.join(missing)}")
    return case


def dump_case(case: dict[str, Any]) -> str:
    """Write a case with a line per part and per request, so that changes are readable in a diff."""
    lines = [f"{json.dumps(key)}: {json.dumps(case[key])}" for key in ("about", "vllm", "config") if key in case]
    rows = ",\n".join(" " + json.dumps(request) for request in case["requests"])
    lines.append(f'"requests": [\n{rows}\n]')
    if "result" in case:
        lines.append(f'"result": {json.dumps(case["result"])}')
    return "{\n" + ",\n".join(lines) + "\n}\n"
