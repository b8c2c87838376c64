"""Command-line options shared by the commands, under vLLM's own flag names."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NoReturn

from experiments.allocator_options import PAGES
from sim.catalog import ALLOCATORS, DEFAULT, ROUTERS
from sim.memory.arena import PLACEMENTS
from sim.scheduler_config import BATCHINGS, POLICIES
from sim.steady import parse_warmup
from workloads.messages import printable

BLOCK_SIZE = 16
MOST_REPLICAS = 1024
DEFAULT_ROUTER = "least-loaded"


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line on stderr and exits with 2."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """As it is; only ``--option=--`` is a value that is missing: argparse takes it for a list of none."""
        for word in sys.argv[1:] if args is None else args:
            if re.fullmatch(r"--[\w-]+=--", word):
                self.error(f"argument {word[:-3]}: expected one argument")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        if sys.stderr is not None:
            sys.stderr.write(f"{self.prog}: error: {printable(message)} (see {self.prog} --help)\n")
        sys.exit(2)


def human_int(text: str) -> int:
    """A whole number as vLLM reads it: ``k m g t`` are powers of 1000 and take decimals, ``K M G T`` powers of 1024.

    ``GB`` and ``GiB`` are understood too. Raises ValueError for anything else.

    >>> human_int("16k"), human_int("16K"), human_int("25.6k"), human_int("8192"), human_int("1GiB")
    (16000, 16384, 25600, 8192, 1073741824)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt])(i?b)?", text, re.IGNORECASE)
    if match is None:
        return int(text)
    number, suffix, unit = match.groups()
    power = "kmgt".index(suffix.lower()) + 1
    if "i" in unit.lower() if unit else suffix.isupper():
        return int(number) << 10 * power
    value = float(number) * 1000 ** power              # in floats, as vLLM
    if value == float("inf"):
        raise ValueError(f"{text[:40]}... is more than a float holds")
    return int(value)


def whole(least: int, most: int = 1 << 53) -> Callable[[str], int]:
    """An argparse type: a whole number from ``least`` to ``most``; 16k and 16K as vLLM reads them."""
    def parse(text: str) -> int:
        try:
            value = human_int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"a whole number is wanted, not {text!r}") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"at least {least} is wanted, not {value}")
        if value > most:
            raise argparse.ArgumentTypeError(f"{value} is too large: at most {most:,} is wanted")
        return value
    return parse


def number(above: float = 0.0, most: float = float("inf"), including: bool = False) -> Callable[[str], float]:
    """An argparse type: a finite number above (or from) ``above`` up to ``most``."""
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"a number is wanted, not {text!r}") from None
        if not (above < value <= most or (including and value == above)) or value == float("inf"):
            bound = "from" if including else "above"
            limit = "" if most == float("inf") else f" up to {most:g}"
            raise argparse.ArgumentTypeError(f"a number {bound} {above:g}{limit} is wanted, not {text!r}")
        return value
    return parse


def decimal(text: str) -> Fraction:
    """An argparse type: a number above 0, exactly as it is written, in decimals or as a fraction.

    >>> decimal("0.1"), decimal("343/1000")
    (Fraction(1, 10), Fraction(343, 1000))
    """
    if not re.fullmatch(r"\d{1,30}/\d{1,30}", text.strip()):          # 1e999999999 would take all day
        number(1e-9, 1e9, including=True)(text)
        return Fraction(text.strip())
    above, below = map(int, text.split("/"))
    if not below or not 1 <= Fraction(above, below) * 10**9 <= 10**18:
        raise argparse.ArgumentTypeError(f"a number from 1e-09 up to 1e+09 is wanted, not {text!r}")
    return Fraction(above, below)


def length(text: str) -> int:
    """An argparse type: a number of tokens; 0 stands for ``auto``."""
    if text.lower() == "auto":
        return 0
    return whole(2)(text)


