"""The model catalogue (data/models.json, data/families.json) and its names as people type them.

    "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit"
             meta  llama 3.1 8b  instruct bnb 4bit     words, without the owner
                   llama 3.1 8b                        the core, which must be that of a catalogue name
             meta                instruct bnb 4bit     what may fall away; "4bit" says that the weights are int4

The catalogue also holds the tables that tell how a ``model_type`` differs from a Llama, and which layers keep their
cache another way.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from importlib import resources
from typing import Any

from workloads.request import InputError

_DROP = re.compile(r"meta|family|instruct|chat|hf|it|base|thinking|preview|dynamic|static|pertensor|bf16|fp16|\d{4}|"
                   r"awq|gptq|int4|int8|fp8|w8a8|w4a16|nvfp4|mxfp4|gguf|bnb|4bit|8bit", re.IGNORECASE)
_QUANTIZATION = {  # words of a name -> how the weights are stored; the first that is there counts ("GPTQ-Int8" is int8)
    "int8": "int8", "8bit": "int8", "w8a8": "int8", "fp8": "fp8", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "awq": "awq",
    "gptq": "gptq", "int4": "int4", "w4a16": "int4", "4bit": "int4", "bnb": "int4", "gguf": "gguf",
}


@functools.cache
def catalogue() -> dict[str, Any]:
    """The packaged files: ``models`` by name, ``families`` and ``other_layers``; read once, not to be changed.

    >>> catalogue()["models"]["meta-llama/Llama-2-13b"]["num_hidden_layers"]
    40
    """
    data: dict[str, Any] = {}
    for name in ("families.json", "models.json"):
        data |= json.loads(resources.files("sim.sizing").joinpath("data", name).read_text(encoding="utf-8"))
    return data


def known_models() -> list[str]:
    """Names of the catalogue in its order; not all of them are understood yet.

    >>> "meta-llama/Llama-2-13b" in known_models()
    True
    """
    return list(catalogue()["models"])


def find_name(text: str, is_folder: bool) -> tuple[str, list[str], str | None]:
    """The catalogue name, the words that fell away and the quantization that the words name.

    Parameters
    ----------
    text : str
        A Hugging Face id or its last part in any case.
    is_folder : bool
        The text is also a folder, one without a config.json: said where no name fits.

    Raises
    ------
    InputError
        If no name fits; with up to three close ones.

    >>> find_name("Qwen2.5-14B-Instruct-AWQ", is_folder=False)
    ('Qwen/Qwen2.5-14B', ['Instruct', 'AWQ'], 'awq')
    """
    names, wanted = known_models(), text.lower()
    words = text.split("/")[-1].split("-")
    dropped = [word for word in words if _DROP.fullmatch(word)]
    quantization = named_quantization("-".join(dropped))
    for name in names:
        if wanted in (name.lower(), name.split("/")[-1].lower()):
            return name, [], None
    same = [name for name in names if _core(name) == _core(text) != ()]
    if not same:
        if is_folder:
            raise InputError(f"{text}: no config.json in this folder")
        short = {name.lower().split("/")[-1].removeprefix("meta-"): name for name in names}
        close = difflib.get_close_matches(wanted.split("/")[-1].removeprefix("meta-"), short, n=3, cutoff=0.4)
        hint = f"closest: {', '.join(short[name] for name in close)}" if close else "no name is close"
        raise InputError(f"unknown model {shortened(text)}: {hint}")
    name = max(same, key=lambda each: _likeness(each, dropped))  # the first of equals
    kept = {word.lower() for word in name.split("/")[-1].split("-")}
    return name, [word for word in dropped if word.lower() not in kept], quantization


def named_quantization(name: str) -> str | None:
    """How the weights of a model of this name are stored, if one of its words tells.

    >>> named_quantization("Qwen2.5-14B-Instruct-GPTQ-Int8")
    'int8'
    """
    words = name.lower().split("-")
    return next((kind for word, kind in _QUANTIZATION.items() if word in words), None)


def shortened(value: object) -> str:
    """A value as an error message quotes it: its repr, at most 60 characters.

    >>> shortened("x" * 99)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _core(name: str) -> tuple[str, ...]:
    words = name.lower().split("/")[-1].split("-")
    return tuple(word for word in words if not _DROP.fullmatch(word))


def _likeness(name: str, dropped: list[str]) -> tuple[int, int]:
    """More of the fallen words in common first, then fewer words of its own."""
    own = {word for word in name.lower().split("/")[-1].split("-") if _DROP.fullmatch(word)} - {"meta"}
    common = own & {word.lower() for word in dropped}
    return len(common), -len(own - common)
