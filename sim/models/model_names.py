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

_DROP = re.compile(r"meta|family|instruct|chat|hf|it|base|thinking|reasoning|reasoner|preview|arch|class|nvidia|c4ai|lora|"
                   r"fine|tune|finetuned?|mtp\d*|dynamic|static|pertensor|bf16|fp16|\d{4}|"
                   r"awq|gptq|int[48]|fp8|w8a8|w4a16|nvfp4|mxfp4|gguf|exl3|bnb|[48]bit|i?q\d_\w+", re.IGNORECASE)
_VERSION = re.compile(r"v\d+(\.\d+)?", re.IGNORECASE)
_GGUF = re.compile(r"i?q\d_\w+", re.IGNORECASE)
_SAYS_NOTHING = ("source", "note", "quirks", "torch_dtype")  # about what makes two records the same model
_QUANTIZATION = {  # words of a name -> how the weights are stored; the first that is there counts ("GPTQ-Int8" is int8)
    "int8": "int8", "8bit": "int8", "w8a8": "int8", "fp8": "fp8", "nvfp4": "nvfp4", "mxfp4": "mxfp4", "awq": "awq",
    "gptq": "gptq", "bnb": "bitsandbytes", "int4": "int4", "w4a16": "int4", "4bit": "int4", "exl3": "exl3", "gguf": "gguf",
}


@functools.cache
def catalogue() -> dict[str, Any]:
    """The packaged files: ``models`` by name, ``families`` and ``other_layers``; read once, not to be changed.

    >>> catalogue()["models"]["meta-llama/Llama-2-13b"]["num_hidden_layers"]
    40
    """
    data: dict[str, Any] = {}
    for name in ("families.json", "models.json"):
        data |= json.loads(resources.files("sim.models").joinpath("data", name).read_text(encoding="utf-8"))
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
        A Hugging Face id or its last part in any case; blanks may stand for hyphens, a remark in brackets falls away.
    is_folder : bool
        The text is also a folder, one without a config.json: said where no name fits.

    Raises
    ------
    InputError
        If no name fits, with up to three close ones; or if several do.

    >>> find_name("Qwen2.5-14B-Instruct-AWQ", is_folder=False)
    ('Qwen/Qwen2.5-14B', ['Instruct', 'AWQ'], 'awq')
    """
    names, wanted = known_models(), text.strip().lower()
    for name in names:
        if wanted in (name.lower(), name.split("/")[-1].lower()):
            return name, [], None
    words = _words(text)
    same = [name for name in names if _core(_words(name)) == _core(words) != ()] \
        or [name for name in names if _same_version(_words(name), words)]
    fitting = [name for name in same if not _stored_words(_words(name)) - {word.lower() for word in words}]
    if not fitting:
        if is_folder:
            raise InputError(f"{text}: no config.json in this folder")
        raise InputError(f"unknown model {shortened(text)}: {_hint(names, ' '.join(wanted.split()))}")
    name = _likeliest(text, fitting, words)
    kept = {word.lower() for word in _words(name)}
    dropped = [word for word in words if word.lower() not in kept]
    return name, dropped + re.findall(r"\([^()]*\)", text), named_quantization(text)


def named_quantization(name: str) -> str | None:
    """How the weights of a model of this name are stored, if one of its words tells.

    >>> named_quantization("Qwen2.5-14B-Instruct-GPTQ-Int8"), named_quantization("Llama-3.2-3B Q4_K_M GGUF")
    ('int8', 'Q4_K_M')
    """
    words = [word.lower() for word in _words(name)]
    packed = next((word.upper() for word in words if _GGUF.fullmatch(word)), None)
    return packed or next((kind for word, kind in _QUANTIZATION.items() if word in words), None)


def shortened(value: object) -> str:
    """A value as an error message quotes it: its repr, at most 60 characters.

    >>> shortened("x" * 99)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _words(name: str) -> list[str]:
    """The words of a name, without the owner and remarks in brackets; "4-bit" is one."""
    text = re.sub(r"\([^()]*\)", " ", name).split("/")[-1]
    return [word for word in re.split(r"[-+\s]+", re.sub(r"\b([48])[- ]bit\b", r"\1bit", text, flags=re.IGNORECASE)) if word]


def _core(words: list[str]) -> tuple[str, ...]:
    return tuple(word.lower() for word in words if not _DROP.fullmatch(word))


def _same_version(own: list[str], words: list[str]) -> bool:
    """Whether two names differ by a version like "v0.1" that only one of them has."""
    versions = [[word.lower() for word in each if _VERSION.fullmatch(word)] for each in (own, words)]
    rests = [tuple(word for word in _core(each) if not _VERSION.fullmatch(word)) for each in (own, words)]
    return rests[0] == rests[1] != () and [] in versions


def _stored_words(words: list[str]) -> set[str]:
    """Words of a catalogue name that say how its weights are stored: they must have been asked for."""
    return {word.lower() for word in words if word.lower() in _QUANTIZATION}


def _likeliest(text: str, names: list[str], words: list[str]) -> str:
    """The name with most of the fallen words in common, then with fewest of its own; equals must be the same model."""
    def likeness(name: str) -> tuple[int, int]:
        own = {word.lower() for word in _words(name) if _DROP.fullmatch(word)} - {"meta"}
        common = own & {word.lower() for word in words}
        return len(common), -len(own - common)

    if len({tuple(filter(_VERSION.fullmatch, _words(name))) for name in names}) > 1:
        raise InputError(f"unknown model {shortened(text)}: it could be {', '.join(names[:4])}")
    most = max(map(likeness, names))
    best = [name for name in names if likeness(name) == most]
    records = [{field: value for field, value in catalogue()["models"][name].items() if field not in _SAYS_NOTHING}
               for name in best]
    if any(record != records[0] for record in records):
        raise InputError(f"unknown model {shortened(text)}: it could be {', '.join(best[:4])}")
    return best[0]


def _hint(names: list[str], wanted: str) -> str:
    short = {name.lower().split("/")[-1].removeprefix("meta-"): name for name in names}
    close = difflib.get_close_matches(wanted.split("/")[-1].removeprefix("meta-"), short, n=3, cutoff=0.4)
    return f"closest: {', '.join(short[name] for name in close)}" if close else "no name is close"
