"""A pasted vLLM server command, as words for ``pagedsim plan``.

    $ CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-8B -tp 2 --max_model_len 16k --api-key KEY > log 2>&1
      `----- not read -------' `launcher' `model, the plan's options --------' `ignored -----' `not read -'

Which option is read, ignored or not modelled is listed in vllm_flags.py. Ignored and unmodelled options are reported by
name only: their values can be keys.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from experiments.options import human_int
from experiments.planning.vllm_flags import SPECULATIVE, Flag, known_flags, look_up
from workloads.messages import show
from workloads.request import InputError

DTYPES = {"half": "float16", "float": "float32"}
WANTED = "vllm serve MODEL ..., python -m vllm.entrypoints.openai.api_server ... or docker run ... vllm/vllm-openai ..."

_MODULE = re.compile(r"(?:^|/)vllm[./]entrypoints[./](?:openai[./])?api_server(?:\.py)?$")
_PROGRAM = re.compile(r"(?:\S*/)?vllm(?:@\S+)?|vllm\.entrypoints\.cli\.main")
_CONTAINER = re.compile(r"(?:\S*/)?(?:docker|podman|nerdctl|apptainer|singularity)")
_IMAGE = re.compile(r"(?:docker://)?(?:(?:[\w.-]+(?::\d+)?/)+[\w.-]*vllm[\w.-]*(?::[\w.-]+)?(?:@sha256:\w+)?|vllm[\w.-]*:[\w.-]+)")
_VERSION = re.compile(r"vllm\S*?[:_@=-]v?(\d\.\d+(?:\.\d+)?)(?!\d)")
_PREAMBLE = re.compile(r"[$#%>]|\w+=.*|sudo|nohup|env|exec", re.DOTALL)
_SHELL = re.compile(r"\d?>|[&|;]")
_COMMENT = re.compile(r"(?m)(?:^|\s)#[^\n'\"]*$")


@dataclass(frozen=True)
class ServeLine:
    """What a server command says about memory.

    Parameters
    ----------
    arguments : list of str
        Words for plan's own parser, one option a word, each option at most once.
    ignored : list of str
        Names of vLLM options that do not change the memory plan.
    unmodelled : dict of str to str
        Names of vLLM options that do change it and are not modelled -> what they change.
    version_hint : str or None
        vLLM's version where the command names it (``0.11.0`` of an image's tag).
    """

    arguments: list[str]
    ignored: list[str]
    unmodelled: dict[str, str]
    version_hint: str | None


def read_serve_line(words: list[str]) -> ServeLine:
    """Sort the options of a pasted server command; a repeated option counts the last time, as in vLLM.

    Parameters
    ----------
    words : list of str
        The command as the shell split it, or all of it in one quoted word.

    Raises
    ------
    InputError
        If this is no command of a vLLM server, an option is unknown or lacks its value, or there is not one model.

    >>> line = read_serve_line("vllm serve Qwen/Qwen3-8B -tp 2 --max_model_len 16k --port 80 --enable-lora".split())
    >>> line.arguments
    ['--model=Qwen/Qwen3-8B', '--tensor-parallel-size=2', '--max-model-len=16000']
    >>> line.ignored, line.unmodelled
    (['--port'], {'--enable-lora': 'LoRA adapters and their buffers'})
    """
    options, version_hint = _split(_clean(words))
    taken: dict[str, str] = {}
    ignored: dict[str, None] = {}
    unmodelled: dict[str, str] = {}
    speculation: dict[str, Any] = {}
    for spelling, flag, value in _options(options):
        if flag.kind == "ignored" or (flag.kind == "unmodelled" and value is False):
            ignored[spelling] = None
        elif flag.kind == "unmodelled":
            unmodelled[spelling] = flag.why
        elif flag.kind == "speculative":
            speculation |= _speculation(flag.name, str(value))
        elif flag.name == "model" and "model" in taken:
            raise InputError(f"the command names two models: {show(taken['model'].partition('=')[2])} and {show(value)}")
        else:
            taken[flag.name] = _argument(flag.name, value)
    if taken.get("model", "--model=") == "--model=":
        raise InputError("the command names no model: vllm serve MODEL ... or --model MODEL is wanted")
    drafts, reason = _drafts(speculation)
    if reason:
        unmodelled["--speculative-config"] = reason
    return ServeLine([*taken.values(), *drafts], list(ignored), unmodelled, version_hint)


def _clean(words: list[str]) -> list[str]:
    """Words without line continuations and with plain dashes; one quoted word is split as a shell would."""
    if len(words) == 1:
        text = re.sub(r"[\\^`][ \t\r]*\n", " ", words[0])
        text = _COMMENT.sub("", text) if _COMMENT.sub("", text).strip() else text
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise InputError(f"the command cannot be split into words: {error}") from None
    words = [re.sub("^[–—]+", "--", word) for word in words]
    words = [re.sub(r"\\\s*$", "", word).strip() or (word and "\\") for word in words]
    return [word for word in words if word not in ("\\", "^", "`", "--")]


def _split(words: list[str]) -> tuple[list[str], str | None]:
    """The words behind the launcher up to the next shell operator, and the version that the words before it name."""
    start = image = None
    for at, word in enumerate(words):
        if at and words[at - 1] in ("-c", "-lc") and "vllm" in word:                 # bash -c 'vllm serve ...'
            return _split(words[:at - 1] + _clean([word]))
        if image is None and _IMAGE.fullmatch(word) and any(_CONTAINER.fullmatch(before) for before in words[:at]):
            image = at + 1 + (words[at + 1:at + 2] == ["serve"])
        if _MODULE.search(word):
            start = at + 1
        elif _PROGRAM.fullmatch(word) and words[at + 1:at + 2] == ["serve"]:
            start = at + 2
        if start:
            break
    if (start := start or image) is None:
        raise InputError(_no_server(words))
    end = next((at for at in range(start, len(words)) if _SHELL.match(words[at])), len(words))
    versions = [match[1] for word in words[:start] if (match := _VERSION.search(word))]
    return words[start:end], versions[0] if versions else None


def _no_server(words: list[str]) -> str:
    rest = [word for word in words if not _PREAMBLE.fullmatch(word)]
    if not rest:
        return f"a server command is wanted: {WANTED}"
    name = rest[rest.index("-m") + 1] if "-m" in rest[:-1] else rest[0]
    return f"{show(name)} starts no vLLM server; wanted: {WANTED}"


def _options(words: list[str]) -> Iterator[tuple[str, Flag, str | bool]]:
    """Each option as spelled in full, what it is, and its value; the model of ``vllm serve MODEL`` as ``--model``."""
    table, queue, positional = known_flags(), deque(words), False
    while queue:
        word = queue.popleft()
        if not word.startswith("-"):
            if positional:
                raise InputError(f"the command has one word too many: {show(word)}")
            positional = True
            yield "--model", table["--model"][0], word
            continue
        if word.startswith("-O"):                      # -O3, -O 3, -O.mode 3
            word = "--optimization-level=" + (word[2:].lstrip("=") if word[2:3] not in ("", ".") else _next(queue, "-O"))
        name, equals, value = word.partition("=")
        name, dot, key = name.partition(".")
        name = look_up(table, name.replace("_", "-") if name.startswith("--") else name)
        flag, on = table[name]
        if flag.values == "switch":
            yield name, flag, _switch(name, queue, value if equals else None) == on
            continue
        if flag.values in ("many", "optional") and not equals:
            while queue and _is_value(queue[0]) and (value == "" or flag.values == "many"):
                value = queue.popleft()
        elif not equals:
            value = _next(queue, name)
        yield name, flag, json.dumps({key: value}) if dot else value


def _is_value(word: str) -> bool:
    return not word.startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", word) is not None


def _next(queue: deque[str], name: str) -> str:
    if not queue or not _is_value(queue[0]):
        raise InputError(f"{name} lacks its value")
    return queue.popleft()


def _switch(name: str, queue: deque[str], value: str | None) -> bool:
    """Whether a switch is used as it stands; older releases let ``true`` or ``false`` follow."""
    if value is None and queue and queue[0].lower() in ("true", "false"):
        value = queue.popleft()
    if value is not None and value.lower() not in ("true", "false"):
        raise InputError(f"{name} takes no value")
    return value is None or value.lower() == "true"


def _argument(name: str, value: str | bool) -> str:
    """The word for plan's parser."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    try:
        if name == "max-model-len":
            value = "auto" if value in ("-1", "auto") else str(human_int(value))
        elif name == "max-num-batched-tokens":
            value = str(human_int(value))
        elif name == "kv-cache-memory-bytes":
            return f"--available-kv-gib={human_int(value) / 2**30!r}"       # a power of two: exact below 2**53 bytes
    except (ValueError, OverflowError):
        raise InputError(f"--{name}: a whole number such as 8192, 16k or 16K is wanted, not {show(value)}") from None
    return f"--{name}={DTYPES.get(value, value) if name == 'dtype' else value}"


def _speculation(name: str, value: str) -> dict[str, Any]:
    """What one option adds to the speculative configuration."""
    if name in SPECULATIVE:
        return {SPECULATIVE[name]: value}
    try:
        entries = json.loads(value)
    except (ValueError, RecursionError):
        entries = value
    if not isinstance(entries, dict):
        raise InputError(f"--{name}: a JSON object is wanted, not {value[:80]!r}")
    return entries


def _drafts(speculation: dict[str, Any]) -> tuple[list[str], str]:
    """Words for plan, and what is not modelled. Without a method and a draft model vLLM takes the model's own MTP layer."""
    if not speculation:
        return [], ""
    method = str(speculation.get("method") or speculation.get("model") or "mtp")
    tokens = speculation.get("num_speculative_tokens")
    words = [] if tokens is None else [f"--num-speculative-tokens={tokens}"]
    if method.endswith("mtp"):
        return [*words, "--mtp-layers=1"], ""
    if method == "suffix" or method.strip("[]").startswith("ngram"):
        return words, ""                               # drafts come from the text itself
    return words, "a draft model's weights and KV cache"
