"""The plan on a terminal: the budget term by term, the lines a server would print, the inverse, the knobs, the cost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from experiments.shown import Line, TextTable, Titled, drawn
from workloads.request import InputError

JsonObject = dict[str, Any]
PIPE_COLUMNS, LEAST_COLUMNS = 120, 90
GB_A_GIB = (1 << 30) / 1e9


def print_plan(made: JsonObject) -> None:
    """All sections, to standard output."""
    if sys.stdout is None:
        raise InputError("standard output is closed")
    console = Console(width=PIPE_COLUMNS if not sys.stdout.isatty() else max(LEAST_COLUMNS, Console().width), highlight=False)
    for label, text in header(made):
        console.print(Text.assemble((f"{label:<8}", "bold"), text), soft_wrap=True)
    for title, table in tables(made):
        console.print()
        console.print(Text(title, "bold"))
        console.print(drawn(table))
    console.print()
    for label, text in thumb_and_cost(made):
        console.print(Text.assemble((f"{label:<8}", "bold"), text), soft_wrap=True)
    for style, label, lines in (("bold yellow", "warning", made["warnings"]), ("dim", "note", made["notes"])):
        for line in lines:
            console.print(Text.assemble((f"{label:<8}", style), line), soft_wrap=True)


def header(made: JsonObject) -> Iterator[Line]:
    """What is planned, the pool, the lines of a start-up, and whether it fits."""
    yield from _asked(made)
    yield from _answers(made)


def thumb_and_cost(made: JsonObject) -> Iterator[Line]:
    """Rules of thumb beside the budget, and what it costs."""
    yield from _rules(made)
    yield from _cost(made)


def _asked(made: JsonObject) -> Iterator[Line]:
    model, gpu, config = made["model"], made["gpu"], made["config"]
    if model is not None:
        size = "" if model["parameters"] is None else f", {model['parameters'] / 1e9:,.2f}e9 parameters"
        keeps = f"{model['kv_heads']} KV heads of {model['head_dim']}" if model["latent_width"] is None \
            else f"one latent row of {model['latent_width']} a token and layer"
        yield "model", f"{model['name']}{size}, {model['layers']} layers, {keeps}"
        yield "", f"weights {model['weights']}; KV cache {model['kv_cache_dtype']}"
    if gpu is not None:
        yield "gpu", (f"{gpu['count']} x {gpu['name']}: {gpu['memory_gib']:.2f} GiB = {gpu['memory_gb']:.2f} GB, "
                      f"labelled {gpu['label_gb']:g} GB")
    yield "server", (f"vLLM {made['vllm_version']}, max_model_len {made['max_model_len']:,}, max_num_seqs "
                     f"{config['max_num_seqs']:,}, max_num_batched_tokens {config['max_num_batched_tokens']:,}")
    parallel = [f"{name.replace('_', ' ').removesuffix(' size')} {config[name]}" for name in
                ("tensor_parallel_size", "pipeline_parallel_size", "decode_context_parallel_size", "data_parallel_size")
                if config[name] > 1]
    if parallel:
        yield "", ", ".join(parallel)


def tables(made: JsonObject) -> Iterator[Titled]:
    """The budget, the groups of layers, requests at once by length, and the knobs: those there are."""
    if made["budget"]:
        yield "Memory of one GPU", _budget(made)
    if made["layer_groups"]:
        yield "KV cache of one GPU", _groups(made)
    yield "Requests at once", _lengths(made)
    if made["knobs"]:
        yield "What each knob buys", _knobs(made)


def _budget(made: JsonObject) -> TextTable:
    table = TextTable(("", "GiB", "GB", "assumption"), frozenset({3}), total=True)
    for i, term in enumerate(made["budget"]):
        sign = -1 if i else 1
        table.add_row(term["name"], _signed(sign * term["gib"]), _signed(sign * term["gib"] * GB_A_GIB), term["assumption"])
    left = made["available_kv_gib"]
    table.add_row("left for KV", f"{left:,.2f}", f"{left * GB_A_GIB:,.2f}")
    return table


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:,.2f}"             # no minus before nothing


def _groups(made: JsonObject) -> TextTable:
    table = TextTable(("layers", "tables", "block, tokens", "bytes a token and layer", "page, bytes", "blocks a request"),
                      frozenset({0}))
    for group in made["layer_groups"]:
        reach = "" if group["reach_tokens"] is None else f" {group['reach_tokens']:,}"
        table.add_row(f"{group['layers']} {group['kind']}{reach}", f"{group['groups']}", f"{group['block_size']:,}",
                      _sum(group["bytes_per_token_and_layer"]), _sum(group["page_bytes"]), f"{group['blocks_per_request']:,}")
    return table


def _sum(values: list[int]) -> str:
    return " + ".join(f"{value:,}" for value in values)


def _lengths(made: JsonObject) -> TextTable:
    table = TextTable(tuple(f"{entry['tokens']:,}" for entry in made["concurrency_at"]))
    table.add_row(*(f"{entry['max_concurrency']:,.2f}" for entry in made["concurrency_at"]))
    return table


def _knobs(made: JsonObject) -> TextTable:
    table = TextTable(("", "change", "GiB for KV", "tokens", "at once", "gain"), frozenset({1}))
    for knob in made["knobs"]:
        gain = "-" if knob["gain"] is None else f"{knob['gain']:.2f} x"
        table.add_row(knob["name"], knob["change"], f"{knob['available_gib']:,.2f}", f"{knob['kv_tokens']:,}",
                      f"{knob['max_concurrency']:,.2f}", gain)
    return table


# ---------------------------------------------------------------------- the answers in words
def _answers(made: JsonObject) -> Iterator[Line]:
    size = "" if made["kv_bytes_per_block"] is None else (
        f" of {made['kv_bytes_per_block']:,} bytes; {made['kv_bytes_per_token']:,} bytes a token")
    yield "pool", f"{made['num_blocks']:,} blocks{size}"
    for i, line in enumerate(made["log_lines"]):
        yield "" if i else "log", line
    if len(made["layer_groups"]) > 1 or len({entry["kv_tokens"] for entry in made["by_version"]}) > 2:
        for entry in made["by_version"][:-1]:
            first, last = entry["versions"]
            span = first if first == last else f"{first} to {last}"
            yield "", (f"with these bytes vLLM {span} would print {entry['kv_tokens']:,} tokens and "
                       f"{entry['max_concurrency']:.2f}x")
    yield "fits", "yes" if made["refusal"] is None else f"no: {made['refusal']}"
    yield from _inverse(made)


def _inverse(made: JsonObject) -> Iterator[Line]:
    found = made["inverse"]
    if found is None:
        return
    longest, memory = found["longest_max_model_len"], found["longest_in_memory"]
    own = "" if memory <= longest else f", the model's own limit; the memory would hold {memory:,}"
    yield "longest", f"--max-model-len {longest:,} is the most that fits{own}" if longest else "no length fits"
    if made["budget"]:
        ranks, card = found["smallest_tensor_parallel_size"], found["smallest_gpu"]
        yield "least", (f"--tensor-parallel-size {ranks}" if ranks else "no tensor-parallel size serves it") + (
            f" of this card; by memory alone as many {card['name']} ({card['label_gb']:g} GB) would do" if card
            else "; no card of the catalogue does")


def _rules(made: JsonObject) -> Iterator[Line]:
    found = made["rules_of_thumb"]
    if found is None:
        return
    yield "rules", (f"of thumb, for one request of {made['max_model_len']:,} tokens ({found['kv_of_one_request_gib']:.2f} GiB "
                    f"KV): (weights + KV) x 1.15 + 1 GiB = {found['total_gib']:.2f} GiB a GPU")
    yield "", (f"10-30 % on top: {found['least_on_top_gib']:.2f} to {found['most_on_top_gib']:.2f} GiB; while loading "
               f"{found['loading_gib']:.2f} GiB; activations of all layers for {found['activation_tokens']:,} tokens "
               f"{found['all_layers_activation_gib']:.2f} GiB")


def _cost(made: JsonObject) -> Iterator[Line]:
    cost = made["cost"]
    if cost is None:
        return
    request, api, gpus, even = cost["request"], cost["api"], cost["gpus"], cost["break_even"]
    if request is not None:
        worst, mean = request["worst_concurrency"], request["mean_concurrency"]
        yield "request", (f"{request['worst_tokens']:,} tokens at its last moment: {worst:,.2f} at once in the worst case; "
                          f"{request['mean_tokens']:,.0f} on average: {mean:,.2f} at once")
    if api is not None:
        dollars = "" if api["dollars_per_month"] is None else f": ${api['dollars_per_month']:,.2f} a month of an API"
        yield "month", (f"{api['input_tokens_per_month'] / 1e6:,.1f} M prompt and {api['output_tokens_per_month'] / 1e6:,.1f} M "
                        f"output tokens{dollars}")
    if gpus is not None:
        per = gpus["dollars_per_million_tokens"]
        rate = "" if per is None else f", ${per:,.3f} a million tokens at {gpus['tokens_per_s']:,.0f} tokens/s"
        yield "GPUs", (f"{gpus['gpus']} at ${gpus['dollars_per_gpu_hour']:.2f} an hour: "
                       f"${gpus['dollars_per_month']:,.2f} a month{rate}")
    if even is not None:
        within = {True: ", which they can serve", False: ", more than they can serve", None: ""}[even["within_throughput"]]
        yield "even", (f"{even['requests_per_day']:,.0f} requests a day ({even['requests_per_s']:.2f}/s, "
                       f"{even['tokens_per_s']:,.0f} tokens/s): above that the GPUs are cheaper{within}")

