"""The cost part of the plan: an API's monthly bill, what own GPUs cost a token, and where the two meet."""

from __future__ import annotations

import argparse
import json
import math
from fractions import Fraction
from typing import Any

from experiments.options import number
from sim.sizing.cost import Fleet, Request, break_even, monthly_cost
from sim.sizing.inverse import concurrency
from sim.sizing.plan import Plan
from sim.sizing.rules import Held
from workloads.messages import reading_failed, show, show_path
from workloads.request import InputError
from workloads.whole_file import bytes_of

MOST_THROUGHPUT = 1e12                                 # tokens a second
LARGEST_MIB = 64                                       # of a result that is read back


def add_cost(parser: argparse.ArgumentParser) -> None:
    """Traffic, prices and throughput."""
    group = parser.add_argument_group("a typical request, and cost")
    group.add_argument("--prompt-tokens", type=number(including=True, most=1e12), metavar="N", help="prompt tokens a request")
    group.add_argument("--output-tokens", type=number(including=True, most=1e12), metavar="N", help="output tokens a request")
    group.add_argument("--requests-per-day", type=number(most=1e12), metavar="N", help="requests a day (a month has 30 days)")
    group.add_argument("--price-input", type=number(including=True, most=1e9), metavar="USD",
                       help="an API's price for a million prompt tokens")
    group.add_argument("--price-output", type=number(including=True, most=1e9), metavar="USD",
                       help="an API's price for a million output tokens")
    group.add_argument("--gpu-hour", type=number(most=1e9), metavar="USD", help="price of a GPU for an hour")
    group.add_argument("--throughput", type=number(most=MOST_THROUGHPUT), metavar="TOKENS/S",
                       help="tokens a second of all the GPUs, prompt and output together")
    group.add_argument("--throughput-from", metavar="FILE.json", help="the throughput that `pagedsim compare --json` found, "
                       "of its last allocator")


def cost_json(options: argparse.Namespace, made: Plan) -> dict[str, Any] | None:
    """What was asked for, in dollars; None where nothing was.

    Raises
    ------
    InputError
        If a part is missing that another needs.
    """
    shards = made.deployment.shards
    gpus = shards.tensor * shards.pipeline * shards.data
    request, fleet = _request(options), _fleet(options, gpus)
    if request is None:
        if options.requests_per_day is not None or _priced(options):
            raise InputError("costs need --prompt-tokens and --output-tokens")
        if fleet is None:
            return None
    found: dict[str, Any] = {"request": None, "api": None, "gpus": None, "break_even": None}
    if request is not None:
        found["request"] = _held(Held(math.ceil(request.prompt_tokens), math.ceil(request.output_tokens)), made)
        if options.requests_per_day is not None:
            month = monthly_cost(request, options.requests_per_day)
            found["api"] = {"requests_per_day": options.requests_per_day, "input_tokens_per_month": float(month.input_tokens),
                            "output_tokens_per_month": float(month.output_tokens),
                            "dollars_per_month": float(month.api_dollars) if _priced(options) else None}
    if fleet is not None:
        per_million = fleet.dollars_per_million_tokens
        found["gpus"] = {"gpus": gpus, "dollars_per_gpu_hour": options.gpu_hour,
                         "dollars_per_month": float(fleet.dollars_per_month), "tokens_per_s": fleet.tokens_per_s,
                         "dollars_per_million_tokens": None if per_million is None else _float(per_million)}
    if fleet is not None and request is not None and _priced(options):
        even = break_even(request, fleet)
        found["break_even"] = {"requests_per_day": _float(even.requests_per_day), "requests_per_s": _float(even.requests_per_s),
                               "tokens_per_s": _float(even.tokens_per_s), "within_throughput": even.within_throughput}
    return found


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        raise InputError("a price or a throughput is so small that what follows from it is over 1e308") from None


def _held(held: Held, made: Plan) -> dict[str, Any]:
    """What a request holds at its worst moment and on average, and how many such fit at once."""
    if held.worst > made.report.max_model_len:
        raise InputError(f"a request of {held.worst:,} tokens is longer than max_model_len {made.report.max_model_len:,}")
    worst, mean = (concurrency(made, max(1, math.ceil(tokens))) for tokens in (held.worst, held.mean))
    return {"prompt_tokens": held.prompt_tokens, "output_tokens": held.output_tokens, "worst_tokens": held.worst,
            "mean_tokens": held.mean, "worst_concurrency": worst, "mean_concurrency": mean}


def _priced(options: argparse.Namespace) -> bool:
    return options.price_input is not None or options.price_output is not None


def _request(options: argparse.Namespace) -> Request | None:
    if options.prompt_tokens is None and options.output_tokens is None:
        return None
    if options.prompt_tokens is None or options.output_tokens is None:
        raise InputError("--prompt-tokens and --output-tokens go together")
    return Request(options.prompt_tokens, options.output_tokens, options.price_input or 0, options.price_output or 0)


def _fleet(options: argparse.Namespace, gpus: int) -> Fleet | None:
    if options.throughput is not None and options.throughput_from is not None:
        raise InputError("--throughput and --throughput-from: one of them")
    throughput = options.throughput if options.throughput_from is None else _measured(options.throughput_from)
    if options.gpu_hour is None:
        if throughput is not None:
            raise InputError("a throughput needs --gpu-hour to become a price")
        return None
    return Fleet(options.gpu_hour, gpus, throughput)


def _measured(path: str) -> float:
    """Tokens a second of the last allocator in a result of `compare`."""
    try:
        document = json.loads(bytes_of(path, LARGEST_MIB))
        found = document["scenarios"][-1]["throughput"]["total_tokens_per_s"]
    except InputError:                                 # too long, and says so
        raise
    except OSError as error:
        raise reading_failed(path, error) from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InputError(f"{show_path(path)}: no result of pagedsim compare --json") from None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found <= MOST_THROUGHPUT:
        raise InputError(f"{show_path(path)}: total_tokens_per_s is {show(found)}: no throughput")
    return float(found)
