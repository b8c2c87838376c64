"""The options of a scenario: those of `pagedsim compare` but for where results go, under the same names."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NoReturn

from experiments import options as opt
from experiments.cache_options import add_cache
from experiments.trace_options import add_trace
from experiments.whatif.values import Scalar, check_scalar
from workloads.messages import show
from workloads.request import InputError

SHORT = {"pool": "num-gpu-blocks-override", "tp": "tensor-parallel-size", "pp": "pipeline-parallel-size",
         "dp": "data-parallel-size", "prefix-caching": "enable-prefix-caching", "chunked-prefill": "enable-chunked-prefill",
         "policy": "scheduling-policy", "n": "samples"}
"""Other names of options -> option."""

OWN = ("seed", "allocator", "warm-up")
"""Options that a scenario says under keys of its own."""


class _Parser(opt.OneLineParser):
    """Complains by an exception: what is wrong is in a file."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message.removeprefix("argument "))


@cache
def parser() -> argparse.ArgumentParser:
    """A parser of the command line that stands for one run."""
    made = _Parser("pagedsim compare", add_help=False, allow_abbrev=False)
    for add in (add_trace, opt.add_sizing, opt.add_scheduler, opt.add_replicas, add_cache, opt.add_allocators, opt.add_measuring):
        add(made)
    made.set_defaults(quiet=True)
    return made


@cache
def _actions() -> Mapping[str, argparse.Action]:
    """Option without dashes -> what the parser knows about it."""
    named = {name[2:]: action for action in parser()._actions for name in action.option_strings
             if name.startswith("--") and not name.startswith("--no-") and name[2:] not in OWN}
    return {"trace": next(action for action in parser()._actions if action.dest == "trace"), **named}


@cache
def traffic_options() -> frozenset[str]:
    """The options that say what arrives and when."""
    made = argparse.ArgumentParser(add_help=False)
    add_trace(made)
    named = {name[2:] for action in made._actions for name in action.option_strings if name.startswith("--")}
    return frozenset({"trace", "saturate", *named})


def option_name(key: str) -> str:
    """The option a key of a scenario names: with dashes or underscores, or by a short name.

    Raises
    ------
    InputError
        If there is none; the closest are named.

    >>> option_name("max_model_len"), option_name("pool")
    ('max-model-len', 'num-gpu-blocks-override')
    """
    name = key.replace("_", "-")
    name = SHORT.get(name, name)
    if name not in _actions():
        close = difflib.get_close_matches(name, [*_actions(), *SHORT], n=2)
        raise InputError(f"unknown key {show(key)}" + (f": did you mean {' or '.join(close)}?" if close else
                                                       ": the keys are the options of pagedsim compare"))
    return name


def words(option: str, value: Scalar) -> list[str]:
    """The words of the command line that give an option a value.

    Raises
    ------
    InputError
        If a switch is given something else than true or false, or another option is given that.

    >>> words("enable-prefix-caching", False), words("block-size", 32), words("saturate", True)
    (['--no-enable-prefix-caching'], ['--block-size=32'], ['--saturate'])
    """
    action = _actions()[option]
    if option == "trace":
        return [str(value)]
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise InputError(f"true or false is wanted, not {show(value)}")
        has_opposite = any(name.startswith("--no-") for name in action.option_strings)
        return [f"--{option}"] if value else [f"--no-{option}"] if has_opposite else []
    if isinstance(value, bool):
        raise InputError(f"{'true' if value else 'false'} is no value of it")
    return [f"--{option}={value}"]


def check_value(option: str, value: object) -> None:
    """Raise InputError, without the option's name, if it cannot have this value.

    >>> check_value("block-size", 0)
    Traceback (most recent call last):
    ...
    workloads.request.InputError: at least 1 is wanted, not 0
    """
    check_scalar(value)
    if option == "trace" and (not isinstance(value, str) or value in ("", "-")):
        raise InputError(f"the name of a file is wanted, not {show(value)}")
    try:
        if option != "trace":
            parse(words(option, value))                # type: ignore[arg-type]
    except InputError as error:
        raise InputError(str(error).removeprefix(f"--{option}: ")) from None


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options from words.

    Raises
    ------
    InputError
        As the command line would complain, on one line.

    >>> parse(["--block-size=32", "--max-model-len=8k"]).max_model_len
    8000
    """
    return parser().parse_args(list(arguments))