def add_sizing(parser: argparse.ArgumentParser) -> None:
    """The model, the GPU and the pool they leave."""
    group = parser.add_argument_group("model, GPU and pool")
    group.add_argument("--model", metavar="NAME|PATH", help="catalogue name, Hugging Face id, or a config.json")
    group.add_argument("--gpu", metavar="NAME|SIZE", help="catalogue name such as H100-80GB, or a size such as 80GB or 80GiB")
    group.add_argument("--dtype", default="auto", help="weights and activations: auto, float16, bfloat16, float32")
    group.add_argument("--quantization", metavar="METHOD", help="weights: fp8, int8, int4, awq, gptq, nvfp4, mxfp4, "
                       "bitsandbytes, or a GGUF type such as Q4_K_M (default: as the model is published)")
    group.add_argument("--kv-cache-dtype", default="auto", help="auto (the model's), fp8, int8, ...")
    group.add_argument("--block-size", type=whole(1), default=BLOCK_SIZE, metavar="TOKENS",
                       help=f"slots a block (default {BLOCK_SIZE})")
    group.add_argument("--max-model-len", type=length, metavar="TOKENS", help="longest prompt + output, or auto: the longest "
                       "that fits (default: the model's; without a model the longest of the trace, rounded up to a block)")
    group.add_argument("--gpu-memory-utilization", type=number(0, 1), metavar="X",
                       help="share of the GPU's memory to use (default 0.92)")
    group.add_argument("--tensor-parallel-size", "-tp", type=whole(1), default=1, metavar="N", help="GPUs a replica (default 1)")
    group.add_argument("--pipeline-parallel-size", "-pp", type=whole(1, 1024), default=1, metavar="N",
                       help="stages the layers are cut into (default 1)")
    group.add_argument("--enable-expert-parallel", "-ep", action=argparse.BooleanOptionalAction, default=False,
                       help="whole experts on each GPU")
    group.add_argument("--mtp-layers", type=whole(0), default=0, metavar="N", help="multi-token-prediction layers (default 0)")
    group.add_argument("--cpu-offload-gb", type=number(including=True), default=0.0, metavar="GIB",
                       help="GiB of weights a GPU moved to the CPU (default 0)")
    group.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction, default=False, help="no CUDA graphs")
    group.add_argument("--available-kv-gib", type=number(most=1e9), metavar="GIB",
                       help="this KV budget a GPU instead of a derived one")
    group.add_argument("--num-gpu-blocks-override", type=whole(1), metavar="N",
                       help="the pool directly, null block included; no model needed then")


def add_measured(parser: argparse.ArgumentParser) -> None:
    """Terms of the budget as your own server printed them."""
    group = parser.add_argument_group("measured terms, GiB on one GPU (default: predicted)")
    for name, about in (("total-gpu", "memory of the card"), ("weights", "model weights"),
                        ("activation", "peak of the profiling run"),
                        ("non-torch", "memory outside of torch"), ("cuda-graph", "CUDA graphs")):
        least, including = {"total-gpu": (0, False), "non-torch": (-1e3, False)}.get(name, (0, True))
        group.add_argument(f"--{name}-gib", type=number(least, 1e9, including), metavar="GIB", help=about)


def add_deployment(parser: argparse.ArgumentParser) -> None:
    """What only the plan asks for."""
    group = parser.add_argument_group("server")
    flag = argparse.BooleanOptionalAction
    group.add_argument("--decode-context-parallel-size", "-dcp", type=whole(1), default=1, metavar="N",
                       help="GPUs a request's tokens are spread over (default 1)")
    group.add_argument("--data-parallel-size", "-dp", type=whole(1), default=1, metavar="N", help="replicas (default 1)")
    group.add_argument("--num-speculative-tokens", type=whole(0), default=0, metavar="N", help="tokens a step (default 0)")
    group.add_argument("--max-num-seqs", type=whole(1), metavar="N", help="most running sequences (default: by GPU)")
    group.add_argument("--max-num-batched-tokens", type=whole(1), metavar="N", help="token budget of a step (default: by GPU)")
    group.add_argument("--enable-chunked-prefill", action=flag, default=None, help="split prompts over steps")
    group.add_argument("--enable-prefix-caching", action=flag, default=None, help="keep states for prefix caching")
    group.add_argument("--async-scheduling", action=flag, default=False, help="two steps in flight (default off)")
    group.add_argument("--disable-hybrid-kv-cache-manager", action=flag, default=False, help="keep windows in full")
    group.add_argument("--mamba-cache-mode", choices=("none", "align", "all"), help="states a request keeps")
    group.add_argument("--mamba-ssm-cache-dtype", choices=("auto", "float32", "float16", "bfloat16"), default="auto",
                       help="dtype of recurrent states (default: the model's)")
    group.add_argument("--vllm-version", default=None, metavar="V", help="whose rules to follow (default 0.33, the newest)")


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    """The scheduler and the clock."""
    group = parser.add_argument_group("scheduler and clock")
    group.add_argument("--max-num-seqs", type=whole(1), metavar="N", help="most running sequences (default: by GPU)")
    group.add_argument("--max-num-batched-tokens", type=whole(1), metavar="N", help="token budget of a step (default: by GPU)")
    flag = argparse.BooleanOptionalAction
    group.add_argument("--enable-chunked-prefill", action=flag, default=True, help="split prompts over steps")
    group.add_argument("--enable-prefix-caching", action=flag, default=True, help="with or without paged-prefix")
    group.add_argument("--long-prefill-token-threshold", type=whole(0), default=0, metavar="TOKENS",
                       help="most prompt tokens a request and step (default 0: no limit)")
    group.add_argument("--watermark", type=number(0, 0.999, including=True), default=0.0, metavar="X",
                       help="share of the blocks kept free when admitting (default 0)")
    group.add_argument("--scheduling-policy", choices=POLICIES, default="fcfs", help="who is looked at first (default fcfs)")
    group.add_argument("--batching", choices=BATCHINGS, default="continuous",
                       help="static: a batch is formed when nothing runs and ends together (default continuous)")
    group.add_argument("--async-scheduling", action=flag, default=False,
                       help="schedule a step before the last one's output is known")
    group.add_argument("--preemption-mode", choices=("recompute", "swap"), default="recompute",
                       help="what a preempted request goes through (default recompute)")
    group.add_argument("--swap-space", type=number(), metavar="GIB",
                       help="host memory a GPU for swapping (default 4)")
    group.add_argument("--swap-blocks", type=whole(0), metavar="N", help="the same in blocks; no model needed then")
    group.add_argument("--vllm-version", metavar="V", help="whose rules the pool and the scheduler follow (default 0.33)")
    group.add_argument("--step-time", metavar="T", help="roofline, constant:20ms, or a file of `pagedsim calibrate` (default: "
                       "roofline where a model and a GPU are known)")


def add_replicas(parser: argparse.ArgumentParser) -> None:
    """Several replicas, and who goes where."""
    group = parser.add_argument_group("replicas")
    group.add_argument("--data-parallel-size", "-dp", type=whole(1, MOST_REPLICAS), default=1, metavar="N",
                       help="replicas of tensor x pipeline parallel GPUs, with a pool and a scheduler each (default 1)")
    group.add_argument("--router", choices=list(ROUTERS), metavar="NAME",
                       help=f"which replica a request goes to: {', '.join(ROUTERS)} (default {DEFAULT_ROUTER})")


def add_allocators(parser: argparse.ArgumentParser, default: Sequence[str] = DEFAULT) -> None:
    """What is compared, and what is where nobody says."""
    group = parser.add_argument_group("what is compared")
    group.add_argument("--allocator", action="append", choices=list(ALLOCATORS), metavar="NAME",
                       help=f"one of {', '.join(ALLOCATORS)}; may be repeated (default: {', '.join(default)})")
    group.add_argument("--placement", choices=list(PLACEMENTS), default="buddy",
                       help="where contiguous reservations go (default buddy)")
    group.add_argument("--page-size", choices=list(PAGES), help="page of vattention: K or V of one layer (default 2MiB)")
    group.add_argument("--saturate", action="store_true", help="all requests at time 0, memory alone limits")


def warm_up(text: str) -> str:
    """An argparse type: a warm-up rule of `sim.steady`."""
    try:
        parse_warmup(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """What is averaged besides the whole run."""
    parser.add_argument_group("measuring").add_argument(
        "--warm-up", type=warm_up, metavar="RULE", help="averages behind a warm-up too, as a row of a sweep has them: a share of "
        "the arrivals' time (20%%), a time (300s, 5min), mser5, or none; docs/measuring.md")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where results go."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", metavar="FILE", help="the result as JSON; - for standard output")
    group.add_argument("--plot", metavar="FILE", help="a picture of the pool over time: .png, .svg or .pdf; .gif moves")
    group.add_argument("--html", metavar="FILE", help="a page with all of it, for any browser, without a network")
    group.add_argument("--requests", metavar="FILE.csv", help="one row a request and allocator")
    group.add_argument("--chrome-trace", metavar="FILE.json", help="requests as spans and the pool as counters, for "
                       "ui.perfetto.dev or chrome://tracing; packed where it ends in .gz or .zst")
    add_quiet(group)


def add_quiet(group: Any) -> None:
    """The one rule of ``-q``: standard error has warnings and errors only, and reports are the same to the byte."""
    group.add_argument("-q", "--quiet", action="store_true", help="no progress and no notes on stderr, no word of what was "
                       "written; results, warnings and errors stay")
